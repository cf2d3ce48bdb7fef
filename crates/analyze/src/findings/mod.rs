//! Findings: short sentences that a study's runs support. Each kind has a file. A kind without support
//! reports nothing.
//!
//! Each check of a kind is a test with a p-value, whether or not it becomes a sentence. All tests are
//! corrected: by Holm within a kind, by Bonferroni between kinds. Of 100 studies in which nothing has an
//! effect, at most 5 are expected to have any finding. An axis of which nothing was found has a sentence
//! that says so, and how many repeats would show a small change.

mod choices;
mod cost;
mod cpu;
mod ends;
mod functions;
mod latency;
mod limits;
mod line;
mod links;
mod packets;
mod proportion;
mod saturation;
mod scalability;
mod throughput;
mod trend;
mod unchanged;
mod words;

use wirecost_model::metric::Unit;
use wirecost_model::study::Value;

pub use limits::saturated;
pub use wirecost_model::document::{Effect, Finding, Strength};

use crate::measured::Measurements;
use crate::statistics::holm;

/// Probability that a study without any effect has a finding.
const LEVEL: f64 = 0.05;

/// A kind of finding.
#[derive(Debug)]
pub struct Kind {
    pub name: &'static str,
    /// One line for a person.
    pub help: &'static str,
    loads: Loads,
    find: fn(&Measurements) -> Vec<Finding>,
}

/// The points that a kind looks at, by the load that they offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loads {
    /// Only those whose load is as fast as it can be.
    Saturated,
    All,
}

/// All kinds that state an effect, in the order of the report.
pub static ALL: &[Kind] = &[
    saturation::KIND,
    scalability::KIND,
    throughput::KIND,
    ends::KIND,
    links::KIND,
    cost::KIND,
    latency::KIND,
    proportion::KIND,
    packets::KIND,
    functions::KIND,
    cpu::KIND,
    choices::KIND,
];

/// Name of the findings that say that no effect of an axis could be shown.
pub const UNCHANGED: &str = unchanged::NAME;

/// All findings of a study.
#[must_use]
pub fn findings(measured: &Measurements) -> Vec<Finding> {
    // How much of something moves where a load is set says nothing of what it is set on.
    let saturated = measured.saturated();
    let of_kind = |kind: &Kind| match kind.loads {
        Loads::Saturated => (kind.find)(&saturated),
        Loads::All => (kind.find)(measured),
    };
    let all: Vec<Finding> = ALL.iter().flat_map(of_kind).collect();
    let more = all.iter().filter(|finding| !throughput::is_told(finding, &all));
    let mut found: Vec<Finding> = more.cloned().collect();
    let unchanged = unchanged::find(measured, &found);
    found.extend(unchanged);
    found
}

/// The significant tests of a kind, with corrected p-values.
fn significant<T>(tests: Vec<(f64, T)>) -> Vec<(f64, T)> {
    significant_of(tests, 1.0)
}

/// The same for a family of tests that has only this share of the level of its kind.
fn significant_of<T>(tests: Vec<(f64, T)>, share: f64) -> Vec<(f64, T)> {
    let all = corrected(&tests.iter().map(|(p_value, _)| *p_value).collect::<Vec<_>>(), share);
    let all = all.into_iter().zip(tests).map(|(p_value, (_, test))| (p_value, test));
    all.filter(|(p_value, _)| *p_value < LEVEL).collect()
}

/// p-values of a family of tests of one kind, corrected for all tests of all kinds.
fn corrected(p_values: &[f64], share: f64) -> Vec<f64> {
    let kinds = ALL.len() as f64;
    holm(p_values).into_iter().map(|p_value| (p_value * kinds / share).min(1.0)).collect()
}

impl Kind {
    /// A finding of this kind about all points.
    fn finding(&self, p_value: f64, sentence: String) -> Finding {
        Finding {
            kind: self.name.to_owned(),
            metric: None,
            axis: None,
            at: Vec::new(),
            sentence,
            effect: None,
            p_value: Some(p_value),
            strength: Some(Strength::of(p_value)),
            evidence: Vec::new(),
        }
    }

    /// A finding of this kind along an axis, at the points that have these values of the others.
    fn along(&self, axis: &str, fixed: &[&Value], p_value: f64, text: &str) -> Finding {
        Finding {
            axis: Some(axis.to_owned()),
            at: fixed.iter().map(|value| (*value).clone()).collect(),
            ..self.finding(p_value, words::sentence(fixed, text))
        }
    }
}

fn effect(name: &str, unit: Unit, value: f64, interval: Option<(f64, f64)>) -> Option<Effect> {
    Some(Effect { name: name.to_owned(), unit, value, interval })
}
