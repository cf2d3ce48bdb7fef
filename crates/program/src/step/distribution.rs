//! Numbers that are drawn for operations, from the seed and their place alone: both ends of a
//! connection draw the same.

use std::sync::Arc;

use wirecost_model::profile::{ByStrand, Quantity, Weighted};
use wirecost_model::quantity;

use crate::draw;
use crate::quantiles::Quantiles;
use crate::route::share_end;

/// A number that is drawn for each operation of a step: bytes, or the nanoseconds of a thought.
#[derive(Debug, Clone)]
pub enum Distribution {
    Fixed(u64),
    Random {
        min: u64,
        max: u64,
    },
    /// Drawn from a continuous distribution.
    Quantiles(Arc<Quantiles>),
    /// Drawn from these values. Each comes with the share of 2^64 of itself and those before it.
    Choices(Arc<[(u64, u64)]>),
    /// A value for each strand, repeated where there are more strands.
    ByStrand(Arc<[u64]>),
    /// The size of one of these files, drawn at random each time.
    Files(Arc<[u64]>),
}

impl Distribution {
    /// A quantity as `strands` strands draw it with this key.
    pub(super) fn new(quantity: &Quantity, key: u64, strands: u32) -> Self {
        let choices = |values: &[Weighted]| {
            let total = values.iter().map(|v| u128::from(v.weight)).sum();
            let mut sum = 0;
            let each = values.iter().map(|v| {
                sum += u128::from(v.weight);
                (share_end(sum, total), v.value)
            });
            Distribution::Choices(each.collect())
        };
        match quantity {
            Quantity::Fixed(n) => Distribution::Fixed(*n),
            Quantity::Random { min, max } => Distribution::Random { min: *min, max: *max },
            Quantity::Lognormal { median, sigma, min, max } => {
                let sigma = *sigma as f64 / 1e6;
                Distribution::Quantiles(Arc::new(Quantiles::lognormal(*median, sigma, *min, *max)))
            }
            Quantity::Exponential { mean, min, max } => {
                Distribution::Quantiles(Arc::new(Quantiles::exponential(*mean, *min, *max)))
            }
            Quantity::Table(values) => choices(values),
            Quantity::Imix { headers } => choices(&quantity::imix(*headers)),
            Quantity::ByStrand(ByStrand::Each(values)) => {
                Distribution::ByStrand(values.clone().into())
            }
            Quantity::ByStrand(ByStrand::Spread { first, last }) => {
                let steps = i128::from(strands.max(2) - 1);
                let (from, to) = (i128::from(*first), i128::from(*last));
                let each =
                    (0..i128::from(strands)).map(|n| (from + (to - from) * n / steps) as u64);
                Distribution::ByStrand(each.collect())
            }
            Quantity::ByStrand(ByStrand::Drawn(quantity)) => {
                let drawn = Distribution::new(quantity, key, strands);
                let each = (0..strands).map(|n| drawn.draw(draw::key(&[key, u64::from(n)]), n));
                Distribution::ByStrand(each.collect())
            }
        }
    }

    /// What a strand draws at this place, as [`draw::key`] makes places.
    #[inline]
    pub(super) fn draw(&self, place: u64, strand: u32) -> u64 {
        match self {
            Distribution::Fixed(n) => *n,
            Distribution::Random { min, max } => draw::between(place, *min, *max),
            Distribution::Quantiles(quantiles) => quantiles.draw(draw::mix(place)),
            Distribution::Choices(choices) => {
                let drawn = draw::mix(place);
                choices.iter().find(|(below, _)| drawn <= *below).map_or(0, |choice| choice.1)
            }
            Distribution::ByStrand(values) => {
                let place = (strand as usize).checked_rem(values.len());
                place.map_or(0, |place| values[place])
            }
            Distribution::Files(sizes) => sizes[file_at(place, sizes.len())],
        }
    }

    /// The largest that can be drawn.
    pub(super) fn max(&self) -> u64 {
        match self {
            Distribution::Fixed(n) => *n,
            Distribution::Random { max, .. } => *max,
            Distribution::Quantiles(quantiles) => quantiles.max(),
            Distribution::Choices(choices) => choices.iter().map(|c| c.1).max().unwrap_or(0),
            Distribution::ByStrand(values) | Distribution::Files(values) => {
                values.iter().copied().max().unwrap_or(0)
            }
        }
    }
}

fn file_at(place: u64, files: usize) -> usize {
    draw::between(place, 0, files as u64 - 1) as usize
}

/// Where an operation stands in a run, as a number to draw with.
#[derive(Debug, Clone, Copy)]
pub struct Coordinates {
    pub strand: u32,
    /// Which execution of the step it is.
    pub round: u64,
    /// Connection id.
    pub conn: u32,
    /// Counted from the beginning of one execution of the step.
    pub number: u64,
}

/// A length with the key that its draws begin from.
#[derive(Debug, Clone)]
pub struct SeededDistribution {
    pub(super) length: Distribution,
    pub(super) key: u64,
}

impl SeededDistribution {
    pub fn new(length: Distribution, key: u64) -> Self {
        Self { length, key }
    }

    /// The length of the operation at this place.
    #[inline]
    pub fn at(&self, at: Coordinates) -> u64 {
        match &self.length {
            Distribution::Fixed(value) => *value,
            drawn => drawn.draw(self.mix(at), at.strand),
        }
    }

    /// The length, where all operations have the same.
    #[inline]
    pub fn fixed(&self) -> Option<u64> {
        match self.length {
            Distribution::Fixed(value) => Some(value),
            _ => None,
        }
    }

    /// Which file the operation at this place sends.
    pub fn file(&self, at: Coordinates) -> usize {
        match &self.length {
            Distribution::Files(sizes) => file_at(self.mix(at), sizes.len()),
            _ => 0,
        }
    }

    #[inline]
    fn mix(&self, at: Coordinates) -> u64 {
        draw::mix(self.key ^ (u64::from(at.strand) << 32 | u64::from(at.conn)))
            ^ draw::mix(at.round.wrapping_mul(0x1_0000_0001).wrapping_add(at.number << 40))
    }
}
