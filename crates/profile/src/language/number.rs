//! uperf's numbers and times, digit by digit as it reads them.

use std::time::Duration;

/// Why a text is no number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NumberError {
    #[error("it must begin with a digit")]
    NotANumber,
    #[error("'{0}' is no suffix (b, k, m, g are)")]
    BadSuffix(char),
    #[error("it must be less than 2g (2147483648)")]
    TooLarge,
    #[error("it must be more than 0")]
    Zero,
}

/// An integer with an optional suffix, as uperf's `int` holds it: 0 to 2^31 - 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Integer {
    pub(super) value: u64,
    /// The digits need more than 32 bits, of which uperf keeps only those.
    pub(super) wrapped: bool,
    /// What stands behind the digits has more than the one letter that is read.
    pub(super) long_suffix: bool,
    /// The suffix multiplies by 1024 or a power of it.
    pub(super) scaled: bool,
}

/// Digits, an optional fraction, a suffix letter of which only the first is read.
pub(super) fn integer(text: &str) -> Result<Integer, NumberError> {
    if !text.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return Err(NumberError::NotANumber);
    }
    let (digits, rest) = split_digits(text);
    let whole = whole(digits).ok_or(NumberError::TooLarge)?;
    if rest.starts_with('.') {
        let (value, suffix) = decimal(text);
        let shift = shift(suffix)?;
        let value = value * 2f64.powi(i32::try_from(shift).unwrap_or(i32::MAX));
        if value >= 2_147_483_648.0 {
            return Err(NumberError::TooLarge);
        }
        return Ok(Integer {
            value: value as u64,
            wrapped: false,
            long_suffix: suffix.chars().count() > 1,
            scaled: shift > 0,
        });
    }
    let shift = shift(rest)?;
    let kept = whole as i32;
    let shifted = i64::from(kept) << shift.min(32);
    let value = u64::try_from(shifted)
        .ok()
        .filter(|value| *value <= i32::MAX as u64 && shift <= 32)
        .ok_or(NumberError::TooLarge)?;
    Ok(Integer {
        value,
        wrapped: i64::from(kept) != whole,
        long_suffix: rest.chars().count() > 1,
        scaled: shift > 0,
    })
}

/// C's atoi: blanks, a sign, digits; whatever follows is ignored and no digits at all are 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Plain {
    pub(super) value: i32,
    /// Something was ignored or did not fit, so that the number is not what was written.
    pub(super) inexact: bool,
}

pub(super) fn plain(text: &str) -> Plain {
    let trimmed = text.trim_start_matches([' ', '\t', '\n', '\u{b}', '\u{c}', '\r']);
    let (negative, unsigned) = match trimmed.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, trimmed.strip_prefix('+').unwrap_or(trimmed)),
    };
    let (digits, rest) = split_digits(unsigned);
    let magnitude = whole(digits);
    let long = match (magnitude, negative) {
        (Some(value), false) => value,
        (Some(value), true) => -value,
        (None, false) => i64::MAX,
        (None, true) => i64::MIN,
    };
    let value = long as i32;
    Plain {
        value,
        inexact: digits.is_empty()
            || !rest.is_empty()
            || magnitude.is_none()
            || i64::from(value) != long,
    }
}

/// A time, and what about it may not be what its writer meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Time {
    pub(super) duration: Duration,
    /// `m` without an `s` behind it: milliseconds, though it looks like minutes.
    pub(super) looks_like_minutes: bool,
    /// uperf accepts the text but computes nonsense from it.
    pub(super) nonsense: Option<Nonsense>,
}

/// Why uperf would compute nonsense from a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Nonsense {
    #[error("'{0}' is no unit of time")]
    Unit(char),
    #[error("it is longer than 292 years")]
    TooLong,
}

/// What stands for a time that cannot be used.
const UNUSABLE: Duration = Duration::from_nanos(i64::MAX as u64);

