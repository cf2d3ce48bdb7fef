//! What the kernel counts of packets between a socket and the wire: of devices, of the queueing disciplines
//! in front of them, and of IP and UDP in a network namespace.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::net::IpAddr;

use wirecost_model::clock::Clock as _;
use wirecost_model::packets::{DevicePackets, PacketCounters, ProtocolPackets};

use crate::clock::Monotonic;
use crate::link::{LinkError, Links};
use crate::link_statistics::LinkStatisticsReader;
use crate::net_counters::{parse, parse_ipv6};
use crate::qdisc::Qdiscs;
use crate::route::source_address;

/// Reads the counters of one network namespace, from any thread.
#[derive(Debug)]
pub struct PacketReader {
    statistics: LinkStatisticsReader,
    qdiscs: Qdiscs,
    snmp: File,
    /// Missing where the kernel has no IPv6.
    snmp6: Option<File>,
    devices: Vec<(u32, Device)>,
}

#[derive(Debug)]
struct Device {
    name: String,
    link_header: u32,
}

impl PacketReader {
    /// Of the calling thread's namespace: the devices by which these local addresses are had and those others are reached.
    /// Where neither is known, all devices but `lo` that are not made on another one.
    ///
    /// # Errors
    /// The kernel's own.
    pub fn open(local: &BTreeSet<IpAddr>, remote: &BTreeSet<IpAddr>) -> io::Result<Self> {
        let links = Links::here().map_err(failed)?;
        let mut used = BTreeSet::new();
        let sources = remote.iter().filter_map(|&to| source_address(to).ok());
        for address in local.iter().copied().chain(sources) {
            used.extend(links.index_of_address(address).map_err(failed)?);
        }
        let all = links.list().map_err(failed)?;
        // An address may be that of `lo` while packets come by another device.
        if local.iter().chain(remote).any(|address| !address.is_loopback()) {
            used.retain(|index| !all.iter().any(|link| link.index == *index && link.is_loopback));
        }
        let of_hosts = all.iter().filter(|link| match used.is_empty() {
            true => {
                !link.is_loopback && link.lower.is_none() && link.kind.as_deref() != Some("bridge")
            }
            false => used.contains(&link.index),
        });
        let devices = of_hosts
            .map(|link| {
                let device = Device { name: link.name.clone(), link_header: link.header_bytes };
                (link.index, device)
            })
            .collect();
        Ok(Self {
            statistics: LinkStatisticsReader::open()?,
            qdiscs: Qdiscs::open()?,
            snmp: File::open("/proc/thread-self/net/snmp")?,
            snmp6: File::open("/proc/thread-self/net/snmp6").ok(),
            devices,
        })
    }

    /// # Errors
    /// The kernel's own; a device that is gone.
    pub fn read(&mut self) -> io::Result<PacketCounters> {
        self.read_once().or_else(|_| {
            // A list that changed meanwhile leaves the rest of an answer in the socket.
            self.statistics = LinkStatisticsReader::open()?;
            self.qdiscs = Qdiscs::open()?;
            self.read_once()
        })
    }

    fn read_once(&mut self) -> io::Result<PacketCounters> {
        let at = Monotonic.now();
        let (statistics, qdiscs) = (self.statistics.read()?, self.qdiscs.statistics()?);
        let mut devices = Vec::with_capacity(self.devices.len());
        for (index, device) in &self.devices {
            let (_, of) = statistics.get(index).ok_or(io::ErrorKind::NotFound)?;
            let queue = qdiscs.get(index).map(|(_, queue)| queue);
            devices.push(DevicePackets {
                name: device.name.clone(),
                link_header: device.link_header,
                qdisc_drops: queue.map_or(0, |queue| queue.drops),
                qdisc_waiting: queue.map_or(0, |queue| u64::from(queue.backlog_packets)),
                rx_packets: of.rx_packets,
                tx_packets: of.tx_packets,
                rx_bytes: of.rx_bytes,
                tx_bytes: of.tx_bytes,
                rx_errors: of.rx_errors,
                tx_errors: of.tx_errors,
                rx_dropped: of.rx_dropped,
                tx_dropped: of.tx_dropped,
                rx_missed: of.rx_missed_errors,
            });
        }
        let mut counters = BTreeMap::new();
        parse(&whole(&mut self.snmp)?, &mut counters);
        if let Some(snmp6) = &mut self.snmp6 {
            parse_ipv6(&whole(snmp6)?, &mut counters);
        }
        let is_used = |index: &u32| self.devices.iter().any(|(used, _)| used == index);
        let others = statistics.iter().filter(|(index, _)| !is_used(index));
        let rx_elsewhere = others.map(|(_, (_, of))| of.rx_packets).sum();
        Ok(PacketCounters { at, devices, rx_elsewhere, protocols: protocols(&counters) })
    }
}

