//! What copying costs: the layer `copy` of the sampled functions.

use std::collections::BTreeMap;

use wirecost_model::document::{Finding, show};
use wirecost_model::metric::Unit;
use wirecost_model::observe::FunctionsSection;
use wirecost_model::proportion::Proportion;
use wirecost_model::run::Run;

use super::server::{section, server};
use super::{
    Answer, Group, SERVER, along, cycles_per_datagram, effect, finding, largest, mean, place, with,
};
use crate::measured::MeasuredPoint;
use crate::metrics::Scope;

/// The name of the layer (docs/layers.md).
const LAYER: &str = "copy";
/// With fewer busy samples in all runs of a point a share says nothing.
const SAMPLES: u64 = 50;
/// Functions in the evidence.
const FUNCTIONS: usize = 3;

pub(super) fn answer(groups: &[Group<'_>]) -> Vec<Answer> {
    along(groups, SERVER).iter().map(|servers| of_servers(servers)).collect()
}

fn functions(run: &Run) -> Result<&FunctionsSection, String> {
    section(run, "functions", |of| of.functions.as_ref())
}

/// Of the busy samples, over all runs of a point. Samples of one run are alike, so each run's are worth as many
/// independent ones as its own interval says.
fn share(point: &MeasuredPoint) -> Result<Proportion, String> {
    let (mut copies, mut samples, mut independent, mut reason) = (0.0, 0, 0.0, None);
    for run in &point.runs {
        match functions(run) {
            Err(why) => reason = Some(why),
            Ok(functions) => {
                let of_run = functions.samples as f64;
                let of_layer = functions.layers.iter().find(|layer| layer.layer == LAYER);
                let (share, worth) = of_layer.map_or((0.0, of_run), |layer| {
                    let own = Proportion { share: layer.share, interval: layer.interval };
                    (layer.share, own.independent().min(of_run))
                });
                copies += share * of_run;
                samples += functions.samples;
                independent += worth;
            }
        }
    }
    match (samples, reason) {
        (0, Some(reason)) => Err(reason),
        (0, None) => Err("not run yet".to_owned()),
        (few, _) if few < SAMPLES => {
            Err(format!("{few} samples at {} are too few: {SAMPLES} are needed", point.point))
        }
        (samples, _) => Ok(Proportion::worth(copies / samples as f64, independent.max(1.0))),
    }
}

fn range(of: &Proportion) -> String {
    let (low, high) = of.interval;
    format!("95% interval {:.1}% to {:.1}%", 100.0 * low, 100.0 * high)
}

/// Of the server, or of all hosts where these share CPUs.
fn cost(point: &MeasuredPoint) -> Result<(f64, bool), String> {
    let own = point.runs.iter().all(|run| server(run).is_ok_and(|server| server.own_cpus));
    let one_machine = point.runs.iter().all(|run| Scope::find(run, Some("machine")).is_ok());
    if !own && !one_machine {
        return Err("hosts share CPUs on several machines".to_owned());
    }
    Ok((mean(point, |run| cycles_per_datagram(run, own))?.mean, own))
}

fn of_servers(servers: &[&Group<'_>]) -> Answer {
    let mut all = Vec::new();
    let mut reason = None;
    for group in servers {
        let Some((number, point)) = group.last() else { continue };
        match share(point) {
            Ok(share) => all.push((*group, number, point, share)),
            Err(why) => reason = Some(why),
        }
    }
    let Some(&(group, number, point, share)) = all.first() else {
        return Err(reason.unwrap_or_else(|| "not run yet".to_owned()));
    };
    let text = match cost(point) {
        Ok((cycles, own)) => {
            let cycles_of = |value: f64| show(Unit::Count, value.round());
            format!(
                "copying takes {} of the {} busy cycles per datagram {} ({:.1}%, {})",
                cycles_of(share.share * cycles),
                cycles_of(cycles),
                if own { "of the server" } else { "of all hosts, which share CPUs" },
                100.0 * share.share,
                range(&share)
            )
        }
        Err(reason) => format!(
            "copying takes {:.1}% of the busy samples ({}); cycles per datagram are unknown ({reason})",
            100.0 * share.share,
            range(&share)
        ),
    };
    let mut evidence = vec![format!("functions of the layer `{LAYER}`: {}", named(point))];
    evidence.extend(all.iter().skip(1).map(|(group, number, _, share)| {
        format!("{}: {:.1}% ({})", place(group, *number), 100.0 * share.share, range(share))
    }));
    let (low, high) = share.interval;
    let interval = Some((100.0 * low, 100.0 * high));
    Ok(Some(Finding {
        metric: Some("layers.copy.share".to_owned()),
        effect: effect("share of busy cycles", Unit::Percent, 100.0 * share.share, interval),
        evidence,
        ..finding(group, Some(number), with(group, number, &text))
    }))
}

fn named(point: &MeasuredPoint) -> String {
    let mut sums: BTreeMap<&str, f64> = BTreeMap::new();
    let all = point.runs.iter().filter_map(|run| functions(run).ok());
    let mut samples = 0.0;
    for functions in all {
        samples += functions.samples as f64;
        for function in functions.functions.iter().filter(|function| function.layer == LAYER) {
            *sums.entry(&function.name).or_default() +=
                function.exclusive * functions.samples as f64;
        }
    }
    let each: Vec<String> = largest(sums)
        .into_iter()
        .take(FUNCTIONS)
        .map(|(name, sum)| format!("{name} {:.1}%", 100.0 * sum / samples))
        .collect();
    if each.is_empty() { "none among the most frequent".to_owned() } else { each.join(", ") }
}
