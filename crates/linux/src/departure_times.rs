//! Whether the packets of this host are held back until their departure times (SO_TXTIME). A queueing discipline does
//! that, fq(8): without it a packet leaves when it is sent.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;

use crate::link::{Link, Links};
use crate::netlink::{attribute, u32_at};
use crate::qdisc::{Qdisc, Qdiscs};
use crate::route;

/// Packets of one socket that it holds at most (`TCA_FQ_FLOW_PLIMIT`).
/// <https://elixir.bootlin.com/linux/v6.12/source/include/uapi/linux/pkt_sched.h#L852>
const TCA_FQ_FLOW_PLIMIT: u16 = 2;

/// Devices that may be made on one another.
const MOST_LAYERS: u32 = 8;
/// Devices that send what they are given by the one that they are made on.
const UPPER: &[&str] = &["vlan", "macvlan", "ipvlan"];
/// Devices that send what they are given by one of their ports.
const WITH_PORTS: &[&str] = &["bond", "team", "bridge"];

/// What a device does with packets that have departure times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Holding {
    /// It holds them back, so many of each socket where that is known.
    Holds {
        flow_limit: Option<u32>,
    },
    /// A class of its queueing discipline may.
    Unknown,
    Never,
}

/// A device that packets leave by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Departure {
    pub device: String,
    /// Kind of its root queueing discipline.
    pub qdisc: String,
    pub holding: Holding,
}

/// The devices by which packets leave the calling thread's network namespace to these addresses; where none is known,
/// those that have these local ones.
///
/// # Errors
/// The kernel's own, as where no route leads to any of the addresses.
pub fn departures(to: &BTreeSet<IpAddr>, from: &BTreeSet<IpAddr>) -> io::Result<Vec<Departure>> {
    let links = Links::here().map_err(io::Error::other)?;
    let all = links.list().map_err(io::Error::other)?;
    let qdiscs = Qdiscs::open()?;
    let mut indices = BTreeSet::new();
    let mut no_route = None;
    for &address in to {
        match route::device(address) {
            Ok(index) => _ = indices.insert(index),
            Err(error) => no_route = Some(error),
        }
    }
    // Nothing is sent to an address without a route, as to one of IPv6 beside one of IPv4.
    if let Some(error) = no_route.filter(|_| indices.is_empty()) {
        return Err(error);
    }
    for &address in from.iter().filter(|_| to.is_empty()) {
        indices.extend(links.index_of_address(address).map_err(io::Error::other)?);
    }
    let mut found = Vec::new();
    for index in indices {
        look(index, &all, &qdiscs, MOST_LAYERS, &mut found)?;
    }
    found.sort_by(|a, b| a.device.cmp(&b.device));
    found.dedup();
    Ok(found)
}

fn look(
    index: u32,
    links: &[Link],
    qdiscs: &Qdiscs,
    layers: u32,
    found: &mut Vec<Departure>,
) -> io::Result<()> {
    let link = links.iter().find(|link| link.index == index).ok_or(io::ErrorKind::NotFound)?;
    let of_device = qdiscs.of_device(index)?;
    let root = of_device.iter().find(|qdisc| qdisc.is_root());
    let qdisc = root.map_or("noqueue", |root| root.kind.as_str()).to_owned();
    if qdisc == "noqueue" && layers > 0 {
        let below = below(link, links);
        if !below.is_empty() {
            return below
                .into_iter()
                .try_for_each(|index| look(index, links, qdiscs, layers - 1, found));
        }
    }
    let holding = holding(&of_device);
    found.push(Departure { device: link.name.clone(), qdisc, holding });
    Ok(())
}

/// The devices that a device without a queue hands packets to, whose departure times stay.
fn below(link: &Link, links: &[Link]) -> Vec<u32> {
    let kind = link.kind.as_deref().unwrap_or_default();
    if UPPER.contains(&kind) {
        return link.lower.into_iter().collect();
    }
    let is_port = |port: &&Link| port.controller == Some(link.index);
    match WITH_PORTS.contains(&kind) {
        true => links.iter().filter(is_port).map(|port| port.index).collect(),
        false => Vec::new(),
    }
}

/// By the queueing disciplines of a device. `mq` and `mqprio` have one for each transmit queue.
///
/// etf(8) holds packets back too, but drops all that have no departure time: those that open connections, and ARP.
fn holding(qdiscs: &[Qdisc]) -> Holding {
    let Some(root) = qdiscs.iter().find(|qdisc| qdisc.is_root()) else { return Holding::Never };
    let holds = |qdiscs: &[&Qdisc]| {
        let limits = qdiscs.iter().map(|qdisc| flow_limit(qdisc));
        let flow_limit = limits.flatten().min();
        let all = !qdiscs.is_empty() && qdiscs.iter().all(|qdisc| qdisc.kind == "fq");
        all.then_some(Holding::Holds { flow_limit })
    };
    let major = |handle: u32| handle >> 16;
    let of_queues = || {
        let queues = qdiscs.iter().filter(|qdisc| !qdisc.is_root());
        queues.filter(|qdisc| major(qdisc.parent) == major(root.handle)).collect::<Vec<_>>()
    };
    match root.kind.as_str() {
        "fq" => holds(&[root]).unwrap_or(Holding::Never),
        "mq" | "mqprio" => holds(&of_queues()).unwrap_or(Holding::Never),
        _ if qdiscs.iter().any(|qdisc| qdisc.kind == "fq") => Holding::Unknown,
        _ => Holding::Never,
    }
}

