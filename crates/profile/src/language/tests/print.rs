//! Printing loses nothing: what is printed parses to the same profile.

use std::time::Duration;

use proptest::option::of;
use proptest::prelude::*;
use wirecost_model::profile::{
    Arrivals, Cipher, Conns, Flowop, Group, IoValue, IoValues, Options, Payload, Position, Profile,
    Sctp, Size, Transaction, Until,
};

use super::super::names::{flowop_names, protocol_names};
use super::super::{Form, OptionDef, ValueKind, options as all_options, print};
use super::*;
use crate::io_options::{self, ValueType};

/// Numbers that the language can hold.
fn int(min: u64) -> impl Strategy<Value = u64> {
    prop_oneof![min..1000, min..=i32::MAX as u64]
}

fn text() -> impl Strategy<Value = String> {
    "[^\u{0}]{1,12}"
}

fn time() -> impl Strategy<Value = Duration> {
    (1..1000u64, 0..5u32).prop_map(|(n, power)| Duration::from_nanos(n * 1000u64.pow(power)))
}

fn size() -> impl Strategy<Value = Size> {
    let bound = || prop_oneof![9 => int(1), 1 => Just(u64::from(u32::MAX))];
    prop_oneof![
        int(1).prop_map(Size::Fixed),
        (bound(), bound()).prop_map(|(min, max)| Size::Random { min, max })
    ]
}

fn conns() -> impl Strategy<Value = Conns> {
    (0..100u32, 0..100u32).prop_map(|(first, more)| match first {
        0 => Conns::default(),
        first => Conns { first, last: first + more },
    })
}

fn payload() -> impl Strategy<Value = Payload> {
    prop_oneof![Just(Payload::Random), Just(Payload::Zero), text().prop_map(Payload::File)]
}

fn unsupported() -> impl Strategy<Value = (String, String)> {
    let all: Vec<_> = all_options()
        .iter()
        .filter_map(|option| match option.value {
            ValueKind::Unsupported(form) => Some((option.name, form)),
            _ => None,
        })
        .collect();
    (proptest::sample::select(all), text(), 1..1000u32).prop_map(|((name, form), text, number)| {
        let value = match form {
            Form::Flag => String::new(),
            Form::Text => text,
            Form::Integer { .. } | Form::Plain { .. } => number.to_string(),
        };
        (name.to_owned(), value)
    })
}

prop_compose! {
    fn numbers()(
        count in prop_oneof![int(0), Just(u64::MAX)],
        repeat in int(1),
        size in of(size()),
        rsize in of(int(1)),
        conn in conns(),
        port in of(1..=u16::MAX),
        timeout in of(time()),
        duration in of(time().prop_map(|time| Size::Fixed(time.as_nanos() as u64))),
        nfiles in of(int(1)),
    ) -> Options {
        Options {
            count, repeat, size, rsize, conn, port, timeout, duration, nfiles,
            ..Options::default()
        }
    }
}

prop_compose! {
    fn sctp()(
        nodelay in any::<bool>(),
        (out_streams, in_streams) in (of(1..=u16::MAX), of(1..=u16::MAX)),
        times in proptest::array::uniform5(of(1..1000u32)),
        packets in proptest::array::uniform2(of(1..1000u32)),
        bytes in proptest::array::uniform2(of(1..1000u32)),
    ) -> Sctp {
        let [rto_initial, rto_min, rto_max, sack_delay, hb_interval] = times;
        let [sack_frequency, max_burst_size] = packets;
        let [max_fragment_size, path_mtu] = bytes;
        Sctp {
            nodelay, out_streams, in_streams, rto_initial, rto_min, rto_max, sack_delay,
            hb_interval, sack_frequency, max_burst_size, max_fragment_size, path_mtu,
        }
    }
}

/// Any value of the type.
fn io_value(of: ValueType) -> BoxedStrategy<IoValue> {
    match of {
        ValueType::Flag => Just(IoValue::On).boxed(),
        ValueType::Number { min, max, .. } => (min.max(1)..=max).prop_map(IoValue::Number).boxed(),
        ValueType::Time { min, max } => {
            time().prop_map(move |time| IoValue::Time(time.clamp(min, max))).boxed()
        }
        ValueType::Text => text().prop_map(IoValue::Text).boxed(),
        ValueType::CodePoint { max, .. } => (0..=max).prop_map(IoValue::Number).boxed(),
        ValueType::Choice(words) => {
            proptest::sample::select(words).prop_map(|word| IoValue::Text(word.to_owned())).boxed()
        }
    }
}

