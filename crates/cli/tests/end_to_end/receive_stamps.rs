//! Time from the driver to the application, by the kernel's stamps (`--receive-stamps`).

use std::net::UdpSocket;
use std::time::Duration;

use serde_json::Value;
use wirecost_linux::privilege::skip_without_namespaces;
use wirecost_linux::receive_stamps;

use crate::dead_time::{moves, stop_for};
use crate::document::Document;
use crate::program::{Finished, Program, until};

/// Holds the kernel's stamps on: a socket that has got one. The kernel turns them on for all sockets, later than it says.
struct StampsOn {
    _socket: UdpSocket,
}

impl StampsOn {
    fn hold() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        receive_stamps::enable(&socket).unwrap();
        let own = socket.local_addr().unwrap();
        let is_stamped = || {
            socket.send_to(&[0], own).unwrap();
            receive_stamps::receive(&socket, &mut [0], true).unwrap().stamp.software.is_some()
        };
        until("the kernel stamps", is_stamped);
        Self { _socket: socket }
    }
}

const ITERATIONS: u64 = 300;

/// One strand on each side, whose sockets are all stamped, and a phase that counts whole.
fn profile(protocol: &str, strands: u32, keys: &str, flowops: &str) -> String {
    format!(
        r#"
        name = "stamped"
        [variables]
        h = {{ help = "remote host" }}
        [[group]]
        strands = {strands}
        [[group.transaction]]
        flowops = [{{ type = "connect", remotehost = "${{h}}", protocol = "{protocol}" }}]
        [[group.transaction]]
        {keys}
        flowops = [{flowops}]
        [[group.transaction]]
        flowops = ["disconnect"]
        "#
    )
}

const ECHO: &str = r#"{ type = "write", size = 100, verify = true }, { type = "read", size = 100, verify = true }"#;

fn start(text: &str, arguments: &[&str]) -> Program {
    let always =
        ["run", "stamped.toml", "--observe", "none", "--receive-stamps", "--json", "run.json"];
    Program::new(always.iter().chain(arguments)).file("stamped.toml", text)
}

#[track_caller]
fn run(text: &str, arguments: &[&str]) -> Document {
    start(text, arguments).finish_and(|finished| {
        assert_eq!(finished.code, 0, "{finished}");
        finished.document()
    })
}

/// What is told of each host, of which every message has a time, or a reason.
#[track_caller]
fn stamps(document: &Document) -> Vec<&Value> {
    let hosts = document.list("/hosts").iter().map(|host| &host["receive_stamps"]);
    let hosts: Vec<&Value> = hosts.collect();
    for stamps in &hosts {
        let count = |path: &str| stamps.pointer(path).and_then(Value::as_u64).unwrap_or(0);
        let unstamped = stamps["unstamped"].as_array().expect("a list");
        let unstamped: u64 = unstamped.iter().filter_map(|of| of["messages"].as_u64()).sum();
        let all = count("/delay_us/count") + count("/negative") + unstamped;
        assert_eq!(count("/messages"), all, "{stamps}");
        assert_eq!((count("/negative"), &stamps["clock_step_us"]), (0, &Value::Null), "{stamps}");
    }
    hosts
}

#[track_caller]
fn each_has(document: &Document, sockets: u64, messages: u64) {
    for stamps in stamps(document) {
        assert_eq!((&stamps["sockets"], &stamps["messages"]), (&sockets.into(), &messages.into()));
        assert_eq!(stamps["delay_us"]["count"], messages, "{stamps}");
        assert!(stamps["delay_us"]["p50"].as_f64() > Some(0.0), "{stamps}");
    }
}

/// On whichever engine: each message that a stamped socket reads is counted once, and no other.
fn every_message_is_counted(engine: &str) {
    let _on = StampsOn::hold();
    let keys = format!("iterations = {ITERATIONS}");
    for protocol in ["udp", "tcp"] {
        let text = profile(protocol, 1, &keys, ECHO);
        let document = run(&text, &["--engine", engine]);
        assert_eq!(document.count("/transactions/count"), ITERATIONS);
        each_has(&document, 1, ITERATIONS);
    }
}

