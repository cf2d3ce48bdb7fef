//! The check of sent and received must be silent on honest runs, however noisy the machine, and
//! must find every fault it is there for.

use proptest::prelude::*;
use wirecost_model::measure::{Bytes, Datagrams, Edge, FlowopCounts, PhaseResult};
use wirecost_model::outcome::{Outcome, PhasePlan};
use wirecost_model::run::Run;
use wirecost_model::status::Status;

use crate::seed::cases;
use crate::two_hosts::{Fault, Traffic, analyze};

fn differ(run: &Run) -> bool {
    run.status == Status::Invalid
        && run.error.as_ref().is_some_and(|error| error.contains("sent and received differ"))
}

prop_compose! {
    /// Any traffic and any noise that a busy machine of two CPUs has.
    fn noisy()(
        tx_rate in 1e3f64..5e9,
        rx_share in prop::sample::select(vec![0.0, 0.001, 1.0]),
        swing in 0.0f64..1.0,
        swings_per_second in 0.3f64..50.0,
        transit in 0.00005f64..0.05,
        operation_bytes in prop::sample::select(vec![64u64, 1448, 65536, 1 << 20]),
        blocking in any::<bool>(),
        interval in prop::sample::select(vec![0.1, 0.5, 1.0]),
        window in 0.3f64..6.0,
        jitter in 0.0f64..0.010,
        late in prop::sample::select(vec![0.0, 0.05, 0.25]),
        offsets in [-1_000_000_000_000i64..1_000_000_000_000, -1_000_000_000_000i64..1_000_000_000_000],
        worker_skew in 0.0f64..0.010,
        offset_errors in [-50_000_000i64..50_000_000, -50_000_000i64..50_000_000],
        seed in any::<u64>(),
    ) -> Traffic {
        let rx_rate = tx_rate * rx_share;
        // Twice the rate at the crest of a full swing is held while it travels.
        let held = (tx_rate + rx_rate) * 2.0 * transit;
        Traffic {
            tx_rate, rx_rate, swing, swings_per_second, transit,
            buffer_bytes: held as u64 + 200_000,
            operation_bytes, blocking, interval, window, jitter, late, worker_skew, offsets, offset_errors, seed,
            ..Traffic::default()
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(400, 3000), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn honest_runs_are_left_alone(traffic in noisy()) {
        let run = analyze(&traffic.outcome(Fault::None));
        prop_assert!(!differ(&run), "{:?}", run.error);
    }

    #[test]
    fn lost_counts_are_found(
        traffic in noisy(),
        share in 0.01f64..0.5,
    ) {
        let outcome = traffic.outcome(Fault::LostCounts { host: 1, share });
        let received = outcome.hosts[1].phases[0].snapshot(Edge::PhaseEnd).unwrap();
        prop_assume!(received.counters.bytes.tx_received > 100);
        prop_assert!(differ(&analyze(&outcome)));
    }

    #[test]
    fn a_late_schedule_is_found(traffic in noisy(), host in 0usize..2, late in 0.3f64..2.0) {
        let traffic = Traffic { offset_errors: [100_000, -100_000], ..traffic };
        let run = analyze(&traffic.outcome(Fault::LateSchedule { host, seconds: late }));
        prop_assert!(differ(&run), "{:?}", run.error);
        let blamed = ["the snapshots of client", "the snapshots of server"][host];
        prop_assert!(run.error.unwrap().contains(blamed));
    }

    /// Both ways, one of the two directions arrives before it was sent.
    #[test]
    fn a_misjudged_clock_is_found_by_traffic_both_ways(
        traffic in noisy(),
        host in 0usize..2,
        late in 0.3f64..2.0,
        rate in 5e7f64..5e9,
    ) {
        let traffic = Traffic {
            tx_rate: rate, rx_rate: rate, swing: traffic.swing * 0.3, late: 0.0,
            offset_errors: [100_000, -100_000],
            transit: traffic.transit.min(0.01), window: traffic.window.max(late * 4.0).max(traffic.interval * 6.0), ..traffic
        };
        let run = analyze(&traffic.outcome(Fault::MisjudgedClock { host, seconds: late }));
        prop_assert!(differ(&run), "{:?}", run.error);
    }

    /// One way, the receiver's late snapshots show bytes that were not sent yet, and the sender's
    /// late snapshots more than the buffers hold.
    #[test]
    fn a_misjudged_clock_is_found_by_a_stream(
        traffic in noisy(),
        host in 0usize..2,
        rate in 5e8f64..5e9,
    ) {
        let traffic = Traffic {
            tx_rate: rate, rx_rate: 0.0, swing: traffic.swing * 0.3, late: 0.0,
            offset_errors: [100_000, -100_000],
            transit: 0.001, buffer_bytes: 16 << 20, window: traffic.window.max(1.5).max(traffic.interval * 6.0), ..traffic
        };
        let run = analyze(&traffic.outcome(Fault::MisjudgedClock { host, seconds: 0.3 }));
        prop_assert!(differ(&run), "{:?}", run.error);
    }
}

fn stream() -> Outcome {
    Traffic::default().outcome(Fault::None)
}

fn last(outcome: &mut Outcome, host: usize) -> &mut wirecost_model::measure::Counters {
    let snapshots = &mut outcome.hosts[host].phases[0].snapshots;
    let end = snapshots.len() - 1;
    &mut snapshots[end].counters
}

#[test]
fn one_missing_byte_of_a_stream_is_too_many() {
    let mut outcome = stream();
    assert_eq!(analyze(&outcome).status, Status::Ok);
    last(&mut outcome, 1).bytes.tx_received -= 1;
    let run = analyze(&outcome);
    assert!(differ(&run));
    assert!(run.error.unwrap().contains("1 bytes"));
}

#[test]
fn a_failed_connection_explains_what_it_held_and_no_more() {
    let mut outcome = stream();
    outcome.hosts[0].phases[0].connections_failed = 1;
    last(&mut outcome, 1).bytes.tx_received -= 300_000;
    assert_eq!(analyze(&outcome).status, Status::Ok);
    last(&mut outcome, 1).bytes.tx_received -= 30_000_000;
    assert!(differ(&analyze(&outcome)));
}

/// 1000 datagrams of 1000 bytes, of which the receiver got all but `missing` and noticed `lost`.
fn datagrams(missing: u64, lost: i64) -> Outcome {
    let traffic =
        Traffic { tx_rate: 1e6, operation_bytes: 1000, connections: 1, ..Traffic::default() };
    let mut outcome = traffic.outcome(Fault::None);
    outcome.phases[0].datagrams = true;
    let sent = last(&mut outcome, 0).bytes.tx_sent / 1000;
    last(&mut outcome, 0).datagrams = Datagrams { sent, ..Datagrams::default() };
    last(&mut outcome, 1).datagrams =
        Datagrams { received: sent - missing, lost, ..Datagrams::default() };
    last(&mut outcome, 1).bytes.tx_received -= missing * 1000;
    // Only the end of the phase loses here, so that the counters never go back.
    for snapshot in &mut outcome.hosts[1].phases[0].snapshots {
        snapshot.counters.bytes.tx_received =
            snapshot.counters.bytes.tx_received.min((sent - missing) * 1000);
    }
    outcome
}

#[test]
fn lost_datagrams_are_explained_by_the_gaps_they_leave() {
    assert_eq!(analyze(&datagrams(0, 0)).status, Status::Ok);
    assert_eq!(analyze(&datagrams(100, 100)).status, Status::Ok);
    // The last ones of a connection leave no gap.
    assert_eq!(analyze(&datagrams(103, 100)).status, Status::Ok);
    assert!(differ(&analyze(&datagrams(300, 100))));
    assert!(differ(&analyze(&datagrams(100, 300))));
    let codes: Vec<String> = warnings(&analyze(&datagrams(100, 100)));
    assert!(codes.contains(&"datagrams-lost".to_owned()));
}

#[test]
fn bytes_without_datagrams_are_not_explained() {
    let mut outcome = datagrams(0, 0);
    last(&mut outcome, 1).bytes.tx_received -= 1000;
    assert!(differ(&analyze(&outcome)));
}

#[test]
fn lost_datagrams_explain_their_own_bytes_and_no_more() {
    let mut outcome = datagrams(100, 100);
    assert_eq!(analyze(&outcome).error, None);
    last(&mut outcome, 1).bytes.tx_received -= 1000;
    assert!(differ(&analyze(&outcome)));
}

#[test]
fn more_received_than_sent_is_never_right() {
    let mut outcome = datagrams(0, 0);
    last(&mut outcome, 1).datagrams.received += 1;
    assert!(differ(&analyze(&outcome)));
    let mut outcome = stream();
    last(&mut outcome, 1).bytes.tx_received += 1;
    assert!(differ(&analyze(&outcome)));
}

#[test]
fn counters_that_go_back_are_lost_counters() {
    let mut outcome = stream();
    outcome.hosts[0].phases[0].snapshots[3].counters.flowops[0] = FlowopCounts::default();
    let run = analyze(&outcome);
    assert_eq!(run.status, Status::Invalid);
    assert!(run.error.unwrap().contains("client decreased in phase 1"));
}

#[test]
fn a_host_without_the_end_of_a_phase_makes_the_run_invalid() {
    let mut outcome = stream();
    outcome.hosts[1].phases[0].snapshots.pop();
    let run = analyze(&outcome);
    assert_eq!(run.status, Status::Invalid);
    assert!(run.error.unwrap().contains("server did not report the end"));
}

#[test]
fn a_phase_that_was_not_measured_is_listed_with_the_reason() {
    let mut outcome = stream();
    outcome.phases.push(outcome.phases[0].clone());
    outcome.phases[1].headline = false;
    let mut second = outcome.hosts[0].phases[0].clone();
    second.phase = 1;
    outcome.hosts[0].phases.push(second);
    let run = analyze(&outcome);
    let rows: Vec<_> = run.phases.iter().map(|row| (row.phase, row.tx_bytes > 0)).collect();
    assert_eq!(rows, [(0, true), (1, false)]);
    assert_eq!(run.phases[0].reason, None);
    assert_eq!(run.phases[1].reason.as_deref(), Some("server did not end phase 2"));
}

/// Bytes that wait in buffers when one phase ends arrive in the next.
#[test]
fn bytes_may_arrive_a_phase_later() {
    let mut outcome = stream();
    outcome.phases.push(outcome.phases[0].clone());
    outcome.phases[0].headline = false;
    for host in &mut outcome.hosts {
        let mut second = host.phases[0].clone();
        second.phase = 1;
        host.phases.push(second);
    }
    let waiting = 100_000;
    let first = outcome.hosts[1].phases[0].snapshots.last_mut().unwrap();
    first.counters.bytes.tx_received -= waiting;
    // What it received at the window's end is before that.
    for snapshot in &mut outcome.hosts[1].phases[0].snapshots {
        snapshot.counters.bytes.tx_received =
            snapshot.counters.bytes.tx_received.saturating_sub(waiting);
    }
    for snapshot in &mut outcome.hosts[1].phases[1].snapshots[1..] {
        snapshot.counters.bytes.tx_received += 2 * waiting;
    }
    let run = analyze(&outcome);
    assert_eq!((run.status, run.error), (Status::Ok, None));
}

fn warnings(run: &Run) -> Vec<String> {
    run.warnings.iter().map(|w| w.code.clone()).collect()
}

/// Both ways at a gigabyte a second.
fn both_ways(fault: Fault, clock_error: u64) -> Run {
    let traffic = Traffic { rx_rate: 1e9, ..Traffic::default() };
    let mut outcome = traffic.outcome(fault);
    outcome.hosts[1].clock_error = clock_error;
    analyze(&outcome)
}

/// Workers that wait for their time slices are behind the snapshot in each of its snapshots alike.
#[test]
fn some_milliseconds_of_lag_are_honest() {
    let lag = |seconds| both_ways(Fault::MisjudgedClock { host: 1, seconds }, 0);
    assert_eq!(lag(0.015).error, None);
    assert!(differ(&lag(0.030)));
}

#[test]
fn a_clock_known_to_be_uncertain_is_given_its_uncertainty() {
    let misjudged = Fault::MisjudgedClock { host: 1, seconds: 0.070 };
    assert!(differ(&both_ways(misjudged, 0)));
    assert_eq!(both_ways(misjudged, 70_000_000).error, None);
    let late = Fault::LateSchedule { host: 1, seconds: 0.150 };
    assert!(differ(&both_ways(late, 0)));
    assert!(!differ(&both_ways(late, 60_000_000)));
}

/// A peer that leaves out an answer because the question was lost takes the gap back that the
/// master sees in the answers, so only the sum over the hosts is a loss.
#[test]
fn losses_are_summed_over_the_hosts() {
    let mut outcome = datagrams(100, 140);
    last(&mut outcome, 0).datagrams.lost = -40;
    let run = analyze(&outcome);
    assert_eq!((run.status, run.error), (Status::Ok, None));
    assert_eq!(run.datagrams.map(|d| d.lost), Some(0));
    last(&mut outcome, 0).datagrams.lost = 40;
    assert!(differ(&analyze(&outcome)));
}

/// Counters begin with each phase, and what an earlier phase sent is received in the next one.
#[test]
fn what_an_earlier_phase_sent_may_arrive_in_this_one() {
    let with_earlier_phase = |sent: u64| {
        let mut outcome = Traffic::default().outcome(Fault::None);
        outcome.phases.insert(0, PhasePlan { headline: false, ..outcome.phases[0].clone() });
        for (host, bytes) in outcome.hosts.iter_mut().zip([sent, 0]) {
            let mut headline = host.phases.remove(0);
            headline.phase = 1;
            let mut end = headline.snapshot(Edge::PhaseEnd).unwrap().clone();
            end.counters.bytes = Bytes { tx_sent: bytes, ..Bytes::default() };
            let earlier = PhaseResult { snapshots: vec![end], ..PhaseResult::default() };
            host.phases = vec![earlier, headline];
        }
        for snapshot in &mut outcome.hosts[1].phases[1].snapshots {
            snapshot.counters.bytes.tx_received += EARLIER;
        }
        analyze(&outcome)
    };
    const EARLIER: u64 = 100_000_000_000;
    let run = with_earlier_phase(EARLIER);
    assert!(!differ(&run), "{:?}", run.error);
    assert!(differ(&with_earlier_phase(0)));
}
