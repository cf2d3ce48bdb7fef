//! The probe `drops`: each way to lose a packet alone, against what was sent and what the kernel counts.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::process::{Command, Stdio};

use libbpf_rs::{Link, Object, ObjectBuilder};
use socket2::{Domain, Protocol, Socket, Type};
use wirecost_linux::datagrams::Calls;
use wirecost_linux::link::Links;
use wirecost_linux::privilege::{self, skip_without_namespaces, skip_without_tracing};
use wirecost_linux::rate_limit::RateLimit;
use wirecost_linux::thread::{allowed_cpus, pin};
use wirecost_linux::{neighbour_tables, rps, sockopt, spawn, sysctl};
use wirecost_model::observe::{
    ConntrackDrops, DeviceDrops, Direction, DropOutcome, DropPlace, DropSite, DropsSection,
    HostObservation, NeighbourDrops, NicDropKind, NicDrops, ProbeStatus, TracedDrops,
};

use crate::attempts::undisturbed_machine;
use crate::packet_peer::{ACK, Peer, RST, SEGMENT, SYN};
use crate::two_hosts::{DEVICE, Host, Watched, World};

const SENT: u64 = 1_501;
const BYTES: usize = 101;
/// UDP's header and IPv4's.
const HEADERS: u64 = 8 + 20;
/// RFC 863, for which nobody listens here.
const CLOSED: u16 = 9;

fn skip(test: &str) -> bool {
    skip_without_namespaces(test) || skip_without_tracing(test)
}

/// A world in which who sends delivers too, so that no backlog of another CPU can be full.
fn world() -> World {
    let world = World::new();
    for host in [&world.a, &world.b] {
        rps::steer(&host.namespace, DEVICE, &[]).unwrap();
    }
    world
}

fn section(observed: &HostObservation) -> &DropsSection {
    observed.drops.as_ref().expect("a section")
}

fn traced(observed: &HostObservation) -> &TracedDrops {
    section(observed).traced.as_ref().expect("traced")
}

fn device(observed: &HostObservation) -> &DeviceDrops {
    let devices = section(observed).devices.as_ref().expect("read");
    devices.iter().find(|device| device.device == DEVICE).expect("the device")
}

fn counter(observed: &HostObservation, name: &str) -> u64 {
    let counters = section(observed).counters.as_ref().expect("read");
    counters.iter().find(|counter| counter.name == name).expect(name).packets
}

/// Names and values of all counters that grew.
fn grown(observed: &HostObservation) -> BTreeMap<&str, u64> {
    let counters = section(observed).counters.as_ref().expect("read").iter();
    let grown = counters.filter(|counter| counter.packets > 0);
    grown.map(|counter| (counter.name.as_str(), counter.packets)).collect()
}

/// Packets by reason.
fn reasons(drops: &TracedDrops) -> BTreeMap<&str, u64> {
    let mut reasons = BTreeMap::new();
    for site in &drops.sites {
        *reasons.entry(site.reason.as_str()).or_default() += site.packets;
    }
    reasons
}

fn check(watched: &Watched) {
    let report = &watched.observation.probes[0];
    assert_eq!(report.status, ProbeStatus::Ready, "{:?}", report.reason);
    assert_eq!(report.cost.recursion_misses, 0);
    for host in [watched.of_a(), watched.of_b()] {
        let drops = traced(host);
        assert_eq!(drops.uncounted, 0);
        assert!(drops.sites.iter().all(|site| site.function.is_some()), "{drops:?}");
    }
}

/// Checks that this is all that was dropped on either host, and returns the place in the code.
#[track_caller]
fn only<'a>(
    dropping: &'a HostObservation,
    other: &HostObservation,
    reason: &str,
    packets: u64,
) -> &'a DropSite {
    let drops = traced(dropping);
    assert_eq!(reasons(drops), BTreeMap::from([(reason, packets)]), "{drops:#?}");
    assert_eq!(traced(other).sites, [], "another namespace's");
    let [site] = drops.sites.as_slice() else { panic!("one place: {drops:#?}") };
    site
}

/// A socket of a, connected to a port of b.
fn sender(world: &World, port: u16) -> UdpSocket {
    let socket = world.a.run(|| UdpSocket::bind((world.a.address, 0)).unwrap());
    socket.connect((world.b.address, port)).unwrap();
    socket
}

fn port(socket: &UdpSocket) -> u16 {
    socket.local_addr().unwrap().port()
}

/// Reads all that has come. Returns how much.
fn read_all(socket: &UdpSocket) -> u64 {
    socket.set_nonblocking(true).unwrap();
    let mut buffer = [0; 65_536];
    let mut read = 0;
    while socket.recv(&mut buffer).is_ok() {
        read += 1;
    }
    read
}

/// A socket of b whose receive buffer takes little.
fn small_receiver(world: &World) -> UdpSocket {
    world.b.run(|| {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP)).unwrap();
        socket.set_recv_buffer_size(16 << 10).unwrap();
        socket.bind(&SocketAddr::new(world.b.address, 0).into()).unwrap();
        socket.into()
    })
}

