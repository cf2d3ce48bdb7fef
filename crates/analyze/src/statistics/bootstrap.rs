//! Bootstrap intervals (B. Efron and R. Tibshirani, An Introduction to the Bootstrap, 1993). The seed is
//! fixed, so the same data give the same interval.

use fastrand::Rng;

/// Number of resamples per interval.
pub const DRAWS: usize = 2000;

const SEED: u64 = 0x0057_1ec0;

/// Below this number of values there are too few different resamples.
const ENOUGH: usize = 10;

/// 95% percentile interval of the values of `draw`. `None` if so many draws give no value that an end of
/// the interval would depend on them.
pub fn interval(draw: impl FnMut(&mut Rng) -> Option<f64>) -> Option<(f64, f64)> {
    middle(&draws(draw), |value| Some(*value))
}

/// The values of [`DRAWS`] draws, for intervals of several figures.
pub fn draws<T>(mut draw: impl FnMut(&mut Rng) -> Option<T>) -> Vec<T> {
    let mut random = Rng::with_seed(SEED);
    (0..DRAWS).filter_map(|_| draw(&mut random)).collect()
}

/// 95% percentile interval of a figure of the draws, as [`interval`].
pub fn middle<T>(drawn: &[T], of: impl Fn(&T) -> Option<f64>) -> Option<(f64, f64)> {
    let mut drawn: Vec<f64> = drawn.iter().filter_map(of).filter(|v| v.is_finite()).collect();
    if drawn.len() * 100 < DRAWS * 99 {
        return None;
    }
    drawn.sort_by(f64::total_cmp);
    let last = (drawn.len() - 1) as f64;
    Some((drawn[(0.025 * last).round() as usize], drawn[(0.975 * last).round() as usize]))
}

/// A resample with replacement, of the same size.
pub fn resample(values: &[f64], random: &mut Rng) -> Vec<f64> {
    (0..values.len()).map(|_| values[random.usize(..values.len())]).collect()
}

/// A value of the standard normal distribution (G. Box and M. Muller, 1958).
pub fn normal(random: &mut Rng) -> f64 {
    let radius = (-2.0 * (1.0 - random.f64()).ln()).sqrt();
    radius * (std::f64::consts::TAU * random.f64()).cos()
}

/// A value of Student's distribution with that many degrees of freedom.
pub fn student(freedom: f64, random: &mut Rng) -> f64 {
    normal(random) / (gamma(freedom / 2.0, random) * 2.0 / freedom).sqrt()
}

/// A value of the gamma distribution with scale 1 (G. Marsaglia and W. Tsang, ACM Transactions on Mathematical Software 26,
/// 2000).
fn gamma(shape: f64, random: &mut Rng) -> f64 {
    if shape < 1.0 {
        return gamma(shape + 1.0, random) * (1.0 - random.f64()).powf(1.0 / shape);
    }
    let d = shape - 1.0 / 3.0;
    loop {
        let x = normal(random);
        let v = (1.0 + x / (9.0 * d).sqrt()).powi(3);
        if v > 0.0 && (1.0 - random.f64()).ln() < 0.5 * x * x + d * (1.0 - v + v.ln()) {
            return d * v;
        }
    }
}

/// 95% interval of the mean of `a` over the mean of `b`. `None` if either has fewer than two values, or if
/// `b` may be 0.
///
/// This is the bootstrap-t: it resamples the error of a mean in units of its own standard error. For few
/// values it samples a normal distribution. This covers 95% also with three repeats, where percentiles of
/// resampled means cover about 75%.
#[must_use]
pub fn ratio_of_means(a: &[f64], b: &[f64]) -> Option<(f64, f64)> {
    if a.len() < 2 || b.len() < 2 {
        return None;
    }
    let drawn = interval(|random| {
        let (a, b) = (plausible_mean(a, random)?, plausible_mean(b, random)?);
        (b > 0.0).then(|| a / b)
    });
    // Values that are never negative have no negative mean.
    let least = if a.iter().all(|value| *value >= 0.0) { 0.0 } else { f64::NEG_INFINITY };
    drawn.map(|(low, high)| (low.max(least), high.max(least)))
}

