//! Network devices in the window: settings, queues, drops and pause frames, under the same names for all drivers.

mod document;

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{MetricDef, MetricScope, Observation, Value, reading};
use crate::document::Section;
use crate::environment::{Channels, Coalescing, FlowControl, Rings};
use crate::metric::Better::{Lower, Neither};
use crate::metric::Unit::Count;
use crate::rss::DeviceSpreading;

/// What the probe `nic` says of the network namespace.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct NicSection {
    /// Without `lo`, which has no queues, no wire and no driver.
    pub devices: Vec<NicDevice>,
}

/// One device, and what it counted in the window.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct NicDevice {
    pub device: String,
    pub driver: Option<String>,
    /// Place on its bus, as `0000:00:03.0`; null for a virtual device.
    pub bus: Option<String>,
    /// NUMA node it is attached to; null also where the kernel does not know.
    pub numa_node: Option<u32>,
    /// At the end of the window.
    pub settings: NicSettings,
    /// What was different at the beginning of the window.
    pub changes: Vec<NicChange>,
    /// As the kernel counts for every device (rtnetlink).
    pub rx_packets: u64,
    pub rx_bytes: u64,
    pub tx_packets: u64,
    pub tx_bytes: u64,
    /// Packets lost in device and driver: the larger of what the kernel counts for every device (missed and dropped)
    /// and the sum of `drops` whose kind is a loss (no buffer, missed, rate limit, link down, unspecified). A packet
    /// may be in both, so they are not added.
    pub rx_drops: u64,
    pub tx_drops: u64,
    /// Drops by cause, of all queues together, as the driver counts them; those that are 0 are left out.
    pub drops: Vec<NicDrops>,
    pub pause: Option<PauseFrames>,
    /// Why `pause` is null.
    pub pause_reason: Option<String>,
    /// Counters under the names of the standards.
    pub standard: Option<StandardCounters>,
    /// Why `standard` is null.
    pub standard_reason: Option<String>,
    /// Where the packets of `queues` are from; null where nobody counts them.
    pub queue_source: Option<QueueSource>,
    /// What is unknown of the queues, and why.
    pub queue_reason: Option<String>,
    pub queues: Vec<NicQueue>,
}

/// What a device is set to. What its driver does not tell is null.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct NicSettings {
    /// Switched on, and with a link.
    pub carrier: bool,
    pub mtu: Option<u32>,
    /// Null also of a pair (veth), unless whoever made it noted the rate.
    pub speed_bits_per_second: Option<u64>,
    pub full_duplex: Option<bool>,
    pub rings: Option<Rings>,
    pub coalescing: Option<Coalescing>,
    pub flow_control: Option<FlowControl>,
    pub channels: Option<Channels>,
    /// Features that are on, by the kernel's names (`rx-gro`, `tx-tcp-segmentation`).
    pub offloads: Option<Vec<String>>,
    /// Key, fields and table of receive-side scaling.
    pub rss: Option<DeviceSpreading>,
}

/// Which way packets go.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    Rx,
    Tx,
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Rx => "rx",
            Self::Tx => "tx",
        })
    }
}

/// Why a device or its driver dropped packets.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum NicDropKind {
    /// The ring had no free descriptor: the host was too slow to fetch packets.
    NoBuffer,
    /// The device's own memory was full, as where the bus or the host was too slow.
    Missed,
    /// The driver had no memory for the packet or for a new buffer, of which it may have got one later.
    AllocFailed,
    /// The packet was damaged or malformed, or too long.
    Error,
    /// A rate limit of the device, or of the cloud.
    RateLimit,
    /// There was no link.
    LinkDown,
    /// An XDP program dropped it.
    Xdp,
    /// The driver does not say.
    Unspecified,
}

impl NicDropKind {
    /// Whether a sound packet was certainly lost: not where a program decided so, the packet was damaged, the driver tried
    /// again to get memory, or a limit may only have queued it.
    #[must_use]
    pub fn is_loss(self) -> bool {
        matches!(self, Self::NoBuffer | Self::Missed | Self::LinkDown | Self::Unspecified)
    }

