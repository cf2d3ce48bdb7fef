//! What only native profiles say: distributions, loops, mixes, arrival processes.

use wirecost_model::clock::{MICROSECOND, SECOND};

use super::*;

fn connected(strands: u32, transaction: Transaction) -> Profile {
    profile(strands, vec![times(1, vec![connect("tcp", "a", 0)]), transaction])
}

fn of(kind: &str, size: Quantity) -> Flowop {
    op(kind, |o| o.size = Some(size))
}

fn choice(weight: u32, flowops: &[u32]) -> Choice {
    Choice { weight, parts: flowops.iter().map(|f| Part::Flowop(*f)).collect() }
}

/// Bytes that each flowop of the master moved in phase 1.
fn moved(outcome: &Outcome) -> Vec<u64> {
    let rows = &outcome.phases[1][0].counters.flowops;
    rows.iter().map(|row| row.bytes).collect()
}

fn done(outcome: &Outcome) -> Vec<u64> {
    outcome.phases[1][0].counters.flowops.iter().map(|row| row.done).collect()
}

#[test]
fn loops_count_exactly() {
    let flowops = vec![transfer("write", 100), transfer("read", 10), transfer("write", 1)];
    let inner = Part::Loop { times: 4, parts: vec![Part::Flowop(1)] };
    let outer = Part::Loop { times: 3, parts: vec![Part::Flowop(0), inner] };
    let order = vec![outer, Part::Flowop(2)];
    let outcome =
        run(&connected(2, Transaction { order, ..times(5, flowops) }), &Settings::default());
    check_conserved(&outcome);
    let transactions = 2 * 5;
    assert_eq!(done(&outcome), [transactions * 3, transactions * 12, transactions]);
    assert_eq!(moved(&outcome), [transactions * 300, transactions * 120, transactions]);
    assert_eq!(outcome.phases[1][0].counters.transactions, transactions);
}

#[test]
fn mixes_keep_their_proportions_on_both_ends() {
    let flowops = vec![
        transfer("write", 100),
        transfer("read", 1000),
        transfer("read", 70),
        transfer("write", 3),
    ];
    // In most transactions the master speaks first, in some the peer.
    let order = vec![Part::Mix(vec![choice(8, &[0, 1]), choice(2, &[2, 3])])];
    let outcome =
        run(&connected(10, Transaction { order, ..times(1000, flowops) }), &Settings::default());
    check_conserved(&outcome);
    let done = done(&outcome);
    assert_eq!((done[0], done[2]), (done[1], done[3]));
    assert_eq!(done[0] + done[2], 10_000);
    // Binomial: a standard deviation is 40.
    assert!(done[2].abs_diff(2000) < 160, "{done:?}");
    assert_eq!(outcome.phases[1][1].counters.transactions, 10_000);
}

#[test]
fn a_host_is_not_counted_in_transactions_that_had_nothing_for_it() {
    let on = |host, conn| connect("tcp", host, conn);
    let write = |conn| {
        op("write", |o| {
            o.size = Some(Size::Fixed(10));
            o.conn = Conns::one(conn);
        })
    };
    let order = vec![Part::Mix(vec![choice(3, &[0]), choice(1, &[1])])];
    for phase in [times(1000, vec![]), lasting(10 * MILLISECOND, vec![])] {
        let transaction =
            Transaction { flowops: vec![write(1), write(2)], order: order.clone(), ..phase };
        let open = times(1, vec![on("a", 1), on("b", 2)]);
        let outcome = run(&profile(3, vec![open, transaction]), &Settings::default());
        check_conserved(&outcome);
        let counted: Vec<u64> =
            outcome.phases[1].iter().map(|host| host.counters.transactions).collect();
        assert_eq!(counted[0], counted[1] + counted[2]);
        assert!(counted[2] > 0 && counted[1] > counted[2], "{counted:?}");
        assert!(outcome.drain[1] < 50 * MILLISECOND);
    }
}

#[test]
fn datagrams_of_a_mix_are_accounted_for_when_they_are_lost() {
    let small = op("write", |o| o.size = Some(Size::Fixed(100)));
    let large = op("write", |o| {
        o.size = Some(Size::Imix { headers: 28 });
        o.count = 3;
    });
    let order = vec![Part::Loop {
        times: 2,
        parts: vec![Part::Mix(vec![choice(3, &[0]), choice(2, &[1])])],
    }];
    let open = || times(1, vec![connect("udp", "a", 0)]);
    for seed in 0..20 {
        for phase in [times(300, vec![]), lasting(10 * MILLISECOND, vec![])] {
            let flowops = vec![small.clone(), large.clone()];
            let transaction = Transaction { flowops, order: order.clone(), ..phase };
            let weather =
                Weather { seed, loss: 50, latency: 20 * MICROSECOND, ..Weather::default() };
            let settings = Settings { weather, ..Settings::default() };
            let outcome = run(&profile(2, vec![open(), transaction]), &settings);
            assert_eq!(outcome.errors, [] as [String; 0]);
            let phase = &outcome.phases[1];
            let sent = phase[0].counters.datagrams.sent;
            let peer = phase[1].counters.datagrams;
            assert_eq!(peer.received as i64 + peer.lost, sent as i64, "seed {seed}");
            assert!(peer.lost > 0);
        }
    }
}

