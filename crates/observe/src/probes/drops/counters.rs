//! What devices, queueing disciplines and protocols of a network namespace count as dropped, between two
//! readings.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use wirecost_linux::conntrack::{self, Conntrack, ConntrackCounters};
use wirecost_linux::ethtool::Ethtool;
use wirecost_linux::link_statistics::{LinkStatistics, LinkStatisticsReader};
use wirecost_linux::neighbour_tables::NeighbourTable;
use wirecost_linux::net_counters::NetCounters;
use wirecost_linux::netns::{self, NetNs};
use wirecost_linux::qdisc::{Qdisc, QdiscStatistics, Qdiscs};
use wirecost_linux::softnet::Softnet;
use wirecost_model::observe::{
    BacklogDrops, ConntrackDrops, CounterDrops, DeviceDrops, DropPlace, NamedDrops, NeighbourDrops,
    QdiscDrops,
};

use crate::driver_counters::DriverStatistics;
use crate::probe::Namespace;

/// Counters of protocols, without those that are sums of others (`Udp.InErrors`). Full tables are parts of others:
/// `ReasmTimeout` of `ReasmFails`, whose rest is mostly memory (`ipfrag_high_thresh`), and `ListenOverflows` (the queue of
/// accept(2)) of `ListenDrops`.
const PROTOCOLS: &[(&str, DropPlace)] = &[
    ("Ip.InHdrErrors", DropPlace::Ip),
    ("Ip.InAddrErrors", DropPlace::Ip),
    ("Ip.InUnknownProtos", DropPlace::Ip),
    ("Ip.InDiscards", DropPlace::Ip),
    ("Ip.OutDiscards", DropPlace::Ip),
    ("Ip.OutNoRoutes", DropPlace::Ip),
    ("Ip.ReasmFails", DropPlace::Ip),
    ("Ip.ReasmTimeout", DropPlace::Ip),
    ("Ip.FragFails", DropPlace::Ip),
    ("IpExt.InNoRoutes", DropPlace::Ip),
    ("IpExt.InTruncatedPkts", DropPlace::Ip),
    ("IpExt.InCsumErrors", DropPlace::Ip),
    ("TcpExt.IPReversePathFilter", DropPlace::Ip),
    ("Ip6InHdrErrors", DropPlace::Ip),
    ("Ip6InTooBigErrors", DropPlace::Ip),
    ("Ip6InNoRoutes", DropPlace::Ip),
    ("Ip6InAddrErrors", DropPlace::Ip),
    ("Ip6InUnknownProtos", DropPlace::Ip),
    ("Ip6InTruncatedPkts", DropPlace::Ip),
    ("Ip6InDiscards", DropPlace::Ip),
    ("Ip6OutDiscards", DropPlace::Ip),
    ("Ip6OutNoRoutes", DropPlace::Ip),
    ("Ip6ReasmFails", DropPlace::Ip),
    ("Ip6ReasmTimeout", DropPlace::Ip),
    ("Ip6FragFails", DropPlace::Ip),
    ("Tcp.InErrs", DropPlace::Transport),
    ("Tcp.InCsumErrors", DropPlace::Transport),
    ("TcpExt.ListenDrops", DropPlace::Transport),
    ("TcpExt.ListenOverflows", DropPlace::Transport),
    ("TcpExt.TCPReqQFullDrop", DropPlace::Transport),
    ("TcpExt.TCPDeferAcceptDrop", DropPlace::Transport),
    ("TcpExt.TCPMinTTLDrop", DropPlace::Transport),
    ("TcpExt.TCPBacklogDrop", DropPlace::SocketBuffer),
    ("TcpExt.TCPRcvQDrop", DropPlace::SocketBuffer),
    ("TcpExt.TCPOFODrop", DropPlace::SocketBuffer),
    ("TcpExt.OfoPruned", DropPlace::SocketBuffer),
    ("TcpExt.RcvPruned", DropPlace::SocketBuffer),
    ("TcpExt.TCPZeroWindowDrop", DropPlace::SocketBuffer),
    ("TcpExt.PFMemallocDrop", DropPlace::SocketBuffer),
    ("Udp.NoPorts", DropPlace::NoSocket),
    ("Udp.InCsumErrors", DropPlace::Transport),
    ("Udp.RcvbufErrors", DropPlace::SocketBuffer),
    ("Udp.MemErrors", DropPlace::SocketBuffer),
    ("Udp6NoPorts", DropPlace::NoSocket),
    ("Udp6InCsumErrors", DropPlace::Transport),
    ("Udp6RcvbufErrors", DropPlace::SocketBuffer),
    ("Udp6MemErrors", DropPlace::SocketBuffer),
];

