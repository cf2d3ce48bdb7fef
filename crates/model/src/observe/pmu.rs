//! Cycles and misses by counters of the hardware.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Observation;

/// Cycles by counters of the hardware.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct PmuCounts {
    pub cycles: f64,
    pub cycles_kernel: Option<f64>,
    pub instructions: Option<f64>,
    pub cache_misses: Option<f64>,
    pub branch_misses: Option<f64>,
    /// Least share of the window that an event was counted in; below 1 the figures are scaled up.
    pub counted: f64,
}

impl Observation for PmuCounts {}
