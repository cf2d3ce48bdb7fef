//! Datagrams that get lost or come late: nothing waits for them for ever, and all are accounted for.

use proptest::prelude::*;
use wirecost_model::clock::{MICROSECOND, SECOND};

use super::*;

pub(crate) fn udp(kind: &str, bytes: u64, count: u64, conn: u32) -> Flowop {
    op(kind, |o| {
        o.size = Some(Size::Fixed(bytes));
        o.count = count;
        o.conn = Conns::one(conn);
    })
}

/// Lost, by the receivers' numbers, is what was sent less what was received.
pub(super) fn check_accounted(outcome: &Outcome) {
    assert_eq!(outcome.errors, [] as [String; 0]);
    for (number, phase) in outcome.phases.iter().enumerate() {
        let missing = sum(phase, |c| {
            let received = c.datagrams.received - c.datagrams.duplicated;
            c.datagrams.sent as i64 - received as i64
        });
        let lost = sum(phase, |c| c.datagrams.lost);
        let all: Vec<_> = phase.iter().map(|c| c.counters.datagrams).collect();
        assert_eq!(lost, missing, "phase {number}: {all:?}");
        assert!(phase.iter().all(|counted| counted.verify_failures == 0), "phase {number}");
    }
}

pub(crate) fn programs() -> impl Strategy<Value = Vec<Flowop>> {
    let transfer = (any::<bool>(), 1u64..4, 1u32..3, 8u64..200);
    let transfers = prop::collection::vec(transfer, 1..5).prop_map(|transfers| {
        let kinds = |sends| if sends { "sendto" } else { "recvfrom" };
        transfers
            .into_iter()
            .map(|(sends, count, conn, bytes)| udp(kinds(sends), bytes, count, conn))
            .collect()
    });
    prop_oneof![
        // Request and response, both ways round; streams, both ways.
        Just(vec![udp("write", 64, 1, 1), udp("read", 64, 1, 1)]),
        Just(vec![udp("read", 64, 1, 1), udp("write", 64, 1, 1)]),
        (1u64..20).prop_map(|count| vec![udp("write", 100, count, 1)]),
        (1u64..20).prop_map(|count| vec![udp("read", 100, count, 1)]),
        transfers,
    ]
}

/// Some ways through these flowops.
pub(crate) fn order(shape: usize, flowops: &[Flowop]) -> Vec<Part> {
    let all: Vec<Part> = (0..flowops.len() as u32).map(Part::Flowop).collect();
    let (first, rest) = all.split_at(1);
    let choice = |weight, parts: &[Part]| Choice { weight, parts: parts.to_vec() };
    let mix = || Part::Mix(vec![choice(2, first), choice(1, rest)]);
    match shape {
        0 => vec![Part::Loop { times: 3, parts: all }],
        // One of the halves of an exchange alone, or with something else before it.
        1 if !rest.is_empty() => vec![mix()],
        2 if !rest.is_empty() => vec![Part::Loop { times: 2, parts: vec![all[0].clone(), mix()] }],
        _ => Vec::new(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(seed::cases(150, 600)))]

    #[test]
    fn every_datagram_is_accounted_for(
        flowops in programs(),
        timed: bool,
        verify: bool,
        seed: u64,
        loss in prop_oneof![Just(0u64), 0u64..300],
        late in prop_oneof![Just(0u64), 0u64..100],
        twice in prop_oneof![Just(0u64), 0u64..100],
        queue in 4usize..200,
        strands in 1u32..4,
        shape in 0usize..5,
    ) {
        let order = order(shape, &flowops);
        let mut flowops = flowops;
        flowops.iter_mut().for_each(|flowop| flowop.options.verify = verify);
        let second = if seed % 2 == 0 { "a" } else { "b" };
        let open = vec![connect("udp", "a", 1), connect("udp", second, 2)];
        let phase = if timed { lasting(20 * MILLISECOND, flowops) } else { times(20, flowops) };
        let phase = Transaction { order, ..phase };
        // In the second one what is late of the first one may arrive.
        let profile = profile(strands, vec![times(1, open), phase.clone(), phase]);
        let weather = Weather { seed, loss, late, twice, queue, ..Weather::default() };
        let outcome = run(&profile, &Settings { weather, ..Settings::default() });
        check_accounted(&outcome);
        // Where one was lost the other connections may be passed over as well.
        let lost: i64 = outcome.phases.iter().map(|phase| sum(phase, |c| c.datagrams.lost)).sum();
        prop_assert!(late + twice > 0 || lost > 0 || outcome.unread.iter().all(|unread| *unread == 0));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(seed::cases(37, 150)))]

    /// Datagrams beside a stream, and connections that are opened anew all the time.
    #[test]
    fn losses_do_not_stop_what_else_a_strand_does(
        flowops in programs(),
        place in 0usize..5,
        writes: bool,
        reopens: bool,
        timed: bool,
        seed: u64,
        loss in 0u64..200,
    ) {
        let mut flowops = flowops;
        let mut stream = transfer(if writes { "write" } else { "read" }, 300);
        stream.options.conn = Conns::one(3);
        flowops.insert(place.min(flowops.len()), stream);
        let open = vec![connect("udp", "a", 1), connect("udp", "a", 2), connect("tcp", "a", 3)];
        if reopens {
            flowops.splice(0..0, open[..2].to_vec());
            for conn in [1, 2] {
                flowops.push(op("disconnect", |o| o.conn = Conns::one(conn)));
            }
        }
        let phase = if timed { lasting(20 * MILLISECOND, flowops) } else { times(10, flowops) };
        let phases = vec![times(1, open), phase.clone(), phase];
        let phases = if reopens { phases[..2].to_vec() } else { phases };
        let weather = Weather { seed, loss, ..Weather::default() };
        let outcome = run(&profile(2, phases), &Settings { weather, ..Settings::default() });
        check_accounted(&outcome);
        for phase in &outcome.phases {
            let done = |host: usize| -> Vec<u64> {
                phase[host].counters.flowops.iter().map(|row| row.done + row.failed).collect()
            };
            prop_assert_eq!(done(0), done(1));
        }
    }
}