#[test]
fn a_full_socket_buffer_drops_what_is_neither_read_nor_waiting() {
    if skip("a_full_socket_buffer_drops_what_is_neither_read_nor_waiting") {
        return;
    }
    undisturbed_machine(|| {
        let world = world();
        let receiver = small_receiver(&world);
        let sender = sender(&world, port(&receiver));
        let watched = world.observe(&["drops"], || {
            for _ in 0..SENT {
                sender.send(&[7; BYTES]).unwrap();
            }
        });
        let lost = SENT - read_all(&receiver);
        check(&watched);
        assert!(lost > SENT / 2, "{lost}");
        let site = only(watched.of_b(), watched.of_a(), "SOCKET_RCVBUFF", lost);
        assert_eq!((site.place, site.outcome), (DropPlace::SocketBuffer, DropOutcome::Lost));
        assert_eq!((site.skbs, site.bytes), (lost, lost * BYTES as u64), "{site:?}");
        assert_eq!(traced(watched.of_b()).lost_packets, lost);
        assert_eq!(u64::from(sockopt::receive_drops(&receiver).unwrap()), lost);
        assert_eq!(grown(watched.of_b()), BTreeMap::from([("Udp.RcvbufErrors", lost)]));
        let function = site.function.as_deref().unwrap();
        assert!(function.starts_with("udp_queue_rcv"), "{function}");
        let brief = section(watched.of_b()).brief().unwrap();
        assert!(brief.ends_with(&format!("({function})")) && brief.contains("socket buffer"));
    });
}

#[test]
fn a_port_where_nobody_listens_drops_all() {
    if skip("a_port_where_nobody_listens_drops_all") {
        return;
    }
    undisturbed_machine(|| {
        let world = world();
        let sender = world.a.run(|| UdpSocket::bind((world.a.address, 0)).unwrap());
        let watched = world.observe(&["drops"], || {
            for _ in 0..SENT {
                // What comes back (ICMP) is an error of the next call.
                while sender.send_to(&[7; BYTES], (world.b.address, CLOSED)).is_err() {}
            }
        });
        check(&watched);
        let site = only(watched.of_b(), watched.of_a(), "NO_SOCKET", SENT);
        assert_eq!((site.place, site.outcome), (DropPlace::NoSocket, DropOutcome::Lost));
        assert_eq!(grown(watched.of_b()), BTreeMap::from([("Udp.NoPorts", SENT)]));
    });
}

/// Sends datagrams with a wrong checksum, as no device would repair it.
fn send_damaged(world: &World, port: u16, number: u64) {
    let socket = world.a.run(|| {
        let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::UDP)).unwrap();
        socket.bind(&SocketAddr::new(world.a.address, 0).into()).unwrap();
        socket
    });
    let to = SocketAddr::new(world.b.address, 0).into();
    let mut datagram = [7; 8 + BYTES];
    datagram[0..2].copy_from_slice(&40_000u16.to_be_bytes());
    datagram[2..4].copy_from_slice(&port.to_be_bytes());
    datagram[4..6].copy_from_slice(&(8 + BYTES as u16).to_be_bytes());
    datagram[6..8].copy_from_slice(&[0x12, 0x34]);
    for _ in 0..number {
        socket.send_to(&datagram, &to).unwrap();
    }
}

#[test]
fn wrong_checksums_are_found_where_nobody_listens() {
    if skip("wrong_checksums_are_found_where_nobody_listens") {
        return;
    }
    undisturbed_machine(|| {
        let world = world();
        let watched = world.observe(&["drops"], || send_damaged(&world, CLOSED, SENT));
        check(&watched);
        let site = only(watched.of_b(), watched.of_a(), "UDP_CSUM", SENT);
        assert_eq!((site.place, site.outcome), (DropPlace::Transport, DropOutcome::Lost));
        assert_eq!(grown(watched.of_b()), BTreeMap::from([("Udp.InCsumErrors", SENT)]));
    });
}

fn skip_without_nft(test: &str) -> bool {
    let missing = Command::new("nft").arg("--version").output().is_err();
    if missing {
        privilege::skip(test, "needs nft");
    }
    missing
}

/// Gives a host a chain of nftables. Whether the kernel takes it.
fn filter(host: &Host, chain: &str) -> bool {
    let mut command = Command::new("nft");
    command.args(["-f", "-"]).stdin(Stdio::piped());
    spawn::enter_on_spawn(&mut command, &host.namespace).unwrap();
    let mut child = command.spawn().unwrap();
    let rules = format!("table ip wirecost {{\nchain one {{\n{chain}\n}}\n}}\n");
    child.stdin.take().unwrap().write_all(rules.as_bytes()).unwrap();
    child.wait().unwrap().success()
}

fn conntrack(observed: &HostObservation) -> &ConntrackDrops {
    section(observed).connection_tracking.as_ref().expect("connection tracking")
}

fn neighbours<'a>(observed: &'a HostObservation, table: &str) -> &'a NeighbourDrops {
    let tables = section(observed).neighbour_tables.as_ref().expect("neighbour tables");
    tables.iter().find(|of| of.table == table).expect(table)
}

