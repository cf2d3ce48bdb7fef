//! Datagrams that are handed over before they are due (`txtime`).

use std::collections::BTreeMap;

use proptest::prelude::*;
use wirecost_model::clock::{MICROSECOND, SECOND};
use wirecost_model::profile::IoValue;

use super::datagrams::{check_accounted, udp};
use super::*;

/// How far ahead a message may at least be handed over for calls of the simulation not to be late.
const AHEAD: Nanos = 5 * MILLISECOND;

#[derive(Debug, Clone, Copy)]
struct Timed {
    kind: &'static str,
    lead: Nanos,
    batch: u64,
    gso: u64,
    count: u64,
}

impl Timed {
    fn flowop(self) -> Flowop {
        let mut flowop = udp(self.kind, 64, self.count, 1);
        let io = &mut flowop.options.io;
        io.set("txtime", IoValue::Time(Duration::from_nanos(self.lead)));
        io.set("batch", IoValue::Number(self.batch));
        io.set("gso", IoValue::Number(self.gso));
        flowop
    }

    fn messages(self) -> u64 {
        self.count * self.batch
    }
}

fn at_rate(arrivals: Arrivals, flowops: Vec<Flowop>) -> Transaction {
    Transaction { arrivals: Some(arrivals), ..lasting(100 * MILLISECOND, flowops) }
}

fn run_timed(strands: u32, transaction: Transaction, weather: Weather) -> Outcome {
    let open = times(1, vec![connect("udp", "a", 1)]);
    let close = times(1, vec![op("disconnect", |o| o.conn = Conns::one(1))]);
    let profile = profile(strands, vec![open, transaction, close]);
    run(&profile, &Settings { weather, ..Settings::default() })
}

/// The messages of each connection.
fn by_socket(outcome: &Outcome) -> BTreeMap<usize, Vec<Departed>> {
    let mut of = BTreeMap::<usize, Vec<Departed>>::new();
    for departed in &outcome.departures {
        of.entry(departed.socket).or_default().push(*departed);
    }
    of
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(seed::cases(50, 200)))]

    /// By whatever calls messages are handed over: each leaves when it is due, and the receiver's figures are those of
    /// datagrams sent then.
    #[test]
    fn each_message_leaves_when_it_is_due(
        writes: bool,
        lead in AHEAD..60 * MILLISECOND,
        batch in 1u64..20,
        gso in 1u64..4,
        count in 1u64..4,
        rate in 20.0f64..300.0,
        strands in 1u32..4,
        told_late in prop_oneof![Just(0), 0u64..300 * MICROSECOND],
        seed: u64,
    ) {
        let kind = if writes { "write" } else { "read" };
        let timed = Timed { kind, lead, batch, gso, count };
        let weather = Weather { seed, told_late, queue: 10_000, ..Weather::default() };
        let latency = weather.latency;
        let transaction = at_rate(Arrivals::Even(rate), vec![timed.flowop()]);
        let outcome = run_timed(strands, transaction, weather);
        check_accounted(&outcome);
        let phase = &outcome.phases[1];
        let all = outcome.departures.len() as u64 * gso;
        prop_assert_eq!(sum(phase, |c| c.datagrams.sent as i64), all as i64);
        prop_assert_eq!(sum(phase, |c| c.datagrams.received as i64), all as i64);
        let period = (SECOND as f64 / rate) as Nanos;
        let messages = timed.messages();
        for departed in by_socket(&outcome).into_values() {
            let after = |number: u64| number / messages * period + number % messages * period / messages;
            let last = departed.len() as u64 - 1;
            let start = departed[last as usize].left - after(last);
            for (number, of) in (0..).zip(&departed) {
                let due = start + after(number);
                // The first are due when the phase begins, before which nobody acts.
                let is_early = due < start + MILLISECOND;
                prop_assert!(of.left == due || is_early && of.left >= due, "{number}: {of:?} {due}");
                prop_assert!(of.handed_over <= of.left);
                let begins = start + number / messages * period;
                prop_assert!(of.handed_over + lead >= begins, "{number} too early: {of:?}");
                // The strand waits for nothing but the beginning.
                let late = of.handed_over.saturating_sub(begins.saturating_sub(lead).max(start));
                prop_assert!(told_late > 0 || late < MILLISECOND, "{number} waited: {of:?}");
            }
        }
        // Both are exact to a few calls of the simulation, of which each takes about a microsecond.
        let sender = &phase[usize::from(!writes)];
        for latencies in &sender.latencies {
            prop_assert!(latencies.max().is_none_or(|late| late < MILLISECOND), "{latencies:?}");
        }
        let receiver = &phase[usize::from(writes)];
        if let (Some(min), Some(max)) = (receiver.one_way.min(), receiver.one_way.max()) {
            prop_assert!(min >= latency * 97 / 100, "{min}");
            prop_assert!(max < latency + MILLISECOND, "{max}");
        }
    }

    /// Requests do not wait: their answers count from when they left.
    #[test]
    fn answers_count_from_the_departure(
        lead in AHEAD..60 * MILLISECOND,
        outstanding: bool,
        rate in 20.0f64..300.0,
        loss in prop_oneof![Just(0u64), 0u64..200],
        told_late in prop_oneof![Just(0), 0u64..300 * MICROSECOND],
        seed: u64,
    ) {
        let timed = Timed { kind: "write", lead, batch: 1, gso: 1, count: 1 };
        let mut flowops = vec![timed.flowop(), udp("read", 64, 1, 1)];
        if outstanding {
            flowops[0].options.io.set("outstanding", IoValue::Number(1000));
        }
        let weather = Weather { seed, loss, told_late, ..Weather::default() };
        let trip = 2 * weather.latency;
        let outcome = run_timed(2, at_rate(Arrivals::Poisson(rate), flowops), weather);
        check_accounted(&outcome);
        let master = &outcome.phases[1][0];
        if loss == 0 {
            prop_assert_eq!(master.counters.transactions, outcome.departures.len() as u64);
        }
        if outstanding && let Some(longest) = master.transactions.max() {
            prop_assert!(longest < lead, "{longest}");
        }
        if let Some(shortest) = master.transactions.min() {
            prop_assert!(shortest >= trip * 97 / 100, "{shortest}");
        }
    }
}

