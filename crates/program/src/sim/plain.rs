//! Plain phases come to the same whether or not their steps are taken the plain way.

use proptest::prelude::*;
use wirecost_model::measure::Datagrams;

use super::datagrams::{check_accounted, udp};
use super::*;

/// What a host counted, but for times.
#[derive(Debug, PartialEq, Eq)]
struct Counts {
    transactions: u64,
    /// Operations and latencies of each row.
    rows: Vec<(u64, u64)>,
    /// Of all rows: what is received ahead counts for the operation that received it.
    bytes: u64,
    /// Latencies of transactions of several operations.
    timed: u64,
}

fn counts(outcome: &Outcome) -> Vec<Counts> {
    let of_host = |counted: &Counted| {
        let rows = counted.counters.flowops.iter().zip(&counted.latencies);
        Counts {
            transactions: counted.counters.transactions,
            rows: rows.map(|(row, latency)| (row.done, latency.count())).collect(),
            bytes: counted.counters.flowops.iter().map(|row| row.bytes).sum(),
            timed: counted.transactions.count(),
        }
    };
    outcome.phases.iter().flatten().map(of_host).collect()
}

fn message(writes: bool, conn: u32, size: u64) -> Flowop {
    op(if writes { "write" } else { "read" }, |o| {
        o.conn = Conns::one(conn);
        o.size = Some(Size::Fixed(size));
    })
}

fn flowops() -> impl Strategy<Value = Vec<Flowop>> {
    let sizes = || prop_oneof![1u64..200, 1u64..20_000];
    let flowop = (any::<bool>(), 0u32..2, sizes())
        .prop_map(|(writes, conn, size)| message(writes, conn, size));
    let exchange = (any::<bool>(), sizes(), sizes())
        .prop_map(|(asks, first, second)| vec![message(asks, 0, first), message(!asks, 0, second)]);
    prop_oneof![prop::collection::vec(flowop, 1..4), exchange]
}

fn weather() -> impl Strategy<Value = Weather> {
    let times = prop_oneof![Just(1u64), 1u64..100];
    (1usize..30_000, 1u64..20_000, any::<u64>(), times, any::<bool>()).prop_map(
        |(buffer, piece, seed, times, silent)| Weather {
            buffer,
            piece,
            seed,
            times,
            silent,
            ..Weather::default()
        },
    )
}

fn after_connect(strands: u32, transaction: Transaction) -> Profile {
    let open = vec![connect("tcp", "a", 0), connect("tcp", "a", 1)];
    profile(strands, vec![times(1, open), transaction])
}

proptest! {
    #[test]
    fn the_plain_way_comes_to_the_same(
        flowops in flowops(), strands in 1u32..3, iterations in 1u64..60, weather in weather(),
    ) {
        let profile = after_connect(strands, times(iterations, flowops));
        let run = |general| run(&profile, &Settings { weather: weather.clone(), general, ..Settings::default() });
        let (plain, general) = (run(false), run(true));
        prop_assert_eq!(&plain.errors, &general.errors);
        prop_assert_eq!(&plain.unread, &general.unread);
        prop_assert_eq!(counts(&plain), counts(&general));
    }

    #[test]
    fn the_plain_way_ends_in_time(flowops in flowops(), strands in 1u32..3, weather in weather()) {
        let profile = after_connect(strands, lasting(5 * MILLISECOND, flowops));
        let settings = Settings { weather, ramp: MILLISECOND, ..Settings::default() };
        let outcome = run(&profile, &settings);
        check_conserved(&outcome);
        let [master, peer] = [0, 1].map(|host| &outcome.phases[1][host].counters);
        prop_assert_eq!(master.transactions, peer.transactions);
        // Both count all of a phase, and time what ends in its window.
        let timed = |host: usize| {
            let counted = &outcome.phases[1][host];
            let rows = counted.latencies.iter().map(Histogram::count).sum::<u64>();
            rows <= counted.counters.flowops.iter().map(|row| row.done).sum()
        };
        prop_assert!(timed(0) && timed(1));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(seed::cases(75, 300)))]

    /// Of datagrams too, whatever happens to them.
    #[test]
    fn datagrams_come_to_the_same(
        kind in prop_oneof![Just("write"), Just("read")],
        size in 8u64..2000,
        timed: bool,
        seed: u64,
        loss in prop_oneof![Just(0u64), 0u64..300],
        late in prop_oneof![Just(0u64), 0u64..100],
        twice in prop_oneof![Just(0u64), 0u64..100],
        queue in prop_oneof![4usize..200, Just(1000)],
        strands in 1u32..3,
        answers_refused: bool,
    ) {
        let flowops = vec![udp(kind, size, 1, 1)];
        let phase = if timed { lasting(5 * MILLISECOND, flowops) } else { times(300, flowops) };
        let profile = profile(strands, vec![times(1, vec![connect("udp", "a", 1)]), phase.clone(), phase]);
        let weather = Weather { seed, loss, late, twice, queue, answers_refused, ..Weather::default() };
        let run = |general| run(&profile, &Settings { weather: weather.clone(), general, ..Settings::default() });
        let (plain, general) = (run(false), run(true));
        check_accounted(&plain);
        for phase in &plain.phases[1..] {
            let [sender, receiver] = if kind == "write" { [0, 1] } else { [1, 0] };
            let [sender, receiver] = [sender, receiver].map(|host: usize| &phase[host].counters);
            prop_assert_eq!(sender.transactions, sender.datagrams.sent);
            let Datagrams { received, late, duplicated, .. } = receiver.datagrams;
            let known = received - late - duplicated;
            // The receiver of a phase that another one follows may still get what that one sends again.
            prop_assert!(receiver.transactions == known || twice > 0 && receiver.transactions < known);
        }
        // Turns are not equally long: what overflows or is lost is another datagram.
        if timed || queue < 1000 || strands > 1 || loss + late + twice > 0 {
            return Ok(());
        }
        prop_assert_eq!(counts(&plain), counts(&general));
        let datagrams = |outcome: &Outcome| {
            let counters = outcome.phases.iter().flatten().map(|counted| counted.counters.datagrams);
            counters.map(|of| (of.sent, of.received, of.lost, of.jitters)).collect::<Vec<_>>()
        };
        prop_assert_eq!(datagrams(&plain), datagrams(&general));
    }
}

#[test]
fn a_turn_sends_two_large_messages_or_many_small_ones() {
    let longest_turn = |size| {
        let write = op("write", |o| o.size = Some(Size::Fixed(size)));
        let weather = Weather { buffer: 1 << 30, piece: 1 << 60, ..Weather::default() };
        let settings = Settings { weather, whole_messages: true, ..Settings::default() };
        run(&after_connect(1, times(100, vec![write])), &settings).longest_turn >> 10
    };
    assert_eq!([4, 8, 32].map(|size| longest_turn(size << 10)), [256; 3]);
    assert_eq!([40, 48, 64].map(|size| longest_turn(size << 10)), [80, 96, 128]);
    assert_eq!([65, 128, 1024].map(|size| longest_turn(size << 10)), [65, 128, 1024]);
}
