//! The order of runs.

use wirecost_model::study::{Point, run_id};

use crate::definition::Order;

/// A run to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    pub point: Point,
    /// Number of the point in the list of all points, from 1.
    pub place: u32,
    /// From 1; 0 is the warm-up.
    pub repeat: u32,
    /// Its number among all runs, from 1.
    pub order: u32,
}

impl Task {
    /// Name of its record.
    #[must_use]
    pub fn id(&self) -> String {
        run_id(self.place, self.repeat)
    }
}

/// Indices of the points, in the order of this round. Each round has a different order, which depends only
/// on the seed.
pub(crate) fn round(order: Order, seed: u64, repeat: u32, points: usize) -> Vec<usize> {
    let mut indices: Vec<usize> = (0..points).collect();
    if order == Order::Shuffled {
        // Neighbouring seeds give unrelated sequences.
        let mut random = fastrand::Rng::with_seed(seed ^ (u64::from(repeat) << 32));
        random.shuffle(&mut indices);
    }
    indices
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_round_shuffles_all_points_by_the_seed() {
        let first = round(Order::Shuffled, 1, 1, 50);
        assert_eq!(first, round(Order::Shuffled, 1, 1, 50));
        assert_ne!(first, round(Order::Shuffled, 1, 2, 50));
        assert_ne!(first, round(Order::Shuffled, 2, 1, 50));
        let mut sorted = first;
        sorted.sort_unstable();
        assert_eq!(sorted, round(Order::Written, 1, 1, 50));
    }
}