/// A strand that comes too late lets its datagrams leave at once, in their order, and says how late they were.
#[test]
fn what_is_late_leaves_at_once_and_in_order() {
    let timed = Timed { kind: "write", lead: MILLISECOND, batch: 4, gso: 1, count: 1 };
    let open = times(1, vec![connect("udp", "a", 1)]);
    let transaction = at_rate(Arrivals::Even(100.0), vec![timed.flowop()]);
    let settings = Settings {
        stall: Some((0, 30 * MILLISECOND..60 * MILLISECOND)),
        weather: Weather { queue: 1000, ..Weather::default() },
        ..Settings::default()
    };
    let outcome = run(&profile(1, vec![open, transaction]), &settings);
    check_accounted(&outcome);
    let departures = &outcome.departures;
    // The last ones are handed over before the end, when they are due.
    assert_eq!(departures.len(), 44);
    assert!(departures.is_sorted_by_key(|departed| departed.left));
    assert!(departures.iter().all(|departed| departed.left >= departed.handed_over));
    let late = departures.iter().filter(|departed| departed.left == departed.handed_over).count();
    assert!((8..=16).contains(&late), "{late}");
    let longest = outcome.phases[1][0].latencies[0].max().unwrap();
    assert!((20 * MILLISECOND..31 * MILLISECOND).contains(&longest), "{longest}");
    assert_eq!(sum(&outcome.phases[1], |c| c.datagrams.reordered as i64), 0);
}

/// Without a rate there is nothing that they follow from.
#[test]
fn a_program_without_a_rate_sends_at_once() {
    let timed = Timed { kind: "write", lead: MILLISECOND, batch: 4, gso: 1, count: 1 };
    let open = times(1, vec![connect("udp", "a", 1)]);
    let paced = at_rate(Arrivals::Even(100.0), vec![timed.flowop()]);
    let mut programs = program::compile(&profile(1, vec![open, paced])).unwrap();
    let lead = |program: &Program| {
        let groups = step::compile(program, 7, &[]).unwrap();
        let phase = groups[0].phases[1].as_ref().unwrap();
        (phase.lead, phase.ahead, phase.quiet)
    };
    assert_eq!(lead(&programs[0]), (MILLISECOND, 8, step::QUIET_PERIOD + 11 * MILLISECOND));
    // Who only receives waits as long for what has not left yet.
    assert_eq!(lead(&programs[1]), (0, 0, step::QUIET_PERIOD + 11 * MILLISECOND));
    programs[0].groups[0].phases[1].as_mut().unwrap().arrivals = None;
    assert_eq!(lead(&programs[0]), (0, 0, step::QUIET_PERIOD));
}
