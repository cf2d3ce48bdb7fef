//! Long runs: outages and dips are found, and neither memory nor records grow by more than a little for each interval.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use wirecost_linux::privilege::skip_without_namespaces;

use crate::program::{Finished, Program, namespaces_of};

/// Bytes of all files in a directory.
fn size(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    entries.map(|entry| entry.metadata().unwrap().len()).sum()
}

#[test]
fn an_outage_is_found_and_listed() {
    if skip_without_namespaces("an_outage_is_found_and_listed") {
        return;
    }
    let finished = run_with_outage("12s", Duration::from_secs(2));
    let document = finished.document();
    assert_eq!((finished.code, document.text("/status")), (0, "ok"), "{finished}");
    assert_eq!(document.number("/stability/outage_count"), 1.0, "{finished}");
    // TCP sends again 0.2, 0.4, 0.8, 1.6 s ... after each loss.
    let length = document.number("/stability/outages/0/seconds");
    assert!((1.7..5.0).contains(&length), "{length}");
    assert!((0.2..8.0).contains(&document.number("/stability/outages/0/start")), "{finished}");
    assert!(document.number("/stability/dip_count") >= 1.0);
    assert!(document.number("/window/started_unix_ms") > 1.7e12);
    for host in [0, 1] {
        let memory = |edge: &str| document.number(&format!("/hosts/{host}/memory/{edge}"));
        assert!(memory("start") > 1e6 && memory("end") >= memory("start") / 2.0);
    }
    let kept = finished.path("kept");
    let report = Program::new(["report", kept.to_str().unwrap(), "--table", "long-haul"]).finish();
    let flat = report.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat.contains("1 outage in 12.0 s: no byte moved for "), "{report}");
    assert!(flat.contains("time (UTC)") && flat.contains("outage"), "{report}");
}

/// Takes the link of a lab's host down for a time in the window of a run, which reports dead time.
fn run_with_outage(duration: &str, outage: Duration) -> Finished {
    let mut running = Program::new(["run", "@stream", "--lab", "--dead-time", "report"])
        .args(["--duration", duration, "--interval", "100ms", "--observe", "none"])
        .args(["--format", "uperf", "--json", "run.json", "--out", "kept"])
        .start();
    // The window begins a second later than the phase.
    for _ in 0..20 {
        running.line(|line| line.contains(" name:Txn2 ") && !line.contains("nr_bytes:0 "));
    }
    let namespaces = namespaces_of(running.pid);
    let set = |state: &str| {
        let of = ["-n", &namespaces[1], "link", "set", "eth0", state];
        assert!(Command::new("ip").args(of).status().expect("the program ip").success());
    };
    set("down");
    std::thread::sleep(outage);
    set("up");
    running.wait()
}

/// What a run of hours takes follows from its number of intervals; those here are short.
#[test]
fn memory_and_records_grow_by_a_constant_for_each_interval() {
    let run = |seconds: u32| {
        let finished = Program::new(["run", "@stream", "--interval", "10ms", "--observe", "none"])
            .args(["--duration", &format!("{seconds}s"), "--ramp", "1s", "--quiet"])
            .args(["--json", "run.json", "--out", "kept"])
            .finish();
        assert_eq!(finished.code, 0, "{finished}");
        let document = finished.document();
        let growth = |host: u32| {
            let memory = |edge: &str| document.number(&format!("/hosts/{host}/memory/{edge}"));
            memory("end") - memory("start")
        };
        (size(&finished.path("kept")), growth(0).max(growth(1)), document.list("/intervals").len())
    };
    let sizes = [2, 4, 6].map(run);
    let [short, middle, long] = sizes;
    assert_eq!([short.2, middle.2, long.2], [200, 400, 600], "{sizes:?}");
    // 200 intervals more each time. Streams have a row in the record for each second.
    let (first, second) = ((middle.0 - short.0) as f64 / 200.0, (long.0 - middle.0) as f64 / 200.0);
    assert!((0.7..1.4).contains(&(second / first)), "{first} and {second} bytes: {sizes:?}");
    assert!(second < 1_000.0, "{second} bytes for each interval");
    assert!(long.1 < 600.0 * 4096.0, "{} bytes of memory in 600 intervals", long.1);
}

#[test]
fn a_quick_long_haul_says_what_it_looked_for() {
    if skip_without_namespaces("a_quick_long_haul_says_what_it_looked_for") {
        return;
    }
    let finished = Program::new(["study", "run", "@long-haul", "--quick", "--quiet"])
        .args(["--set", "duration=5s", "--out", "kept"])
        .finish();
    assert_eq!(finished.code, 0, "{finished}");
    let kept = finished.path("kept");
    let report = Program::new(["report", kept.to_str().unwrap(), "--format", "json"]).finish();
    let document: Value = serde_json::from_str(&report.stdout).unwrap();
    let text = document.to_string();
    for wanted in ["No outage in 5.00 s", "rift", "throughput over time"] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
}

mod long {
    use super::*;

    /// Longer than a controller waits for progress of a run that does not expect outages.
    #[test]
    fn a_run_waits_out_an_outage_of_forty_seconds() {
        if skip_without_namespaces("a_run_waits_out_an_outage_of_forty_seconds") {
            return;
        }
        let finished = run_with_outage("100s", Duration::from_secs(40));
        let document = finished.document();
        assert_eq!((finished.code, document.text("/status")), (0, "ok"), "{finished}");
        let length = document.number("/stability/outages/0/seconds");
        // TCP sends again 25.6 and 51.2 s after the loss.
        assert!((39.0..60.0).contains(&length), "{length}");
    }
}
