//! `io-engines`: the same traffic by different ways of I/O, and what a byte and an operation cost by each.

use wirecost_analyze::Estimate;
use wirecost_analyze::measured::{MeasuredPoint, Measurements};
use wirecost_analyze::metrics;
use wirecost_analyze::statistics::bootstrap;
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
        for (row, point) in table.rows.iter_mut().zip(&points) {
            row.push(ratio(point, points[0]));
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
    let axes = measured.axes();
    let mut columns: Vec<ColumnOf> =
        axes.iter().map(|axis| ColumnOf::setting(axis, measured)).collect();
    columns.extend(figures());
    Rows { columns }
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

/// The cost at a point over that at the first.
fn ratio(point: &MeasuredPoint, first: &MeasuredPoint) -> Cell {
    let Ok(cost) = metrics::find(COST) else { return Cell::Missing(format!("no metric {COST}")) };
    if std::ptr::eq(point, first) && first.estimate(&cost).is_ok() {
        return Cell::number(Unit::Ratio, 1.0);
    }
    let means = (point.estimate(&cost), first.estimate(&cost));
    let (Ok(here), Ok(there)) = &means else {
        return Cell::Missing(match means {
            (Err(reason), _) => reason,
            (_, Err(reason)) => format!("of the first row: {reason}"),
            _ => String::new(),
        });
    };
    if there.mean <= 0.0 {
        return Cell::Missing("the first row costs nothing".to_owned());
    }
    let interval = bootstrap::ratio_of_means(&point.figures(&cost), &first.figures(&cost));
    let ratio = Estimate { mean: here.mean / there.mean, interval, times: here.times };
    cells::mean(Unit::Ratio, Ok(ratio))
}