#[test]
fn every_message_is_counted_epoll() {
    every_message_is_counted("epoll");
}

#[test]
fn every_message_is_counted_poll() {
    every_message_is_counted("poll");
}

#[test]
fn every_message_is_counted_threads() {
    every_message_is_counted("threads");
}

#[test]
fn every_message_is_counted_io_uring() {
    every_message_is_counted("io_uring");
}

/// The first and the 65th strand of a worker.
#[test]
fn one_socket_in_64_is_stamped() {
    let _on = StampsOn::hold();
    let text = profile("udp", 65, "iterations = 20", ECHO);
    let document = run(&text, &["--workers", "1"]);
    each_has(&document, 2, 40);
    let every = document.list("/hosts")[0]["receive_stamps"]["not_sampled"].clone();
    assert_eq!(every, Value::Array(Vec::new()));
    // At least one of each worker; of threads, of the host.
    let text = profile("udp", 5, "iterations = 20", ECHO);
    each_has(&run(&text, &["--workers", "2"]), 2, 40);
    each_has(&run(&text, &["--engine", "threads"]), 1, 20);
}

/// Datagrams that the kernel joined are one message with one stamp.
#[test]
fn messages_of_several_datagrams_have_one_stamp() {
    let sends = r#"{ type = "write", size = 500, gso = 4, batch = 3, gro = true }"#;
    // The first may arrive before their socket lets the kernel join them.
    let text = profile("udp", 1, "iterations = 2000", sends);
    let document = run(&text, &[]);
    let [_, peer] = stamps(&document)[..] else { panic!("two hosts") };
    let [messages, datagrams] =
        ["messages", "datagrams"].map(|what| document.count(&format!("/io/receives/{what}")));
    assert_eq!(peer["messages"], messages, "{peer}");
    assert!(messages < datagrams, "{messages} {datagrams}");
}

/// Whichever worker reads from a socket of several clients, a stamped strand's messages are counted.
#[test]
fn sockets_of_several_clients_are_stamped() {
    let _on = StampsOn::hold();
    let text = profile("udp", 1, &format!("iterations = {ITERATIONS}"), ECHO);
    for sockets in ["per-worker", "shared"] {
        let arguments = ["--workers", "1", "--server-sockets", sockets];
        let document = run(&text, &arguments);
        each_has(&document, 1, ITERATIONS);
    }
}

#[test]
fn what_cannot_be_stamped_says_why() {
    let text = profile("tls", 1, "iterations = 20", ECHO);
    start(&text, &["--details"]).finish_and(says_why);
    // Without the option nothing is said of it.
    let plain = Program::short_run("@udp-rr", &["--observe", "none"]).measure();
    assert!(plain.list("/hosts").iter().all(|host| host["receive_stamps"].is_null()));
}

fn says_why(finished: &Finished) {
    assert_eq!(finished.code, 0, "{finished}");
    let document = finished.document();
    for stamps in stamps(&document) {
        assert_eq!((&stamps["sockets"], &stamps["messages"]), (&0.into(), &0.into()), "{stamps}");
        let reason = serde_json::json!([{ "reason": "tls", "sockets": 1 }]);
        assert_eq!((&stamps["not_sampled"], &stamps["delay_us"]), (&reason, &Value::Null));
    }
    assert!(finished.stdout.contains("no socket was stamped: TLS reads"), "{finished}");
}

#[test]
fn an_engine_without_sockets_of_the_kernel_is_refused() {
    let text = profile("udp", 1, "iterations = 20", ECHO);
    for engine in ["af_xdp", "af_xdp_native"] {
        let finished = start(&text, &["--engine", engine]).finish();
        assert_eq!(finished.code, 2, "{finished}");
        let message = format!("engine {engine}: it receives frames past the kernel's sockets");
        assert!(finished.stderr.contains(&message), "{finished}");
    }
}

