//! The probe `tcp` against the kernel's counters and a capture of the packets themselves.

use std::io::{Read, Write};

use socket2::Socket;
use wirecost_linux::privilege::{skip_without_namespaces, skip_without_tracing};
use wirecost_model::observe::{HostObservation, ObserveRequest, Part, ProbeStatus, TcpSection};
use wirecost_observe::Observer;

use crate::attempts::undisturbed_machine;
use crate::capture::{Capture, lose_one_of};
use crate::two_hosts::{Watched, World, carry, pump};

fn skip(test: &str) -> bool {
    skip_without_namespaces(test) || skip_without_tracing(test)
}

fn section(observed: &HostObservation) -> &TcpSection {
    observed.tcp.as_ref().expect("a section")
}

/// A packet that comes while another is worked on in a task is not seen, but counted as missed.
fn lacks(watched: &Watched, figure: Option<u64>, captured: u64) {
    let figure = figure.expect("measured");
    let missed = watched.observation.probes[0].cost.recursion_misses;
    // One that was sent again may have many segments.
    let missed = if missed > 0 { missed * 45 } else { 0 };
    assert!(figure <= captured && captured <= figure + missed, "{figure} of {captured}, {missed}");
}

fn check(watched: &Watched) {
    let report = &watched.observation.probes[0];
    assert_eq!(report.status, ProbeStatus::Ready, "{:?}", report.reason);
    for (observed, (before, after)) in [(watched.of_a(), &watched.a), (watched.of_b(), &watched.b)]
    {
        let tcp = section(observed);
        let grown = |name: &str| Some(after.grown(before, name));
        assert_eq!(tcp.segments_sent, grown("Tcp.OutSegs"));
        assert_eq!(tcp.retransmits.segments, grown("Tcp.RetransSegs"));
        assert_eq!(tcp.out_of_order_packets, grown("TcpExt.TCPOFOQueue"));
        if tcp.retransmits.source.as_deref() == Some("bpf") {
            let kinds = [
                tcp.retransmits.fast_segments,
                tcp.retransmits.timeout_segments,
                tcp.retransmits.probe_segments,
                tcp.retransmits.syn_segments,
            ];
            let kinds = kinds.into_iter().sum::<Option<u64>>().expect("all kinds");
            lacks(watched, Some(kinds), tcp.retransmits.segments.expect("counted"));
        }
    }
}

#[test]
fn acknowledgements_are_those_of_a_capture() {
    if skip("acknowledgements_are_those_of_a_capture") {
        return;
    }
    undisturbed_machine(|| {
        let world = World::new();
        let (mut client, mut server) = world.connect(|_| (), |_| ());
        world.a.send_single_segments();
        let capture = world.b.run(|| Capture::open(world.b.address));
        let watched = world.observe(&["tcp"], || carry(&mut client, &mut server, 5_000_011));
        let seen = capture.finish();
        check(&watched);
        let (a, b) = (section(watched.of_a()), section(watched.of_b()));
        assert_eq!(a.acks_received.source.as_deref(), Some("bpf"));
        // What b sends is what a receives. The last two of a connection are of its end, when it is not
        // established any more. Packets of others that come while one is worked on make the probe miss some.
        let missed = watched.observation.probes[0].cost.recursion_misses;
        let near = |figure: Option<u64>, captured: u64| {
            let figure = figure.expect("measured");
            assert!(
                figure <= captured && captured <= figure + 3 + missed,
                "{figure} of {captured}, {missed} missed: {seen:?}"
            );
        };
        near(a.acks_received.pure_acks, seen.pure_acks_sent);
        near(b.acks_sent.pure_acks, seen.pure_acks_sent);
        near(b.acks_sent.data_segments, seen.data_segments_received);
        let captured = seen.data_segments_received as f64 / seen.pure_acks_sent as f64;
        for ratio in [&a.acks_received, &b.acks_sent] {
            let ratio = ratio.segments_per_ack.expect("acknowledged");
            assert!((ratio / captured - 1.0).abs() < 0.05, "{ratio}, captured {captured}");
        }
        pump(client, server, 0);
    });
}

#[test]
fn the_basic_level_needs_no_bpf_and_tells_of_flows() {
    if skip_without_namespaces("the_basic_level_needs_no_bpf_and_tells_of_flows") {
        return;
    }
    undisturbed_machine(|| {
        let world = World::new();
        let (mut client, mut server) = world.connect(|_| (), |_| ());
        world.a.send_single_segments();
        let capture = world.b.run(|| Capture::open(world.b.address));
        let watched = world.observe(&["tcp:basic"], || {
            // Both ends stay open: what is closed has no TCP_INFO.
            carry(&mut client, &mut server, 5_000_011);
        });
        let seen = capture.finish();
        check(&watched);
        assert_eq!(watched.observation.probes[0].cost.hooks, 0);
        let (a, b) = (section(watched.of_a()), section(watched.of_b()));
        assert_eq!(a.acks_received.source.as_deref(), Some("tcp-info"));
        // The flow is looked at a little after the window began and before it ended: nothing moves then.
        assert_eq!(a.acks_received.pure_acks, Some(seen.pure_acks_sent));
        assert_eq!(b.acks_sent.pure_acks, Some(seen.pure_acks_sent));
        assert_eq!(b.acks_sent.data_segments, Some(seen.data_segments_received));
        assert_eq!(a.duplicate_acks_received, None);
        assert_eq!((a.flows_open, a.flows.len()), (Some(1), 1));
        let flow = &a.flows[0];
        assert_eq!(flow.bytes_acked, 5_000_011);
        assert_eq!(flow.congestion_control.as_deref(), Some("cubic"));
        assert_eq!(flow.local, client.local_addr().unwrap().to_string());
        assert!(flow.samples.len() >= 2);
        assert!(flow.samples.last().unwrap().rtt_us > 0);
        assert_eq!(b.flows[0].bytes_received, 5_000_011);
        pump(client, server, 0);
    });
}

