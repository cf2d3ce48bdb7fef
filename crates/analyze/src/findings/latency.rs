//! How latency changes along an axis.

use super::trend::{self, Subject};
use super::{Kind, Question, Runs, Tested};

pub(super) const KIND: Kind = Kind {
    name: "latency",
    help: "how p99 latency changes along an axis, and where it is lowest or highest",
    question: Question::Course,
    find,
};

const P99: Subject =
    Subject { metric: "latency.p99", noun: "p99 latency", verbs: ["rises", "falls"], least: 0.0 };

fn find<'a>(runs: &'a Runs<'_>) -> Option<Tested<'a>> {
    trend::find(runs, &KIND, &P99)
}
