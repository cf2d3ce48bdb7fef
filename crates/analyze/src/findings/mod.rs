//! Short sentences that a study's runs support. Each kind is a file; one that is not supported stays
//! silent.
//!
//! Whatever a kind looks at is a test with a p-value, whether it comes to a sentence or not, and all
//! tests count: Holm's correction within a kind, and Bonferroni's between kinds. So of 100 studies in
//! which nothing has an effect no more than 5 have any finding.

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

use crate::measured::Measured;
use crate::statistics::holm;

/// How likely a study without any effect is to have a finding.
const LEVEL: f64 = 0.05;

/// Something that a study shows.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// Name of its kind.
    pub kind: &'static str,
    pub sentence: String,
    /// The figures that it rests on, and of which points they are.
    pub evidence: Vec<String>,
    pub confidence: Confidence,
}

/// How sure a finding is.
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
    find: fn(&Measured) -> Vec<Finding>,
}

/// All of them, in the order in which they are told.
pub static ALL: &[Kind] =
    &[saturation::KIND, scalability::KIND, ends::KIND, cost::KIND, functions::KIND, choices::KIND];

/// All that a study shows.
#[must_use]
pub fn findings(measured: &Measured) -> Vec<Finding> {
    ALL.iter().flat_map(|kind| (kind.find)(measured)).collect()
}

/// Of all tests of a kind those that are no accident, with their p-values corrected.
fn sure<T>(tests: Vec<(f64, T)>) -> Vec<(f64, T)> {
    let p_values: Vec<f64> = tests.iter().map(|(p_value, _)| *p_value).collect();
    let corrected = holm(&p_values).into_iter().map(|p| (p * ALL.len() as f64).min(1.0));
    let all = corrected.zip(tests).map(|(p_value, (_, test))| (p_value, test));
    all.filter(|(p_value, _)| *p_value < LEVEL).collect()
}

impl Confidence {
    /// `show` writes a value of the interval.
    fn of(p_value: f64, interval: Option<(f64, f64)>, show: impl Fn(f64) -> String) -> Self {
        let word = match p_value {
            p if p < 0.001 => "very sure",
            p if p < 0.01 => "sure",
            _ => "fairly sure",
        };
        let p =
            if p_value < 0.0001 { "p < 0.0001".to_owned() } else { format!("p = {p_value:.4}") };
        let interval_text = match interval {
            Some((low, high)) => format!(", 95% interval {} to {}", show(low), show(high)),
            None => ", measured once at each point".to_owned(),
        };
        Self { p_value, interval, text: format!("{word} ({p}{interval_text})") }
    }
}
