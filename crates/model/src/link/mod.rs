//! Emulated links: what they do to packets, and what they have done.

pub mod keys;
pub mod netem;
pub mod nic;
mod trace;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::histogram::Histogram;
use crate::units;

use nic::{DeviceCounts, Nic};

/// Bytes that Ethernet adds to an IP packet on the wire: preamble 8, header 14, checksum 4, gap 12 (IEEE
/// 802.3, clauses 3 and 4).
pub const WIRE_OVERHEAD: u32 = 38;

/// Bytes of IP that leave at one instant of a trace of Mahimahi.
pub const OPPORTUNITY_BYTES: u32 = 1_500;

/// Bytes that the queue and the delay of one direction may hold together.
pub const MAX_HELD: u64 = 1 << 30;

/// How hosts are joined.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Topology {
    /// Two hosts, and the link between them.
    #[default]
    Pair,
    /// Each host has a link to the middle.
    Star,
    /// Half of the hosts on each side of one link; of an odd number, one more on the side of the last host.
    Dumbbell,
}

/// How fast a link sends.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Capacity {
    #[default]
    Unlimited,
    /// In bits on the wire per second.
    Rate(u64),
    /// Nanoseconds, and the rate during these; again and again.
    Steps(Vec<(u64, u64)>),
    /// Milliseconds at which [`OPPORTUNITY_BYTES`] can leave; the last is the length of the trace.
    Opportunities(Vec<u64>),
}

impl Capacity {
    /// Mean rate in bits per second.
    #[must_use]
    pub fn mean(&self) -> Option<u64> {
        let mean = |bits: u128, nanoseconds: u128| {
            u64::try_from(bits * 1_000_000_000 / nanoseconds.max(1)).unwrap_or(u64::MAX)
        };
        match self {
            Self::Unlimited => None,
            Self::Rate(rate) => Some(*rate),
            Self::Steps(steps) => {
                let length = steps.iter().map(|(length, _)| u128::from(*length)).sum();
                let bits: u128 = steps
                    .iter()
                    .map(|(length, rate)| u128::from(*length) * u128::from(*rate))
                    .sum();
                Some(mean(bits / 1_000_000_000, length))
            }
            Self::Opportunities(milliseconds) => {
                let bits = milliseconds.len() as u128 * u128::from(OPPORTUNITY_BYTES) * 8;
                Some(mean(bits, u128::from(*milliseconds.last()?) * 1_000_000))
            }
        }
    }
}

/// Which packets a queue drops.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Discipline {
    /// Those that do not fit.
    #[default]
    DropTail,
    /// Also some of those that have waited for more than 5 ms for more than 100 ms (RFC 8289).
    CoDel,
}

/// One direction of a link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Conditions {
    pub capacity: Capacity,
    pub delay_nanoseconds: u64,
    /// The delay varies by up to this time to both sides. Packets stay in order.
    pub jitter_nanoseconds: u64,
    /// Share of packets that are lost.
    pub loss: f64,
    /// Mean number of packets that are lost together; 1 for independent losses.
    pub loss_burst: f64,
    /// Shares of packets.
    pub reorder: f64,
    pub duplicate: f64,
    /// Bytes (IP) that can wait; unlimited if absent.
    pub queue_bytes: Option<u64>,
    pub discipline: Discipline,
    /// Traffic of others, bits on the wire per second.
    pub cross_bits_per_second: u64,
}

impl Default for Conditions {
    fn default() -> Self {
        Self {
            capacity: Capacity::Unlimited,
            delay_nanoseconds: 0,
            jitter_nanoseconds: 0,
            loss: 0.0,
            loss_burst: 1.0,
            reorder: 0.0,
            duplicate: 0.0,
            queue_bytes: None,
            discipline: Discipline::DropTail,
            cross_bits_per_second: 0,
        }
    }
}

/// Both directions of a link: from the first host, and to it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LinkSpec {
    pub forward: Conditions,
    pub back: Conditions,
    /// Devices with queues; without it a device is an end of the link and nothing more.
    pub nic: Option<Nic>,
    /// Hosts that are farther away than the others, by number from 1: their round-trip time to a host that is not, in
    /// nanoseconds. Empty in older records.
    #[serde(default)]
    pub host_rtt_nanoseconds: BTreeMap<u16, u64>,
}

