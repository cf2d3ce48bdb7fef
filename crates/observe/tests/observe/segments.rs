//! The probe `segments` against the counters of the interfaces and of TCP.

use std::io::{Read, Write};
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rustix::net::sockopt;
use wirecost_linux::clock::{self, Monotonic};
use wirecost_linux::datagrams::Calls;
use wirecost_linux::ethtool::Ethtool;
use wirecost_linux::privilege::{skip_without_namespaces, skip_without_tracing};
use wirecost_model::clock::{Clock, Nanos, SECOND};
use wirecost_model::observe::{
    DeviceSegments, HostObservation, ObserveRequest, ProbeStatus, SegmentSizes, SegmentsSection,
    TransmitContext,
};
use wirecost_observe::Observer;

use crate::attempts::undisturbed_machine;
use crate::two_hosts::{Counters, DEVICE, Watched, World, pump};

/// A datagram is lost where another load has filled the backlog of the CPU.
const LOST: Duration = Duration::from_millis(500);

/// Ethernet's.
const LINK_HEADER: u64 = 14;

fn skip(test: &str) -> bool {
    skip_without_namespaces(test) || skip_without_tracing(test)
}

fn section(observed: &HostObservation) -> &SegmentsSection {
    observed.segments.as_ref().expect("a section")
}

fn device(observed: &HostObservation) -> &DeviceSegments {
    let devices = &section(observed).devices;
    assert_eq!(devices.len(), 1, "{devices:?}");
    assert_eq!(devices[0].device, DEVICE);
    &devices[0]
}

fn received(device: &DeviceSegments) -> &SegmentSizes {
    device.received.as_ref().expect("counted")
}

fn share(device: &DeviceSegments, by: TransmitContext) -> f64 {
    let share = device.transmit_contexts.iter().find(|share| share.by == by);
    share.map_or(0.0, |share| share.percent_packets)
}

/// What must be so of any observation.
fn check(watched: &Watched) {
    let report = &watched.observation.probes[0];
    assert_eq!(report.status, ProbeStatus::Ready, "{:?}", report.reason);
    assert_eq!(report.cost.recursion_misses, 0);
    for observed in [watched.of_a(), watched.of_b()] {
        let device = device(observed);
        assert_eq!(section(observed).uncounted_packets, 0);
        for sizes in [&device.sent, received(device)] {
            let lengths: u64 = sizes.lengths.iter().map(|bucket| bucket.packets).sum();
            let segments: u64 = sizes.segments_per_packet.iter().map(|b| b.packets).sum();
            assert_eq!((lengths, segments), (sizes.packets, sizes.packets));
            let last: u64 = sizes.intervals.iter().map(|interval| interval.bytes).sum();
            assert_eq!(last, sizes.bytes);
        }
        let mut contexts = device.control_packets;
        for shares in [&device.transmit_contexts, &device.transmit_contexts_acks] {
            contexts += shares.iter().map(|share| share.packets).sum::<u64>();
            let packets: f64 = shares.iter().map(|share| share.percent_packets).sum();
            let bytes: f64 = shares.iter().map(|share| share.percent_bytes).sum();
            for percent in [packets, bytes] {
                assert!(shares.is_empty() || (percent - 100.0).abs() < 1e-9, "{shares:?}");
            }
        }
        assert_eq!(contexts, device.sent.packets);
    }
    let (a, b) = (device(watched.of_a()), device(watched.of_b()));
    for (device, (before, after)) in [(a, &watched.a), (b, &watched.b)] {
        if device.sent.packets != after.tx_packets - before.tx_packets {
            println!("{a:?}\n{b:?}");
        }
        assert_eq!(device.sent.packets, after.tx_packets - before.tx_packets);
        assert_eq!(device.sent.bytes, after.tx_bytes - before.tx_bytes);
        let received = received(device);
        let headers = LINK_HEADER * received.packets;
        // Without GRO, as a pair has it when it is new, what comes is what was sent.
        assert_eq!(received.packets, after.rx_packets - before.rx_packets);
        assert_eq!(received.bytes + headers, after.rx_bytes - before.rx_bytes);
    }
}

/// Segments of TCP that a host sent while it was watched, by its own count.
fn tcp_segments(host: &(Counters, Counters)) -> u64 {
    let (before, after) = host;
    after.grown(before, "Tcp.OutSegs") + after.grown(before, "Tcp.RetransSegs")
}

