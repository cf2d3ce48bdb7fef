//! What one side sends the other receives, whatever the program.

use proptest::prelude::*;

use super::*;
use crate::route::nesting;

/// A flowop to be: what, on which of the connections, and numbers to make its options of.
#[derive(Debug, Clone)]
struct Seed {
    kind: usize,
    conn: usize,
    more: u32,
    size: u64,
    random: bool,
    count: u64,
    repeat: u64,
    rsize: Option<u64>,
    verify: bool,
    /// Of which distribution its length is.
    drawn: usize,
    /// What loop or mix it is in.
    within: usize,
}

fn seed() -> impl Strategy<Value = Seed> {
    let numbers = (0u64..3000, any::<bool>(), 1u64..4, 1u64..3);
    let rsize = prop::option::weighted(0.3, 1u64..4000);
    let shape = (any::<bool>(), 0usize..7, 0usize..6);
    (0usize..11, 0usize..4, 0u32..4, numbers, rsize, shape).prop_map(
        |(kind, conn, more, (size, random, count, repeat), rsize, (verify, drawn, within))| Seed {
            kind,
            conn,
            more,
            size,
            random,
            count,
            repeat,
            rsize,
            verify,
            drawn,
            within,
        },
    )
}

/// A quantity of at most `most`.
fn quantity(seed: &Seed, most: u64) -> Quantity {
    let min = most / 3;
    let table = |values: [u64; 2]| values.map(|value| Weighted { value, weight: 1 + value as u32 });
    let lognormal = Quantity::Lognormal { median: most / 2, sigma: 900_000, min, max: most };
    match seed.drawn {
        0 => Quantity::Random { min, max: most },
        1 => lognormal,
        2 => Quantity::Exponential { mean: most / 2, min, max: most },
        3 => Quantity::Table(table([min, most]).into()),
        4 => Quantity::Imix { headers: 28 },
        5 => Quantity::ByStrand(ByStrand::Spread { first: most, last: min }),
        _ => Quantity::ByStrand(ByStrand::Drawn(Box::new(lognormal))),
    }
}

/// Puts the flowops of each seed into loops and mixes.
fn order(seeds: &[Seed], lengths: &[usize]) -> Vec<Part> {
    let mut next = 0;
    let mut parts = Vec::new();
    for (seed, &length) in seeds.iter().zip(lengths) {
        // What is closed and opened again stays together.
        let own = (next..next + length as u32).map(Part::Flowop).collect();
        let own = vec![Part::Loop { times: 1, parts: own }];
        next += length as u32;
        let looped = |times| Part::Loop { times, parts: own.clone() };
        let choice = |weight, parts| Choice { weight, parts };
        let deep = parts.last().is_some_and(|part| nesting(std::slice::from_ref(part)) > 1);
        let within = if deep { 4 } else { seed.within };
        match (within, parts.pop()) {
            (0, before) => {
                parts.extend(before);
                parts.push(looped(3));
            }
            // The one before and this one take turns.
            (1, Some(before)) => {
                parts.push(Part::Mix(vec![choice(2, vec![before]), choice(1, own)]));
            }
            (2, Some(before)) => {
                let parts_of_it = [vec![before], own].concat();
                parts.push(Part::Loop { times: 2, parts: parts_of_it });
            }
            (3, Some(before)) => {
                let inner = Part::Mix(vec![choice(1, vec![before]), choice(5, vec![looped(2)])]);
                parts.push(Part::Loop { times: 2, parts: vec![inner] });
            }
            (_, before) => parts.extend(before.into_iter().chain(own)),
        }
    }
    parts
}

/// Who opens each connection, and to which host.
fn conns() -> impl Strategy<Value = Vec<(bool, bool)>> {
    prop::collection::vec((any::<bool>(), any::<bool>()), 1..4)
}

fn opening((accept, second): (bool, bool), id: u32) -> Flowop {
    let host = if second { "b" } else { "a" };
    let protocol = if second { "unix" } else { "tcp" };
    let mut flowop = connect(protocol, host, id);
    if accept {
        flowop.kind = "accept".to_owned();
    }
    flowop
}

