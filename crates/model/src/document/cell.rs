//! What stands in one place of a table.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Emphasis;
use crate::metric::Unit;
use crate::{study, units};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Cell {
    Text(String),
    /// What was set for the runs of this row.
    Set(Set),
    Number(Number),
    /// Figures that are read together.
    Parts(Parts),
    /// Not measured, and why; empty where a note of the section says so.
    Missing(String),
    Marked(Marked),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Set {
    /// As it is written: `64k`.
    pub text: String,
    /// The same as a number, 65536; null for what is none.
    pub number: Option<f64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Number {
    pub value: f64,
    /// 95% interval; null for what was measured once.
    pub interval: Option<(f64, f64)>,
    /// As a person reads it.
    pub text: String,
    pub unit: Unit,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Parts {
    /// As a person reads them: `(0/24/3/74)`.
    pub text: String,
    pub parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Part {
    pub name: String,
    pub number: Number,
}

/// A word or two that stands out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Marked {
    pub text: String,
    pub emphasis: Emphasis,
}

impl Cell {
    pub fn text(text: impl Into<String>) -> Self {
        Cell::Text(text.into())
    }

    /// Where a row has nothing in a column.
    #[must_use]
    pub fn empty() -> Self {
        Cell::Text(String::new())
    }

    #[must_use]
    pub fn marked(emphasis: Emphasis, text: &str) -> Self {
        Cell::Marked(Marked { text: text.to_owned(), emphasis })
    }

    /// What was set, as it is written.
    #[must_use]
    pub fn set(text: &str) -> Self {
        Cell::Set(Set { text: text.to_owned(), number: study::number(text) })
    }

    /// A number that is exact, or was seen once.
    #[must_use]
    pub fn number(unit: Unit, value: f64) -> Self {
        Cell::Number(Number::once(unit, value))
    }

    /// The same, written in a way of its own, or with its unit in the head of the column only.
    #[must_use]
    pub fn written(unit: Unit, value: f64, text: impl Into<String>) -> Self {
        Cell::Number(Number { value, interval: None, text: text.into(), unit })
    }

    /// A whole number of things, exact: `1,234,567`.
    #[must_use]
    pub fn count(number: u64) -> Self {
        Self::written(Unit::Count, number as f64, units::count(number))
    }

    /// Rounded to a whole number, for rates whose unit is in the head of the column.
    #[must_use]
    pub fn rounded(unit: Unit, value: f64) -> Self {
        Self::written(unit, value, units::whole(value))
    }

    #[must_use]
    pub fn bytes(bytes: u64) -> Self {
        Self::written(Unit::Bytes, bytes as f64, units::bytes(bytes))
    }

    /// A length of time.
    #[must_use]
    pub fn seconds(seconds: f64) -> Self {
        Self::number(Unit::Microseconds, seconds * 1e6)
    }

    /// Percent, of which the head of the column tells that it is.
    #[must_use]
    pub fn percent(percent: f64) -> Self {
        Self::written(Unit::Percent, percent, units::percent(percent))
    }

    /// What is made of a value, or why there is none.
    #[must_use]
    pub fn or_missing<T>(value: Option<T>, reason: &str, cell: impl FnOnce(T) -> Self) -> Self {
        value.map_or_else(|| Cell::Missing(reason.to_owned()), cell)
    }

    /// What is made of a value; a dash where there is none and a note of the section says why.
    #[must_use]
    pub fn or_dash<T>(value: Option<T>, cell: impl FnOnce(T) -> Self) -> Self {
        Self::or_missing(value, "", cell)
    }

    /// As a person reads it; of what is missing a dash.
    #[must_use]
    pub fn shown(&self) -> &str {
        match self {
            Cell::Text(text) => text,
            Cell::Marked(marked) => &marked.text,
            Cell::Set(set) => &set.text,
            Cell::Number(number) => &number.text,
            Cell::Parts(parts) => &parts.text,
            Cell::Missing(_) => units::NOT_MEASURED,
        }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Cell::text(text)
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Cell::Text(text)
    }
}

impl From<Parts> for Cell {
    fn from(parts: Parts) -> Self {
        Cell::Parts(parts)
    }
}

impl Parts {
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), parts: Vec::new() }
    }

    /// With one of the numbers that the text has.
    #[must_use]
    pub fn with(mut self, name: &str, unit: Unit, value: f64) -> Self {
        self.parts.push(Part { name: name.to_owned(), number: Number::once(unit, value) });
        self
    }

    /// The same of a number that has an interval.
    #[must_use]
    pub fn with_interval(
        mut self,
        name: &str,
        unit: Unit,
        (value, interval): (f64, Option<(f64, f64)>),
    ) -> Self {
        let number = Number { interval, ..Number::once(unit, value) };
        self.parts.push(Part { name: name.to_owned(), number });
        self
    }

    /// The same, where there is such a number.
    #[must_use]
    pub fn maybe_with(self, name: &str, unit: Unit, value: Option<f64>) -> Self {
        match value {
            Some(value) => self.with(name, unit, value),
            None => self,
        }
    }
}