/// Parts of the names that drivers give counters of drops, as `rx_out_of_buffer` of mlx5.
const OF_DRIVERS: [&str; 10] = [
    "allowance_exceeded",
    "alloc_err",
    "alloc_fail",
    "discard",
    "drop",
    "missed",
    "no_buf",
    "no_dma",
    "out_of_buffer",
    "overrun",
];

/// Reads what one namespace counts: its sockets belong to it.
#[derive(Debug)]
pub(super) struct Counters {
    inode: u32,
    process: PathBuf,
    sockets: Result<Sockets, String>,
}

#[derive(Debug)]
struct Sockets {
    links: LinkStatisticsReader,
    qdiscs: Qdiscs,
    ethtool: Ethtool,
    /// None where connection tracking is not loaded.
    conntrack: Result<Option<Conntrack>, String>,
}

/// What it counted until an instant.
#[derive(Debug, Default)]
pub(super) struct Reading {
    links: Option<BTreeMap<u32, (String, LinkStatistics)>>,
    qdiscs: Option<BTreeMap<u32, (Qdisc, QdiscStatistics)>>,
    protocols: Option<NetCounters>,
    conntrack: Option<ConntrackCounters>,
    drivers: BTreeMap<String, BTreeMap<String, u64>>,
    /// What could not be read.
    pub(super) missing: Vec<String>,
}

impl Counters {
    pub(super) fn open(namespace: &Namespace) -> Self {
        let open = || {
            let there = NetNs::open_path(&namespace.process.join("ns/net"))
                .map_err(|error| error.to_string())?;
            netns::run_in(&there, || Sockets::open(&namespace.process))
                .and_then(|opened| opened)
                .map_err(|error| error.to_string())
        };
        Self { inode: namespace.inode, process: namespace.process.clone(), sockets: open() }
    }

    /// What is quick to read.
    pub(super) fn read(&self) -> Reading {
        let mut reading = Reading::default();
        match &self.sockets {
            Ok(sockets) => {
                reading.links = told("devices", sockets.links.read(), &mut reading.missing);
                let qdiscs = sockets.qdiscs.statistics();
                reading.qdiscs = told("queueing disciplines", qdiscs, &mut reading.missing);
                let tracking = match &sockets.conntrack {
                    Ok(tracking) => tracking.as_ref().map(Conntrack::read).transpose(),
                    Err(error) => Err(io::Error::other(error.clone())),
                };
                reading.conntrack =
                    told("connection tracking", tracking, &mut reading.missing).flatten();
            }
            Err(error) => reading.missing.push(format!("drops of devices: {error}")),
        }
        let protocols = NetCounters::with_ipv6_of(&self.process);
        reading.protocols = told("protocols", protocols, &mut reading.missing);
        reading
    }

    /// What drivers say, of which some ask their device.
    pub(super) fn ask_drivers(&self, reading: &mut Reading, known: &DriverStatistics) {
        let Ok(sockets) = &self.sockets else { return };
        for (name, _) in reading.links.iter().flat_map(BTreeMap::values) {
            // Many a driver has no counters of its own.
            let told = known.of(self.inode, name, || sockets.ethtool.statistics(name));
            if let Some(statistics) = told {
                let mut statistics = Arc::unwrap_or_clone(statistics);
                statistics.retain(|name, _| OF_DRIVERS.iter().any(|part| name.contains(part)));
                reading.drivers.insert(name.clone(), statistics);
            }
        }
    }
}

