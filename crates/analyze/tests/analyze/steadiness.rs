//! Convergence, fairness and the metrics of RFC 6349 of runs whose traffic is known.

use wirecost_model::convergence::ConvergenceState;
use wirecost_model::measure::{Edge, Quiet, StrandSeries, TcpSample};
use wirecost_model::outcome::Outcome;
use wirecost_model::run::Run;

use crate::two_hosts::{Fault, Traffic, analyze};

const SECOND: f64 = 1e9;

fn outcome(ramp: f64, window: f64) -> Outcome {
    Traffic { ramp, window, ..Traffic::default() }.outcome(Fault::None)
}

/// Bytes per second of a stream at a second after the start.
type Rate = fn(f64) -> f64;

/// Follows streams of these groups, strands and rates at the peer, every 250 ms.
fn follow(outcome: &mut Outcome, streams: &[(u32, u32, Rate)], seconds: f64) {
    let phase = &mut outcome.hosts[1].phases[0];
    let start = phase.snapshot(Edge::PhaseStart).unwrap().due;
    phase.strand_series = streams
        .iter()
        .map(|&(group, strand, rate)| {
            let mut moved = 0.0;
            let steps = (seconds * 4.0) as u32;
            let bytes = (0..steps).map(|step| {
                moved += rate(f64::from(step) / 4.0) / 4.0;
                (start + (f64::from(step + 1) / 4.0 * SECOND) as u64, moved as u64)
            });
            StrandSeries { group, strand, bytes: bytes.collect() }
        })
        .collect();
}

fn sample(outcome: &mut Outcome, host: usize, strand: u32, rtt_us: f64) {
    let phase = &mut outcome.hosts[host].phases[0];
    let at = phase.snapshot(Edge::WindowStart).unwrap().at + 1;
    let (min_rtt_us, path_mtu) = (rtt_us / 2.0, 1500);
    phase.tcp_samples = vec![TcpSample {
        at,
        group: 0,
        strand,
        rtt_us,
        min_rtt_us,
        path_mtu,
        cwnd: 10,
        retransmits: 0,
    }];
}

#[test]
fn time_counts_from_the_start_of_traffic() {
    let run = analyze(&outcome(1.0, 20.0));
    let convergence = run.convergence.unwrap();
    assert_eq!(convergence.state, ConvergenceState::Converged);
    assert_eq!(convergence.window_seconds, 1.0);
    // Ramp and window.
    assert_eq!(convergence.windows.len(), 21);
    assert_eq!(convergence.seconds, Some(0.0));
    assert!((convergence.steady_bits_per_second.unwrap() / 8e9 - 1.0).abs() < 1e-3);
}

/// A day, in which the path was cut for 90 seconds after six hours.
#[test]
fn outages_of_a_day_are_listed() {
    let mut outcome = outcome(1.0, 86_400.0);
    for host in &mut outcome.hosts {
        let phase = &mut host.phases[0];
        let from = phase.snapshot(Edge::WindowStart).unwrap().due + 21_600_000_000_000;
        phase.quiet = vec![Quiet { from, to: from + 90_000_000_000 }];
    }
    let run = analyze(&outcome);
    let stability = run.stability.unwrap();
    assert_eq!(stability.outage_count, 1);
    let outage = &stability.outages[0];
    assert!((outage.start - 21_600.0).abs() < 1e-3 && (outage.seconds - 90.0).abs() < 1e-6);
    assert!(stability.drift.unwrap().per_hour.abs() < 1e-6);
    assert_eq!(stability.dip_count, Some(0));
}

/// An outage that began five seconds before the window, and one that ended two seconds after it.
#[test]
fn outages_are_cut_at_the_edges_of_the_window() {
    let mut outcome = outcome(1.0, 60.0);
    for host in &mut outcome.hosts {
        let phase = &mut host.phases[0];
        let at = |edge| phase.snapshot(edge).unwrap().due;
        let (start, end) = (at(Edge::WindowStart), at(Edge::WindowEnd));
        let second = |number: u64| number * 1_000_000_000;
        phase.quiet = vec![
            Quiet { from: start - second(5), to: start + second(3) },
            Quiet { from: end - second(4), to: end + second(2) },
        ];
    }
    let run = analyze(&outcome);
    let outages = run.stability.unwrap().outages;
    let of: Vec<(f64, f64)> =
        outages.iter().map(|of| (of.start.round(), of.seconds.round())).collect();
    assert_eq!(of, [(0.0, 3.0), (56.0, 4.0)]);
    assert_eq!(run.window.unwrap().dead_seconds.map(f64::round), Some(7.0));
}

