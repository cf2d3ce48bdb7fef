//! Moderated t-tests of ratios (G. Smyth, Statistical Applications in Genetics and Molecular Biology 3,
//! 2004): a few runs say little about their own variance, so it is shrunk towards the variance of the same
//! metric at all points. How far is estimated: the more the variances of points differ, the less.

use statrs::function::gamma::digamma;

use super::special::{inverse_trigamma, trigamma};
use super::{quantile, two_sided_p};

/// Logarithms of the values of one metric at one point, of both sides, two or more of each.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    pub metric: usize,
    pub a: Vec<f64>,
    pub b: Vec<f64>,
}

/// Differences of the logarithms of two sides that were measured side by side, B - A, two or more.
#[derive(Debug, Clone, PartialEq)]
pub struct Pairs {
    pub metric: usize,
    pub differences: Vec<f64>,
}

/// The logarithm of a ratio B/A, and how well it is known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Effect {
    pub log_ratio: f64,
    /// Its standard error.
    pub error: f64,
    /// Degrees of freedom of that.
    pub freedom: f64,
    /// Runs of a side, their harmonic mean where the sides have different numbers.
    pub runs: f64,
}

impl Effect {
    /// Two-sided p-value of a ratio of 1.
    #[must_use]
    pub fn p_value(&self) -> f64 {
        // Sums of the same values in another order differ in their last bits.
        let is_equal = self.log_ratio.abs() < 1e-12;
        match (self.error > 0.0, is_equal) {
            (_, true) => 1.0,
            (false, false) => 0.0,
            (true, false) => two_sided_p(self.log_ratio / self.error, self.freedom),
        }
    }

    #[must_use]
    pub fn ratio(&self) -> f64 {
        self.log_ratio.exp()
    }

    /// Interval of the ratio that misses it with probability `level`. It excludes 1 exactly if the
    /// p-value is below `level`.
    #[must_use]
    pub fn interval(&self, level: f64) -> (f64, f64) {
        let reach = match self.error > 0.0 {
            true => quantile(1.0 - level / 2.0, self.freedom) * self.error,
            false => 0.0,
        };
        ((self.log_ratio - reach).exp(), (self.log_ratio + reach).exp())
    }
}

/// Mean, variance, and number.
#[derive(Clone, Copy)]
struct Moments {
    mean: f64,
    variance: f64,
    number: f64,
}

impl Moments {
    fn of(values: &[f64]) -> Self {
        let number = values.len() as f64;
        let mean = values.iter().sum::<f64>() / number;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        // What rounding leaves of equal values is no variance.
        let least = number * (1e-14 * mean.abs().max(1.0)).powi(2);
        let squares = if squares > least { squares } else { 0.0 };
        Self { mean, variance: squares / (number - 1.0), number }
    }

    fn variance_of_mean(&self) -> f64 {
        self.variance / self.number
    }
}

/// Both sides of a cell.
struct Sides {
    metric: usize,
    a: Moments,
    b: Moments,
}

impl Sides {
    fn log_ratio(&self) -> f64 {
        self.b.mean - self.a.mean
    }

    /// Variance of the logarithm of the ratio.
    fn variance(&self) -> f64 {
        self.a.variance_of_mean() + self.b.variance_of_mean()
    }

    /// What [`Self::variance`] is of one of variance 1 per run.
    fn per_run(&self) -> f64 {
        1.0 / self.a.number + 1.0 / self.b.number
    }

    /// Degrees of freedom if both sides vary alike.
    fn freedom(&self) -> f64 {
        self.a.number + self.b.number - 2.0
    }

    /// Variance of a run if both sides vary alike.
    fn common_variance(&self) -> f64 {
        let squares = |side: &Moments| side.variance * (side.number - 1.0);
        (squares(&self.a) + squares(&self.b)) / self.freedom()
    }

    fn spread(&self) -> Spread {
        Spread { metric: self.metric, variance: self.common_variance(), freedom: self.freedom() }
    }

    /// The terms of Welch's degrees of freedom.
    fn welch_term(&self) -> f64 {
        let of = |side: &Moments| side.variance_of_mean().powi(2) / (side.number - 1.0);
        of(&self.a) + of(&self.b)
    }
}

/// The variance of a run at one point.
struct Spread {
    metric: usize,
    variance: f64,
    freedom: f64,
}

