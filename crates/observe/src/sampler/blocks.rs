//! Samples by blocks of time, whose spread says how far a share of them may be off: what a CPU does goes on
//! for longer than from one sample to the next.

use std::collections::BTreeMap;

use wirecost_model::proportion::Proportion;

/// Samples by block of the window.
pub(crate) type ByBlock = BTreeMap<u32, u64>;

pub(crate) fn add_blocks(sum: &mut ByBlock, more: &ByBlock) {
    for (block, count) in more {
        *sum.entry(*block).or_default() += count;
    }
}

/// Blocks of the window, longer ones where there are many.
pub(crate) struct Blocks {
    all: Vec<u64>,
    /// Short blocks in one.
    joined: u32,
}

impl Blocks {
    /// More give the spread no more precisely than it has to be.
    const MOST: u32 = 40;

    pub(crate) fn of(all: &ByBlock) -> Self {
        let number = all.keys().next_back().map_or(0, |last| last + 1);
        let joined = number.div_ceil(Self::MOST).max(1);
        let mut blocks = Self { all: Vec::new(), joined };
        blocks.all = blocks.values(all, number.div_ceil(joined) as usize);
        blocks
    }

    fn values(&self, of: &ByBlock, number: usize) -> Vec<u64> {
        let mut values = vec![0; number];
        for (block, count) in of {
            if let Some(sum) = values.get_mut((block / self.joined) as usize) {
                *sum += count;
            }
        }
        values
    }

    pub(crate) fn number(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn proportion(&self, found: &ByBlock) -> Proportion {
        Proportion::of_blocks(&self.values(found, self.all.len()), &self.all)
    }
}
