//! How far something scales: the knee is the load beyond which throughput does not grow.

use crate::statistics::Estimate;

/// A value within this fraction of the best is not distinguished from it.
pub const INDISTINGUISHABLE: f64 = 0.05;

/// A half-width of the best's interval above this fraction is too uncertain.
const MAX_HALF_WIDTH: f64 = 0.25;

/// The smallest load with the best throughput, and the course beyond it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Knee {
    pub load: f64,
    /// Throughput at the knee.
    pub there: f64,
    /// Maximum throughput at any load.
    pub best: f64,
    pub after: After,
}

/// The course beyond a knee, as far as it was measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum After {
    /// Throughput stays at the best.
    Level,
    /// From this load on it falls, to `least` at worst.
    Falls { load: f64, least: f64 },
    /// No larger load was measured.
    Nothing,
}

/// Why there is no knee.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoKnee {
    #[error("a knee needs at least three loads")]
    TooFewLoads,
    #[error("nothing was done at any load")]
    Nothing,
    #[error("the interval of the best is too wide; add repeats")]
    TooUncertain,
}

/// The knee of the throughput at each load; loads are in any order.
///
/// A value is as good as the best if it is at most 5% below it, or within the best's 95% interval if that
/// is wider. The knee is the smallest of the adjacent loads around the best that are all as good. A
/// single good run among bad ones is therefore not a knee.
///
/// # Errors
/// Why there is none.
pub fn knee(points: &[(f64, Estimate)]) -> Result<Knee, NoKnee> {
    let mut points = points.to_vec();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let done = |place: usize| points[place].1.mean;
    let best = (0..points.len()).max_by(|a, b| done(*a).total_cmp(&done(*b)));
    let best = best.filter(|_| points.len() >= 3).ok_or(NoKnee::TooFewLoads)?;
    if done(best) <= 0.0 {
        return Err(NoKnee::Nothing);
    }
    let reach = points[best].1.interval.map_or(0.0, |(low, _)| done(best) - low);
    if reach > MAX_HALF_WIDTH * done(best) {
        return Err(NoKnee::TooUncertain);
    }
    let enough = done(best) - reach.max(INDISTINGUISHABLE * done(best));
    let good = |place: &usize| done(*place) >= enough;
    let first = (0..=best).rev().take_while(good).last().unwrap_or(best);
    let last = (best..points.len()).take_while(good).last().unwrap_or(best);
    let after = match points.get(last + 1) {
        Some((load, _)) => {
            let beyond = (last + 1..points.len()).map(done);
            After::Falls { load: *load, least: beyond.fold(f64::INFINITY, f64::min) }
        }
        None if first == last => After::Nothing,
        None => After::Level,
    };
    Ok(Knee { load: points[first].0, there: done(first), best: done(best), after })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn once(points: &[(f64, f64)]) -> Vec<(f64, Estimate)> {
        let of = |&(load, done)| (load, Estimate { mean: done, interval: None, times: 1 });
        points.iter().map(of).collect()
    }

    /// "So I can easily know that for the HTTP GET workload, my SUT will scale to about 100
    /// simultaneous network connections": measured by hand and read by eye.
    #[test]
    fn the_knee_agrees_with_a_table_read_by_eye() {
        let table = [
            (1.0, 1585.10),
            (10.0, 3631.86),
            (30.0, 5790.68),
            (100.0, 6577.13),
            (300.0, 6537.30),
            (1000.0, 6629.40),
            (2000.0, 6652.14),
            (3000.0, 6673.01),
        ];
        let knee = knee(&once(&table)).unwrap();
        assert_eq!((knee.load, knee.there, knee.best), (100.0, 6577.13, 6673.01));
        assert_eq!(knee.after, After::Level);
    }

    #[test]
    fn a_fall_beyond_the_knee_has_its_load_and_depth() {
        let table =
            [(1.0, 0.9), (4.0, 3.7), (8.0, 7.4), (32.0, 9.22), (100.0, 9.24), (400.0, 8.93)];
        let falling: Vec<_> = table.into_iter().chain([(1000.0, 8.0), (2000.0, 7.01)]).collect();
        let knee = knee(&once(&falling)).unwrap();
        assert_eq!((knee.load, knee.after), (32.0, After::Falls { load: 1000.0, least: 7.01 }));
    }

    #[test]
    fn growth_to_the_end_has_its_knee_at_the_last_load() {
        let growing = once(&[(1.0, 1.0), (2.0, 2.0), (4.0, 4.0)]);
        let found = knee(&growing).unwrap();
        assert_eq!((found.load, found.after), (4.0, After::Nothing));
        let level = once(&[(1.0, 10.0), (2.0, 10.1), (4.0, 9.9)]);
        let found = knee(&level).unwrap();
        assert_eq!((found.load, found.after), (1.0, After::Level));
    }

    #[test]
    fn an_interval_wider_than_5_percent_is_believed_one_wider_than_25_is_not() {
        let mut points = once(&[(1.0, 50.0), (2.0, 90.0), (3.0, 100.0), (4.0, 99.0)]);
        assert_eq!(knee(&points).unwrap().load, 3.0);
        points[2].1.interval = Some((88.0, 112.0));
        assert_eq!(knee(&points).unwrap().load, 2.0);
        points[2].1.interval = Some((70.0, 130.0));
        assert_eq!(knee(&points), Err(NoKnee::TooUncertain));
    }

    #[test]
    fn knee_needs_three_points() {
        assert_eq!(knee(&once(&[(1.0, 1.0), (2.0, 1.0)])), Err(NoKnee::TooFewLoads));
        assert_eq!(knee(&once(&[(1.0, 0.0), (2.0, 0.0), (3.0, 0.0)])), Err(NoKnee::Nothing));
        assert_eq!(knee(&[]), Err(NoKnee::TooFewLoads));
    }

    proptest! {
        /// Growth up to a known load and level beyond it, with noise of 1%, in any order.
        #[test]
        fn a_known_knee_is_found(
            at in 1usize..7, noise in proptest::collection::vec(-0.01f64..0.01, 8), turn in 0usize..8,
        ) {
            let done = |place: usize| 100.0 * 2f64.powi(place.min(at) as i32) * (1.0 + noise[place]);
            let mut points: Vec<_> = (0..8).map(|p| (2f64.powi(p as i32), done(p))).collect();
            points.rotate_left(turn);
            prop_assert_eq!(knee(&once(&points)).unwrap().load, 2f64.powi(at as i32));
        }
    }
}