/// What the cells of all points say about variances before one of them is looked at.
struct Prior {
    /// Degrees of freedom that this is worth; 0 if nothing is known.
    freedom: f64,
    /// Variance of a run of each metric; `None` where it is unknown.
    variances: Vec<Option<f64>>,
}

/// Smallest variance in parts of the median of its metric, so that runs that happen to be equal do not
/// decide about all others.
const LEAST_VARIANCE: f64 = 1e-5;

impl Prior {
    /// Metrics differ in their variance; how much points differ around their metric is common to all.
    fn of(cells: &[Spread]) -> Self {
        let metrics = cells.iter().map(|cell| cell.metric + 1).max().unwrap_or(0);
        let mut known: Vec<Option<(f64, f64)>> = vec![None; metrics];
        let (mut squares, mut freedom, mut sampling, mut number) = (0.0, 0.0, 0.0, 0.0);
        for (metric, known) in known.iter_mut().enumerate() {
            let mut of: Vec<(f64, f64)> = (cells.iter().filter(|cell| cell.metric == metric))
                .map(|cell| (cell.variance, cell.freedom))
                .collect();
            of.sort_by(|a, b| a.0.total_cmp(&b.0));
            let positive: Vec<f64> = of.iter().map(|(s, _)| *s).filter(|s| *s > 0.0).collect();
            let Some(median) = positive.get(positive.len() / 2) else { continue };
            if of.len() < 2 {
                continue;
            }
            let logs: Vec<f64> = of
                .iter()
                .map(|(variance, freedom)| {
                    let half = freedom / 2.0;
                    variance.max(LEAST_VARIANCE * median).ln() - digamma(half) + half.ln()
                })
                .collect();
            let count = logs.len() as f64;
            let mean = logs.iter().sum::<f64>() / count;
            squares += logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>();
            sampling += of.iter().map(|(_, freedom)| trigamma(freedom / 2.0)).sum::<f64>();
            freedom += count - 1.0;
            number += count;
            let all: f64 = of.iter().map(|(_, freedom)| freedom).sum();
            let average =
                of.iter().map(|(variance, freedom)| variance * freedom).sum::<f64>() / all;
            *known = Some((mean, average));
        }
        if freedom == 0.0 {
            return Self { freedom: 0.0, variances: vec![None; metrics] };
        }
        // Few cells estimate poorly how much points differ. One standard error above the estimate keeps
        // false alarms down where one point of three is twice as noisy (docs/measurements/statistics.md).
        let (seen, sampling) = (squares / freedom, sampling / number);
        let excess = seen - sampling + seen.max(sampling) * (2.0 / freedom).sqrt();
        let half = if excess > 0.0 { inverse_trigamma(excess) } else { f64::INFINITY };
        let variances = known.into_iter().map(|known| {
            let (mean, average) = known?;
            Some(match half.is_finite() {
                true => (mean + digamma(half) - half.ln()).exp(),
                false => average,
            })
        });
        Self { freedom: 2.0 * half, variances: variances.collect() }
    }
}

/// The ratio at each cell. A cell's own degrees of freedom are Welch's, so that sides may differ in their
/// variance.
#[must_use]
pub fn effects(cells: &[Cell]) -> Vec<Effect> {
    let sides = sides(cells);
    let spreads: Vec<Spread> = sides.iter().map(Sides::spread).collect();
    let moderation = Moderation::of(&spreads);
    let effect = |cell: &Sides| {
        let own_freedom = match cell.welch_term() {
            term if term > 0.0 => cell.variance().powi(2) / term,
            _ => cell.freedom(),
        };
        let own = cell.variance() / cell.per_run();
        let (variance, freedom) = moderation.shrink(cell.metric, own, own_freedom);
        Effect {
            log_ratio: cell.log_ratio(),
            error: (variance * cell.per_run()).sqrt(),
            freedom,
            runs: 2.0 / cell.per_run(),
        }
    };
    sides.iter().map(effect).collect()
}

/// The ratio at each cell, of sides that were measured side by side: what both have in common, such as a slow minute of the
/// machine, is in neither the ratio nor its error.
#[must_use]
pub fn paired_effects(cells: &[Pairs]) -> Vec<Effect> {
    let moments: Vec<Moments> = cells.iter().map(|cell| Moments::of(&cell.differences)).collect();
    let spread = |(cell, of): (&Pairs, &Moments)| Spread {
        metric: cell.metric,
        variance: of.variance,
        freedom: of.number - 1.0,
    };
    let spreads: Vec<Spread> = cells.iter().zip(&moments).map(spread).collect();
    let moderation = Moderation::of(&spreads);
    let effect = |(spread, of): (&Spread, &Moments)| {
        let (variance, freedom) = moderation.shrink(spread.metric, spread.variance, spread.freedom);
        let error = (variance / of.number).sqrt();
        Effect { log_ratio: of.mean, error, freedom, runs: of.number }
    };
    spreads.iter().zip(&moments).map(effect).collect()
}

