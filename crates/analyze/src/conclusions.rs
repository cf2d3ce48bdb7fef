//! What the rules of a study conclude from its runs.

use wirecost_model::document::Finding;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Conclusions {
    pub findings: Vec<Finding>,
    /// Questions without an answer, each with the reasons.
    pub unanswered: Vec<(&'static str, Vec<String>)>,
}

impl Conclusions {
    /// Adds what a rule, of this name and question, says: findings, nothing, or why it has no answer.
    pub(crate) fn add(
        &mut self,
        (name, question): (&'static str, &'static str),
        answers: impl IntoIterator<Item = Result<Option<Finding>, String>>,
    ) {
        let mut reasons: Vec<String> = Vec::new();
        for answer in answers {
            match answer {
                Ok(Some(finding)) => {
                    self.findings.push(Finding { kind: name.to_owned(), ..finding });
                }
                Ok(None) => {}
                Err(reason) if reasons.contains(&reason) => {}
                Err(reason) => reasons.push(reason),
            }
        }
        if !reasons.is_empty() {
            self.unanswered.push((question, reasons));
        }
    }
}
