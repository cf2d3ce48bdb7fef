//! Connections of one id on top of each other: each connect adds one, as in uperf.

use proptest::prelude::*;

use super::*;

fn disconnect() -> Flowop {
    op("disconnect", |_| {})
}

fn named(mut flowop: Flowop, conn: u32) -> Flowop {
    flowop.options.conn = Conns::one(conn);
    flowop
}

/// Connections arrive in another order than they were opened in.
fn straggling(seed: u64) -> Settings {
    let weather = Weather { seed, straggle: 2 * MILLISECOND, ..Weather::default() };
    Settings { weather, ..Settings::default() }
}

#[test]
fn each_connect_adds_a_connection_and_disconnect_closes_the_newest() {
    for opening in ["connect", "accept"] {
        let mut open = connect("tcp", "a", 0);
        open.kind = opening.to_owned();
        let phases = vec![
            times(100, vec![open.clone()]),
            times(7, vec![transfer("write", 100), transfer("read", 10)]),
            times(60, vec![disconnect()]),
            lasting(5 * MILLISECOND, vec![open, transfer("read", 30), disconnect()]),
            times(40, vec![disconnect()]),
        ];
        let outcome = run(&profile(3, phases), &straggling(5));
        check_conserved(&outcome);
        let of_both = |open: usize| vec![3 * open; 2];
        assert_eq!(outcome.open, [100, 100, 40, 40, 0].map(of_both), "{opening}");
    }
}

#[test]
fn flowops_use_the_newest_connection_of_their_id() {
    // What one end writes to a connection the other end reads from the same one, or it would read
    // what was written before.
    let verified = |kind: &str, bytes| {
        let mut flowop = transfer(kind, bytes);
        flowop.options.verify = true;
        flowop
    };
    let phases = vec![
        times(1, vec![connect("tcp", "a", 0), named(connect("tcp", "a", 4), 4)]),
        times(
            20,
            vec![
                verified("write", 300),
                connect("tcp", "a", 0),
                verified("write", 200),
                named(verified("read", 50), 4),
                connect("tcp", "a", 0),
                verified("read", 100),
                disconnect(),
                verified("read", 20),
            ],
        ),
        times(20, vec![verified("write", 10), disconnect()]),
        times(1, vec![verified("write", 10), named(verified("write", 10), 4)]),
    ];
    for seed in 0..20 {
        let outcome = run(&profile(2, phases.clone()), &straggling(seed));
        check_conserved(&outcome);
        assert_eq!(outcome.open, [4, 44, 4, 4].map(|open| vec![open; 2]));
    }
}

#[test]
fn the_newest_connection_may_lead_elsewhere() {
    let phases = vec![
        times(1, vec![connect("tcp", "a", 0), connect("tcp", "b", 0), connect("udp", "a", 0)]),
        times(5, vec![transfer("write", 11)]),
        times(1, vec![disconnect()]),
        times(5, vec![transfer("write", 100), transfer("read", 30)]),
        times(1, vec![disconnect(), transfer("write", 1000)]),
    ];
    let outcome = run(&profile(1, phases), &Settings::default());
    check_conserved(&outcome);
    let received = |phase: usize, host: usize| {
        let bytes = &outcome.phases[phase][host].counters.bytes;
        bytes.tx_received
    };
    assert_eq!([received(1, 1), received(1, 2)], [55, 0]);
    assert_eq!([received(3, 1), received(3, 2)], [0, 500]);
    assert_eq!([received(4, 1), received(4, 2)], [1000, 0]);
}

#[test]
fn a_strand_holds_no_more_connections_than_its_plan_says() {
    let phases = vec![lasting(60_000 * MILLISECOND, vec![connect("tcp", "a", 0)])];
    let outcome = run(&profile(1, phases), &Settings::default());
    assert_eq!(outcome.errors.len(), 1, "{:?}", outcome.errors);
    assert!(outcome.errors[0].contains("holds 16384 connections"), "{}", outcome.errors[0]);
}

#[test]
fn a_connection_that_could_not_be_opened_is_not_counted() {
    let may_fail = |mut flowop: Flowop| {
        flowop.options.canfail = true;
        flowop
    };
    // As uperf's test canfail.xml.
    let phases = vec![
        times(200, vec![may_fail(connect("tcp", "a", 0))]),
        times(3, vec![transfer("write", 100), transfer("read", 100)]),
        times(50, vec![disconnect()]),
    ];
    let mut settings = straggling(3);
    settings.weather.refused = 300;
    let outcome = run(&profile(2, phases), &settings);
    check_conserved(&outcome);
    let [master, peer] = &outcome.phases[0][..] else { panic!("two hosts") };
    let (failed, done) = (master.counters.flowops[0].failed, master.counters.flowops[0].done);
    assert!(failed > 50 && failed + done == 400);
    assert_eq!(peer.counters.flowops[0].done, done);
    let open = |phase: usize| outcome.open[phase].iter().map(|&open| open as u64);
    assert!(open(0).all(|open| open == done));
    assert!(open(2).all(|open| open == done - 100));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(seed::cases(50, 200)))]

    /// Both ends hold the same connections, whatever is opened, used and closed in which order.
    #[test]
    fn both_ends_hold_the_same_connections(
        kinds in prop::collection::vec((0usize..6, 0u32..2, 1u64..300), 1..12),
        iterations in 1u64..12,
        datagrams: bool,
        seed: u64,
    ) {
        let protocol = if datagrams { "udp" } else { "tcp" };
        let open = |id| connect(protocol, "a", id);
        let flowops: Vec<Flowop> = kinds
            .iter()
            .map(|&(kind, id, size)| match kind {
                0 | 1 => {
                    let mut flowop = open(id);
                    flowop.kind = if kind == 0 { "connect" } else { "accept" }.to_owned();
                    flowop.options.count = 1 + size % 3;
                    flowop
                }
                2 | 3 => named(transfer("write", size), id),
                4 => named(transfer("read", size), id),
                _ => named(disconnect(), id),
            })
            .collect();
        // As many below as may be closed.
        let below: u64 = iterations * kinds.len() as u64;
        let first = vec![times(below, vec![open(0), open(1)])];
        let phases = [first, vec![times(iterations, flowops)]].concat();
        let outcome = run(&profile(2, phases), &straggling(seed));
        check_conserved(&outcome);
        for phase in &outcome.open {
            prop_assert_eq!(phase[0], phase[1]);
        }
        let change: i64 = kinds
            .iter()
            .map(|&(kind, _, size)| match kind {
                0 | 1 => 1 + (size % 3) as i64,
                5 => -1,
                _ => 0,
            })
            .sum();
        let after = 2 * (2 * below as i64 + iterations as i64 * change);
        prop_assert_eq!(outcome.open[1][0] as i64, after);
    }
}
