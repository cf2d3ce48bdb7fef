//! Cells and columns, made of figures.

use wirecost_analyze::Estimate;
use wirecost_analyze::measured::{MeasuredPoint, Measurements};
use wirecost_analyze::metrics::{self, Scope, Selector};
use wirecost_model::document::{Align, Block, Cell, Column, Number, Section, Table};
use wirecost_model::metric::Unit;
use wirecost_model::proportion::Proportion;
use wirecost_model::run::Run;

pub(super) fn text(text: impl Into<String>) -> Cell {
    Cell::Text(text.into())
}

pub(super) fn number(value: f64, unit: Unit, text: String) -> Cell {
    Cell::Number(Number { value, interval: None, text, unit })
}

/// A whole number of things.
pub(super) fn count(number_of: u64) -> Cell {
    number(number_of as f64, Unit::Count, grouped(number_of as f64))
}

/// A number, or why there is none.
pub(super) fn known(value: Result<f64, String>, unit: Unit, show: impl Fn(f64) -> String) -> Cell {
    match value {
        Ok(value) => number(value, unit, show(value)),
        Err(reason) => Cell::Missing(reason),
    }
}

/// A mean with its interval, or why there is none.
pub(super) fn estimated(
    value: Result<Estimate, String>,
    unit: Unit,
    show: impl Fn(f64) -> String,
) -> Cell {
    match value {
        Ok(estimate) => {
            let Estimate { mean, interval, .. } = estimate;
            Cell::Number(Number::with_text(unit, mean, interval, &show(mean)))
        }
        Err(reason) => Cell::Missing(reason),
    }
}

/// A mean with its interval in its own unit, or why there is none.
pub(super) fn mean(unit: Unit, value: Result<Estimate, String>) -> Cell {
    match value {
        Ok(estimate) => Cell::Number(of_estimate(unit, &estimate)),
        Err(reason) => Cell::Missing(reason),
    }
}

pub(super) fn of_estimate(unit: Unit, estimate: &Estimate) -> Number {
    let estimate = estimate.within(unit.range());
    Number::estimate(unit, estimate.mean, estimate.interval)
}

/// What was measured of a metric at a point.
pub(super) fn measured_at(point: &MeasuredPoint, selector: &Selector) -> Cell {
    mean(selector.metric().unit, point.estimate(selector))
}

/// A figure of a point by its name, in its own unit.
pub(super) fn figure(point: &MeasuredPoint, name: &str) -> Cell {
    match metrics::find(name) {
        Ok(selector) => measured_at(point, &selector),
        Err(unknown) => Cell::Missing(unknown.to_string()),
    }
}

/// A figure by its name times a factor, shown in another way.
pub(super) fn scaled(
    point: &MeasuredPoint,
    name: &str,
    factor: f64,
    show: impl Fn(f64) -> String,
) -> Cell {
    let estimate = estimate(point, |run| Ok(factor * of(run, name)?));
    estimated(estimate, Unit::Ratio, show)
}

/// A figure of a run by its name.
///
/// # Errors
/// Why it was not measured.
pub(super) fn of(run: &Run, name: &str) -> Result<f64, String> {
    metrics::find(name).map_err(|unknown| unknown.to_string())?.of(run)
}

/// Over the runs of a point, of what is no figure with a name.
///
/// # Errors
/// Why no run has it.
pub(super) fn estimate(
    point: &MeasuredPoint,
    of: impl Fn(&Run) -> Result<f64, String>,
) -> Result<Estimate, String> {
    let first = first(point)?;
    let values: Vec<f64> = point.runs.iter().filter_map(|run| of(run).ok()).collect();
    // No figure of a table is negative.
    let possible = |estimate: Estimate| estimate.within((0.0, f64::INFINITY));
    Estimate::of(&values).map(possible).ok_or_else(|| of(first).err().unwrap_or_default())
}

