//! Readings over time that stay few however long a window is.

use wirecost_model::clock::Nanos;

/// Closer together than this they would cost more than they tell.
const CLOSEST: Nanos = 90_000_000;
const MOST: usize = 600;

/// Readings of what only grows, or of states. When there are too many, every other one goes.
#[derive(Debug)]
pub(crate) struct Series<T> {
    readings: Vec<(Nanos, T)>,
    apart: Nanos,
}

impl<T> Default for Series<T> {
    fn default() -> Self {
        Self { readings: Vec::new(), apart: CLOSEST }
    }
}

impl<T> Series<T> {
    /// Whether another reading is wanted at this instant.
    pub(crate) fn wants(&self, at: Nanos) -> bool {
        self.readings.last().is_none_or(|(last, _)| at.saturating_sub(*last) >= self.apart)
    }

    pub(crate) fn push(&mut self, at: Nanos, reading: T) {
        if self.readings.len() >= MOST {
            let mut odd = false;
            self.readings.retain(|_| {
                odd = !odd;
                !odd
            });
            self.apart *= 2;
        }
        self.readings.push((at, reading));
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &(Nanos, T)> {
        self.readings.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_window_has_as_many_readings_as_a_short_one() {
        let mut series = Series::default();
        for at in (0..100_000).map(|n| n * 100_000_000) {
            if series.wants(at) {
                series.push(at, at);
            }
        }
        let readings: Vec<Nanos> = series.iter().map(|(at, _)| *at).collect();
        assert!((300..=600).contains(&readings.len()), "{}", readings.len());
        assert!(readings.is_sorted());
        assert!(readings.last().is_some_and(|last| *last > 9_900_000_000_000));
    }

    #[test]
    fn readings_keep_their_distance() {
        let mut series = Series::default();
        series.push(1_000_000_000, ());
        assert!(!series.wants(1_010_000_000));
        assert!(series.wants(1_100_000_000));
    }
}
