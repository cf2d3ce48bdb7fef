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
use wirecost_model::study::Value;

use crate::conclusions::{Answer, disturbances, effect, figure, mean};
use crate::measured::{MeasuredPoint, Measurements};
use crate::{Conclusions, Estimate};

pub use design::{Block, Factor, blocks, datagram_blocks};
pub(crate) use design::{axis_value, most_common};

/// The axis of the number of streams, each value of which has all points of the others.
pub const STREAMS: &str = "connections";
/// The axis of TCP and UDP.
const TRAFFIC: &str = "traffic";
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
    Rule { name: "napi-budget", question: "the smallest NAPI budget", answer: smallest::budget },
    Rule { name: "bottleneck", question: "what limits", answer: ends::answer },
];

/// The same of blocks of UDP, after those of TCP.
static OF_DATAGRAMS: &[Rule] = &[
    Rule { name: "datagrams", question: "what UDP achieves", answer: datagrams::achieved },
    Rule {
        name: "datagram-factors",
        question: "which factors matter to UDP",
        answer: datagrams::factors,
    },
];

/// The answers of all rules, of each number of streams.
#[must_use]
pub fn conclusions(measured: &Measurements) -> Conclusions {
    let blocks = blocks(measured);
    let mut conclusions = Conclusions::default();
    for rule in RULES {
        conclusions.add((rule.name, rule.question), blocks.iter().map(rule.answer));
    }
    let blocks = datagram_blocks(measured);
    for rule in OF_DATAGRAMS {
        conclusions.add((rule.name, rule.question), blocks.iter().map(rule.answer));
    }
    conclusions
}

fn throughput(point: &MeasuredPoint) -> Result<Estimate, String> {
    mean(point, |run| figure(run, "throughput"))
}

/// Whether it is of datagrams.
fn is_of_datagrams(point: &MeasuredPoint) -> bool {
    point.runs.iter().any(|run| run.datagrams.is_some())
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
