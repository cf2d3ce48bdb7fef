//! Throughput that rises or falls along an axis, where nothing tells more of its course.

use super::line;
use super::trend::{Subject, trends};
use super::{Finding, Kind, Loads, saturation, scalability, significant};
use crate::measured::Measurements;

pub(super) const KIND: Kind = Kind {
    name: "throughput",
    help: "how throughput changes along an axis, where neither `saturation` nor `scalability` tells",
    loads: Loads::Saturated,
    find,
};

fn find(measured: &Measurements) -> Vec<Finding> {
    let Some(work) = line::work(measured) else { return Vec::new() };
    let metric = work.metric().name;
    let verbs = if metric == "transactions" { ["rise", "fall"] } else { ["rises", "falls"] };
    let subject = Subject { metric, noun: metric, verbs, least: 0.0 };
    let told = significant(trends(line::lines(measured), &subject)).into_iter();
    told.filter_map(|(p_value, trend)| trend.finding(&KIND, p_value)).collect()
}

/// Whether this finding states less than another about throughput along the same line.
pub(super) fn is_told(finding: &Finding, others: &[Finding]) -> bool {
    let tells_more = [saturation::KIND.name, scalability::KIND.name];
    finding.kind == KIND.name
        && others.iter().any(|other| {
            tells_more.contains(&other.kind.as_str())
                && (&other.axis, &other.at) == (&finding.axis, &finding.at)
        })
}
