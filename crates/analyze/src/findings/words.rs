//! Wording of findings.

use crate::metrics::Selector;
use wirecost_model::document;
use wirecost_model::metric::Unit;
use wirecost_model::study::Value;
use wirecost_model::units::three_digits;

/// `100 connections`, `size 64k`.
pub(crate) fn stop(axis: &str, value: &str) -> String {
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
pub(crate) fn sentence(fixed: &[&Value], text: &str) -> String {
    if fixed.is_empty() {
        let mut letters = text.chars();
        let first = letters.next().map(|letter| letter.to_uppercase().to_string());
        return format!("{}{}.", first.unwrap_or_default(), letters.as_str());
    }
    format!("At {}, {text}.", point(fixed))
}

/// A point by what its axes are: `connections=1 size=64k`; the only one has none.
pub(super) fn point(fixed: &[&Value]) -> String {
    let values: Vec<String> =
        fixed.iter().map(|value| format!("{}={}", value.name, value.value)).collect();
    if values.is_empty() { "the only point".to_owned() } else { values.join(" ") }
}

/// A metric as sentences call it.
pub(super) fn metric(selector: &Selector) -> String {
    match selector.name.as_str() {
        "cycles_per_kbyte" => "cycles/KByte".to_owned(),
        name => match name.strip_prefix("latency.") {
            Some(percentile) => format!("{percentile} latency"),
            None => name.to_owned(),
        },
    }
}

/// A value of a metric, whose name [`metric`] says what cycles are of.
pub(super) fn value(selector: &Selector, value: f64) -> String {
    match selector.metric().unit {
        Unit::CyclesPerKByte => plain(value),
        unit => document::show(unit, value),
    }
}

/// `2.3x`.
pub(super) fn fold(factor: f64) -> String {
    let digits = if factor < 9.95 { format!("{factor:.1}") } else { format!("{factor:.0}") };
    format!("{digits}x")
}

/// `1 point`, `2 points`.
pub(super) fn number(number: usize, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

/// `a`, `a and b`, `a, b and c`.
pub(crate) fn list(parts: &[String]) -> String {
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
        assert_eq!((number(1, "point"), number(2, "point")), ("1 point".into(), "2 points".into()));
        assert_eq!((fold(2.345), fold(17.2)), ("2.3x".to_owned(), "17x".to_owned()));
        assert_eq!(list(&["a".to_owned(), "b".to_owned(), "c".to_owned()]), "a, b and c");
    }
}
