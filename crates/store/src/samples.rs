//! Samples of a document: what it holds over time, one figure a row. A figure that was not measured
//! has no row.

use wirecost_model::observe::{
    DeviceSegments, DeviceVector, Observed, SegmentInterval, SegmentSizes, SegmentsSection,
    TcpSample, TcpSection, Watched,
};
use wirecost_model::run::{Cpu, CpuLine, Interval, Run};

use crate::schema::Sample;

/// A figure of something: its name, its unit, and where it is found.
#[derive(Debug)]
struct Figure<T> {
    metric: &'static str,
    unit: &'static str,
    of: fn(&T) -> Option<f64>,
}

const fn figure<T>(
    metric: &'static str,
    unit: &'static str,
    of: fn(&T) -> Option<f64>,
) -> Figure<T> {
    Figure { metric, unit, of }
}

/// Of the whole run, by interval.
const RUN: [Figure<Interval>; 6] = [
    figure("throughput", "b/s", |i| Some(i.bits_per_second)),
    figure("tx_bytes", "B", |i| Some(i.tx_bytes as f64)),
    figure("rx_bytes", "B", |i| Some(i.rx_bytes as f64)),
    figure("transactions", "count", |i| Some(i.transactions as f64)),
    figure("operations", "count", |i| Some(i.operations as f64)),
    figure("failed", "count", |i| Some(i.failed as f64)),
];

/// Of a CPU, in the whole window.
const CPU: [Figure<CpuLine>; 6] = [
    figure("usr", "%", |c| Some(c.usr)),
    figure("sys", "%", |c| Some(c.sys)),
    figure("irq", "%", |c| Some(c.irq)),
    figure("softirq", "%", |c| Some(c.softirq)),
    figure("steal", "%", |c| Some(c.steal)),
    figure("idle", "%", |c| Some(c.idle)),
];

/// Of one end of a connection, at an instant.
const FLOW: [Figure<TcpSample>; 9] = [
    figure("cwnd_segments", "count", |s| Some(f64::from(s.cwnd_segments))),
    figure("slow_start_threshold_segments", "count", |s| {
        s.slow_start_threshold_segments.map(f64::from)
    }),
    figure("in_flight_segments", "count", |s| Some(f64::from(s.in_flight_segments))),
    figure("rtt", "us", |s| Some(f64::from(s.rtt_us))),
    figure("min_rtt", "us", |s| s.min_rtt_us.map(f64::from)),
    figure("pacing_rate", "b/s", |s| s.pacing_bits_per_second),
    figure("delivery_rate", "b/s", |s| s.delivery_bits_per_second),
    figure("send_window_bytes", "B", |s| s.send_window_bytes.map(f64::from)),
    figure("retransmitted_segments", "count", |s| Some(f64::from(s.retransmitted_segments))),
];

/// Of what the stack hands to a device, and the device to the stack, by interval. The first is all
/// that is told where only slices of the window were watched: counts would be of parts of an
/// interval, and 0 of one that nobody watched.
const SENT: [Figure<SegmentInterval>; 4] = [
    figure("sent_average_bytes", "B", |i| i.average_bytes),
    figure("sent_packets", "count", |i| Some(i.packets as f64)),
    figure("sent_segments", "count", |i| Some(i.segments as f64)),
    figure("sent_bytes", "B", |i| Some(i.bytes as f64)),
];
const RECEIVED: [Figure<SegmentInterval>; 4] = [
    figure("received_average_bytes", "B", |i| i.average_bytes),
    figure("received_packets", "count", |i| Some(i.packets as f64)),
    figure("received_segments", "count", |i| Some(i.segments as f64)),
    figure("received_bytes", "B", |i| Some(i.bytes as f64)),
];

/// Of an interrupt vector of a device, in the whole window.
const VECTOR: [Figure<DeviceVector>; 3] = [
    figure("interrupts", "count", |v| Some(v.interrupts as f64)),
    figure("rx_packets", "count", |v| v.rx_packets.map(|n| n as f64)),
    figure("tx_packets", "count", |v| v.tx_packets.map(|n| n as f64)),
];

