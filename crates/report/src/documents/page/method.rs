//! How figures were measured: windows, repeats, order, and the source of each.

use std::collections::BTreeSet;

use wirecost_analyze::statistics::Estimate;
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
    if let Some(text) = cost(&costs) {
        section.text(text);
    }
    for reason in reasons {
        section.text(format!("The cost of observing is unknown for some runs: {reason}."));
    }
    if observed.count() == 0 && !runs.is_empty() {
        section.text("Nothing was observed, so observing cost nothing.");
    }
    section.filled()
}

/// What observing cost runs, in percent of their throughput; `None` where there are none.
fn cost(costs: &[f64]) -> Option<String> {
    let Estimate { mean, interval, .. } = Estimate::of(costs)?;
    let least = costs.iter().copied().min_by(f64::total_cmp)?;
    let most = costs.iter().copied().max_by(f64::total_cmp)?;
    let runs = counted(costs.len() as u64, "run", "runs");
    // Probes make no run faster, so a negative cost is noise.
    let is_noise = mean <= 0.0 || interval.is_some_and(|(low, _)| low <= 0.0);
    Some(match is_noise {
        true => format!(
            "The cost of observing is not distinguishable from noise: the throughput of {runs} with probes changed by {:+.1}% to \
             {:+.1}% ({:+.1}% on average), compared with the same runs without probes, just before and after their windows.",
            -most, -least, -mean
        ),
        false => format!(
            "Observing cost {mean:.1}% of throughput on average ({least:.1}% to {most:.1}% over {runs}), \
             compared with the same runs without probes, just before and after their windows."
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_of_observing_within_noise_is_called_so() {
        let told = |costs: &[f64]| cost(costs).unwrap();
        assert_eq!(
            told(&[2.0, 3.0, 4.0]),
            "Observing cost 3.0% of throughput on average (2.0% to 4.0% over 3 runs), compared with the \
             same runs without probes, just before and after their windows."
        );
        let noise = told(&[-20.0, 8.0, 9.0]);
        let says =
            "the throughput of 3 runs with probes changed by -9.0% to +20.0% (+1.0% on average)";
        assert!(
            noise.contains("not distinguishable from noise") && noise.contains(says),
            "{noise}"
        );
        assert!(told(&[-300.0]).contains("not distinguishable from noise"));
        assert_eq!(cost(&[]), None);
    }
}
