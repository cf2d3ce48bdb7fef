//! Convergence, streams and RFC 6349 of a run over a link, and a study that varies one factor at a time.

use serde_json::Value;
use wirecost_congestion::{bic, names};
use wirecost_linux::privilege::skip_without_namespaces;

use crate::agents::Agent;
use crate::document::Document;
use crate::program::{Finished, Program};
use crate::responsiveness::{blocks, column, number, report};

const STREAMS: usize = 4;
const RATE: f64 = 100e6;

const STUDY: &str = r#"
title = "one at a time"
profile = "@stream"
tables = ["wan-tuning"]
vary = "one-at-a-time"
across = ["connections"]
[base]
size = "64k"
[set]
duration = "300ms"
ramp = "100ms"
[axes]
connections = [1, 5]
"option.cc" = ["reno", "cubic"]
size = ["4k", "64k"]
"#;

#[test]
fn a_study_varies_one_factor_at_a_time_and_concludes() {
    let program = || Program::new(["study", "check", "study.toml"]).file("study.toml", STUDY);
    let check = program().finish();
    assert_eq!(check.code, 0, "{check}");
    assert!(check.stdout.contains("base: option.cc=reno size=64k"), "{check}");
    for name in ["base connections=1", "connections=5 option.cc=cubic", "connections=1 size=4k"] {
        assert!(check.stdout.contains(&format!("  {name}  (")), "{name}: {check}");
    }
    assert!(check.stdout.contains("6 points, 6 runs"), "{check}");

    Program::new(["study", "run", "study.toml", "--out", "kept", "--quiet"])
        .file("study.toml", STUDY)
        .finish_and(concludes);
}

fn concludes(run: &Finished) {
    assert_eq!(run.code, 0, "{run}");
    let kept = run.path("kept");
    let report = Program::new(["report", kept.to_str().unwrap(), "--format", "json"]).finish();
    let document: Value = serde_json::from_str(&report.stdout).unwrap();
    let sections = document["sections"].as_array().unwrap();
    let section = sections.iter().find(|section| section["name"] == "wan-tuning").unwrap();
    let blocks = |kind: &str| -> Vec<&Value> {
        section["blocks"].as_array().unwrap().iter().filter_map(|block| block.get(kind)).collect()
    };
    let sentences: Vec<&str> =
        blocks("finding").iter().map(|finding| finding["sentence"].as_str().unwrap()).collect();
    for streams in ["1 stream: reno -> ", "5 streams: reno -> "] {
        assert!(sentences.iter().any(|sentence| sentence.starts_with(streams)), "{sentences:?}");
    }
    // The best setting first, of each number of streams.
    let first: Vec<&str> =
        blocks("finding").iter().map(|of| of["kind"].as_str().unwrap()).collect();
    assert_eq!(first[..2], ["best", "best"], "{sentences:?}");
    assert_eq!(blocks("table").len(), 2, "{report}");
    for table in blocks("table") {
        assert_eq!(table["rows"].as_array().unwrap().len(), 3, "{table}");
    }
    // Runs of 400 ms are too short for a convergence time, which is told.
    let notes: Vec<&str> = blocks("note").iter().map(|note| note.as_str().unwrap()).collect();
    assert!(notes.iter().any(|note| note.contains("too short")), "{notes:?}");
}

#[test]
fn contradictions_of_a_variation_are_refused_before_anything_is_made() {
    for (from, to, expected) in [
        ("vary = \"one-at-a-time\"\n", "", "base needs vary"),
        ("size = \"64k\"", "size = \"1k\"", "size has the values 4k, 64k"),
        ("across = [\"connections\"]", "across = [\"conections\"]", "did you mean connections?"),
    ] {
        let text = STUDY.replacen(from, to, 1);
        let finished = Program::new(["study", "run", "study.toml", "--out", "kept"])
            .file("study.toml", &text)
            .finish();
        assert_eq!(finished.code, 2, "{finished}");
        assert!(finished.stderr.contains(expected), "{expected}: {finished}");
        assert!(!finished.path("kept").exists(), "{finished}");
    }
}

/// A list of congestion controls is longer than what a kernel has. What the command line names is meant.
#[test]
fn congestion_controls_that_the_kernel_lacks_are_left_out_in_advance() {
    let study = STUDY.replace("[\"reno\", \"cubic\"]", "[\"nobody-has\", \"reno\"]");
    let program = |more: &[&str]| {
        Program::new(["study", "check", "study.toml"].into_iter().chain(more.iter().copied()))
            .file("study.toml", &study)
            .finish()
    };
    let check = program(&[]);
    assert_eq!(check.code, 0, "{check}");
    assert!(check.stdout.contains("base: option.cc=reno size=64k"), "{check}");
    assert!(check.stdout.contains("4 points, 4 runs"), "{check}");
    let why = "option.cc=nobody-has  skipped: this kernel has no congestion control nobody-has";
    assert!(check.stdout.contains(why), "{check}");
    let named = program(&["--axis", "option.cc=reno,nobody-has"]);
    assert!(named.stdout.contains("6 points, 6 runs"), "{named}");
}

