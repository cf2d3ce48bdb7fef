//! Figures of a run over time: of its intervals, and of what probes sampled.

use std::collections::BTreeSet;

use wirecost_model::document::{Axis, Chart, Sample as Place, Series};
use wirecost_model::link::{LinePart, LineReport};
use wirecost_model::metric::Unit;
use wirecost_model::observe;
use wirecost_model::run::{Interval, Run};
use wirecost_model::sample::{Rows, Sample};

use super::Built;

/// Lines of one chart.
const LINES: usize = 8;

/// A figure of samples that is drawn.
struct Wanted {
    kind: &'static str,
    metric: &'static str,
    title: &'static str,
    unit: Unit,
    /// Charts with the same name are read together.
    group: &'static str,
}

const fn wanted(
    (kind, metric): (&'static str, &'static str),
    title: &'static str,
    unit: Unit,
    group: &'static str,
) -> Wanted {
    Wanted { kind, metric, title, unit, group }
}

/// Of what probes sampled, in the order of the page.
const WANTED: &[Wanted] = &[
    wanted(("flow", "cwnd_segments"), "congestion window (segments)", Unit::Count, "flows"),
    wanted(("flow", "in_flight_segments"), "segments in flight", Unit::Count, "flows"),
    wanted(("flow", "rtt"), "round-trip time", Unit::Microseconds, "flows"),
    wanted(("flow", "delivery_rate"), "delivery rate", Unit::BitsPerSecond, "flows"),
    wanted(("device", "sent_average_bytes"), "average packet sent", Unit::Bytes, "devices"),
    wanted(("memory", "tcp_bytes"), "memory of TCP sockets", Unit::Bytes, "memory"),
];

/// Throughput and transactions by interval.
///
/// # Errors
/// Why there is no chart.
pub(in super::super) fn intervals(run: &Run) -> Built {
    if run.intervals.len() < 2 {
        return Err("the run has no intervals (--interval)".to_owned());
    }
    let line = |name: &str, of: fn(&Interval) -> f64| {
        let sample = |of_interval: &Interval| Place {
            x: (of_interval.start + of_interval.seconds) * 1e6,
            y: of(of_interval),
        };
        Series::new(name, run.intervals.iter().map(sample).collect())
    };
    let group = |chart: Chart| Chart { group: Some("intervals".to_owned()), ..chart };
    let mut charts = Vec::new();
    if run.intervals.iter().any(|interval| interval.bits_per_second > 0.0) {
        let lines = vec![line("throughput", |of| of.bits_per_second)];
        let y = Axis::new("throughput", Unit::BitsPerSecond);
        charts.push(group(Chart::over_time("Throughput over time", y, lines)));
    }
    if run.intervals.iter().any(|interval| interval.transactions > 0) {
        let per_second = |of: &Interval| of.transactions as f64 / of.seconds.max(f64::MIN_POSITIVE);
        let y = Axis::new("transactions", Unit::PerSecond);
        let lines = vec![line("transactions", per_second)];
        charts.push(group(Chart::over_time("Transactions over time", y, lines)));
    }
    Ok(charts)
}

/// What probes sampled of each host.
///
/// # Errors
/// Why there is no chart.
pub(in super::super) fn sampled(run: &Run) -> Built {
    let observe = run.observe.as_ref().ok_or("nothing was observed (--observe)")?;
    let mut charts = Vec::new();
    let mut seen: Vec<&str> = Vec::new();
    for host in &observe.hosts {
        let mut samples = Vec::new();
        for kind in observe::ALL {
            kind.samples(host, &mut Rows::of(None, &mut samples));
        }
        leave_out_receivers(&mut samples);
        // Memory is that of a whole kernel.
        let machine = run.machines.iter().find(|machine| machine.hosts.contains(&host.host));
        if let Some(machine) = machine {
            samples.retain(|sample| sample.kind != "memory" || !seen.contains(&&*machine.name));
            seen.push(&machine.name);
        }
        let covered = host.covers.join(", ");
        charts.extend(WANTED.iter().filter_map(|wanted| {
            let whose = match machine.filter(|_| wanted.kind == "memory") {
                Some(machine) => &machine.name,
                None => &covered,
            };
            chart(wanted, whose, &samples)
        }));
    }
    Ok(charts)
}

/// The busiest direction of the links, as they are emulated: its queue and what it carries.
///
/// # Errors
/// Why there is no chart.
pub(in super::super) fn link(run: &Run) -> Built {
    let line =
        busiest_line(run).ok_or("the links were not emulated (--lab with --rate or --rtt)")?;
    let name = format!("link, {}", line.line.name);
    let chart = |title: &str, noun: &str, unit: Unit, of: fn(&LinePart) -> f64| {
        let place = |part: &LinePart| Place { x: (part.start + part.seconds) * 1e6, y: of(part) };
        let series = Series::new(&name, line.parts.iter().map(place).collect());
        let chart =
            Chart::over_time(&format!("{title}, {name}"), Axis::new(noun, unit), vec![series]);
        Chart { group: Some("link".to_owned()), ..chart }
    };
    Ok(vec![
        chart("Queue", "queue", Unit::Bytes, |part| part.queue_bytes as f64),
        chart("Rate on the wire", "rate", Unit::BitsPerSecond, |part| part.bits_per_second),
    ])
}

/// The direction in which most bytes went.
pub(super) fn busiest_line(run: &Run) -> Option<&LineReport> {
    let lines = run.link.iter().flat_map(|link| &link.lines).filter(|line| line.parts.len() > 1);
    lines.max_by_key(|line| line.line.counts.sent_bytes)
}

/// Ends of connections that send nothing have windows and rates that mean nothing.
fn leave_out_receivers(samples: &mut Vec<Sample>) {
    let sends = |of: &&Sample| of.metric == "in_flight_segments" && of.value > 0.0;
    let senders: BTreeSet<Option<String>> =
        samples.iter().filter(sends).map(|of| of.name.clone()).collect();
    samples.retain(|of| of.kind != "flow" || senders.contains(&of.name));
}

fn chart(wanted: &Wanted, host: &str, samples: &[Sample]) -> Option<Chart> {
    let mut lines: Vec<Series> = Vec::new();
    let is = |of: &&Sample| of.kind == wanted.kind && of.metric == wanted.metric;
    for of in samples.iter().filter(is) {
        let place = Place { x: (of.start + of.seconds) * 1e6, y: of.value };
        let name = of.name.as_deref().unwrap_or(host);
        match lines.iter_mut().find(|line| line.name == name) {
            Some(line) => line.samples.push(place),
            None => lines.push(Series::new(name, vec![place])),
        }
    }
    lines.retain(|line| line.samples.len() > 1);
    let number = lines.len();
    lines.truncate(LINES);
    let mut title = format!("{}, {host}", capital(wanted.title));
    if number > LINES {
        title += &format!(", the first {LINES} of {number}");
    }
    let mut chart = Chart::over_time(&title, Axis::new(wanted.title, wanted.unit), lines);
    chart.group = Some(format!("{} of {host}", wanted.group));
    (!chart.is_empty()).then_some(chart)
}

/// With a capital letter at its beginning.
pub(in super::super) fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