#[test]
fn a_rule_of_the_packet_filter_drops_what_it_matches() {
    if skip("a_rule_of_the_packet_filter_drops_what_it_matches") {
        return;
    }
    if skip_without_nft("a_rule_of_the_packet_filter_drops_what_it_matches") {
        return;
    }
    undisturbed_machine(|| {
        let world = world();
        let receiver = world.b.run(|| UdpSocket::bind((world.b.address, 0)).unwrap());
        let sender = sender(&world, port(&receiver));
        assert!(filter(
            &world.b,
            "type filter hook input priority 0; policy accept;\nudp length 109 drop"
        ));
        let watched = world.observe(&["drops"], || {
            for _ in 0..SENT {
                sender.send(&[7; BYTES]).unwrap();
            }
            sender.send(&[7; BYTES + 1]).unwrap();
        });
        check(&watched);
        assert_eq!(read_all(&receiver), 1);
        let site = only(watched.of_b(), watched.of_a(), "NETFILTER_DROP", SENT);
        assert_eq!((site.place, site.outcome), (DropPlace::Filter, DropOutcome::Lost));
        assert_eq!(site.bytes, SENT * (BYTES as u64 + HEADERS));
        assert_eq!(grown(watched.of_b()), BTreeMap::new());
    });
}

#[test]
fn a_full_queueing_discipline_drops_all_segments_of_a_packet() {
    const SEGMENTS: usize = 10;
    const PACKETS: u64 = 40;
    if skip("a_full_queueing_discipline_drops_all_segments_of_a_packet") {
        return;
    }
    undisturbed_machine(|| {
        let world = world();
        let receiver = world.b.run(|| {
            let socket = UdpSocket::bind((world.b.address, 0)).unwrap();
            sockopt_receive_buffer(&socket, 4 << 20);
            socket
        });
        let sender = sender(&world, port(&receiver));
        let limit =
            RateLimit { bits_per_second: 8_000_000, burst_bytes: 20_000, queue_bytes: 40_000 };
        Links::of(&world.a.namespace).unwrap().limit_rate(DEVICE, limit).unwrap();
        let watched = world.observe(&["drops"], || {
            for _ in 0..PACKETS {
                let bytes = [7; SEGMENT * SEGMENTS];
                let length = std::iter::once(bytes.len());
                Calls::default().send(&sender, &bytes, length, Some(SEGMENT as u16)).unwrap();
            }
        });
        check(&watched);
        let lost = PACKETS * SEGMENTS as u64 - read_all(&receiver);
        assert!(lost > 0 && lost < PACKETS * SEGMENTS as u64, "{lost}");
        let site = only(watched.of_a(), watched.of_b(), "QDISC_DROP", lost);
        assert_eq!((site.place, site.outcome), (DropPlace::Qdisc, DropOutcome::Lost));
        assert_eq!(site.skbs * SEGMENTS as u64, lost, "{site:?}");
        let qdiscs = section(watched.of_a()).queueing_disciplines.as_ref().unwrap();
        let [qdisc] = qdiscs.as_slice() else { panic!("{qdiscs:?}") };
        assert_eq!((qdisc.kind.as_str(), qdisc.packets), ("tbf", site.skbs));
        assert_eq!(grown(watched.of_a()), BTreeMap::from([("Ip.OutDiscards", site.skbs)]));
    });
}

/// NAT sets the source port of all connections to one, which only the first finds free.
#[test]
fn connections_that_clash_are_dropped_by_connection_tracking() {
    const NAME: &str = "connections_that_clash_are_dropped_by_connection_tracking";
    const CONNECTIONS: u64 = 201;
    if skip(NAME) || skip_without_nft(NAME) {
        return;
    }
    undisturbed_machine(|| {
        let world = world();
        let receiver = world.b.run(|| UdpSocket::bind((world.b.address, 0)).unwrap());
        let (own, to) = (world.a.address, port(&receiver));
        let chain = format!(
            "type nat hook postrouting priority 100; policy accept;\nudp dport {to} snat to \
             {own}:2000"
        );
        if !filter(&world.a, &chain) {
            return privilege::skip(NAME, "needs NAT by nftables");
        }
        let watched = world.observe(&["drops"], || {
            for _ in 0..CONNECTIONS {
                // A packet that the filter drops is an error of the call.
                let _ = sender(&world, to).send(&[7; BYTES]);
            }
        });
        check(&watched);
        assert_eq!(read_all(&receiver), 1);
        let lost = CONNECTIONS - 1;
        let drops = conntrack(watched.of_a());
        assert_eq!((drops.dropped, drops.insert_failed), (lost, lost), "{drops:?}");
        assert_eq!((drops.early_dropped, drops.entries), (0, 1), "{drops:?}");
        assert_eq!(conntrack(watched.of_b()).dropped, 0, "another namespace's");
        let site = only(watched.of_a(), watched.of_b(), "NETFILTER_DROP", lost);
        assert_eq!((site.place, site.outcome), (DropPlace::Filter, DropOutcome::Lost));
    });
}

