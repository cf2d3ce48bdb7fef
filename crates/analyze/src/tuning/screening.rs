//! What the runs of the design show: the effect of each factor, and interactions of two.

use super::design::sign;
use super::least_squares::fit;
use crate::statistics::{holm, student, two_sided_p};

/// What changing a factor from its first to its second level does, over the other factors' levels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FactorEffect {
    /// The objective at the second level over that at the first.
    pub ratio: f64,
    /// 95% interval.
    pub interval: (f64, f64),
    pub p_value: f64,
    /// The same after Holm's correction for the number of factors.
    pub adjusted_p: f64,
    /// Whether candidates differ in it.
    pub is_active: bool,
}

/// That the effect of a factor depends on the level of another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interaction {
    pub a: usize,
    pub b: usize,
    /// The effect of either factor with the other at its second level, over that with it at the first.
    pub ratio: f64,
    pub p_value: f64,
}

/// Factors with smaller p-values of their effects make candidates. It is not strict: a factor too many costs
/// nothing, one too few costs its effect.
const ACTIVE: f64 = 0.1;
/// Level of the test of an interaction, over all that were tested.
const INTERACTS: f64 = 0.1;

/// Variance of rounding, which is all where runs of the same do not differ.
pub(crate) const ROUNDING: f64 = 1e-20;
/// More are not told apart by so few runs.
const MOST_INTERACTIONS: usize = 6;

/// The runs of the design, as logarithms; `None` for a run without a result.
#[derive(Debug, Clone, Default)]
pub(crate) struct Runs {
    pub(crate) half: Vec<Vec<bool>>,
    /// Of each row of the half: the run, and that of its mirror image.
    pub(crate) pairs: Vec<(Option<f64>, Option<f64>)>,
    /// The repeats of the base. Its run of the design is among the pairs, and counts once.
    pub(crate) base: Vec<f64>,
}

/// How a figure depends on the levels, as far as that is significant.
#[derive(Debug, Clone)]
pub(crate) struct Model {
    mean: f64,
    /// Half the effect of each factor, and its p-value.
    main: Vec<f64>,
    p_values: Vec<f64>,
    errors: Vec<f64>,
    pub(crate) active: Vec<bool>,
    interactions: Vec<Pair>,
    /// Of one run.
    pub(crate) variance: f64,
    pub(crate) freedom: f64,
}

impl Model {
    /// `None` where too few runs have a result.
    pub(crate) fn of(runs: &Runs) -> Option<Self> {
        let whole: Vec<(&Vec<bool>, f64, f64)> = runs
            .half
            .iter()
            .zip(&runs.pairs)
            .filter_map(|(row, (run, mirrored))| Some((row, (*run)?, (*mirrored)?)))
            .collect();
        let factors = runs.half.first().map_or(0, Vec::len);
        let rows: Vec<Vec<f64>> =
            whole.iter().map(|(row, ..)| row.iter().map(|high| sign(*high)).collect()).collect();
        let differences: Vec<f64> = whole.iter().map(|(_, a, b)| (a - b) / 2.0).collect();
        let odd = fit(&rows, &differences)?;
        let (of_base, base_freedom) = squares(&runs.base);
        // Half a difference of two runs has half the variance of one.
        let freedom = odd.freedom + base_freedom;
        if freedom < 1.0 {
            return None;
        }
        let variance = ((2.0 * odd.residual + of_base) / freedom).max(ROUNDING);
        let errors: Vec<f64> =
            odd.variances.iter().map(|factor| (factor * variance / 2.0).sqrt()).collect();
        let p_values: Vec<f64> = odd
            .coefficients
            .iter()
            .zip(&errors)
            .map(|(effect, error)| p_value(*effect, *error, freedom))
            .collect();
        let mut active: Vec<bool> = p_values.iter().map(|p| *p < ACTIVE).collect();
        let sums: Vec<f64> = whole.iter().map(|(_, a, b)| f64::midpoint(*a, *b)).collect();
        let noise = Noise { variance: variance / 2.0, freedom };
        let (mean, interactions) = interactions(&rows, &sums, &active, noise)?;
        for Pair { a, b, .. } in &interactions {
            active[*a] = true;
            active[*b] = true;
        }
        debug_assert_eq!(p_values.len(), factors);
        Some(Self {
            mean,
            main: odd.coefficients,
            p_values,
            errors,
            active,
            interactions,
            variance,
            freedom,
        })
    }

    /// The logarithm at these levels, of which all but the first count as the second.
    pub(crate) fn at(&self, levels: &[usize]) -> f64 {
        let sign = |factor: usize| sign(levels[factor] > 0);
        let factors = (0..self.main.len()).filter(|factor| self.active[*factor]);
        let main: f64 = factors.map(|factor| self.main[factor] * sign(factor)).sum();
        let both: f64 =
            self.interactions.iter().map(|pair| pair.half * sign(pair.a) * sign(pair.b)).sum();
        self.mean + main + both
    }

