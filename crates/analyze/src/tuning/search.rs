//! The search from its first run to its outcome.

use fastrand::Rng;

use super::bounds::{Bound, Reference};
use super::candidates::{self, Field};
use super::confirmation;
use super::design;
use super::race;
use super::screening::{Model, Runs};
use super::{BASE_REPEATS, Levels, Measured, Outcome, Tuning, TuningError, Verdict};

/// Pairs of the confirmation that the race leaves runs for.
const RESERVED_PAIRS: usize = 5;

/// Parts of a search draw from different sequences.
const OF_RACE: u64 = 0x72_61_63_65;

/// Part of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    Screening,
    Race,
    Confirmation,
}

impl Stage {
    /// As a person reads it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Screening => "screening",
            Self::Race => "race",
            Self::Confirmation => "confirmation",
        }
    }
}

/// A run that a search needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask<'a> {
    pub stage: Stage,
    pub levels: &'a [usize],
}

/// Makes a run: what it measured, or why it has no result.
pub type Make<'a, S> = dyn FnMut(Ask<'_>) -> Result<Result<Measured, String>, S> + 'a;

/// What a run measured: the logarithm of the objective, which is higher where it is better, and the figures of the
/// bounds.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Score {
    pub(crate) objective: f64,
    pub(crate) bounded: Vec<f64>,
}

/// Makes runs and counts them.
pub(crate) struct Maker<'a, 'b, S> {
    make: &'a mut Make<'b, S>,
    direction: f64,
    bounds: &'a [Bound],
    pub(crate) runs: usize,
    pub(crate) failed: usize,
    pub(crate) last_failure: String,
}

impl<S> Maker<'_, '_, S> {
    pub(crate) fn maximizes(&self) -> bool {
        self.direction > 0.0
    }

    pub(crate) fn run(&mut self, stage: Stage, levels: &[usize]) -> Result<Option<Score>, S> {
        let measured = (self.make)(Ask { stage, levels })?;
        self.runs += 1;
        Ok(match measured {
            Ok(Measured { objective, bounded }) => Some(Score {
                objective: self.direction * objective.ln(),
                bounded: self
                    .bounds
                    .iter()
                    .zip(bounded)
                    .map(|(of, value)| of.figure(value))
                    .collect(),
            }),
            Err(reason) => {
                self.failed += 1;
                self.last_failure = reason;
                None
            }
        })
    }
}

/// Searches for the best setting. The runs that it asks for follow from the seed and what earlier ones measured.
///
/// # Errors
/// What `make` returns; the inner error is a search whose runs do not suffice for an outcome.
pub fn search<S>(
    tuning: &Tuning,
    make: &mut Make<'_, S>,
) -> Result<Result<Outcome, TuningError>, S> {
    let direction = if tuning.maximize { 1.0 } else { -1.0 };
    let mut maker = Maker {
        make,
        direction,
        bounds: &tuning.bounds,
        runs: 0,
        failed: 0,
        last_failure: String::new(),
    };
    let screened = match screen(tuning, &mut maker)? {
        Ok(screened) => screened,
        Err(error) => return Ok(Err(error)),
    };
    let Screened { model, field } = screened;
    let base = tuning.base();
    let mut random = Rng::with_seed(tuning.seed ^ OF_RACE);
    let mut left = tuning.budget.saturating_sub(maker.runs + 2 * RESERVED_PAIRS);
    let mut candidates = Vec::new();
    let mut leader = candidates::predicted_best(&model, &field);
    // The further levels of one factor after the other, so that the best of each come together.
    for (factor, levels) in tuning.levels.iter().enumerate().filter(|(_, levels)| **levels > 2) {
        let entries = candidates::further_levels(&leader, factor, *levels);
        let runs = left.min(2 * entries.len());
        let before = maker.runs;
        let racers = race::race(entries, &model, &field, runs, &mut random, &mut maker)?;
        left -= (maker.runs - before).min(left);
        leader = race::winner(&racers, &field).unwrap_or(leader);
        candidates.extend(race::as_candidates(&racers, direction));
    }
    let mut entries = candidates::rivals(&leader, &model, &field, left);
    let winner = match entries.len() {
        0 => None,
        // It meets the base in the confirmation.
        1 => entries.pop().map(|(levels, _)| levels),
        _ => {
            entries.push((base.clone(), race::BASE));
            let racers = race::race(entries, &model, &field, left, &mut random, &mut maker)?;
            let winner = race::winner(&racers, &field);
            candidates.extend(race::as_candidates(&racers, direction));
            winner
        }
    };
    let for_confirmation = tuning.budget.saturating_sub(maker.runs);
    let mut confirming = (0, 0);
    let (confirmation, verdict) = match &winner {
        Some(winner) if *winner != base => {
            let pairs = tuning.pairs(for_confirmation);
            let confirmed = confirmation::confirm(winner, &field, pairs, tuning.seed, &mut maker)?;
            confirming = (confirmed.runs, confirmed.failed);
            let verdict = match &confirmed.confirmation {
                Some(confirmation) if confirmed.failed <= 1 => confirmation.verdict(),
                _ => Verdict::Unreliable,
            };
            (confirmed.confirmation, verdict)
        }
        _ if field.base_keeps() => (None, Verdict::NothingHelps),
        _ => (None, Verdict::NoneKeepsBounds),
    };
    Ok(Ok(Outcome {
        factors: model.effects(direction),
        interactions: model.interactions(direction),
        noise: model.variance.sqrt(),
        candidates,
        winner: winner.unwrap_or(base),
        confirmation,
        confirming,
        verdict,
        runs: maker.runs,
        failed: maker.failed,
    }))
}

