//! Links of a lab by the kernel's netem and tbf. Each direction of a link has devices of the lab's switch in series,
//! each with one queueing discipline: tbf is the transmitter and its queue, netem the delay line and the losses
//! behind it. On one device they would share a limit, and packets would be lost before the queue.

use std::collections::BTreeMap;
use std::io;

use serde::{Deserialize, Serialize};
use wirecost_linux::ethtool::Ethtool;
use wirecost_linux::link::Links;
use wirecost_linux::netem::{self, DelayLine};
use wirecost_linux::netns::NetNs;
use wirecost_linux::qdisc::Qdiscs;
use wirecost_linux::rate_limit::RateLimit;
use wirecost_model::link::netem::{Backend, BackendChoice, NetemLine, QdiscCounts};
use wirecost_model::link::{Capacity, Conditions, LinkSpec, Topology, WIRE_OVERHEAD};

use crate::build::{CARRIER, CreatedNamespace, PORT_MTU};
use crate::host::DEVICE;
use crate::rate::{TIMER_DELAY_MICROSECONDS, bytes_in};
use crate::{LabError, LabHost};

/// A packet of the hosts' devices with its Ethernet header, at their own MTU: tbf drops what is larger than its burst.
const LARGEST_PACKET: u64 = 1_514;
/// The smallest packet on the wire: headers of IPv4 and UDP, and those of Ethernet.
const SMALLEST_PACKET: u64 = 28 + WIRE_OVERHEAD as u64;
/// Packets in a delay line of unlimited rate at most: about 2 GiB of the kernel's memory.
const UNLIMITED_RATE_LIMIT: u64 = 1 << 20;
/// Packets of ARP and IPv6 in a delay line, which the rate does not limit.
const SPARE: u64 = 1_000;

/// A reordered packet comes later by this part of the delay, and by at least this time and the transmission time of
/// as many packets: as in the emulator (`link::Line`).
const REORDER_PART: u64 = 4;
const REORDER_MIN: u64 = 1_000_000;
const REORDER_PACKETS: u64 = 4;

/// Where a packet enters the links it must leave the accounts of its sender, as at the transmit completion of a
/// device. Otherwise it counts there until it has left the queue, in veth pairs and bridges too, and TCP sends no
/// more than a few packets (TCP small queues): the queue never fills. netem does this where it has a delay:
/// <https://elixir.bootlin.com/linux/v6.1/source/net/sched/sch_netem.c> (`skb_orphan_partial`).
const ENTRY: DelayLine = DelayLine {
    nanoseconds: 1,
    limit: UNLIMITED_RATE_LIMIT as u32,
    loss: 0.0,
    loss_burst: 1.0,
    duplicate: 0.0,
    late: None,
};

/// What joins the hosts of a star.
const HUB: &str = "hub";

/// Links by netem of a lab that exists.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct NetemState {
    pub(crate) topology: Topology,
    pub(crate) link: LinkSpec,
}

/// What makes these links on this machine.
pub(crate) fn backend(choice: BackendChoice, link: &LinkSpec) -> Result<Backend, LabError> {
    let beyond = link.beyond_netem(netem::smallest_late_share());
    let missing = || netem::missing_kind().map_err(|source| LabError::Trial { source });
    match (choice, beyond) {
        (BackendChoice::Only(Backend::Emulator), _) | (BackendChoice::Auto, Some(_)) => {
            Ok(Backend::Emulator)
        }
        (BackendChoice::Only(Backend::Netem), Some(key)) => Err(LabError::BeyondNetem { key }),
        (BackendChoice::Only(Backend::Netem), None) => match missing()? {
            Some(kind) => Err(LabError::NoQdisc { kind }),
            None => Ok(Backend::Netem),
        },
        // Where it cannot be tried, the emulator says what it lacks itself.
        (BackendChoice::Auto, None) => match missing() {
            Ok(None) => Ok(Backend::Netem),
            Ok(Some(_)) | Err(_) => Ok(Backend::Emulator),
        },
    }
}

