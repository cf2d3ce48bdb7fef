//! Where packets were dropped: by the kernel's counters, and packet by packet as it freed them.

mod document;
mod reason;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{MetricDef, MetricScope, Observation, Value, counted, reading};
use crate::document::Section;
use crate::metric::Better::{Lower, Neither};
use crate::metric::Unit::Count;

/// What the probe `drops` says. A packet that is dropped may be in several counters, so these are never
/// added up; in `traced` it is once.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct DropsSection {
    /// Packets as the kernel freed them; null where only counters were read.
    pub traced: Option<TracedDrops>,
    /// Devices of the network namespace. Null where they could not be read, as `queueing_disciplines` and
    /// `counters`.
    pub devices: Option<Vec<DeviceDrops>>,
    /// Root queueing disciplines of the devices; what their classes and queues dropped is in it.
    pub queueing_disciplines: Option<Vec<QdiscDrops>>,
    /// The backlogs of all CPUs of the machine, for all network namespaces.
    pub backlog: Option<Vec<BacklogDrops>>,
    /// What the protocols of the network namespace count: all such counters that this kernel has.
    pub counters: Option<Vec<CounterDrops>>,
    /// Connection tracking in the network namespace; null where the kernel has none, or it could not be read.
    pub connection_tracking: Option<ConntrackDrops>,
    /// The neighbour tables of the machine (ARP, NDISC), for all network namespaces. Null where they could not be
    /// read.
    pub neighbour_tables: Option<Vec<NeighbourDrops>>,
}

/// Packets that the kernel freed as dropped (tracepoint `skb:kfree_skb`), in packets as on a wire: one of
/// several segments is as many.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct TracedDrops {
    /// Sum of `sites` with the outcome `lost`.
    pub lost_packets: u64,
    /// Each reason and call site of the network namespace, most packets first.
    pub sites: Vec<DropSite>,
    /// The same of packets that no longer led to a network namespace: they are of any.
    pub unattributed: Vec<DropSite>,
    /// Freed packets (of any number of segments) that were not counted, as the table was full. They are of
    /// the namespaces that were observed, or of none that is known.
    pub uncounted: u64,
}

/// One reason at one place in the kernel's code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DropSite {
    /// As the kernel names it, without `SKB_DROP_REASON_`; `OPENVSWITCH:3` where it names only the
    /// subsystem.
    pub reason: String,
    pub place: DropPlace,
    pub outcome: DropOutcome,
    /// The function that gave up the packet; null where the names of functions are hidden.
    pub function: Option<String>,
    /// From the beginning of the function to behind the call, as addr2line(1) takes it; the address where
    /// there is no function.
    pub offset: u64,
    /// Its module; null for the kernel's own.
    pub module: Option<String>,
    pub packets: u64,
    /// The same as the kernel handled them: one of several segments is one.
    pub skbs: u64,
    /// From the header on that was next when the packet was dropped.
    pub bytes: u64,
}

/// In which part of the stack.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum DropPlace {
    /// The device or its driver.
    Device,
    /// The queue of a CPU between driver and stack (`net.core.netdev_max_backlog`).
    Backlog,
    Qdisc,
    /// Rules and programs: netfilter, XDP, BPF, traffic control, IPsec policies, security modules.
    Filter,
    /// Headers, routes, neighbours, fragments.
    Ip,
    /// TCP, UDP, ICMP: checksums, sequence numbers, connections.
    Transport,
    /// Nobody listens on the port.
    NoSocket,
    /// Receive buffer, backlog and memory of a socket.
    SocketBuffer,
    /// The kernel does not say.
    Other,
}

/// What became of a packet that was freed as dropped.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum DropOutcome {
    Lost,
    /// It had arrived, and its queue was emptied: mostly that of a socket that closed.
    Purged,
    /// The same data had been received before.
    Duplicate,
    /// It was another host's: the device passed on what was not addressed to it.
    NotForHost,
    /// Part of a packet that was freed with it, which is counted where that was.
    Part,
}

