//! Where CPU time went, by kind: of points of a study, of hosts of a run, of each CPU.

use wirecost_analyze::measured::Measurements;
use wirecost_analyze::metrics;
use wirecost_model::document::{Axis, Chart, ChartKind, Sample, Series};
use wirecost_model::metric::Unit;
use wirecost_model::run::{Cpu, CpuLine, Run};

use super::Built;
use super::by_axis::of_host;
use super::points::{Names, varying};
use crate::tables::general;
use crate::tables::whose::CpuScope;

/// Kinds of CPU time by their names in metrics, and as a reader knows them.
const KINDS: [(&str, &str); 6] = [
    ("usr", "user"),
    ("sys", "system"),
    ("softirq", "softirq"),
    ("irq", "irq"),
    ("steal", "steal"),
    ("idle", "idle"),
];
/// Bars of one chart.
pub(super) const BARS: usize = 60;

/// A bar for each point, a chart for each host that has CPUs of its own.
///
/// # Errors
/// Why there is no chart.
pub(in super::super) fn of_points(measured: &Measurements) -> Built {
    let axes = varying(measured);
    let names = Names::of(measured.points.iter().map(|point| &point.point), &axes);
    if measured.points.len() > BARS {
        return Err(format!("{} points are too many for bars", measured.points.len()));
    }
    let mut reason = None;
    let mut charts = Vec::new();
    for scope in general::hosts(measured) {
        let title = match &scope {
            CpuScope::Host(host) => format!("CPU time {}", of_host(host)),
            CpuScope::All => "CPU time of all CPUs".to_owned(),
        };
        let x = measured.points.iter().map(|point| names.name(&point.point));
        let x = Axis::of_names(&axes.join(", "), x);
        let mut chart =
            Chart::new(&title, ChartKind::Stack, x, Axis::new("CPU time", Unit::Percent));
        for (kind, word) in KINDS {
            let found = metrics::find(&scope.metric(&format!("cpu.{kind}")));
            let selector = found.map_err(|unknown| unknown.to_string())?;
            let mut series = Series::new(word, Vec::new());
            for (place, point) in measured.points.iter().enumerate() {
                match point.estimate(&selector) {
                    Ok(of) => series.samples.push(Sample { x: place as f64, y: of.mean }),
                    Err(why) => reason = Some(why),
                }
            }
            chart.series.push(series);
        }
        charts.push(chart);
    }
    match (charts.iter().all(Chart::is_empty), reason) {
        (true, Some(reason)) => Err(reason),
        _ => Ok(charts),
    }
}

/// A bar for each host of a run, and one for each CPU.
///
/// # Errors
/// Why there is no chart.
pub(in super::super) fn of_run(run: &Run) -> Built {
    let hosts: Vec<(String, &Cpu)> = match run.hosts.iter().any(|host| run.shares_cpus(host)) {
        true => {
            run.machines.iter().filter_map(|of| Some((of.name.clone(), of.cpu.as_ref()?))).collect()
        }
        false => {
            run.hosts.iter().filter_map(|of| Some((of.name.clone(), of.cpu.as_ref()?))).collect()
        }
    };
    if hosts.is_empty() {
        return Err("CPU time was not read".to_owned());
    }
    let total = |(name, cpu): &(String, &Cpu)| {
        let parts = [cpu.usr, cpu.sys, cpu.softirq, cpu.irq, cpu.steal, cpu.idle];
        (name.clone(), parts)
    };
    let mut charts = vec![stack("CPU time by host", "host", hosts.iter().map(total).collect())];
    let line = |host: &str, cpu: &CpuLine| {
        let name = format!("{host} CPU {}", cpu.cpu);
        (name, [cpu.usr, cpu.sys, cpu.softirq, cpu.irq, cpu.steal, cpu.idle])
    };
    let each = hosts.iter().flat_map(|(host, cpu)| cpu.per_cpu.iter().map(|of| line(host, of)));
    let each: Vec<(String, [f64; 6])> = each.collect();
    if each.len() > hosts.len() {
        charts.extend((each.len() <= BARS).then(|| stack("CPU time by CPU", "CPU", each)));
    }
    Ok(charts)
}

fn stack(title: &str, axis: &str, bars: Vec<(String, [f64; 6])>) -> Chart {
    let x = Axis::of_names(axis, bars.iter().map(|(name, _)| name.clone()));
    let mut chart = Chart::new(title, ChartKind::Stack, x, Axis::new("CPU time", Unit::Percent));
    for (kind, (_, word)) in KINDS.iter().enumerate() {
        let samples = bars.iter().enumerate();
        let samples = samples.map(|(place, (_, parts))| Sample { x: place as f64, y: parts[kind] });
        chart.series.push(Series::new(word, samples.collect()));
    }
    chart
}
