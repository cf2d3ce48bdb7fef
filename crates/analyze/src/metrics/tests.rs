use std::collections::BTreeSet;

use wirecost_model::measure::Bytes;
use wirecost_model::program::Side;
use wirecost_model::receive_stamps::ReceiveStamps;
use wirecost_model::run::{HostRow, Io, Latency, Operations, Run, ZeroCopy};

use super::*;
use crate::fixtures;

fn run() -> Run {
    Run::empty("@stream", "epoll", "0.1.0", 0)
}

#[test]
fn names_are_unique_and_each_is_found() {
    let mut seen = BTreeSet::new();
    for metric in all() {
        assert!(seen.insert(metric.name), "{} is there twice", metric.name);
        assert!(!metric.help.is_empty());
        let name = metric.name.replace('*', "copy");
        assert_eq!(find(&name).unwrap().metric(), metric);
    }
}

#[test]
fn what_is_of_hosts_can_be_asked_of_one() {
    let selector = find("hosts.sender.cycles_per_kbyte").unwrap();
    assert_eq!(selector.metric().name, "cycles_per_kbyte");
    assert_eq!(selector.host.as_deref(), Some("sender"));
    let selector = find("hosts.h2.functions.tcp_sendmsg.inclusive").unwrap();
    assert_eq!(selector.thing.as_deref(), Some("tcp_sendmsg"));
    assert_eq!(find("functions.a.b.exclusive").unwrap().thing.as_deref(), Some("a.b"));
}

#[test]
fn a_slip_of_the_pen_is_told_the_nearest_name() {
    assert_eq!(find("througput").unwrap_err().nearest, Some("throughput"));
    assert_eq!(
        find("hosts.sender.cycles_per_kb").unwrap_err().to_string(),
        "there is no metric hosts.sender.cycles_per_kb; did you mean cycles_per_kbyte?"
    );
    assert_eq!(find("xyzzy").unwrap_err().nearest, None);
    // What is of a whole run is of no host.
    assert!(find("hosts.sender.throughput").is_err());
    assert!(find("layers..share").is_err());
}

#[test]
fn every_figure_of_a_run_that_measured_nothing_is_missing_with_a_reason() {
    for metric in all() {
        let reason = find(&metric.name.replace('*', "copy")).unwrap().of(&run()).unwrap_err();
        assert!(!reason.is_empty(), "{}", metric.name);
    }
}

#[test]
fn what_is_no_number_is_missing() {
    let mut run = run();
    let selector = find("throughput").unwrap();
    run.throughput = Some(fixtures::throughput(f64::NAN, 0));
    assert!(selector.of(&run).is_err());
    run.throughput = Some(fixtures::throughput(5.0, 0));
    assert_eq!(selector.of(&run), Ok(5.0));
}

#[test]
fn the_cost_on_no_machine_is_missing_and_not_0() {
    let run = shared(["198.18.0.1", "198.18.0.2"]);
    assert!(run.machines.is_empty());
    let reason = find("cycles_per_kbyte").unwrap().of(&run).unwrap_err();
    assert!(reason.contains("no machine"), "{reason}");
    assert!(find("cycles_per_operation").unwrap().of(&run).is_err());
}

/// A run between hosts that share CPUs, as in a lab with more hosts than CPUs: one observer covers
/// all.
fn shared(addresses: [&str; 2]) -> Run {
    let host = |name: &str, role, address: &str, bytes| {
        let address = Some(address.to_owned());
        HostRow { role, address, bytes: Some(bytes), ..fixtures::host(name) }
    };
    let mut run = run();
    run.hosts = vec![
        host("h1", Side::Master, addresses[0], Bytes { tx_sent: 4096, ..Bytes::default() }),
        host("h2", Side::Peer, addresses[1], Bytes { tx_received: 4096, ..Bytes::default() }),
    ];
    let mut observed = observe::HostObservation {
        host: "h1".to_owned(),
        covers: vec!["h1".to_owned(), "h2".to_owned()],
        ..Default::default()
    };
    let tcp = observe::TcpSection { out_of_order_packets: Some(7), ..Default::default() };
    observed.tcp = Some(tcp);
    let devices = observe::InterruptsSection {
        devices: vec![observe::DeviceInterrupts { rx_packets: 4, ..Default::default() }],
        ..Default::default()
    };
    observed.interrupts = Some(devices);
    run.observe =
        Some(wirecost_model::run::Observe { hosts: vec![observed], ..Default::default() });
    run
}

#[test]
fn what_is_of_a_network_namespace_is_of_no_host_with_another() {
    let run = shared(["198.18.0.1", "198.18.0.2"]);
    let of = |name: &str| find(name).unwrap().of(&run);
    assert_eq!(of("hosts.sender.out_of_order"), Ok(7.0));
    for name in ["hosts.receiver.out_of_order", "hosts.peer.packets.received"] {
        let reason = of(name).unwrap_err();
        assert!(reason.starts_with("h2 shares its CPUs"), "{reason}");
    }
    assert_eq!(of("hosts.h1.packets.received"), Ok(4.0));
    // On loopback they have one namespace.
    let run = shared(["127.0.0.1", "127.0.0.1"]);
    assert_eq!(find("hosts.peer.out_of_order").unwrap().of(&run), Ok(7.0));
    assert_eq!(find("hosts.peer.payload_per_packet").unwrap().of(&run), Ok(1024.0));
}

