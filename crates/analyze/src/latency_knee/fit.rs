//! The knee of a curve: two straight lines that meet, fitted to the logarithm of what is measured.
//!
//! D. V. Hinkley, Inference about the intersection in two-phase regression (Biometrika 56, 1969). The place where the
//! lines meet is searched on a grid; for each place the lines are found by least squares.

use fastrand::Rng;
use statrs::distribution::{ContinuousCDF, FisherSnedecor};

use crate::statistics::bootstrap::{interval, normal};

/// Different loads, at least.
pub const LOADS: usize = 5;
/// Places that are tried.
const PLACES: usize = 200;
/// A straight line that fits as well is rejected at this level.
/// As the position is searched, the test rejects more often than its level, so this is not 5%.
const LEVEL: f64 = 0.01;
/// p99 at the highest load must be at least this, relative to that at the knee.
const RISE: f64 = 1.5;

/// A knee of a curve.
#[derive(Debug, Clone, PartialEq)]
pub struct Fit {
    /// Where the lines meet.
    pub knee: f64,
    /// 95% interval; `None` unless loads were repeated.
    pub interval: Option<(f64, f64)>,
    /// The value of the lines at the lowest load, at the knee, and at the highest load.
    pub values: [f64; 3],
    /// That one straight line fits as well.
    pub p_value: f64,
}

/// Why a curve has no knee.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum NoKnee {
    #[error("a knee needs at least {LOADS} loads that were delivered")]
    TooFewLoads,
    /// One line is as good.
    #[error(
        "two lines do not fit the logarithm of latency significantly better than one (F test, p = {0:.2})"
    )]
    Straight(f64),
    /// It bends down.
    #[error("there is no load beyond which latency grows faster")]
    Slows,
    /// It bends by too little to matter.
    #[error("p99 at the highest load is only {0:.2}x that at the best candidate for a knee")]
    Flat(f64),
}

/// Scale of the axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    Linear,
    /// Of axes whose steps are factors, such as connections.
    Logarithmic,
}

impl Scale {
    fn of(self, load: f64) -> f64 {
        match self {
            Scale::Linear => load,
            Scale::Logarithmic => load.ln(),
        }
    }

    fn load(self, place: f64) -> f64 {
        match self {
            Scale::Linear => place,
            Scale::Logarithmic => place.exp(),
        }
    }
}

/// The values of all runs at a load.
#[derive(Debug, Clone, PartialEq)]
struct Stop {
    place: f64,
    logarithms: Vec<f64>,
}

impl Stop {
    fn mean(&self) -> f64 {
        self.logarithms.iter().sum::<f64>() / self.logarithms.len() as f64
    }
}

/// Lines `a + b x`, and from the knee on `a + b x + c (x - knee)`.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Lines {
    knee: f64,
    a: f64,
    b: f64,
    c: f64,
}

impl Lines {
    fn at(&self, place: f64) -> f64 {
        self.a + self.b * place + self.c * (place - self.knee).max(0.0)
    }

    fn squares(&self, stops: &[Stop]) -> f64 {
        let of_stop = |stop: &Stop| -> f64 {
            let line = self.at(stop.place);
            stop.logarithms.iter().map(|value| (value - line).powi(2)).sum()
        };
        stops.iter().map(of_stop).sum()
    }
}

/// The knee of what the runs at each load measured; loads are in any order, and each is there once.
///
/// # Errors
/// Why there is none.
pub fn fit(points: &[(f64, Vec<f64>)], scale: Scale) -> Result<Fit, NoKnee> {
    let mut stops: Vec<Stop> = Vec::new();
    for (load, values) in points {
        let logarithms: Vec<f64> =
            values.iter().filter(|value| **value > 0.0).map(|value| value.ln()).collect();
        if !logarithms.is_empty() && (scale == Scale::Linear || *load > 0.0) {
            stops.push(Stop { place: scale.of(*load), logarithms });
        }
    }
    stops.sort_by(|a, b| a.place.total_cmp(&b.place));
    if stops.len() < LOADS {
        return Err(NoKnee::TooFewLoads);
    }
    let means: Vec<f64> = stops.iter().map(Stop::mean).collect();
    let lines = best(&stops, &means);
    let (first, last) = (stops[0].place, stops[stops.len() - 1].place);
    let value = |place: f64| lines.at(place).exp();
    let rise = value(last) / value(lines.knee);
    if lines.c <= 0.0 {
        return Err(NoKnee::Slows);
    }
    if rise < RISE {
        return Err(NoKnee::Flat(rise));
    }
    let p_value = straight(&stops, &means, &lines);
    if p_value >= LEVEL {
        return Err(NoKnee::Straight(p_value));
    }
    Ok(Fit {
        knee: scale.load(lines.knee),
        interval: spread(&stops, &means).map(|(low, high)| (scale.load(low), scale.load(high))),
        values: [value(first), value(lines.knee), value(last)],
        p_value,
    })
}

/// The lines with the least squares; those that bend upwards, if any do.
fn best(stops: &[Stop], means: &[f64]) -> Lines {
    let (from, to) = (stops[1].place, stops[stops.len() - 2].place);
    let mut best: Option<(bool, f64, Lines)> = None;
    for place in 0..=PLACES {
        let knee = from + (to - from) * place as f64 / PLACES as f64;
        let Some([a, b, c]) = least_squares(stops, means, |x| [1.0, x, (x - knee).max(0.0)]) else {
            continue;
        };
        let lines = Lines { knee, a, b, c };
        let of_means = squares_of_means(stops, means, &lines);
        let is_better = best.is_none_or(|(upwards, least, _)| match (c > 0.0, upwards) {
            (true, false) => true,
            (false, true) => false,
            _ => of_means < least,
        });
        if is_better {
            best = Some((c > 0.0, of_means, lines));
        }
    }
    best.map_or(Lines { knee: from, a: means[0], b: 0.0, c: 0.0 }, |(_, _, lines)| lines)
}