/// One direction of a link, and the devices whose queueing disciplines make it.
#[derive(Debug, Clone, PartialEq)]
struct Line {
    name: String,
    conditions: Conditions,
    queue: String,
    delay: String,
}

/// What is in the switch's namespace.
#[derive(Debug, Clone, Default, PartialEq)]
struct Plan {
    bridges: Vec<String>,
    /// The bridge that each host is at; its port has the host's name.
    hosts: Vec<String>,
    /// Pairs of devices that join two bridges, each with its bridge.
    wires: Vec<[(String, String); 2]>,
    /// Devices that every packet passes before a queue, where it leaves its sender ([`ENTRY`]).
    entries: Vec<String>,
    lines: Vec<Line>,
}

impl Plan {
    fn new(state: &NetemState, hosts: &[LabHost]) -> Self {
        let mut plan = match state.topology {
            Topology::Pair | Topology::Star => Self::star(&state.link, hosts),
            Topology::Dumbbell => Self::dumbbell(&state.link, hosts.len()),
        };
        if state.topology == Topology::Pair {
            for (line, name) in plan.lines.iter_mut().zip(["back", "forward"]) {
                name.clone_into(&mut line.name);
            }
            plan.lines.reverse();
        }
        plan
    }

    /// Four bridges in a row. What goes to the other side passes three wires, which are its entry, its queue and its
    /// delay.
    fn dumbbell(link: &LinkSpec, hosts: usize) -> Self {
        const BRIDGES: [&str; 4] = ["left", "left-middle", "right-middle", "right"];
        let left = Topology::left(hosts);
        let side = |host| if host < left { BRIDGES[0] } else { BRIDGES[3] };
        let (to, back) = (["entry", "queue", "delay"], ["back-delay", "back-queue", "back-entry"]);
        let wire = |(place, (near, far)): (usize, (&str, &str))| {
            let end = |device: &str, bridge: &str| (device.to_owned(), bridge.to_owned());
            [end(near, BRIDGES[place]), end(far, BRIDGES[place + 1])]
        };
        let line = |name: &str, conditions: &Conditions, queue: &str, delay: &str| Line {
            name: name.to_owned(),
            conditions: conditions.clone(),
            queue: queue.to_owned(),
            delay: delay.to_owned(),
        };
        Self {
            bridges: BRIDGES.map(str::to_owned).to_vec(),
            hosts: (0..hosts).map(side).map(str::to_owned).collect(),
            wires: to.into_iter().zip(back).enumerate().map(wire).collect(),
            entries: vec![to[0].to_owned(), back[2].to_owned()],
            lines: vec![
                line("forward", &link.forward, to[1], to[2]),
                line("back", &link.back, back[1], back[0]),
            ],
        }
    }

    /// A bridge in the middle, and one for each host, with a wire between both: what the host sends has its entry
    /// there, and what it receives its queue. The delay is at the port of the host.
    fn star(link: &LinkSpec, hosts: &[LabHost]) -> Self {
        let mut plan = Self { bridges: vec![HUB.to_owned()], ..Self::default() };
        for (number, host) in hosts.iter().enumerate() {
            let of = |part: &str| format!("{}-{part}", host.name);
            plan.bridges.push(of("bridge"));
            plan.hosts.push(of("bridge"));
            plan.wires.push([(of("queue"), HUB.to_owned()), (of("entry"), of("bridge"))]);
            plan.entries.push(of("entry"));
            plan.lines.push(Line {
                name: format!("to {}", host.name),
                conditions: if number == 0 { link.back.clone() } else { link.forward.clone() },
                queue: of("queue"),
                delay: host.name.clone(),
            });
        }
        plan
    }
}

/// The transmitter and the queue of a line; `None` if its rate is unlimited.
fn bottleneck(line: &Conditions) -> Option<RateLimit> {
    let Capacity::Rate(rate) = line.capacity else { return None };
    let bytes = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
    Some(RateLimit {
        bits_per_second: rate,
        // No more than a late timer takes: it would pass the queue at once after each pause.
        burst_bytes: bytes(bytes_in(rate, TIMER_DELAY_MICROSECONDS).max(LARGEST_PACKET)),
        queue_bytes: bytes(line.queue_bytes.unwrap_or(u64::MAX)),
    })
}

