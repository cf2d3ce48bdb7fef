//! Labs with links by the emulator: what the links do to real traffic, and that nothing is left of them.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;
use wirecost_linux::netns::NetNs;
use wirecost_linux::privilege::skip_without_namespaces;
use wirecost_model::rss::Rss;

use crate::document::Document;
use crate::interruption::under_way;
use crate::program::{Program, namespaces_of, processes, signal_to, until};

/// A direction of a link in the document.
fn line(document: &Document, name: &str) -> Value {
    let lines = document.list("/link/lines");
    let found = lines.iter().find(|line| line["name"] == name);
    found.unwrap_or_else(|| panic!("no line {name}: {lines:?}")).clone()
}

/// `wirecost run` in a lab, with a ramp that lets TCP fill its link.
fn run_in_lab(profile: &str, arguments: &[&str]) -> Program {
    let run = ["run", profile, "--lab", "--quiet", "--interval", "100ms", "--ramp", "500ms"];
    Program::new(run).args(["--duration", "1s", "--backend", "emulator"]).args(arguments)
}

fn in_lab(profile: &str, arguments: &[&str]) -> Document {
    run_in_lab(profile, arguments).measure()
}

fn number(value: &Value, key: &str) -> f64 {
    value[key].as_f64().unwrap_or_else(|| panic!("no {key}: {value}"))
}

#[test]
fn traffic_gets_the_rate_and_the_round_trip_time_of_its_link() {
    if skip_without_namespaces("traffic_gets_the_rate_and_the_round_trip_time_of_its_link") {
        return;
    }
    let arguments = ["--rate", "100mbit", "--rtt", "20ms", "--back", "rate=50mbit"];
    run_in_lab("@stream", &arguments).measure_and(|_, document| is_of_its_link(document));
}

fn is_of_its_link(document: &Document) {
    let forward = line(document, "forward");
    // What leaves in the window was let in before: half of the rate was enough to see the link.
    let rate = number(&forward, "bits_per_second");
    // False failures: 1e-5, computed: the emulator would be late for half a second, which the run tells and is repeated for.
    assert!((40e6..103e6).contains(&rate), "{rate}");
    // The readings in between are of the same bytes, and see the queue that TCP makes.
    let parts = forward["parts"].as_array().unwrap();
    let sum = |key: &str| -> f64 { parts.iter().map(|part| number(part, key)).sum() };
    let bits: f64 =
        parts.iter().map(|part| number(part, "bits_per_second") * number(part, "seconds")).sum();
    assert!(parts.len() > 4 && (bits / sum("seconds") / rate - 1.0).abs() < 1e-6, "{forward}");
    assert!(sum("queue_bytes") > 0.0, "{forward}");
    // Packets of a frame that is larger than its packets are charged one by one: 1500 bytes of IP are 1538.
    let payload = document.number("/throughput/bits_per_second");
    assert!(payload < 100e6 * 1_460.0 / 1_500.0, "{payload}");
    assert!(document.number("/tcp/rtt_us_min") >= 20_000.0);
    assert!(number(&line(document, "back"), "bits_per_second") < rate / 5.0);
    // The emulator has CPU time, and its own row.
    let cpu = document.number("/link/cpu_percent");
    assert!(cpu > 0.0 && cpu < 200.0, "{cpu}");
    assert!(document.number("/link/error_us/p99") > 0.0);
    let link = document.at("/link/link/back").clone();
    assert_eq!(link["capacity"]["rate"], 50_000_000);
    assert_eq!(link["delay_nanoseconds"], 10_000_000);
}

#[test]
fn packets_are_lost_one_by_one() {
    if skip_without_namespaces("packets_are_lost_one_by_one") {
        return;
    }
    let document = in_lab("@stream", &["--rate", "200mbit", "--rtt", "2ms", "--loss", "1%"]);
    let forward = line(&document, "forward");
    let (arrived, lost) = (number(&forward, "arrived"), number(&forward, "lost"));
    assert!(arrived > 500.0, "{forward}");
    // Six standard deviations.
    let expected = 0.01 * arrived;
    // False failures: 4e-7, computed: Poisson distributions of 5 to 200.
    assert!((lost - expected).abs() < 6.0 * expected.sqrt() + 1.0, "{lost} of {arrived}");
    assert!(document.number("/tcp/retransmits") > 0.0);
}

