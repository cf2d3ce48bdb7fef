//! Samples open as they are in what people open them with, and docs/records.md says how, and what is in
//! them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Map, Value, json};
use wirecost_linux::privilege::skip;
use wirecost_model::observe::DeviceVector;
use wirecost_model::run::Run;
use wirecost_model::sample::{Sample, SampleName};
use wirecost_store::schema::COLUMNS;
use wirecost_store::study::Writer;
use wirecost_store::{SAMPLES, samples};

use crate::recorded::{hosts, run};

fn documentation() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/records.md");
    std::fs::read_to_string(path).unwrap()
}

/// A Python with the libraries: what `scripts/data-frames` prints, or the one that is there.
fn python(test: &str) -> Option<PathBuf> {
    let python = std::env::var_os("WIRECOST_PYTHON").unwrap_or("python3".into());
    let imports =
        Command::new(&python).args(["-c", "import pandas, pyarrow, polars, duckdb"]).output();
    if !imports.is_ok_and(|output| output.status.success()) {
        skip(
            test,
            "needs pandas, pyarrow, polars and duckdb: WIRECOST_PYTHON=$(scripts/data-frames)",
        );
        return None;
    }
    Some(python.into())
}

fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A run with rows of every kind.
fn full_run() -> Run {
    let mut run = run();
    let vector = DeviceVector {
        name: "virtio0-input.0".to_owned(),
        interrupts: 7,
        rx_packets: Some(4711),
        ..DeviceVector::default()
    };
    let observe = run.observe.as_mut().unwrap();
    observe.hosts[0].interrupts.as_mut().unwrap().devices[0].vectors = vec![vector];
    for host in &mut observe.hosts {
        host.segments.as_mut().unwrap().slices = None;
    }
    run
}

fn row(sample: &Sample) -> Map<String, Value> {
    let Sample { start, seconds, host, kind, name, metric, unit, value } = sample;
    let row = json!({
        "start": start, "seconds": seconds, "host": host, "kind": kind, "name": name,
        "metric": metric, "unit": unit, "value": value,
    });
    row.as_object().cloned().unwrap()
}

/// Texts are the same, and numbers but for how they are written as text.
fn same(one: &Value, other: &Value) -> bool {
    match (one.as_f64(), other.as_f64()) {
        (Some(one), Some(other)) => (one - other).abs() <= 1e-12 * other.abs(),
        _ => one == other,
    }
}

#[test]
fn every_library_reads_every_row() {
    let Some(python) = python("every_library_reads_every_row") else { return };
    let parent = tempfile::tempdir().unwrap();
    let writer = Writer::create(&parent.path().join("study"), "", []).unwrap();
    let empty = Run::empty("@stream", "epoll", "0.1.0", 0);
    for (id, run) in [("0001-01", full_run()), ("0001-02", empty)] {
        writer.save(id, &run, &hosts()).unwrap();
        let expected: Vec<_> = samples::of_run(&run).iter().map(row).collect();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/store/data_frames.py");
        let file = writer.study().record(id).join(SAMPLES);
        let text = output(Command::new(&python).arg(script).arg(file));
        let read: BTreeMap<String, Vec<Map<String, Value>>> = serde_json::from_str(&text).unwrap();
        assert_eq!(read.len(), 3);
        for (library, rows) in read {
            assert_eq!(rows.len(), expected.len(), "{library}");
            for (row, expected) in rows.iter().zip(&expected) {
                let equal = row.keys().eq(expected.keys())
                    && row.values().zip(expected.values()).all(|(one, other)| same(one, other));
                assert!(equal, "{library}: {row:?}, not {expected:?}");
            }
        }
    }
}

#[test]
fn the_examples_of_the_documentation_print_the_mean_throughput() {
    let test = "the_examples_of_the_documentation_print_the_mean_throughput";
    let Some(python) = python(test) else { return };
    let directory = tempfile::tempdir().unwrap();
    let writer = Writer::create(directory.path(), "", []).unwrap();
    writer.save("0001-01", &full_run(), &hosts()).unwrap();
    let rates: Vec<f64> = run().intervals.iter().map(|i| i.bits_per_second).collect();
    let mean = rates.iter().sum::<f64>() / rates.len() as f64;
    let documentation = documentation();
    let examples = documentation.split("```python\n").skip(1);
    let mut libraries = Vec::new();
    for example in examples.map(|rest| rest.split("```").next().unwrap()) {
        assert_eq!(example.lines().count(), 3, "{example}");
        libraries.push(example.lines().next().unwrap());
        let command = &mut Command::new(&python);
        let printed = output(command.args(["-c", example]).current_dir(directory.path()));
        let printed: f64 = printed.trim().parse().unwrap();
        assert!((printed / mean - 1.0).abs() < 1e-9, "{example}: {printed}, not {mean}");
    }
    assert_eq!(libraries, ["import pandas", "import polars", "import duckdb"]);
}

