//! Two hosts that never were: a master and a peer whose traffic is a formula, so that every counter
//! at every instant is known, and faults that a real host could have.

use std::time::Duration;

use wirecost_model::clock::Nanos;
use wirecost_model::histogram::Histogram;
use wirecost_model::host::{CpuSnapshot, CpuTicks, HostFacts};
use wirecost_model::measure::{
    Bytes, Counters, Edge, FairnessSums, FlowopCounts, FlowopKey, FlowopLatency, PhaseResult,
    Setting, Snapshot, TcpSample, WorkerUse,
};
use wirecost_model::outcome::{HostOutcome, Outcome, PhasePlan};
use wirecost_model::profile::Until;
use wirecost_model::program::Side;
use wirecost_model::run::Run;
use wirecost_model::status::Status;

pub(crate) const TSC_HZ: f64 = 3.0e9;
/// Share of each CPU's time, percent: usr, sys, irq, softirq, steal, iowait; the rest is idle.
pub(crate) const CPU: [f64; 6] = [10.0, 30.0, 1.0, 9.0, 0.5, 2.0];

#[derive(Debug, Clone)]
pub(crate) struct Traffic {
    /// Bytes a second each way.
    pub(crate) tx_rate: f64,
    pub(crate) rx_rate: f64,
    /// How much the rate swings (0 to 1), and how often a second.
    pub(crate) swing: f64,
    pub(crate) swings_per_second: f64,
    /// Seconds from send call to receive call.
    pub(crate) transit: f64,
    /// All buffers of one host.
    pub(crate) buffer_bytes: u64,
    pub(crate) operation_bytes: u64,
    pub(crate) connections: u64,
    /// Whether send calls block: a sender then counts an operation only when all of it is sent.
    pub(crate) blocking: bool,
    pub(crate) interval: f64,
    pub(crate) ramp: f64,
    pub(crate) window: f64,
    /// Time without observers before and after the window, each in five parts; 0 for none.
    pub(crate) beside: f64,
    /// Longest ordinary lateness of a snapshot, seconds.
    pub(crate) jitter: f64,
    /// Most lateness of the few snapshots that are very late, seconds.
    pub(crate) late: f64,
    /// How much later than the snapshot says its workers' counters are, at most, seconds.
    pub(crate) worker_skew: f64,
    /// Clock of master and peer less the controller's, nanoseconds, and how wrong the estimates
    /// are.
    pub(crate) offsets: [i64; 2],
    pub(crate) offset_errors: [i64; 2],
    pub(crate) seed: u64,
}

