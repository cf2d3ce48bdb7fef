use std::time::Duration;

use proptest::prelude::*;
use wirecost_model::clock::{MICROSECOND, MILLISECOND, Nanos, SECOND, nanos, seconds};

proptest! {
    #[test]
    fn a_length_of_time_keeps_its_nanoseconds(length in any::<u64>()) {
        prop_assert_eq!(nanos(Duration::from_nanos(length)), length);
        let back = seconds(length) * SECOND as f64;
        prop_assert!((back - length as f64).abs() <= length as f64 * 1e-15 + 0.5);
    }

    #[test]
    fn lengths_keep_their_order(a in any::<u64>(), b in any::<u64>()) {
        prop_assert!(a > b || seconds(a) <= seconds(b));
    }
}

#[test]
fn what_is_longer_than_the_clock_is_as_long_as_it_can_tell() {
    assert_eq!(nanos(Duration::MAX), Nanos::MAX);
    assert_eq!(nanos(Duration::from_secs(u64::MAX)), Nanos::MAX);
    assert_eq!((SECOND, MILLISECOND), (1000 * MILLISECOND, 1000 * MICROSECOND));
}
