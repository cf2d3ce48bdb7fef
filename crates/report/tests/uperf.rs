//! uperf's output against the patterns of the programs that parse it, as they are published:
//! k8s-netperf (pkg/drivers/uperf.go), benchmark-wrapper (snafu/uperf_wrapper/trigger_uperf.py) and
//! crucible (bench-uperf, uperf-post-process.py).

use std::time::Duration;

use regex::Regex;
use wirecost_model::clock::SECOND;
use wirecost_model::event::{Event, HostBrief, HostCounters, Listener as _};
use wirecost_model::measure::{Bytes, Counters, FlowopCounts};
use wirecost_model::profile::Until;
use wirecost_model::program::Side;
use wirecost_report::uperf::{Header, Printer};

const START: f64 = 1_559_581_000_962.033;

/// An RR profile of connect, main and disconnect, 64 bytes each way: the master does two operations
/// a transaction, so does the peer.
fn host(host: u32, side: Side, seconds: u64, transactions: u64) -> HostCounters {
    let flowop = FlowopCounts {
        done: transactions,
        failed: transactions / 1000,
        bytes: transactions * 64,
        ..FlowopCounts::default()
    };
    let (sent, received) = (transactions * 64, transactions * 64);
    HostCounters {
        host,
        side,
        elapsed: seconds * SECOND,
        counters: Counters {
            bytes: match side {
                Side::Master => Bytes { tx_sent: sent, rx_received: received, ..Bytes::default() },
                Side::Peer => Bytes { tx_received: received, rx_sent: sent, ..Bytes::default() },
            },
            transactions,
            flowops: vec![flowop, flowop],
            ..Counters::default()
        },
    }
}

fn run(peers: u32, peer_share: f64) -> String {
    let mut out = Vec::new();
    let header = Header { profile: "rr-tcp-64-64-1".to_owned(), strands: 1 };
    let mut printer = Printer::new(&mut out, header);
    let brief = |name: String, side| HostBrief { name, side, workers: 1, cpus: Vec::new() };
    let mut hosts = vec![brief("client".to_owned(), Side::Master)];
    hosts.extend((1..=peers).map(|n| brief(format!("192.0.2.{n}"), Side::Peer)));
    printer.event(&Event::Ready { hosts, phases: 3 });
    let all = |seconds: u64, transactions: u64| -> Vec<HostCounters> {
        let each = (transactions as f64 * peer_share) as u64 / u64::from(peers);
        let masters = std::iter::once(host(0, Side::Master, seconds, transactions));
        masters.chain((1..=peers).map(|n| host(n, Side::Peer, seconds, each))).collect()
    };
    for (phase, seconds) in [(0, 0), (1, 5), (2, 0)] {
        let begin = START + f64::from(phase) * 10_000.0;
        printer.event(&Event::PhaseStarted {
            phase,
            until: Until::Duration(Duration::from_secs(5)),
            ramp: 0,
            headline: phase == 1,
            unix_ms: begin,
        });
        for second in 1..=seconds {
            printer.event(&Event::Tick {
                phase,
                elapsed: second * SECOND,
                unix_ms: begin + second as f64 * 1000.0,
                hosts: all(second, second * 10_000),
            });
        }
        printer.event(&Event::PhaseEnded {
            phase,
            unix_ms: begin + seconds as f64 * 1000.0,
            hosts: all(seconds, seconds * 10_000),
        });
    }
    let finished = printer.finish();
    assert!(finished.is_ok());
    String::from_utf8_lossy(&out).into_owned()
}

#[test]
fn output() {
    insta::assert_snapshot!("one_peer", run(1, 1.0));
    insta::assert_snapshot!("two_peers", run(2, 1.0));
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
    assert_eq!(found.len(), 7);
    assert_eq!(found[0], (START + 10_000.0, 0.0, 0.0));
    // As the program itself does: differences of neighbours in which operations happened.
    let differences: Vec<(f64, f64)> = found
        .windows(2)
        .map(|pair| (pair[1].1 - pair[0].1, pair[1].2 - pair[0].2))
        .filter(|&(_, ops)| ops != 0.0)
        .collect();
    assert_eq!(differences, [(1_280_000.0, 20_000.0); 5]);
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
    assert_eq!(pattern.captures_iter(output).count(), 7);
}

#[test]
fn crucible_reads_it() {
    let output = run(1, 0.99);
    let raw = Regex::new(r"^timestamp_ms:(\d+)\.\d+\s+name:Txn2\s+nr_bytes:(\d+)\s+nr_ops:(\d+)")
        .unwrap();
    assert_eq!(output.lines().filter(|line| raw.is_match(line)).count(), 7);
    let crr = Regex::new(r"^timestamp_ms:(\d+)\.\d+\s+name:Txn1\s+nr_bytes:(\d+)\s+nr_ops:(\d+)")
        .unwrap();
    assert_eq!(output.lines().filter(|line| crr.is_match(line)).count(), 2);
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
    let header = Header { profile: String::new(), strands: 0 };
    Printer::new(&mut out, header).finish().unwrap();
    let output = String::from_utf8(out).unwrap();
    assert_eq!(difference_line(&output), Some([0.0; 5]));
}

#[test]
fn a_phase_that_broke_off_counts_in_the_statistics() {
    let mut out = Vec::new();
    let header = Header { profile: "rr".to_owned(), strands: 1 };
    let mut printer = Printer::new(&mut out, header);
    printer.event(&Event::Tick {
        phase: 0,
        elapsed: SECOND,
        unix_ms: START,
        hosts: vec![host(0, Side::Master, 1, 100), host(1, Side::Peer, 1, 100)],
    });
    printer.finish().unwrap();
    let output = String::from_utf8(out).unwrap();
    assert!(output.contains("name:Total nr_bytes:12800 nr_ops:200"), "{output}");
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
    let header = Header { profile: "rr".to_owned(), strands: 1 };
    let mut printer = Printer::new(Gone, header);
    printer.event(&Event::PhaseEnded { phase: 0, unix_ms: START, hosts: Vec::new() });
    let error = printer.finish().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
}