    /// For people.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::NoBuffer => "no buffer",
            Self::Missed => "missed",
            Self::AllocFailed => "allocation failed",
            Self::Error => "error",
            Self::RateLimit => "rate limit",
            Self::LinkDown => "link down",
            Self::Xdp => "XDP",
            Self::Unspecified => "unspecified",
        }
    }
}

/// Packets dropped for one cause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NicDrops {
    pub direction: Direction,
    pub kind: NicDropKind,
    pub packets: u64,
}

/// Frames by which one end of a wire stops the other (IEEE 802.3, annex 31B).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PauseFrames {
    /// The other end stopped this one. Null where the driver does not count them.
    pub rx: Option<u64>,
    /// This end stopped the other.
    pub tx: Option<u64>,
    pub source: PauseSource,
}

/// Who counted pause frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PauseSource {
    /// The kernel's own interface (`ethtool --include-statistics --show-pause`).
    Standard,
    /// The driver's counters (`ethtool -S`), of which some are XON and XOFF frames.
    Driver,
}

/// What the driver counts under the names of IEEE 802.3 and RFC 2819 (`ethtool -S DEV --all-groups`), the same for all
/// drivers, in the window.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct StandardCounters {
    /// Those that the driver has.
    pub counters: Vec<StandardCounter>,
    /// Frames by length; empty where the driver does not count them.
    pub frame_sizes: Vec<FrameSizes>,
}

/// One counter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StandardCounter {
    pub group: StandardGroup,
    /// As the standard names it, without its prefix `a`: `FrameCheckSequenceErrors`.
    pub name: String,
    pub count: u64,
}

/// Groups of standard counters.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum StandardGroup {
    /// IEEE 802.3, 30.3.2: the PHY.
    EthPhy,
    /// IEEE 802.3, 30.3.1: the MAC.
    EthMac,
    /// IEEE 802.3, 30.3.3: MAC control frames, of which pause frames are one kind.
    EthCtrl,
    /// RFC 2819.
    Rmon,
}

impl StandardGroup {
    /// As ethtool(8) names it.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::EthPhy => "eth-phy",
            Self::EthMac => "eth-mac",
            Self::EthCtrl => "eth-ctrl",
            Self::Rmon => "rmon",
        }
    }
}

/// Frames of one direction with a length in a range, in octets with the checksum (FCS).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FrameSizes {
    pub direction: Direction,
    pub low: u32,
    /// Null for all that are longer.
    pub high: Option<u32>,
    pub frames: u64,
}

/// Who counted the packets of each queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum QueueSource {
    /// The kernel's own interface (netdev netlink), whose names are the same for all drivers.
    Netdev,
    /// The driver's counters (`ethtool -S`), translated.
    Driver,
}

/// One queue of one direction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NicQueue {
    pub direction: Direction,
    pub queue: u32,
    /// In the window; null where nobody counts them by queue.
    pub packets: Option<u64>,
    pub bytes: Option<u64>,
    pub packets_per_second: Option<f64>,
    /// Losses among `drops` (no buffer, missed, rate limit, link down, unspecified); null where nobody counts them by
    /// queue.
    pub dropped: Option<u64>,
    /// By cause; those that are 0 are left out.
    pub drops: Vec<NicDrops>,
    /// Number of the interrupt that serves it; null for a virtual device.
    pub irq: Option<u32>,
    /// CPUs that this interrupt goes to, at the end of the window.
    pub cpus: Option<Vec<u32>>,
    /// NUMA nodes of these CPUs.
    pub numa_nodes: Option<Vec<u32>>,
    /// Byte queue limits; null for queues that receive, and where the driver does not use them.
    pub bql: Option<QueueLimit>,
}

/// Byte queue limits (BQL) of one queue that sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QueueLimit {
    /// Bytes that may be given to the device and not yet sent, at the end of the window.
    pub limit_bytes: u64,
    /// The least and the most of all readings in the window.
    pub limit_min_bytes: u64,
    pub limit_max_bytes: u64,
    /// The most bytes given to the device and not yet sent, of all readings.
    pub inflight_max_bytes: u64,
    /// Times the queue was stalled longer than its threshold; null where the kernel does not count them.
    pub stalls: Option<u64>,
}