struct Screened {
    /// Of the objective.
    model: Model,
    field: Field,
}

/// A run of the screening.
#[derive(Debug, Clone, Copy)]
enum Slot {
    Row(usize),
    Mirrored(usize),
    Base,
}

fn levels(row: &[bool]) -> Levels {
    row.iter().map(|high| usize::from(*high)).collect()
}

fn screen<S>(
    tuning: &Tuning,
    maker: &mut Maker<'_, '_, S>,
) -> Result<Result<Screened, TuningError>, S> {
    let half = design::half(tuning.levels.len());
    let rows = (0..half.len()).flat_map(|row| [Slot::Row(row), Slot::Mirrored(row)]);
    let mut order: Vec<Slot> = rows.chain([Slot::Base; BASE_REPEATS]).collect();
    Rng::with_seed(tuning.seed).shuffle(&mut order);
    let mut pairs: Vec<(Option<Score>, Option<Score>)> = vec![(None, None); half.len()];
    let (mut of_base, mut repeats): (Vec<Score>, Vec<Score>) = (Vec::new(), Vec::new());
    let mut seen: Vec<(Levels, Score)> = Vec::new();
    let base = tuning.base();
    for slot in order {
        let setting = match slot {
            Slot::Row(row) => levels(&half[row]),
            Slot::Mirrored(row) => levels(&design::mirrored(&half[row])),
            Slot::Base => base.clone(),
        };
        let score = maker.run(Stage::Screening, &setting)?;
        of_base.extend(score.clone().filter(|_| setting == base));
        seen.extend(score.clone().map(|score| (setting, score)));
        match slot {
            Slot::Row(row) => pairs[row].0 = score,
            Slot::Mirrored(row) => pairs[row].1 = score,
            Slot::Base => repeats.extend(score),
        }
    }
    if of_base.is_empty() {
        return Ok(Err(TuningError::Base(maker.last_failure.clone())));
    }
    let model_of = |figure: &dyn Fn(&Score) -> f64| {
        let one = |score: &Option<Score>| score.as_ref().map(figure);
        Model::of(&Runs {
            half: half.clone(),
            pairs: pairs.iter().map(|(a, b)| (one(a), one(b))).collect(),
            base: repeats.iter().map(figure).collect(),
        })
    };
    let model = model_of(&|score| score.objective);
    let bounded: Option<Vec<Model>> =
        (0..tuning.bounds.len()).map(|place| model_of(&|score| score.bounded[place])).collect();
    let (Some(model), Some(bounded)) = (model, bounded) else {
        return Ok(Err(TuningError::TooFew(maker.last_failure.clone())));
    };
    let mean = |place: usize| {
        of_base.iter().map(|score| score.bounded[place]).sum::<f64>() / of_base.len() as f64
    };
    let best = |place: usize| {
        let direction = tuning.bounds[place].direction();
        let fitted = seen.iter().map(|(levels, _)| direction * bounded[place].at(levels));
        direction * fitted.fold(f64::NEG_INFINITY, f64::max)
    };
    let limits = tuning.bounds.iter().enumerate().map(|(place, bound)| {
        let best = if bound.of == Reference::Best { best(place) } else { 0.0 };
        bound.limit(best, mean(place))
    });
    let limits = limits.collect();
    let field = Field { bounds: tuning.bounds.clone(), limits, bounded, seen };
    Ok(Ok(Screened { model, field }))
}