/// The delay line of a line. At its rate it is never full.
fn delay_line(line: &Conditions) -> DelayLine {
    let rate = match line.capacity {
        Capacity::Rate(rate) => Some(rate),
        _ => None,
    };
    let packets = |count: u64| {
        rate.map_or(0, |rate| count * (1_500 + u64::from(WIRE_OVERHEAD)) * 8_000_000_000 / rate)
    };
    let late =
        (line.delay_nanoseconds / REORDER_PART).max(REORDER_MIN).max(packets(REORDER_PACKETS));
    let late = (line.reorder > 0.0)
        .then(|| (line.reorder, u32::try_from(late).unwrap_or(i32::MAX.cast_unsigned())));
    let longest = line.delay_nanoseconds + late.map_or(0, |(_, late)| u64::from(late));
    let limit = rate.map_or(UNLIMITED_RATE_LIMIT, |rate| {
        let copies = if line.duplicate > 0.0 { 2 } else { 1 };
        let burst = bytes_in(rate, longest / 1_000 + 2 * TIMER_DELAY_MICROSECONDS);
        copies * burst / SMALLEST_PACKET + SPARE
    });
    DelayLine {
        nanoseconds: line.delay_nanoseconds,
        limit: u32::try_from(limit).unwrap_or(u32::MAX),
        loss: line.loss,
        loss_burst: line.loss_burst,
        duplicate: line.duplicate,
        late,
    }
}

/// Makes the links between namespaces that exist.
pub(crate) fn join(
    switch: &CreatedNamespace,
    state: &NetemState,
    hosts: &[LabHost],
    made: &[CreatedNamespace],
) -> Result<(), LabError> {
    let plan = Plan::new(state, hosts);
    let links = &switch.links;
    for bridge in &plan.bridges {
        links.add_bridge(bridge)?;
        links.up(bridge)?;
    }
    let mut devices = Vec::new();
    for [(near, near_bridge), (far, far_bridge)] in &plan.wires {
        links.add_veth(near, far, &switch.namespace)?;
        for (device, bridge) in [(near, near_bridge), (far, far_bridge)] {
            links.attach(device, bridge)?;
            devices.push(device.clone());
        }
    }
    for ((host, bridge), made) in hosts.iter().zip(&plan.hosts).zip(made) {
        links.add_veth(&host.name, DEVICE, &made.namespace)?;
        links.attach(&host.name, bridge)?;
        devices.push(host.name.clone());
        let whole_frames = |feature: &str| {
            feature.starts_with("tx-")
                && (feature.contains("segmentation") || feature.contains("-gso-"))
        };
        switch_off(&made.namespace, DEVICE, whole_frames)?;
    }
    for device in &devices {
        switch_off(&switch.namespace, device, |feature| feature.starts_with("rx-gro"))?;
        links.set_mtu(device, PORT_MTU)?;
        links.up(device)?;
    }
    set_qdiscs(switch, &plan)?;
    introduce(hosts, made)?;
    // The far ends of the hosts' ports are not up yet.
    for (device, _) in plan.wires.iter().flatten() {
        links.wait_until_running(device, CARRIER)?;
    }
    announce(&plan, state.topology, made)
}

/// Has links work on packets as they are on the wire: hosts send no frames of many packets, and the switch makes
/// none. TCP hands over such frames all the same, and the kernel cuts them before the device.
fn switch_off(
    namespace: &NetNs,
    device: &str,
    is_meant: impl Fn(&str) -> bool + Send + Sync,
) -> Result<(), LabError> {
    let off = || -> io::Result<()> {
        let ethtool = Ethtool::open()?;
        for (feature, state) in ethtool.features(device)? {
            if is_meant(&feature) && state.on && state.changeable {
                ethtool.set_feature(device, &feature, false)?;
            }
        }
        Ok(())
    };
    let failed = |source| LabError::Offloads { device: device.to_owned(), source };
    namespace.run(off)?.map_err(failed)
}

