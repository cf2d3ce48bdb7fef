//! Which setting is best, and whether it is better than the base: two-level screening, a race of the
//! candidates, and a confirmation on runs that nothing was chosen by. docs/tune.md describes it.
//!
//! Pure: [`search`] asks for one run after another, and everything follows from what they measured, so a
//! search continues from its records. All figures are compared as ratios, by their logarithms.

mod bounds;
mod candidates;
mod confirmation;
mod design;
mod least_squares;
mod race;
mod screening;
mod search;
#[cfg(test)]
mod tests;

pub use bounds::{Bound, BoundResult, Reference};
pub use candidates::Candidate;
pub use confirmation::Confirmation;
pub use design::MOST_FACTORS;
pub use screening::{FactorEffect, Interaction};
pub use search::{Ask, Stage, search};

use crate::statistics::Estimate;

/// The level of each factor, by its number. Level 0 is that of the base.
pub type Levels = Vec<usize>;

/// Additional runs of the base among those of the design, which show how much runs of the same differ.
pub const BASE_REPEATS: usize = 3;
/// The fewest pairs of runs of the winner and the base.
pub const LEAST_PAIRS: usize = 4;
/// The most in the usual budget: more make the interval little narrower.
const MOST_PAIRS: usize = 10;

/// What to search.
#[derive(Debug, Clone, PartialEq)]
pub struct Tuning {
    /// Number of levels of each factor, at least 2. Screening uses the first two.
    pub levels: Vec<usize>,
    /// Whether the objective is to be high.
    pub maximize: bool,
    pub bounds: Vec<Bound>,
    /// Most runs.
    pub budget: usize,
    /// Seed of the order of runs.
    pub seed: u64,
}

impl Tuning {
    /// Runs of the screening.
    #[must_use]
    pub fn screening(&self) -> usize {
        2 * design::half(self.levels.len()).len() + BASE_REPEATS
    }

    /// The fewest runs with which it can be searched.
    #[must_use]
    pub fn least(&self) -> usize {
        self.screening() + self.further() + 2 * LEAST_PAIRS
    }

    /// Runs of further levels, of which each is tried.
    fn further(&self) -> usize {
        let further = self.levels.iter().filter(|levels| **levels > 2);
        further.map(|levels| 2 * (levels - 1)).sum()
    }

    /// Pairs of the confirmation, where so many runs are left. What a budget has more than the usual makes its
    /// interval narrower.
    fn pairs(&self, left: usize) -> usize {
        let more = self.budget.saturating_sub(self.usual()) / 2;
        (left / 2).clamp(LEAST_PAIRS, MOST_PAIRS + more)
    }

    /// Runs that suffice: about 40, more for more than 11 factors or more than two levels.
    #[must_use]
    pub fn usual(&self) -> usize {
        let race_and_confirmation = 17;
        (self.screening() + race_and_confirmation).max(USUAL) + self.further()
    }

    /// The setting in which nothing is changed.
    #[must_use]
    pub fn base(&self) -> Levels {
        vec![0; self.levels.len()]
    }
}

const USUAL: usize = 40;

/// What a run measured. The objective is positive, and so is the metric of a bound that is a share of the best or
/// of the base.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    pub objective: f64,
    /// Of each bound, its metric.
    pub bounded: Vec<f64>,
}

/// What a search found.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// Of each factor, of its first two levels.
    pub factors: Vec<FactorEffect>,
    pub interactions: Vec<Interaction>,
    /// How much the objective of two runs of the same setting differs: standard deviation of one, relative.
    pub noise: f64,
    /// Those that raced; empty where nothing was promising.
    pub candidates: Vec<Candidate>,
    /// The setting that was confirmed, or the base where nothing was promising.
    pub winner: Levels,
    /// None where the winner is the base, or too few runs had a result.
    pub confirmation: Option<Confirmation>,
    /// Runs of the winner in the confirmation, and those of them without a result.
    pub confirming: (usize, usize),
    pub verdict: Verdict,
    /// Runs, and those of them without a result.
    pub runs: usize,
    pub failed: usize,
}

/// What may be said of the winner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is better than the base, and keeps the bounds.
    Better,
    /// It keeps the bounds, and the base does not.
    KeepsBounds,
    /// No setting was shown to be better than the base.
    NothingHelps,
    /// No candidate was shown to keep the bounds, nor does the base.
    NoneKeepsBounds,
    /// More than one run of the candidate had no result in the confirmation, or too few pairs had.
    Unreliable,
}

impl Outcome {
    /// The setting to use.
    #[must_use]
    pub fn recommended(&self) -> Levels {
        match self.verdict {
            Verdict::Better | Verdict::KeepsBounds => self.winner.clone(),
            Verdict::NothingHelps | Verdict::NoneKeepsBounds | Verdict::Unreliable => {
                vec![0; self.winner.len()]
            }
        }
    }
}

/// Why a search has no outcome.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TuningError {
    #[error("the base has no valid run: {0}")]
    Base(String),
    #[error(
        "too many runs of the screening have no result to estimate the effects of the factors; the last: {0}"
    )]
    TooFew(String),
}

/// An estimate of logarithms as ratios.
pub(crate) fn exponential(of: Estimate) -> Estimate {
    let interval = of.interval.map(|(low, high)| (low.exp(), high.exp()));
    Estimate { mean: of.mean.exp(), interval, ..of }
}
