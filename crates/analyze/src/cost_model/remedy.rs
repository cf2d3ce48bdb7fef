//! What a study has to vary for a load to be predictable from it.

use wirecost_model::study::{LOAD, number};
use wirecost_model::units::binary;

use super::PointSamples;
use super::predict::Load;

/// Axes of a study around a load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remedy {
    /// Names and values, in the order of `--axis`.
    pub axes: Vec<(String, Vec<String>)>,
}

/// Connections of the points around the load are this many times fewer and more.
const CONNECTIONS: u64 = 10;
/// Another size tells the cost of an operation from that of a byte.
const SIZES: u64 = 8;

impl Remedy {
    pub(super) fn of(load: &Load, points: &[PointSamples]) -> Self {
        let mut axes = Vec::new();
        let studied = points.iter().find_map(|point| point.point.get("size"));
        if let Some(size) = load.size.as_deref().or(studied) {
            let bytes = number(size).unwrap_or_default() as u64;
            let other = if bytes > SIZES { bytes / SIZES } else { bytes * SIZES };
            axes.push(("size".to_owned(), vec![size.to_owned(), binary(other)]));
        }
        let here = load.connections;
        let mut connections = vec![here / CONNECTIONS, here, here.saturating_mul(CONNECTIONS)];
        connections.retain(|connections| *connections > 0);
        let connections = connections.iter().map(ToString::to_string).collect();
        axes.push(("connections".to_owned(), connections));
        let loads = ["max", "25%", "50%", "75%"].map(str::to_owned);
        axes.push((LOAD.to_owned(), loads.into()));
        Self { axes }
    }

    /// As the command line of a study takes it.
    #[must_use]
    pub fn arguments(&self) -> String {
        let axis =
            |(name, values): &(String, Vec<String>)| format!("--axis {name}={}", values.join(","));
        self.axes.iter().map(axis).collect::<Vec<_>>().join(" ")
    }
}
