//! Wording of findings.

use wirecost_model::study::Value;
use wirecost_model::units::three_digits;

/// `100 connections`, `size 64k`.
pub(super) fn stop(axis: &str, value: &str) -> String {
    if counts(axis) { format!("{value} {axis}") } else { format!("{axis} {value}") }
}

/// `from 1 to 100 connections`, `from size 1k to 64k`.
pub(super) fn span(axis: &str, first: &str, last: &str) -> String {
    if counts(axis) {
        format!("from {first} to {last} {axis}")
    } else {
        format!("from {axis} {first} to {last}")
    }
}

/// Axes that are a number of what they are called.
fn counts(axis: &str) -> bool {
    matches!(axis, "connections" | "workers")
}

/// A sentence of the points that have these values; it begins in small letters and has no end.
pub(super) fn sentence(fixed: &[&Value], text: &str) -> String {
    if fixed.is_empty() {
        let mut letters = text.chars();
        let first = letters.next().map(|letter| letter.to_uppercase().to_string());
        return format!("{}{}.", first.unwrap_or_default(), letters.as_str());
    }
    let values: Vec<String> =
        fixed.iter().map(|value| format!("{}={}", value.name, value.value)).collect();
    format!("At {}, {text}.", values.join(" "))
}

/// `2.3x`.
pub(super) fn fold(factor: f64) -> String {
    let digits = if factor < 9.95 { format!("{factor:.1}") } else { format!("{factor:.0}") };
    format!("{digits}x")
}

/// `31 to 51 points`: a unit of both ends is written once.
pub(super) fn range(low: &str, high: &str) -> String {
    match (low.split_once(' '), high.split_once(' ')) {
        (Some((number, unit)), Some((_, other))) if unit == other => format!("{number} to {high}"),
        _ => format!("{low} to {high}"),
    }
}

/// `a`, `a and b`, `a, b and c`.
pub(super) fn list(parts: &[String]) -> String {
    match parts {
        [] => String::new(),
        [one] => one.clone(),
        [rest @ .., last] => format!("{} and {last}", rest.join(", ")),
    }
}

/// A figure in an interval: enough digits to tell its ends apart.
pub(super) fn plain(value: f64) -> String {
    if value.abs() >= 1000.0 { format!("{value:.0}") } else { three_digits(value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_read_well() {
        assert_eq!(stop("connections", "100"), "100 connections");
        assert_eq!(span("size", "1k", "64k"), "from size 1k to 64k");
        assert_eq!(sentence(&[], "it grows"), "It grows.");
        let value = Value::new("size", "64k");
        assert_eq!(sentence(&[&value], "it grows"), "At size=64k, it grows.");
        assert_eq!((fold(2.345), fold(17.2)), ("2.3x".to_owned(), "17x".to_owned()));
        assert_eq!(range("31 points", "51 points"), "31 to 51 points");
        assert_eq!(range("1 B", "2 kB"), "1 B to 2 kB");
        assert_eq!(range("2x", "3x"), "2x to 3x");
        assert_eq!(list(&["a".to_owned(), "b".to_owned(), "c".to_owned()]), "a, b and c");
    }
}