/// Every figure there can be: kind, metric, unit.
#[must_use]
pub fn figures() -> Vec<(&'static str, &'static str, &'static str)> {
    fn of<T>(
        kind: &'static str,
        figures: &[Figure<T>],
    ) -> Vec<(&'static str, &'static str, &'static str)> {
        figures.iter().map(|figure| (kind, figure.metric, figure.unit)).collect()
    }
    [
        of("run", &RUN),
        of("cpu", &CPU),
        of("flow", &FLOW),
        of("device", &SENT),
        of("device", &RECEIVED),
        of("vector", &VECTOR),
    ]
    .concat()
}

/// What all rows of one thing have in common.
struct Of<'a> {
    host: Option<&'a str>,
    kind: &'static str,
    name: Option<String>,
}

impl Of<'_> {
    fn rows<T>(
        &self,
        into: &mut Vec<Sample>,
        (start, seconds): (f64, f64),
        of: &T,
        figures: &[Figure<T>],
    ) {
        for figure in figures {
            let Some(value) = (figure.of)(of) else { continue };
            into.push(Sample {
                start,
                seconds,
                host: self.host.map(str::to_owned),
                kind: self.kind.to_owned(),
                name: self.name.clone(),
                metric: figure.metric.to_owned(),
                unit: figure.unit.to_owned(),
                value,
            });
        }
    }
}

/// All samples of a run.
#[must_use]
pub fn of_run(run: &Run) -> Vec<Sample> {
    let mut samples = Vec::new();
    let all = Of { host: None, kind: "run", name: None };
    for interval in &run.intervals {
        all.rows(&mut samples, (interval.start, interval.seconds), interval, &RUN);
    }
    if let Some(window) = &run.window {
        for host in &run.hosts {
            cpus(&mut samples, &host.name, window.seconds, host.cpu.as_ref());
        }
    }
    for observed in run.observe.iter().flat_map(|observe| &observe.hosts) {
        observed_host(&mut samples, observed);
    }
    samples
}

/// All samples of a host that was only observed.
#[must_use]
pub fn of_watched(watched: &Watched) -> Vec<Sample> {
    let mut samples = Vec::new();
    for observed in &watched.hosts {
        cpus(&mut samples, &observed.host, observed.seconds, watched.cpu.as_ref());
        observed_host(&mut samples, observed);
    }
    samples
}

fn cpus(into: &mut Vec<Sample>, host: &str, seconds: f64, cpu: Option<&Cpu>) {
    for line in cpu.iter().flat_map(|cpu| &cpu.per_cpu) {
        let of = Of { host: Some(host), kind: "cpu", name: Some(line.cpu.to_string()) };
        of.rows(into, (0.0, seconds), line, &CPU);
    }
}

fn observed_host(into: &mut Vec<Sample>, observed: &Observed) {
    if let Some(tcp) = &observed.tcp {
        flows(into, &observed.host, tcp);
    }
    if let Some(segments) = &observed.segments {
        devices(into, &observed.host, segments);
    }
    if let Some(interrupts) = &observed.interrupts {
        for device in &interrupts.devices {
            for vector in &device.vectors {
                let name = format!("{} {}", device.device, vector.name);
                let of = Of { host: Some(&observed.host), kind: "vector", name: Some(name) };
                of.rows(into, (0.0, interrupts.seconds), vector, &VECTOR);
            }
        }
    }
}

fn flows(into: &mut Vec<Sample>, host: &str, tcp: &TcpSection) {
    for flow in &tcp.flows {
        let name = format!("{} > {}", flow.local, flow.remote);
        let of = Of { host: Some(host), kind: "flow", name: Some(name) };
        for sample in &flow.samples {
            of.rows(into, (sample.seconds, 0.0), sample, &FLOW);
        }
    }
}

fn devices(into: &mut Vec<Sample>, host: &str, segments: &SegmentsSection) {
    let told = if segments.slices.is_some() { 1 } else { SENT.len() };
    for DeviceSegments { device, sent, received, .. } in &segments.devices {
        let of = Of { host: Some(host), kind: "device", name: Some(device.clone()) };
        let directions = [(Some(sent), &SENT), (received.as_ref(), &RECEIVED)];
        for (sizes, figures) in directions {
            let mut start = 0.0;
            for interval in sizes.iter().flat_map(|sizes: &&SegmentSizes| &sizes.intervals) {
                let seconds = interval.end_seconds - start;
                of.rows(into, (start, seconds), interval, &figures[..told]);
                start = interval.end_seconds;
            }
        }
    }
}