fn flowops(seed: &Seed, conns: &[(bool, bool)]) -> Vec<Flowop> {
    let kinds = ["write", "send", "sendto", "read", "recv", "recvfrom", "sendfile", "think", "nop"];
    let index = seed.conn % conns.len();
    let first = index as u32 + 1;
    let Some(kind) = kinds.get(seed.kind) else {
        // Closed and opened again.
        let close = op("disconnect", |o| o.conn = Conns::one(first));
        let open = opening(conns[index], first);
        return if seed.kind == 9 { vec![close, open] } else { vec![open] };
    };
    vec![op(kind, |o| match *kind {
        "think" => {
            o.duration = Some(match quantity(seed, seed.size * 1000) {
                Quantity::Imix { .. } => Pause::Fixed(seed.size * 1000),
                drawn => drawn,
            });
            // Of one host only, sometimes.
            o.remotehost = (seed.more == 3 && conns.iter().any(|c| !c.1)).then(|| "a".to_owned());
            // Another host may then be thousands of transactions ahead, each of which would be spun
            // through when the phase ends.
            o.busy = seed.random && o.remotehost.is_none();
        }
        "nop" => {}
        _ => {
            let last = (first + seed.more).min(conns.len() as u32);
            o.conn = Conns { first, last };
            o.count = seed.count;
            o.repeat = seed.repeat;
            if *kind == "sendfile" {
                o.dir = Some("/files".to_owned());
                o.size = seed.random.then_some(Size::Fixed(seed.size + 1));
                return;
            }
            o.rsize = seed.rsize;
            o.verify = seed.verify;
            o.size =
                Some(if seed.random { quantity(seed, seed.size) } else { Size::Fixed(seed.size) });
        }
    })]
}

fn transaction(conns: Vec<(bool, bool)>) -> impl Strategy<Value = Transaction> {
    let rate = prop::option::weighted(0.3, (200.0f64..5000.0, any::<bool>()));
    (prop::collection::vec(seed(), 1..6), any::<bool>(), 0u64..20, rate, any::<bool>()).prop_map(
        move |(seeds, timed, length, rate, ordered)| {
            let of_seeds: Vec<_> = seeds.iter().map(|seed| flowops(seed, &conns)).collect();
            let lengths: Vec<usize> = of_seeds.iter().map(Vec::len).collect();
            let flowops = of_seeds.concat();
            let mut transaction = if timed {
                lasting(length * MILLISECOND, flowops)
            } else {
                times(length / 3, flowops)
            };
            transaction.arrivals = rate.map(|(rate, even)| match even {
                true => Arrivals::Even(rate),
                false => Arrivals::Poisson(rate),
            });
            if ordered {
                transaction.order = order(&seeds, &lengths);
            }
            transaction
        },
    )
}

fn profiles() -> impl Strategy<Value = Profile> {
    conns().prop_flat_map(|conns| {
        let open = times(1, conns.iter().zip(1..).map(|(&conn, id)| opening(conn, id)).collect());
        (1u32..4, prop::collection::vec(transaction(conns), 1..4)).prop_map(
            move |(strands, mut transactions)| {
                transactions.insert(0, open.clone());
                profile(strands, transactions)
            },
        )
    })
}

/// Whether a host moves or opens something in a phase, so goes in step with the master.
fn in_step(program: &Program, phase: usize) -> bool {
    let phases = program.groups.iter().filter_map(|g| g.phases[phase].as_ref());
    phases.flat_map(|p| &p.acts).any(|act| !matches!(act.kind.as_str(), "think" | "nop"))
}

/// Whether there is a mix in a phase.
fn mixed(program: &Program, phase: usize) -> bool {
    fn in_parts(parts: &[Part]) -> bool {
        parts.iter().any(|part| match part {
            Part::Flowop(_) => false,
            Part::Loop { parts, .. } => in_parts(parts),
            Part::Mix(_) => true,
        })
    }
    program.groups.iter().any(|g| g.phases[phase].as_ref().is_some_and(|p| in_parts(&p.order)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(seed::cases(150, 600)))]

    #[test]
    fn everything_sent_is_received(
        profile in profiles(),
        seed: u64,
        ramp in 0u64..5,
        buffer in 1usize..6000,
        piece in 1u64..4000,
        straggle in 0u64..2,
    ) {
        let weather = Weather {
            seed,
            buffer: buffer.max(200),
            piece: piece.max(100),
            files: vec![1, 700, 5000],
            straggle: straggle * MILLISECOND,
            ..Weather::default()
        };
        let settings = Settings { weather, ramp: ramp * MILLISECOND, ..Settings::default() };
        let outcome = run(&profile, &settings);
        check_conserved(&outcome);
        for (number, phase) in outcome.phases.iter().enumerate() {
            let master = &phase[0].counters;
            prop_assert!(master.flowops.iter().all(|row| row.failed == 0));
            for (host, program) in phase.iter().zip(&outcome.programs) {
                if !in_step(program, number) {
                    continue;
                }
                if mixed(program, number) {
                    // Some may have had nothing in them for this host.
                    prop_assert!(host.counters.transactions <= master.transactions);
                } else {
                    prop_assert_eq!(host.counters.transactions, master.transactions);
                }
            }
        }
    }
}