#[test]
fn hosts_of_a_star_and_of_a_dumbbell_reach_each_other() {
    if skip_without_namespaces("hosts_of_a_star_and_of_a_dumbbell_reach_each_other") {
        return;
    }
    for topology in ["star", "dumbbell"] {
        let arguments = ["--lab", "--peers", "3", "--topology", topology, "--rtt", "20ms"];
        let by = ["--backend", "emulator"];
        let document = Program::short_run("@rr", &[&arguments[..], &by].concat()).measure();
        assert_eq!(document.list("/hosts").len(), 4);
        assert_eq!(document.text("/link/topology"), topology);
        assert!(document.count("/transactions/count") > 0);
        // Of a dumbbell, h2 is on the side of h1, without the link between.
        let min = document.number("/latency_us/p50");
        // False failures: 1e-5, computed: half of the round trips of one machine would have to take 20 ms.
        assert_eq!(min < 20_000.0, topology == "dumbbell", "{min}");
    }
}

/// Both far and near streams take the link; the far host's packets take longer to it.
#[test]
fn a_host_may_be_farther_away_than_the_others() {
    if skip_without_namespaces("a_host_may_be_farther_away_than_the_others") {
        return;
    }
    let link = ["--topology", "dumbbell", "--rtt", "4ms", "--host-rtt", "h3=40ms"];
    let document = in_lab("@two-paths", &link);
    let groups = document.list("/fairness/between_groups/groups");
    assert_eq!(groups.len(), 2, "{groups:?}");
    let rtt = |host: &str| {
        let of = groups.iter().find(|group| group["host"] == host).unwrap();
        number(of, "rtt_us")
    };
    let (near, far) = (rtt("h2"), rtt("h3"));
    assert!(near >= 4_000.0 && far >= 40_000.0 && near < far, "{near} {far}");
    let lines = document.list("/link/lines");
    let names: Vec<&Value> = lines.iter().map(|line| &line["name"]).collect();
    assert_eq!(names, ["forward", "back", "right"]);
    assert!(line(&document, "forward")["arrived"].as_u64() > Some(0));
    assert_eq!(line(&document, "right")["arrived"], 0);
}

#[test]
fn a_link_may_change_from_point_to_point() {
    if skip_without_namespaces("a_link_may_change_from_point_to_point") {
        return;
    }
    let study = r#"
        title = "Distance"
        profile = "@rr"
        place = "lab"
        [lab]
        rate = "100mbit"
        backend = "emulator"
        [set]
        duration = "200ms"
        ramp = "50ms"
        observe = "none"
        [repeat]
        times = 1
        [axes]
        "lab.rtt" = ["2ms", "10ms"]
    "#;
    let finished =
        Program::new(["study", "run", "s.toml", "--out", "kept"]).file("s.toml", study).finish();
    assert_eq!(finished.code, 0, "{finished}");
    let mut delays: Vec<u64> = std::fs::read_dir(finished.path("kept/runs"))
        .unwrap()
        .map(|entry| {
            let run = std::fs::read(entry.unwrap().path().join("run.json")).unwrap();
            let run: Value = serde_json::from_slice(&run).unwrap();
            let delay = run["link"]["link"]["forward"]["delay_nanoseconds"].as_u64().unwrap();
            assert!(run["latency_us"]["p50"].as_f64().unwrap() >= delay as f64 / 500.0, "{run}");
            delay
        })
        .collect();
    delays.sort_unstable();
    assert_eq!(delays, [1_000_000, 5_000_000]);
}

#[test]
fn a_lab_whose_emulator_has_ended_is_told_and_removed() {
    if skip_without_namespaces("a_lab_whose_emulator_has_ended_is_told_and_removed") {
        return;
    }
    let name = format!("test-{}-emulated", std::process::id());
    let up = ["lab", "up", "--name", &name, "--rtt", "2ms", "--rate", "1gbit"];
    let up = Program::new(up).args(["--backend", "emulator"]);
    let running = up.start();
    let mark = running.mark.clone();
    // The emulator stays.
    let up = running.wait_only();
    assert_eq!(up.code, 0, "{up}");
    assert!(up.stdout.contains("links: pair, RTT 2.00 ms, 1.00 Gb/s"), "{up}");
    let emulators = processes(&mark);
    assert_eq!(emulators.len(), 1);
    let on_lab = format!("--lab={name}");
    let document = Program::short_run("@rr", &[&on_lab]).measure();
    assert!(document.number("/latency_us/p50") >= 2_000.0);
    let refused = Program::short_run("@rr", &[&on_lab, "--rtt", "5ms"]).finish();
    assert_eq!(refused.code, 2, "{refused}");
    // A device that is removed ends it too.
    let delete = format!("ip -n wirecost-{name}-h1 link delete eth0");
    let deleted = Command::new("sh").args(["-c", &delete]).status().unwrap();
    if !deleted.success() {
        signal_to(emulators[0], Signal::KILL);
    }
    until("the emulator has ended", || processes(&mark).is_empty());
    let status = Program::new(["lab", "status"]).finish();
    let of_lab = format!("lab {name}: incomplete: the emulator of its links has ended");
    assert!(status.stdout.contains(&of_lab), "{status}");
    let refused = Program::short_run("@rr", &[&on_lab]).finish();
    assert_eq!(refused.code, 3, "{refused}");
    assert!(refused.stderr.contains(&format!("wirecost lab down --name {name}")), "{refused}");
    let down = Program::new(["lab", "down", "--name", &name]).finish();
    assert_eq!(down.code, 0, "{down}");
}

