//! uperf's output against the patterns of the programs that parse it, as they are published:
//! k8s-netperf (pkg/drivers/uperf.go), benchmark-wrapper (snafu/uperf_wrapper/trigger_uperf.py) and
//! crucible (bench-uperf, uperf-post-process.py).

use std::time::Duration;

use regex::Regex;
use wirecost_model::clock::SECOND;
use wirecost_model::event::{Event, HostBrief, HostCounters, Listener as _, Reading};
use wirecost_model::host::HostFacts;
use wirecost_model::measure::{
    Bytes, Counters, Edge, FlowopCounts, FlowopKey, PhaseResult, Snapshot, StrandTotals,
};
use wirecost_model::outcome::{HostOutcome, Outcome, PhasePlan};
use wirecost_model::profile::{Group, Until};
use wirecost_model::program::Side;
use wirecost_model::status::Status;
use wirecost_report::uperf::{Details, Header, Part, Printer, Style, write_failure};

const START: f64 = 1_559_581_000_962.033;
const MS: u64 = SECOND / 1000;
const RAMP: u64 = 400 * MS;

/// An RR profile of connect, main and disconnect, 64 bytes each way: the master does two operations
/// a transaction, so does the peer.
fn counters(side: Side, transactions: u64) -> Counters {
    let flowop = FlowopCounts {
        done: transactions - transactions / 1000,
        failed: transactions / 1000,
        bytes: transactions * 64,
        ..FlowopCounts::default()
    };
    let (sent, received) = (transactions * 64, transactions * 64);
    Counters {
        bytes: match side {
            Side::Master => Bytes { tx_sent: sent, rx_received: received, ..Bytes::default() },
            Side::Peer => Bytes { tx_received: received, rx_sent: sent, ..Bytes::default() },
        },
        transactions,
        flowops: vec![flowop, flowop],
        ..Counters::default()
    }
}

fn snapshot(due: u64, side: Side, transactions: u64) -> Snapshot {
    // Readings are a little late.
    let at = due + MS / 4;
    Snapshot {
        edge: Edge::Interval,
        due,
        at,
        counters: counters(side, transactions),
        cpu: None,
        packets: None,
    }
}

fn host(host: u32, side: Side, due: u64, transactions: u64) -> HostCounters {
    let Snapshot { at: elapsed, counters, .. } = snapshot(due, side, transactions);
    HostCounters { host, side, elapsed, counters }
}

fn header(peers: u32) -> Header {
    Header {
        profile: "rr-tcp-64-64-1".to_owned(),
        threads: 1,
        processes: 0,
        interval: SECOND,
        peers: (1..=peers).map(|n| format!("192.0.2.{n}")).collect(),
        connected: (0..peers).map(|peer| (0, peer)).collect(),
    }
}

/// What the master has done at an instant of the main phase: 20,000 transactions a second in the
/// window of 5.3 s, half of that in the ramp, nothing afterwards.
fn transactions(at: u64) -> u64 {
    let (ramp, window) = (at.min(RAMP), at.clamp(RAMP, RAMP + WINDOW) - RAMP);
    (ramp / MS) * 10 + (window / MS) * 20
}

const WINDOW: u64 = 5300 * MS;

/// When counters are read in the main phase: at the edges, every interval, and in the parts of the
/// times beside the window in which nothing observes.
fn instants() -> Vec<u64> {
    let ramp = [0, 100 * MS, 120 * MS, 140 * MS, RAMP];
    let intervals = (1..=5).map(|n| RAMP + n * SECOND);
    let end = RAMP + WINDOW;
    // The third is a whole number of intervals from the window's start.
    let after = [end, end + 100 * MS, end + 700 * MS, end + 701 * MS];
    ramp.into_iter().chain(intervals).chain(after).collect()
}

fn readings(instants: &[u64]) -> Vec<Reading> {
    let of = |&due: &u64| Reading::new(&snapshot(due, Side::Master, transactions(due)), 0);
    instants.iter().map(of).collect()
}

struct Run {
    peers: u32,
    /// What all peers have done of what the master has.
    share: f64,
    /// Of the instants, those that ticks tell.
    told: fn(u64) -> bool,
    failure: Option<&'static str>,
    /// After which it fails.
    phases: u32,
}

impl Default for Run {
    fn default() -> Self {
        Self { peers: 1, share: 1.0, told: |_| true, failure: None, phases: 3 }
    }
}

