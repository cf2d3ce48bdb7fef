//! Samples of a document: of the run and its CPUs, and of what each observation holds over time.

use wirecost_model::link::LinePart;
use wirecost_model::observe::{self, HostObservation, ObserveDocument};
use wirecost_model::run::{Cpu, CpuLine, Interval, Run};
use wirecost_model::sample::{Rows, Sample, SampleName, Series, figure};

/// Of the whole run, by interval.
const RUN: Series<Interval> = Series {
    kind: "run",
    figures: &[
        figure("throughput", "b/s", |i| Some(i.bits_per_second)),
        figure("tx_bytes", "B", |i| Some(i.tx_bytes as f64)),
        figure("rx_bytes", "B", |i| Some(i.rx_bytes as f64)),
        figure("transactions", "count", |i| Some(i.transactions as f64)),
        figure("operations", "count", |i| Some(i.operations as f64)),
        figure("failed", "count", |i| Some(i.failed as f64)),
    ],
};

/// Of a stream, by window of time from the start of traffic.
const STREAM: Series<f64> =
    Series { kind: "stream", figures: &[figure("throughput", "b/s", |rate| Some(*rate))] };

/// Of a direction of an emulated link.
const LINK: Series<LinePart> = Series {
    kind: "link",
    figures: &[
        figure("throughput", "b/s", |part| Some(part.bits_per_second)),
        figure("queue_bytes", "B", |part| Some(part.queue_bytes as f64)),
    ],
};

/// Of a CPU, in the whole window.
const CPU: Series<CpuLine> = Series {
    kind: "cpu",
    figures: &[
        figure("usr", "%", |c| Some(c.usr)),
        figure("sys", "%", |c| Some(c.sys)),
        figure("irq", "%", |c| Some(c.irq)),
        figure("softirq", "%", |c| Some(c.softirq)),
        figure("steal", "%", |c| Some(c.steal)),
        figure("idle", "%", |c| Some(c.idle)),
    ],
};

/// Every figure there can be.
#[must_use]
pub fn names() -> Vec<SampleName> {
    let observed = observe::ALL.iter().flat_map(|kind| kind.sample_names());
    [RUN.names(), STREAM.names(), LINK.names(), CPU.names()]
        .into_iter()
        .flatten()
        .chain(observed)
        .collect()
}

/// All samples of a run.
#[must_use]
pub fn of_run(run: &Run) -> Vec<Sample> {
    let mut samples = Vec::new();
    let mut all = Rows::of(None, &mut samples);
    for interval in &run.intervals {
        all.add(&RUN, None, (interval.start, interval.seconds), interval);
    }
    for line in run.link.iter().flat_map(|link| &link.lines) {
        for part in &line.parts {
            all.add(&LINK, Some(&line.line.name), (part.start, part.seconds), part);
        }
    }
    if let Some(window) = &run.window {
        for stream in run.streams.iter().flatten() {
            let name = format!("{}/{}/{}", stream.host, stream.group, stream.strand);
            let length = stream.convergence.window_seconds;
            for (place, rate) in stream.convergence.windows.iter().enumerate() {
                let start = place as f64 * length - window.ramp_seconds;
                all.add(&STREAM, Some(&name), (start, length), rate);
            }
        }
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
pub fn of_watched(watched: &ObserveDocument) -> Vec<Sample> {
    let mut samples = Vec::new();
    for observed in &watched.hosts {
        cpus(&mut samples, &observed.host, observed.seconds, watched.cpu.as_ref());
        observed_host(&mut samples, observed);
    }
    samples
}

fn cpus(into: &mut Vec<Sample>, host: &str, seconds: f64, cpu: Option<&Cpu>) {
    let mut rows = Rows::of(Some(host), into);
    for line in cpu.iter().flat_map(|cpu| &cpu.per_cpu) {
        rows.add(&CPU, Some(&line.cpu.to_string()), (0.0, seconds), line);
    }
}

fn observed_host(into: &mut Vec<Sample>, observed: &HostObservation) {
    let mut rows = Rows::of(Some(&observed.host), into);
    for kind in observe::ALL {
        kind.samples(observed, &mut rows);
    }
}