/// What the lines leave of the means, each as heavy as it has runs: the rest of the squares is the same for all lines.
fn squares_of_means(stops: &[Stop], means: &[f64], lines: &Lines) -> f64 {
    let each = stops.iter().zip(means);
    each.map(|(stop, mean)| stop.logarithms.len() as f64 * (mean - lines.at(stop.place)).powi(2))
        .sum()
}

/// Probability that the lines fit so much better than one if one is true (F test).
fn straight(stops: &[Stop], means: &[f64], lines: &Lines) -> f64 {
    let Some([a, b]) = least_squares(stops, means, |x| [1.0, x]) else { return 1.0 };
    let one = Lines { knee: f64::INFINITY, a, b, c: 0.0 };
    let runs: usize = stops.iter().map(|stop| stop.logarithms.len()).sum();
    let (of_one, of_two) = (one.squares(stops), lines.squares(stops));
    // The lines have two parameters more: the knee and the slope beyond it. What they leave is noise and what the
    // curve differs from them; of loads that were repeated, noise is known by itself.
    let (repeats, noise) = differences(stops, means);
    let (freedom, noise) = match repeats >= stops.len() as f64 {
        true => (repeats, noise),
        false => (runs as f64 - 4.0, of_two),
    };
    if freedom < 1.0 {
        return 1.0;
    }
    if noise <= f64::EPSILON * of_one {
        return if of_one > of_two { 0.0 } else { 1.0 };
    }
    let ratio = ((of_one - of_two) / 2.0) / (noise / freedom);
    FisherSnedecor::new(2.0, freedom).map_or(1.0, |f| f.sf(ratio.max(0.0)))
}

/// Degrees of freedom of repeats, and the squares of what they differ from the mean of their load.
fn differences(stops: &[Stop], means: &[f64]) -> (f64, f64) {
    let (mut squares, mut freedom) = (0.0, 0.0);
    for (stop, mean) in stops.iter().zip(means) {
        squares += stop.logarithms.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
        freedom += stop.logarithms.len() as f64 - 1.0;
    }
    (freedom, squares)
}

/// Parametric bootstrap: the variance of repeats is pooled over all loads, as three runs say little about it.
fn spread(stops: &[Stop], means: &[f64]) -> Option<(f64, f64)> {
    let (freedom, squares) = differences(stops, means);
    if freedom == 0.0 {
        return None;
    }
    let deviation = f64::sqrt(squares / freedom);
    let draw = |random: &mut Rng| -> Vec<f64> {
        let each = stops.iter().zip(means);
        each.map(|(stop, mean)| {
            mean + deviation / (stop.logarithms.len() as f64).sqrt() * normal(random)
        })
        .collect()
    };
    interval(|random| {
        let drawn = draw(random);
        Some(best(stops, &drawn).knee)
    })
}

/// Coefficients of these terms for the means, each as heavy as it has runs. `None` if the terms are dependent.
fn least_squares<const N: usize>(
    stops: &[Stop],
    means: &[f64],
    terms: impl Fn(f64) -> [f64; N],
) -> Option<[f64; N]> {
    // Places from 0 to 1: sums of squares of bits per second would lose the digits of what they are compared with.
    let (from, to) = (stops[0].place, stops[stops.len() - 1].place);
    let mut rows = [[0.0; N]; N];
    let mut right = [0.0; N];
    let mut scales = [0.0_f64; N];
    for stop in [from, to] {
        for (scale, term) in scales.iter_mut().zip(terms(stop)) {
            *scale = scale.max(term.abs());
        }
    }
    if scales.contains(&0.0) {
        return None;
    }
    for (stop, mean) in stops.iter().zip(means) {
        let weight = stop.logarithms.len() as f64;
        let mut scaled = terms(stop.place);
        scaled.iter_mut().zip(scales).for_each(|(term, scale)| *term /= scale);
        for (row, of_row) in rows.iter_mut().zip(scaled) {
            row.iter_mut().zip(scaled).for_each(|(cell, term)| *cell += weight * of_row * term);
        }
        right.iter_mut().zip(scaled).for_each(|(cell, term)| *cell += weight * term * mean);
    }
    let mut solved = solve(rows, right)?;
    solved.iter_mut().zip(scales).for_each(|(value, scale)| *value /= scale);
    Some(solved)
}

/// Gaussian elimination with pivots.
fn solve<const N: usize>(mut rows: [[f64; N]; N], mut right: [f64; N]) -> Option<[f64; N]> {
    for column in 0..N {
        let pivot =
            (column..N).max_by(|a, b| rows[*a][column].abs().total_cmp(&rows[*b][column].abs()))?;
        if rows[pivot][column].abs() < 1e-9 {
            return None;
        }
        rows.swap(column, pivot);
        right.swap(column, pivot);
        for row in 0..N {
            if row == column {
                continue;
            }
            let factor = rows[row][column] / rows[column][column];
            let of_pivot = rows[column];
            rows[row].iter_mut().zip(of_pivot).for_each(|(cell, of)| *cell -= factor * of);
            right[row] -= factor * right[column];
        }
    }
    let mut solved = [0.0; N];
    for (place, value) in solved.iter_mut().enumerate() {
        *value = right[place] / rows[place][place];
    }
    Some(solved)
}
