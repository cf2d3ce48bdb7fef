//! Effects with their intervals, a row each: ratios of a comparison, and costs of a model.

use wirecost_analyze::metrics;
use wirecost_model::comparison::{ComparedPoint, Comparison, Verdict};
use wirecost_model::cost::{CostModel, Term};
use wirecost_model::document::{Axis, Chart, ChartKind, Sample, Series, SeriesRole};
use wirecost_model::metric::Unit;
use wirecost_model::study::Point;

use super::Built;
use super::by_axis::words;
use crate::documents::comparison::{axes, common};

/// Rows of one chart; of more, each figure has a chart of its own.
const ROWS: usize = 80;

/// The ratio of every figure at every point, by figure.
///
/// # Errors
/// Why there is no chart.
pub(in super::super) fn ratios(comparison: &Comparison) -> Built {
    let Some(first) = comparison.points.first() else {
        return Err("A and B have no point in common".to_owned());
    };
    let figures = first.figures.len();
    let names: Vec<String> = point_names(comparison);
    let chart = |title: &str, figures: &[usize]| {
        let labels = names.iter().cloned().chain(["all points".to_owned()]);
        let y = Axis::new("B/A", Unit::Ratio).logarithmic();
        let mut chart = Chart::new(title, ChartKind::Forest, Axis::of_names("point", labels), y);
        for place in figures {
            chart.series.extend(group(comparison, *place));
        }
        chart
    };
    let all: Vec<usize> = (0..figures).collect();
    let charts: Vec<Chart> = match figures * comparison.points.len() > ROWS {
        false => vec![chart("B over A: ratios with their intervals", &all)],
        true => all
            .iter()
            .map(|place| {
                let title = format!("B over A: {}", words(&first.figures[*place].metric));
                chart(&title, &[*place])
            })
            .collect(),
    };
    match charts.iter().all(Chart::is_empty) {
        true => Err("no figure has a ratio greater than 0".to_owned()),
        false => Ok(charts),
    }
}

/// One figure at all points, and over all of them.
fn group(comparison: &Comparison, place: usize) -> Vec<Series> {
    let Some(metric) = comparison.points.first().map(|at| &at.figures[place].metric) else {
        return Vec::new();
    };
    let name = words(metric);
    let mut group = Series::new(&name, Vec::new());
    group.better = metrics::find(metric).ok().map(|selector| selector.metric().better);
    for (number, at) in comparison.points.iter().enumerate() {
        let figure = &at.figures[place];
        // A logarithm has no place for 0.
        let Some(y) = figure.ratio.filter(|ratio| *ratio > 0.0) else { continue };
        group.samples.push(Sample { x: number as f64, y });
        group.intervals.push(figure.interval);
        group.verdicts.push(figure.verdict);
    }
    let overall = comparison.overall.iter().find(|figure| figure.metric == *metric);
    let sum = overall.map(|figure| Series {
        role: SeriesRole::Summary,
        intervals: vec![Some(figure.interval)],
        verdicts: vec![figure.verdict],
        ..Series::new(&name, vec![Sample { x: comparison.points.len() as f64, y: figure.ratio }])
    });
    [Some(group), sum].into_iter().flatten().collect()
}

/// What tells the points of a comparison apart.
fn point_names(comparison: &Comparison) -> Vec<String> {
    let common = common(comparison);
    let mut axes = axes(comparison.points.iter().map(|compared| &compared.point));
    axes.retain(|axis| common.iter().all(|value| value.name != *axis));
    comparison.points.iter().map(|ComparedPoint { point, .. }| point_name(point, &axes)).collect()
}

fn point_name(point: &Point, axes: &[&str]) -> String {
    let values = axes.iter().filter_map(|axis| Some(format!("{axis} {}", point.get(axis)?)));
    let name = values.collect::<Vec<_>>().join(", ");
    if name.is_empty() { "the only point".to_owned() } else { name }
}

/// The cost of each input as its share of all cycles, with its interval.
///
/// # Errors
/// Why there is no chart.
pub(in super::super) fn costs(model: &CostModel) -> Built {
    if model.terms.iter().all(|term| term.interval.is_none()) {
        return Err("too few points for intervals of costs".to_owned());
    }
    let x = Axis::of_names("cost of", model.terms.iter().map(|term| term.input.name().to_owned()));
    let y = Axis::new("share of cycles", Unit::Percent);
    let mut chart =
        Chart::new("Costs as shares of all cycles, with 95% intervals", ChartKind::Forest, x, y);
    let mut series = Series::new("", Vec::new());
    for (number, term) in model.terms.iter().enumerate() {
        series.samples.push(Sample { x: number as f64, y: 100.0 * term.share });
        series.intervals.push(share_interval(term));
    }
    chart.series.push(series);
    Ok(vec![chart])
}

/// The interval of a cost, scaled as its share is.
fn share_interval(term: &Term) -> Option<(f64, f64)> {
    let (low, high) = term.interval.filter(|_| term.cycles > 0.0)?;
    let share = |cycles: f64| 100.0 * term.share * cycles / term.cycles;
    Some((share(low), share(high)))
}

/// Whether a verdict says that there is a difference.
pub(in super::super) fn differs(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Worse | Verdict::Better | Verdict::Different)
}