#[test]
fn what_waits_for_an_unknown_neighbour_is_discarded_when_its_queue_is_full() {
    if skip("what_waits_for_an_unknown_neighbour_is_discarded_when_its_queue_is_full") {
        return;
    }
    undisturbed_machine(|| {
        let world = world();
        let std::net::IpAddr::V4(own) = world.a.address else { panic!("IPv4") };
        let [first, second, third, _] = own.octets();
        let nobody = Ipv4Addr::new(first, second, third, 77);
        let sender = world.a.run(|| {
            // The queue takes less than the socket may send, and the neighbour is given up soon.
            for (setting, value) in [("unres_qlen_bytes", "20000"), ("retrans_time_ms", "50")] {
                sysctl::write(&format!("net.ipv4.neigh.{DEVICE}.{setting}"), value).unwrap();
            }
            UdpSocket::bind((world.a.address, 0)).unwrap()
        });
        let watched = world.observe(&["drops"], || {
            for _ in 0..SENT {
                // That the neighbour was given up is an error of the next call.
                while sender.send_to(&[7; BYTES], (nobody, CLOSED)).is_err() {}
            }
        });
        check(&watched);
        let reasons = reasons(traced(watched.of_a()));
        let (discarded, failed) = (reasons["NEIGH_QUEUEFULL"], reasons["NEIGH_FAILED"]);
        assert_eq!(discarded + failed, SENT, "{reasons:?}");
        assert!(discarded > SENT / 2 && failed > 0, "{reasons:?}");
        assert_eq!(traced(watched.of_a()).lost_packets, SENT);
        // The counter is of the whole machine, where others may wait for neighbours too.
        let table = neighbours(watched.of_a(), "arp_cache");
        match table.unresolved_discards {
            Some(all) => assert!(all >= discarded, "{table:?}: {discarded}"),
            None => assert!(table.unresolved_reason.is_some(), "{table:?}"),
        }
    });
}

/// The kernel does not free a connection request that finds no room as dropped: only the counters tell.
#[test]
fn a_full_queue_of_connections_to_accept_refuses_requests() {
    const REQUESTS: u16 = 101;
    if skip("a_full_queue_of_connections_to_accept_refuses_requests") {
        return;
    }
    undisturbed_machine(|| {
        let world = World::new();
        let (mut peer, listener) = Peer::queued(&world.b, 0);
        let watched = world.observe(&["drops"], || {
            for from in 0..REQUESTS {
                (peer.from, peer.sequence) = (50_000 + from, 1);
                peer.send(SYN, &[]);
            }
        });
        drop(listener);
        check(&watched);
        let refused = u64::from(REQUESTS);
        let expected = [("TcpExt.ListenDrops", refused), ("TcpExt.ListenOverflows", refused)];
        assert_eq!(grown(watched.of_b()), BTreeMap::from(expected));
        assert_eq!(traced(watched.of_b()).sites, []);
    });
}

/// Sends the first fragment of each of some datagrams, of which no other ever comes.
fn send_first_fragments(world: &World, number: u16) {
    let (std::net::IpAddr::V4(from), std::net::IpAddr::V4(to)) = (world.a.address, world.b.address)
    else {
        panic!("IPv4")
    };
    let socket = world.a.run(|| {
        // The header comes with the packet (raw(7)).
        Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(255))).unwrap()
    });
    let there = SocketAddr::new(world.b.address, 0).into();
    for id in 1..=number {
        let mut packet = [7; 20 + 8 + 64];
        let length = packet.len() as u16;
        packet[..2].copy_from_slice(&[0x45, 0]);
        packet[2..4].copy_from_slice(&length.to_be_bytes());
        packet[4..6].copy_from_slice(&id.to_be_bytes());
        // More fragments follow; UDP.
        packet[6..12].copy_from_slice(&[0x20, 0, 64, 17, 0, 0]);
        packet[12..16].copy_from_slice(&from.octets());
        packet[16..20].copy_from_slice(&to.octets());
        socket.send_to(&packet, &there).unwrap();
    }
}

