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
}

/// The score interval of a binomial proportion, which holds for small numbers and for shares near 0
/// and 1 too: Wilson, Journal of the American Statistical Association 22 (1927), p. 209,
/// <https://doi.org/10.1080/01621459.1927.10502953>. Of no samples it is all there is.
#[must_use]
pub fn wilson(found: u64, all: u64, z: f64) -> (f64, f64) {
    if all == 0 {
        return (0.0, 1.0);
    }
    let n = all as f64;
    let share = found.min(all) as f64 / n;
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
    fn nothing_is_known_of_no_samples() {
        assert_eq!(wilson(0, 0, Z_95), (0.0, 1.0));
        assert_eq!(Proportion::of(0, 0).share, 0.0);
        let all = Proportion::of(50, 50);
        assert_eq!((all.share, all.interval.1), (1.0, 1.0));
    }
}
