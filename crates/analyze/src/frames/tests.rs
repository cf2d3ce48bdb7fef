//! Counters of two hosts whose truth is known.

use proptest::prelude::*;
use wirecost_model::clock::SECOND;
use wirecost_model::host::HostFacts;
use wirecost_model::measure::{Counters, Datagrams, PhaseResult};
use wirecost_model::outcome::HostOutcome;
use wirecost_model::packets::DevicePackets;

use super::*;

/// What happened to datagrams on their way from the master to the peer.
#[derive(Debug, Clone, Copy, Default)]
struct Truth {
    size: u64,
    generated: u64,
    qdisc: u64,
    /// Lost on the link; negative: duplicates.
    link: i64,
    missed: u64,
    no_port: u64,
    /// Dropped by a filter, which no counter tells.
    filtered: u64,
    socket: u64,
    /// Packets of others that each device sent and received, of which each host knows.
    foreign: u64,
}

/// Headers of UDP, IPv4 and Ethernet.
const HEADERS: u64 = 8 + 20 + 14;

impl Truth {
    fn sent(&self) -> u64 {
        self.generated - self.qdisc
    }

    fn received(&self) -> u64 {
        self.sent().saturating_add_signed(-self.link) - self.missed
    }

    fn read(&self) -> u64 {
        self.received() - self.no_port - self.filtered - self.socket
    }

    fn hosts(&self) -> [HostOutcome; 2] {
        let out = DevicePackets {
            tx_packets: self.sent() + self.foreign,
            tx_bytes: self.sent() * (self.size + HEADERS) + self.foreign * 80,
            qdisc_drops: self.qdisc as u32,
            ..device()
        };
        let of_out = ProtocolPackets { udp_sent: self.generated, ..ProtocolPackets::default() };
        let into = DevicePackets {
            rx_packets: self.received() + self.foreign,
            rx_bytes: self.received() * (self.size + HEADERS) + self.foreign * 80,
            rx_missed: self.missed,
            ..device()
        };
        let of_into = ProtocolPackets {
            udp_received: self.read(),
            no_port: self.no_port,
            receive_buffer: self.socket,
            other_received: self.foreign,
            ..ProtocolPackets::default()
        };
        let sent = Datagrams { sent: self.generated, ..Datagrams::default() };
        let read = Datagrams { received: self.read(), ..Datagrams::default() };
        [
            host(Side::Master, sent, self.size, (out, of_out), 0),
            host(Side::Peer, read, self.size, (into, of_into), self.socket),
        ]
    }
}

fn device() -> DevicePackets {
    DevicePackets { name: "eth0".to_owned(), link_header: 14, ..DevicePackets::default() }
}

