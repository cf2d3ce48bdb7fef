//! How long throughput takes to become steady, and how streams share it meanwhile.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Of a run, or of one stream of it. Time counts from the start of traffic, before the window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Convergence {
    pub state: ConvergenceState,
    /// Seconds from the start of traffic until throughput stays near its steady mean: the start of the first window of
    /// time that lies within 10% of it and from which on 90% of the windows do. Null where it did not converge.
    pub seconds: Option<f64>,
    /// Mean over the last half of the time; null where it is too short.
    pub steady_bits_per_second: Option<f64>,
    /// Share of the windows of the last half that lie within 10% of this mean, 0 to 1.
    pub steady_share: Option<f64>,
    /// Change of throughput over the last half, relative to this mean, by the Theil-Sen slope: 0.2 is a rise by 20%.
    pub change: Option<f64>,
    /// Of the Mann-Kendall test for a trend in the last half.
    pub p_value: Option<f64>,
    /// Length of each window of time, seconds: 20 round trips, at least 1 s and at least an interval of the run.
    pub window_seconds: f64,
    /// Throughput of these windows from the start of traffic, bits per second.
    pub windows: Vec<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ConvergenceState {
    /// It became steady, `seconds` after the start.
    Converged,
    /// It did not converge: it rises or falls in the last half.
    Trend,
    /// It did not converge: fewer than 90% of the windows of the last half lie within 10% of their mean.
    Unsteady,
    /// Fewer than ten windows: nothing can be said.
    TooShort,
    /// Nothing moved in the last half.
    Idle,
}

/// One stream of a run, as the end that receives saw it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Stream {
    /// Host that received more than it sent.
    pub host: String,
    /// Group of the profile, by index.
    pub group: u32,
    /// Strand, by number within its group.
    pub strand: u32,
    /// In the window of the run, both directions.
    pub bits_per_second: f64,
    /// Median of its smoothed round-trip times, microseconds; null where the sender did not sample it, or has several peers.
    pub rtt_us: Option<f64>,
    pub convergence: Convergence,
}