#[test]
fn a_host_without_a_part_in_a_phase_does_not_keep_it_from_ending() {
    let on = |conn, mut flowop: Flowop| {
        flowop.options.conn = Conns::one(conn);
        flowop
    };
    let open = vec![connect("tcp", "a", 1), connect("tcp", "b", 2)];
    for phase in [times(5, vec![]), lasting(5 * MILLISECOND, vec![])] {
        let mut phase = phase;
        phase.flowops = vec![on(1, transfer("write", 100)), on(1, transfer("read", 100))];
        let outcome = run(&profile(2, vec![times(1, open.clone()), phase]), &Settings::default());
        check_conserved(&outcome);
        assert!(outcome.drain[1] < 50 * MILLISECOND);
    }
}

#[test]
fn who_could_not_begin_in_time_does_not_begin_later() {
    // The master cannot begin its next write for want of room, when the time is up; the peer makes
    // room just after that.
    let flowops = vec![transfer("write", 1000)];
    let weather = Weather { buffer: 1000, piece: 100_000, ..Weather::default() };
    for after in 0..120 {
        let stall = Some((1, 10 * MILLISECOND..20 * MILLISECOND + after * MILLISECOND / 20));
        let settings = Settings { weather: weather.clone(), stall, ..Settings::default() };
        let phases = vec![
            times(1, vec![connect("tcp", "a", 0)]),
            lasting(20 * MILLISECOND, flowops.clone()),
            lasting(MILLISECOND, flowops.clone()),
        ];
        check_conserved(&run(&profile(1, phases), &settings));
    }
}

#[test]
fn who_only_receives_takes_what_there_is() {
    let run = |single: bool| {
        let mut write = transfer("write", 100);
        write.options.single_reads = single;
        let weather = Weather { buffer: 5_000, piece: 100_000, ..Weather::default() };
        // It comes to a full buffer.
        let stall = Some((1, 2 * MILLISECOND..10 * MILLISECOND));
        let settings = Settings { weather, stall, ..Settings::default() };
        let phases = vec![
            times(1, vec![connect("tcp", "a", 0)]),
            lasting(20 * MILLISECOND, vec![write.clone()]),
            times(7, vec![write, transfer("read", 10)]),
        ];
        run(&profile(1, phases), &settings)
    };
    let (gathered, single) = (run(false), run(true));
    for outcome in [&gathered, &single] {
        check_conserved(outcome);
    }
    let reads = |outcome: &Outcome| -> u64 {
        let receiver = outcome.phases.iter().map(|hosts| &hosts[1].counters);
        receiver.map(|counters| counters.flowops[0].done).sum::<u64>() - 1 + 7
    };
    assert!(single.receives >= reads(&single) as usize);
    assert!(gathered.receives * 2 < reads(&gathered) as usize, "{}", gathered.receives);
}

#[test]
fn who_waits_for_much_does_not_wait_for_long() {
    let weather = Weather { buffer: 1 << 20, piece: 100_000, ..Weather::default() };
    let settings = Settings { weather, ramp: 0, ..Settings::default() };
    // The mark that the fast phase comes to would take seconds in the slow one.
    let slow = Transaction {
        arrivals: Some(Arrivals::Even(1000.0)),
        ..lasting(400 * MILLISECOND, vec![transfer("write", 100)])
    };
    let phases = vec![
        times(1, vec![connect("tcp", "a", 0)]),
        lasting(200 * MILLISECOND, vec![transfer("write", 30_000)]),
        slow,
        times(3, vec![transfer("write", 10)]),
    ];
    let outcome = run(&profile(1, phases), &settings);
    check_conserved(&outcome);
    let about = 8 * MILLISECOND..21 * MILLISECOND;
    assert!(about.contains(&outcome.longest_unread), "{}", outcome.longest_unread);
    assert!(outcome.drain[..3].iter().all(|drain| *drain < 5 * MILLISECOND), "{:?}", outcome.drain);
}
