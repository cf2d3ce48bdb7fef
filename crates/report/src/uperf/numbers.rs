//! Numbers as uperf prints them.

const PREFIXES: [&str; 8] = ["", "K", "M", "G", "T", "P", "E", "Z"];

/// Bytes, in units of 1024 that are called KB, MB and so on.
pub(super) fn bytes(value: f64) -> String {
    scaled(value, 1024.0, "B")
}

pub(super) fn bits_per_second(value: f64) -> String {
    scaled(value, 1000.0, "b/s")
}

/// Exactly the unit itself stays in the smaller unit (`1000.00b/s`), and nothing is a bare 0.
fn scaled(mut value: f64, step: f64, unit: &str) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let mut place = 0;
    while value > step && place + 1 < PREFIXES.len() {
        value /= step;
        place += 1;
    }
    format!("{value:.2}{}{unit}", PREFIXES[place])
}

/// A length of time in nanoseconds; anything from a second up is in seconds.
pub(super) fn time(nanos: f64) -> String {
    for (one, unit) in [(1e0, "ns"), (1e3, "us"), (1e6, "ms")] {
        if nanos / one < 1000.0 {
            return format!("{:.2}{unit}", nanos / one);
        }
    }
    format!("{:.2}s", nanos / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_binary_and_rates_decimal() {
        assert_eq!(bytes(0.0), "0");
        assert_eq!(bytes(1023.0), "1023.00B");
        assert_eq!(bytes(1024.0), "1024.00B");
        assert_eq!(bytes(1536.0), "1.50KB");
        assert_eq!(bytes(264.56 * 1024.0 * 1024.0), "264.56MB");
        assert_eq!(bits_per_second(1000.0), "1000.00b/s");
        assert_eq!(bits_per_second(200.26e6), "200.26Mb/s");
        assert_eq!(bits_per_second(1e30), "1000000000.00Zb/s");
    }

    #[test]
    fn times_change_unit_at_a_thousand() {
        assert_eq!(time(0.0), "0.00ns");
        assert_eq!(time(999.0), "999.00ns");
        assert_eq!(time(1000.0), "1.00us");
        assert_eq!(time(1.5e6), "1.50ms");
        assert_eq!(time(11.08e9), "11.08s");
    }
}
