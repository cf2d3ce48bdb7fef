use proptest::prelude::*;
use wirecost_model::histogram::{Histogram, Recorder};

const HOUR: u64 = 3_600_000_000_000;

fn of(values: &[u64]) -> Histogram {
    let mut histogram = Histogram::new();
    values.iter().for_each(|&value| histogram.record(value));
    histogram
}

fn merged(parts: &[&Histogram]) -> Histogram {
    let mut all = Histogram::new();
    parts.iter().for_each(|part| all.merge(part));
    all
}

/// From a nanosecond to beyond the longest that is told apart.
fn latencies() -> impl Strategy<Value = Vec<u64>> {
    let latency =
        prop_oneof![0u64..1000, 0u64..10_000_000_000, 0..2 * HOUR, Just(0), Just(u64::MAX)];
    prop::collection::vec(latency, 0..100)
}

proptest! {
    /// In whichever order workers and hosts are merged, the result is one.
    #[test]
    fn merging_has_no_order(a in latencies(), b in latencies(), c in latencies()) {
        let (a, b, c) = (of(&a), of(&b), of(&c));
        let all = merged(&[&a, &b, &c]);
        prop_assert_eq!(&merged(&[&c, &a, &b]), &all);
        prop_assert_eq!(&merged(&[&merged(&[&a, &b]), &c]), &all);
        prop_assert_eq!(&merged(&[&a, &merged(&[&b, &c])]), &all);
        prop_assert_eq!(all.count(), a.count() + b.count() + c.count());
    }

    #[test]
    fn an_empty_one_changes_nothing(values in latencies()) {
        let histogram = of(&values);
        prop_assert_eq!(&merged(&[&histogram, &Histogram::new()]), &histogram);
        prop_assert_eq!(histogram.is_empty(), values.is_empty());
        prop_assert_eq!(Histogram::new().quantile(0.5), None);
        prop_assert_eq!((Histogram::new().max(), Histogram::new().mean()), (None, None));
    }

    /// Quantiles grow, and none is beyond the longest latency or below the shortest by more than 1%.
    #[test]
    fn quantiles_grow_up_to_the_maximum(values in latencies(), mut shares in prop::collection::vec(0.0f64..=1.0, 2..10)) {
        prop_assume!(!values.is_empty());
        let histogram = of(&values);
        shares.sort_by(f64::total_cmp);
        let quantiles: Vec<u64> = shares.iter().map(|&q| histogram.quantile(q).unwrap()).collect();
        prop_assert!(quantiles.is_sorted(), "{quantiles:?}");
        let max = histogram.max().unwrap();
        prop_assert_eq!(histogram.quantile(1.0), Some(max));
        prop_assert!(quantiles.iter().all(|&quantile| quantile <= max));
        let least = values.iter().copied().min().unwrap().min(HOUR) as f64;
        prop_assert!(quantiles[0] as f64 >= least * 0.99 - 1.0);
        let longest = values.iter().copied().max().unwrap().min(HOUR) as f64;
        prop_assert!((max as f64 - longest).abs() <= longest * 0.01 + 1.0);
        let mean = histogram.mean().unwrap();
        let exact = values.iter().map(|&v| v.min(HOUR) as f64).sum::<f64>() / values.len() as f64;
        prop_assert!((mean - exact).abs() <= exact * 0.01 + 1.0, "{mean} is not {exact}");
    }

    /// Merged quantiles lie between those of the parts.
    #[test]
    fn a_merged_quantile_is_between_those_of_its_parts(a in latencies(), b in latencies(), q in 0.0f64..=1.0) {
        prop_assume!(!a.is_empty() && !b.is_empty());
        let parts = [of(&a), of(&b)];
        let all = merged(&[&parts[0], &parts[1]]).quantile(q).unwrap() as f64;
        let [low, high] = {
            let mut both = parts.map(|part| part.quantile(q).unwrap() as f64);
            both.sort_by(f64::total_cmp);
            both
        };
        prop_assert!(low * 0.99 - 1.0 <= all && all <= high * 1.01 + 1.0, "{low} {all} {high}");
    }

    #[test]
    fn many_at_once_are_as_many_one_by_one(value in 0u64..2 * HOUR, times in 0u64..300) {
        let mut at_once = Histogram::new();
        at_once.record_many(value, times);
        let mut recorder = Recorder::default();
        (0..times).for_each(|_| recorder.record(value));
        prop_assert_eq!(&at_once, &of(&vec![value; times as usize]));
        prop_assert_eq!(&recorder.histogram(), &at_once);
    }

    /// What comes over the wire may be anything, and is then an error.
    #[test]
    fn no_text_takes_the_reader_down(text in ".{0,200}", bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        use base64::Engine as _;
        let encoded = base64::engine::general_purpose::STANDARD.encode(bytes);
        for text in [text, encoded] {
            let json = serde_json::to_string(&text).unwrap();
            if let Ok(histogram) = serde_json::from_str::<Histogram>(&json) {
                let _ = (histogram.quantile(0.99), histogram.max(), histogram.mean());
            }
        }
    }
}
