//! The ratio of two rates of one run, from parts of it that follow one another.
//!
//! Neighbouring parts of a run are alike: at 100 ms their autocorrelation is 0.6 (docs/measurements/
//! comparing.md), so they must not be taken for independent values. Means of batches of parts are
//! nearly independent (A. M. Law, W. D. Kelton, Simulation Modeling and Analysis, 9.5.3); what is left
//! of their autocorrelation widens the interval.

use super::{average, student};

/// An autocorrelation beyond this leaves nothing to estimate from.
const MOST: f64 = 0.9;
/// Of fewer batches there is no interval.
const FEWEST: usize = 4;

/// Means of batches, one after the other.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Batches {
    values: Vec<f64>,
    /// Mean length of a batch, seconds.
    seconds: f64,
    mean: f64,
}

impl Batches {
    /// Joins parts, each with its length and its rate, to batches of at least so many seconds. What is
    /// left at the end is no batch.
    pub(crate) fn of(parts: &[(f64, f64)], seconds: f64) -> Self {
        // Parts are as long as they were planned to be but for some microseconds.
        let enough = 0.99 * seconds;
        let (mut values, mut lengths) = (Vec::new(), 0.0);
        let (mut length, mut sum) = (0.0, 0.0);
        for (part, rate) in parts {
            length += part;
            sum += part * rate;
            if length >= enough && length > 0.0 {
                values.push(sum / length);
                lengths += length;
                (length, sum) = (0.0, 0.0);
            }
        }
        let seconds = lengths / values.len().max(1) as f64;
        Self { mean: average(&values), values, seconds }
    }

    /// The same spread around a mean that is known.
    pub(crate) fn with_mean(self, mean: f64) -> Self {
        Self { mean, ..self }
    }

    pub(crate) fn mean(&self) -> f64 {
        self.mean
    }

    fn squares(&self) -> f64 {
        let mean = average(&self.values);
        self.values.iter().map(|value| (value - mean).powi(2)).sum()
    }

    /// Of neighbours; of few values the estimate is too small by about one over their number.
    fn autocorrelation(&self) -> f64 {
        let (mean, squares) = (average(&self.values), self.squares());
        if squares <= 0.0 {
            return 0.0;
        }
        let pairs = self.values.windows(2);
        let products: f64 = pairs.map(|pair| (pair[0] - mean) * (pair[1] - mean)).sum();
        (products / squares + 1.0 / self.values.len() as f64).clamp(0.0, MOST)
    }
}