impl Sockets {
    fn open(process: &Path) -> io::Result<Self> {
        Ok(Self {
            links: LinkStatisticsReader::open()?,
            qdiscs: Qdiscs::open()?,
            ethtool: Ethtool::open()?,
            conntrack: Conntrack::open(process).map_err(|error| error.to_string()),
        })
    }
}

fn told<T>(what: &str, read: io::Result<T>, missing: &mut Vec<String>) -> Option<T> {
    read.map_err(|error| missing.push(format!("drops of {what}: {error}"))).ok()
}

/// The devices that are wanted. One that came in the window has counted from its beginning.
pub(super) fn devices(
    before: &Reading,
    after: &Reading,
    wanted: impl Fn(&str) -> bool,
) -> Option<Vec<DeviceDrops>> {
    let earlier = before.links.as_ref()?;
    let links = after.links.as_ref()?.iter().filter(|(_, (name, _))| wanted(name));
    let devices = links.map(|(index, (name, now))| {
        let then = earlier.get(index).map(|(_, then)| *then).unwrap_or_default();
        let grown = |of: fn(&LinkStatistics) -> u64| of(now).saturating_sub(of(&then));
        DeviceDrops {
            device: name.clone(),
            rx_missed: grown(|of| of.rx_missed_errors),
            rx_dropped: grown(|of| of.rx_dropped),
            rx_errors: grown(|of| of.rx_errors),
            rx_over: grown(|of| of.rx_over_errors),
            rx_fifo: grown(|of| of.rx_fifo_errors),
            rx_length: grown(|of| of.rx_length_errors),
            rx_crc: grown(|of| of.rx_crc_errors),
            rx_frame: grown(|of| of.rx_frame_errors),
            rx_nohandler: grown(|of| of.rx_nohandler),
            tx_dropped: grown(|of| of.tx_dropped),
            tx_errors: grown(|of| of.tx_errors),
            tx_fifo: grown(|of| of.tx_fifo_errors),
            tx_carrier: grown(|of| of.tx_carrier_errors),
            driver: driver(before.drivers.get(name), after.drivers.get(name)),
        }
    });
    Some(devices.collect())
}

fn driver(
    before: Option<&BTreeMap<String, u64>>,
    after: Option<&BTreeMap<String, u64>>,
) -> Vec<NamedDrops> {
    let counters = after.into_iter().flatten().map(|(name, now)| {
        let then = before.and_then(|before| before.get(name)).copied().unwrap_or(0);
        NamedDrops { name: name.clone(), count: now.saturating_sub(then) }
    });
    counters.filter(|drops| drops.count > 0).collect()
}

/// Those of the devices that are wanted. One that was set in the window has counted since then.
pub(super) fn qdiscs(
    before: &Reading,
    after: &Reading,
    wanted: impl Fn(&str) -> bool,
) -> Option<Vec<QdiscDrops>> {
    let (earlier, names) = (before.qdiscs.as_ref()?, after.links.as_ref()?);
    let qdiscs = after.qdiscs.as_ref()?.iter().filter_map(|(index, (qdisc, now))| {
        let (device, _) = names.get(index)?;
        let same = earlier
            .get(index)
            .filter(|(then, _)| (&then.kind, then.handle) == (&qdisc.kind, qdisc.handle));
        let then = same.map_or(0, |(_, then)| then.drops);
        let packets = now.drops.wrapping_sub(then).into();
        Some(QdiscDrops { device: device.clone(), kind: qdisc.kind.clone(), packets })
    });
    Some(qdiscs.filter(|drops| wanted(&drops.device)).collect())
}

/// Counters that this kernel has.
pub(super) fn protocols(before: &Reading, after: &Reading) -> Option<Vec<CounterDrops>> {
    let (before, after) = (before.protocols.as_ref()?, after.protocols.as_ref()?);
    let counters = PROTOCOLS.iter().filter_map(|(name, place)| {
        let packets = after.since(before, name)?;
        Some(CounterDrops { name: (*name).to_owned(), place: *place, packets })
    });
    Some(counters.collect())
}