/// What one device counted (rtnetlink), and its driver (`ethtool -S`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct DeviceDrops {
    pub device: String,
    /// For want of a buffer of the host's: the ring was full.
    pub rx_missed: u64,
    /// By the driver or the stack behind it, as for want of memory.
    pub rx_dropped: u64,
    pub rx_errors: u64,
    /// Among `rx_errors` on many devices: overflows, bad lengths, checksums and frames.
    pub rx_over: u64,
    pub rx_fifo: u64,
    pub rx_length: u64,
    pub rx_crc: u64,
    pub rx_frame: u64,
    /// Nobody took them, as those of an inactive port.
    pub rx_nohandler: u64,
    pub tx_dropped: u64,
    pub tx_errors: u64,
    pub tx_fifo: u64,
    pub tx_carrier: u64,
    /// Counters of the driver that grew and whose names tell of drops, those of its queues included.
    pub driver: Vec<NamedDrops>,
}

impl DeviceDrops {
    /// Packets, without errors, which drivers count in ways of their own.
    fn packets(&self) -> u64 {
        self.rx_missed + self.rx_dropped + self.tx_dropped
    }

    /// What it counted, by name.
    fn named(&self) -> [(&'static str, u64); 13] {
        [
            ("rx missed", self.rx_missed),
            ("rx dropped", self.rx_dropped),
            ("rx errors", self.rx_errors),
            ("rx over", self.rx_over),
            ("rx fifo", self.rx_fifo),
            ("rx length", self.rx_length),
            ("rx crc", self.rx_crc),
            ("rx frame", self.rx_frame),
            ("rx nohandler", self.rx_nohandler),
            ("tx dropped", self.tx_dropped),
            ("tx errors", self.tx_errors),
            ("tx fifo", self.tx_fifo),
            ("tx carrier", self.tx_carrier),
        ]
    }
}

/// A counter of a driver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NamedDrops {
    pub name: String,
    pub count: u64,
}

/// The root queueing discipline of a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QdiscDrops {
    pub device: String,
    pub kind: String,
    /// As it counts: most count a packet of several segments once.
    pub packets: u64,
}

/// The backlog of one CPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BacklogDrops {
    pub cpu: u32,
    /// Those of the flow limit included.
    pub packets: u64,
    /// By the flow limit; null where the kernel does not tell it.
    pub flow_limited: Option<u64>,
}

/// A counter of a protocol.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CounterDrops {
    /// As /proc/net/snmp, netstat and snmp6 name it.
    pub name: String,
    pub place: DropPlace,
    pub packets: u64,
}

/// Packets that connection tracking (conntrack) dropped, and how full its table was.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct ConntrackDrops {
    /// Packets: the table was full, or the new connection clashed with one in the table.
    pub dropped: u64,
    /// New connections that could not be entered: clashes, as where NAT has no free port (also in `dropped`), and chains
    /// that were too long (not in `dropped`).
    pub insert_failed: u64,
    /// Packets (not in `dropped`): the new connection's chain of the hash table was too long. 0 before Linux 5.15, which
    /// has no such limit.
    pub chain_too_long: u64,
    /// Connections (not packets) that were evicted from the full table to make room for a new one.
    pub early_dropped: u64,
    /// Connections in the table of the namespace when the window ended.
    pub entries: u32,
    /// How many a namespace may have (`net.netfilter.nf_conntrack_max`); null where it could not be read.
    pub limit: Option<u32>,
}

/// Packets that one neighbour table of the machine dropped, and how full it was.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct NeighbourDrops {
    /// `arp_cache` (IPv4) or `ndisc_cache` (IPv6).
    pub table: String,
    /// Times that a new neighbour found no room. The packet that needed it was dropped.
    pub table_fulls: u64,
    /// Packets that waited for the address of a neighbour and were pushed out of its queue
    /// (`net.ipv4.neigh.DEV.unres_qlen_bytes`).
    pub unresolved_discards: Option<u64>,
    /// Why `unresolved_discards` is null.
    pub unresolved_reason: Option<String>,
    /// Neighbours in the table when the window ended, permanent ones included.
    pub entries: u32,
    /// How many it takes, without permanent ones (`net.ipv4.neigh.default.gc_thresh3`).
    pub limit: u32,
}