/// A host with counters that began at some number, and ended with these more.
fn host(
    side: Side,
    datagrams: Datagrams,
    size: u64,
    (device, protocols): (DevicePackets, ProtocolPackets),
    receive_buffer_drops: u64,
) -> HostOutcome {
    let first = DevicePackets {
        tx_packets: 1000,
        rx_packets: 1000,
        tx_bytes: 70_000,
        rx_bytes: 70_000,
        // It goes round.
        qdisc_drops: u32::MAX,
        rx_missed: 4,
        ..self::device()
    };
    let mut last = device;
    last.tx_packets += first.tx_packets;
    last.rx_packets += first.rx_packets;
    last.tx_bytes += first.tx_bytes;
    last.rx_bytes += first.rx_bytes;
    last.qdisc_drops = last.qdisc_drops.wrapping_add(first.qdisc_drops);
    last.rx_missed += first.rx_missed;
    let counters = |at, device, protocols| PacketCounters {
        at,
        devices: vec![device],
        rx_elsewhere: 0,
        protocols,
    };
    let before = counters(0, first, ProtocolPackets::default());
    let after = counters(2 * SECOND, last, protocols);
    let snapshot = |edge, at, datagrams: Datagrams, packets: &PacketCounters| Snapshot {
        edge,
        due: at,
        at,
        counters: Counters {
            bytes: wirecost_model::measure::Bytes {
                tx_sent: datagrams.sent * size,
                tx_received: datagrams.received * size,
                ..Default::default()
            },
            datagrams,
            ..Counters::default()
        },
        cpu: None,
        packets: Some(packets.clone()),
    };
    let result = PhaseResult {
        snapshots: vec![
            snapshot(Edge::PhaseStart, 0, Datagrams::default(), &before),
            snapshot(Edge::WindowStart, 0, Datagrams::default(), &before),
            snapshot(Edge::WindowEnd, 2 * SECOND, datagrams, &after),
            snapshot(Edge::PhaseEnd, 2 * SECOND, datagrams, &after),
        ],
        drained: Some(after),
        receive_buffer_drops,
        ..PhaseResult::default()
    };
    let number = match side {
        Side::Master => 1,
        Side::Peer => 2,
    };
    HostOutcome {
        name: format!("h{number}"),
        side,
        address: None,
        facts: HostFacts::default(),
        cpus: Vec::new(),
        owns_cpus: true,
        workers: 1,
        pid: 0,
        network_namespace: Some(number),
        clock_offset: 0,
        clock_error: 0,
        phases: vec![result],
        settings: Vec::new(),
        placements: Vec::new(),
        warnings: Vec::new(),
        environment: serde_json::Value::Null,
    }
}

fn windows(hosts: &[HostOutcome]) -> Vec<HostWindow<'_>> {
    let window = |host| {
        let phase = crate::window::result(host, 0).unwrap();
        let span = Span {
            start: phase.snapshot(Edge::WindowStart).unwrap(),
            end: phase.snapshot(Edge::WindowEnd).unwrap(),
        };
        HostWindow { host, phase, span, whole: false }
    };
    hosts.iter().map(window).collect()
}

fn forward(hosts: &[HostOutcome]) -> FramesDirection {
    let mut frames = of(&windows(hosts), false);
    assert_eq!(frames.reason, None);
    assert_eq!(frames.directions.len(), 1, "nothing was answered");
    frames.directions.remove(0)
}

fn stage(direction: &FramesDirection, wanted: Stage) -> &FramesStage {
    direction.stages.iter().find(|stage| stage.stage == wanted).unwrap()
}

proptest! {
    #[test]
    fn each_stage_has_what_passed_it_and_each_loss_its_place(
        size in 1u64..9000,
        read in 0u64..1_000_000,
        losses in proptest::array::uniform6(0u64..1000),
        foreign in 0u64..1000,
    ) {
        let [qdisc, link, missed, no_port, filtered, socket] = losses;
        let generated = read + losses.iter().sum::<u64>();
        prop_assume!(generated > 0);
        let truth = Truth {
            size, generated, qdisc, link: link as i64, missed, no_port, filtered, socket, foreign,
        };
        let hosts = truth.hosts();
        let told = forward(&hosts);
        let numbers: Vec<_> = told.stages.iter().map(|stage| stage.datagrams.unwrap()).collect();
        prop_assert_eq!(
            numbers,
            [generated, truth.sent(), truth.received(), read + socket, read]
        );
        let missing: Vec<_> = told.stages[1..].iter().map(|stage| stage.missing.unwrap()).collect();
        let expected = [qdisc, link + missed, no_port + filtered, socket].map(|lost| lost as i64);
        prop_assert_eq!(missing, expected);
        prop_assert_eq!(at(&stage(&told, Stage::Sent).places, Place::Qdisc), qdisc);
        prop_assert_eq!(at(&stage(&told, Stage::Received).places, Place::DeviceMissed), missed);
        let reached = stage(&told, Stage::ReachedSocket);
        prop_assert_eq!(at(&reached.places, Place::NoPort), no_port);
        prop_assert_eq!(at(&reached.places, Place::Unexplained), filtered);
        prop_assert_eq!(at(&stage(&told, Stage::Read).places, Place::SocketBuffer), socket);
        prop_assert_eq!(stage(&told, Stage::Sent).foreign, Some(foreign));
        prop_assert_eq!(stage(&told, Stage::Received).foreign, Some(foreign));
        // The window is two seconds; what devices did for others is in their rate.
        let rates: Vec<_> = told.stages.iter().map(|stage| 2.0 * stage.per_second.unwrap()).collect();
        let all = [generated, truth.sent() + foreign, truth.received() + foreign, read + socket, read];
        prop_assert_eq!(rates, all.map(|number| number as f64));
        let [interval] = &told.intervals[..] else { panic!("{:?}", told.intervals) };
        // Of what no counter has nobody knows that it is not on its way.
        prop_assert_eq!(interval.in_flight as u64, link + filtered);
    }
}

