//! Points in a row: those that differ along one axis and are the same along all others.

use fastrand::Rng;
use wirecost_model::study::{LOAD, OfferedLoad, Value, number};

use super::words;
use crate::measured::{MeasuredPoint, Measurements};
use crate::metrics::{self, Selector};
use crate::statistics::bootstrap::normal;

/// Points by the number that an axis gives them.
#[derive(Debug)]
pub(super) struct Line<'a> {
    pub(super) axis: &'a str,
    /// What the other axes are.
    pub(super) fixed: Vec<&'a Value>,
    /// From the least number to the largest.
    pub(super) stops: Vec<Stop<'a>>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Stop<'a> {
    /// As it is written.
    pub(super) value: &'a str,
    pub(super) number: f64,
    pub(super) point: &'a MeasuredPoint,
}

/// What is the same at some points, and the points, each with its value on the axis.
pub(super) type Group<'a> = (Vec<&'a Value>, Vec<(&'a str, &'a MeasuredPoint)>);

/// Whether the values of an axis are numbers of what it is called, and not names of several
/// settings.
pub(super) fn is_numeric(measured: &Measurements, axis: &str) -> bool {
    let find = |values: &[Value]| values.iter().find(|v| v.name == axis).map(|v| v.value.clone());
    measured.points.iter().all(|point| {
        let value = find(&point.point.axes);
        value.as_deref().and_then(number).is_some() && value == find(&point.point.settings)
    })
}

/// Points with runs that differ along this axis alone.
pub(super) fn groups<'a>(measured: &'a Measurements, axis: &str) -> Vec<Group<'a>> {
    let mut groups: Vec<Group<'a>> = Vec::new();
    for point in measured.points.iter().filter(|point| !point.runs.is_empty()) {
        let (on, fixed): (Vec<&Value>, Vec<&Value>) =
            point.point.axes.iter().partition(|value| value.name == axis);
        let Some(value) = on.first() else { continue };
        let here = (value.value.as_str(), point);
        match groups.iter_mut().find(|group| group.0 == fixed) {
            Some(group) => group.1.push(here),
            None => groups.push((fixed, vec![here])),
        }
    }
    groups
}

/// All lines of all axes whose values are numbers, of three points at least. Those of the load are
/// [`by_load`].
pub(super) fn lines(measured: &Measurements) -> Vec<Line<'_>> {
    let mut lines = Vec::new();
    let is_line = |axis: &&str| *axis != LOAD && is_numeric(measured, axis);
    for axis in measured.axes().into_iter().filter(is_line) {
        for (fixed, points) in groups(measured, axis) {
            let stop = |(value, point)| Some(Stop { value, number: number(value)?, point });
            let mut stops: Vec<Stop<'_>> = points.into_iter().filter_map(stop).collect();
            stops.sort_by(|a, b| a.number.total_cmp(&b.number));
            if stops.len() >= 3 {
                lines.push(Line { axis, fixed, stops });
            }
        }
    }
    lines
}

/// Lines of points that differ in their offered load alone, from the least to that of `max`.
pub(super) fn by_load(measured: &Measurements) -> Vec<Line<'_>> {
    let mut lines = Vec::new();
    for (fixed, points) in groups(measured, LOAD) {
        let loads = || points.iter().filter_map(|(value, _)| OfferedLoad::parse(value));
        let has_shares = loads().any(|load| matches!(load, OfferedLoad::Share(_)));
        let has_rates = loads().any(|load| matches!(load, OfferedLoad::Rate(_)));
        let has_shares_of_link = loads().any(|load| matches!(load, OfferedLoad::OfLink(_)));
        if [has_shares, has_rates, has_shares_of_link].into_iter().filter(|has| *has).count() > 1 {
            // Which is the larger differs from run to run.
            continue;
        }
        let level = |value: &str, point: &MeasuredPoint| match OfferedLoad::parse(value)? {
            OfferedLoad::Share(share) | OfferedLoad::OfLink(share) => Some(share),
            OfferedLoad::Rate(rate) => Some(rate as f64),
            OfferedLoad::Max if has_shares => Some(1.0),
            // What the hosts move may be more or less than the link carries.
            OfferedLoad::Max if has_shares_of_link => None,
            OfferedLoad::Max => Some(mean(&point.figures(&metrics::find("throughput").ok()?))),
        };
        let stop = |(value, point)| Some(Stop { value, number: level(value, point)?, point });
        let mut stops: Vec<Stop<'_>> = points.iter().copied().filter_map(stop).collect();
        stops.sort_by(|a, b| a.number.total_cmp(&b.number));
        if stops.len() >= 3 {
            lines.push(Line { axis: LOAD, fixed, stops });
        }
    }
    lines
}