impl Topology {
    /// How many of the first hosts are on the side of the first, where a link has two sides.
    #[must_use]
    pub fn left(hosts: usize) -> usize {
        hosts / 2
    }

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Pair => "pair",
            Self::Star => "star",
            Self::Dumbbell => "dumbbell",
        }
    }
}

impl Conditions {
    /// In words, without the delay.
    fn describe(&self) -> Vec<String> {
        let percent =
            |share: f64, what: &str| format!("{what} {}%", units::three_digits(share * 100.0));
        let mut words = Vec::new();
        match &self.capacity {
            Capacity::Unlimited => {}
            Capacity::Rate(rate) => words.push(units::bit_rate(*rate as f64)),
            Capacity::Steps(_) | Capacity::Opportunities(_) => {
                let mean = self.capacity.mean().unwrap_or_default();
                words.push(format!("a trace of {} on average", units::bit_rate(mean as f64)));
            }
        }
        if self.jitter_nanoseconds > 0 {
            words.push(format!("jitter {}", units::latency(self.jitter_nanoseconds as f64 / 1e3)));
        }
        if self.loss > 0.0 {
            words.push(percent(self.loss, "loss"));
            if self.loss_burst > 1.0 {
                words.push(format!("{} lost together", units::three_digits(self.loss_burst)));
            }
        }
        if self.reorder > 0.0 {
            words.push(percent(self.reorder, "reordered"));
        }
        if self.duplicate > 0.0 {
            words.push(percent(self.duplicate, "duplicated"));
        }
        if let Some(bytes) = self.queue_bytes {
            let discipline = match self.discipline {
                Discipline::DropTail => "",
                Discipline::CoDel => " with CoDel",
            };
            words.push(format!("queue {}{discipline}", units::bytes(bytes)));
        }
        if self.cross_bits_per_second > 0 {
            words.push(format!(
                "cross traffic {}",
                units::bit_rate(self.cross_bits_per_second as f64)
            ));
        }
        words
    }
}

impl LinkSpec {
    /// Round-trip time of the link itself, nanoseconds.
    #[must_use]
    pub fn rtt_nanoseconds(&self) -> u64 {
        self.forward.delay_nanoseconds + self.back.delay_nanoseconds
    }

    /// How much longer packets take in one direction from or to a host, by its number from 1, nanoseconds.
    #[must_use]
    pub fn approach_nanoseconds(&self, host: u16) -> u64 {
        let rtt = self.host_rtt_nanoseconds.get(&host).copied().unwrap_or_default();
        rtt.saturating_sub(self.rtt_nanoseconds()) / 2
    }

    /// In words, on one line.
    #[must_use]
    pub fn describe(&self, topology: Topology) -> String {
        let rtt = self.rtt_nanoseconds();
        let mut words = vec![topology.name().to_owned()];
        if rtt > 0 {
            words.push(format!("RTT {}", units::latency(rtt as f64 / 1e3)));
        }
        let far = self.host_rtt_nanoseconds.iter();
        words.extend(
            far.map(|(host, rtt)| format!("h{host} {}", units::latency(*rtt as f64 / 1e3))),
        );
        words.extend(self.nic.iter().flat_map(Nic::describe));
        words.extend(self.forward.describe());
        let back = self.back.describe();
        let text = words.join(", ");
        if back == self.forward.describe() {
            text
        } else if back.is_empty() {
            format!("{text}; back: no limits")
        } else {
            format!("{text}; back: {}", back.join(", "))
        }
    }
}

/// What has happened to packets in one direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LineCounts {
    /// Handed over by hosts, and their bytes (IP).
    pub arrived: u64,
    pub arrived_bytes: u64,
    /// Left the transmitter, lost ones included.
    pub sent: u64,
    pub sent_bytes: u64,
    /// Did not fit into the queue.
    pub overflowed: u64,
    /// Dropped by CoDel.
    pub dropped: u64,
    pub lost: u64,
    /// Frames for which the emulator had no memory left.
    pub unheld: u64,
    pub reordered: u64,
    pub duplicated: u64,
    /// Traffic of others.
    pub cross: u64,
    pub cross_bytes: u64,
    /// The largest queue since the start, in bytes.
    pub longest_queue: u64,
    /// The queue now, in bytes. 0 in older records.
    #[serde(default)]
    pub queue: u64,
}

