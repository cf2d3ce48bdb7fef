//! One way of a stream ends, and the other goes on.

use proptest::prelude::*;

use super::*;

fn half_closing(written: u64, count: u64, read: u64, reversed: bool) -> Vec<Flowop> {
    let several = |kind: &str, bytes: u64| {
        let mut flowop = transfer(kind, bytes);
        flowop.options.count = count;
        flowop
    };
    let (first, end, second) =
        if reversed { ("read", "readeof", "write") } else { ("write", "shutdown", "read") };
    vec![
        connect("tcp", "a", 0),
        several(first, written),
        op(end, |_| {}),
        several(second, read),
        op("disconnect", |_| {}),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(seed::cases(50, 200)))]

    /// The other end answers only when it has received the end of what came.
    #[test]
    fn what_follows_an_end_is_received_as_well(
        (written, count, read) in (1u64..5000, 1u64..4, 1u64..5000),
        reversed: bool,
        turns in 1u64..4,
        seed: u64,
    ) {
        let flowops = half_closing(written, count, read, reversed);
        let profile = profile(2, vec![times(turns, flowops)]);
        let weather = Weather { seed, ..Weather::default() };
        let outcome = run(&profile, &Settings { weather, ..Settings::default() });
        check_conserved(&outcome);
        let sent = sum(&outcome.phases[0], |c| c.bytes.sent() as i64) as u64;
        prop_assert_eq!(sent, 2 * turns * count * (written + read));
    }
}