impl<'a> Line<'a> {
    /// The stops at which a metric was measured, and what it was in each run. `None` where that is
    /// fewer than three.
    pub(super) fn measured(&self, selector: &Selector) -> Option<(Vec<Stop<'a>>, Vec<Vec<f64>>)> {
        let all = self.stops.iter().map(|stop| (*stop, stop.point.figures(selector)));
        let known: (Vec<_>, Vec<_>) = all.filter(|(_, figures)| !figures.is_empty()).unzip();
        (known.0.len() >= 3).then_some(known)
    }

    /// Figures by stop, for the evidence: `throughput by connections: 1: 928 Mb/s, 4: ...`.
    pub(super) fn table(&self, what: &str, stops: &[Stop<'_>], figures: &[String]) -> String {
        let rows: Vec<String> = stops
            .iter()
            .zip(figures)
            .map(|(stop, figure)| format!("{}: {figure}", stop.value))
            .collect();
        format!("{what} by {}: {}", self.axis, rows.join(", "))
    }

    /// Settings that change with the axis, and so may be the reason for what it seems to do.
    pub(super) fn confounders(&self) -> Vec<String> {
        let Some(first) = self.stops.first() else { return Vec::new() };
        let names = first.point.point.settings.iter().map(|setting| setting.name.as_str());
        let mut told = Vec::new();
        for name in names.filter(|name| *name != self.axis) {
            let mut before = None;
            let mut changes = Vec::new();
            for stop in &self.stops {
                let value = stop.point.point.get(name).unwrap_or("not set");
                if before != Some(value) {
                    changes.push(format!("{value} from {}", words::stop(self.axis, stop.value)));
                }
                before = Some(value);
            }
            if changes.len() > 1 {
                told.push(format!("{name} also changes: {}", changes.join(", ")));
            }
        }
        told
    }
}

pub(super) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// What the true means may be. How far repeats are off is taken from all stops together, relative
/// to their means: of three repeats alone hardly anything would be known. `None` where nothing was
/// repeated.
pub(super) fn plausible_means(figures: &[Vec<f64>], random: &mut Rng) -> Option<Vec<f64>> {
    let (mut squares, mut freedom) = (0.0, 0.0);
    for runs in figures {
        let mean = mean(runs);
        squares += runs.iter().map(|value| (value / mean - 1.0).powi(2)).sum::<f64>();
        freedom += runs.len() as f64 - 1.0;
    }
    if freedom == 0.0 {
        return None;
    }
    let relative = (squares / freedom).sqrt();
    let off = |runs: &Vec<f64>| relative / (runs.len() as f64).sqrt();
    Some(figures.iter().map(|runs| mean(runs) * (1.0 + off(runs) * normal(random))).collect())
}

/// What moves: bytes, or where none do, transactions.
pub(super) fn work(measured: &Measurements) -> Option<Selector> {
    let (throughput, transactions) =
        (metrics::find("throughput").ok()?, metrics::find("transactions").ok()?);
    let bytes_move =
        measured.points.iter().any(|p| p.figures(&throughput).iter().any(|v| *v > 0.0));
    Some(if bytes_move { throughput } else { transactions })
}

/// The figures by which values of any axis are compared: what moves, what it costs, and how long it takes.
pub(super) fn rate_cost_latency(measured: &Measurements) -> Vec<Selector> {
    work(measured).into_iter().chain(cost_latency()).collect()
}

/// The same without what moves.
pub(super) fn cost_latency() -> impl Iterator<Item = Selector> {
    ["cycles_per_kbyte", "latency.p99"].into_iter().filter_map(|name| metrics::find(name).ok())
}