impl Default for Traffic {
    /// A gigabyte a second from master to peer, with snapshots exactly on time.
    fn default() -> Self {
        Self {
            tx_rate: 1e9,
            rx_rate: 0.0,
            swing: 0.0,
            swings_per_second: 1.0,
            transit: 0.001,
            buffer_bytes: 4 << 20,
            operation_bytes: 65536,
            connections: 4,
            blocking: false,
            interval: 1.0,
            ramp: 1.0,
            window: 5.0,
            beside: 0.0,
            jitter: 0.0,
            late: 0.0,
            worker_skew: 0.0,
            offsets: [0, 0],
            offset_errors: [0, 0],
            seed: 1,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Fault {
    None,
    /// This share of the bytes that the host received never reaches its counters.
    LostCounts {
        host: usize,
        share: f64,
    },
    /// The host does everything this much later than told, and its clock says so.
    LateSchedule {
        host: usize,
        seconds: f64,
    },
    /// The host takes its snapshots this much later, and nobody knows because its clock was
    /// misjudged.
    MisjudgedClock {
        host: usize,
        seconds: f64,
    },
}

/// When the phase begins on the controller's clock.
const BEGIN: f64 = 1000.0;

struct Random(u64);

impl Random {
    /// 0 to 1. Multiplier of Knuth's MMIX generator.
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }
}

impl Traffic {
    fn moved(&self, rate: f64, since_begin: f64) -> u64 {
        let stop = self.end();
        let t = since_begin.clamp(0.0, stop);
        let turn = std::f64::consts::TAU * self.swings_per_second;
        // The integral of rate * (1 + swing * cos): never falls while swing is at most 1.
        let shape = t + self.swing * (turn * t).sin() / turn;
        let operations = (rate * shape / self.operation_bytes as f64).floor();
        (operations as u64) * self.operation_bytes
    }

    /// When no more is sent.
    fn end(&self) -> f64 {
        let beside = if self.beside > 0.0 { self.beside + 0.1 } else { 0.0 };
        self.ramp + self.window + beside
    }

    fn bytes(&self, side: Side, t: f64, kept: f64) -> Bytes {
        let received = |rate| (self.moved(rate, t - self.transit) as f64 * kept) as u64;
        let under_way = if self.blocking && t < self.end() + self.transit {
            self.connections * self.operation_bytes
        } else {
            0
        };
        let sent = |rate| self.moved(rate, t).saturating_sub(under_way);
        match side {
            Side::Master => Bytes {
                tx_sent: sent(self.tx_rate),
                rx_received: received(self.rx_rate),
                ..Bytes::default()
            },
            Side::Peer => Bytes {
                tx_received: received(self.tx_rate),
                rx_sent: sent(self.rx_rate),
                ..Bytes::default()
            },
        }
    }

    pub(crate) fn outcome(&self, fault: Fault) -> Outcome {
        let hosts = [Side::Master, Side::Peer];
        Outcome {
            status: Status::Ok,
            error: None,
            phases: vec![PhasePlan {
                until: Until::Duration(Duration::from_secs_f64(self.window)),
                ramp_seconds: self.ramp,
                headline: true,
                moves_data: true,
                datagrams: false,
                encrypts: false,
                may_idle: false,
                window_unix_ms: None,
            }],
            hosts: hosts
                .into_iter()
                .enumerate()
                .map(|(number, side)| self.host(number, side, fault))
                .collect(),
            observations: Vec::new(),
            warnings: Vec::new(),
            link: None,
            netem: None,
        }
    }

    fn host(&self, number: usize, side: Side, fault: Fault) -> HostOutcome {
        let mut kept = 1.0;
        let mut schedule = 0.0;
        let mut misjudged = 0.0;
        match fault {
            Fault::LostCounts { host, share } if host == number => kept = 1.0 - share,
            Fault::LateSchedule { host, seconds } if host == number => schedule = seconds,
            Fault::MisjudgedClock { host, seconds } if host == number => misjudged = seconds,
            _ => {}
        }
        let offset = self.offsets[number];
        let believed = offset + self.offset_errors[number] + (misjudged * 1e9) as i64;
        HostOutcome {
            name: ["client", "server"][number].to_owned(),
            side,
            address: Some(format!("192.0.2.{}", number + 1)),
            facts: HostFacts {
                hostname: ["alpha", "beta"][number].to_owned(),
                boot_id: format!("boot-{number}"),
                machine_cpus: 2,
                cpus: vec![0, 1],
                ..HostFacts::default()
            },
            cpus: vec![0, 1],
            owns_cpus: true,
            workers: 1,
            pid: 0,
            network_namespace: None,
            clock_offset: believed,
            clock_error: self.offset_errors[number].unsigned_abs(),
            phases: vec![self.phase(number, side, kept, schedule, misjudged)],
            settings: vec![Setting {
                name: "wndsz.send".to_owned(),
                host: ["client", "server"][number].to_owned(),
                requested: "65536".to_owned(),
                effective: "65536".to_owned(),
                previous: None,
            }],
            placements: Vec::new(),
            warnings: Vec::new(),
            environment: Default::default(),
        }
    }

    fn edges(&self) -> Vec<(Edge, f64)> {
        let end = self.ramp + self.window;
        let mut edges = vec![(Edge::PhaseStart, 0.0), (Edge::WindowStart, self.ramp)];
        let mut number = 1.0;
        while number * self.interval < self.window - 1e-9 {
            edges.push((Edge::Interval, self.ramp + number * self.interval));
            number += 1.0;
        }
        edges.push((Edge::WindowEnd, end));
        if self.beside > 0.0 {
            let parts = |begin: f64| (0..=5).map(move |n| begin + f64::from(n) * self.beside / 5.0);
            let before = parts(self.ramp - 0.1 - self.beside);
            edges.extend(before.chain(parts(end + 0.1)).map(|at| (Edge::Unobserved, at)));
            edges.sort_by(|a, b| a.1.total_cmp(&b.1));
        }
        let last = edges.last().map_or(end, |(_, at)| *at);
        edges.push((Edge::PhaseEnd, last + self.transit + 0.01));
        edges
    }

    fn phase(
        &self,
        number: usize,
        side: Side,
        kept: f64,
        schedule: f64,
        misjudged: f64,
    ) -> PhaseResult {
        let mut random = Random(self.seed.wrapping_mul(2).wrapping_add(number as u64));
        for _ in 0..4 {
            random.next();
        }
        let edges = self.edges();
        // Fewer than half of the window's snapshots may be very late, so that most tell the truth.
        let mut very_late = (edges.len() - 3) / 2;
        let mut snapshots = Vec::new();
        let (mut last, mut last_t) = (0, 0.0);
        for (edge, at) in edges {
            let mut late = random.next() * self.jitter;
            if self.late > 0.0 && very_late > 0 && random.next() < 0.3 {
                very_late -= 1;
                late = random.next() * self.late;
            }
            // A host told to take a snapshot at an instant of the controller's clock does so by its
            // own.
            let due = at + schedule + misjudged;
            // A snapshot that is late makes those after it wait.
            let t = f64::max(due + late, last_t);
            last_t = t + random.next() * self.worker_skew;
            let own = |t: f64| -> Nanos {
                let nanos = ((BEGIN + t) * 1e9).round() as i128;
                (nanos + i128::from(self.offsets[number])) as Nanos
            };
            let at = own(t).max(last + 1);
            last = at;
            snapshots.push(Snapshot {
                edge,
                due: own(due),
                at,
                counters: self.counters(side, last_t, kept),
                cpu: matches!(edge, Edge::WindowStart | Edge::WindowEnd)
                    .then(|| snapshot(at as f64 / 1e9)),
                packets: None,
            });
        }
        let mut transactions = Histogram::new();
        (1..=1000).for_each(|n| transactions.record(n * 1000));
        let window_start = snapshots
            .iter()
            .find(|snapshot| snapshot.edge == Edge::WindowStart)
            .map_or(0, |snapshot| snapshot.at);
        PhaseResult {
            phase: 0,
            flowops: vec![key(side, 0), key(side, 1)],
            snapshots,
            transactions: transactions.clone(),
            latencies: vec![FlowopLatency { key: key(side, 0), latency: transactions }],
            connections_open: self.connections,
            retransmits: Some(3),
            tcp_samples: vec![TcpSample {
                at: window_start + 1_000_000,
                group: 0,
                strand: 0,
                rtt_us: [100.0, 300.0][number],
                min_rtt_us: 80.0,
                path_mtu: 1500,
                cwnd: 10,
                retransmits: 0,
            }],
            workers: vec![WorkerUse { worker: 0, cpu: Some(0), busy: Some(0.5) }],
            fairness: fairness(self.connections),
            buffer_bytes: self.buffer_bytes,
            ..PhaseResult::default()
        }
    }

    fn counters(&self, side: Side, t: f64, kept: f64) -> Counters {
        let bytes = self.bytes(side, t, kept);
        let flowop = |bytes: u64| FlowopCounts {
            done: bytes / self.operation_bytes,
            bytes,
            ..FlowopCounts::default()
        };
        let (first, second) = match side {
            Side::Master => (bytes.tx_sent, bytes.rx_received),
            Side::Peer => (bytes.tx_received, bytes.rx_sent),
        };
        Counters {
            bytes,
            transactions: first / self.operation_bytes,
            flowops: vec![flowop(first), flowop(second)],
            datagrams: Default::default(),
        }
    }
}

pub(crate) fn key(side: Side, flowop: u32) -> FlowopKey {
    let kind = match (side, flowop) {
        (Side::Master, 0) | (Side::Peer, 1) => "write",
        _ => "read",
    };
    FlowopKey { group: 0, flowop, kind: kind.to_owned(), side }
}

fn fairness(strands: u64) -> FairnessSums {
    let mut sums = FairnessSums::default();
    (0..strands).for_each(|_| sums.add(1000.0));
    sums
}

/// Two CPUs that have been busy alike since the beginning of time.
fn snapshot(seconds: f64) -> CpuSnapshot {
    let ticks = |percent: f64| (seconds * percent).round() as u64;
    let idle = 100.0 - CPU.iter().sum::<f64>();
    CpuSnapshot {
        ticks: (0..2)
            .map(|cpu| CpuTicks {
                cpu,
                user: ticks(CPU[0]),
                system: ticks(CPU[1]),
                irq: ticks(CPU[2]),
                softirq: ticks(CPU[3]),
                steal: ticks(CPU[4]),
                iowait: ticks(CPU[5]),
                idle: ticks(idle),
            })
            .collect(),
        ticks_per_second: 100,
        tsc: Some((seconds * TSC_HZ) as u64),
        tsc_at: Some((seconds * 1e9) as u64),
    }
}

pub(crate) fn analyze(outcome: &Outcome) -> Run {
    analyze_offered(outcome, None)
}

/// Of a run that was to move this number of bits per second.
pub(crate) fn analyze_offered(outcome: &Outcome, offered_bits_per_second: Option<f64>) -> Run {
    let meta = wirecost_analyze::RunMeta {
        profile: "@stream".to_owned(),
        engine: "epoll".to_owned(),
        version: "0.1.0".to_owned(),
        started_unix_ms: 1_700_000_000_000,
        probes: Vec::new(),
        dead_time: Default::default(),
        offered_bits_per_second,
    };
    wirecost_analyze::run(outcome, &meta)
}
