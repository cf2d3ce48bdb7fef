//! What older versions wrote is read forever.

use std::path::Path;

use serde_json::Value;
use wirecost_model::observe::ObserveDocument;
use wirecost_model::run::Run;
use wirecost_store::study::Study;
use wirecost_store::{Document, HOSTS, OBSERVATION, RUN, Record, document, read};

use crate::recorded::{before_studies, json};

/// Keys that have got a better name, with that name. Both are written.
const RENAMED: [(&str, &str); 4] = [
    ("asked", "requested"),
    ("granted", "effective"),
    ("drained", "transmit_contexts"),
    ("drained_acks", "transmit_contexts_acks"),
];

/// Nothing that was written is lost, and what was not is null, or has another name too.
fn keeps(read: &Value, written: &Value) {
    match (read, written) {
        (Value::Object(read), Value::Object(written)) => {
            assert!(written.keys().all(|key| read.contains_key(key)));
            for (key, value) in read {
                let former = RENAMED.iter().find(|(_, new)| new == key);
                let former = former.and_then(|(former, _)| written.get(*former));
                match written.get(key).or(former) {
                    Some(written) => keeps(value, written),
                    None => assert!(value.is_null(), "{key}"),
                }
            }
        }
        (Value::Array(read), Value::Array(written)) => {
            assert_eq!(read.len(), written.len());
            read.iter().zip(written).for_each(|(read, written)| keeps(read, written));
        }
        _ => assert_eq!(read, written),
    }
}

#[test]
fn a_run_from_before_there_were_studies() {
    let directory = before_studies("run");
    let text: Value = json(&directory.join(RUN));
    assert!(text.get("study").is_none());
    let record = read(&directory).unwrap();
    assert_eq!(record.run.study, None);
    keeps(&serde_json::to_value(&record.run).unwrap(), &text);
    // Its stacks are in the document.
    let hosts = record.run.observe.unwrap().hosts;
    assert!(!hosts[0].functions.as_ref().unwrap().stacks.stacks.is_empty());
    let environment = &record.hosts["h1"];
    assert!(environment.kernel.release.is_some());
    let text: Value = json(&directory.join(HOSTS));
    keeps(&serde_json::to_value(record.hosts).unwrap(), &text);
}

#[test]
fn an_observation_from_before_there_were_studies() {
    let directory = before_studies("observation");
    let watched: ObserveDocument = json(&directory.join(OBSERVATION));
    assert!(watched.seconds.is_some());
    assert_eq!(document(&directory).unwrap(), Document::Observe(watched));
}

/// Two studies and a run that commit a8e7742 wrote. What is made of them is tested with the program
/// (`cli/tests/texts/old_records.rs`).
#[test]
fn records_from_before_traffic_was_three_crates() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/a8e7742");
    for (name, runs) in [("a", 8), ("b", 4)] {
        let study = Study::open(&fixtures.join(name)).unwrap();
        assert!(study.definition().unwrap().contains("[axes]"));
        let ids = study.ids().unwrap();
        assert_eq!(ids.len(), runs);
        for id in ids {
            let record = study.read(&id).unwrap();
            assert_eq!(record.run.study.as_ref().unwrap().point.axes.len(), 2);
            is_as_written(&study.record(&id), &record);
        }
    }
    let directory = fixtures.join("run");
    let record = read(&directory).unwrap();
    assert!(record.run.observe.is_some() && !record.run.intervals.is_empty());
    is_as_written(&directory, &record);
}

fn is_as_written(directory: &Path, record: &Record) {
    let text: Value = json(&directory.join(RUN));
    keeps(&serde_json::to_value(&record.run).unwrap(), &text);
    let text: Value = json(&directory.join(HOSTS));
    keeps(&serde_json::to_value(&record.hosts).unwrap(), &text);
}

/// The reader of a record is that of a file written by `--json`, too.
#[test]
fn a_document_alone() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("any.json");
    std::fs::copy(before_studies("run").join(RUN), &file).unwrap();
    let expected: Run = json(&file);
    assert_eq!(wirecost_store::run(&file).unwrap(), expected);
    assert_eq!(document(&file).unwrap(), Document::Run(expected));
}
