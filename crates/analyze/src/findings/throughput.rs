//! Throughput that rises or falls along an axis, where nothing tells more of its course.

use super::line;
use super::trend::{Subject, trends};
use super::{Finding, Kind, Question, Runs, Tested, saturation, scalability, tested};

pub(super) const KIND: Kind = Kind {
    name: "throughput",
    help: "how throughput changes along an axis, where neither `saturation` nor `scalability` tells",
    question: Question::Course,
    find,
};

fn find<'a>(runs: &'a Runs<'_>) -> Option<Tested<'a>> {
    let measured = runs.saturated;
    let work = line::work(measured)?;
    let metric = work.metric().name;
    let verbs = if metric == "transactions" { ["rise", "fall"] } else { ["rises", "falls"] };
    let subject = Subject { metric, noun: metric, verbs, least: 0.0 };
    tested(trends(line::lines(measured), &subject), |p_value, trend| trend.finding(&KIND, p_value))
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
