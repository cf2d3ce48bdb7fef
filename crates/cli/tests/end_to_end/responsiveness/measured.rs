//! Latency under load is what a queue of known length makes of it.

use serde_json::Value;
use wirecost_linux::privilege::skip_without_namespaces;

use super::{blocks, column, number, report};
use crate::attempts::undisturbed;
use crate::builtin_studies::kept_disturbances;
use crate::program::{Finished, Program};

/// Bits per second of the link.
const RATE: f64 = 10e6;
/// Bytes of its queue.
const QUEUES: [f64; 2] = [60e3, 300e3];

/// Streams up fill queues of two lengths.
const QUEUE_STUDY: &str = r#"
title = "queues"
profile = "@responsiveness"
place = "lab"
lab = { rate = "10mbit", rtt = "40ms" }
tables = ["responsiveness"]
order = "written"
[set]
duration = "4s"
ramp = "6s"
[axes]
"lab.queue" = ["60kB", "300kB"]
up = [0, 8]
down = [0]
"#;

/// Runs a study until other programs let it.
fn study(text: &str, check: impl Fn(&Finished)) {
    let run = || {
        Program::new(["study", "run", "study.toml", "--out", "kept", "--quiet"])
            .file("study.toml", text)
            .finish()
    };
    undisturbed(run, kept_disturbances, |run| {
        assert_eq!(run.code, 0, "{run}");
        check(run);
    });
}

#[test]
fn latency_under_load_grows_by_the_length_of_the_queue() {
    if skip_without_namespaces("latency_under_load_grows_by_the_length_of_the_queue") {
        return;
    }
    study(QUEUE_STUDY, |run| queues(&report(run, &["kept"], "responsiveness")));
}

fn queues(section: &Value) {
    let tables = blocks(section, "table");
    let of = |what: &str| -> Vec<&Value> {
        let begins = |table: &&&Value| table["title"].as_str().unwrap().starts_with(what);
        tables.iter().filter(begins).copied().collect()
    };
    let (latencies, parts) = (of("round trips of requests"), of("RPM and its parts"));
    assert_eq!((latencies.len(), parts.len()), (2, 2), "one of each queue: {section}");
    for (table, queue) in latencies.iter().zip(QUEUES) {
        let p50: Vec<f64> = column(table, "p50").into_iter().map(number).collect();
        // On an idle path, a round trip is the path's, and what this machine adds.
        // False failures: 1e-6 (x2), computed: half of the idle probes would have to be 40 ms late, and nothing be reported.
        assert!((40e3..80e3).contains(&p50[0]), "{table}");
        let up = number(column(table, "upload")[1]);
        // False failures: 1e-6 (x2), computed: payload is 95% of a full link, which would be empty for 1 s of 4.
        assert!((0.7 * RATE..RATE).contains(&up), "the link is full: {table}");
        // Streams fill the queue, and lose packets when it is full: then part of it drains. This machine may be late by
        // some milliseconds.
        let full = queue * 8.0 / RATE * 1e6;
        let increase = number(column(table, "vs idle")[1]);
        assert!((increase - (p50[1] - p50[0])).abs() < 1.0, "{table}");
        // False failures: 1e-6 (x2), simulated: medians of 20,000 such queues are 0.87 to 1 of a full one, deviation 0.02.
        assert!((0.35 * full..1.1 * full + 25e3).contains(&increase), "{full} {table}");
    }
    let load: Vec<&str> = column(latencies[0], "load")
        .into_iter()
        .map(|cell| cell["text"].as_str().unwrap())
        .collect();
    assert_eq!(load, ["idle", "8 up"]);
    // The longer queue has the worse grade.
    let grades: Vec<&Value> = latencies.iter().map(|table| column(table, "grade")[1]).collect();
    // False failures: 1e-6, computed: 42 to 48 ms against 208 to 240 ms; the shorter would have to be 12 ms late on average.
    assert_ne!(grades[0], grades[1]);

    for table in parts {
        let part = |title: &str| number(column(table, title)[0]) / 1e3;
        let foreign = 60_000.0 / ((part("TCP handshake") + part("request")) / 2.0);
        let expected = (foreign + 60_000.0 / part("RTT of streams")) / 2.0;
        let rpm = number(column(table, "RPM (not HTTP/2)")[0]);
        assert!((rpm - expected).abs() <= 0.5, "{rpm} {expected}");
        // One round trip takes at least that of the path.
        // False failures: 1e-6 (x2), computed: a round trip of a stream takes 40 to 280 ms, and 500 would be too long.
        assert!(rpm > 60.0 && rpm < 3_000.0, "{rpm}");
    }
    let findings = blocks(section, "finding");
    let sentences: Vec<&str> =
        findings.iter().map(|finding| finding["sentence"].as_str().unwrap()).collect();
    for begins in [
        "At lab.queue=60kB, during upload, p50 of",
        "At lab.queue=300kB, RPM (not HTTP/2) during upload",
    ] {
        assert!(sentences.iter().any(|of| of.starts_with(begins)), "{begins}: {sentences:?}");
    }
}