/// Shrinks variances towards what all points say.
struct Moderation {
    prior: Prior,
    /// The prior is itself estimated from the runs of its metric and cannot be worth more than they are.
    most: Vec<f64>,
}

impl Moderation {
    fn of(spreads: &[Spread]) -> Self {
        let prior = Prior::of(spreads);
        let mut most = vec![0.0; prior.variances.len()];
        spreads.iter().for_each(|spread| most[spread.metric] += spread.freedom);
        Self { prior, most }
    }

    /// The variance of a run, and its degrees of freedom.
    fn shrink(&self, metric: usize, own: f64, own_freedom: f64) -> (f64, f64) {
        let most = self.most[metric];
        match self.prior.variances[metric] {
            None => (own, own_freedom),
            Some(known) if self.prior.freedom.is_infinite() => (known, most),
            Some(known) => {
                let all = self.prior.freedom + own_freedom;
                ((self.prior.freedom * known + own_freedom * own) / all, all.min(most))
            }
        }
    }
}

/// The mean of the logarithms of the ratios at all points of a metric. Every point counts the same, and
/// variances are not shrunk: their sum is known well enough. `None` for fewer than two cells.
#[must_use]
pub fn pooled(cells: &[Cell]) -> Option<Effect> {
    let sides = sides(cells);
    let points = sides.len() as f64;
    if points < 2.0 {
        return None;
    }
    let sum = |of: fn(&Sides) -> f64| sides.iter().map(of).sum::<f64>();
    let (variance, term) = (sum(Sides::variance), sum(Sides::welch_term));
    Some(Effect {
        log_ratio: sum(Sides::log_ratio) / points,
        error: variance.sqrt() / points,
        freedom: if term > 0.0 { variance.powi(2) / term } else { sum(Sides::freedom) },
        runs: 2.0 * points / sum(Sides::per_run),
    })
}