/// The ratio of the mean of many batches to that of a few others, which lie apart from one another. Its
/// 95% interval is `None` where there are too few; all is where the second mean is not positive.
///
/// Both are taken to spread alike: of two batches alone nothing could be said. A batch that is longer
/// spreads less, at most by the square root of the lengths.
pub(crate) fn ratio_of_batches(many: &Batches, few: &Batches) -> Option<(f64, Option<(f64, f64)>)> {
    if few.mean <= 0.0 || !many.mean.is_finite() {
        return None;
    }
    let ratio = many.mean / few.mean;
    let (count, others) = (many.values.len(), few.values.len());
    let interval = || {
        if count < FEWEST || others == 0 {
            return None;
        }
        let longer = (many.seconds / few.seconds).max(1.0);
        let correlation = many.autocorrelation();
        let inflation = (1.0 + correlation) / (1.0 - correlation);
        let freedom = (count as f64 / inflation - 1.0).max(1.0);
        let of_few = (others - 1) as f64;
        // Where observing slows the load down, its spread is that of a smaller mean.
        let scale = if many.mean > 0.0 { few.mean / many.mean } else { 1.0 };
        let variance = many.squares() * scale.powi(2) / (count - 1) as f64;
        let pooled = (variance * longer * freedom + few.squares()) / (freedom + of_few);
        let spread = pooled * (inflation / longer / count as f64 + 1.0 / others as f64);
        let reach = student(freedom + of_few) * spread.sqrt() / few.mean * ratio.abs();
        // Means that are not negative have no negative ratio.
        Some(((ratio - reach).max(ratio.min(0.0)), ratio + reach))
    };
    Some((ratio, interval()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rates of parts of 100 ms around 1, each alike its neighbour to this degree.
    struct Parts {
        random: fastrand::Rng,
        correlation: f64,
        last: f64,
    }

    impl Parts {
        fn next(&mut self) -> f64 {
            // Irwin and Hall: twelve uniform values less six are normal enough.
            let normal = (0..12).map(|_| self.random.f64()).sum::<f64>() - 6.0;
            let own = (1.0 - self.correlation.powi(2)).sqrt();
            self.last = self.correlation * self.last + own * normal;
            1.0 + 0.05 * self.last
        }
    }

    /// In how many of a hundred runs without any effect the interval has 1 in it.
    fn coverage(correlation: f64, seconds: usize, apart: f64) -> f64 {
        let runs = 2_000;
        let mut parts = Parts { random: fastrand::Rng::with_seed(7), correlation, last: 0.0 };
        let covered = (0..runs).filter(|_| {
            let mut rates = |count: usize| -> Vec<(f64, f64)> {
                (0..count).map(|_| (0.1, parts.next())).collect()
            };
            let before = rates(5);
            rates((apart * 10.0) as usize);
            let window = rates(seconds * 10);
            rates((apart * 10.0) as usize);
            let outside = [before, rates(5)].concat();
            let few = Batches::of(&outside, 0.5);
            assert_eq!(few.values.len(), 2);
            let many = Batches::of(&window, 0.5);
            let (_, interval) = ratio_of_batches(&many, &few).unwrap();
            let (low, high) = interval.unwrap();
            low <= 1.0 && 1.0 <= high
        });
        covered.count() as f64 * 100.0 / f64::from(runs)
    }

    /// As if parts were independent, the interval would have the truth in it in 70 of 100 runs.
    #[test]
    fn the_interval_covers_the_truth_where_neighbouring_parts_are_alike() {
        for (correlation, seconds) in [(0.0, 5), (0.61, 5), (0.61, 10), (0.61, 60), (0.8, 10)] {
            let covered = coverage(correlation, seconds, 0.1);
            assert!(covered >= 92.0, "{covered}% at {correlation} in {seconds} s");
            assert!(covered <= 99.0, "{covered}% at {correlation} in {seconds} s: too wide");
        }
    }

    #[test]
    fn parts_are_joined_in_their_order() {
        let parts = [(0.1, 1.0), (0.1, 3.0), (0.1, 5.0), (0.1, 7.0), (0.1, 9.0)];
        let batches = Batches::of(&parts, 0.2);
        let rounded: Vec<f64> = batches.values.iter().map(|value| value.round()).collect();
        assert_eq!((rounded.as_slice(), batches.mean.round()), (&[2.0, 6.0][..], 4.0));
        assert!((batches.seconds - 0.2).abs() < 1e-12);
        assert_eq!(Batches::of(&parts, 0.05).values.len(), 5);
        assert_eq!(Batches::of(&parts, 9.0).values.len(), 0);
    }

    #[test]
    fn few_batches_have_no_interval() {
        let of = |values: &[f64]| {
            let parts: Vec<(f64, f64)> = values.iter().map(|value| (1.0, *value)).collect();
            Batches::of(&parts, 1.0)
        };
        assert_eq!(ratio_of_batches(&of(&[1.0, 1.0, 1.0]), &of(&[2.0])), Some((0.5, None)));
        assert_eq!(ratio_of_batches(&of(&[1.0]), &of(&[0.0])), None);
        let (ratio, interval) =
            ratio_of_batches(&of(&[1.0, 1.0, 1.0, 1.0]), &of(&[2.0, 2.0])).unwrap();
        assert_eq!((ratio, interval), (0.5, Some((0.5, 0.5))));
        assert_eq!(of(&[1.0, 3.0]).with_mean(4.0).mean(), 4.0);
    }
}
