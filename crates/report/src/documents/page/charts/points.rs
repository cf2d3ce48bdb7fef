//! Points of a study, as charts arrange them.

use std::collections::BTreeMap;

use wirecost_analyze::measured::{MeasuredPoint, Measurements, RUN};
use wirecost_analyze::metrics::Selector;
use wirecost_model::document::{Axis, AxisLabel, AxisScale, RunSample, Sample, Series};
use wirecost_model::metric::Unit;
use wirecost_model::run::Run;
use wirecost_model::study::{self, LOAD, OfferedLoad, Point, StudyRunRef};

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
    let points = || measured.points.iter().filter(|point| point.point.get(axis).is_some());
    let names = Names::of(points().map(|point| &point.point), &others(measured, axis));
    let mut lines: Vec<Line<'a>> = Vec::new();
    for point in points() {
        let name = names.name(&point.point);
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

/// Short names of points.
pub(in super::super) struct Names<'a> {
    axes: Vec<&'a str>,
    /// Values of one point, by axis, where the others differ from it in few axes.
    base: Option<Vec<&'a str>>,
}

impl<'a> Names<'a> {
    pub(in super::super) fn of(
        points: impl Iterator<Item = &'a Point> + Clone,
        axes: &[&'a str],
    ) -> Self {
        let axes = axes.to_vec();
        // Names of two values are short.
        if axes.len() < 3 {
            return Self { axes, base: None };
        }
        let usual = |axis: &&str| {
            let mut times: BTreeMap<&str, usize> = BTreeMap::new();
            for value in points.clone().filter_map(|point| point.get(axis)) {
                *times.entry(value).or_default() += 1;
            }
            times.into_iter().max_by_key(|(_, times)| *times).map(|(value, _)| value)
        };
        let base: Option<Vec<&str>> = axes.iter().map(usual).collect();
        let is_base = |base: &Vec<&str>| {
            let differences = points.clone().map(|point| {
                axes.iter().zip(base).filter(|(axis, value)| point.get(axis) != Some(value)).count()
            });
            let (all, least) =
                differences.fold((0, usize::MAX), |(all, least), of| (all + of, least.min(of)));
            least == 0 && 3 * all <= axes.len() * points.clone().count()
        };
        let base = base.filter(is_base);
        Self { axes, base }
    }

    /// What differs at a point from the base, else what all axes are there.
    pub(super) fn name(&self, point: &Point) -> String {
        let values = self.axes.iter().filter_map(|axis| Some((*axis, point.get(axis)?)));
        match self.differences(point) {
            // A bare number does not tell what it is of.
            None => {
                let value = |(axis, value): (&str, &str)| match study::number(value).is_some() {
                    true => format!("{axis} {value}"),
                    false => value.to_owned(),
                };
                values.map(value).collect::<Vec<_>>().join(", ")
            }
            Some(none) if none.is_empty() => {
                let all = values.map(|(axis, value)| format!("{axis}={value}"));
                format!("base: {}", all.collect::<Vec<_>>().join(", "))
            }
            Some(differences) => differences,
        }
    }

    /// What differs at a point from the base, where there is one.
    pub(in super::super) fn differences(&self, point: &Point) -> Option<String> {
        let each = self.axes.iter().zip(self.base.as_ref()?);
        let different = each.filter_map(|(axis, usual)| {
            let value = point.get(axis).filter(|value| value != usual)?;
            Some(format!("{axis}={value}"))
        });
        Some(different.collect::<Vec<_>>().join(", "))
    }
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

#[cfg(test)]
mod tests {
    use wirecost_model::study::Value;

    use super::*;

    const AXES: [&str; 3] = ["cc", "size", "mtu"];

    fn names(values: &[[&str; 3]]) -> Vec<String> {
        let point = |values: &[&str; 3]| {
            let axes: Vec<Value> =
                AXES.iter().zip(values).map(|(axis, value)| Value::new(axis, value)).collect();
            Point { settings: axes.clone(), axes }
        };
        let points: Vec<Point> = values.iter().map(point).collect();
        let names = Names::of(points.iter(), &AXES);
        points.iter().map(|point| names.name(point)).collect()
    }

    #[test]
    fn points_around_a_base_are_named_by_what_differs() {
        let around = [
            ["cubic", "64k", "1500"],
            ["reno", "64k", "1500"],
            ["bbr", "1k", "1500"],
            ["cubic", "64k", "9000"],
        ];
        let base = "base: cc=cubic, size=64k, mtu=1500";
        assert_eq!(names(&around), [base, "cc=reno", "cc=bbr, size=1k", "mtu=9000"]);
        // Where no point is like most others, all values are told.
        let without = &around[1..];
        assert_eq!(names(without)[0], "reno, size 64k, mtu 1500");
        let all: Vec<[&str; 3]> = (0..8)
            .map(|of| {
                let value = |bit: u32, values: [&'static str; 2]| values[of >> bit & 1];
                [value(0, ["cubic", "reno"]), value(1, ["1k", "64k"]), value(2, ["1500", "9000"])]
            })
            .collect();
        assert_eq!(names(&all)[3], "reno, size 64k, mtu 1500");
    }
}