#[test]
fn a_link_that_duplicates_delivers_more_than_was_sent() {
    let truth = Truth { size: 100, generated: 1000, link: -50, ..Truth::default() };
    let told = forward(&truth.hosts());
    let received = stage(&told, Stage::Received);
    assert_eq!((received.datagrams, received.missing), (Some(1050), Some(-50)));
    assert_eq!(stage(&told, Stage::Read).datagrams, Some(1050));
}

#[test]
fn packets_of_others_of_which_no_counter_tells_are_no_duplicates() {
    let mut hosts = Truth { size: 100, generated: 1000, ..Truth::default() }.hosts();
    // As ARP, or a report of multicast groups.
    hosts[1].phases[0].drained.as_mut().unwrap().devices[0].rx_packets += 3;
    let told = forward(&hosts);
    let received = stage(&told, Stage::Received);
    assert_eq!(
        (received.datagrams, received.missing, received.foreign),
        (Some(1000), Some(0), Some(3))
    );
    assert_eq!(received.packets, Some(1003));
}

/// As frames of a protocol that the host does not know, which its device counts as dropped.
#[test]
fn what_is_lost_for_others_is_not_missing() {
    let mut hosts = Truth { size: 100, generated: 1000, ..Truth::default() }.hosts();
    let [out, into] = &mut hosts;
    let [out, into] = [out, into].map(|host| host.phases[0].drained.as_mut().unwrap());
    out.devices[0].qdisc_drops = out.devices[0].qdisc_drops.wrapping_add(500);
    into.devices[0].rx_packets += 5;
    into.devices[0].rx_dropped += 5;
    let told = forward(&hosts);
    let missing: Vec<_> = told.stages[1..].iter().map(|stage| stage.missing).collect();
    assert_eq!(missing, [Some(0); 4]);
    assert!(told.stages.iter().all(|stage| stage.places.is_empty()), "{told:?}");
}

/// TCP comes by another device than the datagrams, of which a filter drops some.
#[test]
fn packets_of_other_devices_hide_nothing() {
    let truth = Truth { size: 100, generated: 1000, filtered: 100, ..Truth::default() };
    let mut hosts = truth.hosts();
    let into = hosts[1].phases[0].drained.as_mut().unwrap();
    into.protocols.other_received = 5000;
    into.rx_elsewhere = 5000;
    let told = forward(&hosts);
    assert_eq!(stage(&told, Stage::Received).missing, Some(0));
    assert_eq!(at(&stage(&told, Stage::ReachedSocket).places, Place::Unexplained), 100);
}

#[test]
fn what_a_socket_drops_has_its_cause() {
    let mut hosts = Truth { size: 100, generated: 1000, socket: 60, ..Truth::default() }.hosts();
    let protocols = &mut hosts[1].phases[0].drained.as_mut().unwrap().protocols;
    (protocols.receive_buffer, protocols.memory, protocols.checksum) = (10, 20, 25);
    let told = forward(&hosts);
    let read = stage(&told, Stage::Read);
    assert_eq!(read.missing, Some(60));
    let causes = [Place::SocketBuffer, Place::Memory, Place::Checksum, Place::Unexplained];
    assert_eq!(causes.map(|place| at(&read.places, place)), [10, 20, 25, 5]);
    assert_eq!(stage(&told, Stage::ReachedSocket).places, []);
}

