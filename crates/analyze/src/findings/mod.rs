//! Findings: short sentences that a study's runs support. Each kind has a file. A kind without support
//! reports nothing.
//!
//! Each check of a kind is a test with a p-value, whether or not it becomes a sentence. All tests are
//! corrected: by Holm within a kind, by Bonferroni between kinds. Of 100 studies in which nothing has an
//! effect, at most 5 are expected to have any finding.

mod choices;
mod cost;
mod ends;
mod functions;
mod limits;
mod line;
mod saturation;
mod scalability;
mod words;

use serde::Serialize;

use crate::measured::Measurements;
use crate::statistics::holm;

/// Probability that a study without any effect has a finding.
const LEVEL: f64 = 0.05;

/// A finding of a study.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// Name of its kind.
    pub kind: &'static str,
    pub sentence: String,
    /// Its evidence: figures, and their points.
    pub evidence: Vec<String>,
    pub confidence: Confidence,
}

/// The strength of a finding's evidence.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Confidence {
    /// How likely chance shows as much, among all that was looked at.
    pub p_value: f64,
    /// 95% interval of the sentence's figure; null where nothing was repeated.
    pub interval: Option<(f64, f64)>,
    /// Both for a person.
    pub text: String,
}

/// A kind of finding.
#[derive(Debug)]
pub struct Kind {
    pub name: &'static str,
    /// One line for a person.
    pub help: &'static str,
    find: fn(&Measurements) -> Vec<Finding>,
}

/// All kinds, in the order of the report.
pub static ALL: &[Kind] =
    &[saturation::KIND, scalability::KIND, ends::KIND, cost::KIND, functions::KIND, choices::KIND];

/// All findings of a study.
#[must_use]
pub fn findings(measured: &Measurements) -> Vec<Finding> {
    ALL.iter().flat_map(|kind| (kind.find)(measured)).collect()
}

/// The significant tests of a kind, with corrected p-values.
fn significant<T>(tests: Vec<(f64, T)>) -> Vec<(f64, T)> {
    let p_values: Vec<f64> = tests.iter().map(|(p_value, _)| *p_value).collect();
    let corrected = holm(&p_values).into_iter().map(|p| (p * ALL.len() as f64).min(1.0));
    let all = corrected.zip(tests).map(|(p_value, (_, test))| (p_value, test));
    all.filter(|(p_value, _)| *p_value < LEVEL).collect()
}

impl Confidence {
    /// `show` writes a value of the interval.
    fn of(p_value: f64, interval: Option<(f64, f64)>, show: impl Fn(f64) -> String) -> Self {
        let word = match p_value {
            p if p < 0.001 => "very strong",
            p if p < 0.01 => "strong",
            _ => "moderate",
        };
        let p = match p_value {
            p if p < 0.0001 => "adjusted p < 0.0001".to_owned(),
            p => format!("adjusted p = {p:.4}"),
        };
        let interval_text = match interval {
            Some((low, high)) => {
                format!(", 95% interval {}", words::range(&show(low), &show(high)))
            }
            None => ", each point was run once".to_owned(),
        };
        Self { p_value, interval, text: format!("{word} ({p}{interval_text})") }
    }
}
