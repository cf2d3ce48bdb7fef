use proptest::prelude::*;
use wirecost_model::units::{binary, decimal, parse_bit_rate, three_digits};

/// Reads what [`binary`] writes.
fn bytes(text: &str) -> u64 {
    let units = [("t", 40), ("g", 30), ("m", 20), ("k", 10), ("", 0)];
    let (digits, shift) =
        units.iter().find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, shift))).unwrap();
    digits.parse::<u64>().unwrap() << shift
}

proptest! {
    #[test]
    fn bytes_are_written_exactly(number in any::<u64>(), shift in 0u32..64) {
        for bytes_ in [number, number >> shift << shift, 1u64 << shift] {
            prop_assert_eq!(bytes(&binary(bytes_)), bytes_);
        }
    }

    /// Three digits: what is shown differs from what is meant by at most half of the last one.
    #[test]
    fn decimals_are_right_to_three_digits(mantissa in 1.0f64..10.0, exponent in 0i32..15, negative in any::<bool>()) {
        let value = mantissa * 10f64.powi(exponent) * if negative { -1.0 } else { 1.0 };
        let text = decimal(value, "b/s");
        let (digits, unit) = text.split_once(' ').unwrap();
        let one = match unit {
            "b/s" => 1.0,
            "kb/s" => 1e3,
            "Mb/s" => 1e6,
            "Gb/s" => 1e9,
            "Tb/s" => 1e12,
            _ => panic!("{text}"),
        };
        let shown = digits.parse::<f64>().unwrap() * one;
        // The last digit of three, and more of what is beyond 1000 of the largest unit.
        prop_assert!((shown - value).abs() <= value.abs() * 0.00501, "{value} is {text}");
        let short = value.abs() < 999.5e12;
        prop_assert!(!short || digits.trim_start_matches('-').len() <= 5, "{text}");
    }

    #[test]
    fn numbers_without_an_exponent(value in -1e6f64..1e6) {
        let text = three_digits(value);
        let shown: f64 = text.parse().unwrap();
        prop_assert!((shown - value).abs() <= (value.abs() * 0.00501).max(0.0005), "{value} is {text}");
        prop_assert!(!text.contains('e'));
    }

    #[test]
    fn rates_are_what_they_say(number in 1u64..1000, which in 0usize..5) {
        let (unit, one) =
            [("bit", 1), ("kbit", 1000), ("mbit", 1_000_000), ("gbit", 1_000_000_000), ("tbit", 1_000_000_000_000)][which];
        prop_assert_eq!(parse_bit_rate(&format!("{number}{unit}")), Some(number * one));
        prop_assert_eq!(parse_bit_rate(&format!(" {number}.0{} ", unit.to_uppercase())), Some(number * one));
    }

    #[test]
    fn any_text_is_a_rate_or_none(text in ".{0,30}") {
        if let Some(rate) = parse_bit_rate(&text) {
            prop_assert!((1..=1_000_000_000_000_000).contains(&rate));
        }
    }
}
