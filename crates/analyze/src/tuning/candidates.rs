//! Which settings race.

use super::Levels;
use super::bounds::{Bound, is_broken};
use super::screening::Model;
use super::search::Score;

/// A setting that raced.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    pub levels: Levels,
    /// Why it raced: `predicted best`.
    pub why: &'static str,
    pub runs: usize,
    /// Its objective over that of the base, over all its blocks; `None` where it did not run, or nothing raced.
    pub to_base: Option<f64>,
    /// Why it left; `None` where it stayed to the end.
    pub left: Option<&'static str>,
}

/// What screening says of bounds, and what it saw.
#[derive(Debug, Clone)]
pub(crate) struct Field {
    pub(crate) bounds: Vec<Bound>,
    /// As figures of the bounds.
    pub(crate) limits: Vec<f64>,
    /// Of the metric of each bound.
    pub(crate) bounded: Vec<Model>,
    pub(crate) seen: Vec<(Levels, Score)>,
}

impl Field {
    /// By how much a setting is expected to keep the bound that it keeps least.
    fn expected_margin(&self, levels: &[usize]) -> f64 {
        let each = self.bounds.iter().zip(&self.limits).zip(&self.bounded);
        each.map(|((bound, limit), model)| bound.margin(model.at(levels), *limit))
            .fold(f64::INFINITY, f64::min)
    }

    /// The margins of each bound in these runs.
    pub(crate) fn margins<'a>(
        &'a self,
        scores: &'a [Score],
    ) -> impl Iterator<Item = (Vec<f64>, &'a Model)> + 'a {
        let each = self.bounds.iter().zip(&self.limits).zip(&self.bounded).enumerate();
        each.map(|(place, ((bound, limit), model))| {
            let margin = |score: &Score| bound.margin(score.bounded[place], *limit);
            (scores.iter().map(margin).collect(), model)
        })
    }

    /// Whether the base breaks none significantly in the screening.
    pub(crate) fn base_keeps(&self) -> bool {
        let of_base = self.seen.iter().filter(|(levels, _)| changes(levels) == 0);
        let scores: Vec<Score> = of_base.map(|(_, score)| score.clone()).collect();
        let broken = |(margins, model): (Vec<f64>, &Model)| {
            is_broken(&margins, model.variance, model.freedom)
        };
        !self.margins(&scores).any(broken)
    }
}

/// A setting that is to race, and why.
pub(crate) type Entry = (Levels, &'static str);

const PREDICTED: &str = "predicted best";

/// So many active factors have all their combinations predicted.
const MOST_ACTIVE: usize = 12;

/// The setting that is predicted as the best, which may be the base.
pub(crate) fn predicted_best(model: &Model, field: &Field) -> Levels {
    let all = predicted(model, field, &|levels| model.at(levels));
    all.into_iter().next().unwrap_or_else(|| vec![0; model.active.len()])
}

/// The leader as a factor's further levels make it, after the leader itself.
pub(crate) fn further_levels(leader: &Levels, factor: usize, levels: usize) -> Vec<Entry> {
    let with = |level: usize| {
        let mut levels = leader.clone();
        levels[factor] = level;
        (levels, "further level")
    };
    std::iter::once((leader.clone(), PREDICTED)).chain((2..levels).map(with)).collect()
}

/// Settings that race with the leader, of which none is the base: so many that each runs twice, the most
/// promising first.
pub(crate) fn rivals(leader: &Levels, model: &Model, field: &Field, runs: usize) -> Vec<Entry> {
    let mut chosen: Vec<Entry> = Vec::new();
    let mut add = |levels: Levels, why: &'static str| {
        let is_known = chosen.iter().any(|(known, _)| *known == levels);
        if changes(&levels) > 0 && !is_known {
            chosen.push((levels, why));
        }
    };
    let by_model = predicted(model, field, &|levels| model.at(levels));
    add(leader.clone(), PREDICTED);
    if let Some(seen) = best_seen(model, field) {
        add(seen, "best seen");
    }
    if model.has_interactions() {
        let by_main = predicted(model, field, &|levels| model.main_at(levels));
        by_main.into_iter().take(1).for_each(|levels| add(levels, "best without interactions"));
    }
    if let [best, second, ..] = by_model.as_slice()
        && model.at(best) - model.at(second) < 2.0 * model.variance.sqrt()
    {
        add(second.clone(), "second best predicted");
    }
    // The base races too.
    chosen.truncate((runs / 2).saturating_sub(1).max(1));
    chosen
}

/// All combinations of the active factors' first two levels that are expected to keep the bounds, the best by
/// `value` first; where none is, that which misses them least.
fn predicted(model: &Model, field: &Field, value: &dyn Fn(&[usize]) -> f64) -> Vec<Levels> {
    let mut factors: Vec<usize> =
        (0..model.active.len()).filter(|factor| is_active(model, field, *factor)).collect();
    let size = |factor: &usize| {
        let of_bounds = field.bounded.iter().map(|model| model.size(*factor));
        model.size(*factor) + of_bounds.sum::<f64>()
    };
    factors.sort_by(|a, b| size(b).total_cmp(&size(a)));
    factors.truncate(MOST_ACTIVE);
    factors.sort_unstable();
    let mut all: Vec<(f64, f64, Levels)> = (0..1usize << factors.len())
        .map(|bits| {
            let mut levels = vec![0; model.active.len()];
            for (place, factor) in factors.iter().enumerate() {
                levels[*factor] = bits >> place & 1;
            }
            (value(&levels), field.expected_margin(&levels), levels)
        })
        .collect();
    if all.iter().any(|(_, margin, _)| *margin >= 0.0) {
        all.retain(|(_, margin, _)| *margin >= 0.0);
        // Of equals that with fewer changes.
        all.sort_by(|a, b| b.0.total_cmp(&a.0).then(changes(&a.2).cmp(&changes(&b.2))));
    } else {
        all.sort_by(|a, b| b.1.total_cmp(&a.1).then(changes(&a.2).cmp(&changes(&b.2))));
    }
    all.into_iter().map(|(.., levels)| levels).collect()
}

/// A factor that only the metric of a bound depends on can make room for others.
fn is_active(model: &Model, field: &Field, factor: usize) -> bool {
    model.active[factor] || field.bounded.iter().any(|model| model.active[factor])
}

fn changes(levels: &[usize]) -> usize {
    levels.iter().filter(|level| **level > 0).count()
}

/// The best run that kept the bounds, if it is better than the model explains; where the model does, its
/// factors without an effect are as in the base.
fn best_seen(model: &Model, field: &Field) -> Option<Levels> {
    let kept = field.seen.iter().filter(|(_, score)| {
        field.margins(std::slice::from_ref(score)).all(|(margins, _)| margins[0] >= 0.0)
    });
    let (levels, score) = kept.max_by(|a, b| a.1.objective.total_cmp(&b.1.objective))?;
    let explained = score.objective - model.at(levels) < 2.0 * model.variance.sqrt();
    let reduced = |(factor, level): (usize, &usize)| match is_active(model, field, factor) {
        false if explained => 0,
        _ => *level,
    };
    Some(levels.iter().enumerate().map(reduced).collect())
}