fn set_qdiscs(switch: &CreatedNamespace, plan: &Plan) -> Result<(), LabError> {
    let indices = indices(&switch.links)?;
    let index = |device: &str| indices.get(device).copied().unwrap_or_default();
    let qdiscs = switch.namespace.run(Qdiscs::open)?;
    let qdiscs = qdiscs.map_err(|source| LabError::Trial { source })?;
    let failed = |kind| move |source| LabError::Qdisc { kind, source };
    for entry in &plan.entries {
        qdiscs.set_delay_line(index(entry), &ENTRY).map_err(failed(netem::NETEM))?;
    }
    for line in &plan.lines {
        if let Some(limit) = bottleneck(&line.conditions) {
            let set = qdiscs.set_bottleneck(index(&line.queue), limit, WIRE_OVERHEAD as u16);
            set.map_err(failed(netem::TBF))?;
        }
        let set = qdiscs.set_delay_line(index(&line.delay), &delay_line(&line.conditions));
        set.map_err(failed(netem::NETEM))?;
    }
    Ok(())
}

fn indices(links: &Links) -> Result<BTreeMap<String, u32>, LabError> {
    Ok(links.list()?.into_iter().map(|link| (link.name, link.index)).collect())
}

/// Tells each host the hardware addresses of all others: links lose no questions for them, and count none.
fn introduce(hosts: &[LabHost], made: &[CreatedNamespace]) -> Result<(), LabError> {
    let hardware = made
        .iter()
        .map(|made| Ok(made.links.get(DEVICE)?.address.unwrap_or_default()))
        .collect::<Result<Vec<String>, LabError>>()?;
    for (place, made) in made.iter().enumerate() {
        let others = hosts.iter().zip(&hardware).enumerate().filter(|(other, _)| *other != place);
        let addresses = others.flat_map(|(_, (host, hardware))| {
            host.addresses().map(|address| (address, hardware.as_str()))
        });
        made.links.add_neighbours(DEVICE, addresses)?;
    }
    Ok(())
}

/// Tells each host the rate of its link.
fn announce(plan: &Plan, topology: Topology, made: &[CreatedNamespace]) -> Result<(), LabError> {
    let hosts = made.len();
    for (place, made) in made.iter().enumerate() {
        let line = match topology {
            Topology::Star => place,
            // A host sends by the line of its side.
            Topology::Pair | Topology::Dumbbell => usize::from(place >= Topology::left(hosts)),
        };
        if let Capacity::Rate(rate) = plan.lines[line].conditions.capacity {
            made.links.announce_rate(DEVICE, rate)?;
        }
    }
    Ok(())
}

/// A queueing discipline of a line, by the index and the name of its device and its kind.
#[derive(Debug)]
struct LineQdisc {
    index: u32,
    device: String,
    kind: &'static str,
}

/// Reads the counters of links by netem.
#[derive(Debug)]
pub struct QdiscReader {
    qdiscs: Qdiscs,
    /// Names of the lines, and their queueing disciplines in the order in which packets pass them.
    lines: Vec<(String, Vec<LineQdisc>)>,
}

impl QdiscReader {
    pub(crate) fn new(
        state: &NetemState,
        hosts: &[LabHost],
        switch: &str,
    ) -> Result<Self, LabError> {
        let namespace = NetNs::open(switch)?;
        let indices = indices(&Links::of(&namespace)?)?;
        let qdiscs = namespace.run(Qdiscs::open)?;
        let lines = Plan::new(state, hosts).lines.into_iter().map(|line| {
            let queue = bottleneck(&line.conditions).map(|_| (line.queue, netem::TBF));
            let devices = queue.into_iter().chain([(line.delay, netem::NETEM)]);
            // No device has the index 0.
            let of = |(device, kind): (String, _)| LineQdisc {
                index: indices.get(&device).copied().unwrap_or_default(),
                device,
                kind,
            };
            (line.name, devices.map(of).collect())
        });
        Ok(Self {
            lines: lines.collect(),
            qdiscs: qdiscs.map_err(|source| LabError::Trial { source })?,
        })
    }