const NOT_TRACED: &str = "`drops:basic` reads only counters, of which several count the same packet: use \
                          `--observe drops` (BPF)";

impl DropsSection {
    fn traced(&self) -> Result<&TracedDrops, String> {
        self.traced.as_ref().ok_or_else(|| NOT_TRACED.to_owned())
    }

    /// Of these counters, of which IPv4 and IPv6 have one each.
    fn counter(&self, names: &[&str]) -> Result<f64, String> {
        let counters = self.counters.as_ref().ok_or("the counters could not be read")?;
        let of_them = counters.iter().filter(|of| names.contains(&of.name.as_str()));
        Ok(of_them.map(|of| of.packets).sum::<u64>() as f64)
    }

    /// What was lost in one line, as `19,969 packets: socket buffer 19,969 (udp_queue_rcv_one_skb)`; none
    /// where nothing was.
    #[must_use]
    pub fn brief(&self) -> Option<String> {
        document::brief(self)
    }
}

impl TracedDrops {
    /// Packets of its namespace with an outcome.
    #[must_use]
    pub fn packets(&self, outcome: DropOutcome) -> u64 {
        let sites = self.sites.iter().filter(|site| site.outcome == outcome);
        sites.map(|site| site.packets).sum()
    }
}

/// What the kernel's freed packets were, by reason and function.
#[must_use]
pub fn classify_drop(reason: &str, function: Option<&str>) -> (DropPlace, DropOutcome) {
    let place = match function {
        Some(function) if reason == "NOT_SPECIFIED" && reason::runs_xdp(function) => {
            DropPlace::Filter
        }
        _ => reason::place(reason),
    };
    (place, reason::outcome(reason, function))
}

impl Observation for DropsSection {
    const METRICS: &'static [MetricDef<Self>] = &[
        reading(
            "drops",
            Count,
            Lower,
            MetricScope::Namespace,
            "packets that the kernel dropped in the window",
            Value::One(|s| Ok(s.traced()?.lost_packets as f64)),
        ),
        reading(
            "drops.purged",
            Count,
            Neither,
            MetricScope::Namespace,
            "packets that were freed unread when their queue was emptied, as when a socket closed",
            Value::One(|s| Ok(s.traced()?.packets(DropOutcome::Purged) as f64)),
        ),
        reading(
            "drops.device",
            Count,
            Lower,
            MetricScope::Namespace,
            "packets that devices count as missed or dropped, in both directions",
            Value::One(|s| {
                let packets =
                    s.devices.as_ref().map(|of| of.iter().map(DeviceDrops::packets).sum());
                counted(packets, "the devices could not be read")
            }),
        ),
        reading(
            "drops.qdisc",
            Count,
            Lower,
            MetricScope::Namespace,
            "packets that queueing disciplines dropped",
            Value::One(|s| {
                let qdiscs = s.queueing_disciplines.as_ref();
                let packets = qdiscs.map(|of| of.iter().map(|qdisc| qdisc.packets).sum());
                counted(packets, "the queueing disciplines could not be read")
            }),
        ),
        reading(
            "drops.backlog",
            Count,
            Lower,
            MetricScope::Kernel,
            "packets that found no room in the backlog of a CPU, of all network namespaces",
            Value::One(|s| {
                let packets = s.backlog.as_ref().map(|of| of.iter().map(|cpu| cpu.packets).sum());
                counted(packets, "/proc/net/softnet_stat could not be read")
            }),
        ),
        reading(
            "drops.socket_buffer",
            Count,
            Lower,
            MetricScope::Namespace,
            "datagrams that found no room in the receive buffer of a UDP socket",
            Value::One(|s| s.counter(&["Udp.RcvbufErrors", "Udp6RcvbufErrors"])),
        ),
        reading(
            "drops.conntrack",
            Count,
            Lower,
            MetricScope::Namespace,
            "packets that connection tracking dropped: its table was full, a connection clashed, or a chain was too long",
            Value::One(|s| {
                let dropped =
                    s.connection_tracking.as_ref().map(|of| of.dropped + of.chain_too_long);
                counted(dropped, "there is no connection tracking, or it could not be read")
            }),
        ),
        reading(
            "drops.neighbours",
            Count,
            Lower,
            MetricScope::Kernel,
            "times that a neighbour table (ARP, NDISC) was full, of all network namespaces",
            Value::One(|s| {
                let tables = s.neighbour_tables.as_ref();
                let fulls = tables.map(|of| of.iter().map(|table| table.table_fulls).sum());
                counted(fulls, "the neighbour tables could not be read")
            }),
        ),
    ];

    /// One pass may have read counters where another traced.
    fn merge(&mut self, later: Self) {
        if self.traced.is_none() {
            *self = later;
        }
    }

    fn document(&self) -> Vec<Section> {
        document::sections(self)
    }
}

