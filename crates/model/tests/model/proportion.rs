use proptest::prelude::*;
use wirecost_model::proportion::{Proportion, Z_95, wilson};

proptest! {
    #[test]
    fn a_share_is_in_its_interval(all in 1u64..1_000_000, part in 0.0f64..=1.0) {
        let found = (all as f64 * part) as u64;
        let Proportion { share, interval: (low, high) } = Proportion::of(found, all);
        prop_assert!(0.0 <= low && low <= share + 1e-12 && share <= high + 1e-12 && high <= 1.0);
        // As of what was not found.
        let (other_low, other_high) = wilson(all - found, all, Z_95);
        prop_assert!((low - (1.0 - other_high)).abs() < 1e-9 && (high - (1.0 - other_low)).abs() < 1e-9);
    }

    #[test]
    fn more_samples_say_more(found in 0u64..1000, rest in 0u64..1000, times in 2u64..20) {
        let all = found + rest;
        prop_assume!(all > 0);
        let width = |(low, high): (f64, f64)| high - low;
        let once = width(wilson(found, all, Z_95));
        prop_assert!(width(wilson(found * times, all * times, Z_95)) < once);
        // To be surer takes a wider one.
        prop_assert!(width(wilson(found, all, Z_95 * 1.5)) > once);
    }
}

/// An interval of 95% misses the true share in 5% of all cases, whatever the share is.
#[test]
fn the_interval_holds_the_true_share_as_often_as_it_says() {
    const STUDIES: u32 = 4000;
    // A generator of our own (splitmix64), so that the test is the same everywhere.
    let mut state = 11u64;
    let mut uniform = move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ mixed >> 31) >> 11) as f64 / (1u64 << 53) as f64
    };
    for (share, samples) in [(0.02, 200), (0.3, 50), (0.5, 200), (0.9, 100)] {
        let mut held = 0;
        for _ in 0..STUDIES {
            let found = (0..samples).filter(|_| uniform() < share).count() as u64;
            let (low, high) = Proportion::of(found, samples).interval;
            held += u32::from(low <= share && share <= high);
        }
        let held = f64::from(held) / f64::from(STUDIES);
        assert!((0.92..=0.98).contains(&held), "{share} of {samples}: {held}");
    }
}