/// What moved in a second of which there is no instant is not known.
#[test]
fn windows_are_as_long_as_the_largest_gap() {
    let convergence = analyze(&outcome(3.0, 20.0)).convergence.unwrap();
    assert_eq!(convergence.window_seconds, 3.0);
    assert_eq!(convergence.windows.len(), 7);
}

/// A ramp in which nothing moves until its last second, at which every host has a snapshot.
#[test]
fn instants_of_the_ramp_show_a_slow_start() {
    let mut outcome = outcome(4.0, 20.0);
    for host in &mut outcome.hosts {
        let phase = &mut host.phases[0];
        let nothing = phase.snapshot(Edge::PhaseStart).unwrap().clone();
        for second in 1..=3u64 {
            let mut snapshot = nothing.clone();
            snapshot.edge = Edge::Interval;
            snapshot.due += second * 1_000_000_000;
            snapshot.at = snapshot.due;
            phase.snapshots.insert(second as usize, snapshot);
        }
    }
    let run = analyze(&outcome);
    let convergence = run.convergence.unwrap();
    assert_eq!(convergence.windows[..3], [0.0; 3]);
    // Four seconds' worth in one.
    assert!(convergence.windows[3] > 3.9 * 8e9);
    assert_eq!(convergence.seconds, Some(4.0));
    // What the window has is as before.
    assert_eq!(run.intervals.len(), 20);
}

#[test]
fn windows_are_of_twenty_round_trips() {
    let mut outcome = outcome(0.0, 60.0);
    sample(&mut outcome, 0, 0, 150_000.0);
    // That of an end that only receives is the handshake's.
    sample(&mut outcome, 1, 0, 900_000.0);
    let convergence = analyze(&outcome).convergence.unwrap();
    assert_eq!(convergence.window_seconds, 3.0);
    assert_eq!(convergence.windows.len(), 20);
}

/// Adds a peer like the first, with a name of its own.
fn add_peer(outcome: &mut Outcome) {
    let mut other = outcome.hosts[1].clone();
    other.name = "other".to_owned();
    outcome.hosts.push(other);
}

#[test]
fn round_trips_of_strands_with_the_same_number_are_those_of_their_hosts() {
    let traffic =
        Traffic { tx_rate: 0.0, rx_rate: 1e9, ramp: 0.0, window: 60.0, ..Traffic::default() };
    let mut outcome = traffic.outcome(Fault::None);
    add_peer(&mut outcome);
    // Most samples are of the near peer.
    sample(&mut outcome, 1, 0, 20_000.0);
    let near = outcome.hosts[1].phases[0].tcp_samples[0];
    outcome.hosts[1].phases[0].tcp_samples = vec![near; 9];
    sample(&mut outcome, 2, 0, 200_000.0);
    assert_eq!(analyze(&outcome).convergence.unwrap().window_seconds, 4.0);
}

#[test]
fn a_stream_has_the_round_trip_time_of_its_sender_where_that_is_known() {
    let mut outcome = outcome(1.0, 19.0);
    follow(&mut outcome, &[(0, 0, |_| 1e6)], 20.0);
    sample(&mut outcome, 0, 0, 30_000.0);
    sample(&mut outcome, 1, 0, 900_000.0);
    let of = |outcome: &Outcome| -> Vec<Option<f64>> {
        analyze(outcome).streams.unwrap().iter().map(|stream| stream.rtt_us).collect()
    };
    assert_eq!(of(&outcome), [Some(30_000.0)]);
    // The strand has a connection to each of two peers, and was sampled on one of them.
    add_peer(&mut outcome);
    assert_eq!(of(&outcome), [None, None]);
}

#[test]
fn each_stream_has_a_time_of_its_own() {
    let mut outcome = outcome(1.0, 19.0);
    let streams: [(u32, u32, Rate); 2] =
        [(0, 0, |_| 1e6), (0, 1, |t| if t < 6.0 { 1e3 } else { 1e6 })];
    follow(&mut outcome, &streams, 20.0);
    let run = analyze(&outcome);
    let streams = run.streams.unwrap();
    let of = |strand: usize| (streams[strand].convergence.seconds, streams[strand].host.as_str());
    assert_eq!((of(0), of(1)), ((Some(0.0), "server"), (Some(6.0), "server")));
    assert!((streams[0].bits_per_second / 8e6 - 1.0).abs() < 1e-6);
    // In the window, the second is slow for five of its 19 seconds.
    assert!((streams[1].bits_per_second / 8e6 - 14.0 / 19.0).abs() < 1e-3);
    let fairness = run.fairness.unwrap();
    assert_eq!((fairness.fair_share_seconds, fairness.fair_share_reason), (Some(6.0), None));
    assert_eq!(fairness.between_groups, None);
}

