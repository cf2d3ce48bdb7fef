//! How latency changes along an axis.

use super::trend::{self, Subject};
use super::{Finding, Kind, Loads};
use crate::measured::Measurements;

pub(super) const KIND: Kind = Kind {
    name: "latency",
    help: "how p99 latency changes along an axis, and where it is lowest or highest",
    loads: Loads::All,
    find,
};

const P99: Subject =
    Subject { metric: "latency.p99", noun: "p99 latency", verbs: ["rises", "falls"], least: 0.0 };

fn find(measured: &Measurements) -> Vec<Finding> {
    trend::findings(measured, &KIND, &P99)
}
