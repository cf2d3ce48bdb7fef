//! `@option-payoff`: each option beside its base, and the ratio of paired runs.

use std::collections::BTreeMap;

use serde_json::Value;
use wirecost_linux::ktls;
use wirecost_linux::privilege::skip_without_namespaces;

use crate::program::{Finished, Program};

/// A part of the quick variant: 17 points.
const PART: [&str; 6] = [
    "--axis",
    "transport=tcp,udp",
    "--axis",
    "size=64,4k",
    "--axis",
    "option=base,zero-copy,tso off,udp-gso+gro",
];

/// A run: its axes, its repeat, its place in time, and its cycles/KByte.
struct Kept {
    axes: BTreeMap<String, String>,
    repeat: u64,
    order: u64,
    cost: f64,
}

fn kept(finished: &Finished) -> Vec<Kept> {
    let runs = std::fs::read_dir(finished.path("kept").join("runs")).unwrap();
    let read = |entry: std::io::Result<std::fs::DirEntry>| {
        let text = std::fs::read_to_string(entry.unwrap().path().join("run.json")).unwrap();
        let run: Value = serde_json::from_str(&text).unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let axes = run["study"]["point"]["axes"].as_array().unwrap().iter();
        let machines = run["machines"].as_array().unwrap().iter();
        Kept {
            axes: axes.map(|axis| (text(&axis["name"]), text(&axis["value"]))).collect(),
            repeat: run["study"]["repeat"].as_u64().unwrap(),
            order: run["study"]["order"].as_u64().unwrap(),
            cost: machines.map(|of| of["cycles_per_kbyte"].as_f64().unwrap()).sum(),
        }
    };
    runs.map(read).collect()
}

const SHORT: [&str; 4] = ["--set", "duration=200ms", "--set", "ramp=100ms"];

#[test]
fn each_option_is_compared_with_the_base_that_runs_next_to_it() {
    if skip_without_namespaces("each_option_is_compared_with_the_base") {
        return;
    }
    each_option_is_compared(&SHORT);
}

