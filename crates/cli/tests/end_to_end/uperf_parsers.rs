//! What the programs that parse uperf's output find in that of a real run, by their own formulas:
//! k8s-netperf (pkg/drivers/uperf.go), benchmark-wrapper (snafu/benchmarks/uperf/uperf.py) and crucible
//! (uperf-post-process.py). All take each raw line as one second after the line before.

use regex::Regex;
use rustix::process::Signal;

use crate::document::Document;
use crate::interruption::under_way;
use crate::program::{Program, signal_to};

/// A raw line of the main transaction.
#[derive(Debug, Clone, Copy)]
struct Line {
    unix_ms: f64,
    bytes: f64,
    operations: f64,
}

fn lines(output: &str) -> Vec<Line> {
    let pattern = r"timestamp_ms:(.*) name:Txn2 nr_bytes:(.*) nr_ops:(.*)";
    Regex::new(pattern)
        .unwrap()
        .captures_iter(output)
        .map(|found| [1, 2, 3].map(|group| found[group].parse().unwrap()))
        .map(|[unix_ms, bytes, operations]| Line { unix_ms, bytes, operations })
        .collect()
}

/// What k8s-netperf and benchmark-wrapper make of two neighbours: bytes, operations, and microseconds
/// for each operation.
fn differences(lines: &[Line]) -> Vec<[f64; 3]> {
    lines
        .windows(2)
        .map(|pair| (pair[0], pair[1]))
        .map(|(before, line)| (before, line, line.operations - before.operations))
        .filter(|&(_, _, operations)| operations != 0.0)
        .map(|(before, line, operations)| {
            let each = (line.unix_ms - before.unix_ms) / operations * 1000.0;
            [line.bytes - before.bytes, operations, each]
        })
        .collect()
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len() as f64;
    values.sum::<f64>() / count
}

/// What a program finds is what a run states, but for what the run itself tells: bytes that were under way at an edge
/// are of one end only, and the window is a little longer or shorter than asked. Stamps are of the readings, which can be
/// late.
#[track_caller]
pub(crate) fn agree(what: &str, parsed: f64, stated: f64, document: &Document, asked: f64) {
    let [sent, received] = ends(document);
    let seconds = document.number("/window/seconds");
    document.lasts(asked);
    // False failures: 1e-6 (x12), computed: 16 MB of buffers are 5% of less than 320 MB, tenfold that moves.
    assert!((sent / received - 1.0).abs() < 0.05, "{sent} of {received} bytes");
    let apart = (sent / received - 1.0).abs() + (seconds / asked - 1.0).abs();
    let within = 1e-3 + 1.1 * apart + 2.0 * document.skew() / asked;
    // False failures: 1e-6 (x12), computed: edges and stamps are off by no more than the run tells.
    assert!((parsed / stated - 1.0).abs() < within, "{what}: {parsed} is not {stated}");
}

/// Bytes that the master sent in the window, and that its peer received.
pub(crate) fn ends(document: &Document) -> [f64; 2] {
    [("0", "tx_sent"), ("1", "tx_received")]
        .map(|(host, end)| document.number(&format!("/hosts/{host}/bytes/{end}")))
}

/// Three whole seconds, after a ramp that is none.
fn run(profile: &str) -> Program {
    Program::new(["run", profile, "--duration", "3s", "--ramp", "700ms"])
        .args(["--format", "uperf", "--quiet"])
}

/// Behind all numbers, where no program looks for any.
#[test]
fn warnings_follow_the_statistics() {
    run("@rr").measure_and(|finished, document| {
        let (_, after) = finished.stdout.split_once("\nDifference(%)").expect("the statistics");
        let shown: Vec<&str> =
            after.lines().filter_map(|line| line.strip_prefix("** Warning: ")).collect();
        let warnings = document.list("/warnings");
        assert!(!warnings.is_empty(), "{finished}");
        let text =
            |warning: &serde_json::Value, key: &str| warning[key].as_str().unwrap().to_owned();
        let expected: Vec<String> = warnings
            .iter()
            .map(|warning| format!("{}: {}", text(warning, "code"), text(warning, "message")))
            .collect();
        assert_eq!(shown, expected);
        assert_eq!(finished.stdout.matches("** Warning").count(), shown.len(), "{finished}");
    });
}

