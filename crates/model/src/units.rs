//! Numbers as people write and read them.

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
    const UNITS: [(&str, f64); 9] = [
        ("tbit", 1e12),
        ("gbit", 1e9),
        ("mbit", 1e6),
        ("kbit", 1e3),
        ("bit", 1.0),
        ("t", 1e12),
        ("g", 1e9),
        ("m", 1e6),
        ("k", 1e3),
    ];
    let text = text.trim().to_ascii_lowercase();
    let (digits, one) =
        UNITS.into_iter().find_map(|(unit, one)| Some((text.strip_suffix(unit)?, one)))?;
    if !digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return None;
    }
    let rate = (digits.parse::<f64>().ok()? * one).round();
    (1.0..=1e15).contains(&rate).then_some(rate as u64)
}

/// Stands where nothing was measured.
pub const NOT_MEASURED: &str = "-";

/// `-` where there is none.
pub fn or_dash<T>(value: Option<T>, show: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| NOT_MEASURED.to_owned(), show)
}

pub fn bit_rate(bits_per_second: f64) -> String {
    decimal(bits_per_second, "b/s")
}

pub fn bytes(bytes: u64) -> String {
    decimal(bytes as f64, "B")
}

/// Whole numbers as far as one reads them at a glance: `17,843 /s`, then `12.3 M/s`.
pub fn rate(per_second: f64) -> String {
    if (99.95..9_999_999.5).contains(&per_second) {
        format!("{} /s", count(per_second.round() as u64))
    } else {
        decimal(per_second, "/s")
    }
}

/// A count, exact: `1,234,567`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let first = digits.len() % 3;
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && place % 3 == first {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The same of a number that may be below 0.
pub fn whole(number: f64) -> String {
    let sign = if number.round() < 0.0 { "-" } else { "" };
    format!("{sign}{}", count(number.round().abs() as u64))
}

/// Cycles, whole where they are many.
pub fn cycles(cycles: f64) -> String {
    if cycles.abs() < 99.95 { three_digits(cycles) } else { whole(cycles) }
}

/// One of a thing, several of them.
pub fn counted(number: u64, one: &str, several: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { several })
}

/// A latency in the unit in which it has one to three digits before the point.
pub fn latency(microseconds: f64) -> String {
    // The unit is chosen by the value as rounded: 999.9 us is 1.00 ms.
    let [in_us, in_ms] = [1.0, 1e3].map(|one| microseconds / one);
    if in_us < 0.9995 {
        format!("{} ns", three_digits((microseconds * 1e3).round()))
    } else if in_us < 999.5 {
        format!("{} us", three_digits(in_us))
    } else if in_ms < 999.5 {
        format!("{} ms", three_digits(in_ms))
    } else {
        format!("{} s", three_digits(in_ms / 1e3))
    }
}

/// A length of time of seconds to days, in the unit in which it is read best: `8.00 h`.
pub fn span(length: f64) -> String {
    match length {
        _ if length < 120.0 => seconds(length),
        _ if length < 7_200.0 => format!("{} min", three_digits(length / 60.0)),
        _ if length < 172_800.0 => format!("{} h", three_digits(length / 3_600.0)),
        _ => format!("{} days", three_digits(length / 86_400.0)),
    }
}

/// A time in seconds.
pub fn seconds(seconds: f64) -> String {
    latency(seconds * 1e6)
}

pub fn percent(percent: f64) -> String {
    format!("{percent:.1}")
}

/// CPUs in runs: `0-3,8`.
pub fn cpus(cpus: &[u32]) -> String {
    let mut cpus = cpus.to_vec();
    cpus.sort_unstable();
    cpus.dedup();
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for cpu in cpus {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => runs.push((cpu, cpu)),
        }
    }
    let runs: Vec<String> = runs
        .into_iter()
        .map(|(first, last)| match last - first {
            0 => first.to_string(),
            _ => format!("{first}-{last}"),
        })
        .collect();
    runs.join(",")
}

/// A size in bytes: `512m`, `8g`, `4096`; k, m and g are binary. `None` for what is none.
#[must_use]
pub fn parse_size(text: &str) -> Option<u64> {
    let text = text.trim().to_ascii_lowercase();
    let (digits, shift) = match text.as_bytes().last()? {
        b'k' => (&text[..text.len() - 1], 10),
        b'm' => (&text[..text.len() - 1], 20),
        b'g' => (&text[..text.len() - 1], 30),
        _ => (text.as_str(), 0),
    };
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_binary() {
        assert_eq!(parse_size("4096"), Some(4096));
        assert_eq!(parse_size("3k"), Some(3072));
        assert_eq!(parse_size("512M"), Some(512 << 20));
        assert_eq!(parse_size("8g"), Some(8 << 30));
        for none in ["", "g", "1.5g", "-1m", "+1", "1t", "99999999999g", "é"] {
            assert_eq!(parse_size(none), None, "{none}");
        }
    }

    #[test]
    fn rates_are_read_as_tc_writes_them() {
        assert_eq!(parse_bit_rate("1gbit"), Some(1_000_000_000));
        assert_eq!(parse_bit_rate("2.5Gbit"), Some(2_500_000_000));
        assert_eq!(parse_bit_rate("100mbit"), Some(100_000_000));
        assert_eq!(parse_bit_rate("8bit"), Some(8));
        assert_eq!(parse_bit_rate("1G"), Some(1_000_000_000));
        assert_eq!(parse_bit_rate("2.5m"), Some(2_500_000));
        for none in
            ["", "1", "g", "gbit", "-1gbit", "1e3bit", "0gbit", "infbit", "10gbps", "9e9tbit"]
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

    #[test]
    fn latencies_choose_their_unit() {
        assert_eq!(latency(0.0), "0 ns");
        assert_eq!(latency(0.25), "250 ns");
        assert_eq!(latency(0.9996), "1.00 us");
        assert_eq!(latency(42.04), "42.0 us");
        assert_eq!(latency(999.7), "1.00 ms");
        assert_eq!(latency(12_345.0), "12.3 ms");
        assert_eq!(latency(3_600e6), "3600 s");
    }

    #[test]
    fn counts_are_grouped_by_thousands() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1000, "1,000"),
            (123_456, "123,456"),
            (1_234_567, "1,234,567"),
        ] {
            assert_eq!(count(number), text);
        }
    }

    #[test]
    fn rates_are_whole_numbers_up_to_ten_million() {
        assert_eq!(rate(0.0), "0 /s");
        assert_eq!(rate(12.34), "12.3 /s");
        assert_eq!(rate(17_843.2), "17,843 /s");
        assert_eq!(rate(12_345_678.0), "12.3 M/s");
    }

    #[test]
    fn cpus_are_runs() {
        assert_eq!(cpus(&[]), "");
        assert_eq!(cpus(&[3, 0, 1, 2, 8]), "0-3,8");
        assert_eq!(cpus(&[1, 3]), "1,3");
    }
}