fn fairness(streams: &[(u32, u32, Rate)]) -> wirecost_model::run::Fairness {
    let mut outcome = outcome(1.0, 19.0);
    follow(&mut outcome, streams, 20.0);
    analyze(&outcome).fairness.unwrap()
}

#[test]
fn shares_that_never_become_fair_have_a_reason() {
    let of = fairness(&[(0, 0, |_| 1e6), (0, 1, |_| 3e6)]);
    assert_eq!(of.fair_share_seconds, None);
    assert!(of.fair_share_reason.unwrap().contains("0% of the time"));
    let one = fairness(&[(0, 0, |_| 1e6)]);
    assert!(one.fair_share_reason.unwrap().contains("one stream"));
    assert!(fairness(&[]).fair_share_reason.unwrap().contains("not followed"));
}

#[test]
fn groups_are_compared_by_stream() {
    // Three streams of one group, one of another with half the throughput each.
    let of = fairness(&[(0, 0, |_| 2e6), (0, 1, |_| 2e6), (0, 2, |_| 2e6), (1, 0, |_| 1e6)]);
    let groups = of.between_groups.unwrap();
    assert_eq!(groups.groups.iter().map(|of| of.streams).collect::<Vec<_>>(), [3, 1]);
    // (2 + 1)^2 / (2 * (4 + 1)).
    assert!((groups.jain - 0.9).abs() < 1e-6);
    assert!((groups.ratio.unwrap() - 2.0).abs() < 1e-6);
    assert_eq!(groups.fair_share_seconds, None);
}

#[test]
fn a_stream_that_starves_beside_others_counts() {
    let streams: [(u32, u32, Rate); 3] = [(0, 0, |_| 1e6), (0, 1, |_| 0.0), (1, 0, |_| 0.0)];
    let mut outcome = outcome(1.0, 19.0);
    follow(&mut outcome, &streams, 20.0);
    let run = analyze(&outcome);
    // A group of which no stream moved may have been without work.
    let names: Vec<(u32, u32)> =
        run.streams.unwrap().iter().map(|stream| (stream.group, stream.strand)).collect();
    assert_eq!(names, [(0, 0), (0, 1)]);
    let reason = run.fairness.unwrap().fair_share_reason.unwrap();
    assert!(reason.contains("0% of the time"), "{reason}");
}

/// Another host receives too, and its streams are not followed.
#[test]
fn of_a_part_of_the_streams_nothing_is_said() {
    let mut outcome = outcome(1.0, 19.0);
    follow(&mut outcome, &[(0, 0, |_| 1e6), (0, 1, |_| 1e6)], 20.0);
    add_peer(&mut outcome);
    outcome.hosts[2].phases[0].strand_series.clear();
    assert!(analyze(&outcome).streams.is_none_or(|streams| streams.is_empty()));
}

fn framework(rate: Option<u64>) -> (Run, wirecost_model::run::Rfc6349) {
    let mut outcome = outcome(1.0, 10.0);
    sample(&mut outcome, 0, 0, 32_000.0);
    outcome.hosts[0].phases[0].tcp_samples[0].min_rtt_us = 25_000.0;
    for host in &mut outcome.hosts {
        host.facts.link_bits_per_second = rate;
        (host.phases[0].segments_sent, host.phases[0].retransmits) = (Some(51_000), Some(1_000));
    }
    let run = analyze(&outcome);
    let of = run.rfc6349.clone().unwrap();
    (run, of)
}

/// The examples of RFC 6349: 102,000 bytes with 2,000 retransmitted (4.2.1), 32 ms over 25 ms (4.3.1), and
/// 1460 bytes of each frame of 1538 (4.1.1).
#[test]
fn the_metrics_of_rfc_6349_are_those_of_its_examples() {
    let (run, of) = framework(Some(16_000_000_000));
    assert!((of.efficiency_percent.unwrap() - 98.039).abs() < 1e-3);
    assert!((of.buffer_delay_percent.unwrap() - 28.0).abs() < 1e-9);
    assert_eq!(of.baseline_rtt_us, Some(25_000.0));
    let most = 16e9 * 1460.0 / 1538.0;
    assert!((of.max_bits_per_second.unwrap() / most - 1.0).abs() < 1e-9);
    let throughput = run.throughput.unwrap().tx_bits_per_second;
    assert!((of.transfer_time_ratio.unwrap() / (most / throughput) - 1.0).abs() < 1e-9);
    assert_eq!(framework(None).1.transfer_time_reason.unwrap(), "the rate of the link is unknown");
}
