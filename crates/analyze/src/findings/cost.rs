//! How the cost of a byte changes along an axis.

use super::trend::{self, Subject};
use super::{Kind, Question, Runs, Tested};

pub(super) const KIND: Kind = Kind {
    name: "cost",
    help: "how cycles/KByte change along an axis, and where they are lowest or highest",
    question: Question::Course,
    find,
};

const COST: Subject = Subject {
    metric: "cycles_per_kbyte",
    noun: "cycles/KByte",
    verbs: ["rise", "fall"],
    least: 0.0,
};

fn find<'a>(runs: &'a Runs<'_>) -> Option<Tested<'a>> {
    trend::find(runs, &KIND, &COST)
}