#[test]
fn the_documentation_names_every_column_and_figure() {
    let documentation = documentation();
    let rows: Vec<Vec<&str>> = documentation
        .lines()
        .filter(|line| line.starts_with("| `"))
        .map(|line| {
            line.trim_matches('|').split(" | ").map(|c| c.trim().trim_matches('`')).collect()
        })
        .collect();
    // Rows of three cells are columns, of four figures; files have two.
    let columns: Vec<&str> = rows.iter().filter(|row| row.len() == 3).map(|row| row[0]).collect();
    assert_eq!(columns, COLUMNS.map(|column| column.name));
    let figures = rows.iter().filter(|row| row.len() == 4).map(|row| (row[0], row[1], row[2]));
    let names = samples::names().into_iter();
    let names: Vec<_> =
        names.map(|SampleName { kind, metric, unit }| (kind, metric, unit)).collect();
    assert_eq!(figures.collect::<Vec<_>>(), names);
}

#[test]
fn the_samples_of_a_run_are_what_it_holds_over_time() {
    let run = full_run();
    let samples = samples::of_run(&run);
    let of = |kind: &str, metric: &str| -> Vec<&Sample> {
        samples.iter().filter(|s| s.kind == kind && s.metric == metric).collect()
    };
    let throughput = of("run", "throughput");
    assert_eq!(throughput.len(), run.intervals.len());
    for (sample, interval) in throughput.iter().zip(&run.intervals) {
        assert_eq!((sample.start, sample.seconds), (interval.start, interval.seconds));
        assert_eq!((sample.value, &*sample.unit), (interval.bits_per_second, "b/s"));
        assert_eq!((&sample.host, &sample.name), (&None, &None));
    }
    let observed = &run.observe.as_ref().unwrap().hosts[0];
    let flow = &observed.tcp.as_ref().unwrap().flows[0];
    let name = format!("{} > {}", flow.local, flow.remote);
    let rtt: Vec<_> =
        of("flow", "rtt").into_iter().filter(|s| s.name.as_ref() == Some(&name)).collect();
    let expected: Vec<_> = flow.samples.iter().map(|s| (s.seconds, f64::from(s.rtt_us))).collect();
    assert_eq!(rtt.iter().map(|s| (s.start, s.value)).collect::<Vec<_>>(), expected);
    assert_eq!((rtt[0].seconds, rtt[0].host.as_deref()), (0.0, Some(&*observed.host)));
    let cpus: usize = run.hosts.iter().filter_map(|h| Some(h.cpu.as_ref()?.per_cpu.len())).sum();
    assert_eq!(of("cpu", "idle").len(), cpus);
    let vector = of("vector", "rx_packets");
    assert_eq!((vector[0].value, vector.len()), (4711.0, 1));
    assert!(of("vector", "tx_packets").is_empty(), "nobody counted them");
    // Intervals of a device follow one another.
    let sent = of("device", "sent_packets");
    let next = &sent[1];
    assert_eq!((sent[0].start, next.start), (0.0, sent[0].seconds));
}

#[test]
fn a_window_observed_in_slices_has_only_means() {
    let mut run = full_run();
    for host in &mut run.observe.as_mut().unwrap().hosts {
        let segments = host.segments.as_mut().unwrap();
        segments.slices = Some(wirecost_model::observe::Slices::default());
        let interval = &mut segments.devices[0].sent.intervals[0];
        (interval.packets, interval.average_bytes) = (0, None);
    }
    let samples = samples::of_run(&run);
    let device: Vec<_> = samples.iter().filter(|sample| sample.kind == "device").collect();
    assert!(!device.is_empty());
    assert!(device.iter().all(|sample| sample.metric.ends_with("_average_bytes")));
    // An interval that nobody watched has no row, and not one of 0.
    assert!(device.iter().all(|s| s.value > 0.0), "{device:?}");
}