/// A request and its response on a connection of its own, which either end closes first.
fn short_connections(world: &World, connections: usize) {
    for number in 0..connections {
        let (mut client, mut server) = world.connect(|_| (), |_| ());
        client.write_all(&[7; 300]).unwrap();
        server.read_exact(&mut [0; 300]).unwrap();
        server.write_all(&[8; 5_000]).unwrap();
        let (first, mut second) = match number % 2 {
            0 => (server, client),
            _ => {
                client.read_exact(&mut [0; 5_000]).unwrap();
                (client, server)
            }
        };
        drop(first);
        let mut rest = Vec::new();
        second.read_to_end(&mut rest).unwrap();
        assert_eq!(rest.len(), if number % 2 == 0 { 5_000 } else { 0 });
    }
}

/// Most acknowledgements of a short connection come when one side has closed, or begin it.
#[test]
fn acknowledgements_of_short_connections_are_those_of_a_capture() {
    if skip("acknowledgements_of_short_connections_are_those_of_a_capture") {
        return;
    }
    undisturbed_machine(|| {
        let world = World::new();
        world.a.send_single_segments();
        world.b.send_single_segments();
        let captures = [&world.a, &world.b].map(|host| host.run(|| Capture::open(host.address)));
        let watched = world.observe(&["tcp"], || short_connections(&world, 100));
        let [of_a, of_b] = captures.map(Capture::finish);
        check(&watched);
        let missed = watched.observation.probes[0].cost.recursion_misses;
        let near = |figure: Option<u64>, captured: u64, what: &str| {
            let figure = figure.expect("measured");
            let apart = 3 + captured / 50 + missed;
            assert!(figure.abs_diff(captured) <= apart, "{what}: {figure}, captured {captured}");
        };
        for (observed, seen, name) in [(watched.of_a(), &of_a, "a"), (watched.of_b(), &of_b, "b")] {
            let tcp = section(observed);
            let what = |of: &str| format!("{of} of {name}, {seen:?}");
            near(tcp.acks_received.data_segments, seen.data_segments_sent, &what("data sent"));
            near(tcp.acks_received.pure_acks, seen.pure_acks_received, &what("ACKs received"));
            near(tcp.acks_sent.data_segments, seen.data_segments_received, &what("data received"));
            near(tcp.acks_sent.pure_acks, seen.pure_acks_sent, &what("ACKs sent"));
        }
    });
}

/// The kernel's counters make it twice as many data segments for each acknowledgement.
#[test]
fn the_basic_level_has_no_ratio_of_short_connections_and_says_why() {
    if skip_without_namespaces("the_basic_level_has_no_ratio_of_short_connections_and_says_why") {
        return;
    }
    let world = World::new();
    let short = world.observe(&["tcp:basic"], || short_connections(&world, 20));
    has_no_ratio(&short);
    // Nor does one that is open all the time, and idle, stand for them.
    let (client, server) = world.connect(|_| (), |_| ());
    let beside = world.observe(&["tcp:basic"], || short_connections(&world, 20));
    assert_eq!(section(beside.of_a()).flows_open, Some(1));
    has_no_ratio(&beside);
    pump(client, server, 0);
}

fn has_no_ratio(watched: &Watched) {
    check(watched);
    for observed in [watched.of_a(), watched.of_b()] {
        let tcp = section(observed);
        for ratio in [&tcp.acks_received, &tcp.acks_sent] {
            assert_eq!(ratio.segments_per_ack, None, "{ratio:?}");
            let reason = ratio.reason.as_deref().unwrap_or_default();
            assert!(reason.contains("`--observe tcp`"), "{ratio:?}");
        }
        // How many were sent is known all the same.
        assert!(tcp.acks_sent.pure_acks.unwrap() >= 20, "{:?}", tcp.acks_sent);
    }
}