/// Where in the stack, for people.
impl DropPlace {
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Backlog => "CPU backlog",
            Self::Qdisc => "qdisc",
            Self::Filter => "filter",
            Self::Ip => "IP",
            Self::Transport => "transport",
            Self::NoSocket => "no socket",
            Self::SocketBuffer => "socket buffer",
            Self::Other => "other",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metric(of: &DropsSection, name: &str) -> Result<f64, String> {
        let def = DropsSection::METRICS.iter().find(|def| def.metric.name == name);
        match def.expect(name).value {
            Value::One(read) => read(of),
            Value::Named(_) => unreachable!("none has a name"),
        }
    }

    fn counted_only() -> DropsSection {
        let counter = |name: &str, packets| CounterDrops {
            name: name.to_owned(),
            place: DropPlace::SocketBuffer,
            packets,
        };
        let device = |rx_missed, rx_dropped, tx_dropped| DeviceDrops {
            rx_missed,
            rx_dropped,
            tx_dropped,
            rx_errors: 10_000,
            ..DeviceDrops::default()
        };
        DropsSection {
            devices: Some(vec![device(1, 10, 100), device(2, 0, 0)]),
            counters: Some(vec![
                counter("Udp.RcvbufErrors", 5),
                counter("Udp6RcvbufErrors", 6),
                counter("Udp.MemErrors", 700),
            ]),
            ..DropsSection::default()
        }
    }

    #[test]
    fn counters_are_metrics_and_what_was_not_read_has_a_reason() {
        let section = counted_only();
        assert_eq!(metric(&section, "drops.device"), Ok(113.0));
        assert_eq!(metric(&section, "drops.socket_buffer"), Ok(11.0));
        let unread = [
            "drops",
            "drops.purged",
            "drops.qdisc",
            "drops.backlog",
            "drops.conntrack",
            "drops.neighbours",
        ];
        for unread in unread {
            assert!(metric(&section, unread).is_err(), "{unread}");
        }
        let lost = TracedDrops { lost_packets: 7, ..TracedDrops::default() };
        let traced = DropsSection { traced: Some(lost), ..DropsSection::default() };
        assert_eq!((metric(&traced, "drops"), metric(&traced, "drops.purged")), (Ok(7.0), Ok(0.0)));
        assert!(metric(&traced, "drops.device").is_err());
    }

    #[test]
    fn tables_that_were_full_are_metrics() {
        let table = |table_fulls| NeighbourDrops { table_fulls, ..NeighbourDrops::default() };
        let section = DropsSection {
            connection_tracking: Some(ConntrackDrops {
                dropped: 5,
                insert_failed: 4,
                chain_too_long: 2,
                early_dropped: 90,
                ..ConntrackDrops::default()
            }),
            neighbour_tables: Some(vec![table(3), table(4)]),
            ..DropsSection::default()
        };
        assert_eq!(metric(&section, "drops.conntrack"), Ok(7.0));
        assert_eq!(metric(&section, "drops.neighbours"), Ok(7.0));
    }

    #[test]
    fn a_pass_that_traced_says_more() {
        let traced = |lost_packets| DropsSection {
            traced: Some(TracedDrops { lost_packets, ..TracedDrops::default() }),
            ..DropsSection::default()
        };
        let mut first = counted_only();
        first.merge(traced(1));
        assert_eq!(first, traced(1));
        first.merge(counted_only());
        first.merge(traced(2));
        assert_eq!(first, traced(1), "the first pass is the headline");
    }
}
