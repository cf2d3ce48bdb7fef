//! Slices of a window: a hook on a hot path that is in place for a part of the time costs that part,
//! and shares, averages and histograms need no more.

use wirecost_model::clock::{MILLISECOND, Nanos, seconds};
use wirecost_model::observe;

/// One slice in each period.
const PERIOD: Nanos = 250 * MILLISECOND;
const LENGTH: Nanos = 50 * MILLISECOND;

/// The slices of a window so far.
#[derive(Debug, Default)]
pub(crate) struct Slices {
    begin: Nanos,
    /// Slices that have begun.
    count: u32,
    /// Since when one is under way.
    since: Option<Nanos>,
    /// Of those that have ended.
    total: Nanos,
}

impl Slices {
    /// A window begins.
    pub(crate) fn of_window(begin: Nanos) -> Self {
        Self { begin, ..Self::default() }
    }

    /// When the next slice begins, or the one that is under way ends.
    pub(crate) fn next(&self) -> Nanos {
        match self.since {
            Some(since) => since.saturating_add(LENGTH),
            None => self.begin.saturating_add(offset(self.count)),
        }
    }

    /// Whether a slice is under way.
    pub(crate) fn under_way(&self) -> bool {
        self.since.is_some()
    }

    /// A slice has begun.
    pub(crate) fn begins(&mut self, at: Nanos) {
        self.since = Some(at);
        self.count += 1;
    }

    /// It has ended.
    pub(crate) fn ends(&mut self, at: Nanos) {
        if let Some(since) = self.since.take() {
            self.total += at.saturating_sub(since);
        }
    }

    /// What part of the window they were.
    pub(crate) fn coverage(&self, end: Nanos) -> observe::Slices {
        let window = end.saturating_sub(self.begin).max(1);
        observe::Slices {
            count: self.count,
            seconds: seconds(self.total),
            percent: self.total as f64 * 100.0 / window as f64,
        }
    }
}

/// Where in the window a slice begins. Steps of the golden ratio spread the places within the periods
/// evenly, and are in step with nothing that repeats itself.
fn offset(number: u32) -> Nanos {
    const GOLDEN: u64 = 0x9e37_79b9;
    let part = (u64::from(number) * GOLDEN) & u64::from(u32::MAX);
    u64::from(number) * PERIOD + ((part * (PERIOD - LENGTH)) >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_a_fifth_of_a_window_and_nowhere_in_step() {
        let begin = 7_000_000_123;
        let mut slices = Slices::of_window(begin);
        let end = begin + 400 * PERIOD;
        let mut places = [0; 10];
        let mut last = 0;
        while slices.next() < end {
            let at = slices.next();
            assert!(at >= last, "{at} after {last}");
            last = at;
            if slices.under_way() {
                slices.ends(at);
            } else {
                slices.begins(at);
                places[(((at - begin) % PERIOD) * 10 / PERIOD) as usize] += 1;
            }
        }
        let coverage = slices.coverage(end);
        assert_eq!(coverage.count, 400);
        assert!((coverage.percent - 20.0).abs() < 1e-9, "{coverage:?}");
        assert!((coverage.seconds - 20.0).abs() < 1e-9, "{coverage:?}");
        // The last fifth of a period is too short for one to begin there.
        assert_eq!(places[8..], [0, 0]);
        assert!(places[..8].iter().all(|place| (48..=52).contains(place)), "{places:?}");
    }

    #[test]
    fn the_first_is_at_once_and_one_that_is_cut_short_counts_as_long_as_it_was() {
        let mut slices = Slices::of_window(1_000);
        assert_eq!(slices.next(), 1_000);
        slices.begins(1_000);
        slices.ends(1_000 + LENGTH / 2);
        let coverage = slices.coverage(1_000 + LENGTH);
        assert_eq!((coverage.count, coverage.percent), (1, 50.0));
    }
}
