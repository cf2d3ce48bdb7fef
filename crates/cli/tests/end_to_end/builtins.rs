//! Every built-in profile runs on epoll, and those that differ in what they ask of an engine on all engines (`long`: all
//! on all). The figures of each make sense.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::document::Document;
use crate::engines;
use crate::program::{Program, is_a_source_of_cycles, sources};

/// Where the data of a profile goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moves {
    Tx,
    Rx,
    Both,
    Nothing,
}

/// What there is to know of a built-in beforehand.
#[derive(Debug, Clone, Copy)]
struct Known {
    name: &'static str,
    moves: Moves,
    /// Connections open when the window begins; none where they come and go.
    open: Option<u64>,
}

const fn known(name: &'static str, moves: Moves, open: Option<u64>) -> Known {
    Known { name, moves, open }
}

macro_rules! built_ins {
    (
        on_every_engine { $($test:ident: $name:literal, $moves:ident, $open:expr;)* }
        on_epoll { $($other:ident: $other_name:literal, $other_moves:ident, $other_open:expr;)* }
    ) => {
        const ALL: &[Known] = &[
            $(known($name, Moves::$moves, $open),)*
            $(known($other_name, Moves::$other_moves, $other_open)),*
        ];

        on_every_engine!({
            $($test: runs($name);)*
            rr_over_unix_sockets: runs_over_unix_sockets("rr");
        });

        mod on_epoll {
            $(#[test] fn $other() { super::runs($other_name, "epoll"); })*
        }

        mod long {
            use super::runs;

            on_every_engine!({ $($other: runs($other_name);)* });
        }
    };
}

built_ins! {
    // Streams, requests over one connection and over one each, datagrams, and files.
    on_every_engine {
        stream: "stream", Tx, Some(1);
        rr: "rr", Both, Some(1);
        crr: "crr", Both, None;
        sendfile: "sendfile", Tx, Some(1);
        udp_rr: "udp-rr", Both, Some(1);
    }
    on_epoll {
        maerts: "maerts", Rx, Some(1);
        ping_pong: "ping-pong", Both, Some(1);
        connect: "connect", Nothing, None;
        bidirectional: "bidirectional", Both, Some(2);
        http_get: "http-get", Both, Some(1);
        specweb: "specweb", Both, Some(1);
        mixed: "mixed", Both, Some(17);
        oltp: "oltp", Both, Some(1);
        disk_to_memory: "disk-to-memory", Tx, Some(1);
        memory_to_disk: "memory-to-disk", Tx, Some(1);
        disk_to_disk: "disk-to-disk", Tx, Some(1);
        two_paths: "two-paths", Tx, Some(2);
        udp_stream: "udp-stream", Tx, Some(1);
        udp_echo: "udp-echo", Both, Some(1);
        imix: "imix", Tx, Some(1);
        rpc_mix: "rpc-mix", Both, Some(1);
        rr_open: "rr-open", Both, Some(1);
        responsiveness: "responsiveness", Both, None;
        sessions: "sessions", Both, Some(4);
    }
}

/// Ports of other programs' tests, made of the same transactions as the built-ins above.
macro_rules! ports {
    ($($test:ident: $name:literal, $moves:ident, $open:expr;)*) => {
        const PORTS: &[Known] = &[$(known($name, Moves::$moves, $open)),*];

        mod ports {
            $(#[test] fn $test() { super::runs($name, "epoll"); })*
        }
    };
}

ports! {
    iperf_stream: "iperf-stream", Tx, Some(1);
    iperf_reverse: "iperf-reverse", Rx, Some(1);
    iperf_bidirectional: "iperf-bidirectional", Both, Some(2);
    iperf_udp: "iperf-udp", Tx, Some(1);
    sockperf_ping_pong: "sockperf-ping-pong", Both, Some(1);
    sockperf_under_load: "sockperf-under-load", Both, Some(1);
    sockperf_throughput: "sockperf-throughput", Tx, Some(1);
    qperf_tcp_bw: "qperf-tcp-bw", Tx, Some(1);
    qperf_tcp_lat: "qperf-tcp-lat", Both, Some(1);
    qperf_udp_bw: "qperf-udp-bw", Tx, Some(1);
    qperf_udp_lat: "qperf-udp-lat", Both, Some(1);
    netperf_tcp_stream: "netperf-tcp-stream", Tx, Some(1);
    netperf_tcp_maerts: "netperf-tcp-maerts", Rx, Some(1);
    netperf_tcp_rr: "netperf-tcp-rr", Both, Some(1);
    netperf_tcp_crr: "netperf-tcp-crr", Both, None;
    netperf_udp_stream: "netperf-udp-stream", Tx, Some(1);
    netperf_udp_rr: "netperf-udp-rr", Both, Some(1);
    neper_tcp_stream: "neper-tcp-stream", Tx, Some(1);
    neper_tcp_rr: "neper-tcp-rr", Both, Some(1);
    neper_tcp_crr: "neper-tcp-crr", Both, None;
    neper_udp_stream: "neper-udp-stream", Tx, Some(1);
    neper_udp_rr: "neper-udp-rr", Both, Some(1);
}

fn every() -> impl Iterator<Item = &'static Known> {
    ALL.iter().chain(PORTS)
}

fn find(name: &str) -> Known {
    *every().find(|known| known.name == name).expect("a built-in")
}

fn runs_over_unix_sockets(name: &str, engine: &str) {
    runs_with(name, engine, &["--var", "protocol=unix"]);
}

fn runs(name: &str, engine: &str) {
    runs_with(name, engine, &[]);
}

fn runs_with(name: &str, engine: &str, more: &[&str]) {
    let mut arguments = [&["--engine", engine], more].concat();
    if name == "sendfile" {
        // The default is the program: a busy machine may not send all of a debug build within the window.
        arguments
            .extend(["--var", concat!("file=", env!("CARGO_MANIFEST_DIR"), "/../../Cargo.lock")]);
    }
    if name.starts_with("disk-") {
        arguments.extend(["--var", "source_size=4m"]);
    }
    Program::short_run(&format!("@{name}"), &arguments).measure_and(|_, document| {
        assert_eq!(document.text("/engine"), engine);
        assert_eq!(document.text("/profile"), format!("@{name}"));
        makes_sense(document, find(name));
    });
}

#[test]
fn the_list_is_whole() {
    let finished = Program::new(["list"]).finish();
    let listed: BTreeSet<&str> = finished
        .stdout
        .lines()
        .filter_map(|line| line.strip_prefix("  @")?.split_whitespace().next())
        .collect();
    assert_eq!(listed, every().map(|known| known.name).collect());
}

/// What holds for every run on loopback whose data goes over streams, or over datagrams of which
/// none has to be lost.
fn makes_sense(document: &Document, known: Known) {
    let seconds = document.number("/window/seconds");
    document.lasts(0.5);
    assert_eq!(document.text("/window/kind"), "duration");

    let (tx, rx) = (document.count("/throughput/tx_bytes"), document.count("/throughput/rx_bytes"));
    let moves = match (tx, rx) {
        (0, 0) => Moves::Nothing,
        (_, 0) => Moves::Tx,
        (0, _) => Moves::Rx,
        _ => Moves::Both,
    };
    assert_eq!(moves, known.moves, "{tx} tx, {rx} rx");
    about(document.number("/throughput/bits_per_second"), (tx + rx) as f64 * 8.0 / seconds);
    about(document.number("/throughput/tx_bits_per_second"), tx as f64 * 8.0 / seconds);
    match known.name {
        // Here the master serves: it reads a request of 64 B and writes 64 KiB.
        "http-get" | "specweb" => assert!(rx * 500 < tx && tx < rx * 2000, "{tx} tx, {rx} rx"),
        _ => {}
    }

    let transactions = document.count("/transactions/count");
    assert!(transactions > 0);
    about(document.number("/transactions/per_second"), transactions as f64 / seconds);
    // Counters are read at an instant, latencies are sorted by when they were measured.
    about(document.number("/latency_us/count"), transactions as f64);
    let quantile = |name: &str| document.number(&format!("/latency_us/{name}"));
    assert!(quantile("p50") > 0.0);
    for pair in ["p50", "p90", "p99", "p999", "max"].windows(2) {
        assert!(quantile(pair[0]) <= quantile(pair[1]) * 1.01, "{pair:?}");
    }
    // Every transaction has an operation or more. The two are read one after the other, while the
    // workers go on.
    let operations = document.number("/operations/count");
    // False failures: 1e-7 (x50), computed: 25 ms would have to pass between the two, in three attempts.
    assert!(operations >= transactions as f64 * 0.95 - 8.0, "{operations} of {transactions}");
    assert_eq!(document.count("/operations/failed"), 0);
    assert_eq!(document.count("/operations/timeouts"), 0);
    assert_eq!(document.count("/connections/failed"), 0);
    if let Some(open) = known.open {
        assert_eq!(document.count("/connections/open"), open);
    }
    assert!(!document.list("/flowops").is_empty());

    // The window is divided into intervals without a gap.
    close(document.sum("/intervals", "seconds"), seconds);
    close(document.sum("/intervals", "tx_bytes"), tx as f64);
    close(document.sum("/intervals", "rx_bytes"), rx as f64);
    close(document.sum("/intervals", "transactions"), transactions as f64);
    assert!(document.list("/intervals").len() >= 4 || document.has_warning("lost-intervals"));

    let headline: Vec<&Value> =
        document.list("/phases").iter().filter(|row| row["headline"] == true).collect();
    assert_eq!(headline.len(), 1);
    assert_eq!(headline[0]["tx_bytes"], tx);
    assert_eq!(headline[0]["transactions"], transactions);

    let jain = document.number("/fairness/jain");
    assert!(jain > 0.0 && jain <= 1.0, "{jain}");
    let peers = if known.name == "two-paths" { &["peer1", "peer2"][..] } else { &["peer"] };
    hosts_of_loopback(document, peers, tx + rx > 0);
}

/// Point 9 of the contract: all there is to say of hosts, and of the machine that they share.
fn hosts_of_loopback(document: &Document, peers: &[&str], moved: bool) {
    let hosts = document.list("/hosts");
    let names: Vec<&str> = ["master"].into_iter().chain(peers.iter().copied()).collect();
    let found: Vec<&Value> = hosts.iter().map(|host| &host["name"]).collect();
    assert_eq!(found, names);
    for host in hosts {
        let name = host["name"].as_str().unwrap();
        assert_eq!(host["role"], if name == "master" { "master" } else { "peer" });
        let others: Vec<&str> = names.iter().copied().filter(|other| *other != name).collect();
        assert_eq!(host["shares_machine_with"], json!(others));
        assert!(host["cpus"].as_array().is_some_and(|cpus| !cpus.is_empty()));
        shares_add_up(&host["cpu"]);
        assert_eq!(host["cpu_source"], sources().0);
        // The two have the same CPUs, so what either of them costs is not known.
        assert!(host["cycles_per_kbyte"].is_null());
        assert!(host["cycles_reason"].is_string(), "a null has its reason");
    }
    let machines = document.list("/machines");
    assert_eq!(machines.len(), 1);
    let machine = &machines[0];
    assert_eq!(machine["hosts"], json!(names));
    assert!(machine["cpus"].as_u64().is_some_and(|cpus| cpus >= 1));
    assert_eq!(machine["cpu_source"], sources().0);
    shares_add_up(&machine["cpu"]);
    if moved && machine["cycles_reason"].is_null() {
        is_a_source_of_cycles(&machine["cycles_source"]);
        assert!(machine["cycles_per_kbyte"].as_f64().is_some_and(|cycles| cycles > 0.0));
    } else {
        assert!(machine["cycles_per_kbyte"].is_null());
        assert!(machine["cycles_reason"].is_string());
    }
}

#[track_caller]
fn shares_add_up(cpu: &Value) {
    let sum: f64 = ["usr", "sys", "irq", "softirq", "steal", "idle", "unaccounted"]
        .iter()
        .map(|name| cpu[*name].as_f64().expect("a share"))
        .sum();
    assert!((sum - 100.0).abs() < 0.1, "the shares add up to {sum}");
    assert!(cpu["per_cpu"].as_array().is_some_and(|lines| !lines.is_empty()));
}

/// A rate is of the host that counted, over the window as that host timed it: on a busy machine
/// some milliseconds more or less.
#[track_caller]
fn about(a: f64, b: f64) {
    // False failures: 1e-7 (x200), computed: 25 ms of 500; an edge that is off by more than 10 is told, and repeated for.
    assert!((a - b).abs() <= (0.05 * a.abs().max(b.abs())).max(8.0), "{a} is not about {b}");
}

/// Alike but for rounding.
#[track_caller]
fn close(a: f64, b: f64) {
    assert!((a - b).abs() <= 1e-6 * a.abs().max(b.abs()).max(1.0), "{a} is not {b}");
}

#[test]
fn over_unix_sockets() {
    for name in ["stream", "crr"] {
        runs_over_unix_sockets(name, "epoll");
    }
}

#[test]
fn over_ipv6() {
    for name in ["stream", "rr", "crr"] {
        let document = Program::short_run(&format!("@{name}"), &["--var", "h=::1"]).measure();
        assert_eq!(document.text("/hosts/1/address"), "::1");
        makes_sense(&document, find(name));
    }
}

#[test]
fn turned_around() {
    let document = Program::short_run("@stream", &["--reverse"]).measure();
    makes_sense(&document, Known { moves: Moves::Rx, ..find("stream") });
    let document = Program::short_run("@maerts", &["--reverse"]).measure();
    makes_sense(&document, Known { moves: Moves::Tx, ..find("maerts") });
}

#[test]
fn many_connections() {
    for engine in engines::names() {
        let arguments = ["--connections", "8", "--engine", engine];
        let document = Program::short_run("@rr", &arguments).measure();
        makes_sense(&document, Known { open: Some(8), ..find("rr") });
        assert_eq!(document.count("/fairness/strands"), 8);
    }
}
