//! Time from the driver to the application, by the kernel's stamps (`--receive-stamps`).

use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use wirecost_linux::privilege::skip_without_namespaces;

use crate::document::Document;
use crate::program::{Finished, Program, signal_to};

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

fn run(text: &str, arguments: &[&str]) -> Finished {
    let finished = start(text, arguments).finish();
    assert_eq!(finished.code, 0, "{finished}");
    finished
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
        // Stamps are on before the first connection, but the kernel turns them on later than it says.
        assert!(stamps["delay_us"]["count"].as_u64() > Some(messages / 2), "{stamps}");
        assert!(stamps["delay_us"]["p50"].as_f64() > Some(0.0), "{stamps}");
    }
}

/// On whichever engine: each message that a stamped socket reads is counted once, and no other.
fn every_message_is_counted(engine: &str) {
    let keys = format!("iterations = {ITERATIONS}");
    for protocol in ["udp", "tcp"] {
        let text = profile(protocol, 1, &keys, ECHO);
        let document = run(&text, &["--engine", engine]).document();
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
    let text = profile("udp", 65, "iterations = 20", ECHO);
    let document = run(&text, &["--workers", "1"]).document();
    each_has(&document, 2, 40);
    let every = document.list("/hosts")[0]["receive_stamps"]["not_sampled"].clone();
    assert_eq!(every, Value::Array(Vec::new()));
    // At least one of each worker; of threads, of the host.
    let text = profile("udp", 5, "iterations = 20", ECHO);
    each_has(&run(&text, &["--workers", "2"]).document(), 2, 40);
    each_has(&run(&text, &["--engine", "threads"]).document(), 1, 20);
}

/// Datagrams that the kernel joined are one message with one stamp.
#[test]
fn messages_of_several_datagrams_have_one_stamp() {
    let sends = r#"{ type = "write", size = 500, gso = 4, batch = 3, gro = true }"#;
    // The first may arrive before their socket lets the kernel join them.
    let text = profile("udp", 1, "iterations = 2000", sends);
    let document = run(&text, &[]).document();
    let [_, peer] = stamps(&document)[..] else { panic!("two hosts") };
    let [messages, datagrams] =
        ["messages", "datagrams"].map(|what| document.count(&format!("/io/receives/{what}")));
    assert_eq!(peer["messages"], messages, "{peer}");
    assert!(messages < datagrams, "{messages} {datagrams}");
}

/// Whichever worker reads from a socket of several clients, a stamped strand's messages are counted.
#[test]
fn sockets_of_several_clients_are_stamped() {
    let text = profile("udp", 1, &format!("iterations = {ITERATIONS}"), ECHO);
    for sockets in ["per-worker", "shared"] {
        let arguments = ["--workers", "1", "--server-sockets", sockets];
        let document = run(&text, &arguments).document();
        each_has(&document, 1, ITERATIONS);
    }
}

/// A datagram was sent before it was stamped, and is read before the delay is taken: of a stream of them every quantile
/// of the time is at most that of the one-way delay.
#[test]
fn the_time_is_a_part_of_the_one_way_delay_in_a_lab() {
    if skip_without_namespaces("the_time_is_a_part_of_the_one_way_delay_in_a_lab") {
        return;
    }
    let keys = "duration = \"2s\"\nrate = 500";
    let text = profile("udp", 1, keys, r#"{ type = "write", size = 200 }"#);
    let link = ["--lab", "--rate", "100mbit", "--rtt", "4ms"];
    let document = run(&text, &link).document();
    let [master, peer] = stamps(&document)[..] else { panic!("two hosts") };
    assert_eq!((&master["messages"], &master["delay_us"]), (&0.into(), &Value::Null));
    let (delay, one_way) = (&peer["delay_us"], document.at("/datagrams/one_way_us/delay"));
    let number = |of: &Value| of.as_f64().expect("a number");
    // Both are read after the same call, at two instants, so one may be within the window and the other not.
    assert!((number(&peer["messages"]) - number(&one_way["count"])).abs() <= 2.0, "{peer}");
    assert!(number(&one_way["p50"]) >= 2_000.0, "{one_way}");
    for quantile in ["p50", "p90", "p99", "mean"] {
        let (part, whole) = (number(&delay[quantile]), number(&one_way[quantile]));
        // What the link takes is not in it.
        assert!(part <= 1.02 * whole - 1_900.0, "{quantile}: {delay} {one_way}");
    }
}

/// Datagrams that wait at a receiver that does not run have waited so long.
#[test]
fn a_receiver_that_is_stopped_shows_in_the_time() {
    let keys = "duration = \"2s\"\nrate = 500";
    let text = profile("udp", 1, keys, r#"{ type = "write", size = 200 }"#);
    let output = ["--format", "uperf", "--interval", "100ms", "--dead-time", "report"];
    let mut running = start(&text, &output).start();
    running.line(|line| line.contains(" name:Txn2 ") && !line.contains("nr_bytes:0 "));
    let peer = *running.children().last().expect("agents");
    signal_to(peer, Signal::STOP);
    std::thread::sleep(Duration::from_millis(600));
    signal_to(peer, Signal::CONT);
    let finished = running.wait();
    assert_eq!(finished.code, 0, "{finished}");
    let document = finished.document();
    let [_, peer] = stamps(&document)[..] else { panic!("two hosts") };
    let [p50, max] = ["p50", "max"].map(|of| peer["delay_us"][of].as_f64().expect("a time"));
    // One of the first that came after it had stopped.
    assert!(max >= 500_000.0, "{peer}");
    assert!(p50 < 300_000.0, "{peer}");
}

#[test]
fn what_cannot_be_stamped_says_why() {
    let text = profile("tls", 1, "iterations = 20", ECHO);
    let finished = run(&text, &["--details"]);
    let document = finished.document();
    for stamps in stamps(&document) {
        assert_eq!((&stamps["sockets"], &stamps["messages"]), (&0.into(), &0.into()), "{stamps}");
        let reason = serde_json::json!([{ "reason": "tls", "sockets": 1 }]);
        assert_eq!((&stamps["not_sampled"], &stamps["delay_us"]), (&reason, &Value::Null));
    }
    assert!(finished.stdout.contains("no socket was stamped: TLS reads"), "{finished}");
    // Without the option nothing is said of it.
    let plain = Program::short_run("@udp-rr", &["--observe", "none"]).measure();
    assert!(plain.list("/hosts").iter().all(|host| host["receive_stamps"].is_null()));
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
    let finished = program.file("stamps.toml", study).finish();
    assert_eq!(finished.code, 0, "{finished}");
}
