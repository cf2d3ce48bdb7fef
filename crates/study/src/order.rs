//! The order of runs.

use wirecost_model::search::SearchTrial;
use wirecost_model::study::{Point, run_id};

use crate::definition::Order;

/// A run to make.
#[derive(Debug, Clone, PartialEq)]
pub struct Task {
    pub point: Point,
    /// Number of the point in the list of all points, from 1.
    pub place: u32,
    /// From 1; 0 is the warm-up.
    pub repeat: u32,
    /// Its number among all runs, from 1.
    pub order: u32,
    /// Bits per second to offer, where the point does not say it: a share of the saturating throughput, or the
    /// load of a trial.
    pub load: Option<u64>,
    /// The trial of a search that it is.
    pub trial: Option<SearchTrial>,
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

/// Puts each point that `before` names for another ahead of that: it changes places with the first of those
/// that need it, so that loads stay mixed.
pub(crate) fn put_first(indices: &mut [usize], before: impl Fn(usize) -> Option<usize>) {
    for place in 0..indices.len() {
        let Some(needed) = before(indices[place]) else { continue };
        if let Some(later) = indices[place..].iter().position(|index| *index == needed) {
            indices.swap(place, place + later);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_need_comes_first() {
        // 0 and 3 are needed by the two after them.
        let before = |index: usize| Some(index / 3 * 3).filter(|first| *first != index);
        for seed in 0..20 {
            let mut order = round(Order::Shuffled, seed, 1, 6);
            put_first(&mut order, before);
            let place = |wanted: usize| order.iter().position(|index| *index == wanted).unwrap();
            assert!((0..6).all(|index| before(index).is_none_or(|b| place(b) < place(index))));
        }
        let mut kept = vec![1, 2];
        put_first(&mut kept, before);
        assert_eq!(kept, [1, 2]);
    }

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
