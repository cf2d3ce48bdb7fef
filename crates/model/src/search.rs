//! Searches for the highest offered load whose loss stays within a bound, by MLRsearch (RFC 9971,
//! <https://www.rfc-editor.org/rfc/rfc9971>): what is searched for, and what a trial of it is.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a search looks for at one point of a study. Loads are bits per second of payload, over all
/// strands and both directions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Search {
    /// Min Load of the RFC.
    pub min_bits_per_second: u64,
    /// Max Load: that of the study, or less where the link cannot carry it.
    pub max_bits_per_second: u64,
    /// Rate of the link in bits per second on the wire, where it is what limits the Max Load.
    pub link_bits_per_second: Option<u64>,
    /// No trial begins once the trials have lasted this long together, with their ramps.
    pub time_limit_seconds: f64,
    pub goals: Vec<SearchGoal>,
}

/// One Search Goal of the RFC.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SearchGoal {
    /// Goal Loss Ratio, 0 to 1: a trial that loses more is a high-loss trial.
    pub loss_ratio: f64,
    /// Goal Exceed Ratio, 0 to 1: the share of the time at a load that may be of high-loss trials.
    pub exceed_ratio: f64,
    /// Goal Width: the largest difference of the two bounds, relative to the upper one.
    pub width: f64,
    /// Goal Initial Trial Duration.
    pub initial_trial_seconds: f64,
    /// Goal Final Trial Duration.
    pub trial_seconds: f64,
    /// Goal Duration Sum: full-length trials of this length together decide on a load.
    pub duration_sum_seconds: f64,
}

/// A run that is a trial of a search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SearchTrial {
    /// Trial Load: what was to be offered.
    pub bits_per_second: u64,
    /// Trial Duration, without the ramp.
    pub seconds: f64,
    pub search: Search,
}

/// A share as percent: `0.5%`, `0.001%`.
#[must_use]
pub fn percent(share: f64) -> String {
    let digits = format!("{:.6}", share * 100.0);
    format!("{}%", digits.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    #[test]
    fn shares_are_written_as_short_as_they_are() {
        let texts = [0.0, 0.005, 0.07, 0.000_01, 0.5].map(super::percent);
        assert_eq!(texts, ["0%", "0.5%", "7%", "0.001%", "50%"]);
    }
}
