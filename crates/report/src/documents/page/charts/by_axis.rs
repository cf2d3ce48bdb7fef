//! A figure against an axis of the study: means with intervals, and every run.

use wirecost_analyze::measured::Measurements;
use wirecost_analyze::metrics::{self, Selector};
use wirecost_analyze::statistics::scalability;
use wirecost_model::document::{
    Axis, AxisScale, Chart, ChartKind, Mark, Sample, Series, SeriesRole,
};

use super::Built;
use super::points::{Line, axis_of, lines, place_on, scaled, series};

/// Lines of one chart; more of them cannot be told apart.
const LINES: usize = 8;
/// Charts of one figure against one axis.
const CHARTS: usize = 4;
/// Axes along which throughput follows the law of scalability.
const NUMBERS: [&str; 2] = ["connections", "workers"];
/// A law that explains less of the variance is not drawn.
const EXPLAINED: f64 = 0.95;
/// Places at which a law is drawn.
const PLACES: usize = 48;

/// One figure against one axis.
///
/// # Errors
/// Why there is no chart.
pub(in super::super) fn charts(measured: &Measurements, axis: &str, metric: &str) -> Built {
    let selector = metrics::find(metric).map_err(|unknown| unknown.to_string())?;
    let all = lines(measured, axis);
    if all.is_empty() {
        return Err(format!("no two points differ in {axis} only"));
    }
    let reason = all[0].points[0].estimate(&selector).err();
    let number = all.len().div_ceil(LINES);
    if number > CHARTS {
        return Err(format!("{} lines cannot be told apart; the tables have them", all.len()));
    }
    let each = all.len().div_ceil(number);
    let charts = all.chunks(each).map(|part| chart(measured, axis, &selector, part));
    let charts: Vec<Chart> = charts.filter(|chart| !chart.is_empty()).collect();
    match (charts.is_empty(), reason) {
        (true, Some(reason)) => Err(reason),
        _ => Ok(charts),
    }
}

fn chart(measured: &Measurements, axis: &str, selector: &Selector, part: &[Line<'_>]) -> Chart {
    let place = place_on(measured, axis);
    let drawn = part.iter().map(|line| series(line, &place, selector));
    let mut drawn: Vec<Series> = drawn.filter(|series| !series.samples.is_empty()).collect();
    let title = format!("{} by {axis}", words(&selector.name));
    let y = scaled(Axis::new(&words(&selector.name), selector.metric().unit), &drawn);
    let mut chart = Chart::new(&title, ChartKind::Curve, axis_of(measured, axis), y);
    let scales =
        NUMBERS.contains(&axis) && ["throughput", "transactions"].contains(&selector.metric().name);
    if scales && chart.x.scale != AxisScale::Names {
        let laws: Vec<(Series, Option<Mark>)> = drawn.iter().filter_map(law).collect();
        // With several knees none can be read.
        let several = laws.len() > 1;
        for (law, mark) in laws {
            drawn.push(law);
            chart.marks.extend(mark.filter(|_| !several));
        }
    }
    chart.series = drawn;
    chart
}

/// The Universal Scalability Law of a line, where it fits, and its peak.
fn law(of: &Series) -> Option<(Series, Option<Mark>)> {
    let points: Vec<(f64, f64)> = of.runs.iter().map(|run| (run.x, run.y)).collect();
    let fit = scalability::fit(&points).filter(|fit| fit.explained >= EXPLAINED)?;
    let (first, last) = (of.samples.first()?.x, of.samples.last()?.x);
    let factor = (last / first).powf(1.0 / PLACES as f64);
    let places = (0..=PLACES).map(|step| first * factor.powi(step as i32));
    let samples = places.map(|x| Sample { x, y: fit.law.at(x) }).collect();
    let law = Series { role: SeriesRole::Fit, ..Series::new(&of.name, samples) };
    let peak = fit.law.peak().filter(|peak| (first..=last).contains(peak));
    let mark = peak.map(|x| Mark { label: "peak".to_owned(), x, interval: fit.peak });
    Some((law, mark))
}

/// Whose a figure is; roles have an article, names have none.
pub(in super::super) fn of_host(host: &str) -> String {
    let is_role = ["sender", "receiver", "client", "server", "master", "peer"].contains(&host);
    format!("of {}{host}", if is_role { "the " } else { "" })
}

/// A metric as a title has it.
pub(in super::super) fn words(metric: &str) -> String {
    let (host, short) = match metric.strip_prefix("hosts.").and_then(|rest| rest.split_once('.')) {
        Some((host, short)) => (Some(host), short),
        None => (None, metric),
    };
    let short = match short {
        "cycles_per_kbyte" => "cycles/KByte",
        "latency.p99" => "p99 latency",
        "latency.p50" => "median latency",
        short => short,
    };
    match host {
        Some(host) => format!("{short} {}", of_host(host)),
        None => short.to_owned(),
    }
}
