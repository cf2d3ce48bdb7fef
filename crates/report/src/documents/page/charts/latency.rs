//! Latency: percentiles of a run, and p99 against load with its knee.

use wirecost_analyze::latency_knee::{Curve, P99, Scale, curves};
use wirecost_analyze::measured::Measurements;
use wirecost_analyze::metrics;
use wirecost_model::document::{
    Axis, Chart, ChartKind, Mark, RunSample, Sample, Series, SeriesRole,
};
use wirecost_model::metric::Unit;
use wirecost_model::run::{Latency, Run};
use wirecost_model::study::LOAD;

use super::Built;
use super::points::{run_name, scaled};

/// With fewer loads a curve says nothing about its shape.
const LOADS: usize = 3;

/// Percentiles of a run, of its transactions and of each of its flowops.
///
/// # Errors
/// Why there is no chart.
pub(in super::super) fn percentiles(run: &Run) -> Built {
    let transactions = run.latency_us.as_ref().ok_or("no transaction ended in the window")?;
    let mut all = vec![("transactions".to_owned(), transactions)];
    let several = run.flowops.iter().filter(|row| row.latency_us.is_some()).count() > 1;
    for row in run.flowops.iter().filter(|_| several) {
        let latency = row.latency_us.as_ref().filter(|of| of.count > 0);
        all.extend(latency.map(|of| (format!("{} ({:?})", row.kind, row.side).to_lowercase(), of)));
    }
    let names = ["p50", "p90", "p99", "p99.9", "max"].map(str::to_owned);
    let x = Axis::of_names("percentile", names);
    let y = Axis::new("latency", Unit::Microseconds).logarithmic();
    let mut chart = Chart::new("Latency by percentile", ChartKind::Curve, x, y);
    chart.series = all.iter().map(|(name, of)| Series::new(name, samples(of))).collect();
    chart.series.retain(|series| !series.samples.is_empty());
    Ok(vec![chart])
}

fn samples(of: &Latency) -> Vec<Sample> {
    let values = [of.p50, of.p90, of.p99, of.p999, of.max];
    let samples = values.into_iter().enumerate().map(|(place, y)| Sample { x: place as f64, y });
    // A logarithm has no place for 0.
    samples.filter(|sample| sample.y > 0.0).collect()
}

/// p99 latency against load, its knee, and the two lines that meet there.
///
/// # Errors
/// Why there is no chart.
pub(in super::super) fn against_load(measured: &Measurements) -> Built {
    let p99 = metrics::find(P99).map_err(|unknown| unknown.to_string())?;
    let curves = curves(measured)?;
    let mut charts = Vec::new();
    for curve in curves.iter().filter(|curve| curve.stops.len() >= LOADS) {
        let mut series = Series::new("p99", Vec::new());
        for stop in &curve.stops {
            let Ok(estimate) = stop.point.estimate(&p99) else { continue };
            series.samples.push(Sample { x: stop.load, y: estimate.mean });
            series.intervals.push(estimate.interval);
            let runs = stop.point.runs.iter().filter_map(|run| Some((run, p99.of(run).ok()?)));
            series.runs.extend(runs.map(|(run, y)| RunSample {
                run: run_name(stop.point, run),
                x: stop.load,
                y,
            }));
        }
        charts.extend((series.samples.len() >= LOADS).then(|| chart(curve, series)));
    }
    match charts.is_empty() {
        true => Err(format!("no points differ in load only at {LOADS} loads or more")),
        false => Ok(charts),
    }
}

fn chart(curve: &Curve<'_>, series: Series) -> Chart {
    let unit = if curve.axis == LOAD { Unit::BitsPerSecond } else { Unit::Count };
    let x = Axis::new(curve.axis, unit);
    let x = if curve.scale() == Scale::Logarithmic { x.logarithmic() } else { x };
    let all = vec![series];
    let y = scaled(Axis::new("p99 latency", Unit::Microseconds), &all);
    let names: Vec<String> =
        curve.common.iter().map(|value| format!("{} {}", value.name, value.value)).collect();
    let mut title = format!("p99 latency against {}", curve.axis);
    if !names.is_empty() {
        title += &format!(" ({})", names.join(", "));
    }
    let mut chart = Chart { series: all, ..Chart::new(&title, ChartKind::Curve, x, y) };
    let samples = &chart.series[0].samples;
    if let (Ok(fit), Some(first), Some(last)) = (curve.knee(), samples.first(), samples.last()) {
        let places = [first.x, fit.knee, last.x];
        let lines = places.iter().zip(fit.values).map(|(x, y)| Sample { x: *x, y }).collect();
        chart.series.push(Series { role: SeriesRole::Fit, ..Series::new("p99", lines) });
        chart.marks.push(Mark { label: "knee".to_owned(), x: fit.knee, interval: fit.interval });
    }
    chart
}
