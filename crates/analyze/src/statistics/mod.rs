//! Means with intervals.

mod batches;
pub mod bootstrap;
pub mod contrast;
mod holm;
pub mod mann_kendall;
pub mod moderated;
pub mod permutation;
pub mod power;
pub mod scalability;
mod special;
pub mod theil_sen;
pub mod umbrella;
pub mod unimodal;
mod welch;

use statrs::distribution::{ContinuousCDF, StudentsT};

pub(crate) use batches::{Batches, ratio_of_batches};
pub use holm::holm;
pub use welch::{difference_of_means, welch};

/// A mean with its interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    pub mean: f64,
    /// 95% interval of the mean; `None` for a single value.
    pub interval: Option<(f64, f64)>,
    /// Number of values.
    pub times: usize,
}

impl Estimate {
    /// Estimate from values, with Student's interval; `None` without values.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        let sample: Sample = values.iter().copied().collect();
        let mean = (!values.is_empty()).then(|| sample.mean())?;
        let reach = sample.variance_of_mean().map(|variance| {
            let freedom = values.len() as f64 - 1.0;
            student(freedom) * variance.sqrt()
        });
        let interval = reach.map(|reach| (mean - reach, mean + reach));
        Some(Self { mean, interval, times: values.len() })
    }

    /// The part of the interval that is possible for a quantity with this range. A mean outside it widens
    /// the range.
    #[must_use]
    pub fn within(self, (least, most): (f64, f64)) -> Self {
        let (least, most) = (least.min(self.mean), most.max(self.mean));
        let possible = |value: f64| value.clamp(least, most);
        let interval = self.interval.map(|(low, high)| (possible(low), possible(high)));
        Self { interval, ..self }
    }

    /// Full width of the interval over the mean; `None` without an interval, or if the mean is 0.
    #[must_use]
    pub fn relative_width(&self) -> Option<f64> {
        let (low, high) = self.interval?;
        (self.mean != 0.0).then(|| (high - low) / self.mean.abs())
    }
}

/// Repeated values of one quantity.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Sample {
    values: Vec<f64>,
}

impl FromIterator<f64> for Sample {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Self {
        Self { values: values.into_iter().collect() }
    }
}

impl Sample {
    pub(crate) fn mean(&self) -> f64 {
        average(&self.values)
    }

    /// Variance of the mean; `None` for fewer than two values.
    fn variance_of_mean(&self) -> Option<f64> {
        let n = self.values.len();
        if n < 2 {
            return None;
        }
        let mean = average(&self.values);
        let squares: f64 = self.values.iter().map(|value| (value - mean).powi(2)).sum();
        Some(squares / (n - 1) as f64 / n as f64)
    }
}

fn average(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Two-sided 95% quantile of Student's distribution with that many degrees of freedom.
pub(crate) fn student(freedom: f64) -> f64 {
    quantile(0.975, freedom)
}

/// Quantile of Student's distribution.
fn quantile(probability: f64, freedom: f64) -> f64 {
    StudentsT::new(0.0, 1.0, freedom).map_or(f64::INFINITY, |t| t.inverse_cdf(probability))
}

/// Two-sided tail probability of Student's distribution.
pub(crate) fn two_sided_p(t: f64, freedom: f64) -> f64 {
    StudentsT::new(0.0, 1.0, freedom).map_or(1.0, |student| 2.0 * student.sf(t.abs()))
}

/// Probability of this t or a larger one.
pub(crate) fn one_sided_p(t: f64, freedom: f64) -> f64 {
    StudentsT::new(0.0, 1.0, freedom).map_or(1.0, |student| student.sf(t))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_estimate_has_students_interval() {
        // By hand: s = 1, se = 1 / sqrt(3), t(2) = 4.303.
        let estimate = Estimate::of(&[9.0, 10.0, 11.0]).unwrap();
        let (low, high) = estimate.interval.unwrap();
        assert_eq!((estimate.mean, estimate.times), (10.0, 3));
        assert!(
            (high - 10.0 - 4.303 / 3f64.sqrt()).abs() < 1e-3 && (low + high - 20.0).abs() < 1e-9
        );
        assert!((estimate.relative_width().unwrap() - 0.2 * 4.303 / 3f64.sqrt()).abs() < 1e-3);
        assert_eq!(Estimate::of(&[5.0]).unwrap().interval, None);
        assert_eq!(Estimate::of(&[]), None);
    }

    #[test]
    fn intervals_end_where_values_end() {
        let estimate = Estimate::of(&[10.0, 90.0, 99.0]).unwrap();
        let (low, high) = estimate.interval.unwrap();
        assert!(low < 0.0 && high > 100.0);
        assert_eq!(estimate.within((0.0, 100.0)).interval, Some((0.0, 100.0)));
        assert_eq!(estimate.within((0.0, f64::INFINITY)).interval, Some((0.0, high)));
        assert_eq!(estimate.within((0.0, 50.0)).interval, Some((0.0, estimate.mean)));
    }
}
