//! How steady the traffic of a window was: outages, dips and drift.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Of the window of a run. Lists have at most [`Stability::LISTED`] entries, the longest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Stability {
    /// Times of a second and more in which no byte moved on any flow though operations were under way, in order of time.
    pub outages: Vec<Outage>,
    /// Of these, all.
    pub outage_count: u64,
    /// Times in which throughput was below half of the median interval's, in order of time. An outage is part of one, unless
    /// it is much shorter than an interval.
    pub dips: Vec<Dip>,
    /// Of these, all; null where they cannot be told from chance.
    pub dip_count: Option<u64>,
    /// Why `dip_count` is null.
    pub dip_reason: Option<String>,
    /// Intervals of the window of which a host has no counters in time.
    pub lost_intervals: u64,
    /// Null where the window has too few intervals.
    pub drift: Option<Drift>,
    /// Why `drift` is null.
    pub drift_reason: Option<String>,
}

impl Stability {
    /// Outages and dips that are listed.
    pub const LISTED: usize = 1000;
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Outage {
    /// Seconds since the window began; 0 if it began before.
    pub start: f64,
    pub seconds: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Dip {
    /// Seconds since the window began.
    pub start: f64,
    /// A multiple of the interval.
    pub seconds: f64,
    /// Throughput of the dip relative to that of the median interval, 0 to 0.5.
    pub share: f64,
}

/// A slow change of throughput over the whole window. Intervals in dips do not count.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Drift {
    /// Change per hour, relative to the mean: 0.01 is a rise by 1% each hour. Theil-Sen slope of the means of 24 equal parts.
    pub per_hour: f64,
    /// Its 95% interval.
    pub interval: (f64, f64),
    /// Of the Mann-Kendall test for a trend of these parts.
    pub p_value: f64,
}