fn each_option_is_compared(windows: &[&str]) {
    let run = ["study", "run", "@option-payoff", "--quick", "--quiet", "--repeat", "2"];
    let run = Program::new(run.into_iter().chain(PART).chain(["--out", "kept"]));
    let run = run.args(windows).finish();
    assert_eq!(run.code, 0, "{run}");
    let runs = kept(&run);
    assert_eq!(runs.len(), 2 * 17, "{run}");

    // A base and its options follow each other.
    for repeat in [1, 2] {
        let mut of_repeat: Vec<&Kept> = runs.iter().filter(|of| of.repeat == repeat).collect();
        of_repeat.sort_by_key(|of| of.order);
        let block = |of: &Kept| {
            ["transport", "traffic", "size"].map(|axis| of.axes[axis].clone()).join(" ")
        };
        let mut blocks: Vec<String> = of_repeat.iter().map(|of| block(of)).collect();
        blocks.dedup();
        assert_eq!(blocks.len(), 7, "{blocks:?}");
    }

    let kept = run.path("kept");
    let report = Program::new(["report", kept.to_str().unwrap(), "--format", "json"]).finish();
    let document: Value = serde_json::from_str(&report.stdout).unwrap();
    let sections = document["sections"].as_array().unwrap();
    let names: Vec<&str> = sections.iter().map(|of| of["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["option-payoff", "runs"]);
    let blocks = |section: usize, kind: &str| -> Vec<Value> {
        let blocks = sections[section]["blocks"].as_array().unwrap().iter();
        blocks.filter_map(|block| block.get(kind)).cloned().collect()
    };
    let tables = blocks(0, "table");
    let rows = |title: &str| -> Vec<Vec<Value>> {
        let table = tables.iter().find(|table| table["title"] == title).unwrap();
        let rows = table["rows"].as_array().unwrap().iter();
        rows.map(|row| row.as_array().unwrap().clone()).collect()
    };
    let of_option = |row: &Vec<Value>| {
        let text = row[0]["text"].as_str().unwrap();
        format!("{text} {}", row[1]["set"]["text"].as_str().unwrap())
    };
    let tcp = ["zero-copy 64", "zero-copy 4k", "tso 64", "tso 4k"];
    for title in ["tcp, stream", "tcp, round trips"] {
        assert_eq!(rows(title).iter().map(of_option).collect::<Vec<_>>(), tcp, "{title}");
    }
    for title in ["udp, stream", "udp, bursts"] {
        let udp = rows(title);
        assert_eq!(udp.iter().map(of_option).collect::<Vec<_>>(), ["udp-gso+gro 64"], "{title}");
    }
    // The latency of a burst with and without it, and their ratio.
    for column in [2, 3, 4] {
        let cell = &rows("udp, bursts")[0][column];
        assert!(cell["number"]["value"].as_f64().is_some_and(|value| value > 0.0), "{cell}");
    }

    // The ratio is that of the records, pair by pair. TSO is on at the base.
    for (row, off, on) in [(0, "base", "zero-copy"), (2, "tso off", "base")] {
        let cost = |option: &str, repeat: u64| {
            let wanted = [("transport", "tcp"), ("traffic", "stream"), ("size", "64")];
            let of = runs.iter().find(|of| {
                of.repeat == repeat
                    && of.axes["option"] == option
                    && wanted.iter().all(|(axis, value)| of.axes[*axis] == *value)
            });
            of.unwrap().cost
        };
        let logs = [1, 2].map(|repeat| (cost(on, repeat) / cost(off, repeat)).ln());
        let expected = ((logs[0] + logs[1]) / 2.0).exp();
        let cell = &rows("tcp, stream")[row][4]["number"];
        let ratio = cell["value"].as_f64().unwrap();
        assert!((ratio / expected - 1.0).abs() < 1e-9, "{off} {on}: {ratio} {expected}");
        let interval = cell["interval"].as_array().unwrap();
        assert!(interval[0].as_f64().unwrap() < ratio && ratio < interval[1].as_f64().unwrap());
    }

    // Every option has a sentence about cost, alone or with others, and about latency.
    let findings = blocks(0, "finding");
    for (kind, options) in [
        ("payoff", vec!["zero-copy", "tso", "udp-gso+gro"]),
        ("latency-cost", vec!["zero-copy", "tso", "udp-gso+gro"]),
    ] {
        let of_kind = findings.iter().filter(|finding| finding["kind"] == kind);
        let sentences: Vec<&str> =
            of_kind.map(|finding| finding["sentence"].as_str().unwrap()).collect();
        for option in options {
            assert!(sentences.iter().any(|of| of.contains(option)), "{option}: {sentences:?}");
        }
    }
    // Between namespaces the kernel copies, which stands beside what is said about zero-copy.
    let evidence = findings.iter().flat_map(|of| of["evidence"].as_array().unwrap());
    let copied = evidence.filter_map(Value::as_str).any(|of| of.contains("still copied: 100%"));
    assert!(copied, "{findings:?}");
    // What was left out is told too.
    let about: Vec<Value> = blocks(1, "text");
    let told = about.iter().filter_map(Value::as_str);
    let why = "5 points are left out: a datagram with its headers must fit in a packet";
    assert!(told.clone().any(|text| text.starts_with(why)), "{:?}", told.collect::<Vec<_>>());
}

fn check(more: &[&str]) -> Finished {
    let check = ["study", "check", "@option-payoff", "--quick"];
    Program::new(check.into_iter().chain(more.iter().copied())).finish()
}

#[test]
fn options_are_tried_only_where_they_can_be_used() {
    let check = check(&[]);
    assert_eq!(check.code, 0, "{check}");
    let points = |text: &str| check.stdout.lines().filter(|line| line.contains(text)).count();
    assert_eq!(points("transport=udp connections=1 traffic=stream size=64 option="), 5, "{check}");
    assert_eq!(points("transport=udp connections=1 traffic=round trips size=64 option="), 2);
    assert_eq!(points("transport=udp connections=1 traffic=bursts size=64 option="), 3, "{check}");
    assert_eq!(points("transport=tcp connections=1 traffic=bursts"), 0, "{check}");
    assert_eq!(points("traffic=stream size=64k option=zero-copy"), 1, "{check}");
    // Kernel TLS is there, or the reason is.
    assert_eq!(points("option=ktls"), 6, "{check}");
    let why = "option=ktls  skipped: this kernel has no TLS";
    assert_eq!(points(why), if ktls::available() { 0 } else { 6 }, "{check}");
}

/// A burst is as many datagrams with the option as without it.
#[test]
fn bursts_have_the_same_datagrams_with_every_option() {
    if skip_without_namespaces("bursts_have_the_same_datagrams_with_every_option") {
        return;
    }
    let part = ["--axis", "transport=udp", "--axis", "traffic=bursts", "--axis", "size=64"];
    let run = ["study", "run", "@option-payoff", "--quick", "--quiet", "--repeat", "1"];
    let run = Program::new(run.into_iter().chain(part).chain(["--out", "kept"]));
    run.args(SHORT).finish_and(have_the_same_datagrams);
}

fn have_the_same_datagrams(run: &Finished) {
    assert_eq!(run.code, 0, "{run}");
    let mut seen = Vec::new();
    for entry in std::fs::read_dir(run.path("kept").join("runs")).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path().join("run.json")).unwrap();
        let run: Value = serde_json::from_str(&text).unwrap();
        let axes = run["study"]["point"]["axes"].as_array().unwrap();
        let option = axes.iter().find(|axis| axis["name"] == "option").unwrap();
        let transactions = run["latency_us"]["count"].as_f64().unwrap();
        let received = run["throughput"]["tx_bytes"].as_f64().unwrap() / 64.0;
        let each = received / transactions;
        // The windows of both ends are of 200 ms, and begin and end at their own times.
        // False failures: 1e-5 (x4), computed: they would have to be 12 ms apart, and the machine to report nothing.
        assert!((each - 16.0).abs() < 1.0, "{option}: {each} datagrams for each round trip");
        seen.push(option["value"].as_str().unwrap().to_owned());
    }
    seen.sort();
    assert_eq!(seen, ["base", "batch", "udp-gso", "udp-gso+gro"]);
}