/// What the kernel offers is asked of every host: this machine, and one with an agent.
#[test]
fn available_congestion_controls_are_points_of_a_study() {
    let study = STUDY.replace("[\"reno\", \"cubic\"]", "[\"available\"]");
    let program = |text: &str, more: &[&str]| {
        Program::new(["study", "check", "study.toml"].into_iter().chain(more.iter().copied()))
            .file("study.toml", text)
            .finish()
    };
    let mut offered = names::available().unwrap();
    offered.extend(bic::load().is_ok().then(|| "bpf-bic".to_owned()));
    let all_are_points = |check: &Finished, base: &str| {
        assert_eq!(check.code, 0, "{check}");
        // Each of the others alone, two bases, and the other size.
        let points = 2 * (offered.len() + 1);
        assert!(check.stdout.contains(&format!("{points} points, {points} runs")), "{check}");
        for name in offered.iter().filter(|name| *name != base) {
            let point = format!("connections=5 option.cc={name}  (");
            assert!(check.stdout.contains(&point), "{point}: {check}");
        }
    };
    let check = program(&study, &[]);
    all_are_points(&check, &offered[0]);
    let agent = Agent::start();
    let host = format!("h={}", agent.address);
    all_are_points(&program(&study, &["--host", &host]), &offered[0]);
    // On the command line too, where the base stays what it was.
    let check = program(STUDY, &["--axis", "option.cc=reno,available"]);
    all_are_points(&check, "reno");

    // It is none where there can be only one.
    let axis = "\"option.cc\" = [\"reno\", \"cubic\"]\n";
    let one = "\"option.cc\" = \"available\"";
    for text in [
        STUDY.replace(axis, "").replace("[set]\n", &format!("[set]\n{one}\n")),
        STUDY.replace(axis, &format!("way = [{{ label = \"x\", {one} }}]\n")),
    ] {
        let refused = program(&text, &[]);
        assert_eq!(refused.code, 2, "{refused}");
        let said = refused.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.contains("which stands for several congestion controls"), "{refused}");
        assert!(said.contains("write it as a value of the axis"), "{refused}");
    }
    let refused = Program::short_run("@rr", &["--cc", "available"]).finish();
    assert_eq!(refused.code, 2, "{refused}");
    assert!(refused.stderr.contains("an axis of a study"), "{refused}");
}

#[test]
fn a_load_is_a_share_of_the_link() {
    let refused = Program::short_run("@udp-stream", &["--load", "50%-of-link"]).finish();
    assert_eq!(refused.code, 2, "{refused}");
    assert!(refused.stderr.contains("50%-of-link: the rate of the link is unknown"), "{refused}");
    if skip_without_namespaces("a_load_is_a_share_of_the_link") {
        return;
    }
    let link = ["--lab", "--rate", "10mbit", "--rtt", "2ms", "--load", "50%-of-link"];
    let document = Program::short_run("@udp-stream", &link).measure();
    // 1,400 bytes of payload, 28 of headers, and 38 of Ethernet.
    let carried = 10e6 * 1400.0 / 1466.0;
    let offered = document.number("/offered_bits_per_second");
    assert!((offered / (0.5 * carried) - 1.0).abs() < 1e-4, "{offered}");
}

/// What the built-in study says of its lab's links and devices is left out elsewhere.
#[test]
fn the_built_in_study_can_be_made_without_its_lab() {
    let check = Program::new(["study", "check", "@wan-tuning", "--quick", "--loopback"]).finish();
    assert_eq!(check.code, 0, "{check}");
    let flat = check.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat.contains("without a lab, the study has no axis tune.mtu"), "{check}");
    assert!(flat.contains("without a lab, the study has no links of its own"), "{check}");
    assert!(check.stdout.contains("base connections=5"), "{check}");
    assert!(!check.stdout.contains("tune.mtu=9000"), "{check}");
    // A share of a link that is not known is no load.
    let why = "skipped: its load is a share of the link, whose rate is unknown";
    assert!(check.stdout.contains("traffic=udp connections=5"), "{check}");
    assert!(check.stdout.contains(why), "{check}");
    let given = ["--axis", "offered=", "--set", "load=100mbit"];
    let check = Program::new(["study", "check", "@wan-tuning", "--quick", "--loopback"])
        .args(given)
        .finish();
    assert_eq!(check.code, 0, "{check}");
    assert!(!check.stdout.contains(why), "{check}");

    // Settings of hosts stay where the user wants them changed.
    let tunables = ["study", "check", "@wan-tuning", "--loopback", "--tunables"];
    let check = Program::new(tunables).finish();
    assert_eq!(check.code, 0, "{check}");
    for kept in ["tune.mtu=9000", "tune.txqueuelen=100", "tune.netdev_budget=1000", "tso off"] {
        assert!(check.stdout.contains(kept), "{kept}: {check}");
    }
    assert!(!check.stdout.contains("coalescing"), "{check}");
}

