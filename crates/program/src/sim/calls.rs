//! Messages that go by other calls than one each: the accounts are the same.

use proptest::prelude::*;
use wirecost_model::profile::{IoValue, IoValues};

use super::*;

fn moving(kind: &str, bytes: u64, count: u64, io: &IoValues, verify: bool) -> Flowop {
    op(kind, |o| {
        o.size = Some(Size::Fixed(bytes));
        o.count = count;
        o.io = io.clone();
        o.verify = verify;
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(seed::cases(50, 200)))]

    /// However many datagrams a call takes, and however many of them the kernel takes at once: each
    /// has its number, is an operation, and arrives or is lost.
    #[test]
    fn datagrams_of_one_call_are_counted_one_by_one(
        gso in 1u32..5,
        batch in 1u32..5,
        count in 1u64..4,
        bytes in 1u64..100,
        writes: bool,
        answers: bool,
        verify: bool,
        seed: u64,
        loss in prop_oneof![Just(0u64), 0u64..200],
    ) {
        let mut io = IoValues::default();
        io.set("gso", IoValue::Number(gso.into()));
        io.set("batch", IoValue::Number(batch.into()));
        let kinds = if writes { ["write", "read"] } else { ["read", "write"] };
        let flowops = kinds[..1 + usize::from(answers)]
            .iter()
            .map(|kind| moving(kind, bytes, count, &io, verify))
            .collect();
        let open = vec![connect("udp", "a", 0)];
        let profile = profile(2, vec![times(1, open), times(10, flowops)]);
        let weather = Weather { seed, loss, queue: 1000, ..Weather::default() };
        let outcome = run(&profile, &Settings { weather, ..Settings::default() });
        prop_assert_eq!(&outcome.errors, &[] as &[String]);
        let phase = &outcome.phases[1];
        let (sent, received) = (
            sum(phase, |c| c.datagrams.sent as i64),
            sum(phase, |c| c.datagrams.received as i64),
        );
        prop_assert_eq!(sum(phase, |c| c.datagrams.lost), sent - received);
        prop_assert!(phase.iter().all(|counted| counted.verify_failures == 0));
        let each = 2 * 10 * count * u64::from(gso * batch) * (1 + u64::from(answers));
        if loss == 0 {
            prop_assert_eq!(sent as u64, each);
            let bytes_sent = sum(phase, |c| c.bytes.sent() as i64) as u64;
            prop_assert_eq!(bytes_sent, each * bytes);
            for host in phase {
                let done: u64 = host.counters.flowops.iter().map(|row| row.done).sum();
                let timed: u64 = host.latencies.iter().map(|of| of.count()).sum();
                prop_assert_eq!((done, timed), (each, each));
            }
        }
    }

    /// Streams: what is sent without a copy, behind a cork, dropped or kept is the same stream.
    #[test]
    fn streams_are_conserved_by_any_call(
        flags in any::<[bool; 5]>(),
        count in 1u64..5,
        bytes in 1u64..5000,
        rsize in prop::option::of(1u64..3000),
        writes: bool,
        verify: bool,
        seed: u64,
    ) {
        let [zerocopy, tcp_cork, discard, splice, answers] = flags;
        let (discard, splice) = (discard && !verify, splice && !verify);
        let mut io = IoValues::default();
        let wanted = [
            ("zerocopy", zerocopy),
            ("tcp_cork", tcp_cork),
            ("discard", discard),
            ("splice", splice),
        ];
        for (name, _) in wanted.into_iter().filter(|(_, wanted)| *wanted) {
            io.set(name, IoValue::On);
        }
        let kinds = if writes { ["write", "read"] } else { ["read", "write"] };
        let mut flowops: Vec<_> = kinds[..1 + usize::from(answers)]
            .iter()
            .map(|kind| moving(kind, bytes, count, &io, verify))
            .collect();
        flowops.iter_mut().for_each(|flowop| flowop.options.rsize = rsize);
        let open = vec![connect("tcp", "a", 0)];
        let profile = profile(2, vec![times(1, open), times(5, flowops)]);
        let weather = Weather { seed, ..Weather::default() };
        let outcome = run(&profile, &Settings { weather, ..Settings::default() });
        check_conserved(&outcome);
        let sent = sum(&outcome.phases[1], |c| c.bytes.sent() as i64) as u64;
        prop_assert_eq!(sent, 2 * 5 * count * bytes * (1 + u64::from(answers)));
    }
}
