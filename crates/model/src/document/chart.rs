//! Figures over something that grows, mostly time.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::metric::Unit;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Chart {
    pub title: String,
    pub x: Axis,
    pub y: Axis,
    pub series: Vec<Series>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Axis {
    pub title: String,
    pub unit: Unit,
}

impl Axis {
    #[must_use]
    pub fn new(title: &str, unit: Unit) -> Self {
        Self { title: title.to_owned(), unit }
    }

    /// Of time since the window began. Values are in microseconds, as those of [`Unit::Microseconds`] are.
    #[must_use]
    pub fn time() -> Self {
        Self::new("time", Unit::Microseconds)
    }
}

/// One line of a chart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Series {
    pub name: String,
    /// In the order of `x`. Where nothing was measured there is none.
    pub samples: Vec<Sample>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Sample {
    pub x: f64,
    pub y: f64,
}
