//! Quantities as a person reads them; `-` is what was not measured.

use wirecost_model::units;

pub(crate) const NOT_MEASURED: &str = "-";

/// `-` where there is none.
pub(super) fn or_dash<T>(value: Option<T>, show: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| NOT_MEASURED.to_owned(), show)
}

pub(crate) fn bit_rate(bits_per_second: f64) -> String {
    units::decimal(bits_per_second, "b/s")
}

pub(super) fn bytes(bytes: u64) -> String {
    units::decimal(bytes as f64, "B")
}

/// Whole numbers as far as one reads them at a glance: `17,843 /s`, then `12.3 M/s`.
pub(crate) fn rate(per_second: f64) -> String {
    if (99.95..9_999_999.5).contains(&per_second) {
        format!("{} /s", count(per_second.round() as u64))
    } else {
        units::decimal(per_second, "/s")
    }
}

/// A count, exact: `1,234,567`.
pub(crate) fn count(number: u64) -> String {
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
pub(crate) fn whole(number: f64) -> String {
    let sign = if number.round() < 0.0 { "-" } else { "" };
    format!("{sign}{}", count(number.round().abs() as u64))
}

/// Cycles, whole where they are many.
pub(crate) fn cycles(cycles: f64) -> String {
    if cycles.abs() < 99.95 { units::three_digits(cycles) } else { whole(cycles) }
}

/// One of a thing, several of them.
pub(crate) fn counted(number: u64, one: &str, several: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { several })
}

/// A latency in the unit in which it has one to three digits before the point.
pub(crate) fn latency(microseconds: f64) -> String {
    // The unit is chosen by the value as rounded: 999.9 us is 1.00 ms.
    let [in_us, in_ms] = [1.0, 1e3].map(|one| microseconds / one);
    if in_us < 0.9995 {
        format!("{} ns", units::three_digits((microseconds * 1e3).round()))
    } else if in_us < 999.5 {
        format!("{} us", units::three_digits(in_us))
    } else if in_ms < 999.5 {
        format!("{} ms", units::three_digits(in_ms))
    } else {
        format!("{} s", units::three_digits(in_ms / 1e3))
    }
}

pub(super) fn seconds(seconds: f64) -> String {
    latency(seconds * 1e6)
}

pub(super) fn percent(percent: f64) -> String {
    format!("{percent:.1}")
}

/// CPUs in runs: `0-3,8`.
pub(super) fn cpus(cpus: &[u32]) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

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
