//! Requests that do not wait for answers.

use proptest::prelude::*;
use wirecost_model::clock::MICROSECOND;
use wirecost_model::profile::IoValue;

use super::datagrams::{check_accounted, udp};
use super::*;

fn ahead(most: u64) -> Vec<Flowop> {
    let mut flowops = vec![udp("write", 64, 1, 1), udp("read", 64, 1, 1)];
    for flowop in &mut flowops {
        flowop.options.io.set("outstanding", IoValue::Number(most));
    }
    flowops
}

fn after_connect(strands: u32, transactions: &[Transaction]) -> Profile {
    let open = times(1, vec![connect("udp", "a", 1)]);
    profile(strands, [&[open], transactions].concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(seed::cases(100, 400)))]

    /// Whatever is lost, late or comes twice: all is accounted for, and each answer that is awaited ends a transaction.
    #[test]
    fn every_answer_is_accounted_for(
        most in prop_oneof![Just(1u64), 2u64..40, Just(1 << 16)],
        rate in prop::option::of(100.0f64..50_000.0),
        timed: bool,
        seed: u64,
        loss in prop_oneof![Just(0u64), 0u64..300, Just(1000)],
        late in prop_oneof![Just(0u64), 0u64..100],
        twice in prop_oneof![Just(0u64), 0u64..100],
        queue in 4usize..200,
        strands in 1u32..4,
        told_late in prop_oneof![Just(0), 0u64..300 * MICROSECOND],
    ) {
        let phase = if timed { lasting(20 * MILLISECOND, ahead(most)) } else { times(50, ahead(most)) };
        let phase = Transaction { arrivals: rate.map(Arrivals::Even), ..phase };
        let weather = Weather { seed, loss, late, twice, queue, told_late, ..Weather::default() };
        let profile = after_connect(strands, &[phase.clone(), phase]);
        let outcome = run(&profile, &Settings { weather, ..Settings::default() });
        check_accounted(&outcome);
        for of_phase in &outcome.phases[1..] {
            let master = &of_phase[0].counters;
            let answers = master.datagrams.received - master.datagrams.late - master.datagrams.duplicated;
            prop_assert!(master.transactions <= answers);
            if late + twice == 0 {
                prop_assert_eq!(master.transactions, answers);
            }
            if loss + late + twice == 0 && queue as u64 > most * u64::from(strands) {
                prop_assert_eq!(master.transactions, master.datagrams.sent);
            }
            if !timed {
                prop_assert_eq!(master.datagrams.sent, 50 * u64::from(strands));
            }
        }
    }
}

/// There are never more of them on their way, and as many as may be. A network of 50 us one way answers 32 in 100 us.
#[test]
fn as_many_are_on_their_way_as_may_be() {
    for most in [1, 8, 32] {
        let phase = lasting(100 * MILLISECOND, ahead(most));
        let outcome = run(&after_connect(1, &[phase]), &Settings::default());
        check_accounted(&outcome);
        let done = outcome.phases[1][0].counters.transactions;
        let round_trips = 100 * MILLISECOND / (100 * MICROSECOND);
        let share = done as f64 / (most * round_trips) as f64;
        assert!((0.7..=1.05).contains(&share), "{most}: {done}");
    }
}

/// An answer may come before its sender learns that the request was sent, as from a ring. It took its time all the same.
#[test]
fn an_answer_may_come_before_its_request_is_known_to_be_sent() {
    for most in [1, 8] {
        let phase = lasting(50 * MILLISECOND, ahead(most));
        let weather = Weather { told_late: 250 * MICROSECOND, ..Weather::default() };
        let outcome =
            run(&after_connect(1, &[phase]), &Settings { weather, ..Settings::default() });
        check_accounted(&outcome);
        let master = &outcome.phases[1][0];
        assert_eq!(master.counters.transactions, master.counters.datagrams.sent);
        let [fastest, longest] = [0.0, 1.0].map(|part| master.transactions.quantile(part).unwrap());
        assert!(fastest >= 95 * MICROSECOND && longest < 2 * MILLISECOND, "{fastest} {longest}");
    }
}

/// The rate is kept while the peer does nothing, and what was due then waited.
#[test]
fn a_stalled_peer_does_not_hold_up_requests() {
    let phase = Transaction {
        arrivals: Some(Arrivals::Even(1000.0)),
        ..lasting(1000 * MILLISECOND, ahead(1 << 10))
    };
    let weather = Weather { queue: 1000, ..Weather::default() };
    let stall = Some((1, 300 * MILLISECOND..400 * MILLISECOND));
    let outcome =
        run(&after_connect(1, &[phase]), &Settings { weather, stall, ..Settings::default() });
    check_accounted(&outcome);
    let master = &outcome.phases[1][0];
    assert_eq!(master.counters.datagrams.sent, 1000);
    assert_eq!(master.counters.transactions, 1000);
    let longest = master.transactions.max().unwrap();
    assert!(longest.abs_diff(100 * MILLISECOND) < 3 * MILLISECOND, "{longest}");
    assert!(master.transactions.quantile(0.88).unwrap() < MILLISECOND);
    // Answers are read when they come, not when the next request is due.
    assert!(master.transactions.quantile(0.5).unwrap() < 200 * MICROSECOND);
}

/// Where nothing answers, a strand goes on after the time-out, and counts all of them.
#[test]
fn requests_without_an_answer_are_given_up() {
    let mut flowops = ahead(16);
    flowops[1].options.timeout = Some(Duration::from_millis(5));
    let weather = Weather { loss: 1000, ..Weather::default() };
    let phase = lasting(50 * MILLISECOND, flowops);
    let outcome = run(&after_connect(1, &[phase]), &Settings { weather, ..Settings::default() });
    check_accounted(&outcome);
    let sent = outcome.phases[1][0].counters.datagrams.sent;
    assert!((8 * 16..=11 * 16).contains(&sent), "{sent}");
    assert_eq!(outcome.phases[1][0].counters.transactions, 0);
}
