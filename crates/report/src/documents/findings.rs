//! The findings of a study, as sentences.

use wirecost_analyze::findings::{Finding, findings};
use wirecost_analyze::measured::Measurements;
use wirecost_model::document::Section;

/// The findings of a study, each with its evidence and the strength of it; `None` if there are none.
#[must_use]
pub fn section(measured: &Measurements) -> Option<Section> {
    let found = findings(measured);
    if found.is_empty() {
        return None;
    }
    let mut section = Section { name: "findings".to_owned(), ..Section::new("Findings") };
    for finding in &found {
        section.text(text(finding));
    }
    Some(section)
}

fn text(finding: &Finding) -> String {
    let Finding { sentence, confidence, evidence, .. } = finding;
    format!("{sentence} Evidence: {}: {}.", confidence.text, evidence.join("; "))
}

#[cfg(test)]
mod tests {
    use wirecost_analyze::findings::Confidence;

    use super::*;

    #[test]
    fn a_finding_is_told_with_its_evidence() {
        let finding = Finding {
            kind: "cost",
            sentence: "The sender's cycles/KByte rise by a factor of 2.3 from 1 to 8 connections."
                .to_owned(),
            evidence: vec!["1: 1000".to_owned(), "8: 2300".to_owned()],
            confidence: Confidence {
                p_value: 0.001,
                interval: Some((2.1, 2.5)),
                text: "strong (adjusted p = 0.0010, 95% interval 2.1x to 2.5x)".to_owned(),
            },
        };
        assert_eq!(
            text(&finding),
            "The sender's cycles/KByte rise by a factor of 2.3 from 1 to 8 connections. Evidence: \
             strong (adjusted p = 0.0010, 95% interval 2.1x to 2.5x): 1: 1000; 8: 2300."
        );
        assert_eq!(section(&Measurements::default()), None);
    }
}
