//! `wirecost report`: of records, and of nothing else.

use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::program::{Finished, Program};

/// The document of a run, as `--json` writes it.
static RUN: LazyLock<Value> =
    LazyLock::new(|| Program::short_run("@stream", &[]).measure().value().clone());

const STUDY: &str = r#"
    title = "Sizes"
    profile = "@stream"
    tables = ["tcp-transmit", { title = "mine", columns = ["size", "connections", "throughput"] }]
    [axes]
    size = ["64k", "1k"]
    connections = [1, 8, 64]
    [repeat]
    times = 2
"#;

fn report(arguments: &[&str]) -> Finished {
    Program::new(["report"].iter().chain(arguments)).finish()
}

/// The run as one of a study.
fn run_of(size: &str, connections: &str, place: u32, repeat: u32) -> Value {
    let mut run = RUN.clone();
    let axes = json!([
        { "name": "size", "value": size },
        { "name": "connections", "value": connections },
    ]);
    run["study"] = json!({
        "study": "Sizes",
        "point": { "axes": axes, "settings": axes },
        "place": place,
        "repeat": repeat,
        "order": 2 * place + repeat,
    });
    let bits = run["throughput"]["bits_per_second"].as_f64().unwrap();
    run["throughput"]["bits_per_second"] = (bits * f64::from(100 + repeat) / 100.0).into();
    run
}

fn keep(directory: &Path, run: &Value) {
    fs::create_dir_all(directory).unwrap();
    fs::write(directory.join("run.json"), run.to_string()).unwrap();
    fs::write(directory.join("hosts.json"), "{}").unwrap();
}

/// A study of which the runs with 64 connections are not made yet, beside one that is being written.
fn study() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("study.toml"), STUDY).unwrap();
    let runs = directory.path().join("runs");
    for (place, (size, connections)) in
        [(1, ("64k", "1")), (2, ("64k", "8")), (4, ("1k", "1")), (5, ("1k", "8"))]
    {
        for repeat in 1..=2 {
            let run = run_of(size, connections, place, repeat);
            keep(&runs.join(format!("{place:04}-{repeat:02}")), &run);
        }
    }
    fs::create_dir(runs.join(".0003-01.12.tmp")).unwrap();
    directory
}

fn path(directory: &TempDir) -> &str {
    directory.path().to_str().unwrap()
}

#[test]
fn a_study_has_the_tables_that_it_names() {
    let study = study();
    let finished = report(&[path(&study)]);
    assert_eq!((finished.code, finished.stderr.as_str()), (0, ""), "{finished}");
    let text = &finished.stdout;
    for title in ["write size = 64K", "write size = 1K", "#conn", "\nmine\n"] {
        assert!(text.contains(title), "no {title:?} in\n{text}");
    }
    assert!(text.contains("8 runs of 4 points."), "{text}");
    assert!(text.contains("2 points have no run yet: size=64k connections=64"), "{text}");
    // The harness asks for as many columns.
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    // Each of eight runs has its place in one row of two.
    let rows = text.lines().filter(|line| line.contains("b/s \u{b1}")).count();
    assert_eq!(rows, 8, "{text}");
    let one = report(&[path(&study), "--table", "mine"]).stdout;
    assert!(!one.contains("write size") && one.contains("\nmine\n"), "{one}");
}

#[test]
fn the_same_in_every_format() {
    let study = study();
    let of = |format| {
        let finished = report(&[path(&study), "--format", format]);
        assert_eq!(finished.code, 0, "{finished}");
        finished.stdout
    };
    let document: Value = serde_json::from_str(&of("json")).unwrap();
    let schema = include_str!("../../../../docs/schema/wirecost.report-1.json");
    let validator = jsonschema::validator_for(&serde_json::from_str(schema).unwrap()).unwrap();
    assert!(validator.is_valid(&document), "{document:#}");
    let rows = document.pointer("/sections/1/blocks/0/table/rows").unwrap();
    assert_eq!(rows.as_array().unwrap().len(), 4);
    assert_eq!(rows[0][0]["set"]["number"], 65536.0);
    let bits = RUN["throughput"]["bits_per_second"].as_f64().unwrap();
    let mean = rows[0][2]["number"]["value"].as_f64().unwrap();
    assert!((mean / bits - 1.015).abs() < 1e-9);
    // Two tables of the first name, and one of the second; a finding for each axis at least.
    let csv = of("csv");
    assert!(csv.starts_with("name,section,table,size,host,#conn,Wnd,"), "{csv}");
    let (findings, rows): (Vec<&str>, Vec<&str>) =
        csv.lines().partition(|line| line.starts_with("findings,"));
    assert!(rows.len() == 1 + 4 + 4 && findings.len() >= 2, "{csv}");
    assert!(of("markdown").contains("| size | connections | throughput |"));
}

