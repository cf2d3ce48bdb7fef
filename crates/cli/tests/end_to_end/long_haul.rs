//! Long runs: outages and dips are found, and neither memory nor records grow by more than a little for each interval.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use wirecost_linux::privilege::skip_without_namespaces;

use crate::attempts::{Machine, undisturbed};
use crate::dead_time::{Stop, link_down_for, moves};
use crate::program::{Finished, Program};

/// Bytes of all files in a directory.
fn size(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    entries.map(|entry| entry.metadata().unwrap().len()).sum()
}

/// Takes the link of a lab's host down for a time in the window of a run, which reports dead time.
fn run_with_outage(seconds: u32, outage: Duration) -> (Finished, Stop) {
    let mut running = Program::new(["run", "@stream", "--lab", "--dead-time", "report"])
        .args(["--duration", &format!("{seconds}s"), "--interval", "100ms", "--observe", "none"])
        .args(["--format", "uperf", "--json", "run.json", "--out", "kept"])
        .start();
    // What comes before is compared with the outage.
    for _ in 0..20 {
        moves(&mut running);
    }
    let stop = link_down_for(&running, outage).until_moved(&mut running);
    (running.wait(), stop)
}

/// The only outage is that of the link. Returns how long the run says it was.
#[track_caller]
fn is_found(finished: &Finished, seconds: f64, stop: Stop) -> f64 {
    let document = finished.document();
    assert_eq!((finished.code, document.text("/status")), (0, "ok"), "{finished}");
    assert_eq!(document.number("/stability/outage_count"), 1.0, "{finished}");
    let [start, length] =
        ["start", "seconds"].map(|what| document.number(&format!("/stability/outages/0/{what}")));
    let (starts, lengths) = (stop.told_start(finished), stop.told_within(finished, seconds));
    // False failures: 1e-5, measured: as dead time of hosts that are stopped.
    assert!(lengths.contains(&length), "{length} s of {lengths:?}: {stop:?}");
    // False failures: 1e-5, measured: as dead time of hosts that are stopped.
    assert!(starts.contains(&start), "at {start} s of {starts:?}: {stop:?}");
    length
}

mod waiting {
    use super::*;

    #[test]
    fn an_outage_is_found_and_listed() {
        if skip_without_namespaces("an_outage_is_found_and_listed") {
            return;
        }
        let run = || {
            let machine = Machine::now();
            (run_with_outage(12, Duration::from_secs(2)), machine.disturbances())
        };
        undisturbed(
            run,
            |((finished, _), foreign)| {
                [finished.document().disturbances_of_outage(), foreign.clone()].concat()
            },
            |((finished, stop), _)| is_listed(finished, *stop),
        );
    }

    fn is_listed(finished: &Finished, stop: Stop) {
        is_found(finished, 12.0, stop);
        let document = finished.document();
        // A host that gets little CPU has too few operations in an interval to tell a dip, and says so.
        let dips = document.at("/stability/dip_count").as_f64();
        let reason = document.text("/stability/dip_reason");
        assert!(dips.map_or(reason.contains("operations"), |dips| dips >= 1.0), "{finished}");
        assert!(document.number("/window/started_unix_ms") > 1.7e12);
        for host in [0, 1] {
            let memory = |edge: &str| document.number(&format!("/hosts/{host}/memory/{edge}"));
            assert!(memory("start") > 1e6 && memory("end") >= memory("start") / 2.0);
        }
        let kept = finished.path("kept");
        let report =
            Program::new(["report", kept.to_str().unwrap(), "--table", "long-haul"]).finish();
        let flat = report.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        // False failures: 1e-6, computed: an edge would have to be 50 ms late, which the run tells and is repeated for.
        assert!(flat.contains("1 outage in 12.0 s: no byte moved for "), "{report}");
        assert!(flat.contains("time (UTC)") && flat.contains("outage"), "{report}");
    }
}

mod measured {
    use super::*;

    /// What a run of hours takes follows from its number of intervals; those here are short.
    #[test]
    fn memory_and_records_grow_by_a_constant_for_each_interval() {
        let run = |seconds: u32| {
            Program::new(["run", "@stream", "--interval", "10ms", "--observe", "none"])
                .args(["--duration", &format!("{seconds}s"), "--ramp", "1s", "--quiet"])
                .args(["--out", "kept"])
                .measure_and(|finished, document| {
                    let intervals = document.list("/intervals").len();
                    assert_eq!(intervals, 100 * seconds as usize, "{finished}");
                    let growth = |host: u32| {
                        let memory =
                            |edge| document.number(&format!("/hosts/{host}/memory/{edge}"));
                        memory("end") - memory("start")
                    };
                    (size(&finished.path("kept")), growth(0).max(growth(1)))
                })
        };
        let sizes = [2, 4, 6].map(run);
        let [short, middle, long] = sizes;
        // 200 intervals more each time. Streams have a row in the record for each second.
        let (first, second) =
            ((middle.0 - short.0) as f64 / 200.0, (long.0 - middle.0) as f64 / 200.0);
        // False failures: 1e-6, computed: 200 intervals have 30,000 bytes; a record would have nine more, or 30 warnings.
        assert!((0.7..1.4).contains(&(second / first)), "{first} and {second} bytes: {sizes:?}");
        assert!(second < 1_000.0, "{second} bytes for each interval");
        // False failures: 1e-5, computed: 600 intervals hold 0.2 MB, and the kernel's sums lack 0.5 MB, of 2.4 MB.
        assert!(long.1 < 600.0 * 4096.0, "{} bytes of memory in 600 intervals", long.1);
    }

    #[test]
    fn a_quick_long_haul_says_what_it_looked_for() {
        if skip_without_namespaces("a_quick_long_haul_says_what_it_looked_for") {
            return;
        }
        let study = Program::new(["study", "run", "@long-haul", "--quick", "--quiet"]).args([
            "--set",
            "duration=5s",
            "--out",
            "kept",
        ]);
        study.finish_and(|finished| {
            assert_eq!(finished.code, 0, "{finished}");
            let kept = finished.path("kept");
            let report =
                Program::new(["report", kept.to_str().unwrap(), "--format", "json"]).finish();
            let document: Value = serde_json::from_str(&report.stdout).unwrap();
            let text = document.to_string();
            // The window is a little longer or shorter.
            let says = |seconds: &str| text.contains(&format!("No outage in {seconds}"));
            // False failures: 1e-6, computed: an edge would have to be 90 ms late, which the run tells and is repeated for.
            assert!(says("4.9") || says("5.0"), "{text}");
            for wanted in ["rift", "throughput over time"] {
                assert!(text.contains(wanted), "{wanted}: {text}");
            }
        });
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
        let (finished, stop) = run_with_outage(100, Duration::from_secs(40));
        // TCP sends again 25.6 and 51.2 s after the loss.
        assert!(is_found(&finished, 100.0, stop) > 39.0, "{finished}");
    }
}