#[test]
fn times_from_driver_to_application_are_of_each_host() {
    let latency = Latency {
        p50: 1.0,
        p90: 2.0,
        p99: 3.0,
        p999: 4.0,
        max: 5.0,
        mean: 6.0,
        trimmed_mean: None,
        count: 7,
    };
    let stamps = ReceiveStamps {
        sockets: 1,
        not_sampled: Vec::new(),
        messages: 7,
        delay_us: Some(latency),
        negative: 0,
        unstamped: Vec::new(),
        by_device: 0,
        clock_step_us: None,
    };
    let silent = ReceiveStamps { messages: 0, delay_us: None, ..stamps.clone() };
    let host = |name, receive_stamps| HostRow { receive_stamps, ..fixtures::host(name) };
    let hosts = vec![host("a", Some(stamps)), host("b", Some(silent)), host("c", None)];
    let run = Run { hosts, ..run() };
    let of = |name: &str| find(name).unwrap().of(&run);
    let quantiles = ["p50", "p90", "p99", "p999", "max", "mean"];
    let times = quantiles.map(|of_a| of(&format!("hosts.a.receive_delay.{of_a}")).unwrap());
    assert_eq!(times, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    for (name, reason) in [
        ("hosts.b.receive_delay.p50", "the stamped sockets received nothing in the window"),
        ("hosts.c.receive_delay.p50", "nothing was stamped (--receive-stamps)"),
    ] {
        assert_eq!(of(name), Err(reason.to_owned()));
    }
}

fn moved(bytes: u64, operations: u64) -> Run {
    let host = HostRow {
        cycles_per_kbyte: Some(300.0),
        bytes: Some(Bytes { tx_sent: bytes, ..Bytes::default() }),
        ..fixtures::host("client")
    };
    Run {
        throughput: Some(fixtures::throughput(1.0, bytes)),
        operations: Some(Operations { count: operations, per_second: 1.0, failed: 0, timeouts: 0 }),
        hosts: vec![host],
        machines: vec![fixtures::machine("client", 500.0)],
        ..run()
    }
}

#[test]
fn the_cost_of_an_operation_is_that_of_the_bytes_it_moves() {
    let (all, one) =
        (find("cycles_per_operation").unwrap(), find("hosts.client.cycles_per_operation").unwrap());
    // Writes of 64 KByte.
    assert_eq!(all.of(&moved(6400 * 1024, 100)), Ok(64.0 * 500.0));
    assert_eq!(one.of(&moved(6400 * 1024, 100)), Ok(64.0 * 300.0));
    assert!(all.of(&moved(0, 0)).unwrap_err().contains("no operation"));
    let mut unknown = moved(1024, 1);
    unknown.machines[0].cycles_per_kbyte = None;
    unknown.machines[0].cycles_reason = Some("no clock".to_owned());
    assert_eq!(all.of(&unknown), Err("no clock".to_owned()));
}

#[test]
fn what_the_kernel_copied_of_zero_copy_is_a_percentage_or_missing() {
    let selector = find("zerocopy.copied").unwrap();
    let mut run = run();
    let zerocopy = |completed, copied_share| {
        let of = ZeroCopy { calls: 8, completed, copied: 2, copied_share, refused: 0 };
        Some(Io { zerocopy: Some(of), ..Io::default() })
    };
    run.io = zerocopy(8, Some(0.25));
    assert_eq!(selector.of(&run), Ok(25.0));
    run.io = zerocopy(0, None);
    assert!(selector.of(&run).unwrap_err().contains("completed"));
    run.io = Some(Io::default());
    assert!(selector.of(&run).unwrap_err().contains("zero-copy"));
}

#[test]
fn datagrams_are_found_at_each_stage() {
    use wirecost_model::frames::{Frames, FramesDirection, FramesStage, Stage};

    let stage = |(stage, per_second): (Stage, f64)| FramesStage {
        stage,
        datagrams: None,
        packets: None,
        foreign: None,
        per_second: Some(per_second),
        missing: None,
        places: Vec::new(),
        traced: None,
    };
    let direction = |from, first: f64| FramesDirection {
        from,
        stages: Stage::ALL
            .into_iter()
            .zip((0u32..).map(|n| first + f64::from(n)))
            .map(stage)
            .collect(),
        intervals: Vec::new(),
    };
    let mut run = run();
    run.frames = Some(Frames {
        directions: vec![direction(Side::Master, 10.0), direction(Side::Peer, 20.0)],
        queues: Vec::new(),
        cpus: Vec::new(),
        uncounted: Vec::new(),
        reason: None,
    });
    for (metrics, first) in [("frames", 10.0), ("answers", 20.0)] {
        for (name, passed) in
            ["generated", "sent", "received", "reached", "read"].iter().zip(0u32..)
        {
            let metric = find(&format!("{metrics}.{name}")).unwrap();
            assert_eq!(metric.of(&run), Ok(first + f64::from(passed)), "{metrics}.{name}");
        }
    }
    // Nothing is answered, and hosts share their devices.
    let frames = run.frames.as_mut().unwrap();
    frames.directions.pop();
    frames.directions[0].stages.remove(1);
    frames.reason = Some("shared".to_owned());
    assert_eq!(find("answers.read").unwrap().of(&run).unwrap_err(), "no peer sent datagrams");
    assert_eq!(find("frames.sent").unwrap().of(&run).unwrap_err(), "shared");
}
