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

/// Indices of the points, in the order of this round; `blocks` has the number of each point's block. Each round has a
/// different order, which depends only on the seed.
pub(crate) fn round(order: Order, seed: u64, repeat: u32, blocks: &[usize]) -> Vec<usize> {
    let mut indices: Vec<usize> = (0..blocks.len()).collect();
    // Neighbouring seeds give unrelated sequences.
    let mut random = fastrand::Rng::with_seed(seed ^ (u64::from(repeat) << 32));
    if order != Order::Written {
        random.shuffle(&mut indices);
    }
    if order == Order::Blocks {
        // Blocks in the order in which their first points come.
        let mut places: Vec<usize> = Vec::new();
        for index in &indices {
            if !places.contains(&blocks[*index]) {
                places.push(blocks[*index]);
            }
        }
        indices.sort_by_key(|index| places.iter().position(|block| *block == blocks[*index]));
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
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn what_others_need_comes_first() {
        // 0 and 3 are needed by the two after them.
        let before = |index: usize| Some(index / 3 * 3).filter(|first| *first != index);
        for seed in 0..20 {
            let mut order = round(Order::Shuffled, seed, 1, &[0; 6]);
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
        let first = round(Order::Shuffled, 1, 1, &[0; 50]);
        assert_eq!(first, round(Order::Shuffled, 1, 1, &[0; 50]));
        assert_ne!(first, round(Order::Shuffled, 1, 2, &[0; 50]));
        assert_ne!(first, round(Order::Shuffled, 2, 1, &[0; 50]));
        let mut sorted = first;
        sorted.sort_unstable();
        assert_eq!(sorted, round(Order::Written, 1, 1, &[0; 50]));
    }

    #[test]
    fn points_of_a_block_follow_each_other_in_an_order_of_their_own() {
        let blocks: Vec<usize> = (0..30).map(|index| index % 5).collect();
        let mut firsts = BTreeSet::new();
        for repeat in 1..20 {
            let order = round(Order::Blocks, 1, repeat, &blocks);
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..30).collect::<Vec<_>>());
            for six in order.chunks(6) {
                assert!(six.iter().all(|index| blocks[*index] == blocks[six[0]]), "{order:?}");
            }
            firsts.insert(order[0]);
        }
        // Neither the blocks nor their points keep their order.
        assert!(firsts.len() > 5, "{firsts:?}");
    }
}
