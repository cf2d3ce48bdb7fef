//! `io-engines`: the same traffic by different ways of I/O, and what a byte and an operation cost by each.

use wirecost_analyze::Estimate;
use wirecost_analyze::measured::{MeasuredPoint, Measurements};
use wirecost_analyze::metrics::{self, Selector};
use wirecost_analyze::statistics::moderated;
use wirecost_model::document::{Cell, Column, Section};
use wirecost_model::metric::Unit;
use wirecost_model::study::Value;

use super::rows::{ColumnOf, Rows};
use super::{Table, cells};

pub(super) struct IoEngines;

impl Table for IoEngines {
    fn name(&self) -> &'static str {
        "io-engines"
    }

    fn help(&self) -> &'static str {
        "engines and I/O options: throughput, cost per byte and operation, vs the first"
    }

    fn build(&self, measured: &Measurements) -> Section {
        build(measured)
    }

    fn rows(&self, measured: &Measurements) -> Option<Rows> {
        Some(rows(measured))
    }
}

/// The axis of the ways.
const METHOD: &str = "method";
const COST: &str = "cycles_per_kbyte";

fn build(measured: &Measurements) -> Section {
    let mut section = Section::new("I/O engines and options");
    let axes = measured.axes();
    let method = axes.contains(&METHOD).then_some(METHOD).or(axes.first().copied());
    let mut groups: Vec<(Vec<Value>, Vec<&MeasuredPoint>)> = Vec::new();
    for point in &measured.points {
        let other = point.point.axes.iter().filter(|axis| {
            Some(axis.name.as_str()) != method && measured.values(&axis.name).len() > 1
        });
        let other: Vec<Value> = other.cloned().collect();
        match groups.iter_mut().find(|(known, _)| *known == other) {
            Some((_, points)) => points.push(point),
            None => groups.push((other, vec![point])),
        }
    }
    for (common, points) in groups {
        let title: Vec<String> =
            common.iter().map(|axis| format!("{} = {}", axis.name, axis.value)).collect();
        let mut rows =
            Rows { columns: method.map(|m| ColumnOf::setting(m, measured)).into_iter().collect() };
        rows.columns.extend(figures());
        let mut table = rows.table(&title.join(", "), points.iter().copied());
        table.columns.push(Column::number("cost/first"));
        let ratios = ratios(&points);
        for (row, ratio) in table.rows.iter_mut().zip(ratios) {
            row.push(ratio);
        }
        table.common = common;
        section.table(table);
    }
    section.text(
        "cycles are of all hosts together; cost/first is cycles/KByte relative to the first row, with \
         its 95% interval; copied is the share of zero-copy calls whose bytes the kernel still copied.",
    );
    section
}

/// All but the ratio, which takes the first row too.
fn rows(measured: &Measurements) -> Rows {
    Rows::by_axes(measured, figures())
}

fn figures() -> [ColumnOf; 5] {
    [
        ColumnOf::metric("throughput", "throughput"),
        ColumnOf::metric("cycles/KByte", COST),
        ColumnOf::metric("cycles/op", "cycles_per_operation"),
        ColumnOf::metric("operations", "operations"),
        ColumnOf::metric("copied", "zerocopy.copied"),
    ]
}

/// The cost at each point over that at the first. How much runs differ is learned from all points, so that
/// a few runs of each suffice for an interval.
fn ratios(points: &[&MeasuredPoint]) -> Vec<Cell> {
    let Ok(cost) = metrics::find(COST) else {
        return vec![Cell::Missing(format!("no metric {COST}")); points.len()];
    };
    let costs: Vec<Vec<f64>> = points.iter().map(|point| point.figures(&cost)).collect();
    let logs = |place: usize| costs[place].iter().map(|cost| cost.ln()).collect::<Vec<f64>>();
    let tested = |place: &usize| {
        [0, *place]
            .iter()
            .all(|&at| costs[at].len() > 1 && costs[at].iter().all(|cost| *cost > 0.0))
    };
    let places: Vec<usize> = (1..points.len()).filter(tested).collect();
    let of = |&place: &usize| moderated::Cell { metric: 0, a: logs(0), b: logs(place) };
    let effects = moderated::effects(&places.iter().map(of).collect::<Vec<_>>());
    let effect = |place: usize| places.iter().zip(&effects).find(|(at, _)| **at == place);
    let cell = |place: usize| match effect(place) {
        Some((_, effect)) => {
            let (mean, interval) = (effect.ratio(), Some(effect.interval(0.05)));
            let times = costs[place].len();
            cells::mean(Unit::Ratio, Ok(Estimate { mean, interval, times }))
        }
        None => ratio(points[place], points[0], &cost, place == 0),
    };
    (0..points.len()).map(cell).collect()
}

/// Without an interval: of points that were run once.
fn ratio(point: &MeasuredPoint, first: &MeasuredPoint, cost: &Selector, is_first: bool) -> Cell {
    let (here, there) = match (point.estimate(cost), first.estimate(cost)) {
        (Ok(here), Ok(there)) => (here, there),
        (Err(reason), _) => return Cell::Missing(reason),
        (_, Err(reason)) => return Cell::Missing(format!("of the first row: {reason}")),
    };
    if is_first {
        return Cell::number(Unit::Ratio, 1.0);
    }
    if there.mean <= 0.0 {
        return Cell::Missing("the first row costs nothing".to_owned());
    }
    Cell::number(Unit::Ratio, here.mean / there.mean)
}

#[cfg(test)]
mod tests {
    use super::super::tests::fixture;
    use super::*;

    /// A point of these costs, in cycles/KByte.
    fn point(costs: &[f64]) -> MeasuredPoint {
        let mut point = fixture("interrupt-cost").points.remove(0);
        let run = point.runs.remove(0);
        point.runs = costs
            .iter()
            .map(|cost| {
                let mut run = run.clone();
                run.machines[0].cycles_per_kbyte = Some(*cost);
                run
            })
            .collect();
        point
    }

    #[test]
    fn every_ratio_of_repeated_points_has_an_interval() {
        let points = [
            point(&[1000.0, 1010.0]),
            point(&[500.0, 505.0]),
            point(&[2000.0, 1980.0]),
            point(&[700.0]),
        ];
        let points: Vec<&MeasuredPoint> = points.iter().collect();
        let cells = ratios(&points);
        let number = |place: usize| match &cells[place] {
            Cell::Number(number) => number,
            other => panic!("{other:?}"),
        };
        assert_eq!((number(0).value, number(0).interval), (1.0, None));
        for (place, ratio) in [(1, 0.5), (2, 1.98)] {
            let (low, high) = number(place).interval.unwrap();
            assert!((number(place).value / ratio - 1.0).abs() < 0.02, "{:?}", cells[place]);
            assert!(low < number(place).value && number(place).value < high);
            assert!(high / low < 1.2, "{low} {high}: the points together have little noise");
        }
        assert_eq!(number(3).interval, None);
    }
}