/// Connection tracking that was there at both instants. Its counters have 32 bits.
pub(super) fn conntrack(before: &Reading, after: &Reading) -> Option<ConntrackDrops> {
    let (before, after) = (before.conntrack?, after.conntrack?);
    Some(ConntrackDrops {
        dropped: after.drop.wrapping_sub(before.drop).into(),
        insert_failed: after.insert_failed.wrapping_sub(before.insert_failed).into(),
        chain_too_long: after.chain_too_long.wrapping_sub(before.chain_too_long).into(),
        early_dropped: after.early_drop.wrapping_sub(before.early_drop).into(),
        entries: after.entries,
        limit: conntrack::limit(),
    })
}

/// <https://elixir.bootlin.com/linux/v6.12/source/net/core/neighbour.c>, `neigh_table_init`.
const NOT_HERE: &str = "only the machine's first network namespace has /proc/net/stat/arp_cache and \
                        ndisc_cache";

/// What the tables of the machine counted.
pub(super) fn neighbours(
    before: &BTreeMap<String, NeighbourTable>,
    after: &BTreeMap<String, NeighbourTable>,
) -> Vec<NeighbourDrops> {
    let tables = after.iter().filter_map(|(name, now)| {
        let then = before.get(name)?;
        let discards = now.unresolved_discards.zip(then.unresolved_discards);
        Some(NeighbourDrops {
            table: name.clone(),
            table_fulls: now.table_fulls.saturating_sub(then.table_fulls),
            unresolved_discards: discards.map(|(now, then)| now.saturating_sub(then)),
            unresolved_reason: discards.is_none().then(|| NOT_HERE.to_owned()),
            entries: now.entries,
            limit: now.limit,
        })
    });
    tables.collect()
}