#[test]
fn a_run_that_does_not_begin_prints_its_error() {
    let finished =
        Program::new(["run", "@rr", "--host", "h=127.0.0.1:1", "--format", "uperf", "--quiet"])
            .finish();
    assert_eq!(finished.code, 3, "{finished}");
    assert!(finished.stdout.starts_with("** Error: h: no agent answers"), "{finished}");
    assert!(finished.stdout.ends_with("\nWARNING: 1 Errors detected during run\n"), "{finished}");
}

#[test]
fn a_run_that_breaks_off_prints_its_error_and_compares_nothing() {
    let running = under_way(&[]);
    signal_to(running.children()[1], Signal::KILL);
    let finished = running.wait();
    assert_eq!(finished.code, 3, "{finished}");
    let errors = finished.stdout.lines().filter(|line| line.starts_with("** Error"));
    assert_eq!(errors.count(), 1, "{finished}");
    assert!(!finished.stdout.contains("Difference(%)"), "{finished}");
}

mod measured {
    use super::*;

    #[test]
    fn throughput_is_that_of_the_run() {
        run("@stream").measure_and(|finished, document| {
            let lines = lines(&finished.stdout);
            assert_eq!(lines.len(), 4, "{finished}");
            assert_eq!(lines[3].bytes - lines[0].bytes, ends(document)[0], "{finished}");
            let stated = document.number("/throughput/bits_per_second");
            let differences = differences(&lines);
            let bytes = mean(differences.iter().map(|[bytes, ..]| *bytes));
            agree("k8s-netperf, Mb/s", bytes * 8.0 / 1e6, stated / 1e6, document, 3.0);
            agree("benchmark-wrapper, average byte", bytes, stated / 8.0, document, 3.0);
            let crucible = lines.windows(2).map(|pair| {
                let seconds = (pair[1].unix_ms.trunc() - pair[0].unix_ms.trunc()) / 1000.0;
                8.0 * (pair[1].bytes - pair[0].bytes) / 1e9 / seconds
            });
            agree("crucible, Gb/s", mean(crucible), stated / 1e9, document, 3.0);
        });
    }

    #[test]
    fn transactions_and_their_time_are_those_of_the_run() {
        run("@rr").measure_and(|finished, document| {
            let differences = differences(&lines(&finished.stdout));
            assert_eq!(differences.len(), 3, "{finished}");
            let stated = document.number("/transactions/per_second");
            // A transaction is two operations.
            let per_second = mean(differences.iter().map(|[_, operations, _]| operations / 2.0));
            agree("k8s-netperf, OP/s", per_second, stated, document, 3.0);
            // Weighted, as intervals differ; one operation after the other on one connection.
            let (mut time, mut operations) = (0.0, 0.0);
            for [_, done, each] in &differences {
                time += done * each;
                operations += done;
            }
            let each = 1e6 / stated / 2.0;
            agree("k8s-netperf, us/operation", time / operations, each, document, 3.0);
        });
    }

    /// Half a second is left, which is in the totals.
    #[test]
    fn an_incomplete_interval_has_no_line() {
        let run = Program::new(["run", "@stream", "--duration", "2500ms", "--ramp", "300ms"])
            .args(["--format", "uperf", "--quiet"]);
        run.measure_and(|finished, _| {
            let lines = lines(&finished.stdout);
            assert_eq!(lines.len(), 3, "{finished}");
            let total =
                Regex::new(r"(?m)^timestamp_ms:\S+ name:Total nr_bytes:(\d+) nr_ops:\d+$").unwrap();
            let total = total.captures(&finished.stdout).expect("the total");
            // False failures: 1e-9, computed: a stream would have to stand still for half a second.
            assert!(total[1].parse::<f64>().unwrap() > lines[2].bytes, "{finished}");
            let rows =
                |name: &str| finished.stdout.lines().filter(|line| line.starts_with(name)).count();
            assert_eq!((rows("Total "), rows("127.0.0.1 ")), (1, 1), "{finished}");
        });
    }

    /// More of them than ticks: lines come while the phase runs, none is left out.
    #[test]
    fn every_short_interval_has_its_line() {
        let run = Program::new(["run", "@rr", "--duration", "1s", "--ramp", "300ms"]).args([
            "--interval",
            "20ms",
            "--format",
            "uperf",
            "--quiet",
        ]);
        run.measure_and(|finished, _| {
            assert_eq!(lines(&finished.stdout).len(), 51, "{finished}");
        });
    }
}