#[test]
fn a_stream_is_counted_as_the_interface_and_tcp_count_it() {
    if skip("a_stream_is_counted_as_the_interface_and_tcp_count_it") {
        return;
    }
    undisturbed_machine(|| {
        let world = World::new();
        let watched = world.observe(&["segments"], || {
            world.transfer(20_000_003, |_| (), |_| ());
        });
        check(&watched);
        let (a, b) = (device(watched.of_a()), device(watched.of_b()));
        assert_eq!(a.sent.segments, tcp_segments(&watched.a));
        assert_eq!(b.sent.segments, tcp_segments(&watched.b));
        assert!(a.sent.average_segments.unwrap() > 2.0, "{a:?}");
        assert_eq!(a.sent.cap_ipv4_bytes, 65536);
        assert!(a.sent.packets_at_cap <= a.sent.gso_packets);
        // SYN and FIN of one side, SYN-ACK and FIN of the other.
        assert_eq!((a.control_packets >= 1, b.control_packets >= 1), (true, true));
    });
}

/// A socket of a, and the one of b that it sends to.
fn datagrams(world: &World) -> (UdpSocket, UdpSocket) {
    let to = world.b.run(|| UdpSocket::bind((world.b.address, 0)).unwrap());
    let from = world.a.run(|| UdpSocket::bind((world.a.address, 0)).unwrap());
    from.connect(to.local_addr().unwrap()).unwrap();
    (from, to)
}

#[test]
fn datagrams_are_counted_to_the_last_one() {
    if skip("datagrams_are_counted_to_the_last_one") {
        return;
    }
    undisturbed_machine(|| {
        let world = World::new();
        let (from, to) = datagrams(&world);
        let watched = world.observe(&["segments"], || {
            let mut buffer = [0; 200];
            to.set_read_timeout(Some(LOST)).unwrap();
            for _ in 0..4999 {
                from.send(&[7; 101]).unwrap();
                to.recv(&mut buffer).unwrap();
            }
        });
        let report = &watched.observation.probes[0];
        assert_eq!(report.status, ProbeStatus::Ready, "{:?}", report.reason);
        let (a, b) = (&section(watched.of_a()).devices[0], &section(watched.of_b()).devices[0]);
        assert_eq!(a.sent.packets, 4999, "{a:?} {b:?} {:?}", section(watched.of_a()).devices);
        assert_eq!(a.sent.segments, 4999);
        assert_eq!(a.sent.bytes, 4999 * (101 + 8 + 20 + LINK_HEADER));
        assert_eq!(received(b).packets, 4999);
        assert_eq!(received(b).bytes, 4999 * (101 + 8 + 20));
        assert_eq!(share(a, TransmitContext::Writer), 100.0, "{:?}", a.transmit_contexts);
        assert_eq!(a.transmit_contexts[0].contexts[0].context, "write");
    });
}

/// A packet is at the cap when one segment more would be too much for the device.
#[test]
fn packets_at_the_cap_are_told_from_those_below() {
    const SEGMENT: usize = 1023;
    // 65 segments and headers are more than 64 KiB, 63 are not.
    const FULL: (usize, u64) = (64, 7);
    const BELOW: (usize, u64) = (62, 11);
    if skip("packets_at_the_cap_are_told_from_those_below") {
        return;
    }
    undisturbed_machine(|| {
        let world = World::new();
        let (from, _to) = datagrams(&world);
        let watched = world.observe(&["segments"], || {
            for (segments, packets) in [FULL, BELOW] {
                let bytes = vec![7; segments * SEGMENT];
                for _ in 0..packets {
                    let length = std::iter::once(bytes.len());
                    Calls::default().send(&from, &bytes, length, Some(SEGMENT as u16)).unwrap();
                }
            }
        });
        let sent = &device(watched.of_a()).sent;
        let segments = FULL.0 as u64 * FULL.1 + BELOW.0 as u64 * BELOW.1;
        assert_eq!((sent.packets, sent.segments), (FULL.1 + BELOW.1, segments), "{sent:?}");
        assert_eq!(sent.packets_at_cap, FULL.1, "{sent:?}");
        let share = FULL.1 as f64 * 100.0 / (FULL.1 + BELOW.1) as f64;
        assert!((sent.percent_at_cap.unwrap() - share).abs() < 1e-9, "{sent:?}");
        // UDP, IPv4, Ethernet.
        let length = |segments: usize| (segments * SEGMENT + 8 + 20) as f64 + LINK_HEADER as f64;
        let of = |power| {
            let sizes = [(FULL.0, FULL.1), (BELOW.0, BELOW.1)];
            sizes
                .map(|(segments, packets)| packets as f64 * length(segments).powi(power))
                .iter()
                .sum()
        };
        let (sum, squares): (f64, f64) = (of(1), of(2));
        let by_bytes = sent.average_bytes_by_bytes.unwrap();
        assert!((by_bytes - squares / sum).abs() < 1e-6 * by_bytes, "{sent:?}");
    });
}

