//! A statement that the runs of a study support.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::metric::Unit;
use crate::study::Value;
use crate::units::three_digits;

/// A sentence about a study, with what supports it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// Name of its kind: `saturation`.
    pub kind: String,
    /// Name of the metric, as tables and comparisons use it.
    pub metric: Option<String>,
    /// The axis of the study that it is about; null where it is about all points.
    pub axis: Option<String>,
    /// What the other axes are where it holds; empty where it holds at all of their values.
    pub at: Vec<Value>,
    pub sentence: String,
    pub effect: Option<Effect>,
    /// p-value after correction for all tests of the study; null where nothing was tested, as in a
    /// sentence about what could not be shown.
    pub p_value: Option<f64>,
    pub strength: Option<Strength>,
    /// Figures, and their points.
    pub evidence: Vec<String>,
    /// Points whose runs it rests on, as a list of runs names them; empty where the document has no such list.
    pub points: Vec<String>,
}

/// The size of what a finding states.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Effect {
    /// What the value is: `ratio`, or `connections` where it is a place on that axis.
    pub name: String,
    pub unit: Unit,
    pub value: f64,
    /// 95% interval; null where points were run once.
    pub interval: Option<(f64, f64)>,
    /// Of a ratio: the two values of the axis whose figures it is of, the first divided by the second.
    #[serde(default)]
    pub between: Option<(String, String)>,
}

impl Effect {
    /// `2.1x to 2.5x`, `8 to 32`, `31% to 45%`; `None` where points were run once.
    #[must_use]
    pub fn interval_text(&self) -> Option<String> {
        self.interval.map(|(low, high)| format!("{} to {}", self.show(low), self.show(high)))
    }

    /// What the value is: `the ratio of 16 to 1`, `contention`.
    fn what(&self) -> String {
        match &self.between {
            Some((value, other)) => format!("the {} of {value} to {other}", self.name),
            None if self.unit == Unit::Ratio => format!("the {}", self.name),
            None => self.name.clone(),
        }
    }

    /// `2.3x`, `16`, `38%`.
    #[must_use]
    pub fn value_text(&self) -> String {
        self.show(self.value)
    }

    fn show(&self, value: f64) -> String {
        match self.unit {
            Unit::Ratio if value < 9.95 => format!("{value:.2}x"),
            Unit::Ratio => format!("{value:.0}x"),
            Unit::Count if value.abs() >= 1000.0 => format!("{value:.0}"),
            Unit::Count => three_digits(value),
            unit => unit.show(value),
        }
    }
}

/// Strength of the evidence, by the corrected p-value.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Strength {
    /// From 0.01 to 0.05.
    Moderate,
    /// From 0.001 to 0.01.
    Strong,
    /// Below 0.001.
    VeryStrong,
}

impl Strength {
    #[must_use]
    pub fn of(p_value: f64) -> Self {
        match p_value {
            p if p < 0.001 => Strength::VeryStrong,
            p if p < 0.01 => Strength::Strong,
            _ => Strength::Moderate,
        }
    }

    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Strength::Moderate => "moderate",
            Strength::Strong => "strong",
            Strength::VeryStrong => "very strong",
        }
    }
}

impl Finding {
    /// The strength of the evidence with p-value and interval, and the evidence itself; empty where
    /// there is none.
    #[must_use]
    pub fn support(&self) -> String {
        let mut words = Vec::new();
        if let (Some(p_value), Some(strength)) = (self.p_value, self.strength) {
            let p_value = match p_value {
                p if p < 0.0001 => "adjusted p < 0.0001".to_owned(),
                p => format!("adjusted p = {p:.4}"),
            };
            let interval = match &self.effect {
                None => String::new(),
                Some(effect) => match effect.interval_text() {
                    Some(interval) => format!(", 95% interval of {}: {interval}", effect.what()),
                    None => ", each point was run once".to_owned(),
                },
            };
            words.push(format!("{} ({p_value}{interval})", strength.word()));
        }
        words.extend((!self.evidence.is_empty()).then(|| self.evidence.join("; ")));
        words.join(": ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn support_tells_strength_interval_and_evidence() {
        let effect = Effect {
            name: "ratio".to_owned(),
            unit: Unit::Ratio,
            value: 2.3,
            interval: Some((2.1, 12.5)),
            between: None,
        };
        let finding = Finding {
            kind: "cost".to_owned(),
            metric: None,
            axis: None,
            at: Vec::new(),
            sentence: String::new(),
            effect: Some(effect),
            p_value: Some(0.002),
            strength: Some(Strength::of(0.002)),
            evidence: vec!["1: 1000".to_owned(), "8: 2300".to_owned()],
            points: Vec::new(),
        };
        assert_eq!(
            finding.support(),
            "strong (adjusted p = 0.0020, 95% interval of the ratio: 2.10x to 12x): 1: 1000; 8: 2300"
        );
        let between = Some(("8".to_owned(), "1".to_owned()));
        let effect = finding.effect.clone().map(|effect| Effect { between, ..effect });
        let told = Finding { effect, ..finding.clone() }.support();
        assert!(told.contains("95% interval of the ratio of 8 to 1: 2.10x to 12x"), "{told}");
        let untested = Finding { p_value: None, strength: None, effect: None, ..finding };
        assert_eq!(untested.support(), "1: 1000; 8: 2300");
    }
}
