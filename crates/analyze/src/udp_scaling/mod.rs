//! What a study of UDP by pairs of CPUs shows, as sentences by rule.
//!
//! A rule states figures of a point, or the difference between two points that differ in one axis. It is no
//! test with a p-value, so it also speaks of points that were run once. A rule whose figures are missing says
//! nothing, and the reason is listed.

mod answering;
mod clock;
mod copying;
mod cpu_time;
mod flow_control;
mod limits;
mod locks;
mod scale;
mod scheduling;
mod server;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use wirecost_model::document::Finding;
use wirecost_model::run::Run;
use wirecost_model::study::Value;

use crate::Conclusions;
use crate::conclusions::{Answer, effect, figure, mean};
use crate::findings::words;
use crate::measured::{MeasuredPoint, Measurements};

pub use scale::{Added, Step, efficiency};

/// The axis of the number of pairs.
pub const PAIRS: &str = "pairs";
/// What the server read is what scales.
pub const READ: &str = "frames.read";

/// The axes by which points are compared, where a study has them.
const TRAFFIC: &str = "traffic";
const SERVER: &str = "server";

/// A question, and how it is answered.
struct Rule {
    name: &'static str,
    /// What it answers, in the middle of a sentence.
    question: &'static str,
    answer: fn(&[Group<'_>]) -> Vec<Answer>,
}

/// In the order of the report.
static RULES: &[Rule] = &[
    Rule { name: "scaling", question: "how far it scales", answer: scale::answer },
    Rule { name: "lock-waits", question: "which locks were waited for", answer: locks::answer },
    Rule { name: "answering", question: "what answering costs", answer: answering::answer },
    Rule { name: "cpu-time", question: "softirqs against workers", answer: cpu_time::answer },
    Rule { name: "copying", question: "what copying costs", answer: copying::answer },
    Rule { name: "scheduling", question: "wake-ups and preemption", answer: scheduling::answer },
    Rule { name: "clock", question: "the clock of the CPUs", answer: clock::answer },
    Rule { name: "flow-control", question: "flow control", answer: flow_control::answer },
];

/// The answers of all rules.
#[must_use]
pub fn conclusions(measured: &Measurements) -> Conclusions {
    let groups = groups(measured);
    let mut conclusions = Conclusions::default();
    if groups.is_empty() {
        return conclusions;
    }
    for rule in RULES {
        conclusions.add((rule.name, rule.question), (rule.answer)(&groups));
    }
    conclusions
}

/// The points that differ in the number of pairs only.
#[derive(Debug, Clone)]
pub struct Group<'a> {
    pub common: Vec<Value>,
    /// With the number of pairs, ascending.
    pub points: Vec<(f64, &'a MeasuredPoint)>,
}

/// In the order of the study.
#[must_use]
pub fn groups(measured: &Measurements) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for point in &measured.points {
        let Some(pairs) = point.point.get(PAIRS).and_then(|value| value.parse().ok()) else {
            continue;
        };
        let common = measured.common(point, |axis| axis == PAIRS);
        match groups.iter_mut().find(|group| group.common == common) {
            Some(group) => group.points.push((pairs, point)),
            None => groups.push(Group { common, points: vec![(pairs, point)] }),
        }
    }
    groups.iter_mut().for_each(|group| group.points.sort_by(|(a, _), (b, _)| a.total_cmp(b)));
    groups
}

/// Busy cycles of the server's CPUs, or of those of all hosts, by datagrams that the server read.
///
/// # Errors
/// Why they were not measured.
pub fn cycles_per_datagram(run: &Run, of_server: bool) -> Result<f64, String> {
    let cycles = if of_server { "hosts.peer.cycles_per_operation" } else { "cycles_per_operation" };
    let (cycles, read) = (figure(run, cycles)? * figure(run, "operations")?, figure(run, READ)?);
    if read > 0.0 { Ok(cycles / read) } else { Err("no datagram was read".to_owned()) }
}

impl Group<'_> {
    fn last(&self) -> Option<(f64, &MeasuredPoint)> {
        self.points.last().copied()
    }

    fn at(&self, pairs: f64) -> Option<&MeasuredPoint> {
        self.points.iter().find(|(of, _)| *of == pairs).map(|(_, point)| *point)
    }

    fn axis(&self, name: &str) -> Option<&str> {
        self.common.iter().find(|value| value.name == name).map(|value| value.value.as_str())
    }

    /// Without this axis.
    fn others(&self, name: &str) -> Vec<&Value> {
        self.common.iter().filter(|value| value.name != name).collect()
    }

    /// `echo, shared socket`; what the study is about where it has no other axis.
    fn title(&self) -> String {
        let values: Vec<&str> = self.common.iter().map(|value| value.value.as_str()).collect();
        values.join(", ")
    }
}

/// Groups that differ in this axis only, in the order of the study.
fn along<'g, 'a>(groups: &'g [Group<'a>], axis: &str) -> Vec<Vec<&'g Group<'a>>> {
    let mut clusters: Vec<Vec<&'g Group<'a>>> = Vec::new();
    for group in groups {
        let same = |cluster: &&mut Vec<&Group<'_>>| {
            cluster.first().is_some_and(|first| first.others(axis) == group.others(axis))
        };
        match clusters.iter_mut().find(same) {
            Some(cluster) => cluster.push(group),
            None => clusters.push(vec![group]),
        }
    }
    clusters
}

/// `1 pair`, `4 pairs`.
fn pairs(number: f64) -> String {
    match number {
        1.0 => "1 pair".to_owned(),
        _ => format!("{number} pairs"),
    }
}

/// `echo, shared socket, 4 pairs`.
fn place(group: &Group<'_>, number: f64) -> String {
    match group.title() {
        title if title.is_empty() => pairs(number),
        title => format!("{title}, {}", pairs(number)),
    }
}

/// `With echo, shared socket and 4 pairs, ...`.
fn with(group: &Group<'_>, number: f64, text: &str) -> String {
    let mut parts: Vec<String> = group.common.iter().map(|value| value.value.clone()).collect();
    parts.push(pairs(number));
    format!("With {}, {text}.", words::list(&parts))
}

/// About one number of pairs of a group, or all where there is none.
fn finding(group: &Group<'_>, number: Option<f64>, sentence: String) -> Finding {
    let mut at = group.common.clone();
    at.extend(number.map(|number| Value::new(PAIRS, &number.to_string())));
    Finding {
        kind: String::new(),
        metric: None,
        axis: None,
        at,
        sentence,
        effect: None,
        p_value: None,
        strength: None,
        evidence: Vec::new(),
        points: Vec::new(),
    }
}

/// What else had the CPUs of a point, in how many of its runs.
fn disturbed(point: &MeasuredPoint) -> Option<String> {
    let warned = |run: &&Run| run.warnings.iter().any(|warning| warning.code == "foreign-cpu");
    let runs = point.runs.iter().filter(warned).count();
    (runs > 0)
        .then(|| format!("other programs used CPU time in {runs} of {} runs", point.runs.len()))
}

/// Sums by a key, largest first.
fn largest<K: Ord>(sums: BTreeMap<K, f64>) -> Vec<(K, f64)> {
    let mut all: Vec<(K, f64)> = sums.into_iter().collect();
    all.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    all
}