/// Removes a lab that a test has made.
struct Removed(String);

impl Drop for Removed {
    fn drop(&mut self) {
        Program::new(["lab", "down", "--name", &self.0]).finish();
    }
}

#[test]
fn datagrams_go_through_the_queues_that_their_hashes_name() {
    if skip_without_namespaces("datagrams_go_through_the_queues_that_their_hashes_name") {
        return;
    }
    let name = format!("test-{}-queues", std::process::id());
    let up = ["lab", "up", "--name", &name, "--queues", "2", "--rss-table", "0,1,1"];
    // The emulator stays.
    let up = Program::new(up).start().wait_only();
    let _removed = Removed(name.clone());
    assert_eq!(up.code, 0, "{up}");
    let lab = || -> Value {
        let status = Program::new(["lab", "status", "--json"]).finish();
        let status: Value = serde_json::from_str(&status.stdout).unwrap();
        let labs = status["labs"].as_array().unwrap();
        labs.iter().find(|lab| lab["name"] == name.as_str()).unwrap().clone()
    };
    let before = lab();
    let rss = before["emulated"]["link"]["nic"]["rss"].clone();
    let rss: Rss = serde_json::from_value(rss).unwrap();
    let host = |number: usize| {
        let host = &before["hosts"][number]["host"];
        let address: Ipv4Addr = host["ipv4"].as_str().unwrap().parse().unwrap();
        (NetNs::open(host["namespace"].as_str().unwrap()).unwrap(), address)
    };
    let ((sender, from), (receiver, to)) = (host(0), host(1));
    let socket = receiver.run(|| UdpSocket::bind((to, 0)).unwrap()).unwrap();
    let destination = socket.local_addr().unwrap();
    let (flows, each) = (300, 1);
    let mut expected = [0, 0];
    for _ in 0..flows {
        let socket = sender.run(|| UdpSocket::bind((from, 0)).unwrap()).unwrap();
        let source: SocketAddr = socket.local_addr().unwrap();
        expected[usize::from(rss.queue_of(source, destination))] += each;
        for _ in 0..each {
            assert_eq!(socket.send_to(b"datagram", destination).unwrap(), 8);
        }
    }
    // Two of three entries of the table name the second.
    // False failures: 2e-9, computed: binomial of 300 ports at random with a third; with 100 it would be 4e-4.
    assert!(expected[0] > 30 && expected[1] > expected[0], "{expected:?}");
    let received = || -> Vec<u64> {
        let counts = lab()["emulated"]["counts"].clone();
        let queues = counts["devices"][1]["queues"].as_array().unwrap().clone();
        queues.iter().map(|queue| queue["received"].as_u64().unwrap()).collect()
    };
    until("all have arrived", || received().iter().sum::<u64>() >= flows * each);
    assert_eq!(received(), expected);
    let shown = Program::new(["lab", "status"]).finish();
    let queue = format!("{} received, 0 dropped", expected[1]);
    assert!(shown.stdout.contains(&queue), "{shown}");
    assert!(before["hosts"][1]["host"]["receive_cpus"].as_array().unwrap().len() == 2);
}