fn flow_limit(qdisc: &Qdisc) -> Option<u32> {
    attribute(&qdisc.options, TCA_FQ_FLOW_PLIMIT).and_then(|limit| u32_at(limit, 0))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::netlink::with_header;
    use crate::netns::{NetNs, NetNsGuard};
    use crate::privilege::skip_without_namespaces;

    fn qdisc(kind: &str, handle: u32, parent: u32) -> Qdisc {
        Qdisc { kind: kind.to_owned(), handle, parent, options: Vec::new() }
    }

    fn root(kind: &str, handle: u32) -> Qdisc {
        qdisc(kind, handle, u32::MAX)
    }

    fn limited(flow_limit: u32) -> Qdisc {
        let options =
            [with_header(1, &[0; 4]), with_header(TCA_FQ_FLOW_PLIMIT, &flow_limit.to_ne_bytes())];
        Qdisc { options: options.concat(), ..qdisc("fq", 0, 1) }
    }

    #[test]
    fn fq_holds_packets_back_at_the_root_or_at_every_queue() {
        let limit = |flow_limit| Holding::Holds { flow_limit };
        let alone = Qdisc { parent: u32::MAX, ..limited(100) };
        assert_eq!(holding(&[alone]), limit(Some(100)));
        assert_eq!(holding(&[root("fq", 0x8001_0000)]), limit(None));
        // The kernel's own mq has no handle.
        let queues = [root("mq", 0), Qdisc { parent: 2, ..limited(80) }, limited(90)];
        assert_eq!(holding(&queues), limit(Some(80)));
        let set = [root("mqprio", 0x8001_0000), qdisc("fq", 0, 0x8001_0001)];
        assert_eq!(holding(&set), limit(None));
    }

    #[test]
    fn any_other_queue_lets_packets_pass() {
        for kind in ["noqueue", "pfifo_fast", "fq_codel", "etf", "mq"] {
            assert_eq!(holding(&[root(kind, 0)]), Holding::Never, "{kind}");
        }
        assert_eq!(holding(&[]), Holding::Never);
        // A packet may take any of the queues.
        let mixed = [root("mq", 0), qdisc("fq", 0, 1), qdisc("fq_codel", 0, 2)];
        assert_eq!(holding(&mixed), Holding::Never);
        // fq is another device's queue, or a class that only some packets are in.
        let other = [root("mq", 0x8001_0000), qdisc("fq", 0, 0x8002_0001)];
        assert_eq!(holding(&other), Holding::Never);
        let class = [root("htb", 0x8001_0000), qdisc("fq", 0x8002_0000, 0x8001_0010)];
        assert_eq!(holding(&class), Holding::Unknown);
    }

    #[test]
    fn the_device_that_sends_is_found_below_those_without_a_queue() {
        let test = "departure_times::the_device_that_sends_is_found_below_those_without_a_queue";
        if skip_without_namespaces(test) {
            return;
        }
        let name = format!("wirecost-test-{}-departures", std::process::id());
        let _guard = NetNsGuard::new(NetNs::create(&name).unwrap());
        let namespace = NetNs::open(&name).unwrap();
        let links = Links::of(&namespace).unwrap();
        links.add_veth("near", "far", &namespace).unwrap();
        links.add_macvlan("upper", "near").unwrap();
        links.add_bridge("bridge").unwrap();
        for (device, address) in [("upper", 1), ("bridge", 2)] {
            links.add_address(device, Ipv4Addr::new(198, 18, address, 1).into(), 24).unwrap();
        }
        links.attach("far", "bridge").unwrap();
        for device in ["near", "far", "upper", "bridge"] {
            links.up(device).unwrap();
        }
        let to = |network| BTreeSet::from([IpAddr::from(Ipv4Addr::new(198, 18, network, 9))]);
        let none = BTreeSet::new();
        let of = |network| namespace.run(|| departures(&to(network), &none)).unwrap().unwrap();
        let departure = |device: &str, qdisc: &str| {
            let (device, qdisc) = (device.to_owned(), qdisc.to_owned());
            [Departure { device, qdisc, holding: Holding::Never }]
        };
        assert_eq!(of(1), departure("near", "noqueue"));
        assert_eq!(of(2), departure("far", "noqueue"));
        let index = links.get("upper").unwrap().index;
        let qdiscs = namespace.run(Qdiscs::open).unwrap().unwrap();
        qdiscs.replace_root(index, "pfifo", 0, &[]).unwrap();
        assert_eq!(of(1), departure("upper", "pfifo"));
        let own = BTreeSet::from([IpAddr::from(Ipv4Addr::new(198, 18, 2, 1))]);
        let by_own = namespace.run(|| departures(&none, &own)).unwrap().unwrap();
        assert_eq!(by_own, departure("far", "noqueue"));
        let no_route = namespace.run(|| departures(&to(3), &own)).unwrap();
        assert!(no_route.is_err(), "{no_route:?}");
    }
}
