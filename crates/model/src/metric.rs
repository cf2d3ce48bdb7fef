//! What a figure is: its name, its unit, and which way is better.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::units::{decimal, three_digits};

/// One kind of figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metric {
    /// Its name without the host that it is of.
    pub name: &'static str,
    /// One line for a person.
    pub help: &'static str,
    pub unit: Unit,
    pub better: Better,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    Higher,
    Lower,
    /// It says how things are, not how good.
    Neither,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    BitsPerSecond,
    PerSecond,
    Microseconds,
    Seconds,
    #[serde(rename = "cycles_per_kbyte")]
    CyclesPerKByte,
    Percent,
    Bytes,
    #[serde(rename = "ghz")]
    GigaHertz,
    Watts,
    /// A number of things.
    Count,
    /// One over another.
    Ratio,
}

impl Unit {
    /// As it stands beside a number; empty where there is none.
    #[must_use]
    pub fn symbol(self) -> &'static str {
        match self {
            Unit::BitsPerSecond => "b/s",
            Unit::PerSecond => "/s",
            Unit::Microseconds => "us",
            Unit::Seconds => "s",
            Unit::CyclesPerKByte => "cycles/KByte",
            Unit::Percent => "%",
            Unit::Bytes => "B",
            Unit::GigaHertz => "GHz",
            Unit::Watts => "W",
            Unit::Count | Unit::Ratio => "",
        }
    }

    /// The values that a measured figure can have.
    #[must_use]
    pub fn range(self) -> (f64, f64) {
        match self {
            Unit::Percent => (0.0, 100.0),
            _ => (0.0, f64::INFINITY),
        }
    }

    /// A value for a person, its unit with it.
    #[must_use]
    pub fn show(self, value: f64) -> String {
        match self {
            Unit::BitsPerSecond | Unit::PerSecond => decimal(value, self.symbol()),
            Unit::CyclesPerKByte | Unit::Count | Unit::Bytes if value.abs() >= 100.0 => {
                format!("{value:.0} {}", self.symbol()).trim_end().to_owned()
            }
            Unit::Percent => format!("{value:.1}%"),
            _ => format!("{} {}", three_digits(value), self.symbol()).trim_end().to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_shown_with_their_unit() {
        assert_eq!(Unit::BitsPerSecond.show(9.24e9), "9.24 Gb/s");
        assert_eq!(Unit::CyclesPerKByte.show(11_792.4), "11792 cycles/KByte");
        assert_eq!(Unit::CyclesPerKByte.show(12.34), "12.3 cycles/KByte");
        assert_eq!(Unit::Percent.show(3.0), "3.0%");
        assert_eq!(Unit::GigaHertz.show(3.4), "3.40 GHz");
        assert_eq!(Unit::Watts.show(87.25), "87.2 W");
        assert_eq!(Unit::Ratio.show(1.97), "1.97");
        assert_eq!(Unit::Count.show(1234.0), "1234");
        assert_eq!(Unit::Microseconds.show(47.31), "47.3 us");
        assert_eq!(Unit::Seconds.show(3.0), "3.00 s");
    }
}
