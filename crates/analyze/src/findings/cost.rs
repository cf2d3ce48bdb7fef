//! How the cost of a byte changes along an axis.

use super::trend::{self, Subject};
use super::{Finding, Kind, Loads};
use crate::measured::Measurements;

pub(super) const KIND: Kind = Kind {
    name: "cost",
    help: "how cycles/KByte change along an axis, and where they are lowest or highest",
    loads: Loads::All,
    find,
};

const COST: Subject = Subject {
    metric: "cycles_per_kbyte",
    noun: "cycles/KByte",
    verbs: ["rise", "fall"],
    least: 0.0,
};

fn find(measured: &Measurements) -> Vec<Finding> {
    trend::findings(measured, &KIND, &COST)
}
