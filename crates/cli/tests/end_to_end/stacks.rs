//! Connections that stack: as in uperf each connect or accept adds one, and disconnect closes the newest.

use rustix::process::Signal;
use wirecost_linux::privilege::skip_without_namespaces;

use crate::document::Document;
use crate::engines;
use crate::program::{Program, until};

/// A group of so many threads, with these transactions: how often or how long, and their flowops.
fn profile(threads: u32, transactions: &[(&str, &str)]) -> String {
    let mut text = format!("<profile name=\"stacks\">\n  <group nthreads=\"{threads}\">\n");
    for (often, flowops) in transactions {
        text += &format!("    <transaction {often}>\n{flowops}\n    </transaction>\n");
    }
    text + "  </group>\n</profile>\n"
}

fn flowop(kind: &str, options: &str) -> String {
    format!("      <flowop type=\"{kind}\" options=\"{options}\"/>")
}

fn open(kind: &str, protocol: &str) -> String {
    flowop(kind, &format!("remotehost=$h protocol={protocol}"))
}

/// Operations of each phase.
fn operations(document: &Document) -> Vec<u64> {
    let phases = document.list("/phases").iter();
    phases.map(|phase| phase["operations"].as_u64().expect("operations")).collect()
}

/// Established connections of a process's network namespace, both ends counted; none before it has
/// left ours, where other tests have theirs.
fn established(pid: u32) -> usize {
    let namespace = |of: &str| std::fs::read_link(format!("/proc/{of}/ns/net")).ok();
    if namespace(&pid.to_string()) == namespace("self") {
        return 0;
    }
    let tables = ["tcp", "tcp6"].map(|table| {
        std::fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default()
    });
    let lines = tables.iter().flat_map(|table| table.lines().skip(1));
    let state = |line: &str| line.split_whitespace().nth(3).map(str::to_owned);
    lines.filter(|line| state(line).as_deref() == Some("01")).count()
}

/// Counted from outside, in a network namespace that has no other connections than those of the run and
/// of its agents.
#[test]
fn a_thousand_connects_hold_a_thousand_connections() {
    if skip_without_namespaces("stacks") {
        return;
    }
    let idle = profile(
        1,
        &[
            ("iterations=1000", &open("connect", "tcp")),
            ("iterations=1", &flowop("think", "duration=3600s")),
        ],
    );
    for engine in engines::names() {
        let run = Program::in_own_network(&["run", "idle.xml", "--quiet", "--engine", engine])
            .file("idle.xml", &idle)
            .start();
        let pid = run.pid;
        until("1,000 connections", || established(pid) >= 2000);
        let both_ends = established(pid);
        run.signal(Signal::INT);
        let finished = run.wait_only();
        assert_eq!(finished.code, 130, "{engine}: {finished}");
        // Not one more.
        assert_eq!(both_ends, 2000, "{engine}: {finished}");
    }
}

/// As in uperf's own workloads accept-tcp, disconnect_iter and canfail: what is opened in one
/// transaction is used and closed in others.
#[test]
fn what_one_transaction_opens_others_use_and_close() {
    let (write, disconnect) = (flowop("write", "size=100"), flowop("disconnect", ""));
    for engine in engines::names() {
        for (kind, protocol) in [
            ("connect", "tcp"),
            ("accept", "tcp"),
            ("connect", "tls"),
            ("connect", "udp"),
            ("accept", "unix"),
        ] {
            let once = format!("{write}\n{disconnect}");
            let text = profile(
                4,
                &[
                    ("iterations=10", &open(kind, protocol)),
                    ("iterations=5", &once),
                    ("iterations=5", &disconnect),
                ],
            );
            let document = Program::new(["run", "stacked.xml", "--quiet"])
                .args(["--engine", engine])
                .file("stacked.xml", &text)
                .measure();
            assert_eq!(operations(&document), [40, 40, 20], "{engine} {kind} {protocol}");
        }
    }
}

#[test]
fn many_connections_that_may_fail() {
    let connect = flowop("connect", "remotehost=$h protocol=tcp canfail wndsz=200k tcp_nodelay");
    let transactions =
        [("iterations=3000", connect.as_str()), ("iterations=3000", &flowop("disconnect", ""))];
    let document = Program::new(["run", "canfail.xml", "--quiet"])
        .file("canfail.xml", &profile(1, &transactions))
        .measure();
    assert_eq!(document.count("/operations/failed"), 0);
    assert_eq!(operations(&document), [3000, 3000]);
}

/// Too few descriptors are told before anything is sent.
#[test]
fn more_connections_of_a_strand_than_a_process_may_have() {
    let text = profile(1, &[("iterations=9000", &open("connect", "tcp"))]);
    let finished =
        Program::with_descriptors(3000, &["run", "many.xml", "--quiet", "--json", "run.json"])
            .file("many.xml", &text)
            .finish();
    assert_eq!(finished.code, 2, "{finished}");
    let document = finished.document();
    assert!(document.text("/error").contains("9000 connections"), "{finished}");
    assert!(document.text("/error").contains("3000 descriptors"), "{finished}");
}

#[test]
fn check_tells_how_many_connections_are_held() {
    let text = profile(2, &[("iterations=70", &open("connect", "tcp"))]);
    let checked = Program::new(["check", "held.xml"]).file("held.xml", &text).finish();
    assert_eq!(checked.code, 0, "{checked}");
    assert_eq!(checked.stdout.matches("up to 70 open at once").count(), 2, "{checked}");
    let text = profile(2, &[("duration=1s", &open("connect", "tcp"))]);
    let checked = Program::new(["check", "held.xml"]).file("held.xml", &text).finish();
    assert!(
        checked.stderr.contains("number is not known beforehand: at 8192 a strand"),
        "{checked}"
    );
    let text = profile(1_000, &[("iterations=1000000", &open("connect", "tcp"))]);
    let checked = Program::new(["check", "held.xml"]).file("held.xml", &text).finish();
    assert_eq!(checked.code, 2, "{checked}");
    assert!(checked.stderr.contains("connections is 1000000000"), "{checked}");
}
