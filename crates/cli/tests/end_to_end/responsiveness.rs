//! Latency under load is what a queue of known length makes of it, and a knee lies where the link is full.

use serde_json::Value;
use wirecost_linux::privilege::skip_without_namespaces;

use crate::program::{Finished, Program};

/// Bits per second of the link.
const RATE: f64 = 50e6;
/// Bytes of its queue.
const QUEUES: [f64; 2] = [100e3, 600e3];

/// Streams up fill queues of two lengths.
const QUEUE_STUDY: &str = r#"
title = "queues"
profile = "@responsiveness"
place = "lab"
lab = { rate = "50mbit", rtt = "20ms" }
tables = ["responsiveness"]
order = "written"
[set]
duration = "4s"
ramp = "6s"
[axes]
"lab.queue" = ["100kB", "600kB"]
traffic = [{ label = "idle", up = 0, down = 0 }, { label = "up", up = 4, down = 0 }]
"#;

const KNEE_STUDY: &str = r#"
title = "knee"
profile = "@rr-open"
place = "lab"
lab = { rate = "10mbit", rtt = "2ms", queue = "1000ms" }
tables = ["knee"]
[set]
connections = 50
duration = "2s"
ramp = "500ms"
[axes]
load = ["max", "20%", "35%", "50%", "65%", "130%", "160%"]
"#;

/// Runs a study, and reads the section of this name from its report.
fn section(text: &str, name: &str) -> (Finished, Value) {
    let run = Program::new(["study", "run", "study.toml", "--out", "kept", "--quiet"])
        .file("study.toml", text)
        .finish();
    assert_eq!(run.code, 0, "{run}");
    let section = report(&run, &["kept"], name);
    (run, section)
}

fn report(run: &Finished, records: &[&str], name: &str) -> Value {
    let paths: Vec<String> =
        records.iter().map(|record| run.path(record).to_str().unwrap().to_owned()).collect();
    let arguments = ["report"].into_iter().map(str::to_owned).chain(paths);
    let arguments = arguments.chain(["--table", name, "--format", "json"].map(str::to_owned));
    let report = Program::new(arguments).finish();
    assert_eq!(report.code, 0, "{report}");
    let document: Value = serde_json::from_str(&report.stdout).unwrap();
    let sections = document["sections"].as_array().unwrap();
    sections.iter().find(|section| section["name"] == name).unwrap().clone()
}

fn blocks<'a>(section: &'a Value, kind: &str) -> Vec<&'a Value> {
    section["blocks"].as_array().unwrap().iter().filter_map(|block| block.get(kind)).collect()
}

/// The cells of a column.
fn column<'a>(table: &'a Value, title: &str) -> Vec<&'a Value> {
    let columns = table["columns"].as_array().unwrap();
    let place = columns.iter().position(|column| column["title"] == title);
    let place = place.unwrap_or_else(|| panic!("no {title}: {table}"));
    table["rows"].as_array().unwrap().iter().map(|row| &row[place]).collect()
}

fn number(cell: &Value) -> f64 {
    cell["number"]["value"].as_f64().unwrap_or_else(|| panic!("no number: {cell}"))
}

#[test]
fn latency_under_load_grows_by_the_length_of_the_queue() {
    if skip_without_namespaces("latency_under_load_grows_by_the_length_of_the_queue") {
        return;
    }
    let (_, section) = section(QUEUE_STUDY, "responsiveness");
    let tables = blocks(&section, "table");
    let of = |what: &str| -> Vec<&Value> {
        let begins = |table: &&&Value| table["title"].as_str().unwrap().starts_with(what);
        tables.iter().filter(begins).copied().collect()
    };
    let (latencies, parts) = (of("round trips of requests"), of("RPM and its parts"));
    assert_eq!((latencies.len(), parts.len()), (2, 2), "one of each queue: {section}");
    for (table, queue) in latencies.iter().zip(QUEUES) {
        let p50: Vec<f64> = column(table, "p50").into_iter().map(number).collect();
        // On an idle path, a round trip is the path's, and what this machine adds.
        assert!((20e3..45e3).contains(&p50[0]), "{table}");
        let up = number(column(table, "up")[1]);
        assert!((0.7 * RATE..RATE).contains(&up), "the link is full: {table}");
        // Streams fill the queue, and lose packets when it is full: then part of it drains. What this machine is late
        // by is some milliseconds.
        let full = queue * 8.0 / RATE * 1e6;
        let increase = number(column(table, "vs idle")[1]);
        assert!((increase - (p50[1] - p50[0])).abs() < 1.0, "{table}");
        assert!((0.35 * full..1.1 * full + 8e3).contains(&increase), "{full} {table}");
    }
    // The longer queue has the worse grade.
    let grades: Vec<&Value> = latencies.iter().map(|table| column(table, "grade")[1]).collect();
    assert_ne!(grades[0], grades[1]);

    for table in parts {
        let part = |title: &str| number(column(table, title)[0]) / 1e3;
        let foreign = 60_000.0 / ((part("TCP handshake") + part("request")) / 2.0);
        let expected = (foreign + 60_000.0 / part("load's RTT")) / 2.0;
        let rpm = number(column(table, "RPM (not HTTP/2)")[0]);
        assert!((rpm - expected).abs() <= 0.5, "{rpm} {expected}");
        // One round trip takes at least that of the path.
        assert!(rpm > 60.0 && rpm < 3_000.0, "{rpm}");
    }
    let findings = blocks(&section, "finding");
    let sentences: Vec<&str> =
        findings.iter().map(|finding| finding["sentence"].as_str().unwrap()).collect();
    for begins in
        ["At lab.queue=100kB, under load up, p50 of", "At lab.queue=600kB, RPM under load up"]
    {
        assert!(sentences.iter().any(|of| of.starts_with(begins)), "{begins}: {sentences:?}");
    }
}