    /// What the queueing disciplines have done since the lab was created.
    ///
    /// # Errors
    /// `NotFound` when somebody has removed or replaced one; the kernel's own.
    pub fn read(&self) -> io::Result<Vec<NetemLine>> {
        let all = self.qdiscs.statistics()?;
        let of = |of: &LineQdisc| {
            let found = all.get(&of.index).filter(|(qdisc, _)| qdisc.kind == of.kind);
            let (qdisc, statistics) = found.ok_or(io::ErrorKind::NotFound)?;
            Ok(QdiscCounts {
                kind: qdisc.kind.clone(),
                device: of.device.clone(),
                packets: statistics.packets,
                bytes: statistics.bytes,
                drops: u64::from(statistics.drops),
                overlimits: u64::from(statistics.overlimits),
                backlog_packets: u64::from(statistics.backlog_packets),
                backlog_bytes: u64::from(statistics.backlog_bytes),
            })
        };
        let line = |(name, qdiscs): &(String, Vec<LineQdisc>)| {
            let qdiscs = qdiscs.iter().map(of).collect::<io::Result<_>>()?;
            Ok(NetemLine { name: name.clone(), qdiscs })
        };
        self.lines.iter().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn link() -> LinkSpec {
        let of = |rate, loss| Conditions {
            capacity: Capacity::Rate(rate),
            delay_nanoseconds: 10_000_000,
            queue_bytes: Some(25_000),
            loss,
            ..Conditions::default()
        };
        LinkSpec { forward: of(10_000_000, 0.1), back: of(1_000_000, 0.2), ..LinkSpec::default() }
    }

    fn hosts(count: u8) -> Vec<LabHost> {
        (1..=count)
            .map(|number| LabHost {
                name: format!("h{number}"),
                namespace: String::new(),
                ipv4: Ipv4Addr::new(198, 18, 0, number),
                ipv6: None,
                device: DEVICE.to_owned(),
                cpus: vec![0],
                owns_cpus: false,
                receive_cpus: Vec::new(),
            })
            .collect()
    }

    /// The lines that a packet from one host to another passes, by following the plan: the device that leads from
    /// one bridge to the next on the only way there is.
    fn way(plan: &Plan, from: usize, to: usize) -> Vec<String> {
        fn search(plan: &Plan, at: &str, to: &str, from: Option<&str>) -> Option<Vec<String>> {
            if at == to {
                return Some(Vec::new());
            }
            plan.wires.iter().find_map(|wire| {
                let leave = wire.iter().find(|(_, bridge)| bridge == at)?;
                let arrive = wire.iter().find(|(_, bridge)| bridge != at)?;
                if Some(arrive.1.as_str()) == from {
                    return None;
                }
                let rest = search(plan, &arrive.1, to, Some(at))?;
                Some([vec![leave.0.clone()], rest].concat())
            })
        }
        let mut way = search(plan, &plan.hosts[from], &plan.hosts[to], None).unwrap();
        way.push(format!("h{}", to + 1));
        way
    }

    /// Names of the lines whose queue, and then delay, are on the way.
    fn lines(plan: &Plan, from: usize, to: usize) -> Vec<&str> {
        let way = way(plan, from, to);
        let place = |device: &String| way.iter().position(|on_way| on_way == device);
        let entry = plan.entries.iter().filter_map(place).min();
        plan.lines
            .iter()
            .filter(|line| match (place(&line.queue), place(&line.delay)) {
                (Some(queue), Some(delay)) => {
                    assert!(queue < delay && entry.unwrap() < queue, "{way:?}");
                    true
                }
                (None, None) => false,
                half => panic!("{} by half: {half:?} of {way:?}", line.name),
            })
            .map(|line| line.name.as_str())
            .collect()
    }

    #[test]
    fn packets_pass_the_line_of_their_direction_only() {
        let of = |topology, count| Plan::new(&NetemState { topology, link: link() }, &hosts(count));
        let losses =
            |plan: &Plan| plan.lines.iter().map(|line| line.conditions.loss).collect::<Vec<_>>();
        let pair = of(Topology::Pair, 2);
        assert_eq!(lines(&pair, 0, 1), ["forward"]);
        assert_eq!(lines(&pair, 1, 0), ["back"]);
        assert_eq!(losses(&pair), [0.1, 0.2]);
        let dumbbell = of(Topology::Dumbbell, 5);
        assert_eq!(lines(&dumbbell, 1, 2), ["forward"]);
        assert_eq!(lines(&dumbbell, 4, 0), ["back"]);
        assert!(lines(&dumbbell, 0, 1).is_empty() && lines(&dumbbell, 2, 4).is_empty());
        let star = of(Topology::Star, 3);
        assert_eq!(lines(&star, 0, 2), ["to h3"]);
        assert_eq!(lines(&star, 2, 0), ["to h1"]);
        assert_eq!(losses(&star), [0.2, 0.1, 0.1]);
        assert_eq!(losses(&dumbbell), [0.1, 0.2]);
    }

    #[test]
    fn devices_have_names_that_the_kernel_takes() {
        for topology in [Topology::Dumbbell, Topology::Star] {
            let plan = Plan::new(&NetemState { topology, link: link() }, &hosts(250));
            let wires = plan.wires.iter().flatten().map(|(device, _)| device);
            let mut names: Vec<&String> = wires.chain(&plan.bridges).collect();
            assert!(names.iter().all(|name| name.len() < 16), "{names:?}");
            let all = names.len();
            names.sort();
            names.dedup();
            assert_eq!(names.len(), all);
        }
    }

    #[test]
    fn a_delay_line_is_never_full_at_the_rate_of_its_link() {
        let line = delay_line(&link().forward);
        // 10 Mb/s for 10 ms are 12500 bytes: 189 of the smallest packets.
        assert!(line.limit > 189 && line.limit < 2_000, "{line:?}");
        let twice = delay_line(&Conditions { duplicate: 0.1, ..link().forward });
        assert!(twice.limit > 2 * 189);
        assert_eq!(delay_line(&Conditions::default()).limit, 1 << 20);
    }

    #[test]
    fn the_bottleneck_has_the_queue_of_the_link() {
        let limit = bottleneck(&link().forward).unwrap();
        assert_eq!((limit.queue_bytes, limit.burst_bytes), (25_000, 2_500));
        // A packet fits into the burst of the slowest link.
        assert_eq!(bottleneck(&link().back).unwrap().burst_bytes, 1_514);
        assert_eq!(bottleneck(&Conditions::default()), None);
    }

    #[test]
    fn reordered_packets_come_later_as_in_the_emulator() {
        let late = |delay, rate| {
            let capacity = Capacity::Rate(rate);
            let reorder = 0.001;
            delay_line(&Conditions {
                capacity,
                delay_nanoseconds: delay,
                reorder,
                ..link().forward
            })
            .late
        };
        assert_eq!(late(40_000_000, 1_000_000_000), Some((0.001, 10_000_000)));
        assert_eq!(late(0, 1_000_000_000), Some((0.001, 1_000_000)));
        assert_eq!(late(0, 1_000_000), Some((0.001, 49_216_000)));
    }

    #[test]
    fn what_netem_does_not_have_is_made_by_the_emulator() {
        let jitter =
            LinkSpec { forward: Conditions { jitter_nanoseconds: 1, ..link().forward }, ..link() };
        let only = BackendChoice::Only;
        assert_eq!(backend(BackendChoice::Auto, &jitter).unwrap(), Backend::Emulator);
        let refused = backend(only(Backend::Netem), &jitter).unwrap_err();
        assert!(matches!(refused, LabError::BeyondNetem { key: "jitter" }), "{refused}");
        assert_eq!(backend(only(Backend::Emulator), &link()).unwrap(), Backend::Emulator);
    }
}
