//! Links of a lab that the kernel makes by netem and tbf: what they can be, and what they have done.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Capacity, Conditions, Discipline, LinkSpec, Topology, WIRE_OVERHEAD};

/// What makes the links of a lab.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    /// The kernel, by the queueing disciplines netem and tbf.
    Netem,
    /// A process.
    Emulator,
}

impl Backend {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Netem => "netem",
            Self::Emulator => "emulator",
        }
    }
}

/// What is to make the links of a lab.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum BackendChoice {
    /// netem where the kernel has it and it can make the links, the emulator elsewhere.
    #[default]
    Auto,
    Only(Backend),
}

impl std::str::FromStr for BackendChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "netem" => Ok(Self::Only(Backend::Netem)),
            "emulator" => Ok(Self::Only(Backend::Emulator)),
            _ => Err("must be auto, netem or emulator".to_owned()),
        }
    }
}

impl LinkSpec {
    /// The first key of these links that netem does not have, or has in another meaning. Of packets, at least
    /// `smallest_reorder` can be reordered.
    #[must_use]
    pub fn beyond_netem(&self, smallest_reorder: f64) -> Option<&'static str> {
        if self.nic.is_some() {
            return Some("queues, ring, coalesce, pause and rss");
        }
        if !self.host_rtt_nanoseconds.is_empty() {
            return Some("host-rtt");
        }
        let lines = [&self.forward, &self.back];
        lines.into_iter().find_map(|line| line.beyond_netem(smallest_reorder))
    }
}

impl Conditions {
    fn beyond_netem(&self, smallest_reorder: f64) -> Option<&'static str> {
        match self.capacity {
            Capacity::Steps(_) | Capacity::Opportunities(_) => return Some("trace"),
            Capacity::Unlimited | Capacity::Rate(_) => {}
        }
        if self.jitter_nanoseconds > 0 {
            // Each packet has a delay of its own, so packets overtake others.
            return Some("jitter");
        }
        if self.discipline == Discipline::CoDel {
            // The limit of sch_codel is a number of packets, and that of a queue is in bytes.
            return Some("aqm=codel");
        }
        if self.cross_bits_per_second > 0 {
            return Some("cross");
        }
        (self.reorder > 0.0 && self.reorder < smallest_reorder).then_some("so small a reorder")
    }
}

/// Counters of a queueing discipline; all but the backlog since it was made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QdiscCounts {
    /// `tbf`, the queue and the transmitter; or `netem`, the delay line behind it.
    pub kind: String,
    /// Device of the lab's switch.
    pub device: String,
    /// Sent, and their bytes (IP).
    pub packets: u64,
    pub bytes: u64,
    /// tbf: did not fit into the queue. netem: were lost.
    pub drops: u64,
    /// How often it had packets and was not to send yet.
    pub overlimits: u64,
    /// In it when its counters were read, and their bytes (IP).
    pub backlog_packets: u64,
    pub backlog_bytes: u64,
}

impl QdiscCounts {
    /// What has happened since earlier counts; the backlog is the same.
    #[must_use]
    fn since(&self, earlier: &Self) -> Self {
        // The kernel counts these two in 32 bits.
        let wrapped =
            |after: u64, before: u64| u64::from((after as u32).wrapping_sub(before as u32));
        Self {
            packets: self.packets.saturating_sub(earlier.packets),
            bytes: self.bytes.saturating_sub(earlier.bytes),
            drops: wrapped(self.drops, earlier.drops),
            overlimits: wrapped(self.overlimits, earlier.overlimits),
            ..self.clone()
        }
    }
}

/// A direction of a link and its queueing disciplines, in the order in which packets pass them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NetemLine {
    /// `forward`, `back`, or where it leads, as `to h2`.
    pub name: String,
    pub qdiscs: Vec<QdiscCounts>,
}

impl NetemLine {
    /// What has happened since earlier counts.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let none = QdiscCounts::default();
        let of = |(place, qdisc): (usize, &QdiscCounts)| {
            qdisc.since(earlier.qdiscs.get(place).unwrap_or(&none))
        };
        Self { name: self.name.clone(), qdiscs: self.qdiscs.iter().enumerate().map(of).collect() }
    }

    /// Bits on the wire: what the first of its queueing disciplines has sent.
    #[must_use]
    pub fn wire_bits(&self) -> u64 {
        let sent = |qdisc: &QdiscCounts| qdisc.bytes + qdisc.packets * u64::from(WIRE_OVERHEAD);
        self.qdiscs.first().map_or(0, sent) * 8
    }
}

/// Counters at an instant of the machine's monotonic clock, nanoseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NetemSample {
    pub at: u64,
    pub lines: Vec<NetemLine>,
}

/// What is known of such links of a run when it ends.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NetemOutcome {
    pub topology: Topology,
    pub link: LinkSpec,
    /// In the order of time.
    pub samples: Vec<NetemSample>,
}

/// Links by netem in the window of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NetemReport {
    pub topology: Topology,
    pub link: LinkSpec,
    /// Between the readings of its counters within the window.
    pub seconds: f64,
    pub lines: Vec<NetemLineReport>,
    /// What the kernel does not tell of such links.
    pub unknown: Vec<String>,
}

/// What the kernel does not tell of links by netem, and the emulator does of its own.
pub const UNKNOWN_OF_NETEM: [&str; 4] = [
    "how late packets were released",
    "the CPU time of the links, which is part of the cost of hosts and machines",
    "reordered and duplicated packets",
    "the longest queue",
];

/// One direction of a link in the window of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NetemLineReport {
    #[serde(flatten)]
    pub line: NetemLine,
    /// Bits on the wire per second that left the queue, lost packets included.
    pub bits_per_second: f64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::keys::{Typed, resolve};

    fn beyond(keys: &str) -> Option<&'static str> {
        let mut typed = Typed::default();
        for pair in keys.split_whitespace() {
            let (name, value) = pair.split_once('=').unwrap();
            typed.set(name, value).unwrap();
        }
        let read = |_: &std::path::Path| Ok("0\n10\n".to_owned());
        resolve(&typed, &Typed::default(), read).unwrap().beyond_netem(1e-4)
    }

    #[test]
    fn netem_makes_links_without_what_it_lacks() {
        let plain =
            "rate=10mbit rtt=20ms loss=1% loss-burst=4 reorder=0.1% duplicate=1% queue=2bdp";
        assert_eq!(beyond(plain), None);
        for (keys, lacking) in [
            ("rtt=20ms jitter=1ms", "jitter"),
            ("trace=lte", "trace"),
            ("rate=1gbit aqm=codel", "aqm=codel"),
            ("rate=1gbit cross=10%", "cross"),
            ("rtt=20ms reorder=0.00001", "so small a reorder"),
            ("host-rtt=h2=20ms", "host-rtt"),
            ("ring=64", "queues, ring, coalesce, pause and rss"),
        ] {
            assert_eq!(beyond(keys), Some(lacking), "{keys}");
        }
    }

    #[test]
    fn counters_of_32_bits_may_wrap() {
        let before = QdiscCounts {
            packets: 10,
            bytes: 10_000,
            drops: u64::from(u32::MAX),
            backlog_packets: 3,
            ..QdiscCounts::default()
        };
        let after = QdiscCounts { packets: 30, bytes: 40_000, drops: 4, ..before.clone() };
        let between = after.since(&before);
        assert_eq!((between.packets, between.drops, between.backlog_packets), (20, 5, 3));
        let line = NetemLine { name: "forward".to_owned(), qdiscs: vec![between] };
        assert_eq!(line.wire_bits(), 8 * (30_000 + 20 * 38));
    }
}