#[test]
fn a_run_over_tls_has_both_handshakes_and_a_column_of_rpm() {
    let run = Program::new([
        "run",
        "@responsiveness",
        "--loopback",
        "--var",
        "protocol=tls",
        "--var",
        "up=1",
        "--var",
        "down=1",
        "--var",
        "think=20ms",
        "--ramp",
        "200ms",
        "--duration",
        "2s",
        "--out",
        "kept",
    ])
    .finish();
    assert_eq!(run.code, 0, "{run}");
    let section = report(&run, &["kept"], "responsiveness");
    let tables = blocks(&section, "table");
    let [latencies, parts] = &tables[..] else { panic!("{section}") };
    // Nothing is known of an idle path.
    assert!(column(latencies, "grade")[0]["missing"].as_str().unwrap().contains("idle path"));
    let part = |title: &str| number(column(parts, title)[0]) / 1e3;
    let (tcp, tls, request) = (part("TCP handshake"), part("TLS handshake"), part("request"));
    let expected = (60_000.0 / ((tcp + tls + request) / 3.0) + 60_000.0 / part("load's RTT")) / 2.0;
    let rpm = number(column(parts, "RPM (not HTTP/2)")[0]);
    assert!((rpm / expected - 1.0).abs() < 1e-3, "{rpm} {expected}");
}

#[test]
fn the_knee_of_latency_lies_where_the_link_is_full() {
    if skip_without_namespaces("the_knee_of_latency_lies_where_the_link_is_full") {
        return;
    }
    let (run, section) = section(KNEE_STUDY, "knee");
    let [table] = blocks(&section, "table")[..] else { panic!("{section}") };
    let offered: Vec<f64> = column(table, "offered").into_iter().map(number).collect();
    assert_eq!(offered.len(), 6, "without the saturating point: {table}");
    assert!(offered.is_sorted(), "{table}");
    // The saturation throughput: 20% of it were offered.
    let full = offered[0] / 0.2;
    let p99: Vec<f64> = column(table, "p99").into_iter().map(number).collect();
    assert!(p99[5] > 10.0 * p99[0], "an overloaded queue grows: {table}");
    let delivered: Vec<f64> = column(table, "delivered").into_iter().map(number).collect();
    assert!(delivered[0] > 85.0 && delivered[5] < 80.0, "{table}");
    let findings = blocks(&section, "finding");
    let knee = findings.iter().find(|finding| finding["kind"] == "knee").unwrap();
    let sentence = knee["sentence"].as_str().unwrap();
    assert!(sentence.starts_with("P99 latency has its knee at "), "{knee}");
    let at = knee["effect"]["value"].as_f64().unwrap() / full;
    assert!((0.35..=1.3).contains(&at), "{at} of saturation: {knee}");

    // The same records, by an axis that is no load.
    let other =
        Program::new(["report", run.path("kept").to_str().unwrap(), "--table", "kne"]).finish();
    assert_eq!(other.code, 2, "{other}");
    assert!(other.stderr.contains("did you mean knee?"), "{other}");
}

#[test]
fn studies_that_cannot_be_are_refused_before_anything_is_made() {
    for (arguments, expected) in [
        (["--axis", "traffic=sideways"], "sideways"),
        (["--set", "up=-1"], "up"),
        (["--set", "protocol=udp"], "udp"),
        (["--set", "probe=3"], "did you mean probes"),
    ] {
        let refused = Program::new(
            ["study", "run", "@responsiveness", "--quick", "--out", "kept"]
                .into_iter()
                .chain(arguments),
        )
        .finish();
        assert_eq!(refused.code, 2, "{arguments:?}: {refused}");
        assert!(refused.stderr.contains(expected), "{arguments:?}: {refused}");
        assert!(!refused.path("kept").exists(), "{arguments:?}: {refused}");
    }
}

/// Records of other profiles have no probes.
#[test]
fn tables_say_what_they_lack() {
    let run =
        Program::new(["run", "@rr", "--loopback", "--duration", "300ms", "--out", "kept"]).finish();
    assert_eq!(run.code, 0, "{run}");
    for (table, expected) in [
        ("responsiveness", "There is no valid run of the profile @responsiveness yet."),
        ("knee", "There is no curve: the study has none of the axes load, rate, connections."),
    ] {
        let section = report(&run, &["kept"], table);
        let texts = blocks(&section, "text");
        assert_eq!(texts[0], expected, "{section}");
    }
}
