//! Comparison of two choices at several points together.

use super::{Estimate, student, two_sided_p};

/// The ratio of two choices.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Contrast {
    pub ratio: f64,
    /// 95% interval.
    pub interval: (f64, f64),
    /// p-value of a ratio of 1.
    pub p_value: f64,
}

/// The ratio of `a` to `b`, of values that were seen at the same places: the geometric mean of the
/// places' ratios. What differs without a reason is what repeats of the same differ in; where nothing was
/// repeated, what the ratios of places differ in. `None` without either, and for values that are not
/// positive.
#[must_use]
pub fn contrast(places: &[(Vec<f64>, Vec<f64>)]) -> Option<Contrast> {
    let mut differences = Vec::new();
    let (mut squares, mut freedom, mut weights) = (0.0, 0.0, 0.0);
    for (a, b) in places.iter().filter(|(a, b)| !a.is_empty() && !b.is_empty()) {
        if a.iter().chain(b).any(|value| *value <= 0.0) {
            return None;
        }
        let mut means = [0.0; 2];
        for (mean, cell) in means.iter_mut().zip([a, b]) {
            let logs: Vec<f64> = cell.iter().map(|value| value.ln()).collect();
            *mean = logs.iter().sum::<f64>() / logs.len() as f64;
            squares += logs.iter().map(|log| (log - *mean).powi(2)).sum::<f64>();
            freedom += logs.len() as f64 - 1.0;
            weights += 1.0 / logs.len() as f64;
        }
        differences.push(means[0] - means[1]);
    }
    let estimate = Estimate::of(&differences)?;
    let count = differences.len() as f64;
    let (error, freedom) = if freedom >= 2.0 {
        ((squares / freedom * weights).sqrt() / count, freedom)
    } else {
        let reach = (estimate.interval?.1 - estimate.mean) / student(count - 1.0);
        (reach, count - 1.0)
    };
    if error <= 0.0 {
        return None;
    }
    let reach = student(freedom) * error;
    Some(Contrast {
        ratio: estimate.mean.exp(),
        interval: ((estimate.mean - reach).exp(), (estimate.mean + reach).exp()),
        p_value: two_sided_p(estimate.mean / error, freedom),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::bootstrap::normal;

    #[test]
    fn a_common_ratio_is_found_at_points_of_all_sizes() {
        let mut random = fastrand::Rng::with_seed(23);
        let (mut holds, mut found, mut alarms) = (0, 0, 0);
        for _ in 0..400 {
            let mut cell = |value: f64| {
                (0..3).map(|_| value * (0.03 * normal(&mut random)).exp()).collect::<Vec<_>>()
            };
            let places: Vec<_> =
                [10.0, 1000.0, 5.0].iter().map(|size| (cell(1.2 * size), cell(*size))).collect();
            let same: Vec<_> =
                [10.0, 1000.0].iter().map(|size| (cell(*size), cell(*size))).collect();
            let contrast = contrast(&places).unwrap();
            holds += u32::from(contrast.interval.0 <= 1.2 && 1.2 <= contrast.interval.1);
            found += u32::from(contrast.p_value < 0.001);
            alarms += u32::from(super::contrast(&same).unwrap().p_value < 0.05);
        }
        assert!((367..=393).contains(&holds), "{holds}");
        assert!(found > 390 && alarms <= 33, "{found} {alarms}");
    }

    #[test]
    fn without_repeats_several_points_are_needed() {
        let once = |a: f64, b: f64| (vec![a], vec![b]);
        assert_eq!(contrast(&[once(2.0, 1.0)]), None);
        let several = [once(2.0, 1.0), once(21.0, 10.0), once(390.0, 200.0), once(4.1, 2.0)];
        let contrast = contrast(&several).unwrap();
        assert!((contrast.ratio - 2.02).abs() < 0.02 && contrast.p_value < 0.001, "{contrast:?}");
        assert_eq!(super::contrast(&[(vec![0.0, 1.0], vec![1.0, 2.0])]), None);
    }
}
