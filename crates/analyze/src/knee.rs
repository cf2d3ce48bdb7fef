//! How far something scales: the load from which more of it brings no more.

use crate::statistics::Estimate;

/// What differs from the best by no more than this part of it is as good.
pub const AS_GOOD: f64 = 0.05;

/// An interval that reaches further than this part of the best to either side tells too little.
const TOO_WIDE: f64 = 0.25;

/// The least load at which as much is done as at any, and what comes after it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Knee {
    pub load: f64,
    /// What is done there.
    pub there: f64,
    /// The most that is done at any load.
    pub best: f64,
    pub after: After,
}

/// How it goes on beyond a knee, as far as was measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum After {
    /// As much is done at all greater loads.
    Level,
    /// From this load on it is less: `least` at worst.
    Falls { load: f64, least: f64 },
    /// There is no greater load.
    Nothing,
}

/// Why there is no knee.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoKnee {
    #[error("it takes three loads to see how something scales")]
    TooFew,
    #[error("nothing was done at any load")]
    Nothing,
    #[error("the best is not known well enough: more repeats narrow its interval")]
    Unsure,
}

/// The knee of what is done at each load, in any order of loads.
///
/// As good as the best is what is at most 5% below it, or, where that is wider, what the 95% interval
/// of the best holds. Of the loads that lie side by side around the best and are all as good, the least
/// is the knee; so a single good run among bad ones is none.
///
/// # Errors
/// Why there is none.
pub fn knee(points: &[(f64, Estimate)]) -> Result<Knee, NoKnee> {
    let mut points = points.to_vec();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let done = |place: usize| points[place].1.mean;
    let best = (0..points.len()).max_by(|a, b| done(*a).total_cmp(&done(*b)));
    let best = best.filter(|_| points.len() >= 3).ok_or(NoKnee::TooFew)?;
    if done(best) <= 0.0 {
        return Err(NoKnee::Nothing);
    }
    let reach = points[best].1.interval.map_or(0.0, |(low, _)| done(best) - low);
    if reach > TOO_WIDE * done(best) {
        return Err(NoKnee::Unsure);
    }
    let enough = done(best) - reach.max(AS_GOOD * done(best));
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
    fn a_table_that_was_read_by_eye_is_read_alike() {
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
    fn what_falls_again_says_where_and_how_far() {
        let table =
            [(1.0, 0.9), (4.0, 3.7), (8.0, 7.4), (32.0, 9.22), (100.0, 9.24), (400.0, 8.93)];
        let falling: Vec<_> = table.into_iter().chain([(1000.0, 8.0), (2000.0, 7.01)]).collect();
        let knee = knee(&once(&falling)).unwrap();
        assert_eq!((knee.load, knee.after), (32.0, After::Falls { load: 1000.0, least: 7.01 }));
    }

    #[test]
    fn what_still_grows_has_its_knee_at_the_end() {
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
        assert_eq!(knee(&points), Err(NoKnee::Unsure));
    }

    #[test]
    fn of_too_little_there_is_none() {
        assert_eq!(knee(&once(&[(1.0, 1.0), (2.0, 1.0)])), Err(NoKnee::TooFew));
        assert_eq!(knee(&once(&[(1.0, 0.0), (2.0, 0.0), (3.0, 0.0)])), Err(NoKnee::Nothing));
        assert_eq!(knee(&[]), Err(NoKnee::TooFew));
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