#[test]
fn what_gro_joins_is_counted_by_its_segments() {
    if skip("what_gro_joins_is_counted_by_its_segments") {
        return;
    }
    undisturbed_machine(|| {
        let world = World::new();
        world.a.send_single_segments();
        let ethtool = world.b.run(Ethtool::open).unwrap();
        ethtool.set_feature(DEVICE, "rx-gro", true).unwrap();
        let watched = world.observe(&["segments"], || {
            world.transfer(5_000_011, |_| (), |_| ());
        });
        let (a, b) = (device(watched.of_a()), device(watched.of_b()));
        let (before, after) = &watched.b;
        assert_eq!(a.sent.packets, a.sent.segments, "nothing is cut by the device");
        let got = received(b);
        assert_eq!(got.segments, after.rx_packets - before.rx_packets);
        assert!(got.packets * 3 < got.segments * 2, "{got:?}");
        assert!(got.gso_packets > 0);
        // What was joined has no headers: TCP's with a time stamp, IPv4's. By NAPI the pair counts
        // without link headers:
        // https://elixir.bootlin.com/linux/v6.12/source/drivers/net/veth.c#L905
        let joined = got.segments - got.packets;
        assert_eq!(got.bytes + (32 + 20) * joined, after.rx_bytes - before.rx_bytes);
    });
}

#[test]
fn small_writes_go_by_the_thread_that_writes() {
    if skip("small_writes_go_by_the_thread_that_writes") {
        return;
    }
    undisturbed_machine(|| {
        let world = World::new();
        let (mut client, mut server) = world.connect(|_| (), |_| ());
        client.set_nodelay(true).unwrap();
        let watched = world.observe(&["segments"], || {
            let mut buffer = [0; 100];
            for _ in 0..499 {
                client.write_all(&[7; 100]).unwrap();
                server.read_exact(&mut buffer).unwrap();
            }
        });
        check(&watched);
        let a = device(watched.of_a());
        // False failures: 1e-6, computed: each write has room, as the one before was read; one in ten would be sent later.
        assert!(share(a, TransmitContext::Writer) > 90.0, "{:?}", a.transmit_contexts);
        let data: u64 = a.transmit_contexts.iter().map(|share| share.packets).sum();
        assert_eq!(data, 499 + watched.a.1.grown(&watched.a.0, "Tcp.RetransSegs"));
        pump(client, server, 0);
    });
}

/// Datagrams at an even pace until told to stop, which are counted.
fn paced(from: &UdpSocket, to: &UdpSocket, over: &AtomicBool, sent: &AtomicU64) {
    let mut buffer = [0; 200];
    to.set_read_timeout(Some(LOST)).unwrap();
    while !over.load(Ordering::Relaxed) {
        from.send(&[7; 101]).unwrap();
        let _ = to.recv(&mut buffer);
        sent.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(Duration::from_micros(200));
    }
}

#[test]
fn a_window_without_packets_is_empty() {
    if skip("a_window_without_packets_is_empty") {
        return;
    }
    let world = World::new();
    let watched = world.observe(&["segments"], || std::thread::sleep(Duration::from_millis(1)));
    assert_eq!(watched.of_a().segments.as_ref().unwrap().devices, []);
}

/// Other programs on the CPUs change when TCP sends, and when slices are.
mod measured {
    use super::*;