mod measured {
    use super::*;

    /// Ten windows of one second: what is said is compared with the rest of the document, not with a speed.
    #[test]
    fn a_run_over_a_link_has_convergence_streams_and_the_metrics_of_rfc_6349() {
        if skip_without_namespaces("a_run_over_a_link_has_convergence_streams") {
            return;
        }
        let link = ["--lab", "--rate", "100mbit", "--rtt", "10ms"];
        let load = ["run", "@stream", "--connections", "4", "--ramp", "1s", "--duration", "10s"];
        Program::new(load.into_iter().chain(link))
            .measure_and(|_, document| is_of_the_link(document));
    }

    #[track_caller]
    fn is_of_the_link(document: &Document) {
        // From the start of the ramp; every window is at most what the link carries, but for lateness of its ends.
        let windows = document.at("/convergence/windows").as_array().unwrap().clone();
        let length = document.number("/convergence/window_seconds");
        assert_eq!(windows.len(), (11.0 / length + 0.02).floor() as usize);
        let rates: Vec<f64> = windows.iter().map(|rate| rate.as_f64().unwrap()).collect();
        let sum: f64 = rates.iter().sum::<f64>() / rates.len() as f64;
        // False failures: 1e-9, computed: the link carries no more in 11 s, so the last end would be a second late.
        assert!(sum > 0.0 && sum <= 1.1 * RATE, "{rates:?}");

        let streams = document.at("/streams").as_array().unwrap().clone();
        assert_eq!(streams.len(), STREAMS);
        let of_streams: f64 =
            streams.iter().map(|of| of["bits_per_second"].as_f64().unwrap()).sum();
        let throughput = document.number("/throughput/bits_per_second");
        // False failures: 1e-5, computed: both count the same bytes, but for a tenth of the window at its edges.
        assert!((of_streams / throughput - 1.0).abs() < 0.1, "{of_streams} {throughput}");
        for stream in &streams {
            assert_eq!(stream["host"], "h2");
            // The link alone takes 10 ms.
            assert!(stream["rtt_us"].as_f64().unwrap() >= 9_000.0, "{stream}");
            let own = &stream["convergence"]["windows"];
            assert_eq!(own.as_array().unwrap().len(), windows.len(), "{stream}");
        }
        assert!(document.number("/fairness/ratio") >= 1.0);

        // The link of a lab is charged with 38 bytes of Ethernet for each packet.
        let most = document.number("/rfc6349/max_bits_per_second");
        assert!((most / (RATE * 1460.0 / 1538.0) - 1.0).abs() < 1e-9, "{most}");
        let ratio = document.number("/rfc6349/transfer_time_ratio");
        let tx = document.number("/throughput/tx_bits_per_second");
        assert!((ratio * tx / most - 1.0).abs() < 1e-9, "{ratio}");
        let baseline = document.number("/rfc6349/baseline_rtt_us");
        // The baseline is the least of the round-trip times, and the other their median.
        assert!((9_000.0..=document.number("/tcp/rtt_us")).contains(&baseline), "{baseline}");
        assert!((0.0..=100.0).contains(&document.number("/rfc6349/efficiency_percent")));
    }

    /// The built-in study as it is, but for fewer points and shorter windows.
    #[test]
    fn far_streams_get_less_of_a_link_than_near_ones() {
        if skip_without_namespaces("far_streams_get_less_of_a_link_than_near_ones") {
            return;
        }
        Program::new(["study", "run", "@rtt-fairness", "--quick", "--quiet", "--out", "kept"])
            .args(["--axis", "option.cc=reno", "--set", "duration=3s", "--set", "ramp=1s"])
            .finish_and(far_streams);
    }

    fn far_streams(run: &Finished) {
        assert_eq!(run.code, 0, "{run}");
        let section = report(run, &["kept"], "rtt-fairness");
        let table = blocks(&section, "table")[0];
        let of = |title: &str| -> Vec<f64> {
            column(table, title).into_iter().take(2).map(number).collect()
        };
        // Far hosts at 10 ms, as near ones are, and at 80 ms.
        let rtt = of("RTT far");
        assert!(rtt[0] >= 10_000.0 && rtt[1] >= 80_000.0, "{section}");
        let share = of("far/near");
        // False failures: 1e-4, measured: 12 studies beside load 10, geometric mean 0.12, log-sd 0.51.
        assert!(share[1] < share[0], "{section}");
        // The same shares in other words.
        assert!(number(column(table, "RTT exponent")[1]) > 0.0, "{section}");
        assert_eq!(blocks(&section, "finding").len(), 2, "{section}");
        // From what was saved, all points have their run.
        let whole = Program::new(["report", run.path("kept").to_str().unwrap()]).finish();
        assert!(
            whole.stdout.contains("2 runs of 2 points") && !whole.stdout.contains("no run yet"),
            "{whole}"
        );
    }
}
