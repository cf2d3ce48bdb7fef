//! The slope of a line through single points.

use wirecost_model::proportion::Z_95;

/// The median of the slopes of all pairs of points and its 95% interval (P. Sen, Journal of the
/// American Statistical Association 63, 1968). `None` for fewer than five points, of which the
/// steepest and the flattest pair would be no such interval, or where no two differ in `x`.
#[must_use]
pub fn slope(points: &[(f64, f64)]) -> Option<(f64, (f64, f64))> {
    let n = points.len() as f64;
    if n < 5.0 {
        return None;
    }
    let mut slopes = Vec::new();
    for (number, (x, y)) in points.iter().enumerate() {
        let later = &points[number + 1..];
        slopes.extend(later.iter().filter(|p| p.0 != *x).map(|p| (p.1 - y) / (p.0 - x)));
    }
    slopes.sort_by(f64::total_cmp);
    let last = slopes.len().checked_sub(1)?;
    let median = (slopes[last / 2] + slopes[last.div_ceil(2)]) / 2.0;
    let reach = Z_95 * (n * (n - 1.0) * (2.0 * n + 5.0) / 18.0).sqrt();
    let pairs = slopes.len() as f64;
    let low = ((pairs - reach) / 2.0).floor().max(0.0) as usize;
    let high = ((pairs + reach) / 2.0).ceil() as usize;
    Some((median, (slopes[low.min(last)], slopes[high.min(last)])))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::bootstrap::normal;

    #[test]
    fn one_outlier_does_not_move_the_slope() {
        let mut points: Vec<(f64, f64)> =
            (0..9).map(|x| (f64::from(x), 2.0 * f64::from(x) + 1.0)).collect();
        points[4].1 = 100.0;
        assert_eq!(slope(&points).unwrap().0, 2.0);
        assert_eq!(slope(&points[..4]), None);
        assert_eq!(slope(&[(1.0, 1.0); 6]), None);
    }

    #[test]
    fn the_interval_covers_the_slope() {
        let mut random = fastrand::Rng::with_seed(17);
        for n in [5, 10] {
            let mut holds = 0;
            for _ in 0..400 {
                let point = |x| (f64::from(x), 0.5 * f64::from(x) + normal(&mut random));
                let points: Vec<(f64, f64)> = (0..n).map(point).collect();
                let (_, (low, high)) = slope(&points).unwrap();
                holds += u32::from(low <= 0.5 && 0.5 <= high);
            }
            assert!((372..=400).contains(&holds), "{n}: {holds}");
        }
    }
}
