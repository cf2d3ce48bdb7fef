//! A chart where nothing can be drawn: for each of its series how low and high it went, and some of its
//! values in their order.

use wirecost_model::document::{Cell, Chart, Column, Parts, Series, Table, show};

/// Values that are shown.
const SHOWN: usize = 8;

/// As a table.
pub(super) fn of(chart: &Chart) -> Table {
    let mut table = Table::new([
        Column::text(&chart.y.title),
        Column::number("least"),
        Column::number("mean"),
        Column::number("most"),
        Column::text(&format!("over {}", chart.x.title)),
    ]);
    table.title.clone_from(&chart.title);
    for series in chart.series.iter().filter(|series| !series.samples.is_empty()) {
        table.row(row(chart, series));
    }
    table
}

fn row(chart: &Chart, series: &Series) -> Vec<Cell> {
    let values: Vec<f64> = series.samples.iter().map(|sample| sample.y).collect();
    let cell = |value| Cell::number(chart.y.unit, value);
    let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    // Of many, some at equal distances.
    let every = values.len().div_ceil(SHOWN);
    let some = values.iter().step_by(every).map(|&value| show(chart.y.unit, value));
    let mut over = some.collect::<Vec<_>>().join(", ");
    if every > 1 {
        over += &format!(" (one of every {every})");
    }
    let name = Cell::text(series.name.as_str());
    vec![name, cell(least), cell(mean), cell(most), Cell::Parts(Parts::new(over))]
}