/// A plausible value of the true mean.
fn plausible_mean(values: &[f64], random: &mut Rng) -> Option<f64> {
    let (mean, error) = mean_and_error(values)?;
    let drawn: Vec<f64> = match values.len() >= ENOUGH {
        true => resample(values, random).iter().map(|value| value - mean).collect(),
        false => (0..values.len()).map(|_| normal(random)).collect(),
    };
    let (drawn_mean, drawn_error) = mean_and_error(&drawn)?;
    if error == 0.0 {
        return Some(mean);
    }
    (drawn_error > 0.0).then(|| mean - error * drawn_mean / drawn_error)
}

/// The mean and its standard error.
fn mean_and_error(values: &[f64]) -> Option<(f64, f64)> {
    let n = values.len() as f64;
    if n < 2.0 {
        return None;
    }
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    Some((mean, (squares / (n - 1.0) / n).sqrt()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of 400 intervals that contain the true ratio.
    fn held(n: usize, seed: u64, draw: fn(&mut Rng) -> f64, ratio: f64) -> usize {
        let mut random = Rng::with_seed(seed);
        let mut holds = 0;
        for _ in 0..400 {
            let a: Vec<f64> = (0..n).map(|_| ratio * draw(&mut random)).collect();
            let b: Vec<f64> = (0..n).map(|_| draw(&mut random)).collect();
            let (low, high) = ratio_of_means(&a, &b).unwrap();
            holds += usize::from(low <= ratio && ratio <= high);
        }
        holds
    }

    #[test]
    fn intervals_cover_95_percent() {
        let normal = |random: &mut Rng| 100.0 + 3.0 * normal(random);
        let skewed = |random: &mut Rng| 100.0 - 5.0 * (1.0 - random.f64()).ln();
        // 380 of 400 would be 95%; with few values they are rather too wide than too narrow.
        for (n, draw, least) in [
            (3, normal as fn(&mut Rng) -> f64, 368),
            (5, normal, 368),
            (20, normal, 368),
            (20, skewed, 364),
        ] {
            let holds = held(n, 7 + n as u64, draw, 1.3);
            assert!((least..=399).contains(&holds), "{n}: {holds}");
        }
    }

    #[test]
    fn an_interval_is_as_wide_as_welch_says() {
        let (a, b) = ([99.0, 100.0, 101.0, 100.0, 100.5], [50.0, 50.5, 49.5, 50.0, 50.25]);
        let (low, high) = ratio_of_means(&a, &b).unwrap();
        // Relative standard errors of 0.00332 each, t(8) = 2.306, around 100.1 / 50.05.
        let reach = 2.306 * 2.0 * (2.0 * 0.003_316_f64.powi(2)).sqrt();
        assert!(((high - low) / 2.0 - reach).abs() < 0.15 * reach, "{low} {high} {reach}");
        assert_eq!(ratio_of_means(&a, &b), Some((low, high)), "the same data, the same interval");
    }

    #[test]
    fn values_of_students_distribution_have_its_quantiles() {
        for (freedom, quantile) in [(1.0, 12.706), (1.6, 5.43), (4.0, 2.776), (200.0, 1.972)] {
            let mut random = Rng::with_seed(3);
            let beyond = (0..20_000).filter(|_| student(freedom, &mut random).abs() > quantile);
            // 1000 of 20,000, with a deviation of 31.
            assert!((900..=1100).contains(&beyond.count()), "{freedom} degrees of freedom");
        }
    }

    #[test]
    fn no_interval_without_enough_values() {
        assert_eq!(ratio_of_means(&[1.0], &[1.0, 2.0]), None);
        assert_eq!(ratio_of_means(&[1.0, 1.1], &[-1.0, 1.0]), None);
        assert_eq!(ratio_of_means(&[3.0, 3.0], &[2.0, 2.0]), Some((1.5, 1.5)));
        assert_eq!(ratio_of_means(&[1.0, 9.0], &[5.0, 5.0]).unwrap().0, 0.0);
        assert!(ratio_of_means(&[-1.0, 9.0], &[5.0, 5.0]).unwrap().0 < 0.0);
        assert_eq!(interval(|random| random.bool().then_some(1.0)), None);
    }
}
