//! Points of a study, as charts arrange them.

use wirecost_analyze::measured::{MeasuredPoint, Measurements, RUN};
use wirecost_analyze::metrics::Selector;
use wirecost_model::document::{Axis, AxisLabel, AxisScale, RunSample, Sample, Series};
use wirecost_model::metric::Unit;
use wirecost_model::run::Run;
use wirecost_model::study::{self, LOAD, OfferedLoad, StudyRunRef};

/// Values that span a larger factor are drawn on a logarithmic axis.
const WIDE: f64 = 30.0;
/// The same of what was set, which is mostly doubled.
const DOUBLED: f64 = 16.0;

/// The name of a run: that of its record in a study, else what it was read from.
#[must_use]
pub fn run_name(point: &MeasuredPoint, run: &Run) -> String {
    match run.study.as_ref().map(StudyRunRef::id) {
        Some(id) => id,
        None => point.point.get(RUN).unwrap_or_default().to_owned(),
    }
}

/// Axes with several values, those with the most values first.
pub(in super::super) fn varying(measured: &Measurements) -> Vec<&str> {
    let mut axes: Vec<&str> =
        measured.axes().into_iter().filter(|axis| measured.values(axis).len() > 1).collect();
    axes.sort_by_key(|axis| std::cmp::Reverse(measured.values(axis).len()));
    axes
}

/// Points that differ in one axis only, in the order of its values.
#[derive(Debug)]
pub(super) struct Line<'a> {
    /// What the other axes are: `64k, 1500`; empty where there are none.
    pub name: String,
    pub points: Vec<&'a MeasuredPoint>,
}

/// All lines along an axis that have two points or more.
pub(super) fn lines<'a>(measured: &'a Measurements, axis: &str) -> Vec<Line<'a>> {
    let others = others(measured, axis);
    let mut lines: Vec<Line<'a>> = Vec::new();
    for point in measured.points.iter().filter(|point| point.point.get(axis).is_some()) {
        let name = name(point, &others);
        match lines.iter_mut().find(|line| line.name == name) {
            Some(line) => line.points.push(point),
            None => lines.push(Line { name, points: vec![point] }),
        }
    }
    lines.retain(|line| line.points.len() > 1);
    let place = place_on(measured, axis);
    for line in &mut lines {
        line.points.sort_by(|a, b| place(a).total_cmp(&place(b)));
    }
    lines
}

/// Varying axes other than one, in the order of the study.
pub(super) fn others<'a>(measured: &'a Measurements, axis: &str) -> Vec<&'a str> {
    let axes = measured.axes().into_iter().filter(|other| *other != axis);
    axes.filter(|other| measured.values(other).len() > 1).collect()
}

/// What some axes are at a point.
pub(super) fn name(point: &MeasuredPoint, axes: &[&str]) -> String {
    let value = |axis: &&str| {
        let value = point.point.get(axis)?;
        // A bare number does not tell what it is of.
        Some(match study::number(value).is_some() {
            true => format!("{axis} {value}"),
            false => value.to_owned(),
        })
    };
    axes.iter().filter_map(value).collect::<Vec<_>>().join(", ")
}

/// Where points are on an axis: at its number, or at the place of its value among the others.
pub(super) fn place_on<'a>(
    measured: &'a Measurements,
    axis: &'a str,
) -> impl Fn(&MeasuredPoint) -> f64 + 'a {
    let values = ordered(measured, axis);
    let numbers = are_numbers(&values);
    move |point| {
        let value = point.point.get(axis).unwrap_or_default();
        match numbers {
            true => study::number(value).unwrap_or_default(),
            false => values.iter().position(|known| *known == value).unwrap_or(0) as f64,
        }
    }
}

/// Values of an axis in the order in which a chart has them: of loads, the least first.
fn ordered<'a>(measured: &'a Measurements, axis: &str) -> Vec<&'a str> {
    let mut values = measured.values(axis);
    if axis == LOAD {
        let level = |value: &&str| match OfferedLoad::parse(value) {
            Some(OfferedLoad::Share(share) | OfferedLoad::OfLink(share)) => share,
            Some(OfferedLoad::Rate(rate)) => rate as f64,
            Some(OfferedLoad::Max) | None => f64::INFINITY,
        };
        values.sort_by(|a, b| level(a).total_cmp(&level(b)));
    }
    values
}

fn are_numbers(values: &[&str]) -> bool {
    values.iter().all(|value| study::number(value).is_some())
}

/// An axis of a study as that of a chart.
pub(super) fn axis_of(measured: &Measurements, axis: &str) -> Axis {
    let values = ordered(measured, axis);
    if !are_numbers(&values) {
        return Axis::of_names(axis, values.into_iter().map(str::to_owned));
    }
    let label =
        |text: &&str| Some(AxisLabel { at: study::number(text)?, text: (*text).to_owned() });
    let mut labels: Vec<AxisLabel> = values.iter().filter_map(label).collect();
    labels.sort_by(|a, b| a.at.total_cmp(&b.at));
    let (least, most) = (labels.first().map_or(0.0, |l| l.at), labels.last().map_or(0.0, |l| l.at));
    let scale = match least > 0.0 && most / least >= DOUBLED {
        true => AxisScale::Logarithmic,
        false => AxisScale::Linear,
    };
    Axis { scale, labels, ..Axis::new(axis, Unit::Count) }
}

/// A figure along a line, with its intervals and runs.
pub(super) fn series(
    line: &Line<'_>,
    place: impl Fn(&MeasuredPoint) -> f64,
    selector: &Selector,
) -> Series {
    let mut series = Series::new(&line.name, Vec::new());
    for point in &line.points {
        let Ok(estimate) = point.estimate(selector) else { continue };
        let x = place(point);
        series.samples.push(Sample { x, y: estimate.mean });
        series.intervals.push(estimate.interval);
        let figures = point.runs.iter().filter_map(|run| Some((run, selector.of(run).ok()?)));
        series.runs.extend(figures.map(|(run, y)| RunSample { run: run_name(point, run), x, y }));
    }
    if series.intervals.iter().all(Option::is_none) {
        series.intervals.clear();
    }
    series
}

/// The axis of a figure: logarithmic where its values span much.
pub(super) fn scaled(axis: Axis, series: &[Series]) -> Axis {
    let values = || series.iter().flat_map(|of| &of.runs).map(|run| run.y);
    let least = values().fold(f64::INFINITY, f64::min);
    let most = values().fold(f64::NEG_INFINITY, f64::max);
    if least > 0.0 && most / least > WIDE { axis.logarithmic() } else { axis }
}