    /// The same without interactions.
    pub(crate) fn main_at(&self, levels: &[usize]) -> f64 {
        Self { interactions: Vec::new(), ..self.clone() }.at(levels)
    }

    /// How much a factor changes the logarithm at most: by itself, and together with others.
    pub(crate) fn size(&self, factor: usize) -> f64 {
        let with = self.interactions.iter().filter(|pair| pair.a == factor || pair.b == factor);
        let alone = if self.active[factor] { self.main[factor].abs() } else { 0.0 };
        alone + with.map(|pair| pair.half.abs()).sum::<f64>()
    }

    pub(crate) fn has_interactions(&self) -> bool {
        !self.interactions.is_empty()
    }

    /// The effects as ratios; `direction` is -1 where the logarithm is of the inverse.
    pub(crate) fn effects(&self, direction: f64) -> Vec<FactorEffect> {
        let adjusted = holm(&self.p_values);
        let reach = student(self.freedom);
        let each = self.main.iter().zip(&self.errors).enumerate();
        each.map(|(factor, (half, error))| {
            let effect = 2.0 * half * direction;
            let reach = 2.0 * error * reach;
            FactorEffect {
                ratio: effect.exp(),
                interval: ((effect - reach).exp(), (effect + reach).exp()),
                p_value: self.p_values[factor],
                adjusted_p: adjusted[factor],
                is_active: self.active[factor],
            }
        })
        .collect()
    }

    pub(crate) fn interactions(&self, direction: f64) -> Vec<Interaction> {
        let ratio = |half: f64| (4.0 * half * direction).exp();
        let each = self.interactions.iter();
        each.map(|pair| Interaction {
            a: pair.a,
            b: pair.b,
            ratio: ratio(pair.half),
            p_value: pair.p_value,
        })
        .collect()
    }
}

/// An interaction of two factors: half of what it adds.
#[derive(Debug, Clone, Copy)]
struct Pair {
    a: usize,
    b: usize,
    half: f64,
    p_value: f64,
}

/// Of half a sum of two runs.
#[derive(Debug, Clone, Copy)]
struct Noise {
    variance: f64,
    freedom: f64,
}

/// Mean, and the interactions that explain the sums: one after another the one that explains most, as long as
/// it is more than noise. One of its factors has an effect by itself: there are too many pairs for the runs
/// otherwise (M. Hamada and C. F. J. Wu, Journal of Quality Technology 24, 1992).
fn interactions(
    rows: &[Vec<f64>],
    sums: &[f64],
    active: &[bool],
    noise: Noise,
) -> Option<(f64, Vec<Pair>)> {
    let factors = active.len();
    let pairs = (0..factors).flat_map(|a| (a + 1..factors).map(move |b| (a, b)));
    let candidates: Vec<(usize, usize)> = pairs.filter(|(a, b)| active[*a] || active[*b]).collect();
    let columns = |chosen: &[(usize, usize)]| -> Vec<Vec<f64>> {
        let row = |row: &Vec<f64>| {
            std::iter::once(1.0).chain(chosen.iter().map(|(a, b)| row[*a] * row[*b])).collect()
        };
        rows.iter().map(row).collect()
    };
    let mut chosen: Vec<(usize, usize)> = Vec::new();
    let mut now = fit(&columns(&chosen), sums)?;
    while chosen.len() + 1 < rows.len() && chosen.len() < MOST_INTERACTIONS {
        let others = candidates.iter().filter(|pair| !chosen.contains(pair));
        let with = others.filter_map(|pair| {
            let mut more = chosen.clone();
            more.push(*pair);
            Some((fit(&columns(&more), sums)?, more))
        });
        let best = with.min_by(|a, b| a.0.residual.total_cmp(&b.0.residual));
        let Some((better, more)) = best else { break };
        let explained = ((now.residual - better.residual).max(0.0) / noise.variance).sqrt();
        let tested = (candidates.len() - chosen.len()) as f64;
        let p_value = two_sided_p(explained, noise.freedom) * tested;
        if p_value >= INTERACTS {
            break;
        }
        (now, chosen) = (better, more);
    }
    let found = chosen.iter().enumerate().map(|(place, (a, b))| {
        let half = now.coefficients[place + 1];
        let error = (now.variances[place + 1] * noise.variance).sqrt();
        Pair { a: *a, b: *b, half, p_value: p_value(half, error, noise.freedom) }
    });
    Some((now.coefficients[0], found.collect()))
}

/// That there is no effect.
fn p_value(effect: f64, error: f64, freedom: f64) -> f64 {
    two_sided_p(effect / error, freedom)
}

/// Sum of the squared deviations from the mean, and its degrees of freedom.
fn squares(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n.max(1.0);
    (values.iter().map(|value| (value - mean).powi(2)).sum(), (n - 1.0).max(0.0))
}