#[test]
fn options_of_devices_are_for_the_devices_of_a_lab() {
    let check = check(&["--loopback"]);
    assert_eq!(check.code, 0, "{check}");
    let flat = check.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
    let warning = "without a lab, the study's axis option is without tso off, gro, mtu 9000";
    assert!(flat.contains(warning), "{check}");
    assert!(check.stdout.contains("option=zero-copy") && !check.stdout.contains("mtu"), "{check}");
}

#[test]
fn values_that_the_study_lacks_are_refused_before_anything_is_made() {
    for (axis, expected, help) in [
        ("option=base,zerocopy", "it has no value zerocopy", "did you mean zero-copy?"),
        ("transport=tcp,sctp", "it has no value sctp, but tcp, tls, udp", "tcp, tls, udp"),
    ] {
        let arguments = ["study", "run", "@option-payoff", "--out", "kept", "--axis", axis];
        let refused = Program::new(arguments).finish();
        assert_eq!(refused.code, 2, "{refused}");
        assert!(refused.stderr.contains(expected) && refused.stderr.contains(help), "{refused}");
        assert!(!refused.path("kept").exists(), "{refused}");
    }
    let study = "profile = \"@stream\"\n[only.size]\n64 = { connections = 2 }\n[axes]\n\
                 size = [64, \"1k\"]\nconnections = [1]\n";
    let refused = Program::new(["study", "run", "study.toml", "--out", "kept"])
        .file("study.toml", study)
        .finish();
    assert_eq!(refused.code, 2, "{refused}");
    assert!(refused.stderr.contains("only.size.64 holds at no point"), "{refused}");
    assert!(!refused.path("kept").exists(), "{refused}");
}

mod long {
    use super::*;

    #[test]
    fn each_option_is_compared_in_windows_as_shipped() {
        if skip_without_namespaces("each_option_is_compared_in_windows_as_shipped") {
            return;
        }
        each_option_is_compared(&[]);
    }
}