#[test]
fn every_distribution_is_drawn_alike_at_both_ends() {
    let quantities = [
        Quantity::Lognormal { median: 500, sigma: 1_000_000, min: 1, max: 20_000 },
        Quantity::Exponential { mean: 500, min: 1, max: 20_000 },
        Quantity::Table(vec![
            Weighted { value: 1, weight: 5 },
            Weighted { value: 9000, weight: 1 },
        ]),
        Quantity::Imix { headers: 40 },
        Quantity::ByStrand(ByStrand::Each(vec![10, 2000, 7])),
        Quantity::ByStrand(ByStrand::Spread { first: 5000, last: 10 }),
    ];
    for quantity in quantities {
        let nested = Quantity::ByStrand(ByStrand::Drawn(Box::new(quantity.clone())));
        for quantity in [quantity.clone(), nested] {
            let mut write = of("write", quantity.clone());
            write.options.verify = true;
            let mut read = of("read", quantity);
            read.options.verify = true;
            read.options.count = 3;
            let order =
                vec![Part::Loop { times: 2, parts: vec![Part::Flowop(0), Part::Flowop(1)] }];
            let transaction = Transaction { order, ..times(20, vec![write, read]) };
            let outcome = run(&connected(5, transaction), &Settings::default());
            // Each message's number and bytes are compared where it ends.
            check_conserved(&outcome);
            assert_eq!(done(&outcome), [5 * 40, 5 * 120]);
        }
    }
}

#[test]
fn a_value_by_strand_is_that_of_the_strand() {
    let by_strand = |values| of("write", Quantity::ByStrand(values));
    let bytes = |flowop: Flowop, strands: u32| {
        moved(&run(&connected(strands, times(10, vec![flowop])), &Settings::default()))[0]
    };
    // The third strand has the first value again.
    let each = ByStrand::Each(vec![100, 7]);
    assert_eq!(bytes(by_strand(each), 3), 10 * (100 + 7 + 100));
    let spread = ByStrand::Spread { first: 100, last: 400 };
    assert_eq!(bytes(by_strand(spread.clone()), 4), 10 * (100 + 200 + 300 + 400));
    assert_eq!(bytes(by_strand(spread), 1), 10 * 100);
    // Drawn once: every transaction of a strand moves as much.
    let drawn = ByStrand::Drawn(Box::new(Quantity::Random { min: 1, max: 1 << 20 }));
    assert_eq!(bytes(by_strand(drawn), 1) % 10, 0);
}

#[test]
fn thoughts_are_drawn() {
    let mean = 200 * MICROSECOND;
    let pause = Quantity::Exponential { mean, min: 0, max: 20 * mean };
    let flowop = op("think", |o| o.duration = Some(pause));
    let outcome = run(&connected(20, times(500, vec![flowop])), &Settings::default());
    check_conserved(&outcome);
    let thoughts = &outcome.phases[1][0].latencies[0];
    assert_eq!(thoughts.count(), 10_000);
    // A standard error is 1% of the mean; a histogram keeps 1%.
    assert!((thoughts.mean().unwrap() / mean as f64 - 1.0).abs() < 0.05);
    let ninth = thoughts.quantile(0.9).unwrap() as f64 / mean as f64;
    assert!((ninth - 10f64.ln()).abs() < 0.15, "{ninth}");
}

#[test]
fn a_poisson_process_has_the_starts_of_one() {
    let (rate, strands, seconds) = (1000.0, 10u32, 2u64);
    let flowops = vec![transfer("write", 64), transfer("read", 64)];
    let transaction = Transaction {
        arrivals: Some(Arrivals::Poisson(rate)),
        ..lasting(seconds * SECOND, flowops)
    };
    let outcome = run(&connected(strands, transaction), &Settings::default());
    check_conserved(&outcome);
    let expected = rate * f64::from(strands) * seconds as f64;
    let count = outcome.phases[1][0].counters.transactions as f64;
    // A Poisson number has its expectation as variance: four standard deviations.
    assert!((count - expected).abs() < 4.0 * expected.sqrt(), "{count}");
    assert!(outcome.drain[1] < 10 * MILLISECOND);
}

#[test]
fn a_trace_is_dealt_to_the_strands() {
    let starts: Vec<u64> = (0..90).map(|n| n * n * 10 * MICROSECOND).collect();
    let trace = Trace { file: String::new(), intervals: false, starts };
    let flowops = vec![transfer("write", 64), transfer("read", 64)];
    let transaction = |length| Transaction {
        arrivals: Some(Arrivals::Trace(trace.clone())),
        ..lasting(length, flowops.clone())
    };
    for strands in [1, 4] {
        let outcome = run(&connected(strands, transaction(SECOND)), &Settings::default());
        check_conserved(&outcome);
        // The trace is over before the phase is.
        assert_eq!(outcome.phases[1][0].counters.transactions, 90);
        // Those of the first 10 ms: n * n * 10 us < 10 ms.
        let outcome = run(&connected(strands, transaction(10 * MILLISECOND)), &Settings::default());
        assert_eq!(outcome.phases[1][0].counters.transactions, 32);
        // Nothing of it is lost to the ramp.
        let settings = Settings { ramp: 20 * MILLISECOND, ..Settings::default() };
        let outcome = run(&connected(strands, transaction(10 * MILLISECOND)), &settings);
        assert_eq!(outcome.phases[1][0].transactions.count(), 32);
    }
}