impl Number {
    #[must_use]
    pub fn once(unit: Unit, value: f64) -> Self {
        Self { value, interval: None, text: show(unit, value), unit }
    }

    /// With its interval, in words too: `9.24 Gb/s ±2%`.
    #[must_use]
    pub fn estimate(unit: Unit, value: f64, interval: Option<(f64, f64)>) -> Self {
        Self::with_text(unit, value, interval, &show(unit, value))
    }

    /// The same, where a table writes the value in a way of its own.
    #[must_use]
    pub fn with_text(unit: Unit, value: f64, interval: Option<(f64, f64)>, shown: &str) -> Self {
        let wide = interval.filter(|(low, high)| low < high);
        let text = match wide {
            Some(interval) => format!("{shown} ±{}", reach(unit, value, interval)),
            None => shown.to_owned(),
        };
        Self { value, interval, text, unit }
    }
}

/// How far an interval goes to its farther side: percent of the value, or as much of the unit where
/// that is percent itself or the value is 0. Rounded up, so that it never claims more than is known.
fn reach(unit: Unit, value: f64, (low, high): (f64, f64)) -> String {
    let reach = (value - low).max(high - value);
    // What is 0.30000000000000004 is not 0.4.
    let up = |value: f64, step: f64| (value / step - 1e-9).ceil().max(0.0) * step;
    match unit {
        Unit::Percent => format!("{:.1}", up(reach, 0.1)),
        _ if value == 0.0 => show(unit, reach),
        _ => match 100.0 * reach / value.abs() {
            percent if percent > 999.0 => ">999%".to_owned(),
            percent if percent > 1.0 => format!("{:.0}%", up(percent, 1.0)),
            percent => format!("{:.1}%", up(percent, 0.1)),
        },
    }
}

/// A value as tables have it. The unit stands with it where it has a prefix or is short; the head of the
/// column tells the others.
#[must_use]
pub fn show(unit: Unit, value: f64) -> String {
    match unit {
        Unit::BitsPerSecond => units::bit_rate(value),
        Unit::PerSecond => units::rate(value),
        Unit::Microseconds => units::latency(value),
        Unit::CyclesPerKByte => units::cycles(value),
        Unit::Percent => format!("{value:.1}%"),
        Unit::Bytes => units::decimal(value, "B"),
        Unit::Seconds | Unit::GigaHertz | Unit::Watts => unit.show(value),
        Unit::Count if value.fract() == 0.0 || value.abs() >= 99.95 => units::whole(value),
        Unit::Count | Unit::Ratio => units::three_digits(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(unit: Unit, mean: f64, interval: Option<(f64, f64)>) -> String {
        Number::estimate(unit, mean, interval).text
    }

    #[test]
    fn an_interval_stands_behind_its_value_and_is_never_narrower_than_it_is() {
        use Unit::{BitsPerSecond, Count, CyclesPerKByte, Percent, Ratio};
        for (unit, mean, interval, expected) in [
            (BitsPerSecond, 9.24e9, Some((9.06e9, 9.42e9)), "9.24 Gb/s ±2%"),
            (BitsPerSecond, 9.24e9, None, "9.24 Gb/s"),
            (BitsPerSecond, 1e9, Some((0.979e9, 1.021e9)), "1.00 Gb/s ±3%"),
            (CyclesPerKByte, 11_792.0, Some((11_750.0, 11_834.0)), "11,792 ±0.4%"),
            (CyclesPerKByte, 100.0, Some((99.7, 100.3)), "100 ±0.3%"),
            // Percent of percent is what nobody reads right.
            (Percent, 45.3, Some((44.95, 45.65)), "45.3% ±0.4"),
            (Count, 0.0, Some((-0.3, 0.3)), "0 ±0.300"),
            (Count, 0.0, Some((0.0, 0.0)), "0"),
            (Count, 1234.0, None, "1,234"),
            (Ratio, 0.5, Some((-10.0, 11.0)), "0.500 ±>999%"),
            // Of two sides the farther.
            (Ratio, 2.0, Some((1.9, 2.2)), "2.00 ±10%"),
            (Ratio, -2.0, Some((-2.1, -1.9)), "-2.00 ±5%"),
        ] {
            assert_eq!(text(unit, mean, interval), expected);
        }
    }

    #[test]
    fn what_was_set_is_kept_as_it_is_written() {
        assert_eq!(Cell::set("64k"), Cell::Set(Set { text: "64k".into(), number: Some(65536.0) }));
        assert_eq!(Cell::set("epoll"), Cell::Set(Set { text: "epoll".into(), number: None }));
    }

    #[test]
    fn what_is_missing_is_a_dash_and_keeps_its_reason() {
        let cell = Cell::or_missing(None::<u64>, "no probe", Cell::count);
        assert_eq!((cell.shown(), &cell), ("-", &Cell::Missing("no probe".to_owned())));
    }
}