/// Waits until so many datagrams of b were given up for want of a fragment.
fn wait_for_reassembly_timeouts(world: &World, number: u64) {
    let timeouts = || world.b.counters().protocols["Ip.ReasmTimeout"];
    while timeouts() < number {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn datagrams_whose_fragments_do_not_come_are_given_up() {
    const DATAGRAMS: u16 = 61;
    if skip("datagrams_whose_fragments_do_not_come_are_given_up") {
        return;
    }
    undisturbed_machine(|| {
        let world = world();
        world.b.run(|| sysctl::write("net.ipv4.ipfrag_time", "1").unwrap());
        let watched = world.observe(&["drops"], || {
            send_first_fragments(&world, DATAGRAMS);
            wait_for_reassembly_timeouts(&world, DATAGRAMS.into());
        });
        check(&watched);
        let given_up = u64::from(DATAGRAMS);
        let expected = [("Ip.ReasmFails", given_up), ("Ip.ReasmTimeout", given_up)];
        assert_eq!(grown(watched.of_b()), BTreeMap::from(expected));
        let site = only(watched.of_b(), watched.of_a(), "FRAG_REASM_TIMEOUT", given_up);
        assert_eq!((site.place, site.outcome), (DropPlace::Ip, DropOutcome::Lost));
    });
}

#[test]
fn fragments_that_find_no_memory_are_dropped() {
    const DATAGRAMS: u16 = 61;
    if skip("fragments_that_find_no_memory_are_dropped") {
        return;
    }
    undisturbed_machine(|| {
        let world = world();
        world.b.run(|| {
            // The first datagram finds the memory empty.
            let settings =
                [("ipfrag_low_thresh", "1"), ("ipfrag_high_thresh", "1"), ("ipfrag_time", "1")];
            for (setting, value) in settings {
                sysctl::write(&format!("net.ipv4.{setting}"), value).unwrap();
            }
        });
        let watched = world.observe(&["drops"], || {
            send_first_fragments(&world, DATAGRAMS);
            wait_for_reassembly_timeouts(&world, 1);
        });
        check(&watched);
        let expected = [("Ip.ReasmFails", DATAGRAMS.into()), ("Ip.ReasmTimeout", 1)];
        assert_eq!(grown(watched.of_b()), BTreeMap::from(expected));
        assert_eq!(traced(watched.of_b()).lost_packets, u64::from(DATAGRAMS));
        assert_eq!(traced(watched.of_a()).sites, []);
    });
}

/// More than the machine's limit.
fn sockopt_receive_buffer(socket: &UdpSocket, bytes: usize) {
    rustix::net::sockopt::set_socket_recv_buffer_size_force(socket, bytes).unwrap();
}

#[test]
fn a_packet_for_an_address_of_nobody_is_dropped_where_it_is_not_forwarded() {
    if skip("a_packet_for_an_address_of_nobody_is_dropped_where_it_is_not_forwarded") {
        return;
    }
    undisturbed_machine(|| {
        let world = world();
        let of_b = Links::of(&world.b.namespace).unwrap().get(DEVICE).unwrap().address.unwrap();
        let std::net::IpAddr::V4(own) = world.b.address else { panic!("IPv4") };
        let [first, second, third, _] = own.octets();
        let nobody = Ipv4Addr::new(first, second, third, 77);
        let links = Links::of(&world.a.namespace).unwrap();
        links.add_neighbours(DEVICE, [(nobody.into(), of_b.as_str())]).unwrap();
        let sender = world.a.run(|| UdpSocket::bind((world.a.address, 0)).unwrap());
        let watched = world.observe(&["drops"], || {
            for _ in 0..SENT {
                sender.send_to(&[7; BYTES], (nobody, CLOSED)).unwrap();
            }
        });
        check(&watched);
        let site = only(watched.of_b(), watched.of_a(), "IP_INADDRERRORS", SENT);
        assert_eq!((site.place, site.outcome), (DropPlace::Ip, DropOutcome::Lost));
        assert_eq!(counter(watched.of_b(), "Ip.InAddrErrors"), SENT);
    });
}

#[test]
fn a_device_that_takes_shorter_packets_drops_longer_ones() {
    if skip("a_device_that_takes_shorter_packets_drops_longer_ones") {
        return;
    }
    undisturbed_machine(|| {
        let world = world();
        let sender = sender(&world, CLOSED);
        Links::of(&world.b.namespace).unwrap().set_mtu(DEVICE, 1_000).unwrap();
        let watched = world.observe(&["drops"], || {
            for _ in 0..SENT {
                sender.send(&[7; 1_200]).unwrap();
            }
        });
        check(&watched);
        assert_eq!(device(watched.of_b()).rx_dropped, SENT);
        assert_eq!(device(watched.of_a()).rx_dropped, 0);
        // The packet is the sender's until the other end takes it.
        assert_eq!(traced(watched.of_a()).lost_packets, SENT, "{:#?}", traced(watched.of_a()));
        assert_eq!(traced(watched.of_b()).sites, []);
    });
}

/// The program, while it is attached to a device of a host.
struct XdpDrop {
    _link: Link,
    _object: Object,
}

fn drop_udp_by_xdp(host: &Host, device: &str) -> XdpDrop {
    const PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/bpf_xdp_drop.bpf.o"));
    let index = Links::of(&host.namespace).unwrap().get(device).unwrap().index;
    // The number of a device is of the namespace of the thread.
    host.run(|| {
        let object = ObjectBuilder::default().open_memory(PROGRAM).unwrap().load().unwrap();
        let link = object.progs_mut().next().unwrap().attach_xdp(index as i32).unwrap();
        XdpDrop { _link: link, _object: object }
    })
}

/// Loopback has no XDP of its own: the kernel runs the program behind the device, and frees what it drops.
#[test]
fn generic_xdp_drops_are_of_the_filter() {
    if skip("generic_xdp_drops_are_of_the_filter") {
        return;
    }
    undisturbed_machine(|| {
        let world = world();
        let xdp = drop_udp_by_xdp(&world.a, "lo");
        let sender = world.a.run(|| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
        let watched = world.observe(&["drops"], || {
            for _ in 0..SENT {
                sender.send_to(&[7; BYTES], (Ipv4Addr::LOCALHOST, port(&sender))).unwrap();
            }
        });
        assert_eq!(read_all(&sender), 0);
        check(&watched);
        // The kernel gives it no reason, only the function tells.
        let site = only(watched.of_a(), watched.of_b(), "NOT_SPECIFIED", SENT);
        assert_eq!((site.place, site.outcome), (DropPlace::Filter, DropOutcome::Lost), "{site:?}");
        drop(xdp);
    });
}

/// A pair runs the program itself: it counts what it drops.
#[test]
fn native_xdp_drops_are_in_the_counters_of_the_driver() {
    if skip("native_xdp_drops_are_in_the_counters_of_the_driver") {
        return;
    }
    undisturbed_machine(|| {
        let world = world();
        let xdp = drop_udp_by_xdp(&world.b, DEVICE);
        let sender = sender(&world, CLOSED);
        let watched = world.observe(&["drops", "nic"], || {
            for _ in 0..SENT {
                sender.send(&[7; BYTES]).unwrap();
            }
        });
        check(&watched);
        let driver = &device(watched.of_b()).driver;
        let by_xdp = driver.iter().filter(|of| of.name.contains("xdp_drops"));
        let dropped: u64 = by_xdp.map(|of| of.count).sum();
        assert_eq!(dropped, SENT, "{driver:#?}");
        let nic = watched.of_b().nic.as_ref().expect("a section");
        let nic = nic.devices.iter().find(|of| of.device == DEVICE).expect("the device");
        let expected = NicDrops { direction: Direction::Rx, kind: NicDropKind::Xdp, packets: SENT };
        assert_eq!(nic.drops, [expected]);
        // A program decided so: no loss of the device's.
        assert_eq!(nic.rx_drops, device(watched.of_b()).rx_dropped);
        // It had made packets of the kernel's before, as a pair hands these over.
        let site = only(watched.of_b(), watched.of_a(), "NOT_SPECIFIED", SENT);
        assert_eq!((site.place, site.outcome), (DropPlace::Filter, DropOutcome::Lost), "{site:?}");
        drop(xdp);
    });
}

#[test]
fn what_a_closed_socket_had_unread_is_purged_and_not_lost() {
    if skip("what_a_closed_socket_had_unread_is_purged_and_not_lost") {
        return;
    }
    undisturbed_machine(|| {
        let world = world();
        let raw = world.b.run(|| {
            let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::UDP)).unwrap();
            socket.bind(&SocketAddr::new(world.b.address, 0).into()).unwrap();
            socket
        });
        let receiver = world.b.run(|| UdpSocket::bind((world.b.address, 0)).unwrap());
        let sender = sender(&world, port(&receiver));
        let watched = world.observe(&["drops"], || {
            for _ in 0..67 {
                sender.send(&[7; BYTES]).unwrap();
            }
            // Each of them has received all.
            drop((raw, receiver));
            // UDP sockets are freed after a grace period of RCU, which the removal of a device waits for
            // (rcu_barrier): https://elixir.bootlin.com/linux/v6.18/source/net/core/dev.c, netdev_run_todo
            let links = Links::of(&world.b.namespace).unwrap();
            links.add_veth("gone", "peer", &world.b.namespace).unwrap();
            links.delete("gone").unwrap();
        });
        check(&watched);
        let drops = traced(watched.of_b());
        assert_eq!((drops.lost_packets, drops.packets(DropOutcome::Purged)), (0, 67), "{drops:#?}");
        assert_eq!(drops.sites.iter().map(|site| site.packets).sum::<u64>(), 67);
        assert_eq!(traced(watched.of_a()).sites, []);
        // Those of other sockets of the machine may be among them.
        let purged = drops.unattributed.iter().filter(|site| site.outcome == DropOutcome::Purged);
        assert!(purged.map(|site| site.packets).sum::<u64>() >= 67, "{drops:#?}");
    });
}

#[test]
fn without_the_hook_there_are_counters_only() {
    if skip_without_namespaces("without_the_hook_there_are_counters_only") {
        return;
    }
    let world = world();
    let receiver = small_receiver(&world);
    let sender = sender(&world, port(&receiver));
    let watched = world.observe(&["drops:basic"], || {
        for _ in 0..SENT {
            sender.send(&[7; BYTES]).unwrap();
        }
    });
    let report = &watched.observation.probes[0];
    assert_eq!((report.status, report.cost.hooks), (ProbeStatus::Ready, 0), "{:?}", report.reason);
    let drops = section(watched.of_b());
    assert_eq!(drops.traced, None);
    let lost = SENT - read_all(&receiver);
    assert_eq!(grown(watched.of_b()), BTreeMap::from([("Udp.RcvbufErrors", lost)]));
    assert_eq!(grown(watched.of_a()), BTreeMap::new());
}

#[test]
fn segments_of_a_dropped_packet_are_counted_by_their_size_where_their_number_is_unknown() {
    const NAME: &str =
        "segments_of_a_dropped_packet_are_counted_by_their_size_where_their_number_is_unknown";
    const SEGMENTS: usize = 20;
    const PACKETS: u64 = 11;
    if skip(NAME) {
        return;
    }
    undisturbed_machine(|| {
        let world = World::new();
        let mut peer = Peer::behind(&world.b, CLOSED);
        let watched = world.observe(&["drops"], || {
            for _ in 0..PACKETS {
                peer.send(ACK, &[7; SEGMENT * SEGMENTS]);
            }
        });
        check(&watched);
        let site = only(watched.of_b(), watched.of_a(), "NO_SOCKET", PACKETS * SEGMENTS as u64);
        assert_eq!(site.skbs, PACKETS, "{site:?}");
    });
}

#[test]
fn data_that_had_been_received_is_a_duplicate_and_not_lost() {
    const TIMES: u64 = 13;
    if skip("data_that_had_been_received_is_a_duplicate_and_not_lost") {
        return;
    }
    undisturbed_machine(|| {
        let world = World::new();
        let (mut peer, mut server) = Peer::connect(&world.b);
        let watched = world.observe(&["drops"], || {
            peer.send(ACK, &[7; SEGMENT]);
            server.read_exact(&mut [0; SEGMENT]).unwrap();
            peer.is_acknowledged();
            for _ in 0..TIMES {
                peer.sequence -= SEGMENT as u32;
                peer.send(ACK, &[7; SEGMENT]);
            }
        });
        peer.send(RST, &[]);
        check(&watched);
        let site = only(watched.of_b(), watched.of_a(), "TCP_OLD_DATA", TIMES);
        assert_eq!(site.outcome, DropOutcome::Duplicate);
        assert_eq!(traced(watched.of_b()).lost_packets, 0);
    });
}

/// These change a setting of the whole machine, or count what is not of a namespace.
mod alone {
    use super::*;

    const BACKLOG: &str = "net.core.netdev_max_backlog";
    const CONNECTIONS: &str = "net.netfilter.nf_conntrack_max";

    /// A setting that is put back, however the test ends.
    struct Restored(&'static str, String);

    impl Restored {
        fn set(setting: &'static str, value: &str) -> Self {
            let before = sysctl::read(setting).unwrap();
            sysctl::write(setting, value).unwrap();
            Self(setting, before)
        }
    }

    impl Drop for Restored {
        fn drop(&mut self) {
            sysctl::write(self.0, &self.1).unwrap();
        }
    }

    #[test]
    fn a_full_backlog_of_a_cpu_drops_what_does_not_arrive() {
        const NAME: &str = "alone::a_full_backlog_of_a_cpu_drops_what_does_not_arrive";
        if skip(NAME) {
            return;
        }
        let [first, second, ..] = allowed_cpus().unwrap()[..] else {
            return privilege::skip(NAME, "needs two CPUs");
        };
        // Only where the network namespace sees settings of the whole machine.
        if !sysctl::is_writable(BACKLOG).is_ok_and(|may| may) {
            return privilege::skip(NAME, "may not change net.core.netdev_max_backlog");
        }
        undisturbed_machine(|| {
            let world = world();
            rps::steer(&world.b.namespace, DEVICE, &[second]).unwrap();
            let receiver = world.b.run(|| UdpSocket::bind((world.b.address, 0)).unwrap());
            let sender = sender(&world, port(&receiver));
            let (mut read, mut sent) = (0, 0);
            let watched = world.observe(&["drops"], || {
                let _restored = Restored::set(BACKLOG, "1");
                // Until the other CPU is behind. Bursts fit into the socket, so that only the backlog can drop.
                while read == sent {
                    std::thread::scope(|scope| {
                        scope.spawn(|| {
                            pin(first).unwrap();
                            for _ in 0..100 {
                                sender.send(&[7; BYTES]).unwrap();
                            }
                        });
                    });
                    sent += 100;
                    // What was not dropped is on its way.
                    world.quiet();
                    read += read_all(&receiver);
                }
            });
            let lost = sent - read;
            check(&watched);
            let site = only(watched.of_b(), watched.of_a(), "CPU_BACKLOG", lost);
            assert_eq!((site.place, site.outcome), (DropPlace::Backlog, DropOutcome::Lost));
            // The counter is of the whole machine, where others may have dropped too.
            let backlogs = section(watched.of_b()).backlog.as_ref().expect("read");
            let of_cpu = backlogs.iter().find(|of| of.cpu == second).expect("it dropped");
            assert!(of_cpu.packets >= lost, "{backlogs:?}: {lost}");
            assert_eq!(device(watched.of_b()).rx_dropped, lost);
        });
    }

    #[test]
    fn a_full_table_of_connections_drops_what_finds_no_room() {
        const NAME: &str = "alone::a_full_table_of_connections_drops_what_finds_no_room";
        const ROOM: u64 = 16;
        const SENT: u64 = 301;
        if skip(NAME) || skip_without_nft(NAME) {
            return;
        }
        if !sysctl::is_writable(CONNECTIONS).is_ok_and(|may| may) {
            return privilege::skip(NAME, "may not change net.netfilter.nf_conntrack_max");
        }
        undisturbed_machine(|| {
            let world = world();
            let receiver = world.b.run(|| {
                let socket = UdpSocket::bind((world.b.address, 0)).unwrap();
                sockopt_receive_buffer(&socket, 4 << 20);
                socket
            });
            let chain = "type filter hook input priority 0; policy accept;\nct state new accept";
            if !filter(&world.b, chain) {
                return privilege::skip(NAME, "needs connection tracking by nftables");
            }
            let senders: Vec<UdpSocket> =
                (0..SENT).map(|_| sender(&world, port(&receiver))).collect();
            let watched = world.observe(&["drops"], || {
                let _restored = Restored::set(CONNECTIONS, &ROOM.to_string());
                for sender in &senders {
                    sender.send(&[7; BYTES]).unwrap();
                }
                world.quiet();
            });
            check(&watched);
            let lost = SENT - read_all(&receiver);
            let drops = conntrack(watched.of_b());
            assert_eq!((drops.dropped, drops.insert_failed), (lost, 0), "{drops:?}");
            assert_eq!(u64::from(drops.entries), ROOM, "{drops:?}");
            // A connection that made room for another had arrived.
            assert_eq!(SENT - lost, ROOM + drops.early_dropped, "{drops:?}");
            let site = only(watched.of_b(), watched.of_a(), "NETFILTER_DROP", lost);
            assert_eq!(site.place, DropPlace::Filter);
        });
    }

    /// Of IPv4: questions for neighbours of IPv6 need neighbours themselves. The table has no namespaces.
    #[test]
    fn a_full_neighbour_table_drops_what_needs_a_new_neighbour() {
        const NAME: &str = "alone::a_full_neighbour_table_drops_what_needs_a_new_neighbour";
        const OWN: Ipv4Addr = Ipv4Addr::new(198, 19, 0, 1);
        const GIVEN_UP_AFTER: std::time::Duration = std::time::Duration::from_secs(1);
        if skip(NAME) {
            return;
        }
        let room = neighbour_tables::read().unwrap()["arp_cache"].limit;
        if room > 30_000 {
            return privilege::skip(NAME, "the neighbour table is too large to be filled");
        }
        undisturbed_machine(|| {
            let world = world();
            let sockets: Vec<UdpSocket> = world.a.run(|| {
                // A neighbour is asked for once, and makes room after a second, when the table has been filled.
                let retrans = GIVEN_UP_AFTER.as_millis().to_string();
                for (setting, value) in [("mcast_solicit", "1"), ("retrans_time_ms", &retrans)] {
                    sysctl::write(&format!("net.ipv4.neigh.{DEVICE}.{setting}"), value).unwrap();
                }
                Links::here().unwrap().add_address(DEVICE, OWN.into(), 16).unwrap();
                // One for each neighbour: that it was given up is an error of the socket's next call.
                (0..2 * room).map(|_| UdpSocket::bind((OWN, 0)).unwrap()).collect()
            });
            let watched = world.observe(&["drops"], || {
                for (neighbour, socket) in (256..).zip(&sockets) {
                    let to = Ipv4Addr::from(u32::from(OWN) + neighbour);
                    socket.send_to(&[7; BYTES], (to, CLOSED)).unwrap();
                }
                // All neighbours have been given up.
                std::thread::sleep(2 * GIVEN_UP_AFTER);
            });
            check(&watched);
            let drops = traced(watched.of_a());
            let reasons = reasons(drops);
            let (full, failed) = (reasons["NEIGH_CREATEFAIL"], reasons["NEIGH_FAILED"]);
            // What had room waited, and was lost when its neighbour was given up.
            let sent = sockets.len() as u64;
            assert_eq!((full + failed, drops.lost_packets), (sent, sent), "{drops:#?}");
            assert!(full > 0 && failed > 0, "{drops:#?}");
            // The counter is of the whole machine.
            let table = neighbours(watched.of_a(), "arp_cache");
            assert!(table.table_fulls >= full, "{table:?}: {full}");
            assert_eq!(table.limit, room);
        });
    }

    /// A datagram that waits in a UDP socket no longer leads to a namespace.
    #[test]
    fn wrong_checksums_that_are_found_by_the_reader_are_of_an_unknown_namespace() {
        if skip("wrong_checksums_that_are_found_by_the_reader_are_of_an_unknown_namespace") {
            return;
        }
        undisturbed_machine(|| {
            let world = world();
            let receiver = world.b.run(|| UdpSocket::bind((world.b.address, 0)).unwrap());
            let watched = world.observe(&["drops"], || {
                send_damaged(&world, port(&receiver), 61);
                assert_eq!(read_all(&receiver), 0);
            });
            check(&watched);
            for host in [watched.of_a(), watched.of_b()] {
                let drops = traced(host);
                assert_eq!((drops.lost_packets, drops.sites.len()), (0, 0), "{drops:#?}");
                // Older kernels give no reason.
                let reader = Some("udp_recvmsg");
                let found = drops.unattributed.iter().filter(|of| of.function.as_deref() == reader);
                assert_eq!(found.map(|site| site.packets).sum::<u64>(), 61, "{drops:#?}");
            }
            assert_eq!(grown(watched.of_b()), BTreeMap::from([("Udp.InCsumErrors", 61)]));
        });
    }
}
