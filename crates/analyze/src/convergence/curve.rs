//! What has moved since the start of traffic, and its throughput over windows of one length.

/// Bits since the start of traffic, over time.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Curve {
    /// Seconds since the start of traffic, and bits until then; ascending. The first is the start.
    points: Vec<(f64, f64)>,
}

/// Part of a window by which the last one may be short: instants are late by milliseconds.
const MISSING: f64 = 0.02;

impl Curve {
    /// Of what had moved at these times after the start.
    pub(crate) fn new(points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        let mut kept = vec![(0.0, 0.0)];
        for (time, bits) in points {
            if kept.last().is_some_and(|(last, _)| time > *last) {
                kept.push((time, bits));
            }
        }
        Self { points: kept }
    }

    fn end(&self) -> f64 {
        self.points.last().map_or(0.0, |(time, _)| *time)
    }

    /// Whether anything moved.
    pub(crate) fn moved(&self) -> bool {
        self.points.last().is_some_and(|(_, bits)| *bits > 0.0)
    }

    /// Median distance of its points, seconds; 0 without any.
    pub(crate) fn spacing(&self) -> f64 {
        let mut gaps: Vec<f64> = self.points.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
        gaps.sort_by(f64::total_cmp);
        gaps.get(gaps.len() / 2).copied().unwrap_or(0.0)
    }

    /// Longest distance of two of its points, seconds; 0 without any.
    pub(crate) fn largest_gap(&self) -> f64 {
        self.points.windows(2).map(|pair| pair[1].0 - pair[0].0).fold(0.0, f64::max)
    }

    /// Mean throughput between two times after the start, bits per second.
    pub(crate) fn mean(&self, from: f64, to: f64) -> f64 {
        let mut at = self.reader();
        let (first, last) = (at(from), at(to));
        if to > from { (last - first) / (to - from) } else { 0.0 }
    }

    /// Throughput of consecutive windows from the start, bits per second. What is left at the end is in none.
    pub(crate) fn rates(&self, window: f64) -> Vec<f64> {
        let count = (self.end() / window + MISSING).floor() as usize;
        let mut at = self.reader();
        let mut before = (0.0, 0.0);
        let rates = (1..=count).map(|number| {
            let time = (number as f64 * window).min(self.end());
            let now = (time, at(time));
            let rate = (now.1 - before.1) / (now.0 - before.0);
            before = now;
            rate
        });
        rates.collect()
    }

    /// Bits until a time, between its points by interpolation. Times are asked for in ascending order.
    fn reader(&self) -> impl FnMut(f64) -> f64 + '_ {
        let mut next = 1;
        move |time| {
            while self.points.get(next).is_some_and(|(at, _)| *at < time) {
                next += 1;
            }
            let before = self.points[next - 1];
            match self.points.get(next) {
                Some(after) => {
                    let part = (time - before.0) / (after.0 - before.0);
                    before.1 + part * (after.1 - before.1)
                }
                None => before.1,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_of_one_length_wherever_the_points_are() {
        // 10 bits a second until 1.5 s, then 20.
        let curve = Curve::new([(0.5, 5.0), (1.5, 15.0), (2.5, 35.0), (3.5, 55.0)]);
        assert_eq!(curve.rates(1.0), [10.0, 15.0, 20.0]);
        assert_eq!(curve.rates(0.5), [10.0, 10.0, 10.0, 20.0, 20.0, 20.0, 20.0]);
        assert_eq!(curve.spacing(), 1.0);
        assert_eq!((curve.mean(0.0, 1.5), curve.mean(1.5, 3.5)), (10.0, 20.0));
        assert_eq!(Curve::new([]).rates(1.0), [0.0; 0]);
    }

    #[test]
    fn a_last_instant_that_is_a_little_early_completes_its_window() {
        let curve = Curve::new([(1.0, 10.0), (1.99, 19.9)]);
        assert_eq!(curve.rates(1.0).len(), 2);
        assert!((curve.rates(1.0)[1] - 10.0).abs() < 1e-9);
        assert_eq!(Curve::new([(1.0, 10.0), (1.9, 19.0)]).rates(1.0).len(), 1);
    }

    #[test]
    fn instants_that_do_not_follow_are_left_out() {
        assert_eq!(Curve::new([(0.0, 3.0), (1.0, 4.0), (1.0, 5.0)]).rates(1.0), [4.0]);
    }
}