impl Run {
    fn output(&self) -> String {
        let mut out = Vec::new();
        let mut printer = Printer::new(&mut out, header(self.peers), Style::default());
        let brief = |name: &str, side| HostBrief {
            name: name.to_owned(),
            side,
            workers: 1,
            cpus: Vec::new(),
        };
        let mut hosts = vec![brief("master", Side::Master)];
        hosts.extend((0..self.peers).map(|_| brief("peer", Side::Peer)));
        printer.event(&Event::Ready { hosts, phases: 3 });
        let all = |due: u64, done: u64| -> Vec<HostCounters> {
            let each = (done as f64 * self.share) as u64 / u64::from(self.peers);
            let masters = std::iter::once(host(0, Side::Master, due, done));
            masters.chain((1..=self.peers).map(|n| host(n, Side::Peer, due, each))).collect()
        };
        for phase in 0..self.phases {
            let main = phase == 1;
            let begin = START + f64::from(phase) * 10_000.0;
            printer.event(&Event::PhaseStarted {
                phase,
                until: match main {
                    true => Until::Duration(Duration::from_nanos(WINDOW)),
                    false => Until::Iterations(1),
                },
                ramp: if main { RAMP } else { 0 },
                headline: main,
                unix_ms: begin,
            });
            let instants = if main { instants() } else { vec![0, 20 * MS] };
            let mut untold = Vec::new();
            for due in instants.iter().copied().filter(|_| main) {
                untold.push(due);
                if !(self.told)(due) {
                    continue;
                }
                printer.event(&Event::Tick {
                    phase,
                    elapsed: due,
                    // It is told when the slowest host has told its counters.
                    unix_ms: begin + due as f64 / MS as f64 + 30.0,
                    hosts: all(due, transactions(due)),
                    readings: readings(&std::mem::take(&mut untold)),
                });
            }
            let last = instants.iter().copied().max().unwrap_or_default();
            printer.event(&Event::PhaseEnded {
                phase,
                unix_ms: begin + 9_000.0,
                hosts: all(last, if main { transactions(last) } else { 0 }),
                readings: if main { readings(&instants) } else { Vec::new() },
            });
        }
        let finished = printer.finish(self.failure, &[], None);
        assert!(finished.is_ok());
        String::from_utf8_lossy(&out).into_owned()
    }
}

fn run(peers: u32, share: f64) -> String {
    Run { peers, share, ..Run::default() }.output()
}

/// Time stamp, bytes and operations of the raw lines of a name.
fn raw_lines(output: &str, name: &str) -> Vec<(f64, f64, f64)> {
    let pattern =
        format!(r"(?m)^timestamp_ms:(\d+\.\d{{4}}) name:{name} nr_bytes:(\d+) nr_ops:(\d+)$");
    let pattern = Regex::new(&pattern).unwrap_or_else(|error| unreachable!("{error}"));
    pattern
        .captures_iter(output)
        .map(|found| [1, 2, 3].map(|group| found[group].parse().unwrap_or(f64::NAN)))
        .map(|[time, bytes, operations]| (time, bytes, operations))
        .collect()
}

#[test]
fn output() {
    insta::assert_snapshot!("one_peer", run(1, 1.0));
    insta::assert_snapshot!("two_peers", run(2, 1.0));
}

/// A run without interruptions: six lines, which begin with zeros at the beginning of the window, a
/// second apart. What ticks tell beside them has no line, and neither has the end of the window, which
/// cuts an interval short.
#[test]
fn raw_lines_are_whole_intervals_of_the_window() {
    let lines = raw_lines(&run(1, 1.0), "Txn2");
    let expected: Vec<(f64, f64, f64)> = (0..=5)
        .map(f64::from)
        .map(|n| (START + 10_400.25 + n * 1000.0, n * 20_000.0 * 128.0, n * 40_000.0))
        .collect();
    let rounded = |(time, bytes, operations): (f64, f64, f64)| {
        ((time * 100.0).round() / 100.0, bytes, operations)
    };
    let all = |lines: Vec<_>| lines.into_iter().map(rounded).collect::<Vec<_>>();
    assert_eq!(all(lines), all(expected));
}

/// Where a host is behind, or an interval is short, a tick tells several of them.
#[test]
fn every_interval_has_its_line_however_few_ticks_come() {
    let whole = run(1, 1.0);
    let told: [fn(u64) -> bool; 3] = [
        |_| false,
        |due| due != RAMP,
        |due| !(RAMP + 2 * SECOND..=RAMP + 3 * SECOND).contains(&due),
    ];
    for told in told {
        assert_eq!(Run { told, ..Run::default() }.output(), whole);
    }
}