/// Of each CPU that was online at both instants.
pub(super) fn backlog(before: &[Softnet], after: &[Softnet]) -> Vec<BacklogDrops> {
    let cpus = after.iter().filter_map(|now| {
        let then = before.iter().find(|then| then.cpu == now.cpu)?;
        let limited = now.flow_limited.zip(then.flow_limited);
        Some(BacklogDrops {
            cpu: now.cpu,
            packets: now.dropped.wrapping_sub(then.dropped).into(),
            flow_limited: limited.map(|(now, then)| now.wrapping_sub(then).into()),
        })
    });
    cpus.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(rx_dropped: u64, rx_missed_errors: u64) -> (String, LinkStatistics) {
        let statistics =
            LinkStatistics { rx_dropped, rx_missed_errors, ..LinkStatistics::default() };
        ("eth0".to_owned(), statistics)
    }

    fn driver(of: &[(&str, u64)]) -> BTreeMap<String, BTreeMap<String, u64>> {
        let counters = of.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
        BTreeMap::from([("eth0".to_owned(), counters)])
    }

    #[test]
    fn only_what_grew_in_the_window_is_of_it() {
        let before = Reading {
            links: Some(BTreeMap::from([(2, link(5, 100))])),
            drivers: driver(&[("rx0_drops", 7), ("rx1_drops", 9)]),
            ..Reading::default()
        };
        let after = Reading {
            links: Some(BTreeMap::from([(2, link(8, 100)), (3, ("lo".to_owned(), link(4, 0).1))])),
            drivers: driver(&[("rx0_drops", 7), ("rx1_drops", 20)]),
            ..Reading::default()
        };
        let all = devices(&before, &after, |_| true).unwrap();
        assert_eq!((all[0].rx_dropped, all[0].rx_missed), (3, 0));
        let expected = NamedDrops { name: "rx1_drops".to_owned(), count: 11 };
        assert_eq!(all[0].driver, [expected]);
        // It came in the window.
        assert_eq!((all[1].device.as_str(), all[1].rx_dropped), ("lo", 4));
        assert_eq!(devices(&before, &after, |name| name == "lo").unwrap().len(), 1);
        assert_eq!(devices(&Reading::default(), &after, |_| true), None);
    }

    #[test]
    fn a_queueing_discipline_that_was_set_in_the_window_counts_from_there() {
        let reading = |kind: &str, handle, drops| {
            let qdisc =
                Qdisc { kind: kind.to_owned(), handle, parent: u32::MAX, options: Vec::new() };
            let statistics = QdiscStatistics { drops, ..QdiscStatistics::default() };
            Reading {
                links: Some(BTreeMap::from([(2, link(0, 0))])),
                qdiscs: Some(BTreeMap::from([(2, (qdisc, statistics))])),
                ..Reading::default()
            }
        };
        let drops = |before, after| qdiscs(&before, &after, |_| true).unwrap()[0].packets;
        assert_eq!(drops(reading("tbf", 1, 10), reading("tbf", 1, 13)), 3);
        assert_eq!(drops(reading("tbf", 1, u32::MAX), reading("tbf", 1, 1)), 2);
        assert_eq!(drops(reading("tbf", 1, 10), reading("tbf", 2, 13)), 13);
        assert_eq!(drops(reading("pfifo", 1, 10), reading("tbf", 1, 13)), 13);
    }

    #[test]
    fn a_backlog_counts_in_32_bits() {
        let of = |cpu, dropped, flow_limited| Softnet {
            cpu,
            dropped,
            flow_limited,
            ..Softnet::default()
        };
        let all = backlog(&[of(0, u32::MAX, Some(1))], &[of(0, 4, Some(3)), of(1, 9, None)]);
        assert_eq!(all, [BacklogDrops { cpu: 0, packets: 5, flow_limited: Some(2) }]);
    }

    #[test]
    fn connection_tracking_counts_in_32_bits() {
        let reading = |drop, insert_failed, early_drop, entries| Reading {
            conntrack: Some(ConntrackCounters {
                entries,
                drop,
                insert_failed,
                chain_too_long: insert_failed,
                early_drop,
            }),
            ..Reading::default()
        };
        let drops = conntrack(&reading(u32::MAX, 5, 1, 9), &reading(1, 7, 4, 3)).unwrap();
        let of = (drops.dropped, drops.insert_failed, drops.early_dropped, drops.entries);
        assert_eq!(of, (2, 2, 3, 3));
        assert_eq!(drops.chain_too_long, 2);
        assert_eq!(conntrack(&Reading::default(), &reading(1, 1, 1, 1)), None);
    }

    #[test]
    fn a_neighbour_table_counts_what_grew() {
        let tables = |table_fulls, unresolved_discards| {
            let table =
                NeighbourTable { entries: 1, limit: 1_024, table_fulls, unresolved_discards };
            BTreeMap::from([("arp_cache".to_owned(), table)])
        };
        let [grown] = &neighbours(&tables(3, Some(10)), &tables(5, Some(17)))[..] else { panic!() };
        assert_eq!((grown.table_fulls, grown.unresolved_discards), (2, Some(7)));
        let [grown] = &neighbours(&tables(3, None), &tables(5, Some(17)))[..] else { panic!() };
        assert_eq!((grown.table_fulls, grown.unresolved_discards), (2, None));
        assert!(grown.unresolved_reason.is_some());
        assert_eq!(neighbours(&BTreeMap::new(), &tables(5, None)), []);
    }

    #[test]
    fn this_kernel_has_the_counters() {
        let here = Namespace::of(None).unwrap();
        let counters = Counters::open(&here);
        let reading = counters.read();
        assert_eq!(reading.missing, [""; 0]);
        let all = protocols(&reading, &reading).unwrap();
        assert!(all.iter().all(|counter| counter.packets == 0));
        for name in ["Ip.InAddrErrors", "TcpExt.TCPBacklogDrop", "Udp.RcvbufErrors"] {
            assert!(all.iter().any(|counter| counter.name == name), "{name}");
        }
        let mut names: Vec<&str> = PROTOCOLS.iter().map(|(name, _)| *name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), PROTOCOLS.len());
    }
}
