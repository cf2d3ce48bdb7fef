//! How the cost of a byte changes along an axis.

use super::line;
use super::trend::{Subject, trends};
use super::{Finding, Kind, Loads, significant};
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

/// Along the load itself among all points, along other axes among those that differ in nothing but it.
fn find(measured: &Measurements) -> Vec<Finding> {
    let saturated = measured.saturated();
    let mut tests = trends(line::lines(&saturated), &COST);
    tests.extend(trends(line::by_load(measured), &COST));
    let told = significant(tests).into_iter();
    told.filter_map(|(p_value, trend)| trend.finding(&KIND, p_value)).collect()
}