#[test]
fn what_has_no_line_is_in_the_totals() {
    let output = run(1, 1.0);
    let all = transactions(u64::MAX) as f64;
    let total = raw_lines(&output, "Total");
    assert_eq!(
        total.iter().map(|line| (line.1, line.2)).collect::<Vec<_>>(),
        [(all * 128.0, all * 2.0)]
    );
    let begins = |start: &str| -> Vec<String> {
        output.lines().filter(|line| line.starts_with(start)).map(str::to_owned).collect()
    };
    // 110,000 transactions of 128 bytes and two operations in 6.40 s, and 40 ms of the other phases.
    assert_eq!(begins("Txn"), ["Txn2      13.43MB /   6.40(s) =    17.60Mb/s       34368op/s "]);
    assert_eq!(begins("Total"), ["Total     13.43MB /   6.44(s) =    17.49Mb/s       34152op/s "]);
}

/// `grep ^Total` finds one line of one peer, and with several also that of Run Statistics.
#[test]
fn totals_of_several_peers_are_those_of_uperf() {
    let output = run(2, 1.0);
    let total = Regex::new(r"(?m)^Total .*$").unwrap();
    let found: Vec<&str> = total.find_iter(&output).map(|found| found.as_str()).collect();
    assert_eq!(found.len(), 2, "{output}");
    assert!(found[0].ends_with("op/s "));
    assert_eq!(
        found[1].split_whitespace().collect::<Vec<_>>(),
        ["Total", "6.44s", "13.43MB", "17.49Mb/s", "220000", "0.10"]
    );
    for peer in ["192.0.2.1", "192.0.2.2"] {
        let rows = output.lines().filter(|line| line.split_whitespace().next() == Some(peer));
        assert_eq!(rows.count(), 1, "{output}");
    }
}

#[test]
fn k8s_netperf_reads_it() {
    // It runs uperf with a terminal, which ends lines with a carriage return too.
    let output = run(1, 1.0).replace('\n', "\r\n");
    let pattern = Regex::new(r"timestamp_ms:(.*) name:Txn2 nr_bytes:(.*) nr_ops:(.*)\r").unwrap();
    let found: Vec<(f64, f64, f64)> = pattern
        .captures_iter(&output)
        .map(|found| [1, 2, 3].map(|group| found[group].parse().unwrap()))
        .map(|[time, bytes, ops]| (time, bytes, ops))
        .collect();
    assert_eq!(found.len(), 6);
    // As the program itself does: differences of neighbours in which operations happened.
    let differences: Vec<(f64, f64)> = found
        .windows(2)
        .map(|pair| (pair[1].1 - pair[0].1, pair[1].2 - pair[0].2))
        .filter(|&(_, ops)| ops != 0.0)
        .collect();
    assert_eq!(differences, [(2_560_000.0, 40_000.0); 5]);
}

#[test]
fn benchmark_wrapper_reads_it() {
    let output = run(1, 1.0);
    let output = output.trim();
    let config = Regex::new(r"running profile:(.*) \.\.\.").unwrap();
    let name = &config.captures(output).unwrap()[1];
    let parts: Vec<&str> = name.split('-').collect();
    assert_eq!(parts, ["rr", "tcp", "64", "64", "1"]);
    let pattern = Regex::new(r"timestamp_ms:(.*) name:Txn2 nr_bytes:(.*) nr_ops:(.*)").unwrap();
    for found in pattern.captures_iter(output) {
        // int() of Python takes no fraction, and the time is cut at its point.
        found[1].split('.').next().unwrap().parse::<u64>().unwrap();
        found[2].parse::<u64>().unwrap();
        found[3].parse::<u64>().unwrap();
    }
    assert_eq!(pattern.captures_iter(output).count(), 6);
}

#[test]
fn crucible_reads_it() {
    let output = run(1, 0.99);
    let raw = Regex::new(r"^timestamp_ms:(\d+)\.\d+\s+name:Txn2\s+nr_bytes:(\d+)\s+nr_ops:(\d+)")
        .unwrap();
    assert_eq!(output.lines().filter(|line| raw.is_match(line)).count(), 6);
    let difference = difference_line(&output).unwrap();
    assert_eq!(difference, [0.0, 1.0, 1.0, 1.0, 0.1]);
}

