//! Where a run stands in a study.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::search::SearchTrial;
use crate::units::parse_bit_rate;

/// Something a study sets, and what to: `size` to `64k`.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub struct Value {
    /// An axis, a variable of the profile, or what a run has options for: `connections`, `engine`.
    pub name: String,
    /// As it is written.
    pub value: String,
}

impl Value {
    #[must_use]
    pub fn new(name: &str, value: &str) -> Self {
        Self { name: name.to_owned(), value: value.to_owned() }
    }

    /// See [`number`].
    #[must_use]
    pub fn number(&self) -> Option<f64> {
        number(&self.value)
    }
}

/// A value as a number; `64k` is 65536. `None` for what is none.
#[must_use]
pub fn number(text: &str) -> Option<f64> {
    let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(split);
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return None,
    };
    let value: f64 = digits.parse().ok().filter(|value: &f64| value.is_finite())?;
    Some(value * f64::from(shift).exp2())
}

/// The axis or setting that says how much load is offered.
pub const LOAD: &str = "load";

/// How much load is offered at a point.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum OfferedLoad {
    /// As much as the hosts and the network can move.
    Max,
    /// Bits per second of payload.
    Rate(u64),
    /// A part of the throughput at the point that differs in nothing but a load of `max`: 0.25 of `25%`.
    Share(f64),
    /// A part of the most payload that the link carries: 0.9 of `90%-of-link`.
    OfLink(f64),
}

/// What follows the share of a link.
const OF_LINK: &str = "-of-link";

impl OfferedLoad {
    /// `max`, a rate such as `1gbit`, or a share such as `25%` or `90%-of-link`, which is at most `1000%`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text == "max" {
            return Some(OfferedLoad::Max);
        }
        let (share, of): (&str, fn(f64) -> Self) = match text.strip_suffix(OF_LINK) {
            Some(share) => (share, OfferedLoad::OfLink),
            None => (text, OfferedLoad::Share),
        };
        match share.strip_suffix('%') {
            Some(percent) => {
                let percent: f64 = percent.trim().parse().ok()?;
                (percent > 0.0 && percent <= 1000.0).then(|| of(percent / 100.0))
            }
            None => parse_bit_rate(text).map(OfferedLoad::Rate),
        }
    }
}

/// One set of values.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, JsonSchema,
)]
pub struct Point {
    /// One of each axis, in the order of the axes. They tell a point from all others of its study.
    pub axes: Vec<Value>,
    /// All that is set at this point, whether an axis says so or a rule of the study.
    pub settings: Vec<Value>,
}

impl Point {
    /// What an axis or a setting is here.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        let all = self.axes.iter().chain(&self.settings);
        all.into_iter().find(|value| value.name == name).map(|value| value.value.as_str())
    }

    /// How much load is offered here; `max` where nothing says so.
    #[must_use]
    pub fn load(&self) -> OfferedLoad {
        self.get(LOAD).and_then(OfferedLoad::parse).unwrap_or(OfferedLoad::Max)
    }

    /// Whether it offers less, or more, than what saturates.
    #[must_use]
    pub fn is_paced(&self) -> bool {
        self.load() != OfferedLoad::Max
    }

    /// Whether the other point differs in nothing but its load, which is `max`.
    #[must_use]
    pub fn is_saturated_by(&self, other: &Point) -> bool {
        let others = |point: &Point| -> Vec<Value> {
            point.axes.iter().filter(|axis| axis.name != LOAD).cloned().collect()
        };
        let has_axis = |point: &Point| point.axes.iter().any(|axis| axis.name == LOAD);
        has_axis(self) && has_axis(other) && !other.is_paced() && others(self) == others(other)
    }

    /// The same as a number, where it is one.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<f64> {
        number(self.get(name)?)
    }
}

impl std::fmt::Display for Point {
    /// `connections=100 size=64k`; a study without axes has one point, which is `all`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.axes.is_empty() {
            return f.write_str("all");
        }
        for (place, axis) in self.axes.iter().enumerate() {
            let blank = if place == 0 { "" } else { " " };
            write!(f, "{blank}{}={}", axis.name, axis.value)?;
        }
        Ok(())
    }
}

/// Which run of which study a document is of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StudyRunRef {
    /// Title of the study.
    pub study: String,
    pub point: Point,
    /// Place of the point in the list of all points, from 1.
    pub place: u32,
    /// The how manieth run of this point, from 1; 0 for one to warm up, which does not count.
    pub repeat: u32,
    /// Its place in the order in which the runs were made, from 1.
    pub order: u32,
    /// What a run of a search is a trial of; null for any other run, and in older records.
    #[serde(default)]
    pub search: Option<SearchTrial>,
}

impl StudyRunRef {
    /// Name of its record.
    #[must_use]
    pub fn id(&self) -> String {
        run_id(self.place, self.repeat)
    }
}

/// Name of the record of a point's run.
#[must_use]
pub fn run_id(place: u32, repeat: u32) -> String {
    match repeat {
        0 => format!("{place:04}-warm-up"),
        repeat => format!("{place:04}-{repeat:02}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_binary_suffixes() {
        assert_eq!(number("64k"), Some(65536.0));
        assert_eq!(number("1M"), Some(1_048_576.0));
        assert_eq!(number("6000"), Some(6000.0));
        assert_eq!(number("0.5"), Some(0.5));
        for none in ["epoll", "", "k", "10ms", "@stream", "inf", "nan", "1e3", "-"] {
            assert_eq!(number(none), None, "{none}");
        }
    }

    #[test]
    fn loads_are_max_or_rates_or_shares() {
        assert_eq!(OfferedLoad::parse("max"), Some(OfferedLoad::Max));
        assert_eq!(OfferedLoad::parse("2.5gbit"), Some(OfferedLoad::Rate(2_500_000_000)));
        assert_eq!(OfferedLoad::parse("25%"), Some(OfferedLoad::Share(0.25)));
        assert_eq!(OfferedLoad::parse("90%-of-link"), Some(OfferedLoad::OfLink(0.9)));
        for none in ["", "fast", "0%", "-5%", "1001%", "nan%", "25", "0bit"] {
            assert_eq!(OfferedLoad::parse(none), None, "{none}");
        }
        let point = |load: &str, size: &str| {
            let axes = vec![Value::new("size", size), Value::new(LOAD, load)];
            Point { axes: axes.clone(), settings: axes }
        };
        let paced = point("25%", "64k");
        assert!(paced.is_paced() && !Point::default().is_paced());
        assert!(paced.is_saturated_by(&point("max", "64k")));
        assert!(!paced.is_saturated_by(&point("max", "1k")));
        assert!(!paced.is_saturated_by(&point("50%", "64k")));
        assert!(!paced.is_saturated_by(&Point::default()));
    }

    #[test]
    fn a_point_is_told_by_its_axes_and_knows_its_settings() {
        let point = Point {
            axes: vec![Value::new("connections", "400"), Value::new("size", "8k")],
            settings: vec![Value::new("connections", "400"), Value::new("wndsz", "32k")],
        };
        assert_eq!(point.to_string(), "connections=400 size=8k");
        assert_eq!(point.number("wndsz"), Some(32768.0));
        assert_eq!(point.get("engine"), None);
        assert_eq!(Point::default().to_string(), "all");
    }
}
