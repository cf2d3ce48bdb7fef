//! How figures were measured: windows, repeats, order, and the source of each.

use std::collections::BTreeSet;

use wirecost_model::document::{Cell, Section};
use wirecost_model::run::{Run, WindowKind};
use wirecost_model::units::{counted, seconds};

use crate::documents::run::explain;

/// What all runs have in common. `planned` is what a study's definition says, by label.
/// The name of the section.
pub const METHOD: &str = "method";

pub(super) fn section(runs: &[&Run], planned: &[(String, String)]) -> Section {
    let mut section = Section::named(METHOD, "Method");
    let mut figure = |label: &str, value: String| {
        if !value.is_empty() {
            section.figure(label, Cell::text(value));
        }
    };
    figure("profile", listed(runs, |run| run.profile.clone()));
    figure("engine", listed(runs, |run| run.engine.clone()));
    for (label, value) in planned {
        figure(label, value.clone());
    }
    figure("window", listed(runs, window));
    figure("options", options(runs));
    figure("seed", listed(runs, |run| run.seed.map(|seed| seed.to_string()).unwrap_or_default()));
    figure("sources", sources(runs).into_iter().collect::<Vec<_>>().join("; "));
    figure("version", listed(runs, |run| format!("wirecost {}", run.version)));
    section.note(
        "Throughput is application bytes received in the window, each byte once. Intervals are 95% \
         intervals of the mean over the runs of a point. cycles/KByte are busy cycles over the payload \
         that a host sent and received (of a machine: over the bytes delivered once), KByte = 1024 bytes.",
    );
    section
}

/// Values that are shown; of more, how many there are.
const SHOWN: usize = 4;

fn listed(runs: &[&Run], of: impl Fn(&Run) -> String) -> String {
    let mut values: Vec<String> = Vec::new();
    for value in runs.iter().map(|run| of(run)).filter(|value| !value.is_empty()) {
        if !values.contains(&value) {
            values.push(value);
        }
    }
    match values.len() > SHOWN {
        true => format!("{} and {} more", values[..SHOWN].join(", "), values.len() - SHOWN),
        false => values.join(", "),
    }
}

fn window(run: &Run) -> String {
    let Some(window) = &run.window else { return String::new() };
    // To a tenth: windows of the same setting differ by less.
    let length = seconds((10.0 * window.seconds).round() / 10.0);
    match window.kind {
        WindowKind::Duration => {
            format!("{length} after a ramp of {}", seconds(window.ramp_seconds))
        }
        WindowKind::Iterations => "an entire phase".to_owned(),
    }
}

/// What was set for every run; what differs are the axes.
fn options(runs: &[&Run]) -> String {
    let Some(first) = runs.first().and_then(|run| run.options.as_ref()) else {
        return String::new();
    };
    let everywhere =
        |value: &&_| runs.iter().all(|run| run.options.iter().flatten().any(|of| of == *value));
    let common = first.iter().filter(everywhere);
    common.map(|value| format!("{}={}", value.name, value.value)).collect::<Vec<_>>().join(" ")
}

fn sources(runs: &[&Run]) -> BTreeSet<String> {
    let each = runs.iter().flat_map(|run| {
        let hosts = run.hosts.iter().flat_map(|of| [&of.cpu_source, &of.cycles_source]);
        let machines = run.machines.iter().flat_map(|of| [&of.cpu_source, &of.cycles_source]);
        hosts.chain(machines).flatten()
    });
    each.map(|source| explain(source).to_owned()).collect()
}

/// What observing cost.
pub(super) fn observing(runs: &[&Run]) -> Option<Section> {
    let mut section = Section::named("observer", "What observing cost");
    let costs: Vec<f64> = runs
        .iter()
        .filter_map(|run| Some(100.0 * (1.0 - run.observe.as_ref()?.cost.as_ref()?.ratio)))
        .collect();
    let mut reasons: Vec<&str> = Vec::new();
    let observed = runs.iter().filter_map(|run| run.observe.as_ref());
    for reason in observed.clone().filter_map(|observe| observe.cost_reason.as_deref()) {
        if !reasons.contains(&reason) {
            reasons.push(reason);
        }
    }
    if !costs.is_empty() {
        let mean = costs.iter().sum::<f64>() / costs.len() as f64;
        let least = costs.iter().copied().fold(f64::INFINITY, f64::min);
        let most = costs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let runs = counted(costs.len() as u64, "run", "runs");
        let against = "the same runs just before and after their windows, without probes";
        // A probe speeds nothing up: then only the noise is known.
        section.text(match least < 0.0 {
            true => format!(
                "What observing cost cannot be told from noise: against {against}, {runs} differed by {:.1}% to \
                 {:.1}% in throughput, {:.1}% on average.",
                -most, -least, -mean
            ),
            false => format!(
                "Observing cost {mean:.1}% of throughput on average ({least:.1}% to {most:.1}% over {runs}), \
                 against {against}."
            ),
        });
    }
    for reason in reasons {
        section.text(format!("The cost of observing is unknown for some runs: {reason}."));
    }
    if observed.count() == 0 && !runs.is_empty() {
        section.text("Nothing was observed, so observing cost nothing.");
    }
    section.filled()
}
