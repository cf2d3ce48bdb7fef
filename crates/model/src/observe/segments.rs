//! How much is handed to a device at once, and by whom.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Slices;

/// What the probe `segments` says.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct SegmentsSection {
    /// The parts of the window that were watched, and that all counts are of; null for all of it.
    pub slices: Option<Slices>,
    /// Devices of the network namespace that carried something, most bytes first.
    pub devices: Vec<DeviceSegments>,
    /// Packets of all namespaces that were not counted, as there were too many devices.
    pub uncounted_packets: u64,
}

/// One network device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DeviceSegments {
    pub device: String,
    pub ifindex: u32,
    /// What the stack handed to the device: a packet here is one call of the driver.
    pub sent: SegmentSizes,
    /// What the device handed to the stack, after GRO. Null where the kernel has no hook there.
    pub received: Option<SegmentSizes>,
    /// Segments that the device takes in one packet.
    pub gso_max_segments: u32,
    /// Who handed over what has payload; percentages add up to 100.
    pub drained: Vec<Drain>,
    /// The same for TCP acknowledgements without payload.
    pub drained_acks: Vec<Drain>,
    /// TCP packets that begin or end a connection and have no payload (SYN, FIN, RST).
    pub control_packets: u64,
}

/// Sizes of one direction.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct SegmentSizes {
    /// As the stack sees them: a packet of several segments is one.
    pub packets: u64,
    /// Sent: with the link header. Received: without it. Headers of the further segments of a packet
    /// are in neither.
    pub bytes: u64,
    /// Packets as on a wire: each packet's segments, at least one.
    pub segments: u64,
    /// Packets of several segments, or that are marked to be cut into such.
    pub gso_packets: u64,
    /// Null where there was no packet.
    pub average_bytes: Option<f64>,
    pub average_segments: Option<f64>,
    /// Packets to which no segment could have been added.
    pub packets_at_cap: u64,
    pub percent_at_cap: Option<f64>,
    /// The limit of a packet of several segments over IPv4, and over IPv6: 65536, or more with BIG TCP.
    pub cap_ipv4_bytes: u32,
    pub cap_ipv6_bytes: u32,
    /// Packets by length.
    pub lengths: Vec<Bucket>,
    /// Packets by number of segments.
    pub segments_per_packet: Vec<Bucket>,
    pub intervals: Vec<SegmentInterval>,
}

/// Packets from a value up to twice of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Bucket {
    /// A power of two; below it are the former bucket's.
    pub from: u64,
    pub packets: u64,
}

/// Part of the window.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SegmentInterval {
    /// From the beginning of the window to the end of this interval.
    pub end_seconds: f64,
    pub packets: u64,
    pub bytes: u64,
    pub segments: u64,
    pub average_bytes: Option<f64>,
}

/// Who hands a packet to the device.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Drainer {
    /// The thread that writes, in its system call. What waited for its socket to be free is in it too.
    Writer,
    /// A thread that reads, in its system call.
    Reader,
    /// The NET_RX softirq: what came in let this go out.
    AckClock,
    /// A thread of the stack's own: queues that had been full, timers, pacing, ksoftirqd.
    Worker,
    /// A task in another system call, as close(2) or connect(2).
    Other,
}

/// What one of them handed over.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Drain {
    pub by: Drainer,
    pub packets: u64,
    pub bytes: u64,
    pub percent_packets: f64,
    pub percent_bytes: f64,
    /// The same in more detail, where there is some: `tasklet` (TCP small queues), `net_tx`, `timer`,
    /// `hrtimer` (pacing), `ksoftirqd`, `workqueue`, `kernel_thread`...
    pub contexts: Vec<DrainContext>,
}

/// Packets of one context.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DrainContext {
    pub context: String,
    pub packets: u64,
    pub bytes: u64,
}