fn failed(error: LinkError) -> io::Error {
    io::Error::other(error)
}

fn whole(file: &mut File) -> io::Result<String> {
    let mut text = String::new();
    file.rewind()?;
    file.read_to_string(&mut text)?;
    Ok(text)
}

/// Sums IPv4 and IPv6. Names are those of
/// <https://elixir.bootlin.com/linux/v6.12/source/net/ipv4/proc.c> and net/ipv6/proc.c.
fn protocols(counters: &BTreeMap<String, u64>) -> ProtocolPackets {
    let sum = |names: &[&str]| -> u64 { names.iter().filter_map(|&name| counters.get(name)).sum() };
    let udp = |name: &str| sum(&[&format!("Udp.{name}"), &format!("Udp6{name}")]);
    let ip = |name: &str| sum(&[&format!("Ip.{name}"), &format!("Ip6{name}")]);
    ProtocolPackets {
        udp_received: udp("InDatagrams"),
        udp_sent: udp("OutDatagrams"),
        udp6_sent: sum(&["Udp6OutDatagrams"]),
        no_port: udp("NoPorts"),
        receive_buffer: udp("RcvbufErrors"),
        checksum: udp("InCsumErrors"),
        memory: udp("MemErrors"),
        ip_in_discarded: sum(&[
            "Ip.InHdrErrors",
            "Ip6InHdrErrors",
            "Ip.InAddrErrors",
            "Ip6InAddrErrors",
            "Ip.InUnknownProtos",
            "Ip6InUnknownProtos",
            "Ip.InDiscards",
            "Ip6InDiscards",
            "Ip6InTruncatedPkts",
            "Ip6InNoRoutes",
            "Ip6InTooBigErrors",
        ]),
        fragments_sent: ip("FragCreates"),
        fragmented: ip("FragOKs"),
        fragments_received: ip("ReasmReqds"),
        reassembled: ip("ReasmOKs"),
        not_reassembled: ip("ReasmFails"),
        // Most ICMPv6 messages are to multicast addresses, of which not all are delivered.
        other_received: sum(&["Tcp.InSegs", "Icmp.InMsgs"])
            + sum(&["Icmp6InMsgs"]).max(sum(&["Ip6InMcastPkts"])),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, UdpSocket};

    use super::*;

    #[test]
    fn ipv4_and_ipv6_are_summed() {
        let mut counters = BTreeMap::new();
        parse("Udp: InDatagrams NoPorts\nUdp: 3 4\nIp: ReasmReqds\nIp: 10\n", &mut counters);
        parse_ipv6("Udp6InDatagrams  \t 20\nIp6ReasmReqds 1\nIp6 x\n\n", &mut counters);
        let read = protocols(&counters);
        let expected = ProtocolPackets {
            udp_received: 23,
            no_port: 4,
            fragments_received: 11,
            ..ProtocolPackets::default()
        };
        assert_eq!(read, expected);
    }

    #[test]
    fn a_datagram_over_loopback_is_counted_by_device_and_protocol() {
        let here = BTreeSet::from([IpAddr::from(Ipv4Addr::LOCALHOST)]);
        let mut reader = PacketReader::open(&here, &BTreeSet::new()).unwrap();
        let before = reader.read().unwrap();
        let [device] = &before.devices[..] else { panic!("{before:?}") };
        assert_eq!((device.name.as_str(), device.link_header), ("lo", 0));
        let receiver = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        for _ in 0..100 {
            sender.send_to(&[0; 1000], receiver.local_addr().unwrap()).unwrap();
            receiver.recv(&mut [0; 1000]).unwrap();
        }
        let counted = reader.read().unwrap().since(&before);
        // Others use it too.
        assert!(counted.protocols.udp_sent >= 100 && counted.protocols.udp_received >= 100);
        let device = &counted.devices[0];
        assert!(device.tx_packets >= 100 && device.rx_packets >= 100, "{device:?}");
        assert!(device.tx_bytes >= 100 * (1000 + 8 + 20), "{device:?}");
    }

    /// `lo` reaches itself; an address of a network to which `lo` does not lead is not one of its.
    #[test]
    fn a_route_leads_to_the_device() {
        let there = BTreeSet::from([IpAddr::from(Ipv4Addr::LOCALHOST)]);
        let reader = PacketReader::open(&BTreeSet::new(), &there).unwrap();
        let names: Vec<&str> = reader.devices.iter().map(|(_, device)| &*device.name).collect();
        assert_eq!(names, ["lo"]);
        let other =
            BTreeSet::from([IpAddr::from(Ipv4Addr::LOCALHOST), Ipv4Addr::new(192, 0, 2, 1).into()]);
        let reader = PacketReader::open(&other, &BTreeSet::new()).unwrap();
        assert!(reader.devices.iter().all(|(_, device)| device.name != "lo"), "{reader:?}");
    }
}
