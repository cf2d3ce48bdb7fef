//! What a t-test finds, and how often.

use std::f64::consts::LN_2;

use statrs::distribution::{ContinuousCDF, Normal};
use statrs::function::gamma::ln_gamma;

use super::moderated::Effect;
use super::quantile;

/// Probability of finding an effect that counts as good enough to plan by.
pub const POWER: f64 = 0.8;

/// More runs than anyone makes.
const MOST_RUNS: u64 = 10_000;

/// Probability that a two-sided t-test at `level` finds an effect of `size` standard errors.
#[must_use]
pub fn power(size: f64, freedom: f64, level: f64) -> f64 {
    power_beyond(quantile(1.0 - level / 2.0, freedom), size, freedom)
}

/// The same of a critical value of t: the noncentral t distribution, integrated over the estimated
/// standard error in parts of the true one (Simpson's rule).
fn power_beyond(critical: f64, size: f64, freedom: f64) -> f64 {
    /// Even.
    const STEPS: usize = 128;
    let normal = Normal::standard();
    let half = freedom / 2.0;
    let reach = 8.0 / freedom.sqrt();
    let first = (1.0 - reach).max(0.0);
    let width = (1.0 + reach - first) / STEPS as f64;
    // The squared error has a gamma distribution. Its density is a quotient of numbers that overflow.
    let constant = half * half.ln() - ln_gamma(half) + LN_2;
    let at = |step: usize| {
        // One degree of freedom has a density at 0.
        let error = (first + step as f64 * width).max(1e-9);
        let density = (constant + (freedom - 1.0) * error.ln() - half * error * error).exp();
        density * (normal.sf(critical * error - size) + normal.cdf(-critical * error - size))
    };
    let inner: f64 = (1..STEPS).map(|step| at(step) * if step % 2 == 0 { 2.0 } else { 4.0 }).sum();
    ((at(0) + inner + at(STEPS)) * width / 3.0).clamp(0.0, 1.0)
}

/// The effect in standard errors that is found with [`POWER`].
fn size_found(freedom: f64, level: f64) -> f64 {
    let critical = quantile(1.0 - level / 2.0, freedom);
    // Above: with more degrees of freedom less is enough.
    let (mut low, mut high) = (0.0, critical * 2.0 + 2.0);
    while high - low > 1e-4 * high {
        let middle = f64::midpoint(low, high);
        match power_beyond(critical, middle, freedom) < POWER {
            true => low = middle,
            false => high = middle,
        }
    }
    high
}

impl Effect {
    /// The smallest relative change that this error would have let find with 80% power: 0.12 is 12%
    /// more. The same as a decrease is a smaller fraction.
    #[must_use]
    pub fn detectable_change(&self, level: f64) -> f64 {
        (size_found(self.freedom, level) * self.error).exp_m1()
    }

    /// Number of runs of each side that would find this relative change with 80% power. `None` above
    /// ten thousand. Each further run of a side adds one degree of freedom, as at one point.
    #[must_use]
    pub fn runs_to_find(&self, change: f64, level: f64) -> Option<u64> {
        let is_enough = |runs: u64| {
            let runs = runs as f64;
            let freedom = match runs >= self.runs {
                true => self.freedom + 2.0 * (runs - self.runs),
                false => (self.freedom * (runs - 1.0) / (self.runs - 1.0)).max(1.0),
            };
            let error = self.error * (self.runs / runs).sqrt();
            error == 0.0 || power(change.ln_1p() / error, freedom, level) >= POWER
        };
        let mut high = 2;
        while !is_enough(high) {
            high *= 2;
            if high > 2 * MOST_RUNS {
                return None;
            }
        }
        let mut low = high / 2;
        while high - low > 1 {
            let middle = u64::midpoint(low, high);
            match is_enough(middle) {
                true => high = middle,
                false => low = middle,
            }
        }
        (high <= MOST_RUNS).then_some(high.max(2))
    }
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;

    use super::*;
    use crate::statistics::bootstrap::normal;
    use crate::statistics::two_sided_p;

    #[test]
    fn power_matches_r() {
        // R: power.t.test(n = 20, delta = 1, sd = 1)$power, example of its help.
        assert!((power(10_f64.sqrt(), 38.0, 0.05) - 0.868_952_8).abs() < 1e-5);
        // Without an effect it is the level.
        for (freedom, level) in
            [(1.0, 0.05), (2.0, 0.05), (4.0, 0.002), (12.3, 0.002), (200.0, 0.05), (20_000.0, 0.05)]
        {
            let is = power(0.0, freedom, level);
            assert!((is / level - 1.0).abs() < 0.01, "{freedom} {level} {is}");
        }
    }

    #[test]
    fn power_is_how_often_an_effect_is_found() {
        let mut random = Rng::with_seed(41);
        for (size, freedom, level) in [(5.0, 4, 0.01), (3.0, 12, 0.05)] {
            let mut found = 0;
            const TIMES: u32 = 20_000;
            for _ in 0..TIMES {
                let squares: f64 = (0..freedom).map(|_| normal(&mut random).powi(2)).sum();
                let error = (squares / f64::from(freedom)).sqrt();
                let t = (size + normal(&mut random)) / error;
                found += u32::from(two_sided_p(t, f64::from(freedom)) < level);
            }
            let share = f64::from(found) / f64::from(TIMES);
            assert!((share - power(size, f64::from(freedom), level)).abs() < 0.015, "{share}");
        }
    }

    #[test]
    fn the_number_of_runs_matches_r() {
        // R: power.t.test(power = 0.8, delta = 1, sd = 1)$n is 16.71477: 17 runs of each side.
        let effect =
            Effect { log_ratio: 0.0, error: (2.0_f64 / 5.0).sqrt(), freedom: 8.0, runs: 5.0 };
        assert_eq!(effect.runs_to_find(1_f64.exp_m1(), 0.05), Some(17));
        // With as many runs, the smallest change found is that one.
        let planned =
            Effect { error: (2.0_f64 / 17.0).sqrt(), freedom: 32.0, runs: 17.0, ..effect };
        let smallest = planned.detectable_change(0.05).ln_1p();
        assert!((0.97..=1.0).contains(&smallest), "{smallest}");
        assert_eq!(Effect { error: 100.0, ..effect }.runs_to_find(0.05, 0.05), None);
        assert_eq!(Effect { error: 0.0, ..effect }.runs_to_find(0.05, 0.05), Some(2));
        assert_eq!(Effect { error: 0.0, ..effect }.detectable_change(0.05), 0.0);
    }
}
