//! What the rules of a study conclude from its runs.

use wirecost_model::document::{Effect, Finding};
use wirecost_model::metric::Unit;
use wirecost_model::run::Run;

use crate::findings::words;
use crate::measured::MeasuredPoint;
use crate::metrics;
use crate::statistics::Estimate;

/// A sentence, nothing worth one, or why there is none.
pub(crate) type Answer = Result<Option<Finding>, String>;

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
        answers: impl IntoIterator<Item = Answer>,
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

/// What took CPU time, or kept packets back, beside the load: codes of warnings, and words.
pub(crate) const DISTURBED: [(&str, &str); 2] = [
    ("foreign-cpu", "other programs used CPU time"),
    ("link-late", "the emulated links fell behind"),
];

/// How many runs of these points were disturbed, as the end of a sentence; empty where none was.
pub(crate) fn disturbances(points: &[&MeasuredPoint]) -> String {
    let runs = || points.iter().flat_map(|point| &point.runs);
    let parts = DISTURBED.iter().filter_map(|(code, what)| {
        let has = |run: &&Run| run.warnings.iter().any(|of| of.code == *code);
        let number = runs().filter(has).count();
        (number > 0).then(|| format!("in {number} of {} runs {what}", runs().count()))
    });
    let parts: Vec<String> = parts.collect();
    if parts.is_empty() { String::new() } else { format!("; {}", words::list(&parts)) }
}

/// A figure of a run, by the name of its metric.
pub(crate) fn figure(run: &Run, name: &str) -> Result<f64, String> {
    metrics::find(name).map_err(|unknown| unknown.to_string())?.of(run)
}

/// Over the runs of a point that have it.
pub(crate) fn mean(
    point: &MeasuredPoint,
    of: impl Fn(&Run) -> Result<f64, String>,
) -> Result<Estimate, String> {
    let each: Vec<Result<f64, String>> = point.runs.iter().map(of).collect();
    let values: Vec<f64> = each.iter().filter_map(|value| value.as_ref().ok()).copied().collect();
    Estimate::of(&values).ok_or_else(|| {
        let reason = each.into_iter().find_map(Result::err);
        let none = if point.failed.is_empty() { "not run yet" } else { "the run failed" };
        reason.unwrap_or_else(|| none.to_owned())
    })
}

/// What a finding states, and how large it is.
pub(crate) fn effect(
    name: &str,
    unit: Unit,
    value: f64,
    interval: Option<(f64, f64)>,
) -> Option<Effect> {
    Some(Effect { name: name.to_owned(), unit, value, interval, between: None })
}