impl LineCounts {
    /// What has happened since earlier counts; both queues are the same.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            arrived: self.arrived - earlier.arrived,
            arrived_bytes: self.arrived_bytes - earlier.arrived_bytes,
            sent: self.sent - earlier.sent,
            sent_bytes: self.sent_bytes - earlier.sent_bytes,
            overflowed: self.overflowed - earlier.overflowed,
            dropped: self.dropped - earlier.dropped,
            lost: self.lost - earlier.lost,
            unheld: self.unheld - earlier.unheld,
            reordered: self.reordered - earlier.reordered,
            duplicated: self.duplicated - earlier.duplicated,
            cross: self.cross - earlier.cross,
            cross_bytes: self.cross_bytes - earlier.cross_bytes,
            longest_queue: self.longest_queue,
            queue: self.queue,
        }
    }
}

/// A line and what has happened to its packets.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NamedLine {
    /// `forward`, `back`, or where it leads, as `to h2`.
    pub name: String,
    #[serde(flatten)]
    pub counts: LineCounts,
}

/// What one thread has done.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SideCounts {
    /// Errors of frames in nanoseconds: lateness of the release, and how long it may have waited to be
    /// read.
    pub error: Histogram,
    /// Frames with an error of more than a millisecond.
    pub late: u64,
    /// Frames that the receiving host did not take.
    pub refused: u64,
    /// Frames to no host.
    pub unroutable: u64,
    /// CPU time by CPU.
    pub cpu_nanoseconds: BTreeMap<u32, u64>,
}

/// What the threads of a link have done.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkCounts {
    pub lines: Vec<NamedLine>,
    pub sides: Vec<SideCounts>,
    /// Devices with queues.
    pub devices: Vec<DeviceCounts>,
    /// Frames that hosts dropped because the emulator had not read those before them.
    pub unread: u64,
}

/// Counts at an instant of the machine's monotonic clock, nanoseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LinkSample {
    pub at: u64,
    pub counts: LinkCounts,
}

/// What is known of the links of a run when it ends.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LinkOutcome {
    pub topology: Topology,
    pub link: LinkSpec,
    /// The process that emulates them.
    pub pid: u32,
    /// In the order of time.
    pub samples: Vec<LinkSample>,
}

/// Emulated links in the window of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LinkReport {
    pub topology: Topology,
    pub link: LinkSpec,
    /// Between the readings of its counters within the window.
    pub seconds: f64,
    pub lines: Vec<LineReport>,
    /// Devices with queues.
    pub devices: Vec<DeviceCounts>,
    /// Of frames, microseconds: how late each was released, and for how long it may have waited to be read. Null if
    /// there were none.
    pub error_us: Option<LinkError>,
    /// Share of frames with an error of more than a millisecond.
    pub late: f64,
    /// Frames that the receiving host did not take.
    pub refused: u64,
    /// Frames that hosts dropped because the emulator had not read those before them.
    pub unread: u64,
    /// Frames for which the emulator had no memory left.
    pub unheld: u64,
    /// CPU time, percent of one CPU.
    pub cpu_percent: f64,
    /// `bpf`: traced, without the hosts' receive work. `schedstat`: as the scheduler counts it, which includes
    /// receive work that interrupted it.
    pub cpu_source: String,
    /// Percent of each CPU, by number.
    pub cpus: BTreeMap<u32, f64>,
}

impl LinkReport {
    /// Frames that were lost by accident.
    #[must_use]
    pub fn lost_frames(&self) -> u64 {
        // While a device pauses the link, its senders are not read.
        let paused = self.devices.iter().any(|device| device.pauses > 0);
        self.refused + self.unheld + if paused { 0 } else { self.unread }
    }
}

/// One direction of a link in the window of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LineReport {
    #[serde(flatten)]
    pub line: NamedLine,
    /// Bits on the wire per second that it sent, cross traffic included.
    pub bits_per_second: f64,
    /// The window in parts, from one reading of its counters to the next. Empty in older records.
    #[serde(default)]
    pub parts: Vec<LinePart>,
}

/// One direction of a link from one reading to the next.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LinePart {
    /// Since the beginning of the window.
    pub start: f64,
    pub seconds: f64,
    /// Bits on the wire per second, cross traffic included.
    pub bits_per_second: f64,
    /// Bytes that wait at its end.
    pub queue_bytes: u64,
}

/// Errors of frames, microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LinkError {
    pub p50: f64,
    pub p99: f64,
    pub max: f64,
}