#[test]
fn a_run_is_shown_as_when_it_was_made_and_several_side_by_side() {
    let directory = tempfile::tempdir().unwrap();
    let (one, two) = (directory.path().join("one"), directory.path().join("two.json"));
    keep(&one, &RUN);
    fs::write(&two, RUN.to_string()).unwrap();
    let (one, two) = (one.to_str().unwrap(), two.to_str().unwrap());
    let alone = report(&[one]);
    assert!(alone.stdout.starts_with("@stream: "), "{alone}");
    assert!(alone.stdout.contains("\n  epoll, window of "), "{alone}");
    assert_eq!(report(&[two]).stdout, alone.stdout);
    let details = report(&[one, "--details"]);
    assert!(details.stdout.starts_with("@stream: epoll, window of "), "{details}");
    let both = report(&[one, two, "--format", "csv"]);
    assert_eq!(both.stdout.lines().count(), 3, "{both}");
    assert!(both.stdout.contains(one) && both.stdout.contains(two), "{both}");
}

#[test]
fn a_file_is_written_whole_or_not_at_all() {
    let study = study();
    let file = study.path().join("report.md");
    let arguments = ["--format", "markdown", "--out", file.to_str().unwrap()];
    let finished = report(&[&[path(&study)], &arguments[..]].concat());
    assert_eq!((finished.code, finished.stdout.as_str()), (0, ""), "{finished}");
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.starts_with("# Sizes\n"), "{text}");
    fs::write(study.path().join("runs/0005-02/run.json"), "{\"schema\": ").unwrap();
    let finished = report(&[&[path(&study)], &arguments[..]].concat());
    assert_eq!(finished.code, 2, "{finished}");
    assert_eq!(fs::read_to_string(&file).unwrap(), text, "what was there is there");
}

/// One clear message, and nothing on the standard output.
#[track_caller]
fn refused(arguments: &[&str], words: &[&str]) {
    let finished = report(arguments);
    assert_eq!((finished.code, finished.stdout.as_str()), (2, ""), "{finished}");
    for word in words {
        assert!(finished.stderr.contains(word), "no {word:?}\n{finished}");
    }
    let messages = finished.stderr.lines().filter(|line| line.starts_with("wirecost: "));
    assert_eq!(messages.count(), 1, "{finished}");
}

#[test]
fn what_cannot_be_reported_on_is_refused() {
    let study = study();
    let at = |name: &str| study.path().join(name).to_str().unwrap().to_owned();
    refused(&[&at("runs")], &["is not a record", "run.json"]);
    refused(&[&at("nowhere")], &["nowhere", "does not exist"]);
    refused(&[&at("study.toml/x")], &["cannot read"]);
    refused(&[path(&study), "--table", "tcp-transmitt"], &["did you mean tcp-transmit?"]);
    refused(&[path(&study), "--out", &at("none/x")], &["cannot write", "none/x"]);
    fs::write(at("new.json"), RUN.to_string().replace("wirecost.run/1", "wirecost.run/2")).unwrap();
    refused(&[&at("new.json")], &["newer wirecost", "wirecost.run/2", "wirecost.run/1"]);
    fs::write(at("other.json"), RUN.to_string().replace("wirecost.run/1", "a/1")).unwrap();
    refused(&[&at("other.json")], &["other.json", "a/1"]);
    fs::write(at("cut.json"), &RUN.to_string().as_bytes()[..5000]).unwrap();
    refused(&[&at("cut.json")], &["cut.json", "truncated at line 1"]);
    refused(&[&at("runs/0001-01/hosts.json")], &["hosts.json"]);
    fs::write(at("study.toml"), STUDY.replace("\"throughput\"", "\"througput\"")).unwrap();
    refused(&[path(&study)], &["there is no column througput", "did you mean throughput?"]);
    fs::write(at("study.toml"), STUDY.replace("\"tcp-transmit\"", "\"lsoo\"")).unwrap();
    refused(&[path(&study)], &["there is no table lsoo"]);
    fs::write(at("study.toml"), STUDY.replace("title =", "titel =")).unwrap();
    refused(&[path(&study)], &["study.toml", "did you mean title?"]);
}

#[test]
fn where_json_was_asked_for_there_is_json() {
    let finished = report(&["nowhere", "--format", "json"]);
    assert_eq!(finished.code, 2, "{finished}");
    let document: Value = serde_json::from_str(&finished.stdout).unwrap();
    assert_eq!(document["status"], "usage");
    assert!(document["error"].as_str().unwrap().contains("nowhere"));
}
