//! Operations that fail where they may, and time-outs.

use proptest::prelude::*;
use wirecost_model::clock::{MICROSECOND, SECOND};

use super::*;

fn may_fail(mut flowop: Flowop, timeout: Nanos) -> Flowop {
    flowop.options.canfail = true;
    flowop.options.timeout = (timeout > 0).then(|| Duration::from_nanos(timeout));
    flowop
}

fn verified(mut flowop: Flowop) -> Flowop {
    flowop.options.verify = true;
    flowop
}

fn failed(host: &Counted) -> u64 {
    host.counters.flowops.iter().map(|row| row.failed).sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(seed::cases(37, 150)))]

    /// Reads and writes that take too long are failures, and the stream stays in step: all that was
    /// sent is received in the same phase, and is what was sent.
    #[test]
    fn time_outs_keep_streams_in_step(
        reads in 0u64..3000,
        writes in 0u64..20_000,
        reading in 10u64..400,
        writing in 1u64..60,
        rsize in prop::option::of(1u64..2500),
        timed: bool,
        iterations in 1u64..20,
        settled: bool,
        seed: u64,
    ) {
        let mut read = verified(may_fail(transfer("read", reads), reading * MICROSECOND));
        read.options.size = Some(Size::Random { min: reads / 2, max: reads });
        read.options.rsize = rsize;
        read.options.count = 1 + seed % 3;
        let write = verified(may_fail(transfer("write", writes), writing * MICROSECOND));
        let mut flowops = vec![write, read];
        // Without it what is owed at the end is received after all transactions.
        flowops.extend(settled.then(|| verified(transfer("read", 10))));
        let phase = if timed {
            lasting(iterations * MILLISECOND, flowops)
        } else {
            times(iterations, flowops)
        };
        let profile = profile(2, vec![times(1, vec![connect("tcp", "a", 0)]), phase.clone(), phase]);
        let stall = Some((1, (3 * MILLISECOND)..(5 * MILLISECOND)));
        let weather = Weather { seed, ..Weather::default() };
        let outcome = run(&profile, &Settings { weather, stall, ..Settings::default() });
        check_conserved(&outcome);
        for phase in &outcome.phases[1..] {
            prop_assert_eq!(failed(&phase[1]), 0, "the peer has no time-outs of its own");
            let operations: Vec<_> =
                phase[0].counters.flowops.iter().map(|row| row.done + row.failed).collect();
            let begun = operations[0];
            prop_assert_eq!(operations[1], begun * (1 + seed % 3));
            prop_assert!(operations.get(2).is_none_or(|last| *last == begun));
            prop_assert!(phase[0].counters.transactions <= begun);
        }
    }
}

#[test]
fn a_failure_that_may_not_be_ends_the_strand() {
    let read = op("read", |o| {
        o.size = Some(Size::Fixed(10));
        o.timeout = Some(Duration::from_millis(5));
    });
    let phases = vec![times(1, vec![connect("tcp", "a", 0)]), times(1, vec![read])];
    let settings = Settings { stall: Some((1, 3 * MILLISECOND..SECOND)), ..Settings::default() };
    let outcome = run(&profile(1, phases), &settings);
    assert_eq!(outcome.errors.len(), 1, "{:?}", outcome.errors);
    assert!(outcome.errors[0].contains("nothing for 5 ms"));
    assert_eq!(outcome.phases[1][0].counters.flowops[0].timeouts, 1);
    assert_eq!(outcome.phases[1][0].counters.transactions, 0);
}

#[test]
fn a_connection_that_is_not_open_is_a_failure_of_what_uses_it() {
    let on = |conn, mut flowop: Flowop| {
        flowop.options.conn = Conns::one(conn);
        flowop
    };
    // The first phase closes connection 2, the second one uses it all the same.
    let open = vec![connect("tcp", "a", 1), connect("tcp", "a", 2)];
    let close = vec![on(2, op("disconnect", |_| ()))];
    let uses = vec![
        on(2, may_fail(transfer("write", 100), 0)),
        on(1, transfer("write", 100)),
        on(1, transfer("read", 100)),
    ];
    let outcome = run(
        &profile(1, vec![times(1, open), times(1, close), times(10, uses)]),
        &Settings::default(),
    );
    check_conserved(&outcome);
    for host in &outcome.phases[2] {
        let rows = &host.counters.flowops;
        assert_eq!((rows[0].done, rows[0].failed, rows[0].timeouts), (0, 10, 0));
        assert_eq!((rows[1].done, rows[1].failed), (10, 0));
        assert_eq!(host.counters.transactions, 0);
    }
}

#[test]
fn a_connection_that_takes_too_long_to_open_is_a_failure() {
    // The second connection comes before the first one in the program, and the peer sleeps.
    let mut open = may_fail(connect("udp", "a", 2), 2 * MILLISECOND);
    open.options.conn = Conns::one(2);
    let mut write = transfer("write", 10);
    write.options.conn = Conns::one(1);
    let phases = vec![times(1, vec![connect("tcp", "a", 1)]), times(3, vec![open, write])];
    let stall = Some((1, 3 * MILLISECOND..10 * MILLISECOND));
    let outcome = run(&profile(1, phases), &Settings { stall, ..Settings::default() });
    check_conserved(&outcome);
    let (master, peer) = (&outcome.phases[1][0].counters, &outcome.phases[1][1].counters);
    let opens = master.flowops[0];
    assert!(opens.timeouts > 0 && opens.failed == opens.timeouts);
    assert_eq!(opens.done + opens.failed, 3);
    assert_eq!(master.transactions, 3 - opens.failed);
    assert_eq!((master.flowops[1].done, peer.transactions), (3, 3));
}

#[test]
fn what_is_owed_does_not_block_both_ends() {
    // Neither message fits the buffers, so without room made for the answers that the master has
    // given up neither end could send.
    let read = may_fail(transfer("read", 6000), 10 * MICROSECOND);
    let phase = times(20, vec![transfer("write", 6000), read]);
    let profile = profile(2, vec![times(1, vec![connect("tcp", "a", 0)]), phase]);
    let outcome = run(&profile, &Settings::default());
    check_conserved(&outcome);
    assert!(outcome.phases[1][0].counters.flowops[1].timeouts > 10);
}

/// Connections that are refused are failed operations; what the peer waits for in vain ends with the
/// phase, and the next one finds both sides in step.
#[test]
fn refused_connections_do_not_keep_a_phase_from_ending() {
    for timed in [true, false] {
        let mut flowops = vec![
            connect("tcp", "a", 0),
            transfer("write", 100),
            transfer("read", 100),
            op("disconnect", |_| {}),
        ];
        flowops = flowops.into_iter().map(|flowop| may_fail(flowop, 0)).collect();
        let phase = if timed { lasting(20 * MILLISECOND, flowops) } else { times(30, flowops) };
        let profile = profile(3, vec![phase.clone(), phase]);
        let weather = Weather { seed: 11, refused: 300, ..Weather::default() };
        let outcome = run(&profile, &Settings { weather, ..Settings::default() });
        for phase in &outcome.phases {
            let [master, peer] = &phase[..] else { panic!("two hosts") };
            assert!(failed(master) > 0 && master.counters.transactions > 0);
            assert_eq!(master.counters.transactions, peer.counters.transactions);
        }
    }
}