/// Digits, an optional fraction and a unit of which only the first letter is read: s (also when there
/// is none), m for milliseconds, u, n. Exact, where uperf keeps the seven digits of a float.
pub(super) fn time(text: &str) -> Result<Time, NumberError> {
    if !text.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return Err(NumberError::NotANumber);
    }
    let (digits, rest) = split_digits(text);
    let whole = whole(digits).ok_or(NumberError::TooLarge)?;
    let fraction = rest.starts_with('.');
    let (value, suffix) = if fraction { decimal(text) } else { (0.0, rest) };
    let mut letters = suffix.chars().map(|c| c.to_ascii_lowercase());
    let first = letters.next();
    let unit: u64 = match first {
        None | Some('s') => 1_000_000_000,
        Some('m') => 1_000_000,
        Some('u') => 1_000,
        Some('n') => 1,
        Some(_) => 0,
    };
    let nanoseconds = if fraction {
        let exact = value * unit as f64;
        if exact >= 1.0 { exact.round() as u128 } else { 0 }
    } else {
        u128::from(whole.unsigned_abs()) * u128::from(unit)
    };
    let is_zero = if fraction { value == 0.0 } else { whole == 0 };
    let nonsense = match first {
        Some(letter) if unit == 0 => Some(Nonsense::Unit(letter)),
        _ if nanoseconds > UNUSABLE.as_nanos() => Some(Nonsense::TooLong),
        _ => None,
    };
    if is_zero || (nanoseconds == 0 && nonsense.is_none()) {
        return Err(NumberError::Zero);
    }
    Ok(Time {
        duration: match nonsense {
            Some(_) => UNUSABLE,
            None => u64::try_from(nanoseconds).map_or(UNUSABLE, Duration::from_nanos),
        },
        looks_like_minutes: first == Some('m') && letters.next() != Some('s'),
        nonsense,
    })
}

/// A time as uperf reads it: in seconds, or with a unit (`500m` is half a second).
///
/// # Errors
/// A text that is no time, or 0.
pub fn duration(text: &str) -> Result<Duration, NumberError> {
    let Time { duration, nonsense, .. } = time(text)?;
    match nonsense {
        None => Ok(duration),
        Some(Nonsense::Unit(unit)) => Err(NumberError::BadSuffix(unit)),
        Some(Nonsense::TooLong) => Err(NumberError::TooLarge),
    }
}

/// A number as uperf reads it, with a suffix (`20k` is 20,480).
///
/// # Errors
/// A text that is no number, or one beyond 31 bits.
pub fn number(text: &str) -> Result<u64, NumberError> {
    integer(text).map(|integer| integer.value)
}

fn split_digits(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}

/// None where the digits need more than 63 bits.
fn whole(digits: &str) -> Option<i64> {
    if digits.is_empty() {
        return Some(0);
    }
    digits.parse().ok()
}

/// C's strtod on a text without sign: digits with a point, an optional exponent.
fn decimal(text: &str) -> (f64, &str) {
    let bytes = text.as_bytes();
    let digits_from =
        |start: usize| bytes.iter().skip(start).take_while(|byte| byte.is_ascii_digit()).count();
    let before = digits_from(0);
    let after = digits_from(before + 1);
    if before + after == 0 {
        return (0.0, text);
    }
    let mut end = before + 1 + after;
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        let exponent = digits_from(end + 1 + sign);
        if exponent > 0 {
            end += 1 + sign + exponent;
        }
    }
    let (number, rest) = text.split_at_checked(end).unwrap_or((text, ""));
    (number.parse().unwrap_or(0.0), rest)
}