    #[test]
    fn a_stream_that_waits_for_its_receiver_goes_by_the_ack_clock() {
        if skip("a_stream_that_waits_for_its_receiver_goes_by_the_ack_clock") {
            return;
        }
        undisturbed_machine(|| {
            let world = World::new();
            const BYTES: usize = 3_000_017;
            let (mut client, mut server) = world.connect(
                |socket| sockopt::set_socket_send_buffer_size_force(socket, 4 * BYTES).unwrap(),
                |socket| socket.set_recv_buffer_size(65536).unwrap(),
            );
            let watched = world.observe(&["segments"], || {
                // All of it is with the sender's TCP when the receiver begins to make room for it.
                client.write_all(&vec![7; BYTES]).unwrap();
                server.read_exact(&mut vec![0; BYTES]).unwrap();
            });
            check(&watched);
            let a = device(watched.of_a());
            // False failures: 1e-6, computed: ten timers of 200 ms would send a tenth; the reader would stand still for 2 s.
            assert!(share(a, TransmitContext::AckClock) > 80.0, "{:?}", a.transmit_contexts);
            let reader = device(watched.of_b())
                .transmit_contexts_acks
                .iter()
                .find(|d| d.by == TransmitContext::Reader);
            // False failures: 1e-9, computed: a window of 64 KiB is read 45 times, and each read opens it again.
            assert!(
                reader.is_some_and(|reader| reader.packets > 0),
                "windows are updated by who reads"
            );
            pump(client, server, 0);
        });
    }

    #[test]
    fn slices_of_a_window_tell_what_the_whole_does() {
        if skip("slices_of_a_window_tell_what_the_whole_does") {
            return;
        }
        undisturbed_machine(|| {
            let world = World::new();
            let (from, to) = datagrams(&world);
            let probes = vec!["interrupts:sliced".to_owned(), "segments:sliced".to_owned()];
            let parts = vec![world.a.part("a")];
            let mut observer = Observer::open(ObserveRequest { probes, parts });
            let (over, sent) = (AtomicBool::new(false), AtomicU64::new(0));
            let in_window = std::thread::scope(|scope| {
                scope.spawn(|| paced(&from, &to, &over, &sent));
                observer.attach();
                observer.begin();
                let before = sent.load(Ordering::Relaxed);
                let start = Monotonic.now();
                observer.watch(start, start + 3 * SECOND, Nanos::MAX, |due| {
                    clock::sleep(due.saturating_sub(Monotonic.now()));
                    true
                });
                let in_window = sent.load(Ordering::Relaxed) - before;
                observer.end();
                observer.detach();
                over.store(true, Ordering::Relaxed);
                in_window
            });
            let observation = observer.take();
            for report in &observation.probes {
                assert_eq!(report.status, ProbeStatus::Ready, "{:?}", report.reason);
            }
            let seen = &observation.parts[0];
            let slices = section(seen).slices.expect("slices");
            // False failures: 1e-6, computed: a slice would have to begin 200 ms late.
            assert_eq!(slices.count, 12, "{slices:?}");
            // False failures: 1e-6, computed: of 21%; twelve slices would have to be 7 ms late on average, or one 90 ms.
            assert!((18.0..25.0).contains(&slices.percent), "{slices:?}");
            // False failures: 1e-6, computed: the edges of a window of 3 s would have to be 60 ms apart.
            assert!((slices.seconds * 100.0 / slices.percent / seen.seconds - 1.0).abs() < 0.02);
            let device = &section(seen).devices[0].sent;
            let share = device.packets as f64 / in_window as f64;
            // False failures: 1e-6, computed: the load would have to stand still for 0.7 s of 3, which is reported.
            assert!((share / (slices.percent / 100.0) - 1.0).abs() < 0.3, "{share}, {slices:?}");
            assert_eq!(device.average_bytes, Some((101 + 8 + 20 + LINK_HEADER) as f64));
            let interrupts = seen.interrupts.as_ref().expect("a section");
            let napi = interrupts.napi_slices.expect("slices");
            assert_eq!(napi.count, slices.count);
            // Softirqs are counted all the time.
            let net_rx = interrupts.softirqs.iter().find(|row| row.source == "net_rx").unwrap();
            let polls: u64 = interrupts.napi.iter().flatten().map(|row| row.polls).sum();
            // False failures: 1e-6, computed: slices have 21% of the polls, by the assertion before.
            assert!(polls > 0 && polls * 3 < net_rx.total.count, "{polls} of {net_rx:?}");
        });
    }
}
