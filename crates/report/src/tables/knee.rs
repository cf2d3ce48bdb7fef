//! `knee`: p99 latency against load as a curve, and its knee.

use wirecost_analyze::latency_knee::{self, Curve, P99, Scale, curves};
use wirecost_analyze::measured::Measurements;
use wirecost_analyze::metrics;
use wirecost_model::document::{Axis, Chart, ChartKind, Column, Sample, Section, Series};
use wirecost_model::metric::Unit;
use wirecost_model::study::LOAD;

use super::Table;
use super::cells::{estimate, mean, of, unanswered};
use super::rows::{ColumnOf, Rows};

pub(super) struct Knee;

impl Table for Knee {
    fn name(&self) -> &'static str {
        "knee"
    }

    fn help(&self) -> &'static str {
        "p99 latency by load, rate or connections, and its knee"
    }

    fn build(&self, measured: &Measurements) -> Section {
        build(measured)
    }

    fn rows(&self, measured: &Measurements) -> Option<Rows> {
        Some(Rows::by_axes(measured, figures(measured.axes().contains(&LOAD))))
    }
}

fn figures(is_offered: bool) -> Vec<ColumnOf> {
    let mut columns = Vec::new();
    if is_offered {
        columns.push(ColumnOf::metric("offered", "offered"));
    }
    columns.push(ColumnOf::metric("throughput", "throughput"));
    if is_offered {
        columns.push(ColumnOf::new(Column::number("delivered"), |point| {
            let share =
                estimate(point, |run| Ok(100.0 * of(run, "throughput")? / of(run, "offered")?));
            mean(Unit::Percent, share)
        }));
    }
    columns.push(ColumnOf::metric("transactions", "transactions"));
    for percentile in ["p50", "p99"] {
        columns.push(ColumnOf::metric(percentile, &format!("latency.{percentile}")));
    }
    columns
}

fn build(measured: &Measurements) -> Section {
    let mut section = Section::new("p99 latency by load");
    let curves = match curves(measured) {
        Ok(curves) => curves,
        Err(reason) => {
            section.text(format!("There is no curve: {reason}."));
            return section;
        }
    };
    let conclusions = latency_knee::conclusions(measured);
    for finding in conclusions.findings {
        section.finding(finding);
    }
    for curve in &curves {
        let mut columns = vec![ColumnOf::setting(curve.axis, measured)];
        columns.extend(figures(curve.axis == LOAD));
        let points = curve.stops.iter().map(|stop| stop.point);
        let mut table = Rows { columns }.table("", points);
        table.common.clone_from(&curve.common);
        section.table(table);
    }
    for chart in curves.iter().filter_map(chart) {
        section.chart(chart);
    }
    if let Some(curve) = curves.first() {
        section.text(text(curve));
    }
    unanswered(&mut section, conclusions.unanswered);
    section
}

fn text(curve: &Curve<'_>) -> String {
    let scale = match curve.scale() {
        Scale::Linear => curve.axis.to_owned(),
        Scale::Logarithmic => format!("the logarithm of {}", curve.axis),
    };
    let method = format!(
        "knee: where the two straight lines that best fit the logarithm of p99 over {scale} meet, if they fit better than one \
         (F test, p below 0.01) and p99 at the highest load is at least 1.5x that at the knee."
    );
    match curve.axis {
        LOAD => format!(
            "{method} Latency counts from the intended start. Where less than the offered load is delivered, latency grows \
             throughout the run. Points at the load max are not part of the curve."
        ),
        _ => method,
    }
}

fn chart(curve: &Curve<'_>) -> Option<Chart> {
    let p99 = metrics::find(P99).ok()?;
    let sample = |stop: &latency_knee::Stop<'_>| {
        Some(Sample { x: stop.load, y: stop.point.estimate(&p99).ok()?.mean })
    };
    let samples: Vec<Sample> = curve.stops.iter().filter_map(sample).collect();
    let names: Vec<String> =
        curve.common.iter().map(|value| format!("{}={}", value.name, value.value)).collect();
    let unit = if curve.axis == LOAD { Unit::BitsPerSecond } else { Unit::Count };
    let name = if names.is_empty() { "p99".to_owned() } else { names.join(" ") };
    (!samples.is_empty()).then(|| Chart {
        series: vec![Series::new(&name, samples)],
        ..Chart::new(
            &format!("p99 latency by {}", curve.axis),
            ChartKind::Curve,
            Axis::new(curve.axis, unit),
            Axis::new("p99", Unit::Microseconds),
        )
    })
}
