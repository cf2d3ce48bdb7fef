//! Medians of paired measurements, with intervals that assume nothing of their distribution.

/// A median and its 95% interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Median {
    pub(crate) value: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) of: usize,
}

/// Median with its rank interval (binomial, normal approximation; W. J. Conover, Practical
/// Nonparametric Statistics, 3.2). `None` for fewer than six values.
pub(crate) fn median(values: &[f64]) -> Option<Median> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    if n < 6 {
        return None;
    }
    let reach = 1.96 * (n as f64).sqrt() / 2.0;
    let low = ((n as f64 / 2.0 - reach).floor().max(1.0) as usize) - 1;
    let high = n - 1 - low;
    Some(Median { value: middle(&sorted), low: sorted[low], high: sorted[high], of: n })
}

/// Median without an interval, of any number of values.
pub(crate) fn center(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    (!sorted.is_empty()).then(|| middle(&sorted))
}

fn middle(sorted: &[f64]) -> f64 {
    let n = sorted.len();
    if n % 2 == 1 { sorted[n / 2] } else { (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0 }
}

/// The ratio in each round that both have. Slow changes on the machine affect both.
pub(crate) fn ratios(ours: &[Option<f64>], theirs: &[Option<f64>]) -> Vec<f64> {
    let both = ours.iter().zip(theirs).filter_map(|(ours, theirs)| Some(((*ours)?, (*theirs)?)));
    both.filter(|(_, theirs)| *theirs > 0.0).map(|(ours, theirs)| ours / theirs).collect()
}

/// Ratio of two medians with its 95% bootstrap interval. A fixed seed makes it reproducible.
pub(crate) fn ratio_of_medians(a: &[f64], b: &[f64]) -> Option<Median> {
    const DRAWS: usize = 2000;
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut draw = |n: usize| {
        // xorshift64*, which is enough to pick from forty values.
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % n
    };
    if a.len() < 6 || b.len() < 6 {
        return None;
    }
    let mut resampled = |values: &[f64]| {
        let mut drawn: Vec<f64> = (0..values.len()).map(|_| values[draw(values.len())]).collect();
        drawn.sort_by(f64::total_cmp);
        middle(&drawn)
    };
    let mut ratios: Vec<f64> = (0..DRAWS).map(|_| resampled(a) / resampled(b)).collect();
    ratios.sort_by(f64::total_cmp);
    Some(Median {
        value: median(a)?.value / median(b)?.value,
        low: ratios[DRAWS / 40],
        high: ratios[DRAWS - 1 - DRAWS / 40],
        of: a.len().min(b.len()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_that_of_the_ranks() {
        let values: Vec<f64> = (1..=40).rev().map(f64::from).collect();
        let median = median(&values).unwrap();
        assert_eq!((median.value, median.low, median.high, median.of), (20.5, 13.0, 28.0, 40));
    }

    #[test]
    fn only_rounds_of_both_have_a_ratio() {
        let ours = [Some(3.0), None, Some(1.0), Some(5.0)];
        assert_eq!(ratios(&ours, &[Some(2.0), Some(2.0), None, Some(0.0)]), [1.5]);
    }

    #[test]
    fn few_values_have_a_median() {
        assert_eq!(center(&[3.0, 1.0]), Some(2.0));
        assert_eq!(center(&[]), None);
    }

    #[test]
    fn few_values_have_no_interval() {
        assert_eq!(median(&[1.0, 2.0, 3.0, 4.0, 5.0]), None);
        assert_eq!(ratio_of_medians(&[1.0; 5], &[1.0; 40]), None);
    }

    #[test]
    fn a_known_ratio_is_recovered() {
        let a: Vec<f64> = (0..40).map(|n| 13.0 + f64::from(n % 5) * 0.1).collect();
        let b: Vec<f64> = (0..40).map(|n| 10.0 + f64::from(n % 7) * 0.1).collect();
        let ratio = ratio_of_medians(&a, &b).unwrap();
        assert!(ratio.low <= ratio.value && ratio.value <= ratio.high);
        assert!((ratio.value - 1.28).abs() < 0.02, "{ratio:?}");
        assert!(ratio.high - ratio.low < 0.1);
    }
}
