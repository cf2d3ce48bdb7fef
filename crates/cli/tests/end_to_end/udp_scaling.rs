//! The built-in study of UDP by pairs of CPUs, short: what its report has. How fast it is depends on the machine.

use std::fs;

use serde_json::Value;
use wirecost_linux::privilege::skip_without_namespaces;

use crate::program::{Finished, Program};

/// Receive only and echo, each with a socket per worker, a shared socket, and all packets by one queue.
const GROUPS: usize = 6;

fn blocks<'a>(section: &'a Value, kind: &str) -> Vec<&'a Value> {
    let blocks = section["blocks"].as_array().unwrap().iter();
    blocks.filter_map(|block| block.get(kind)).collect()
}

/// The cells of a row by the titles of their columns; `None` for those without a number.
fn cell(table: &Value, row: usize, title: &str) -> Option<f64> {
    let columns = table["columns"].as_array().unwrap();
    let at = columns.iter().position(|column| column["title"] == title);
    let at = at.unwrap_or_else(|| panic!("no column {title}: {table}"));
    table["rows"][row][at]["number"]["value"].as_f64()
}

#[test]
fn the_study_of_pairs_has_the_counts_of_each_stage_and_a_sentence_or_a_reason_for_each_question() {
    if skip_without_namespaces("the_study_of_pairs") {
        return;
    }
    let arguments = ["study", "run", "@udp-scaling", "--quick", "--out", "kept", "--quiet"];
    Program::new(arguments).finish_and(has_counts_and_sentences);
}

fn has_counts_and_sentences(finished: &Finished) {
    assert_eq!(finished.code, 0, "{finished}");
    let kept = finished.path("kept");
    let report = Program::new(["report", kept.to_str().unwrap(), "--format", "json"]).finish();
    assert_eq!(report.code, 0, "{report}");
    let document: Value = serde_json::from_str(&report.stdout).unwrap();
    let sections = document["sections"].as_array().unwrap();
    let section = sections.iter().find(|section| section["name"] == "udp-scaling").unwrap();

    // Generated; received; seen by the server; responses; received back, by its device and by the client.
    let tables = blocks(section, "table");
    assert_eq!(tables.len(), GROUPS, "{report}");
    for (place, table) in tables.iter().enumerate() {
        let is_echo = place >= GROUPS / 2;
        assert_eq!(table["rows"].as_array().unwrap().len(), 2, "{table}");
        for row in 0..2 {
            for title in ["generated", "received", "seen by server"] {
                assert!(
                    cell(table, row, title).is_some_and(|rate| rate >= 0.0),
                    "{title}: {table}"
                );
            }
            for title in ["responses", "sent by device", "read by client"] {
                assert_eq!(cell(table, row, title).is_some(), is_echo, "{title}: {table}");
            }
        }
    }

    let findings = blocks(section, "finding");
    let of_kind = |kind: &str| -> Vec<&str> {
        let of_kind = findings.iter().filter(|finding| finding["kind"] == kind);
        of_kind.map(|finding| finding["sentence"].as_str().unwrap()).collect()
    };
    let notes = blocks(section, "note");
    let reason = |question: &str| {
        let begin = format!("no conclusion about {question}: ");
        notes.iter().any(|note| note.as_str().unwrap().starts_with(&begin))
    };
    // A server that got no CPU at all read nothing, of which nothing can be said.
    let scaling = of_kind("scaling");
    assert!(scaling.len() == GROUPS || reason("how far it scales"), "{report}");
    assert!(scaling.iter().all(|sentence| sentence.contains(" with 1 pair and ")), "{report}");
    let answering = of_kind("answering");
    assert!(answering.len() == GROUPS / 2 || reason("what answering costs"), "{report}");
    for (kind, question) in [
        ("lock-waits", "which locks were waited for"),
        ("cpu-time", "softirqs against workers"),
        ("copying", "what copying costs"),
        ("scheduling", "wake-ups and preemption"),
    ] {
        let sentences = of_kind(kind);
        assert!(sentences.len() == 2 || reason(question), "{kind}: {report}");
    }
    // No device of a lab has paused: it would have been told to.
    assert!(of_kind("flow-control").is_empty(), "{report}");

    each_run_counts_by_queue(&kept);
}

/// As many queues as pairs, and where the flows share one, only that one has datagrams.
fn each_run_counts_by_queue(kept: &std::path::Path) {
    let runs = fs::read_dir(kept.join("runs")).unwrap().map(|entry| entry.unwrap().path());
    let mut of_two_queues = 0;
    for path in runs {
        let run: Value = serde_json::from_slice(&fs::read(path.join("run.json")).unwrap()).unwrap();
        let axis = |name: &str| -> String {
            let axes = run["study"]["point"]["axes"].as_array().unwrap();
            let found = axes.iter().find(|axis| axis["name"] == name).unwrap();
            found["value"].as_str().unwrap().to_owned()
        };
        let pairs: usize = axis("pairs").parse().unwrap();
        let queues = run["frames"]["queues"].as_array().unwrap();
        assert_eq!(queues.len(), 2 * pairs, "{queues:?}");
        let received: Vec<u64> = queues
            .iter()
            .filter(|queue| queue["host"] == "h2")
            .map(|queue| queue["received"].as_u64().unwrap())
            .collect();
        let (all, most) = (received.iter().sum::<u64>(), received.iter().max().unwrap());
        if pairs == 2 && axis("server") == "one queue" {
            of_two_queues += 1;
            // The rest are packets of the kernel, such as router solicitations.
            assert!(all - most <= 16, "{received:?}");
        }
    }
    assert_eq!(of_two_queues, 2);
}