#[test]
fn a_window_of_zero_is_timed() {
    if skip("a_window_of_zero_is_timed") {
        return;
    }
    undisturbed_machine(|| {
        let world = World::new();
        let (mut client, mut server) =
            world.connect(|_| (), |socket| socket.set_recv_buffer_size(16384).unwrap());
        const BYTES: usize = 300_007;
        let watched = world.observe(&["tcp"], || {
            std::thread::scope(|scope| {
                scope.spawn(|| client.write_all(&vec![7; BYTES]).unwrap());
                // The window is closed when nothing moves any more.
                world.quiet();
                server.read_exact(&mut vec![0; BYTES]).unwrap();
            });
        });
        check(&watched);
        let windows = &section(watched.of_a()).windows;
        assert!(windows.zero_received.unwrap() >= 1, "{windows:?}");
        assert!(section(watched.of_b()).windows.zero_announced.unwrap() >= 1);
        let waited = windows.zero_received_seconds.unwrap();
        assert!((0.2..watched.of_a().seconds).contains(&waited), "{windows:?}");
        pump(client, server, 0);
    });
}

/// As they are from either end, the connections that a run is controlled by are none of its load.
#[test]
fn control_connections_are_not_among_the_flows() {
    if skip_without_namespaces("control_connections_are_not_among_the_flows") {
        return;
    }
    let world = World::new();
    let (mut client, mut server) = world.connect(|_| (), |_| ());
    let (load, other) = world.connect(|_| (), |_| ());
    carry(&mut client, &mut server, 100_000);
    let control = vec![(client.local_addr().unwrap(), client.peer_addr().unwrap())];
    let parts = [&world.a, &world.b].map(|host| Part { control: control.clone(), ..host.part("") });
    let probes = vec!["tcp:basic".to_owned()];
    let mut observer = Observer::open(ObserveRequest { probes, parts: parts.to_vec() });
    observer.attach();
    observer.begin();
    observer.end();
    observer.detach();
    let ends = [load.local_addr().unwrap(), other.local_addr().unwrap()].map(|a| a.to_string());
    for (seen, local) in observer.take().parts.iter().zip(ends) {
        let tcp = section(seen);
        assert_eq!(tcp.flows_open, Some(1));
        let flows: Vec<&str> = tcp.flows.iter().map(|flow| flow.local.as_str()).collect();
        assert_eq!(flows, [local]);
    }
}

#[test]
fn a_namespace_that_is_gone_is_told() {
    // No process has this number: https://man7.org/linux/man-pages/man5/proc_sys_kernel.5.html
    let nowhere = Part { host: "a".to_owned(), netns_of: Some(1 << 22), ..Part::default() };
    let probes = vec!["tcp:basic".to_owned()];
    let mut observer = Observer::open(ObserveRequest { probes, parts: vec![nowhere] });
    observer.attach();
    observer.begin();
    observer.end();
    observer.detach();
    let observation = observer.take();
    assert_eq!(observation.probes[0].status, ProbeStatus::Partial);
    assert!(observation.probes[0].reason.as_ref().unwrap().starts_with("nothing of a"));
    assert_eq!(observation.parts[0].tcp, None);
}

/// How soon data is read, and so which acknowledgements come, depends on other programs.
mod measured {
    use super::*;

    #[test]
    fn loss_is_found_with_its_kinds() {
        if skip("loss_is_found_with_its_kinds") {
            return;
        }
        undisturbed_machine(|| {
            let world = World::new();
            world.a.send_single_segments();
            // A window that does not grow: an acknowledgement with a new one is no duplicate, and how soon a
            // large buffer is read depends on who else uses the CPUs.
            let (mut client, mut server) =
                world.connect(|_| (), |socket| socket.set_recv_buffer_size(131_072).unwrap());
            lose_one_of(&Socket::from(server.try_clone().unwrap()), 50);
            let capture = world.a.run(|| Capture::open(world.a.address));
            let watched = world.observe(&["tcp"], || carry(&mut client, &mut server, 5_000_011));
            let seen = capture.finish();
            check(&watched);
            let a = section(watched.of_a());
            let resent = a.retransmits.segments.unwrap();
            // False failures: 1e-12, computed: one of 50 of 3,450 segments is lost, 69 on average (Poisson).
            assert!(resent > 10, "{:?}", a.retransmits);
            // False failures: 1e-9, computed: each of 69 losses would have to be found by a timer.
            assert!(a.retransmits.fast_segments.unwrap() > 0, "{:?}", a.retransmits);
            // False failures: 1e-9, computed: each of 69 losses would have to be found by a timer.
            assert!(a.recoveries.fast.unwrap() > 0);
            // False failures: 1e-12, computed: each loss has some behind it, so 69 are expected at least (Poisson).
            assert!(section(watched.of_b()).out_of_order_packets.unwrap() > 10);
            let missed = watched.observation.probes[0].cost.recursion_misses;
            let near = |figure: u64, captured: u64| {
                let apart = 3 + captured / 100;
                // False failures: 1e-5 (x2), computed: four packets would have to come after all bytes were read, at the edge.
                assert!(
                    (captured.saturating_sub(apart + missed)..=captured + apart).contains(&figure),
                    "{figure} of {captured}, {missed} missed: {seen:?}"
                );
            };
            near(resent, seen.segments_resent);
            near(a.duplicate_acks_received.unwrap(), seen.duplicate_acks_received);
            // False failures: 1e-12, computed: each loss has some behind it, so 69 are expected at least (Poisson).
            assert!(seen.duplicate_acks_received > 10, "{seen:?}");
            pump(client, server, 0);
        });
    }
}