/// One joined packet is dropped: eight datagrams.
#[test]
fn a_socket_that_joins_drops_several_at_once() {
    let mut hosts = Truth { size: 100, generated: 1000, socket: 8, ..Truth::default() }.hosts();
    let result = &mut hosts[1].phases[0];
    result.receive_buffer_drops = 1;
    result.drained.as_mut().unwrap().protocols.receive_buffer = 1;
    (result.io.received_datagrams, result.io.received_messages) = (992, 124);
    let told = forward(&hosts);
    let missing: Vec<_> = told.stages[1..].iter().map(|stage| stage.missing).collect();
    assert_eq!(missing, [Some(0), Some(0), Some(0), Some(8)]);
}

/// The kernel cuts 16,000 bytes into packets that the device counts as one each (veth), or as many (hardware).
#[test]
fn a_packet_of_several_datagrams_counts_as_these() {
    for headers_of_each in [1, 16] {
        let truth = Truth { size: 1000, generated: 1600, ..Truth::default() };
        let mut hosts = truth.hosts();
        for (host, sends) in hosts.iter_mut().zip([true, false]) {
            let after = host.phases[0].drained.as_mut().unwrap();
            let device = &mut after.devices[0];
            let (packets, bytes) = match sends {
                true => (&mut device.tx_packets, &mut device.tx_bytes),
                false => (&mut device.rx_packets, &mut device.rx_bytes),
            };
            *packets = 1000 + 100 * headers_of_each;
            *bytes = 70_000 + 1_600_000 + 100 * headers_of_each * HEADERS;
        }
        // UDP counts calls.
        hosts[0].phases[0].drained.as_mut().unwrap().protocols.udp_sent = 100;
        hosts[0].phases[0].io.send_calls = 100;
        hosts[0].phases[0].io.sent_datagrams = 1600;
        let told = forward(&hosts);
        let numbers: Vec<_> = told.stages.iter().map(|stage| stage.datagrams).collect();
        assert_eq!(numbers, [Some(1600); 5], "{headers_of_each}");
    }
}

#[test]
fn fragments_count_as_the_datagrams_that_they_are_of() {
    let truth = Truth { size: 4000, generated: 1000, ..Truth::default() };
    let mut hosts = truth.hosts();
    let drained = |host: &mut HostOutcome| host.phases[0].drained.clone().unwrap();
    let mut out = drained(&mut hosts[0]);
    out.devices[0].tx_packets += 2000;
    out.protocols.fragmented = 1000;
    out.protocols.fragments_sent = 3000;
    hosts[0].phases[0].drained = Some(out);
    // Of ten datagrams a fragment was lost.
    let mut into = drained(&mut hosts[1]);
    into.devices[0].rx_packets += 2000 - 10;
    into.protocols.fragments_received = 3000 - 10;
    into.protocols.reassembled = 990;
    into.protocols.udp_received = 990;
    hosts[1].phases[0].drained = Some(into);
    for snapshot in &mut hosts[1].phases[0].snapshots[2..] {
        snapshot.counters.datagrams.received = 990;
    }
    let told = forward(&hosts);
    let numbers: Vec<_> = told.stages.iter().map(|stage| stage.datagrams.unwrap()).collect();
    assert_eq!(numbers, [1000, 1000, 990, 990, 990]);
    assert_eq!(stage(&told, Stage::Received).missing, Some(10));
}

