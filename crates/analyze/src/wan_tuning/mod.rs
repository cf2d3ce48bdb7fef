//! What a study of a path that varies one factor at a time shows, as sentences by rule.
//!
//! A rule states figures of points, or the difference between points of one factor. It is no test with a p-value, so it
//! also speaks of points that were run once. A rule whose figures are missing says nothing, and the reason is listed.

mod achieved;
mod best;
mod datagrams;
mod design;
mod ends;
mod factors;
mod smallest;
#[cfg(test)]
mod tests;

use wirecost_model::document::Finding;
use wirecost_model::run::Run;
use wirecost_model::study::Value;

use crate::conclusions::{Answer, DISTURBED, effect, figure, mean};
use crate::findings::words;
use crate::measured::{MeasuredPoint, Measurements};
use crate::{Conclusions, Estimate};

pub use design::{Block, Factor, blocks};
pub(crate) use design::{axis_value, most_common};

/// The axis of the number of streams, each value of which has all points of the others.
pub const STREAMS: &str = "connections";
/// The axis of congestion controls.
pub const CC: &str = "option.cc";

/// What two means must differ by for it to matter.
const DIFFERENCE: f64 = 1.05;

/// A question, and how it is answered of each block.
struct Rule {
    name: &'static str,
    /// What it answers, in the middle of a sentence.
    question: &'static str,
    answer: for<'a> fn(&Block<'a>) -> Answer,
}

/// In the order of the report: the best setting first.
static RULES: &[Rule] = &[
    Rule { name: "best", question: "which setting is best", answer: best::answer },
    Rule { name: "factors", question: "which factors matter", answer: factors::answer },
    Rule {
        name: "achieved",
        question: "throughput by congestion control",
        answer: achieved::throughput,
    },
    Rule { name: "datagrams", question: "what UDP achieves", answer: datagrams::answer },
    Rule {
        name: "convergence",
        question: "convergence by congestion control",
        answer: achieved::convergence,
    },
    Rule {
        name: "fairness",
        question: "fairness by congestion control",
        answer: achieved::fairness,
    },
    Rule { name: "cpu", question: "CPU by congestion control", answer: achieved::cpu },
    Rule {
        name: "socket-buffer",
        question: "the smallest socket buffer",
        answer: smallest::socket_buffer,
    },
    Rule {
        name: "txqueuelen",
        question: "the smallest transmit queue",
        answer: smallest::transmit_queue,
    },
    Rule { name: "backlog", question: "the smallest backlog queue", answer: smallest::backlog },
    Rule { name: "bottleneck", question: "what limits", answer: ends::answer },
];

/// The answers of all rules, of each number of streams.
#[must_use]
pub fn conclusions(measured: &Measurements) -> Conclusions {
    let blocks = blocks(measured);
    let mut conclusions = Conclusions::default();
    for rule in RULES {
        conclusions.add((rule.name, rule.question), blocks.iter().map(rule.answer));
    }
    conclusions
}

fn throughput(point: &MeasuredPoint) -> Result<Estimate, String> {
    mean(point, |run| figure(run, "throughput"))
}

/// Whether it is of datagrams: they are sent at a set rate, whatever the path takes.
fn is_of_datagrams(point: &MeasuredPoint) -> bool {
    point.runs.iter().any(|run| run.datagrams.is_some())
}

/// How many runs of these points were disturbed, as the end of a sentence; empty where none was.
fn disturbances(points: &[&MeasuredPoint]) -> String {
    let runs = || points.iter().flat_map(|point| &point.runs);
    let parts = DISTURBED.iter().filter_map(|(code, what)| {
        let has = |run: &&Run| run.warnings.iter().any(|of| of.code == *code);
        let number = runs().filter(has).count();
        (number > 0).then(|| format!("in {number} of {} runs {what}", runs().count()))
    });
    let parts: Vec<String> = parts.collect();
    if parts.is_empty() { String::new() } else { format!("; {}", words::list(&parts)) }
}

/// Whether two means differ by more than matters, and by more than their intervals.
fn differ(a: Estimate, b: Estimate) -> bool {
    let (less, more) = if a.mean <= b.mean { (a, b) } else { (b, a) };
    let apart = match (less.interval, more.interval) {
        (Some((_, high)), Some((low, _))) => high < low,
        _ => true,
    };
    apart && more.mean > DIFFERENCE * less.mean
}

/// About a block, or one factor of it.
fn finding(block: &Block<'_>, axis: Option<&str>, sentence: String) -> Finding {
    Finding {
        kind: String::new(),
        metric: None,
        axis: axis.map(str::to_owned),
        at: block.streams.map(|streams| Value::new(STREAMS, streams)).into_iter().collect(),
        sentence,
        effect: None,
        p_value: None,
        strength: None,
        evidence: Vec::new(),
        points: Vec::new(),
    }
}
