//! Shares that were sampled, and how far they may be off.

use serde::{Deserialize, Serialize};

/// The quantile of the normal distribution that leaves 2.5% on either side.
pub const Z_95: f64 = 1.959_963_984_540_054;

/// A share, and the interval that holds the true one in 95 of 100 cases.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Proportion {
    /// 0 to 1.
    pub share: f64,
    pub interval: (f64, f64),
}

impl Proportion {
    /// Of `found` among `all` independent samples.
    #[must_use]
    pub fn of(found: u64, all: u64) -> Self {
        let share = if all == 0 { 0.0 } else { found as f64 / all as f64 };
        Self { share, interval: wilson(found, all, Z_95) }
    }

    /// Of samples that are worth so many independent ones.
    #[must_use]
    pub fn worth(share: f64, independent: f64) -> Self {
        Self { share, interval: score(share, independent, Z_95) }
    }

    /// How many independent samples have an interval as wide.
    #[must_use]
    pub fn independent(&self) -> f64 {
        // Of the end that is not cut off at 0 or 1.
        let end = if self.share < 0.5 { self.interval.1 } else { self.interval.0 };
        Z_95 * Z_95 * end * (1.0 - end) / (end - self.share).powi(2)
    }

    /// Whether so many blocks say how much samples of one block are alike.
    #[must_use]
    pub fn widened_by(blocks: usize) -> bool {
        blocks >= FEWEST_BLOCKS
    }

    /// Of samples that were found in blocks of time, of as many as there were in each. Samples of one block
    /// are alike, so they are worth fewer independent ones: as many as give a share the variance that it
    /// has from block to block, as that of a ratio (W. G. Cochran, Sampling Techniques, 6.4), and never
    /// more than there are.
    #[must_use]
    pub fn of_blocks(found: &[u64], all: &[u64]) -> Self {
        let (found_sum, sum) = (found.iter().sum::<u64>(), all.iter().sum::<u64>());
        let plain = Self::of(found_sum, sum);
        let binomial = plain.share * (1.0 - plain.share);
        if !Self::widened_by(all.len()) || binomial <= 0.0 {
            return plain;
        }
        let number = all.len() as f64;
        let squares: f64 = found
            .iter()
            .zip(all)
            .map(|(&found, &all)| (found as f64 - plain.share * all as f64).powi(2))
            .sum();
        let between = squares * number / (number - 1.0) / (sum as f64).powi(2);
        let worth = (binomial / between).min(sum as f64);
        Self::worth(plain.share, worth)
    }
}

/// The spread of fewer blocks says too little.
const FEWEST_BLOCKS: usize = 8;

/// The score interval of a binomial proportion, which holds for small numbers and for shares near 0
/// and 1 too: Wilson, Journal of the American Statistical Association 22 (1927), p. 209,
/// <https://doi.org/10.1080/01621459.1927.10502953>. Of no samples it is all there is.
#[must_use]
pub fn wilson(found: u64, all: u64, z: f64) -> (f64, f64) {
    if all == 0 {
        return (0.0, 1.0);
    }
    score(found.min(all) as f64 / all as f64, all as f64, z)
}

/// The same of a share of samples that are worth so many independent ones.
fn score(share: f64, n: f64, z: f64) -> (f64, f64) {
    let square = z * z / n;
    let middle = (share + square / 2.0) / (1.0 + square);
    let half = z / (1.0 + square) * (share * (1.0 - share) / n + square / (4.0 * n)).sqrt();
    ((middle - half).max(0.0), (middle + half).min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of table I in Newcombe, Statistics in Medicine 17 (1998), p. 857, method 3.
    #[test]
    fn intervals_are_those_of_the_literature() {
        for (found, all, low, high) in [
            (81, 263, 0.2553, 0.3662),
            (15, 148, 0.0624, 0.1605),
            (0, 20, 0.0, 0.1611),
            (1, 29, 0.0061, 0.1718),
        ] {
            let (lower, upper) = wilson(found, all, Z_95);
            assert!((lower - low).abs() < 5e-5 && (upper - high).abs() < 5e-5, "{lower} {upper}");
        }
    }

    #[test]
    fn an_interval_tells_how_many_samples_it_is_worth() {
        for (share, number) in [(0.25, 40.0), (0.003, 500.0), (0.9, 12.5), (0.5, 3.0)] {
            let independent = Proportion::worth(share, number).independent();
            assert!((independent / number - 1.0).abs() < 1e-9, "{share} {independent}");
        }
        assert!((Proportion::of(0, 99).independent() - 99.0).abs() < 1e-9);
        assert!((Proportion::of(99, 99).independent() - 99.0).abs() < 1e-9);
    }

    /// A function that runs for half a second at a time is in all samples of a block, or in none.
    #[test]
    fn intervals_are_as_wide_as_the_blocks_spread() {
        let width = |of: &Proportion| of.interval.1 - of.interval.0;
        let all = [20u64; 20];
        let steady = Proportion::of_blocks(&[5; 20], &all);
        assert_eq!(steady, Proportion::of(100, 400));
        let bursts: Vec<u64> = (0..20).map(|block| if block % 4 == 0 { 20 } else { 0 }).collect();
        let bursts = Proportion::of_blocks(&bursts, &all);
        assert_eq!(bursts.share, 0.25);
        // As of 19 samples in place of 400.
        let ratio = width(&bursts) / width(&steady);
        assert!((4.0..4.6).contains(&ratio), "{ratio}");
        // Of few blocks nothing is known.
        assert_eq!(Proportion::of_blocks(&[20, 0, 0, 0], &[20; 4]), Proportion::of(20, 80));
        assert_eq!(Proportion::of_blocks(&[20; 20], &all), Proportion::of(400, 400));
    }

    #[test]
    fn nothing_is_known_of_no_samples() {
        assert_eq!(wilson(0, 0, Z_95), (0.0, 1.0));
        assert_eq!(Proportion::of(0, 0).share, 0.0);
        let all = Proportion::of(50, 50);
        assert_eq!((all.share, all.interval.1), (1.0, 1.0));
    }
}
