//! What a run leaves: the lines of uperf's format, and the record.

use regex::Regex;
use serde_json::Value;

use crate::document::Document;
use crate::program::Program;

/// With the patterns of k8s-netperf and crucible; uperf_parsers.rs has their formulas.
#[test]
fn uperf_lines_are_as_their_readers_expect() {
    let finished = Program::short_run("@rr", &["--format", "uperf", "--json", "run.json"]).finish();
    assert_eq!(finished.code, 0, "{finished}");
    let raw = Regex::new(r"timestamp_ms:(.*) name:Txn2 nr_bytes:(.*) nr_ops:(.*)").unwrap();
    let lines: Vec<[f64; 3]> = raw
        .captures_iter(&finished.stdout)
        .map(|found| [1, 2, 3].map(|group| found[group].trim().parse().unwrap()))
        .collect();
    assert_eq!(lines.len(), 6, "500 ms of 100 ms each\n{finished}");
    assert_eq!(lines[0][1..], [0.0, 0.0], "the first line is that of the beginning");
    for pair in lines.windows(2) {
        assert!((0..3).all(|field| pair[0][field] <= pair[1][field]), "they grow: {pair:?}");
    }
    // What uperf counts: both directions.
    let last = lines.last().unwrap();
    // An operation counts when it ends, its bytes when they move: one is under way at either line.
    assert!((last[1] - last[2] * 64.0).abs() <= 128.0, "each operation moves 64 bytes: {last:?}");
    let connects = Regex::new(r"(?m)^timestamp_ms:\d+\.\d+\s+name:Txn1\s+nr_bytes:0\s+nr_ops:0$");
    assert!(connects.unwrap().is_match(&finished.stdout), "{finished}");
    let difference = Regex::new(concat!(
        r"(?m)^Difference\(%\)\s+(-?\d+\.\d+)%\s+(-?\d+\.\d+)%\s+(-?\d+\.\d+)%",
        r"\s+(-?\d+\.\d+)%\s+(-?\d+\.\d+)%"
    ));
    let difference = difference.unwrap();
    let found = difference.captures(&finished.stdout).expect("the line Difference(%)");
    // Bytes and operations of both ends are the same to the last.
    assert_eq!((&found[2], &found[4], &found[5]), ("0.00", "0.00", "0.00"), "{finished}");
    assert!(finished.stdout.contains("\nRun Statistics\n"));
    assert!(finished.stdout.contains("\nmaster "));
    let config = Regex::new(r"running profile:(.*) \.\.\.").unwrap();
    assert_eq!(&config.captures(&finished.stdout).unwrap()[1], "rr");
}

#[test]
fn a_record_is_the_document_and_the_hosts() {
    let arguments = ["--out", "kept/here", "--json", "run.json"];
    let finished = Program::short_run("@rr", &arguments).finish();
    assert_eq!(finished.code, 0, "{finished}");
    let document = finished.document();
    let record = wirecost_store::read(&finished.path("kept/here")).unwrap();
    assert_eq!(&serde_json::to_value(record.run).unwrap(), document.value());
    assert!(finished.path("kept/here").join(wirecost_store::SAMPLES).exists());
    let hosts = finished.json("kept/here/hosts.json");
    for name in ["master", "peer"] {
        let environment = &hosts[name];
        assert!(environment.is_object(), "{hosts:#}");
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        assert!(mentions(environment, kernel.trim()), "{environment:#}");
    }
    // A record is not written over.
    let finished = Program::short_run("@rr", &["--out", "kept"]).finish();
    assert_eq!(finished.code, 0, "{finished}");
}

fn mentions(value: &Value, text: &str) -> bool {
    match value {
        Value::String(string) => string.contains(text),
        Value::Array(list) => list.iter().any(|value| mentions(value, text)),
        Value::Object(object) => object.values().any(|value| mentions(value, text)),
        _ => false,
    }
}

#[test]
fn json_is_all_that_is_on_standard_output() {
    let finished = Program::short_run("@rr", &["--json", "-"]).finish();
    assert_eq!(finished.code, 0, "{finished}");
    let document = Document::valid(serde_json::from_str(&finished.stdout).unwrap());
    assert_eq!(document.text("/status"), "ok");
}

/// The table says what the document says.
#[test]
fn the_table_names_what_was_measured() {
    let finished = Program::short_run("@rr", &["--json", "run.json"]).finish();
    assert_eq!(finished.code, 0, "{finished}");
    for word in ["p50", "p99.9", "transactions", "master", "peer"] {
        assert!(finished.stdout.to_lowercase().contains(word), "no {word}\n{finished}");
    }
}

/// On every way to standard output.
#[test]
fn output_that_cannot_be_written_is_a_failure_with_its_reason() {
    let run = ["run", "@rr", "--duration", "100ms", "--ramp", "0s", "--observe", "none", "--quiet"];
    let with = |more: &[&'static str]| [&run[..], more].concat();
    let commands: [&[&str]; 9] = [
        &["list"],
        &["list", "@rr"],
        &["--help"],
        &["check", "@rr"],
        &["check", "@rr", "--to", "toml"],
        &["study", "list"],
        &with(&[]),
        &with(&["--format", "uperf"]),
        &with(&["--json", "-"]),
    ];
    for (to, reason) in [(">/dev/full", "No space left on device"), (">&-", "Bad file descriptor")]
    {
        for arguments in commands {
            let finished = Program::redirected(to, arguments).finish();
            assert_eq!(finished.code, 1, "{arguments:?} {to}\n{finished}");
            let line = finished.stderr.lines().last().unwrap_or_default();
            assert!(line.contains("the standard output: ") && line.contains(reason), "{finished}");
        }
    }
}

/// Nor is it lost why a run has no result.
#[test]
fn a_failed_run_tells_its_reason_where_its_document_cannot_be_written() {
    let arguments = ["run", "@stream", "--duration", "1h", "--timeout", "300ms", "--quiet"];
    let arguments = [&arguments[..], &["--json", "-"]].concat();
    let finished = Program::redirected(">/dev/full", &arguments).finish();
    assert!(finished.stderr.contains("--timeout"), "{finished}");
    assert!(finished.stderr.contains("No space left on device"), "{finished}");
}

#[test]
fn a_reader_that_stops_early_is_no_failure() {
    let finished = Program::redirected("| true", &["list"]).finish();
    assert_eq!((finished.code, finished.stderr.as_str()), (0, ""), "{finished}");
}
