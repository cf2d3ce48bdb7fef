//! Findings: short sentences that a study's runs support. Each kind has a file. A kind without support
//! reports nothing.
//!
//! Each check of a kind is a test with a p-value, whether or not it becomes a sentence. All tests are
//! corrected: by Holm within a kind; each question, and of each question each kind that has a test in
//! this study, has the same part of the level. Of 100 studies in which nothing has an effect, at most 5 are
//! expected to have any finding. An axis of which nothing was found has a sentence
//! that says so, and how many repeats would show a small change.

mod choices;
mod cost;
mod cpu;
mod ends;
mod functions;
mod latency;
pub(crate) mod limits;
mod line;
mod links;
mod packets;
mod proportion;
mod saturation;
mod scalability;
pub mod simulation;
mod throughput;
mod trend;
mod unchanged;
pub(crate) mod words;

use std::borrow::Cow;

use wirecost_model::metric::Unit;
use wirecost_model::study::Value;

pub(crate) use choices::ratio;
pub(crate) use limits::limits_at;
pub use limits::{saturated, saturated_at, storage_at};
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
    question: Question,
    find: for<'a> fn(&'a Runs<'_>) -> Option<Tested<'a>>,
}

/// What a kind answers. Each question has the same part of the level, however many kinds answer it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Question {
    /// Which value of an axis is better.
    Choice,
    /// How a figure changes along an axis of numbers.
    Course,
    /// What limits, and what a change comes from.
    Cause,
}

/// The runs of a study, of which each kind looks at its part.
struct Runs<'a> {
    all: &'a Measurements,
    /// Those whose load is as fast as it can be: how much of something moves where a load is set says
    /// nothing of what it is set on.
    saturated: &'a Measurements,
    /// Of these, those beside which no other program used much CPU time.
    alone: Cow<'a, Measurements>,
}

/// The tests of a kind, done but not corrected: turns those that are significant after the correction into
/// findings. A kind without a test has none, which must not depend on how a test would end.
type Tested<'a> = Box<dyn FnOnce(Correction) -> Vec<Finding> + 'a>;

/// Corrects the p-values of a kind for all tests of all kinds.
#[derive(Debug, Clone, Copy)]
struct Correction {
    /// How many parts of this size make up the level.
    parts: usize,
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
/// Name of the finding that says of which axes nothing is known.
pub const UNTESTED: &str = unchanged::UNTESTED;

/// All findings of a study.
#[must_use]
pub fn findings(measured: &Measurements) -> Vec<Finding> {
    let measured = &limits::without_emulated_cpus(measured);
    let saturated = measured.saturated();
    let runs = Runs {
        all: measured,
        saturated: &saturated,
        alone: limits::without_other_programs(&saturated),
    };
    let tested: Vec<(Question, Tested<'_>)> =
        ALL.iter().filter_map(|kind| Some((kind.question, (kind.find)(&runs)?))).collect();
    let questions: Vec<Question> = tested.iter().map(|(question, _)| *question).collect();
    let all: Vec<Finding> = (tested.into_iter())
        .flat_map(|(question, kind)| kind(Correction::of(question, &questions)))
        .collect();
    let more = all.iter().filter(|finding| !throughput::is_told(finding, &all));
    let mut found: Vec<Finding> = more.cloned().collect();
    let unchanged = unchanged::find(&runs, &found, &questions);
    found.extend(unchanged);
    found
}

impl Correction {
    /// Of a kind that answers this one, where these are those of all kinds with a test.
    fn of(question: Question, all: &[Question]) -> Self {
        let kinds = all.iter().filter(|other| **other == question).count();
        let questions = [Question::Choice, Question::Course, Question::Cause];
        let asked = questions.iter().filter(|question| all.contains(question)).count();
        Self { parts: (asked * kinds).max(1) }
    }

    /// For one of so many families of tests that share what is a kind's.
    fn shared(self, families: usize) -> Self {
        Self { parts: self.parts * families.max(1) }
    }

    /// The significant tests of a kind, with corrected p-values.
    fn significant<T>(self, tests: Vec<(f64, T)>) -> Vec<(f64, T)> {
        let all = self.corrected(&tests.iter().map(|(p_value, _)| *p_value).collect::<Vec<_>>());
        let all = all.into_iter().zip(tests).map(|(p_value, (_, test))| (p_value, test));
        all.filter(|(p_value, _)| *p_value < LEVEL).collect()
    }

    /// All tests of one kind.
    fn corrected(self, p_values: &[f64]) -> Vec<f64> {
        let parts = self.parts as f64;
        holm(p_values).into_iter().map(|p_value| (p_value * parts).min(1.0)).collect()
    }

    /// Level of each of so many tests of a kind, if no other is significant.
    fn level(self, tests: usize) -> f64 {
        LEVEL / (self.parts * tests.max(1)) as f64
    }
}

/// The findings of significant tests; none where there is no test.
fn tested<'a, T: 'a>(
    tests: Vec<(f64, T)>,
    finding: impl Fn(f64, T) -> Option<Finding> + 'a,
) -> Option<Tested<'a>> {
    if tests.is_empty() {
        return None;
    }
    Some(Box::new(move |correction| {
        let told = correction.significant(tests).into_iter();
        told.filter_map(|(p_value, test)| finding(p_value, test)).collect()
    }))
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
            points: Vec::new(),
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
    Some(Effect { name: name.to_owned(), unit, value, interval, between: None })
}

/// The ratio of the figures at one value of an axis to those at another.
fn ratio_of(ratio: f64, interval: (f64, f64), [value, other]: [&str; 2]) -> Option<Effect> {
    let between = Some((value.to_owned(), other.to_owned()));
    effect("ratio", Unit::Ratio, ratio, Some(interval)).map(|effect| Effect { between, ..effect })
}
