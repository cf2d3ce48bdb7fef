//! The document of a run and its published schema, docs/schema/wirecost.run-1.json, say the same.

use std::collections::BTreeSet;

use serde_json::Value;
use wirecost_model::comparison::{self, Comparison};
use wirecost_model::cost::{self, CostModel};
use wirecost_model::document::{self, Document};
use wirecost_model::observe::{self, ObserveDocument};
use wirecost_model::run::{Run, SCHEMA, schema_of};
use wirecost_model::status::Status;
use wirecost_report::json::{self, Target};

use crate::fixtures;

fn schema() -> Value {
    let text = include_str!("../../../../docs/schema/wirecost.run-1.json");
    serde_json::from_str(text).unwrap_or_default()
}

fn document(run: &Run) -> Value {
    let mut text = Vec::new();
    let written = json::write(run, &Target::Stream, &mut text);
    assert!(written.is_ok());
    serde_json::from_slice(&text).unwrap_or_default()
}

/// Every part filled: what one run has not, another has.
fn populated() -> Value {
    let mut run = fixtures::tcp_stream();
    run.datagrams = fixtures::udp_loss().datagrams;
    document(&run)
}

#[test]
fn documents_are_valid() {
    let validator = jsonschema::validator_for(&schema()).unwrap();
    let mut runs = vec![
        fixtures::tcp_stream(),
        fixtures::loopback(),
        fixtures::udp_loss(),
        fixtures::failed(),
        fixtures::invalid(),
        Run::empty("@stream", "epoll", "0.1.0", 0),
    ];
    for status in Status::ALL {
        let mut run = Run::empty("@rr", "threads", "0.1.0", 0);
        run.status = status;
        runs.push(run);
    }
    for document in runs.iter().map(document).chain([populated()]) {
        let errors: Vec<String> = validator
            .iter_errors(&document)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(errors.is_empty(), "{errors:#?}");
    }
}

#[test]
fn a_key_that_is_absent_or_of_another_type_is_not_valid() {
    let validator = jsonschema::validator_for(&schema()).unwrap();
    for path in ["/status", "/window/seconds", "/hosts/0/cpu/usr", "/tcp/rtt_us"] {
        let (parent, key) = path.rsplit_once('/').unwrap();
        let mut document = populated();
        let object = document.pointer_mut(parent).unwrap().as_object_mut().unwrap();
        object.remove(key);
        assert!(!validator.is_valid(&document), "{path} removed");
        let mut document = populated();
        *document.pointer_mut(path).unwrap() = Value::from("text");
        assert!(!validator.is_valid(&document), "{path} is text");
    }
    let mut document = populated();
    document["schema"] = Value::from("wirecost.run/2");
    assert!(!validator.is_valid(&document));
    assert_eq!(populated()["schema"], Value::from(SCHEMA));
}

/// Every part of a document that is published is written somewhere: by its type.
#[test]
fn the_published_schema_is_that_of_the_types() {
    for (file, schema) in [
        ("wirecost.run-1", schema_of::<Run>(SCHEMA)),
        ("wirecost.observe-1", schema_of::<ObserveDocument>(observe::SCHEMA)),
        ("wirecost.compare-1", schema_of::<Comparison>(comparison::SCHEMA)),
        ("wirecost.model-1", schema_of::<CostModel>(cost::SCHEMA)),
        ("wirecost.report-1", schema_of::<Document>(document::SCHEMA)),
    ] {
        let path = format!("{}/../../docs/schema/{file}.json", env!("CARGO_MANIFEST_DIR"));
        let text = serde_json::to_string_pretty(&schema).unwrap() + "\n";
        if std::env::var_os("UPDATE_SCHEMA").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        let published = std::fs::read_to_string(&path).unwrap();
        assert!(published == text, "{file} is not that of the types: run with UPDATE_SCHEMA=1");
    }
}

/// The rule of the document: a key is never absent.
#[test]
fn every_key_is_required() {
    let root = schema();
    let definitions = root["$defs"].as_object().unwrap().values();
    for object in definitions.chain([&root]) {
        let names = |value: &Value| -> BTreeSet<String> {
            match value {
                Value::Object(object) => object.keys().cloned().collect(),
                Value::Array(list) => {
                    list.iter().filter_map(|name| Some(name.as_str()?.to_owned())).collect()
                }
                _ => BTreeSet::new(),
            }
        };
        assert_eq!(names(&object["properties"]), names(&object["required"]));
    }
}