#[test]
fn a_device_drops_what_its_queue_does_not_hold_unless_it_pauses_the_link() {
    if skip_without_namespaces(
        "a_device_drops_what_its_queue_does_not_hold_unless_it_pauses_the_link",
    ) {
        return;
    }
    let devices = |pause| {
        // More than fits into the queue comes before its interrupt.
        let arguments = ["--ring", "16", "--coalesce", "5ms", "--pause", pause];
        let rate = ["--rate", "20mbit", "--var", "size=100", "--observe", "none"];
        let document = in_lab("@udp-stream", &[&arguments[..], &rate[..]].concat());
        let queue = document.at("/link/devices/1/queues/0").clone();
        assert!(number(&queue, "received") > 100.0, "{queue}");
        let pauses = document.count("/link/devices/1/pauses");
        (queue["dropped"].as_u64().unwrap(), pauses)
    };
    let (dropped, pauses) = devices("off");
    assert!(dropped > 100 && pauses == 0, "{dropped} {pauses}");
    let (dropped, pauses) = devices("on");
    assert!(dropped == 0 && pauses > 0, "{dropped} {pauses}");
}

#[test]
fn coalescing_delays_what_arrives() {
    if skip_without_namespaces("coalescing_delays_what_arrives") {
        return;
    }
    let document = in_lab("@rr", &["--coalesce", "2ms"]);
    // Of the request and of the response.
    assert!(document.number("/latency_us/p50") >= 4_000.0);
    let devices = document.list("/link/devices");
    let queue = &devices[1]["queues"][0];
    assert_eq!(queue["interrupts"], queue["received"], "{queue}");
}

#[test]
fn nothing_is_left_of_an_emulator_whose_run_was_killed() {
    if skip_without_namespaces("nothing_is_left_of_an_emulator_whose_run_was_killed") {
        return;
    }
    let running = under_way(&["--lab", "--rtt", "2ms", "--backend", "emulator"]);
    let (pid, mark) = (running.pid, running.mark.clone());
    running.signal(Signal::KILL);
    running.wait_only();
    until("agents and emulator have ended by themselves", || processes(&mark).is_empty());
    let finished = Program::short_run("@rr", &["--lab", "--observe", "none"]).finish();
    assert_eq!(finished.code, 0, "{finished}");
    assert!(namespaces_of(pid).is_empty(), "{:?}", namespaces_of(pid));
    assert!(!std::fs::read_dir("/run/wirecost/lab").unwrap().any(|entry| {
        entry.unwrap().file_name().to_string_lossy().starts_with(&format!("run-{pid}-"))
    }));
}

#[test]
fn links_that_cannot_be_are_refused_before_anything_is_created() {
    if skip_without_namespaces("links_that_cannot_be_are_refused_before_anything_is_created") {
        return;
    }
    let name = format!("test-{}-refused", std::process::id());
    for (arguments, reason) in [
        (&["--rate", "1kbit"][..], "rate `1kbit`: must be from 120kbit to 100gbit"),
        (&["--rtt", "20"], "rtt `20`: must be a time, such as 20ms or 1.5s"),
        (&["--loss", "100%"], "loss `100%`: must be a share below 100%"),
        (&["--queue", "1bdp", "--rtt", "1ms"], "queue needs a rate"),
        (&["--topology", "ring"], "topology `ring`: must be pair, star or dumbbell"),
        (&["--topology", "dumbbell"], "a dumbbell has 3 or more hosts, not 2"),
        (&["--topology", "pair", "--hosts", "3"], "a pair has 2 hosts, not 3"),
        (&["--back", "colour=blue"], "a link has no `colour`"),
        (&["--back", "rtt=1ms"], "rtt and host-rtt are those of both directions"),
        (&["--host-rtt", "h3=1ms"], "host-rtt names h3, but the last host is h2"),
        (&["--trace", "missing.trace"], "cannot read missing.trace"),
        (&["--queues", "64"], "64 queues need as many CPUs"),
        (&["--queues", "2", "--rss-table", "0,2"], "rss-table has queue 2, but the last is 1"),
        (&["--back", "ring=64"], "queues, ring, coalesce, pause and rss are those of all hosts"),
    ] {
        let up = Program::new(["lab", "up", "--name", &name]).args(arguments).finish();
        assert_eq!(up.code, 2, "{arguments:?}: {up}");
        assert!(up.stderr.contains(reason), "{arguments:?}: {up}");
        let status = Program::new(["lab", "status"]).finish();
        assert!(!status.stdout.contains(&name), "{status}");
    }
    let without = Program::short_run("@rr", &["--rtt", "1ms"]).finish();
    assert_eq!(without.code, 2, "{without}");
    assert!(without.stderr.contains("--rtt is of the links of a lab"), "{without}");
}