/// A setting that differs between the edges of the window.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NicChange {
    pub kind: NicChangeKind,
    /// What of it, as `speed` or `tx-tcp-segmentation`.
    pub setting: String,
    pub before: String,
    pub after: String,
}

/// Kinds of changes, each with a warning of its own cause.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum NicChangeKind {
    /// Speed, duplex, carrier: the wire.
    Link,
    /// What somebody or the driver set.
    Setting,
    /// CPUs of an interrupt.
    Interrupt,
}

impl fmt::Display for NicChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} from {} to {}", self.setting, self.before, self.after)
    }
}

const NO_DEVICE: &str = "the network namespace has no device but lo";

impl NicSection {
    fn drops(&self, of: fn(&NicDevice) -> u64) -> Result<f64, String> {
        match self.devices.is_empty() {
            true => Err(NO_DEVICE.to_owned()),
            false => Ok(self.devices.iter().map(of).sum::<u64>() as f64),
        }
    }

    /// Of the devices that count pause frames.
    fn pause(&self, of: fn(&PauseFrames) -> Option<u64>) -> Result<f64, String> {
        let counted = |device: &NicDevice| device.pause.as_ref().and_then(of);
        let all: Vec<u64> = self.devices.iter().filter_map(counted).collect();
        match all.is_empty() {
            true => Err("no device counts pause frames".to_owned()),
            false => Ok(all.iter().sum::<u64>() as f64),
        }
    }
}

impl Observation for NicSection {
    const METRICS: &'static [MetricDef<Self>] = &[
        reading(
            "nic.rx_drops",
            Count,
            Lower,
            MetricScope::Namespace,
            "received packets that devices and their drivers dropped",
            Value::One(|s| s.drops(|device| device.rx_drops)),
        ),
        reading(
            "nic.tx_drops",
            Count,
            Lower,
            MetricScope::Namespace,
            "packets to send that devices and their drivers dropped",
            Value::One(|s| s.drops(|device| device.tx_drops)),
        ),
        reading(
            "nic.pause_rx",
            Count,
            Lower,
            MetricScope::Namespace,
            "pause frames received: the other end of the wire stopped this host",
            Value::One(|s| s.pause(|pause| pause.rx)),
        ),
        reading(
            "nic.pause_tx",
            Count,
            Lower,
            MetricScope::Namespace,
            "pause frames sent: this host stopped the other end of the wire",
            Value::One(|s| s.pause(|pause| pause.tx)),
        ),
        reading(
            "nic.changes",
            Count,
            Neither,
            MetricScope::Namespace,
            "settings of devices that changed during the window",
            Value::One(|s| Ok(s.devices.iter().map(|d| d.changes.len()).sum::<usize>() as f64)),
        ),
    ];

    fn document(&self) -> Vec<Section> {
        document::sections(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metric(of: &NicSection, name: &str) -> Result<f64, String> {
        let def = NicSection::METRICS.iter().find(|def| def.metric.name == name);
        match def.expect(name).value {
            Value::One(read) => read(of),
            Value::Named(_) => unreachable!("none has a name"),
        }
    }

    #[test]
    fn metrics_are_sums_of_the_devices_that_count() {
        let pause = |rx, tx| Some(PauseFrames { rx, tx, source: PauseSource::Standard });
        let device = |rx_drops, pause| NicDevice { rx_drops, pause, ..NicDevice::default() };
        let section = NicSection {
            devices: vec![
                device(5, pause(Some(10), None)),
                device(7, pause(Some(20), None)),
                device(0, None),
            ],
        };
        assert_eq!(metric(&section, "nic.rx_drops"), Ok(12.0));
        assert_eq!(metric(&section, "nic.tx_drops"), Ok(0.0));
        assert_eq!(metric(&section, "nic.pause_rx"), Ok(30.0));
        assert!(metric(&section, "nic.pause_tx").is_err(), "nobody counts those that are sent");
        assert_eq!(metric(&NicSection::default(), "nic.rx_drops"), Err(NO_DEVICE.to_owned()));
    }
}
