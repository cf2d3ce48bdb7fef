//! Busy CPU time by layer of the stack, where functions were sampled.

use wirecost_analyze::measured::Measurements;
use wirecost_model::document::{Axis, Chart, ChartKind, Sample, Series};
use wirecost_model::metric::Unit;
use wirecost_model::observe::{FunctionsSection, HostObservation};
use wirecost_model::run::Run;

use super::Built;
use super::cpu::BARS;
use super::points::{Names, varying};

/// Layers that have a part of their own; the rest is one part.
const LAYERS: usize = 7;
const OTHER: &str = "other layers";

/// A bar, and the shares of its layers.
type Bar = (String, Vec<(String, f64)>);

/// A bar for each host.
///
/// # Errors
/// Why there is no chart.
pub(in super::super) fn of_run(run: &Run) -> Built {
    let bars = observed(run).map(|(host, functions)| (host.covers.join(", "), shares(functions)));
    chart("Busy CPU time by layer", "host", bars.collect())
}

/// A bar for each point, of all hosts and runs together.
///
/// # Errors
/// Why there is no chart.
pub(in super::super) fn of_points(measured: &Measurements) -> Built {
    let axes = varying(measured);
    let names = Names::of(measured.points.iter().map(|point| &point.point), &axes);
    if measured.points.iter().all(|point| point.runs.is_empty()) {
        return Err("no run is valid".to_owned());
    }
    let mut bars: Vec<Bar> = Vec::new();
    for point in &measured.points {
        let sampled: Vec<&FunctionsSection> =
            point.runs.iter().flat_map(observed).map(|(_, functions)| functions).collect();
        let mut mean: Vec<(String, f64)> = Vec::new();
        for (layer, share) in sampled.iter().flat_map(|functions| shares(functions)) {
            let share = share / sampled.len() as f64;
            match mean.iter_mut().find(|(known, _)| *known == layer) {
                Some((_, sum)) => *sum += share,
                None => mean.push((layer, share)),
            }
        }
        if !mean.is_empty() {
            bars.push((names.name(&point.point), mean));
        }
    }
    chart("Busy CPU time by layer, all hosts", &axes.join(", "), bars)
}

fn observed(run: &Run) -> impl Iterator<Item = (&HostObservation, &FunctionsSection)> {
    let hosts = run.observe.iter().flat_map(|observe| &observe.hosts);
    hosts.filter_map(|host| Some((host, host.functions.as_ref().filter(|of| of.samples > 0)?)))
}

fn shares(functions: &FunctionsSection) -> Vec<(String, f64)> {
    let layers = functions.layers.iter().map(|of| (of.layer.clone(), 100.0 * of.share));
    let rest = functions.unmapped.map(|share| (OTHER.to_owned(), 100.0 * share));
    layers.chain(rest).collect()
}

fn chart(title: &str, axis: &str, bars: Vec<Bar>) -> Built {
    if bars.is_empty() {
        return Err("functions were not sampled (--observe functions)".to_owned());
    }
    if bars.len() > BARS {
        return Err(format!("{} points are too many for bars", bars.len()));
    }
    let mut totals: Vec<(&str, f64)> = Vec::new();
    for (layer, share) in bars.iter().flat_map(|(_, shares)| shares) {
        match totals.iter_mut().find(|(known, _)| known == layer) {
            Some((_, sum)) => *sum += share,
            None => totals.push((layer, *share)),
        }
    }
    totals.retain(|(layer, _)| *layer != OTHER);
    totals.sort_by(|a, b| b.1.total_cmp(&a.1));
    let named: Vec<&str> = totals.iter().take(LAYERS).map(|(layer, _)| *layer).collect();
    let x = Axis::of_names(axis, bars.iter().map(|(name, _)| name.clone()));
    let y = Axis::new("busy CPU time", Unit::Percent);
    let mut chart = Chart::new(title, ChartKind::Stack, x, y);
    for layer in named.iter().copied().chain([OTHER]) {
        let is = |of: &str| if layer == OTHER { !named.contains(&of) } else { of == layer };
        let share = |bar: &Bar| -> f64 {
            bar.1.iter().filter(|(of, _)| is(of)).map(|(_, share)| share).sum()
        };
        let samples = bars.iter().enumerate();
        let samples = samples.map(|(place, bar)| Sample { x: place as f64, y: share(bar) });
        chart.series.push(Series::new(layer, samples.collect()));
    }
    Ok(vec![chart])
}