#[test]
fn what_hosts_share_is_nobodys() {
    let mut hosts = Truth { size: 100, generated: 10, ..Truth::default() }.hosts();
    hosts[1].network_namespace = hosts[0].network_namespace;
    let frames = of(&windows(&hosts), false);
    assert_eq!(
        frames.reason.as_deref(),
        Some("h1 and h2 share their devices: use a lab, or two machines")
    );
    let stages: Vec<_> = frames.directions[0].stages.iter().map(|stage| stage.stage).collect();
    assert_eq!(stages, [Stage::Generated, Stage::ReachedSocket, Stage::Read]);
    // Another machine may have the same number.
    hosts[1].facts.boot_id = "other".to_owned();
    assert_eq!(of(&windows(&hosts), false).reason, None);
    hosts[1].phases[0].drained = None;
    let reason = of(&windows(&hosts), false).reason.unwrap();
    assert_eq!(reason, "h2 does not tell the counters of its kernel");
}

/// Two masters of one namespace have its counters once.
#[test]
fn hosts_of_a_namespace_count_once() {
    let truth = Truth { size: 100, generated: 1000, ..Truth::default() };
    let [first, peer] = truth.hosts();
    let mut half = first.clone();
    half.name = "h3".to_owned();
    let mut both = first;
    for host in [&mut both, &mut half] {
        for snapshot in &mut host.phases[0].snapshots[2..] {
            snapshot.counters.datagrams.sent = 500;
        }
    }
    let told = forward(&[both, half, peer]);
    let numbers: Vec<_> = told.stages.iter().map(|stage| stage.datagrams.unwrap()).collect();
    assert_eq!(numbers, [1000; 5]);
}

/// Both ends on loopback: what their sockets dropped is known all the same.
#[test]
fn hosts_that_share_their_devices_have_what_their_sockets_tell() {
    let truth = Truth { size: 100, generated: 1000, no_port: 4, socket: 36, ..Truth::default() };
    let mut hosts = truth.hosts();
    hosts.iter_mut().for_each(|host| host.network_namespace = Some(7));
    let frames = of(&windows(&hosts), false);
    assert!(frames.reason.is_some_and(|reason| reason.contains("share their devices")));
    let stages: Vec<_> = frames.directions[0]
        .stages
        .iter()
        .map(|stage| (stage.stage, stage.datagrams, stage.missing))
        .collect();
    assert_eq!(
        stages,
        [
            (Stage::Generated, Some(1000), None),
            (Stage::ReachedSocket, Some(996), Some(4)),
            (Stage::Read, Some(960), Some(36)),
        ]
    );
    let places = |at: usize| frames.directions[0].stages[at].places.clone();
    assert_eq!(places(1), [FramesPlace { place: Place::Unexplained, packets: 4 }]);
    assert_eq!(places(2), [FramesPlace { place: Place::SocketBuffer, packets: 36 }]);
    // A socket that joins datagrams does not tell how many it dropped.
    hosts[1].phases[0].io.received_datagrams = 960;
    hosts[1].phases[0].io.received_messages = 100;
    assert_eq!(of(&windows(&hosts), false).directions[0].stages.len(), 2);
}

/// A driver counts as dropped what the AF_XDP socket dropped, and generic XDP does not.
#[test]
fn what_af_xdp_sockets_dropped_counts_once() {
    let mut hosts = Truth { size: 100, generated: 1000, socket: 60, ..Truth::default() }.hosts();
    let result = &mut hosts[1].phases[0];
    result.io.frames_dropped = 60;
    let last = result.drained.as_mut().unwrap();
    last.protocols.receive_buffer = 0;
    last.devices[0].rx_dropped += 65;
    for (native, of_device) in [(true, 5), (false, 65)] {
        let frames = of(&windows(&hosts), native);
        let told = frames.directions.iter().find(|told| told.from == Side::Master).unwrap();
        let read = stage(told, Stage::Read);
        assert_eq!((read.missing, at(&read.places, Place::FrameSocket)), (Some(60), 60));
        let reached = stage(told, Stage::ReachedSocket);
        assert_eq!(reached.datagrams, Some(1000));
        assert_eq!(reached.per_second, None, "when they were dropped is not known");
        let counted = windows(&hosts);
        let counted = Namespaces::of(&counted, Side::Peer).phase();
        let input = counted.input(&read.places, native);
        assert_eq!(at(&input, Place::DeviceInput), of_device);
    }
}
