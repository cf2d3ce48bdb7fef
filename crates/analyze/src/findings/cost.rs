//! How the cost of a byte changes along an axis.

use super::trend::{Subject, trends};
use super::{Finding, Kind, significant};
use crate::measured::Measurements;

pub(super) const KIND: Kind = Kind {
    name: "cost",
    help: "how cycles/KByte change along an axis, and where they are lowest or highest",
    find,
};

const COST: Subject = Subject {
    metric: "cycles_per_kbyte",
    noun: "cycles/KByte",
    verbs: ["rise", "fall"],
    least: 0.0,
};

fn find(measured: &Measurements) -> Vec<Finding> {
    let told = significant(trends(measured, &COST)).into_iter();
    told.filter_map(|(p_value, trend)| trend.finding(&KIND, p_value)).collect()
}
