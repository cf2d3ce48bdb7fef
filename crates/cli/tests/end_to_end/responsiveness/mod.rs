//! Latency under load and the knee of latency: what a report says of them. What takes the machine for itself is in `measured`.

mod measured;

use serde_json::Value;

use crate::program::{Finished, Program};

/// The section of this name of a report of records.
pub(crate) fn report(run: &Finished, records: &[&str], name: &str) -> Value {
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

pub(crate) fn blocks<'a>(section: &'a Value, kind: &str) -> Vec<&'a Value> {
    section["blocks"].as_array().unwrap().iter().filter_map(|block| block.get(kind)).collect()
}

/// The cells of a column.
pub(crate) fn column<'a>(table: &'a Value, title: &str) -> Vec<&'a Value> {
    let columns = table["columns"].as_array().unwrap();
    let place = columns.iter().position(|column| column["title"] == title);
    let place = place.unwrap_or_else(|| panic!("no {title}: {table}"));
    table["rows"].as_array().unwrap().iter().map(|row| &row[place]).collect()
}

pub(crate) fn number(cell: &Value) -> f64 {
    cell["number"]["value"].as_f64().unwrap_or_else(|| panic!("no number: {cell}"))
}

#[test]
fn a_run_over_tls_has_both_handshakes_and_a_column_of_rpm() {
    let run = Program::new([
        "run",
        "@responsiveness",
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
    let expected =
        (60_000.0 / ((tcp + tls + request) / 3.0) + 60_000.0 / part("RTT of streams")) / 2.0;
    let rpm = number(column(parts, "RPM (not HTTP/2)")[0]);
    assert!((rpm / expected - 1.0).abs() < 1e-3, "{rpm} {expected}");
}

#[test]
fn studies_that_cannot_be_are_refused_before_anything_is_made() {
    for (arguments, expected) in [
        (["--axis", "traffic=sideways"], "no variable traffic"),
        (["--axis", "up=-1"], "-1"),
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
    let run = Program::new(["run", "@rr", "--duration", "300ms", "--out", "kept"]).finish();
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

mod long {
    use wirecost_linux::privilege::skip_without_namespaces;

    use super::*;

    /// Requests come at random times, so they wait for one another long before the link is full.
    const STUDY: &str = r#"
title = "knee"
profile = "@rr-open"
place = "lab"
lab = { rate = "10mbit", rtt = "2ms", queue = "200ms" }
tables = ["knee"]
[set]
connections = 100
duration = "3s"
ramp = "500ms"
[axes]
load = ["max", "10%", "30%", "50%", "70%", "80%", "90%", "95%"]
[repeat]
times = 3
"#;

    #[test]
    fn the_knee_of_latency_lies_below_the_rate_of_the_link() {
        if skip_without_namespaces("the_knee_of_latency_lies_below_the_rate_of_the_link") {
            return;
        }
        let run = Program::new(["study", "run", "study.toml", "--out", "kept", "--quiet"])
            .file("study.toml", STUDY)
            .finish();
        assert_eq!(run.code, 0, "{run}");
        let section = report(&run, &["kept"], "knee");
        let [table] = blocks(&section, "table")[..] else { panic!("{section}") };
        let p99: Vec<f64> = column(table, "p99").into_iter().map(number).collect();
        assert!(p99.len() == 7 && p99[6] > 2.0 * p99[0], "{table}");
        let findings = blocks(&section, "finding");
        let knee = findings.iter().find(|finding| finding["kind"] == "knee").unwrap();
        let sentence = knee["sentence"].as_str().unwrap();
        assert!(sentence.starts_with("P99 latency has its knee at "), "{knee}");
        // Of the link's 10 Mb/s.
        assert!((4e6..9.5e6).contains(&knee["effect"]["value"].as_f64().unwrap()), "{knee}");
    }
}