fn io() -> impl Strategy<Value = IoValues> {
    let each: Vec<_> = io_options::ALL.iter().map(|option| of(io_value(option.value()))).collect();
    each.prop_map(|values| {
        let mut io = IoValues::default();
        for (option, value) in io_options::ALL.iter().zip(values) {
            if let Some(value) = value {
                io.set(option.name(), value);
            }
        }
        io
    })
}

prop_compose! {
    fn options()(
        numbers in numbers(),
        remotehost in of(text()),
        protocol in of(proptest::sample::select(protocol_names().collect::<Vec<_>>())),
        bind in of(text()),
        dir in of(text()),
        payload in payload(),
        sctp in sctp(),
        cipher in of(proptest::sample::select(Cipher::ALL.to_vec())),
        flags in any::<[bool; 6]>(),
        io in io(),
        unsupported in proptest::collection::btree_map(any::<()>(), unsupported(), 0..2),
    ) -> Options {
        let [busy, non_blocking, canfail, verify, ktls, single_reads] = flags;
        Options {
            remotehost, bind, dir, payload, busy, non_blocking, canfail, verify,
            sctp, cipher, ktls, single_reads, io,
            protocol: protocol.map(str::to_owned),
            unsupported: unsupported.into_values().collect(),
            ..numbers
        }
    }
}

fn flowop() -> impl Strategy<Value = Flowop> {
    let kinds: Vec<_> = flowop_names().chain([""]).collect();
    let options = prop_oneof![3 => options(), 1 => Just(Options::default())];
    (proptest::sample::select(kinds), options).prop_map(|(kind, options)| Flowop {
        kind: kind.to_owned(),
        options,
        at: Position::default(),
    })
}

fn transaction() -> impl Strategy<Value = Transaction> {
    let flowops = proptest::collection::vec(flowop(), 0..4);
    (flowops, int(0), of((time(), of(int(1))))).prop_map(|(flowops, iterations, timed)| {
        let (until, arrivals) = match timed {
            Some((duration, rate)) => {
                (Until::Duration(duration), rate.map(|rate| Arrivals::Even(rate as f64)))
            }
            None => (Until::Iterations(iterations), None),
        };
        Transaction { until, arrivals, flowops, order: Vec::new(), at: Position::default() }
    })
}

pub(super) fn profile() -> impl Strategy<Value = Profile> {
    let transactions = proptest::collection::vec(transaction(), 0..4);
    let group = (text(), int(0), any::<bool>(), transactions);
    let group = group.prop_map(|(name, strands, processes, transactions)| Group {
        name,
        strands: u32::try_from(strands).unwrap(),
        processes,
        transactions,
        at: Position::default(),
    });
    (text(), proptest::collection::vec(group, 0..3))
        .prop_map(|(name, groups)| Profile { name, groups })
}

proptest! {
    #[test]
    fn what_is_printed_parses_to_the_same(profile in profile()) {
        let printed = print(&profile);
        let parsed = accepted(&printed).profile;
        prop_assert_eq!(without_positions(parsed), profile, "{}", printed);
    }

    /// From texts instead of profiles: whatever parses prints to something that means the same.
    #[test]
    fn what_parses_prints_to_the_same(
        options in proptest::collection::vec(
            "(size|count|port|conn|timeout|wndsz|dir|rsize)=(rand\\()?[0-9.,kmg)&;#-]{1,9}", 0..4,
        ),
        attributes in "( (iterations|duration|rate|name|nthreads|nprocs)=\"?[0-9.a-z$ ]{1,5}\"?){0,3}",
    ) {
        let source = around(&format!(
            "<flowop type=write options=\"{}\" /> {attributes} ",
            options.join(" ")
        ));
        if let Ok(parsed) = parse(&source, &|_: &str| Some("7".to_owned())) {
            let again = accepted(&print(&parsed.profile));
            prop_assert_eq!(
                without_positions(again.profile),
                without_positions(parsed.profile)
            );
        }
    }
}

/// A generator that leaves an option out would prove nothing about it.
#[test]
fn the_generator_sets_every_option() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;

    let mut runner = TestRunner::deterministic();
    let kept = |option: &&OptionDef| !matches!(option.name, "idle" | "method" | "engine");
    let mut missing: Vec<_> = all_options().iter().filter(kept).collect();
    for _ in 0..2000 {
        let options = options().new_tree(&mut runner).unwrap().current();
        missing.retain(|option| option.written(&options).is_none());
    }
    assert!(missing.is_empty(), "{missing:?}");
}
