//! Which end limits: that whose CPUs are full where the other's are not.

use super::limits::{busy, whose};
use super::line::mean;
use super::{Finding, Kind, Question, Runs, Tested, effect, tested, words};
use crate::metrics;
use crate::statistics::{Estimate, permutation};
use wirecost_model::metric::Unit;
use wirecost_model::run::Run;

pub(super) const KIND: Kind = Kind {
    name: "ends",
    help: "which end is the bottleneck: its CPUs are saturated and those of the other end are not",
    question: Question::Cause,
    find,
};

const FULL: f64 = 95.0;
const NOT_FULL: f64 = 90.0;

/// The range of a difference of percentages.
const POSSIBLE: (f64, f64) = (-100.0, 100.0);

fn find<'a>(runs: &'a Runs<'_>) -> Option<Tested<'a>> {
    // CPUs that other programs filled are no bottleneck of the network.
    let measured = &*runs.alone;
    let known = |role: &str, runs: &[&Run]| busy(runs, role);
    let mut of_points = Vec::new();
    for point in &measured.points {
        let runs: Vec<&Run> = point.runs.iter().collect();
        let (Some(sender), Some(receiver)) = (known("sender", &runs), known("receiver", &runs))
        else {
            continue;
        };
        of_points.push((point, sender, receiver));
    }
    let one_is_full: Vec<_> =
        of_points.iter().filter(|(_, s, r)| s.max(*r) > FULL).copied().collect();
    // How much busier the sender is, by run.
    let differences: Vec<f64> = one_is_full
        .iter()
        .flat_map(|(point, ..)| &point.runs)
        .filter_map(|run| Some(busy(&[run], "sender")? - busy(&[run], "receiver")?))
        .collect();
    if differences.len() < 2 {
        return None;
    }
    let seen = mean(&differences);
    // Were the ends alike, each difference could as well be the other way round.
    let p_value = permutation::p_value(seen.abs(), |random| {
        let flipped = differences.iter().map(|d| if random.bool() { *d } else { -d });
        (flipped.sum::<f64>() / differences.len() as f64).abs()
    });
    tested(vec![(p_value, ())], move |p_value, ()| {
        let sender_limits = seen > 0.0;
        let here: Vec<_> = one_is_full
            .iter()
            .filter(|(_, sender, receiver)| match sender_limits {
                true => *sender > FULL && *receiver < NOT_FULL,
                false => *receiver > FULL && *sender < NOT_FULL,
            })
            .collect();
        if here.len() * 2 <= one_is_full.len() {
            return None;
        }
        let (limiting, other) =
            if sender_limits { ("sender", "receiver") } else { ("receiver", "sender") };
        let name = here
            .iter()
            .flat_map(|(point, ..)| &point.runs)
            .find_map(|run| Some(whose(run, metrics::host_of(run, limiting)?)))?;
        let (senders, receivers): (Vec<f64>, Vec<f64>) =
            here.iter().map(|(_, sender, receiver)| (*sender, *receiver)).unzip();
        let (full, free) = match sender_limits {
            true => (mean(&senders), mean(&receivers)),
            false => (mean(&receivers), mean(&senders)),
        };
        let text = format!(
            "the CPUs of {name} are the bottleneck at {} of {}: they were {full:.0}% busy, and those \
             of the {other} {free:.0}%",
            here.len(),
            words::number(of_points.len(), "point")
        );
        let shown = here.iter().map(|(point, sender, receiver)| {
            format!("{}: sender {sender:.0}%, receiver {receiver:.0}% busy", point.point)
        });
        let estimate = Estimate::of(&differences)?.within(POSSIBLE);
        let interval = estimate.interval.map(|(low, high)| match sender_limits {
            true => (low, high),
            false => (-high, -low),
        });
        Some(Finding {
            metric: Some(format!("hosts.{limiting}.cpu.busy")),
            effect: effect(
                &format!("percentage points busier than the {other}"),
                Unit::Percent,
                seen.abs(),
                interval,
            ),
            evidence: shown.collect(),
            ..KIND.finding(p_value, words::sentence(&[], &text))
        })
    })
}
