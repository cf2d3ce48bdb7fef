//! Which run comes when.

use wirecost_model::study::Point;

use crate::definition::Order;

/// One run that is to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    pub point: Point,
    /// Place of the point in the list of all points, from 1.
    pub place: u32,
    /// From 1; 0 warms up.
    pub repeat: u32,
    /// Its place among all runs, from 1.
    pub order: u32,
}

impl Task {
    /// Name of its record.
    #[must_use]
    pub fn id(&self) -> String {
        match self.repeat {
            0 => format!("{:04}-warm-up", self.place),
            repeat => format!("{:04}-{repeat:02}", self.place),
        }
    }
}

/// The points, by index, in the order in which this round of repeats goes through them. Each round has
/// one of its own, and the same study always the same.
pub(crate) fn round(order: Order, seed: u64, repeat: u32, points: usize) -> Vec<usize> {
    let mut indices: Vec<usize> = (0..points).collect();
    if order == Order::Shuffled {
        // Seeds that are neighbours give sequences that are not.
        let mut random = fastrand::Rng::with_seed(seed ^ (u64::from(repeat) << 32));
        random.shuffle(&mut indices);
    }
    indices
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_round_holds_all_points_in_an_order_of_its_own_that_the_seed_gives() {
        let first = round(Order::Shuffled, 1, 1, 50);
        assert_eq!(first, round(Order::Shuffled, 1, 1, 50));
        assert_ne!(first, round(Order::Shuffled, 1, 2, 50));
        assert_ne!(first, round(Order::Shuffled, 2, 1, 50));
        let mut sorted = first;
        sorted.sort_unstable();
        assert_eq!(sorted, round(Order::Written, 1, 1, 50));
    }
}
