//! Whether a series rises or falls.

use statrs::function::erf::erfc;

/// Two-sided p-value of the Mann-Kendall test of a series without ties or with few (H. B. Mann, Econometrica 13, 1945;
/// M. G. Kendall, Rank Correlation Methods, 1975), by the normal approximation with continuity correction.
#[must_use]
pub fn p_value(series: &[f64]) -> f64 {
    let n = series.len() as f64;
    let mut score = 0i64;
    for (place, earlier) in series.iter().enumerate() {
        for later in &series[place + 1..] {
            score += i64::from(later > earlier) - i64::from(later < earlier);
        }
    }
    let spread = |n: f64| n * (n - 1.0) * (2.0 * n + 5.0) / 18.0;
    let mut sorted = series.to_vec();
    sorted.sort_by(f64::total_cmp);
    let ties: f64 = sorted.chunk_by(|a, b| a == b).map(|ties| spread(ties.len() as f64)).sum();
    let variance = spread(n) - ties;
    if variance <= 0.0 {
        return 1.0;
    }
    let z = (score.unsigned_abs() as f64 - 1.0).max(0.0) / variance.sqrt();
    erfc(z / std::f64::consts::SQRT_2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::bootstrap::normal;

    #[test]
    fn the_value_of_a_known_series() {
        // By hand: S = 10, variance = 5 * 4 * 15 / 18 = 16.67, z = 9 / 4.082 = 2.2045.
        assert!((p_value(&[1.0, 2.0, 3.0, 4.0, 5.0]) - 0.0275).abs() < 1e-4);
        assert_eq!(p_value(&[5.0, 4.0, 3.0, 2.0, 1.0]), p_value(&[1.0, 2.0, 3.0, 4.0, 5.0]));
        assert_eq!(p_value(&[7.0; 9]), 1.0);
        assert_eq!(p_value(&[]), 1.0);
    }

    #[test]
    fn noise_has_a_trend_as_often_as_the_level_says() {
        let mut random = fastrand::Rng::with_seed(5);
        let found = (0..2000).filter(|_| {
            let series: Vec<f64> = (0..20).map(|_| normal(&mut random)).collect();
            p_value(&series) < 0.05
        });
        let found = found.count();
        assert!((60..=140).contains(&found), "{found} of 2000");
    }
}