#[test]
fn a_study_compares_the_times() {
    let study = r#"
        title = "Stamps"
        profile = "@udp-rr"
        place = "loopback"
        [set]
        duration = "500ms"
        ramp = "20ms"
        observe = "none"
        [repeat]
        times = 1
        [axes]
        receive_stamps = [true, false]
        [[expect]]
        that = "hosts.peer.receive_delay.p99 >= 0.1"
        at = { receive_stamps = true }
    "#;
    let program = Program::new(["study", "run", "stamps.toml", "--out", "out"]);
    program.file("stamps.toml", study).finish_and(|finished| {
        assert_eq!(finished.code, 0, "{finished}");
    });
}

mod waiting {
    use super::*;

    /// A datagram was sent before it was stamped, and is read before the delay is taken: of a stream of them every quantile
    /// of the time is at most that of the one-way delay.
    #[test]
    fn the_time_is_a_part_of_the_one_way_delay_in_a_lab() {
        if skip_without_namespaces("the_time_is_a_part_of_the_one_way_delay_in_a_lab") {
            return;
        }
        // None near the edges of the window, so both are of the same datagrams.
        let keys = "duration = \"3s\"\narrivals = { intervals = \"arrivals.txt\" }";
        let text = profile("udp", 1, keys, r#"{ type = "write", size = 200 }"#);
        let link = ["--lab", "--rate", "100mbit", "--rtt", "4ms", "--ramp", "0s"];
        let arrivals = format!("300ms\n{}", "2ms\n".repeat(999));
        let _on = StampsOn::hold();
        start(&text, &link).file("arrivals.txt", &arrivals).finish_and(is_a_part);
    }

    fn is_a_part(finished: &Finished) {
        assert_eq!(finished.code, 0, "{finished}");
        let document = finished.document();
        let [master, peer] = stamps(&document)[..] else { panic!("two hosts") };
        assert_eq!((&master["messages"], &master["delay_us"]), (&0.into(), &Value::Null));
        let (delay, one_way) = (&peer["delay_us"], document.at("/datagrams/one_way_us/delay"));
        let number = |of: &Value| of.as_f64().expect("a number");
        // False failures: 1e-6, computed: the last datagram is due 0.7 s before the end of the window.
        assert_eq!(delay["count"], one_way["count"], "{peer}");
        assert!(number(&one_way["p50"]) >= 2_000.0, "{one_way}");
        for quantile in ["p50", "p90", "p99", "mean"] {
            let (part, whole) = (number(&delay[quantile]), number(&one_way[quantile]));
            // What the link takes is not in it.
            // False failures: 1e-6 (x4), computed: it holds of each datagram, and so of quantiles; 2% are the histogram's.
            assert!(part <= 1.02 * whole - 1_900.0, "{quantile}: {delay} {one_way}");
        }
    }

    /// Datagrams that wait at a receiver that does not run have waited so long. It has the kernel stamp by itself.
    #[test]
    fn a_receiver_that_is_stopped_shows_in_the_time() {
        let keys = "duration = \"3s\"\nrate = 500";
        let text = profile("udp", 1, keys, r#"{ type = "write", size = 200 }"#);
        let output = ["--format", "uperf", "--interval", "100ms", "--dead-time", "report"];
        let mut running = start(&text, &output).start();
        moves(&mut running);
        let peer = *running.children().last().expect("agents");
        stop_for(&[peer], Duration::from_millis(600));
        let finished = running.wait();
        finished.has_run();
        let document = finished.document();
        let [_, peer] = stamps(&document)[..] else { panic!("two hosts") };
        let [p50, max] = ["p50", "max"].map(|of| peer["delay_us"][of].as_f64().expect("a time"));
        // One of the first that came after it had stopped, of which there are 50 in 100 ms.
        // False failures: 1e-5, computed: a sender of 2 ms intervals would have to stand still for 100 ms.
        assert!(max >= 500_000.0, "{peer}");
        // Of the 1,500 some 300 came while it was stopped.
        // False failures: 1e-5, computed: the stop would have to last for two and a half times as long.
        assert!(p50 < 300_000.0, "{peer}");
    }
}
