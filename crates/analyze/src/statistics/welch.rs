//! Welch's test of two means.

use super::{student, two_sided_p};

/// p-value of the difference of two means by Welch's test (Biometrika 34, 1947), which does not assume
/// equal variances. `None` if either has fewer than two values.
#[must_use]
pub fn welch(a: &[f64], b: &[f64]) -> Option<f64> {
    let (mean_a, variance_a, freedom_a) = of(a)?;
    let (mean_b, variance_b, freedom_b) = of(b)?;
    let spread = variance_a + variance_b;
    if spread <= 0.0 {
        // Without any variance, two means are equal or different.
        return Some(if mean_a == mean_b { 1.0 } else { 0.0 });
    }
    let freedom =
        spread.powi(2) / (variance_a.powi(2) / freedom_a + variance_b.powi(2) / freedom_b);
    Some(two_sided_p((mean_a - mean_b) / spread.sqrt(), freedom))
}

/// 95% interval of the mean of `a` less the mean of `b`, of the same test. `None` if either has fewer than two values.
#[must_use]
pub fn difference_of_means(a: &[f64], b: &[f64]) -> Option<(f64, f64)> {
    let (mean_a, variance_a, freedom_a) = of(a)?;
    let (mean_b, variance_b, freedom_b) = of(b)?;
    let (difference, spread) = (mean_a - mean_b, variance_a + variance_b);
    if spread <= 0.0 {
        return Some((difference, difference));
    }
    let freedom =
        spread.powi(2) / (variance_a.powi(2) / freedom_a + variance_b.powi(2) / freedom_b);
    let reach = student(freedom) * spread.sqrt();
    Some((difference - reach, difference + reach))
}

/// Mean, variance of the mean, degrees of freedom.
fn of(values: &[f64]) -> Option<(f64, f64, f64)> {
    let n = values.len() as f64;
    if n < 2.0 {
        return None;
    }
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    Some((mean, squares / (n - 1.0) / n, n - 1.0))
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;

    use super::*;
    use crate::statistics::bootstrap::normal;

    #[test]
    fn tail_probabilities_match_published_tables() {
        // Two-sided 5%, 1% and 0.1% of Student's distribution.
        for (freedom, t, p) in [
            (1.0, 12.706_204_736, 0.05),
            (2.0, 4.302_652_730, 0.05),
            (4.0, 4.604_094_871, 0.01),
            (10.0, 4.586_893_859, 0.001),
            (30.0, 2.042_272_456, 0.05),
            (1000.0, 1.962_339_081, 0.05),
            (7.0, 0.0, 1.0),
        ] {
            assert!((two_sided_p(t, freedom) - p).abs() < 1e-8, "{freedom} {t}");
            assert!((two_sided_p(-t, freedom) - p).abs() < 1e-8, "{freedom} {t}");
        }
        assert!(two_sided_p(1e9, 3.0) < 1e-20);
    }

    #[test]
    fn p_values_match_scipy() {
        // scipy.stats.ttest_ind(a, b, equal_var=False).pvalue
        let (a, b) = ([10.1, 9.9, 10.4], [11.0, 11.9, 10.8, 11.3]);
        assert!((welch(&a, &b).unwrap() - 0.012_073_279_250_708).abs() < 1e-12);
    }

    #[test]
    fn constant_samples_are_equal_or_different() {
        assert_eq!(welch(&[1.0, 1.0], &[1.0, 1.0, 1.0]), Some(1.0));
        assert_eq!(welch(&[1.0, 1.0], &[2.0, 2.0]), Some(0.0));
        assert_eq!(welch(&[1.0], &[2.0, 2.0]), None);
        assert_eq!(welch(&[], &[2.0, 2.0]), None);
    }

    #[test]
    fn equal_means_are_rejected_at_the_nominal_rate() {
        let mut random = Rng::with_seed(3);
        for (n, m) in [(2, 2), (3, 3), (3, 10)] {
            let mut alarms = 0;
            for _ in 0..2000 {
                let a: Vec<f64> = (0..n).map(|_| 100.0 + 5.0 * normal(&mut random)).collect();
                let b: Vec<f64> = (0..m).map(|_| 100.0 + normal(&mut random)).collect();
                alarms += u32::from(welch(&a, &b).unwrap() < 0.05);
            }
            // 100 would be 5%; three standard deviations of that are 29.
            assert!((20..=129).contains(&alarms), "{n} and {m}: {alarms}");
        }
    }

    #[test]
    fn the_interval_of_a_difference_is_by_hand() {
        // Variances of the means 1/3 each: 4 degrees of freedom, t = 2.776.
        let (low, high) = difference_of_means(&[9.0, 10.0, 11.0], &[4.0, 5.0, 6.0]).unwrap();
        let reach = 2.776 * (2.0_f64 / 3.0).sqrt();
        assert!((low - (5.0 - reach)).abs() < 1e-3 && (high - (5.0 + reach)).abs() < 1e-3);
        assert_eq!(difference_of_means(&[1.0], &[1.0, 2.0]), None);
        assert_eq!(difference_of_means(&[3.0, 3.0], &[1.0, 1.0]), Some((2.0, 2.0)));
    }
}
