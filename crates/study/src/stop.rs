//! When a point has enough runs.

use std::time::Duration;

use wirecost_analyze::Estimate;
use wirecost_analyze::metrics::{self, Selector};

use crate::definition::Repeat;
use crate::error::StudyError;

/// The parsed `repeat` of a study.
#[derive(Debug)]
pub(crate) struct StopRule {
    pub(crate) times: u32,
    pub(crate) most: u32,
    pub(crate) budget: Option<Duration>,
    /// Figures, with the maximum width of each interval relative to its mean.
    pub(crate) until: Vec<(Selector, f64)>,
}

/// Default of `most`, so that a study always ends.
const DEFAULT_MOST: u32 = 30;

impl StopRule {
    pub(crate) fn of(repeat: &Repeat) -> Result<Self, StudyError> {
        let wrong = |key: &str, value: &str, message: &str| StudyError::Value {
            key: format!("repeat.{key}"),
            value: value.to_owned(),
            message: message.to_owned(),
        };
        let mut until = Vec::new();
        for (name, width) in &repeat.until {
            let percent = width.trim().strip_suffix('%').and_then(|text| text.trim().parse().ok());
            let percent: f64 = percent
                .filter(|percent: &f64| *percent > 0.0 && percent.is_finite())
                .ok_or_else(|| wrong("until", width, "must be a percentage, such as \"5%\""))?;
            until.push((metrics::find(name)?, percent / 100.0));
        }
        let budget = match &repeat.budget {
            Some(text) => Some(
                humantime::parse_duration(text)
                    .map_err(|_| wrong("budget", text, "must be a time, such as \"10m\""))?,
            ),
            None => None,
        };
        if repeat.times == 0 {
            return Err(wrong("times", "0", "must be at least 1"));
        }
        let more = if until.is_empty() { repeat.times } else { DEFAULT_MOST.max(repeat.times) };
        let most = repeat.most.unwrap_or(more);
        if most < repeat.times {
            return Err(wrong("most", &most.to_string(), "must not be less than repeat.times"));
        }
        if until.is_empty() && most > repeat.times {
            let message = "has no effect without repeat.until";
            return Err(wrong("most", &most.to_string(), message));
        }
        Ok(Self { times: repeat.times, most, budget, until })
    }

    /// Whether a point with these figures (in the order of `until`) needs another run.
    pub(crate) fn wants_more(&self, runs: u32, figures: &[Vec<f64>]) -> bool {
        if runs < self.times {
            return true;
        }
        let wide = |(values, (_, most)): (&Vec<f64>, &(Selector, f64))| {
            // Further runs do not help a figure that was never measured.
            Estimate::of(values)
                .is_some_and(|estimate| estimate.relative_width().is_none_or(|width| width > *most))
        };
        runs < self.most && figures.iter().zip(&self.until).any(wide)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> Result<StopRule, StudyError> {
        StopRule::of(&toml::from_str(text).unwrap())
    }

    #[test]
    fn without_until_each_point_runs_times() {
        let rule = rule("times = 3").unwrap();
        assert!(rule.wants_more(2, &[]));
        assert!(!rule.wants_more(3, &[]));
    }

    #[test]
    fn runs_repeat_until_the_interval_is_narrow_or_most_is_reached() {
        let rule = rule("times = 2\nmost = 4\nuntil = { throughput = \"5%\" }").unwrap();
        assert!(rule.wants_more(1, &[vec![10.0]]));
        // Two equal values have an interval of width 0.
        assert!(!rule.wants_more(2, &[vec![10.0, 10.0]]));
        assert!(rule.wants_more(2, &[vec![10.0, 12.0]]));
        assert!(!rule.wants_more(4, &[vec![10.0, 12.0, 9.0, 14.0]]));
        // Not measured: no number of runs helps.
        assert!(!rule.wants_more(2, &[vec![]]));
    }

    #[test]
    fn invalid_stop_rules_are_refused() {
        for (text, wanted) in [
            ("until = { throughput = \"5\" }", "a percentage"),
            ("until = { throughput = \"0%\" }", "a percentage"),
            ("until = { througput = \"5%\" }", "did you mean throughput?"),
            ("budget = \"soon\"", "must be a time"),
            ("times = 0", "at least 1"),
            ("times = 3\nmost = 2\nuntil = { throughput = \"5%\" }", "less than"),
            ("times = 3\nmost = 5", "without repeat.until"),
        ] {
            let error = rule(text).unwrap_err().to_string();
            assert!(error.contains(wanted), "{text}: {error}");
        }
    }
}