/// The five percentages that crucible takes from the line.
fn difference_line(output: &str) -> Option<[f64; 5]> {
    let pattern = Regex::new(concat!(
        r"^Difference\(%\)\s+(-?\d+\.\d+)%\s+(-?\d+\.\d+)%\s+(-?\d+\.\d+)%",
        r"\s+(-?\d+\.\d+)%\s+(-?\d+\.\d+)%"
    ))
    .unwrap_or_else(|error| unreachable!("{error}"));
    let found = output.lines().find_map(|line| pattern.captures(line))?;
    Some([1, 2, 3, 4, 5].map(|group| found[group].parse().unwrap_or(f64::NAN)))
}

/// uperf prints 0% for a peer that counted nothing, and nan where there are no operations.
#[test]
fn a_dead_peer_shows_and_every_number_is_one() {
    assert_eq!(difference_line(&run(1, 0.0)), Some([0.0, 100.0, 100.0, 100.0, 0.1]));
    let mut out = Vec::new();
    Printer::new(&mut out, header(0), Style::default()).finish(None, &[], None).unwrap();
    let output = String::from_utf8(out).unwrap();
    assert_eq!(difference_line(&output), Some([0.0; 5]));
}

const RESET: &str = "192.0.2.1: read: Connection reset by peer";

/// clusterbuster looks for the beginning of the line, people for the warning.
#[test]
fn a_run_that_fails_before_anything_moved_has_no_numbers() {
    let output = Run { failure: Some(RESET), phases: 1, ..Run::default() }.output();
    assert_eq!(
        output.lines().skip(1).collect::<Vec<_>>(),
        [
            "timestamp_ms:1559581000962.0330 name:Txn1 nr_bytes:0 nr_ops:0",
            "",
            "** Error: 192.0.2.1: read: Connection reset by peer",
            "",
            "WARNING: 1 Errors detected during run"
        ]
    );
}

#[test]
fn a_failure_before_the_run_is_its_error() {
    let mut out = Vec::new();
    write_failure(&mut out, "one\n\ntwo \u{1b}[31m\u{202e}").unwrap();
    assert_eq!(
        String::from_utf8(out).unwrap(),
        "** Error: one\n** Error: two \\u{1b}[31m\\u{202e}\n\nWARNING: 2 Errors detected during run\n"
    );
}

/// A peer that has counted nothing has no row of zeros, and nothing is compared with it.
#[test]
fn a_run_that_failed_shows_no_zeros_of_a_peer() {
    let output = Run { failure: Some(RESET), share: 0.0, ..Run::default() }.output();
    assert!(output.contains("\nError saying goodbye with 192.0.2.1\n"), "{output}");
    assert_eq!(difference_line(&output), None);
    assert!(output.contains("\nmaster "), "{output}");
    assert!(output.ends_with("reset by peer\n\nWARNING: 1 Errors detected during run\n"));
}

/// The counters of a phase that broke off are in the totals, and are of no one instant.
#[test]
fn a_phase_that_broke_off_counts_and_is_not_compared() {
    let mut out = Vec::new();
    let mut printer = Printer::new(&mut out, header(1), Style::default());
    printer.event(&Event::Tick {
        phase: 0,
        elapsed: SECOND,
        unix_ms: START,
        hosts: vec![host(0, Side::Master, SECOND, 100), host(1, Side::Peer, SECOND, 99)],
        readings: Vec::new(),
    });
    printer.finish(Some(RESET), &[], None).unwrap();
    let output = String::from_utf8(out).unwrap();
    assert!(output.contains("name:Total nr_bytes:12800 nr_ops:200"), "{output}");
    assert_eq!(difference_line(&output), None);
}

/// What is known of a master that has made one transaction in each phase that ended.
fn outcome(phases: usize, ended: u32) -> Outcome {
    let plan = PhasePlan {
        until: Until::Iterations(1),
        ramp_seconds: 0.0,
        headline: false,
        moves_data: true,
        datagrams: false,
        encrypts: false,
        may_idle: false,
        window_unix_ms: None,
    };
    let key = FlowopKey { group: 0, flowop: 0, kind: "write".to_owned(), side: Side::Master };
    let result = |phase| {
        let end = Snapshot { edge: Edge::PhaseEnd, ..snapshot(SECOND, Side::Master, 1) };
        let strand = StrandTotals { group: 0, strand: 0, bytes: 128, transactions: 1 };
        PhaseResult {
            phase,
            flowops: vec![key.clone()],
            snapshots: vec![end],
            strands: vec![strand],
            ..PhaseResult::default()
        }
    };
    let master = HostOutcome {
        name: "master".to_owned(),
        side: Side::Master,
        address: None,
        facts: HostFacts::default(),
        cpus: Vec::new(),
        owns_cpus: false,
        workers: 1,
        network_namespace: None,
        pid: 0,
        clock_offset: 0,
        clock_error: 0,
        phases: (0..ended).map(result).collect(),
        settings: Vec::new(),
        placements: Vec::new(),
        warnings: Vec::new(),
        environment: serde_json::Value::Null,
    };
    Outcome {
        status: Status::Peer,
        error: None,
        phases: vec![plan; phases],
        hosts: vec![master],
        observations: Vec::new(),
        warnings: Vec::new(),
        link: None,
        netem: None,
    }
}

