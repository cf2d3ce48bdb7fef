//! Simulated studies with known answers. Tests of findings use them, and `wirecost-bench statistics`
//! counts in them what is found, and what is not there.

use fastrand::Rng;

use crate::measured::Measurements;
use crate::statistics::bootstrap::normal;
use wirecost_model::host::HostFacts;
use wirecost_model::measure::Bytes;
use wirecost_model::observe::{
    DeviceSegments, FunctionShare, FunctionsSection, HostObservation, SegmentSizes,
    SegmentsSection, TcpSection,
};
use wirecost_model::program::Side;
use wirecost_model::run::{Cpu, HostRow, Latency, Observe, Run, Throughput, Window, WindowKind};
use wirecost_model::study::{Point, StudyRunRef, Value};

/// What one run measures.
#[derive(Debug, Clone)]
pub struct Figures {
    pub bits_per_second: f64,
    /// Percent of the time of the CPUs of sender and receiver.
    pub busy: [f64; 2],
    pub cycles: [f64; 2],
    /// Part of busy time that is user time.
    pub user: f64,
    /// Bytes of a segment that goes to the device, and data segments of an ACK.
    pub segments: Option<[f64; 2]>,
    pub link: Option<u64>,
    pub p99: f64,
    /// Functions of the sender: name and share of its cost.
    pub functions: Vec<(&'static str, f64)>,
}

impl Default for Figures {
    fn default() -> Self {
        Self {
            bits_per_second: 1e9,
            busy: [50.0, 50.0],
            cycles: [3000.0, 3000.0],
            user: 0.5,
            segments: None,
            link: None,
            p99: 100.0,
            functions: Vec::new(),
        }
    }
}

impl Figures {
    /// With errors of this size in all of it: the standard deviation of the logarithm.
    #[must_use]
    pub fn noisy(mut self, relative: f64, random: &mut Rng) -> Self {
        let mut blur = |value: &mut f64| *value *= (relative * normal(random)).exp();
        blur(&mut self.bits_per_second);
        blur(&mut self.p99);
        self.busy.iter_mut().for_each(&mut blur);
        self.cycles.iter_mut().for_each(&mut blur);
        self.segments.iter_mut().flatten().for_each(&mut blur);
        self.functions.iter_mut().for_each(|(_, share)| blur(share));
        self.busy = self.busy.map(|busy| busy.min(100.0));
        // Neither user nor system time is more likely to be more.
        self.user += (relative * normal(random) / 4.0).clamp(-self.user, 1.0 - self.user);
        self
    }
}

fn host(name: &str, role: Side, figures: &Figures, which: usize) -> HostRow {
    let moved = (figures.bits_per_second / 8.0) as u64;
    let none = Bytes { tx_sent: 0, tx_received: 0, rx_sent: 0, rx_received: 0 };
    let bytes = match role {
        Side::Master => Bytes { tx_sent: moved, ..none },
        Side::Peer => Bytes { tx_received: moved, ..none },
    };
    HostRow {
        name: name.to_owned(),
        role,
        address: None,
        cpus: vec![which as u32],
        shares_machine_with: Vec::new(),
        workers: 1,
        cpu: Some(Cpu {
            usr: figures.user * figures.busy[which],
            sys: (1.0 - figures.user) * figures.busy[which],
            irq: 0.0,
            softirq: 0.0,
            steal: 0.0,
            idle: 100.0 - figures.busy[which],
            unaccounted: 0.0,
            per_cpu: Vec::new(),
        }),
        cpu_source: None,
        cycles_per_kbyte: Some(figures.cycles[which]),
        cycles_source: None,
        cycles_reason: None,
        busiest_worker: None,
        receive_stamps: None,
        foreign_cycles_per_kbyte: None,
        bytes: Some(bytes),
        facts: HostFacts { link_bits_per_second: figures.link, ..HostFacts::default() },
        clock_offset_us: 0.0,
        clock_error_us: 0.0,
        memory: None,
    }
}

#[must_use]
pub fn run(axes: &[(&str, &str)], place: u32, repeat: u32, figures: &Figures) -> Run {
    let mut run = Run::empty("@stream", "epoll", "0.1.0", 0);
    let values: Vec<Value> = axes.iter().map(|(name, value)| Value::new(name, value)).collect();
    let point = Point { axes: values.clone(), settings: values };
    run.study =
        Some(StudyRunRef { study: "s".to_owned(), point, place, repeat, order: 1, search: None });
    run.window = Some(Window {
        seconds: 1.0,
        phase: 0,
        ramp_seconds: 0.0,
        kind: WindowKind::Duration,
        dead_seconds: None,
        late_us: None,
        started_unix_ms: None,
    });
    run.throughput = Some(Throughput {
        bits_per_second: figures.bits_per_second,
        tx_bits_per_second: figures.bits_per_second,
        rx_bits_per_second: 0.0,
        tx_bytes: (figures.bits_per_second / 8.0) as u64,
        rx_bytes: 0,
    });
    let p99 = figures.p99;
    run.latency_us = Some(Latency {
        p50: p99,
        p90: p99,
        p99,
        p999: p99,
        max: p99,
        mean: p99,
        trimmed_mean: Some(p99),
        count: 1,
    });
    run.hosts = vec![host("h1", Side::Master, figures, 0), host("h2", Side::Peer, figures, 1)];
    let function = |(name, share): &(&str, f64)| FunctionShare {
        name: (*name).to_owned(),
        layer: "tcp".to_owned(),
        module: "kernel".to_owned(),
        exclusive: *share,
        inclusive: *share,
        interval: (0.0, 1.0),
        cycles_per_kbyte: Some(share * figures.cycles[0]),
    };
    let functions = FunctionsSection {
        samples: 1000,
        functions: figures.functions.iter().map(function).collect(),
        ..FunctionsSection::default()
    };
    let [bytes, per_ack] = figures.segments.unwrap_or_default();
    let sizes =
        SegmentSizes { packets: 1000, bytes: (1000.0 * bytes) as u64, ..SegmentSizes::default() };
    let device = DeviceSegments {
        device: "eth0".to_owned(),
        ifindex: 2,
        sent: sizes,
        received: None,
        gso_max_segments: 0,
        transmit_contexts: Vec::new(),
        transmit_contexts_acks: Vec::new(),
        control_packets: 0,
    };
    let segments = SegmentsSection { devices: vec![device], ..SegmentsSection::default() };
    let mut tcp = TcpSection::default();
    tcp.acks_received.segments_per_ack = Some(per_ack);
    let seen = HostObservation {
        host: "h1".to_owned(),
        covers: vec!["h1".to_owned()],
        functions: Some(functions),
        segments: figures.segments.map(|_| segments),
        tcp: figures.segments.map(|_| tcp),
        ..HostObservation::default()
    };
    run.observe = Some(Observe { hosts: vec![seen], ..Observe::default() });
    run
}

/// A study of all combinations of these axes' values, of which `figures` says what a run measures.
pub fn study(
    axes: &[(&str, &[&str])],
    repeats: u32,
    mut figures: impl FnMut(&[&str]) -> Figures,
) -> Measurements {
    let mut points: Vec<Vec<&str>> = vec![Vec::new()];
    for (_, values) in axes {
        points = points
            .iter()
            .flat_map(|point| values.iter().map(move |v| [point.as_slice(), &[*v]].concat()))
            .collect();
    }
    let mut runs = Vec::new();
    for (place, point) in (1..).zip(&points) {
        let named: Vec<(&str, &str)> =
            axes.iter().zip(point).map(|((name, _), value)| (*name, *value)).collect();
        for repeat in 1..=repeats {
            runs.push((String::new(), run(&named, place, repeat, &figures(point))));
        }
    }
    Measurements::of(runs)
}
