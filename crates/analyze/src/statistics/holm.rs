//! Holm's correction for several tests of one study.

/// The p-values, corrected for their number, in the same order. The probability that any null hypothesis
/// is falsely rejected at a level is at most that level (S. Holm, Scandinavian Journal of Statistics 6,
/// 1979).
#[must_use]
pub fn holm(p_values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order.sort_by(|a, b| p_values[*a].total_cmp(&p_values[*b]));
    let mut adjusted = vec![1.0; p_values.len()];
    let mut least = 0f64;
    for (rank, place) in order.into_iter().enumerate() {
        let left = (p_values.len() - rank) as f64;
        // The correction keeps the order of the p-values.
        least = least.max((p_values[place] * left).min(1.0));
        adjusted[place] = least;
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn corrections_match_r() {
        // R: p.adjust(c(0.01, 0.04, 0.03, 0.005), "holm")
        let adjusted = holm(&[0.01, 0.04, 0.03, 0.005]);
        let expected = [0.03, 0.06, 0.06, 0.02];
        for (is, should) in adjusted.iter().zip(expected) {
            assert!((is - should).abs() < 1e-12, "{adjusted:?}");
        }
        assert_eq!(holm(&[0.5, 0.9]), [1.0, 1.0]);
        assert_eq!(holm(&[0.03]), [0.03]);
        assert!(holm(&[]).is_empty());
    }

    #[test]
    fn twenty_null_tests_are_rejected_at_the_nominal_rate() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut alarms = 0;
        for _ in 0..1000 {
            let p_values: Vec<f64> = (0..20).map(|_| random.f64()).collect();
            alarms += u32::from(holm(&p_values).iter().any(|p| *p < 0.05));
        }
        // 5% of 1000, and three standard deviations of that.
        assert!((29..=71).contains(&alarms), "{alarms}");
    }
}
