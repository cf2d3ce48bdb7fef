//! What cannot be drawn, as tables: charts, flame graphs, lists of runs.

use std::collections::HashMap;

use wirecost_model::document::{
    AxisScale, Cell, Chart, ChartKind, Column, Flame, FlameDifference, Number, Parts, RunList,
    Series, Table, show,
};
use wirecost_model::metric::Unit;
use wirecost_model::units;

use crate::flame::{self, FunctionChange};

/// Values of a line that are shown.
const SHOWN: usize = 8;
/// Functions of a flame graph that are shown.
const FUNCTIONS: usize = 10;

/// A chart as a table.
pub(super) fn of(chart: &Chart) -> Table {
    let mut table = match chart.kind {
        ChartKind::Lines | ChartKind::Panel => extremes(chart),
        ChartKind::Forest => by_row(chart),
        _ => by_place(chart),
    };
    table.title.clone_from(&chart.title);
    table
}

/// For each line how low and high it went, and some of its values in their order.
fn extremes(chart: &Chart) -> Table {
    let mut table = Table::new([
        Column::text(&chart.y.title),
        Column::number("least"),
        Column::number("mean"),
        Column::number("most"),
        Column::text(&format!("over {}", chart.x.title)),
    ]);
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

/// A row for each place on the x axis, a column for each series.
fn by_place(chart: &Chart) -> Table {
    let samples = chart.series.iter().flat_map(|series| &series.samples);
    let mut places: Vec<f64> = samples.map(|sample| sample.x).collect();
    places.sort_by(f64::total_cmp);
    places.dedup();
    if chart.x.scale == AxisScale::Tail {
        places.retain(|place| is_known_percentile(chart, *place));
    }
    let one = match chart.series.as_slice() {
        [one] if one.name.is_empty() => Some(chart.y.title.as_str()),
        _ => None,
    };
    let names = chart.series.iter().map(|series| one.unwrap_or(&series.name));
    let mut columns = vec![Column::text(&chart.x.title)];
    columns.extend(names.map(Column::number));
    let mut table = Table::new(columns);
    for place in places {
        let mut row = vec![Cell::text(chart.x.show(place))];
        row.extend(chart.series.iter().map(|series| at(chart, series, place)));
        table.row(row);
    }
    table
}

/// The median, percentiles of nines only, and the last of each curve.
fn is_known_percentile(chart: &Chart, place: f64) -> bool {
    let nines = -(1.0 - place / 100.0).log10();
    let is_last = |series: &Series| series.samples.last().is_some_and(|last| last.x == place);
    place == 50.0 || (nines - nines.round()).abs() < 1e-6 || chart.series.iter().any(is_last)
}

fn at(chart: &Chart, series: &Series, place: f64) -> Cell {
    let Some(number) = series.samples.iter().position(|sample| sample.x == place) else {
        return Cell::empty();
    };
    let interval = series.intervals.get(number).copied().flatten();
    Cell::Number(Number::estimate(chart.y.unit, series.samples[number].y, interval))
}

/// A row for each sample of a forest plot, with the ends of its interval.
fn by_row(chart: &Chart) -> Table {
    let mut columns = vec![Column::text(""), Column::text(&chart.x.title)];
    columns.push(Column::number(&chart.y.title));
    columns.push(Column::text("interval"));
    let is_judged = chart.series.iter().any(|series| !series.verdicts.is_empty());
    columns.extend(is_judged.then(|| Column::text("B is")));
    let mut table = Table::new(columns);
    for series in &chart.series {
        for (number, sample) in series.samples.iter().enumerate() {
            let interval = series.intervals.get(number).copied().flatten();
            let between = |(low, high)| format!("{} to {}", chart.y.show(low), chart.y.show(high));
            let mut row = vec![
                Cell::text(series.name.as_str()),
                Cell::text(chart.x.show(sample.x)),
                Cell::number(chart.y.unit, sample.y),
                Cell::or_dash(interval, |interval| Cell::text(between(interval))),
            ];
            row.extend(series.verdicts.get(number).map(|verdict| Cell::text(verdict.word())));
            table.row(row);
        }
    }
    table
}

/// The functions that most samples were in.
pub(super) fn of_flame(flame: &Flame) -> Table {
    let mut functions: HashMap<&str, u64> = HashMap::new();
    for folded in &flame.stacks.stacks {
        let name = folded.stack.rsplit(';').next().unwrap_or_default();
        *functions.entry(name).or_default() += folded.count;
    }
    let all: u64 = functions.values().sum();
    let mut functions: Vec<(&str, u64)> = functions.into_iter().collect();
    functions.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(b.0)));
    let mut table = Table::new([Column::text("function"), Column::number("samples")]);
    table.columns.push(Column::number("share"));
    table.title.clone_from(&flame.title);
    for (name, samples) in functions.into_iter().take(FUNCTIONS) {
        let share = 100.0 * samples as f64 / all.max(1) as f64;
        table.row(vec![
            Cell::text(name.trim_end_matches(flame::KERNEL)),
            Cell::count(samples),
            Cell::number(Unit::Percent, share),
        ]);
    }
    table
}

/// The functions whose own cost has grown and fallen the most, the largest changes first.
pub(super) fn of_difference(of: &FlameDifference) -> Table {
    let unit = flame::unit(of);
    let mut columns = vec![Column::text("function")];
    columns.extend(
        ["self A", "self B", "change", "with callees A", "B", "total change"].map(Column::number),
    );
    columns.push(Column::text(""));
    let mut table = Table::new(columns);
    table.title.clone_from(&of.title);
    let all = flame::changes(of);
    let (mut gains, mut losses) = (0, 0);
    for function in &all {
        let side = match function.change() {
            change if change > 0.0 => &mut gains,
            change if change < 0.0 => &mut losses,
            _ => continue,
        };
        *side += 1;
        if *side > FUNCTIONS {
            continue;
        }
        let cell = |value| Cell::number(unit, value);
        let change = |(a, b): (f64, f64)| {
            let text = match unit {
                Unit::Percent => format!("{:+.2}", b - a),
                _ if b < a => format!("-{}", units::cycles(a - b)),
                _ => format!("+{}", units::cycles(b - a)),
            };
            Cell::written(unit, b - a, text)
        };
        let FunctionChange { name, own, total } = function;
        let note = match (total.0 > 0.0, total.1 > 0.0) {
            (true, false) => "only in A",
            (false, true) => "only in B",
            _ => "",
        };
        table.row(vec![
            Cell::text(name.trim_end_matches(flame::KERNEL)),
            cell(own.0),
            cell(own.1),
            change(*own),
            cell(total.0),
            cell(total.1),
            change(*total),
            Cell::text(note),
        ]);
    }
    table
}

/// Runs, with where their records are.
pub(super) fn of_runs(list: &RunList) -> Table {
    let mut columns = vec![Column::text("run"), Column::text("point")];
    columns.extend(list.columns.iter().cloned());
    columns.push(Column::text("record").drop_order(1));
    let mut table = Table::new(columns);
    for run in &list.runs {
        let mut row = vec![Cell::text(run.name.as_str()), Cell::text(run.point.as_str())];
        row.extend(run.cells.iter().cloned());
        row.resize(table.columns.len() - 1, Cell::empty());
        row.push(Cell::text(run.record.as_deref().unwrap_or_default()));
        table.row(row);
    }
    table
}
