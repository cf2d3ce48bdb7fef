//! What older versions wrote is read for ever.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, also in what it calls")]

mod recorded;

use recorded::{before_studies, json};
use wirecost_model::observe::Watched;
use wirecost_model::run::Run;
use wirecost_store::{Document, HOSTS, OBSERVATION, RUN, document, read};

#[test]
fn a_run_from_before_there_were_studies() {
    let directory = before_studies("run");
    let text: serde_json::Value = json(&directory.join(RUN));
    assert!(text.get("study").is_none());
    let record = read(&directory).unwrap();
    assert_eq!(record.run.study, None);
    // Nothing of it is lost.
    let mut again = serde_json::to_value(&record.run).unwrap();
    again.as_object_mut().unwrap().remove("study");
    assert_eq!(again, text);
    // Its stacks are in the document.
    let hosts = record.run.observe.unwrap().hosts;
    assert!(!hosts[0].functions.as_ref().unwrap().stacks.stacks.is_empty());
    let environment = &record.hosts["h1"];
    assert!(environment.kernel.release.is_some());
    let text: serde_json::Value = json(&directory.join(HOSTS));
    assert_eq!(serde_json::to_value(record.hosts).unwrap(), text);
}

#[test]
fn an_observation_from_before_there_were_studies() {
    let directory = before_studies("observation");
    let watched: Watched = json(&directory.join(OBSERVATION));
    assert!(watched.seconds.is_some());
    assert_eq!(document(&directory).unwrap(), Document::Watched(watched));
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
