//! Numbers as people write them.

/// Bytes in units of 1024 where that is exact (`64k`, `1m`), else plain (`1500`).
pub fn binary(bytes: u64) -> String {
    const UNITS: [(&str, u32); 4] = [("t", 40), ("g", 30), ("m", 20), ("k", 10)];
    for (unit, shift) in UNITS {
        let one = 1u64 << shift;
        if bytes >= one && bytes.is_multiple_of(one) {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    bytes.to_string()
}

/// A number with three significant digits, a decimal prefix and its unit: `12.3 Gb/s`, `412 b/s`.
pub fn decimal(value: f64, unit: &str) -> String {
    const PREFIXES: [(&str, f64); 4] = [("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)];
    // 999.6 would round to "1000": the prefix is chosen by the rounded value.
    let (prefix, one) =
        PREFIXES.into_iter().find(|(_, one)| value.abs() >= one * 0.9995).unwrap_or(("", 1.0));
    format!("{} {prefix}{unit}", three_digits(value / one)).trim_end().to_owned()
}

/// Three significant digits, without an exponent.
pub fn three_digits(value: f64) -> String {
    let magnitude = value.abs();
    if magnitude >= 99.95 || magnitude == 0.0 {
        format!("{value:.0}")
    } else if magnitude >= 9.995 {
        format!("{value:.1}")
    } else if magnitude >= 0.9995 {
        format!("{value:.2}")
    } else {
        format!("{value:.3}")
    }
}

/// A rate as tc(8) writes it, in bits a second: `1gbit`, `2.5gbit`, `100mbit`. `None` for what is none,
/// and for less than one bit.
#[must_use]
pub fn parse_bit_rate(text: &str) -> Option<u64> {
    const UNITS: [(&str, f64); 5] =
        [("tbit", 1e12), ("gbit", 1e9), ("mbit", 1e6), ("kbit", 1e3), ("bit", 1.0)];
    let text = text.trim().to_ascii_lowercase();
    let (digits, one) =
        UNITS.into_iter().find_map(|(unit, one)| Some((text.strip_suffix(unit)?, one)))?;
    if !digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return None;
    }
    let rate = (digits.parse::<f64>().ok()? * one).round();
    (1.0..=1e15).contains(&rate).then_some(rate as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_as_tc_writes_them() {
        assert_eq!(parse_bit_rate("1gbit"), Some(1_000_000_000));
        assert_eq!(parse_bit_rate("2.5Gbit"), Some(2_500_000_000));
        assert_eq!(parse_bit_rate("100mbit"), Some(100_000_000));
        assert_eq!(parse_bit_rate("8bit"), Some(8));
        for none in
            ["", "1", "1g", "gbit", "-1gbit", "1e3bit", "0gbit", "infbit", "10gbps", "9e9tbit"]
        {
            assert_eq!(parse_bit_rate(none), None, "{none}");
        }
    }

    #[test]
    fn binary_is_exact_or_plain() {
        assert_eq!(binary(65536), "64k");
        assert_eq!(binary(1 << 20), "1m");
        assert_eq!(binary(1500), "1500");
        assert_eq!(binary(1536), "1536");
        assert_eq!(binary(0), "0");
    }

    #[test]
    fn decimal_keeps_three_digits() {
        assert_eq!(decimal(0.0, "b/s"), "0 b/s");
        assert_eq!(decimal(412.0, "/s"), "412 /s");
        assert_eq!(decimal(999.6, "/s"), "1.00 k/s");
        assert_eq!(decimal(12_345_678_901.0, "b/s"), "12.3 Gb/s");
        assert_eq!(decimal(0.1234, "s"), "0.123 s");
    }
}