fn sides(cells: &[Cell]) -> Vec<Sides> {
    let of = |cell: &Cell| Sides {
        metric: cell.metric,
        a: Moments::of(&cell.a),
        b: Moments::of(&cell.b),
    };
    cells.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;

    use super::*;
    use crate::statistics::bootstrap::normal;
    use crate::statistics::welch;

    fn cell(metric: usize, a: &[f64], b: &[f64]) -> Cell {
        Cell { metric, a: a.to_vec(), b: b.to_vec() }
    }

    fn prior(cells: &[Cell]) -> Prior {
        let spreads: Vec<Spread> = sides(cells).iter().map(Sides::spread).collect();
        Prior::of(&spreads)
    }

    fn noise(deviation: f64, random: &mut Rng) -> Vec<f64> {
        (0..3).map(|_| deviation * normal(random)).collect()
    }

    #[test]
    fn a_single_point_has_welchs_p_value() {
        let (a, b) = ([10.1, 9.9, 10.4], [11.0, 11.9, 10.8, 11.3]);
        let effects = effects(&[cell(0, &a, &b), cell(1, &b, &a)]);
        for effect in effects {
            assert!((effect.p_value() - welch(&a, &b).unwrap()).abs() < 1e-12, "{effect:?}");
        }
        assert_eq!(pooled(&[cell(0, &a, &b)]), None);
    }

    #[test]
    fn the_prior_of_many_cells_is_recovered() {
        // Variances of 4 degrees of freedom around a scaled inverse chi-squared of 6 (Smyth, section 3).
        let mut random = Rng::with_seed(5);
        let mut cells = Vec::new();
        for _ in 0..20_000 {
            let chi_squared: f64 = (0..6).map(|_| normal(&mut random).powi(2)).sum();
            let deviation = 0.05 * (6.0 / chi_squared).sqrt();
            let (a, b) = (noise(deviation, &mut random), noise(deviation, &mut random));
            cells.push(Cell { metric: 0, a, b });
        }
        let prior = prior(&cells);
        let variance = prior.variances[0].unwrap();
        assert!((prior.freedom - 6.0).abs() < 0.5, "{}", prior.freedom);
        assert!((variance.sqrt() / 0.05 - 1.0).abs() < 0.03, "{}", variance.sqrt());
    }

    #[test]
    fn noise_that_differs_between_points_is_not_shared() {
        let freedom = |deviations: [f64; 2]| {
            let mut random = Rng::with_seed(9);
            let mut all = 0.0;
            for _ in 0..50 {
                let cells: Vec<Cell> = (0..40)
                    .map(|number| {
                        let deviation = deviations[number % 2];
                        let (a, b) = (noise(deviation, &mut random), noise(deviation, &mut random));
                        Cell { metric: number / 2 % 4, a, b }
                    })
                    .collect();
                all += prior(&cells).freedom.min(1000.0) / 50.0;
            }
            all
        };
        let (alike, apart) = (freedom([0.05, 0.05]), freedom([0.01, 0.1]));
        assert!(alike > 8.0 && apart < 1.5, "{alike} {apart}");
    }

    #[test]
    fn an_interval_excludes_1_exactly_if_the_p_value_is_below_its_level() {
        let mut random = Rng::with_seed(13);
        let mut excluded = 0;
        for _ in 0..200 {
            let cells: Vec<Cell> = (0..6)
                .map(|number| {
                    let (a, mut b) = (noise(0.05, &mut random), noise(0.05, &mut random));
                    b.iter_mut().for_each(|value| *value += 0.1);
                    Cell { metric: number % 2, a, b }
                })
                .collect();
            for effect in effects(&cells).into_iter().chain(pooled(&cells)) {
                for level in [0.05, 0.025 / 6.0, 1e-4] {
                    let (low, high) = effect.interval(level);
                    assert_eq!(low > 1.0 || high < 1.0, effect.p_value() < level, "{effect:?}");
                    excluded += u32::from(low > 1.0);
                }
            }
        }
        assert!(excluded > 100, "{excluded}");
    }

    #[test]
    fn values_without_variance_are_equal_or_different() {
        let same = effects(&[cell(0, &[1.0; 2], &[1.0; 3]), cell(0, &[2.0; 2], &[2.0; 2])]);
        assert!(
            same.iter()
                .all(|effect| effect.p_value() == 1.0 && effect.interval(0.05) == (1.0, 1.0))
        );
        assert_eq!(effects(&[cell(0, &[0.1; 3], &[0.2; 3])])[0].p_value(), 0.0);
        // One cell without variance among others takes its metric's.
        let mut random = Rng::with_seed(1);
        let mut cells: Vec<Cell> = (0..5)
            .map(|_| Cell { metric: 0, a: noise(0.05, &mut random), b: noise(0.05, &mut random) })
            .collect();
        cells.push(cell(0, &[0.0; 3], &[0.001; 3]));
        assert!(effects(&cells)[5].p_value() > 0.05);
    }

    #[test]
    fn what_pairs_have_in_common_is_no_error() {
        // The machine varies by 20%, a pair by 1%; 3 pairs at each of 10 points.
        let mut random = Rng::with_seed(11);
        let (mut held, mut apart, mut unpaired) = (0, 0, 0);
        for _ in 0..100 {
            let (mut pairs, mut cells) = (Vec::new(), Vec::new());
            for _ in 0..10 {
                let common = noise(0.2, &mut random);
                let side = |shift: f64, random: &mut Rng| {
                    let own = noise(0.01 / 2f64.sqrt(), random);
                    common.iter().zip(own).map(|(c, own)| c + own + shift).collect::<Vec<f64>>()
                };
                let (a, b) = (side(0.0, &mut random), side(0.05, &mut random));
                let differences = b.iter().zip(&a).map(|(b, a)| b - a).collect();
                pairs.push(Pairs { metric: 0, differences });
                cells.push(Cell { metric: 0, a, b });
            }
            for effect in paired_effects(&pairs) {
                let (low, high) = effect.interval(0.05);
                let truth = 0.05f64.exp();
                held += u32::from(low <= truth && truth <= high);
                apart += u32::from(effect.p_value() < 0.05);
            }
            unpaired += effects(&cells).iter().filter(|effect| effect.p_value() < 0.05).count();
        }
        assert!((930..=970).contains(&held), "{held} of 1000");
        assert!(apart > 990, "{apart} of 1000");
        // Unpaired, the same runs show nothing.
        assert!(unpaired < 50, "{unpaired} of 1000");
    }
}
