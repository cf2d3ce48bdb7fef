//! The confirmation: the winner beside the base, on runs that nothing was chosen by.

use fastrand::Rng;

use super::bounds::{BoundResult, Reference, is_broken_by_itself};
use super::candidates::Field;
use super::search::{Maker, Score, Stage};
use super::{Levels, Verdict, exponential};
use crate::statistics::Estimate;

/// Pairs of runs, one of the winner and one of the base.
#[derive(Debug, Clone, PartialEq)]
pub struct Confirmation {
    pub winner: Estimate,
    pub base: Estimate,
    /// The objective of the winner over that of the base, by pairs, with Student's interval.
    pub ratio: Estimate,
    /// Whether more is better.
    pub maximize: bool,
    pub bounds: Vec<BoundResult>,
}

impl Confirmation {
    /// Whether the interval of the ratio leaves no doubt that the winner is better.
    #[must_use]
    pub fn is_better(&self) -> bool {
        match self.ratio.interval {
            Some((low, _)) if self.maximize => low > 1.0,
            Some((_, high)) => high < 1.0,
            None => false,
        }
    }

    pub(crate) fn verdict(&self) -> Verdict {
        // What the base breaks, the winner has to keep by more than chance.
        let winner_keeps = self
            .bounds
            .iter()
            .all(|bound| bound.is_kept && (bound.base_keeps || bound.is_improved));
        let base_keeps = self.bounds.iter().all(|bound| bound.base_keeps);
        match (winner_keeps, base_keeps) {
            (true, true) if self.is_better() => Verdict::Better,
            (true, false) => Verdict::KeepsBounds,
            (_, true) => Verdict::NothingHelps,
            (false, false) => Verdict::NoneKeepsBounds,
        }
    }
}

/// What came of the pairs.
#[derive(Debug)]
pub(crate) struct Confirmed {
    /// `None` where fewer pairs have a result than an interval needs.
    pub(crate) confirmation: Option<Confirmation>,
    /// Runs of the winner, and those of them without a result.
    pub(crate) runs: usize,
    pub(crate) failed: usize,
}

/// Runs both by turns, in at most so many pairs.
pub(crate) fn confirm<S>(
    winner: &Levels,
    field: &Field,
    pairs_wanted: usize,
    seed: u64,
    maker: &mut Maker<'_, '_, S>,
) -> Result<Confirmed, S> {
    let base = vec![0; winner.len()];
    let mut random = Rng::with_seed(seed ^ 0x63_6f_6e_66);
    let mut pairs: Vec<[Score; 2]> = Vec::new();
    let mut failed = 0;
    for _ in 0..pairs_wanted {
        let mut order = [(0, winner), (1, &base)];
        random.shuffle(&mut order);
        let mut both = [None, None];
        for (place, levels) in order {
            both[place] = maker.run(Stage::Confirmation, levels)?;
        }
        failed += usize::from(both[0].is_none());
        if let [Some(winner), Some(base)] = both {
            pairs.push([winner, base]);
        }
    }
    let confirmation = conclude(&pairs, field, maker.maximizes());
    Ok(Confirmed { confirmation, runs: pairs_wanted, failed })
}

fn conclude(pairs: &[[Score; 2]], field: &Field, maximize: bool) -> Option<Confirmation> {
    if pairs.len() < 2 {
        return None;
    }
    let direction = if maximize { 1.0 } else { -1.0 };
    let of = |figure: &dyn Fn(&[Score; 2]) -> f64| {
        let values: Vec<f64> = pairs.iter().map(figure).collect();
        Estimate::of(&values)
    };
    let side = |place: usize| of(&|pair| direction * pair[place].objective).map(exponential);
    let mut bounds = Vec::new();
    for (place, bound) in field.bounds.iter().enumerate() {
        let measured = of(&|pair| pair[0].bounded[place])?;
        let base = of(&|pair| pair[1].bounded[place])?;
        // A share of the base is one of the base beside it.
        let limit_of = |pair: &[Score; 2]| match bound.of {
            Reference::Base => bound.limit(0.0, pair[1].bounded[place]),
            Reference::Number | Reference::Best => field.limits[place],
        };
        let margins = |side: usize| -> Vec<f64> {
            let margin = |pair| {
                let pair: &[Score; 2] = pair;
                bound.margin(pair[side].bounded[place], limit_of(pair))
            };
            pairs.iter().map(margin).collect()
        };
        let (of_winner, of_base) = (margins(0), margins(1));
        let worse: Vec<f64> =
            of_winner.iter().zip(&of_base).map(|(winner, base)| base - winner).collect();
        let limit = match bound.of {
            Reference::Base => bound.limit(0.0, base.mean),
            Reference::Number | Reference::Best => field.limits[place],
        };
        bounds.push(BoundResult {
            measured: bound.estimate(measured),
            base: bound.estimate(base),
            limit: bound.limit_value(limit),
            is_kept: of_winner.iter().sum::<f64>() >= 0.0,
            base_keeps: !is_broken_by_itself(&of_base),
            is_improved: is_broken_by_itself(&worse),
        });
    }
    Some(Confirmation {
        winner: side(0)?,
        base: side(1)?,
        ratio: of(&|pair| direction * (pair[0].objective - pair[1].objective)).map(exponential)?,
        maximize,
        bounds,
    })
}