fn shift(suffix: &str) -> Result<u32, NumberError> {
    let Some(first) = suffix.chars().next() else {
        return Ok(0);
    };
    "BKMGTPEZ"
        .chars()
        .position(|letter| letter == first.to_ascii_uppercase())
        .and_then(|index| u32::try_from(index * 10).ok())
        .ok_or(NumberError::BadSuffix(first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers() {
        let table = [
            ("0", Ok(0)),
            ("64", Ok(64)),
            ("64b", Ok(64)),
            ("64k", Ok(65536)),
            ("64K", Ok(65536)),
            ("64kb", Ok(65536)),
            ("64kilo", Ok(65536)),
            ("1m", Ok(1 << 20)),
            ("1g", Ok(1 << 30)),
            ("1.5k", Ok(1536)),
            (".5k", Ok(512)),
            ("1.5", Ok(1)),
            ("1.5e3", Ok(1500)),
            ("1.75g", Ok(1_879_048_192)),
            ("2147483647", Ok(2_147_483_647)),
            ("4294967297", Ok(1)),
            ("2147483648", Err(NumberError::TooLarge)),
            ("2g", Err(NumberError::TooLarge)),
            ("4g", Err(NumberError::TooLarge)),
            ("2.5g", Err(NumberError::TooLarge)),
            ("1t", Err(NumberError::TooLarge)),
            ("1z", Err(NumberError::TooLarge)),
            ("99999999999999999999", Err(NumberError::TooLarge)),
            ("+5", Err(NumberError::NotANumber)),
            ("-5", Err(NumberError::NotANumber)),
            (" 5", Err(NumberError::NotANumber)),
            ("", Err(NumberError::NotANumber)),
            ("k", Err(NumberError::NotANumber)),
            ("5x", Err(NumberError::BadSuffix('x'))),
            ("5 k", Err(NumberError::BadSuffix(' '))),
            (".", Err(NumberError::BadSuffix('.'))),
        ];
        for (text, expected) in table {
            assert_eq!(integer(text).map(|i| i.value), expected, "{text}");
        }
        assert!(integer("4294967297").unwrap().wrapped);
        assert!(integer("64kb").unwrap().long_suffix);
        assert!(!integer("64k").unwrap().long_suffix);
    }

    #[test]
    fn plain_integers_ignore_what_follows() {
        let table = [
            ("5", 5, false),
            ("-5", -5, false),
            ("+5", 5, false),
            ("1k", 1, true),
            ("abc", 0, true),
            ("", 0, true),
            ("4294967297", 1, true),
            ("99999999999999999999", -1, true),
        ];
        for (text, value, inexact) in table {
            assert_eq!(plain(text), Plain { value, inexact }, "{text}");
        }
    }

    #[test]
    fn times() {
        let table = [
            ("2", 2_000_000_000),
            ("2s", 2_000_000_000),
            ("2sec", 2_000_000_000),
            ("2m", 2_000_000),
            ("2min", 2_000_000),
            ("2ms", 2_000_000),
            ("2U", 2_000),
            ("2us", 2_000),
            ("2ns", 2),
            ("0.5", 500_000_000),
            (".5ms", 500_000),
            ("1.5e3s", 1_500_000_000_000),
            ("60s", 60_000_000_000),
        ];
        for (text, nanoseconds) in table {
            let time = time(text).unwrap();
            assert_eq!(time.duration, Duration::from_nanos(nanoseconds), "{text}");
            assert_eq!(time.nonsense, None, "{text}");
        }
        for (text, minutes) in [("2m", true), ("2min", true), ("2ms", false), ("2", false)] {
            assert_eq!(time(text).unwrap().looks_like_minutes, minutes, "{text}");
        }
    }

    #[test]
    fn times_that_are_refused() {
        for text in ["0", "0s", "0.0", "0.1n", ".", "0h"] {
            assert_eq!(time(text), Err(NumberError::Zero), "{text}");
        }
        for text in ["", "s", "-1", "+1s", " 1"] {
            assert_eq!(time(text), Err(NumberError::NotANumber), "{text}");
        }
        assert_eq!(time("99999999999999999999"), Err(NumberError::TooLarge));
    }

    #[test]
    fn times_from_which_uperf_makes_nonsense() {
        let nonsense = |text| time(text).unwrap().nonsense;
        assert_eq!(nonsense("2h"), Some(Nonsense::Unit('h')));
        assert_eq!(nonsense("1e3"), Some(Nonsense::Unit('e')));
        assert_eq!(nonsense("9999999999999s"), Some(Nonsense::TooLong));
    }

    /// What uperf computes, in its own float arithmetic.
    fn uperf_nanoseconds(whole: u64, multiplier: f32) -> u64 {
        (whole as f32 * multiplier) as u64
    }

    proptest::proptest! {
        #[test]
        fn a_time_is_uperfs_within_its_seven_digits(whole in 1u64..100_000) {
            for (unit, multiplier) in [("s", 1e9), ("m", 1e6), ("u", 1e3), ("n", 1.0)] {
                let ours = time(&format!("{whole}{unit}")).unwrap().duration.as_nanos() as f64;
                let theirs = uperf_nanoseconds(whole, multiplier) as f64;
                proptest::prop_assert!((ours - theirs).abs() <= ours * 1.2e-7);
            }
        }

        #[test]
        fn never_panics(text in "[0-9.eEkKmsgt+\u{e9} -]{0,24}") {
            let _ = integer(&text);
            let _ = plain(&text);
            let _ = time(&text);
        }
    }
}
