//! `repeats`: how much the runs of a point differ, a row for each figure.

use wirecost_analyze::measured::{MeasuredPoint, Measurements};
use wirecost_analyze::metrics;
use wirecost_model::document::{Cell, Column, Number, Section, Table as DocumentTable};
use wirecost_model::metric::Unit;

use super::rows::{Rows, other_axes};
use super::whose::CpuScope;
use super::{Table, cells, general};

pub(super) struct Repeats;

impl Table for Repeats {
    fn name(&self) -> &'static str {
        "repeats"
    }

    fn help(&self) -> &'static str {
        "each figure of a point: mean, 95% interval, lowest, highest, variation"
    }

    fn build(&self, measured: &Measurements) -> Section {
        let mut section = Section::default();
        for point in &measured.points {
            section.table(table(measured, point));
        }
        section.note("Variation is the standard deviation of the runs divided by their mean.");
        section
    }

    /// While runs are made, each has a row as in the table of all axes.
    fn rows(&self, measured: &Measurements) -> Option<Rows> {
        Some(general::rows(measured))
    }
}

fn table(measured: &Measurements, point: &MeasuredPoint) -> DocumentTable {
    let mut table = DocumentTable::new([
        Column::text("figure"),
        Column::number("mean"),
        Column::number("lowest"),
        Column::number("highest"),
        Column::number("variation"),
    ]);
    if !other_axes(measured, &[]).is_empty() {
        table.title = point.point.to_string();
    }
    for (title, name) in figures(measured) {
        let Ok(selector) = metrics::find(&name) else { continue };
        let unit = selector.metric().unit;
        let values = point.figures(&selector);
        let least = values.iter().copied().reduce(f64::min);
        let most = values.iter().copied().reduce(f64::max);
        let end = |value: Option<f64>| match value {
            Some(value) => Cell::Number(Number::estimate(unit, value, None)),
            None => Cell::Missing(String::new()),
        };
        let mean = cells::measured_at(point, &selector);
        table.row(vec![Cell::text(title), mean, end(least), end(most), variation(&values)]);
    }
    table
}

/// Titles and names of metrics.
fn figures(measured: &Measurements) -> Vec<(String, String)> {
    let mut figures = vec![("throughput", "throughput")];
    if general::answers(measured) {
        figures.extend([
            ("transactions", "transactions"),
            ("latency p50", "latency.p50"),
            ("latency p99", "latency.p99"),
        ]);
    }
    let figures = figures.into_iter().map(|(title, name)| (title.to_owned(), name.to_owned()));
    let costs = general::hosts(measured).into_iter().map(|whose| {
        let title = match &whose {
            CpuScope::Host(host) => format!("cycles/KByte {host}"),
            CpuScope::All => "cycles/KByte".to_owned(),
        };
        (title, whose.metric("cycles_per_kbyte"))
    });
    figures.chain(costs).collect()
}

/// Standard deviation of the runs in percent of their mean.
fn variation(values: &[f64]) -> Cell {
    let number = values.len() as f64;
    let mean = values.iter().sum::<f64>() / number;
    if values.len() < 2 {
        return Cell::Missing("one run does not say how much runs differ".to_owned());
    }
    if mean == 0.0 {
        return Cell::Missing("the mean is 0".to_owned());
    }
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let percent = 100.0 * (squares / (number - 1.0)).sqrt() / mean.abs();
    cells::number(percent, Unit::Percent, format!("{percent:.1}%"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variation_is_the_standard_deviation_over_the_mean() {
        let Cell::Number(number) = variation(&[8.0, 10.0, 12.0]) else { panic!() };
        assert_eq!((number.value, number.text.as_str()), (20.0, "20.0%"));
        assert!(matches!(variation(&[1.0]), Cell::Missing(_)));
        assert!(matches!(variation(&[0.0, 0.0]), Cell::Missing(_)));
    }
}