/// The tables are those of phases that have ended: of one that has not, they would show zeros.
#[test]
fn a_run_that_broke_off_has_no_tables() {
    let output = |ended: u32| {
        let mut out = Vec::new();
        let parts = [Part::Total, Part::Groups, Part::Threads, Part::Transactions, Part::Flowops];
        let style = Style { parts: parts.into_iter().collect(), ..Style::default() };
        let mut printer = Printer::new(&mut out, header(1), style);
        let hosts = vec![host(0, Side::Master, SECOND, 100), host(1, Side::Peer, SECOND, 99)];
        printer.event(&Event::PhaseEnded { phase: 0, unix_ms: START, hosts, readings: Vec::new() });
        let (outcome, groups) = (outcome(2, ended), [Group { strands: 1, ..Group::default() }]);
        let details = Details { outcome: &outcome, groups: &groups, devices: &[] };
        let failure = (ended < 2).then_some(RESET);
        printer.finish(failure, &["a: b".to_owned()], Some(details)).unwrap();
        String::from_utf8(out).unwrap()
    };
    let headings = ["\nGroup Details\n", "\nStrand Details\n", "\nTxn  ", "\nFlowop  "];
    let (whole, broken) = (output(2), output(1));
    for heading in headings {
        assert!(whole.contains(heading), "{whole}");
        assert!(!broken.contains(heading), "{broken}");
    }
    for output in [whole, broken] {
        assert!(output.contains("name:Total nr_bytes:12800 nr_ops:200\n"), "{output}");
        assert!(output.contains("\n** Warning: a: b\n"), "{output}");
    }
}

#[test]
fn a_reader_that_went_away_is_an_error_at_the_end() {
    struct Gone;
    impl std::io::Write for Gone {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut printer = Printer::new(Gone, header(1), Style::default());
    let (hosts, readings) = (Vec::new(), Vec::new());
    printer.event(&Event::PhaseEnded { phase: 0, unix_ms: START, hosts, readings });
    let error = printer.finish(None, &[], None).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
}

fn printed(header: Header, style: Style) -> String {
    let mut out = Vec::new();
    let mut printer = Printer::new(&mut out, header, style);
    printer.event(&Event::Ready { hosts: Vec::new(), phases: 1 });
    assert!(printer.finish(None, &[], None).is_ok());
    String::from_utf8_lossy(&out).into_owned()
}

/// A name comes from the profile, which can be anyone's.
#[test]
fn control_characters_in_names_are_escaped() {
    let named = Header { peers: vec!["h\u{1b}[2J".to_owned()], ..header(1) };
    let output = printed(named, Style::default());
    assert!(!output.contains('\u{1b}'), "{output:?}");
    assert!(output.contains("\nh\\u{1b}[2J "), "{output}");
}

#[test]
fn strands_are_called_as_the_profile_calls_them() {
    let first = |threads, processes| {
        let output = printed(Header { threads, processes, ..header(1) }, Style::default());
        output.lines().next().unwrap().split(" running ").next().unwrap().to_owned()
    };
    assert_eq!(first(4, 0), "Starting 4 threads");
    assert_eq!(first(0, 2), "Starting 2 processes");
    assert_eq!(first(4, 2), "Starting 4 threads, 2 processes");
}

/// uperf counts an operation that was allowed to fail as one that was done.
#[test]
fn failed_operations_are_operations() {
    let counters = counters(Side::Master, 2000);
    let done: u64 = counters.flowops.iter().map(|flowop| flowop.done).sum();
    assert_eq!(done, 3996);
    let snapshot = snapshot(0, Side::Master, 2000);
    assert_eq!(Reading::new(&snapshot, 0).operations, 4000);
}