#[test]
fn a_lost_answer_is_counted_and_the_strand_goes_on() {
    let pairs = vec![udp("write", 64, 1, 1), udp("read", 64, 1, 1)];
    let open = vec![connect("udp", "a", 1)];
    let profile = profile(1, vec![times(1, open), times(200, pairs)]);
    let weather = Weather { loss: 100, ..Weather::default() };
    let outcome = run(&profile, &Settings { weather, ..Settings::default() });
    check_accounted(&outcome);
    let (master, peer) = (&outcome.phases[1][0].counters, &outcome.phases[1][1].counters);
    let lost = sum(&outcome.phases[1], |c| c.datagrams.lost) as u64;
    assert!((20..60).contains(&lost), "{lost}");
    let read = master.flowops[1];
    assert_eq!((read.failed, read.timeouts), (lost, lost));
    assert_eq!(master.transactions, 200 - lost);
    assert_eq!(read.done, master.transactions);
    // A time-out takes a second unless the profile says otherwise, and nothing else waits.
    let length = outcome.drain[1] - outcome.drain[0];
    assert!(length > lost * SECOND && length < lost * SECOND + SECOND, "{length}");
    assert_eq!(peer.flowops[0].failed, 0);
}

#[test]
fn a_stream_of_datagrams_is_not_waited_for_when_it_ends() {
    for kind in ["write", "read"] {
        let phase = lasting(50 * MILLISECOND, vec![udp(kind, 100, 1, 1)]);
        let profile = profile(2, vec![times(1, vec![connect("udp", "a", 1)]), phase]);
        let outcome = run(&profile, &Settings::default());
        check_accounted(&outcome);
        let missing = sum(&outcome.phases[1], |c| c.datagrams.lost);
        let drain = if missing == 0 { 10 * MILLISECOND } else { 300 * MILLISECOND };
        assert!(outcome.drain[1] < drain, "{kind}: {} us", outcome.drain[1] / MICROSECOND);
    }
}

/// It says nothing of the traffic, which comes all the same.
#[test]
fn a_refused_answer_to_a_hello_fails_nothing() {
    let open = vec![connect("udp", "a", 1)];
    let profile = profile(2, vec![times(1, open), times(5, vec![udp("write", 64, 1, 1)])]);
    let weather = Weather { answers_refused: true, ..Weather::default() };
    let outcome = run(&profile, &Settings { weather, ..Settings::default() });
    check_accounted(&outcome);
    let received = outcome.phases[1][1].counters.flowops[0];
    assert_eq!((received.done, received.failed), (10, 0));
}
