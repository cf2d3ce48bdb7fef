//! Permutation tests.

use fastrand::Rng;

const SEED: u64 = 0x0057_1ec1;

/// Maximum number of shuffles.
const DRAWS: u32 = 19_999;

/// The smallest p-value that so many can give.
pub const LEAST: f64 = 1.0 / (DRAWS as f64 + 1.0);

/// Stop after this number of shuffles with as large a statistic: the p-value is large enough to know.
const ENOUGH: u32 = 20;

/// The p-value of a statistic: how often it is as large as it was `seen` where labels are shuffled.
/// Looking ends early where that is often (J. Besag and P. Clifford, Biometrika 78, 1991).
pub fn p_value(seen: f64, mut shuffled: impl FnMut(&mut Rng) -> f64) -> f64 {
    let mut random = Rng::with_seed(SEED);
    // Sums in another order differ in their last bits.
    let as_much = seen - seen.abs() * 1e-9;
    let mut reached = 0;
    for drawn in 1..=DRAWS {
        reached += u32::from(shuffled(&mut random) >= as_much);
        if reached == ENOUGH {
            return f64::from(ENOUGH) / f64::from(drawn);
        }
    }
    f64::from(reached + 1) / f64::from(DRAWS + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p_values_are_uniform_under_chance() {
        let mut random = Rng::with_seed(3);
        let below = (0..2000).filter(|_| p_value(random.f64(), |r| r.f64()) <= 0.05).count();
        // 100, and three standard deviations of that.
        assert!((70..=130).contains(&below), "{below}");
        assert!(p_value(2.0, |r| r.f64()) <= 1e-4);
        assert_eq!(p_value(-1.0, |r| r.f64()), 1.0);
    }
}
