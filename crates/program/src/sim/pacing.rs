//! Rates, windows, latencies and think times.

use proptest::prelude::*;
use wirecost_model::clock::{MICROSECOND, SECOND};

use super::*;

fn exchange() -> Vec<Flowop> {
    vec![transfer("write", 64), transfer("read", 64)]
}

fn paced(rate: f64, length: Nanos, flowops: Vec<Flowop>) -> Transaction {
    Transaction { arrivals: Some(Arrivals::Even(rate)), ..lasting(length, flowops) }
}

fn after_connect(strands: u32, transaction: Transaction) -> Profile {
    profile(strands, vec![times(1, vec![connect("tcp", "a", 0)]), transaction])
}

fn stalled(from: Nanos, to: Nanos) -> Settings {
    Settings { stall: Some((1, from..to)), ..Settings::default() }
}

fn near(value: u64, expected: u64, percent: u64) -> bool {
    value.abs_diff(expected) * 100 <= expected * percent
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(seed::cases(25, 100)))]

    /// As many transactions as the rate says, also where the peer does nothing for a while.
    #[test]
    fn the_rate_is_kept(
        strands in 1u32..5,
        rate in 20.0f64..2000.0,
        shape in 0usize..4,
        stall in prop::option::of(0u64..80),
        seed: u64,
    ) {
        let flowops = match shape {
            0 => exchange(),
            1 => vec![transfer("write", 64)],
            2 => vec![transfer("read", 64)],
            _ => vec![think(20 * MICROSECOND), transfer("write", 64), transfer("read", 64)],
        };
        let length = 200 * MILLISECOND;
        let stall = stall.map(|from| (1, (10 + from) * MILLISECOND..(50 + from) * MILLISECOND));
        let weather = Weather { seed, latency: 20 * MICROSECOND, ..Weather::default() };
        let settings = Settings { weather, stall, ..Settings::default() };
        let outcome = run(&after_connect(strands, paced(rate, length, flowops)), &settings);
        check_conserved(&outcome);
        let expected = rate * 0.2 * f64::from(strands);
        for host in &outcome.phases[1] {
            let transactions = host.counters.transactions as f64;
            prop_assert!((transactions - expected).abs() <= f64::from(strands) + 1e-6 * expected);
        }
        // Some turns for each transaction; a strand that spins would have thousands.
        prop_assert!((outcome.turns as f64) < 100.0 + 40.0 * expected);
    }
}

#[test]
fn latency_counts_from_the_intended_start() {
    // A transaction each millisecond; the peer does nothing for 100 ms of a second.
    for flowops in [exchange(), [vec![think(10 * MICROSECOND)], exchange()].concat()] {
        let settings = stalled(300 * MILLISECOND, 400 * MILLISECOND);
        let outcome = run(&after_connect(1, paced(1000.0, SECOND, flowops)), &settings);
        check_conserved(&outcome);
        let master = &outcome.phases[1][0].transactions;
        assert!(near(master.count(), 1000, 1), "{}", master.count());
        assert!(near(master.max().unwrap(), 100 * MILLISECOND, 3));
        // Of a thousand, a hundred were due in the stall and waited for what was left of it.
        assert!(near(master.quantile(0.95).unwrap(), 55 * MILLISECOND, 10));
        assert!(master.quantile(0.88).unwrap() < MILLISECOND);
    }
}

#[test]
fn starts_are_even_and_strands_take_turns() {
    let outcome = run(&after_connect(4, paced(100.0, SECOND, exchange())), &Settings::default());
    let master = &outcome.phases[1][0];
    assert!(near(master.counters.transactions, 400, 1));
    // Nobody waits for another: all are as quick as an exchange alone.
    assert!(master.transactions.max().unwrap() < 200 * MICROSECOND);
}

#[test]
fn only_the_window_is_in_the_histograms() {
    let settings = Settings { ramp: 30 * MILLISECOND, ..Settings::default() };
    for transaction in
        [lasting(20 * MILLISECOND, exchange()), paced(5000.0, 20 * MILLISECOND, exchange())]
    {
        let outcome = run(&after_connect(2, transaction), &settings);
        check_conserved(&outcome);
        for host in &outcome.phases[1] {
            let all = host.counters.transactions;
            let counted = host.transactions.count();
            // 20 of 50 ms, but for those under way at the edges.
            assert!(near(counted, all * 20 / 50, 5), "{counted} of {all}");
            for (row, latency) in host.counters.flowops.iter().zip(&host.latencies) {
                assert_eq!(row.done, all);
                assert!(near(latency.count(), all * 20 / 50, 5));
            }
        }
    }
    // Where iterations decide, all counts.
    let outcome = run(&after_connect(2, times(50, exchange())), &settings);
    assert_eq!(outcome.phases[1][0].transactions.count(), 100);
}

#[test]
fn thinking_is_no_latency() {
    for busy in [false, true] {
        let flowops = [
            vec![think(MILLISECOND)],
            exchange(),
            vec![{
                let mut last = think(2 * MILLISECOND);
                last.options.busy = busy;
                last
            }],
        ]
        .concat();
        let outcome = run(&after_connect(1, times(20, flowops)), &Settings::default());
        check_conserved(&outcome);
        let master = &outcome.phases[1][0];
        assert!(master.transactions.max().unwrap() < 300 * MICROSECOND, "busy {busy}");
        let thoughts = &master.latencies[3];
        assert!(near(thoughts.quantile(0.5).unwrap(), 2 * MILLISECOND, 2));
    }
}

#[test]
fn a_stalled_peer_shows_in_the_time_of_its_phase_only() {
    // Of a closed loop one transaction is slow.
    let settings = stalled(20 * MILLISECOND, 40 * MILLISECOND);
    let outcome = run(&after_connect(1, lasting(100 * MILLISECOND, exchange())), &settings);
    check_conserved(&outcome);
    let master = &outcome.phases[1][0].transactions;
    assert!(near(master.max().unwrap(), 20 * MILLISECOND, 3));
    assert!(master.quantile(0.99).unwrap() < 300 * MICROSECOND);
}
