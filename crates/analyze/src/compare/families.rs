//! Decides on all figures of a comparison together. Two families of tests share the significance level:
//! each figure at each point, and each figure over all points (ADR 0030).

use super::LEVEL;
use crate::statistics::moderated::{self, Cell, Effect};
use crate::statistics::{holm, welch};

/// The runs of a figure at one point.
#[derive(Debug, Clone, PartialEq)]
pub struct Values {
    /// Number of the figure, the same at all points.
    pub metric: usize,
    pub a: Vec<f64>,
    pub b: Vec<f64>,
}

/// A tested figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tested {
    pub p_value: f64,
    /// Corrected for both families.
    pub adjusted: f64,
    /// `None` if a value is not positive: then the values were tested, not their logarithms.
    pub effect: Option<Effect>,
    /// Probability that its interval misses the true ratio.
    pub interval_level: f64,
    /// Level at which it is tested if nothing else is significant.
    pub level: f64,
}

impl Tested {
    #[must_use]
    pub fn is_significant(&self) -> bool {
        self.adjusted < LEVEL
    }

    /// Interval of the ratio, which excludes 1 exactly if it is significant.
    #[must_use]
    pub fn interval(&self) -> Option<(f64, f64)> {
        self.effect.map(|effect| effect.interval(self.interval_level))
    }
}

/// The tests of a comparison.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// Of each of the values; `None` with fewer than two runs on a side.
    pub at_points: Vec<Option<Tested>>,
    /// By number of the figure, of those with two points or more.
    pub overall: Vec<(usize, Tested)>,
}

/// Tests all figures.
#[must_use]
pub fn decide(values: &[Values]) -> Decision {
    let tested: Vec<usize> = (0..values.len())
        .filter(|place| values[*place].a.len() >= 2 && values[*place].b.len() >= 2)
        .collect();
    let logs = |values: &[f64]| -> Vec<f64> { values.iter().map(|value| value.ln()).collect() };
    let is_positive = |of: &Values| of.a.iter().chain(&of.b).all(|value| *value > 0.0);
    let cells: Vec<Cell> = (tested.iter().map(|place| &values[*place]))
        .filter(|of| is_positive(of))
        .map(|of| Cell { metric: of.metric, a: logs(&of.a), b: logs(&of.b) })
        .collect();
    let mut effects = moderated::effects(&cells).into_iter();
    let single: Vec<(Option<Effect>, f64)> = (tested.iter().map(|place| &values[*place]))
        .map(|of| match is_positive(of).then(|| effects.next()).flatten() {
            Some(effect) => (Some(effect), effect.p_value()),
            None => (None, welch(&of.a, &of.b).unwrap_or(1.0)),
        })
        .collect();
    let metrics = cells.iter().map(|cell| cell.metric + 1).max().unwrap_or(0);
    let pooled: Vec<(usize, Effect)> = (0..metrics)
        .filter_map(|metric| {
            let of: Vec<Cell> = cells.iter().filter(|of| of.metric == metric).cloned().collect();
            Some((metric, moderated::pooled(&of)?))
        })
        .collect();
    // Without a second family the first has the whole level.
    let share = if pooled.is_empty() { LEVEL } else { LEVEL / 2.0 };
    let mut at_points = vec![None; values.len()];
    for (place, of) in tested.into_iter().zip(family(&single, share)) {
        at_points[place] = Some(of);
    }
    let effects: Vec<(Option<Effect>, f64)> =
        pooled.iter().map(|(_, effect)| (Some(*effect), effect.p_value())).collect();
    let metrics = pooled.iter().map(|(metric, _)| *metric);
    Decision { at_points, overall: metrics.zip(family(&effects, share)).collect() }
}

/// Tests that share a part of the level, corrected by Holm.
fn family(tests: &[(Option<Effect>, f64)], share: f64) -> Vec<Tested> {
    let p_values: Vec<f64> = tests.iter().map(|(_, p_value)| *p_value).collect();
    let level = share / tests.len() as f64;
    (tests.iter().zip(holm(&p_values)))
        .map(|((effect, p_value), corrected)| Tested {
            p_value: *p_value,
            adjusted: (corrected * LEVEL / share).min(1.0),
            effect: *effect,
            // Holm rejects more than the common level of all intervals does. Such an interval has the
            // level of its own test, so that it does not contradict its verdict.
            interval_level: match corrected < share && *p_value >= level {
                true => share * p_value / corrected,
                false => level,
            },
            level,
        })
        .collect()
}