/// A share over several runs, of the share of each and the number of its samples. Samples of one run are
/// alike, so its interval is of the spread between runs, and never narrower than that of independent samples.
pub(super) fn share_of_runs(runs: &[(f64, u64)]) -> Proportion {
    let samples: u64 = runs.iter().map(|(_, samples)| samples).sum();
    if samples == 0 {
        return Proportion::of(0, 0);
    }
    let weight = |of: u64| of as f64 / samples as f64;
    let share = runs.iter().fold(0.0, |sum, (share, of)| sum + weight(*of) * share);
    let least = Proportion::worth(share, samples as f64);
    // What each run adds, as the ratio of two sums (W. G. Cochran, Sampling Techniques, 6.4).
    let parts =
        runs.iter().map(|(of_run, of)| share + runs.len() as f64 * weight(*of) * (of_run - share));
    let spread = Estimate::of(&parts.collect::<Vec<f64>>());
    let (low, high) = least.interval;
    let interval = match spread.and_then(|spread| spread.within((0.0, 1.0)).interval) {
        Some((lower, upper)) => (low.min(lower), high.max(upper)),
        None => (low, high),
    };
    Proportion { share, interval }
}

/// The first run that counts.
///
/// # Errors
/// There is none.
pub(super) fn first(point: &MeasuredPoint) -> Result<&Run, String> {
    let without = || match point.failed.first() {
        Some(run) => run.error.clone().unwrap_or_else(|| "the run failed".to_owned()),
        None => "not run yet".to_owned(),
    };
    point.runs.first().ok_or_else(without)
}

/// `1,234,567`.
pub(super) fn grouped(value: f64) -> String {
    wirecost_model::units::count(value.round().max(0.0) as u64)
}

/// A table, its columns with where they are aligned.
pub(super) fn table(title: impl Into<String>, columns: &[(&str, Align)]) -> Table {
    let column = |&(title, align): &(&str, Align)| Column { align, ..Column::text(title) };
    let columns = columns.iter().map(column).collect();
    Table { title: title.into(), columns, ..Table::default() }
}

/// Says about which questions nothing is concluded, and why.
pub(super) fn unanswered(section: &mut Section, questions: Vec<(&'static str, Vec<String>)>) {
    for (question, reasons) in questions {
        section.note(format!("no conclusion about {question}: {}", reasons.join("; ")));
    }
}

pub(super) fn sentence(text: impl Into<String>) -> Block {
    Block::Text(text.into())
}

/// What the axes are at a point.
pub(super) fn label(point: &MeasuredPoint) -> String {
    let axes: Vec<&str> = point.point.axes.iter().map(|axis| axis.value.as_str()).collect();
    axes.join(" ")
}

/// A point as a person calls it: its axes, then what else is set and is not the same everywhere. What is set
/// of hosts and of the lab is long, and what axes are about.
pub(super) fn name(measured: &Measurements, point: &MeasuredPoint) -> String {
    let differs = |name: &str| {
        measured.points.iter().any(|other| other.point.get(name) != point.point.get(name))
    };
    let is_axis = |name: &str| point.point.axes.iter().any(|axis| axis.name == name);
    let mut settings: Vec<_> = point.point.settings.iter().collect();
    settings.sort_by_key(|set| set.name != "profile");
    let settings: Vec<String> = settings
        .into_iter()
        .filter(|set| !is_axis(&set.name) && differs(&set.name))
        .filter(|set| !["tune.", "lab."].iter().any(|prefix| set.name.starts_with(prefix)))
        .map(|set| match set.name.as_str() {
            "profile" => set.value.clone(),
            name => format!("{name}={}", set.value),
        })
        .collect();
    match settings.is_empty() {
        true => label(point),
        false => format!("{}: {}", label(point), settings.join(" ")),
    }
}

/// Whose CPUs a table can tell of: each end by its role where both have CPUs of their own, else all
/// that there is together.
pub(super) fn ends(measured: &Measurements, roles: [&'static str; 2]) -> Vec<Option<&'static str>> {
    let own = |role: &&'static str| {
        measured.points.iter().flat_map(|point| &point.runs).any(|run| {
            let seen = Scope::find(run, Some(role)).and_then(|scope| scope.observed());
            seen.is_ok_and(|observed| observed.covers.len() == 1)
        })
    };
    match roles.iter().all(own) {
        true => roles.into_iter().map(Some).collect(),
        false => vec![None],
    }
}

/// The name of a figure at one end.
pub(super) fn at(end: Option<&str>, name: &str) -> String {
    match end {
        Some(end) => format!("hosts.{end}.{name}"),
        None => name.to_owned(),
    }
}
