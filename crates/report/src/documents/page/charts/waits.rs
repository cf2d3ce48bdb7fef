//! How long threads waited for a CPU: histogram and cumulative distribution.

use wirecost_model::document::{Axis, Chart, ChartKind, Sample, Series};
use wirecost_model::histogram::Histogram;
use wirecost_model::metric::Unit;
use wirecost_model::run::Run;

use super::Built;

/// Steps of a bar: each ends at twice its beginning.
const STEPS: u32 = 40;

/// Both for each host.
///
/// # Errors
/// Why there is no chart.
pub(in super::super) fn charts(run: &Run) -> Built {
    let hosts = run.observe.iter().flat_map(|observe| &observe.hosts);
    let mut charts = Vec::new();
    for host in hosts {
        let Some(scheduling) = &host.scheduling else { continue };
        let mut all = Histogram::new();
        for thread in &scheduling.threads {
            if let Some(waits) = &thread.run_queue {
                all.merge(&waits.histogram);
            }
        }
        let samples = bars(&all);
        if samples.len() < 2 {
            continue;
        }
        let whose = host.covers.join(", ");
        let x = || Axis::new("wait", Unit::Microseconds).logarithmic();
        let mut title = format!("Waits of workers for a CPU, {whose}");
        let none = zero(&all);
        if none > 0.0 {
            title += &format!(", without the {none:.0}% that did not wait");
        }
        let y = Axis::new("share of all waits", Unit::Percent);
        let mut chart = Chart::new(&title, ChartKind::Histogram, x(), y);
        chart.series.push(Series::new("waits", samples.clone()));
        charts.push(chart);
        let title = format!("Waits for a CPU, cumulative, {whose}");
        let y = Axis::new("waits that were shorter", Unit::Percent);
        let mut chart = Chart::new(&title, ChartKind::Steps, x(), y);
        chart.series.push(Series::new("waits", cumulative(&samples, none)));
        charts.push(chart);
    }
    match charts.is_empty() {
        true => Err("waits for a CPU were not timed (--observe scheduling)".to_owned()),
        false => Ok(charts),
    }
}

/// Percent of all values by power of two, without the empty ranges at both ends.
fn bars(of: &Histogram) -> Vec<Sample> {
    let all = of.count();
    if all == 0 {
        return Vec::new();
    }
    let bars = (0..STEPS).map(|step| {
        let from = 1u64 << step;
        let number = of.count_between(from, 2 * from);
        Sample { x: from as f64 / 1e3, y: 100.0 * number as f64 / all as f64 }
    });
    let bars: Vec<Sample> = bars.collect();
    let is_full = |bar: &Sample| bar.y > 0.0;
    let (Some(first), Some(last)) = (bars.iter().position(is_full), bars.iter().rposition(is_full))
    else {
        return Vec::new();
    };
    // An empty one at the end says where the last ends.
    bars[first..(last + 2).min(bars.len())].to_vec()
}

/// Percent of waits of no time, which a logarithmic axis has no place for.
fn zero(of: &Histogram) -> f64 {
    100.0 * of.count_between(0, 1) as f64 / of.count().max(1) as f64
}

/// What is below the beginning of each bar, `below` being below the first.
fn cumulative(bars: &[Sample], mut below: f64) -> Vec<Sample> {
    let each = bars.iter().map(|bar| {
        let sample = Sample { x: bar.x, y: below };
        below += bar.y;
        sample
    });
    each.collect()
}
