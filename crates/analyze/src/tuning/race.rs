//! The race: all candidates run in blocks, each in a random order of its own, and who is significantly worse
//! leaves (M. Birattari et al., GECCO 2002, as irace does with a t-test).

use fastrand::Rng;

use super::Levels;
use super::bounds::is_broken;
use super::candidates::{Candidate, Entry, Field};
use super::screening::Model;
use super::search::{Maker, Score, Stage};
use crate::statistics::one_sided_p;

/// Level of the test by which a candidate leaves.
const LEVEL: f64 = 0.05;

/// The entry of the base.
pub(crate) const BASE: &str = "base";

/// A candidate in the race.
#[derive(Debug, Clone)]
pub(crate) struct Racer {
    levels: Levels,
    why: &'static str,
    scores: Vec<Score>,
    left: Option<&'static str>,
}

impl Racer {
    fn new((levels, why): Entry) -> Self {
        Self { levels, why, scores: Vec::new(), left: None }
    }

    fn mean(&self, blocks: usize) -> f64 {
        let scores = &self.scores[..blocks.min(self.scores.len())];
        scores.iter().map(|score| score.objective).sum::<f64>() / scores.len().max(1) as f64
    }
}

/// Races these in at most so many runs.
pub(crate) fn race<S>(
    entries: Vec<Entry>,
    model: &Model,
    field: &Field,
    runs: usize,
    random: &mut Rng,
    maker: &mut Maker<'_, '_, S>,
) -> Result<Vec<Racer>, S> {
    let mut racers: Vec<Racer> = entries.into_iter().map(Racer::new).collect();
    let mut left = runs;
    loop {
        let mut order: Vec<usize> =
            (0..racers.len()).filter(|place| racers[*place].left.is_none()).collect();
        if order.len() < 2 || order.len() > left {
            return Ok(racers);
        }
        left -= order.len();
        random.shuffle(&mut order);
        for place in order {
            let racer = &mut racers[place];
            match maker.run(Stage::Race, &racer.levels)? {
                Some(score) => racer.scores.push(score),
                None => racer.left = Some("a run had no result"),
            }
        }
        drop_broken(&mut racers, field);
        drop_worse(&mut racers, model);
    }
}

fn drop_broken(racers: &mut [Racer], field: &Field) {
    for racer in racers.iter_mut().filter(|racer| racer.left.is_none()) {
        let broken = field
            .margins(&racer.scores)
            .any(|(margins, model)| is_broken(&margins, model.variance, model.freedom));
        if broken {
            racer.left = Some("breaks a bound");
        }
    }
}

fn drop_worse(racers: &mut [Racer], model: &Model) {
    let alive: Vec<usize> =
        (0..racers.len()).filter(|place| racers[*place].left.is_none()).collect();
    let Some(blocks) = alive.iter().map(|place| racers[*place].scores.len()).min() else { return };
    let (squares, freedom) = residual(racers, &alive, blocks);
    // What runs of the same setting differ in is known from the screening, and from the race itself.
    let freedom = model.freedom + freedom;
    let variance = (model.variance * model.freedom + squares) / freedom;
    let error = (2.0 * variance / blocks as f64).sqrt();
    let means: Vec<f64> = alive.iter().map(|place| racers[*place].mean(blocks)).collect();
    let best = means.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    for (place, mean) in alive.into_iter().zip(means) {
        let worse = best - mean;
        if worse > 0.0 && one_sided_p(worse / error, freedom) < LEVEL {
            racers[place].left = Some("significantly worse");
        }
    }
}

/// What is left of the scores without the means of candidates and blocks: the error of paired differences.
fn residual(racers: &[Racer], alive: &[usize], blocks: usize) -> (f64, f64) {
    let value = |place: usize, block: usize| racers[place].scores[block].objective;
    let count = alive.len() as f64;
    let of_racer: Vec<f64> = alive.iter().map(|place| racers[*place].mean(blocks)).collect();
    let overall = of_racer.iter().sum::<f64>() / count.max(1.0);
    let mut squares = 0.0;
    for block in 0..blocks {
        let of_block = alive.iter().map(|place| value(*place, block)).sum::<f64>() / count;
        for (place, mean) in alive.iter().zip(&of_racer) {
            squares += (value(*place, block) - mean - of_block + overall).powi(2);
        }
    }
    (squares, (blocks.saturating_sub(1) * alive.len().saturating_sub(1)) as f64)
}

/// The best of those that stayed and keep the bounds on average.
pub(crate) fn winner(racers: &[Racer], field: &Field) -> Option<Levels> {
    let keeps = |racer: &&Racer| {
        let mean = |margins: &[f64]| margins.iter().sum::<f64>() / margins.len().max(1) as f64;
        field.margins(&racer.scores).all(|(margins, _)| mean(&margins) >= 0.0)
    };
    let stayed: Vec<&Racer> = racers.iter().filter(|racer| racer.left.is_none()).collect();
    let raced = stayed.iter().any(|racer| !racer.scores.is_empty());
    let best = match raced {
        true => stayed
            .iter()
            .copied()
            .filter(keeps)
            .max_by(|a, b| a.mean(usize::MAX).total_cmp(&b.mean(usize::MAX))),
        // Nothing raced: the first is the most promising.
        false => stayed.first().copied(),
    };
    best.map(|racer| racer.levels.clone())
}

pub(crate) fn as_candidates(racers: &[Racer], direction: f64) -> Vec<Candidate> {
    let base = racers.iter().find(|racer| racer.why == BASE);
    let each = racers.iter().map(|racer| {
        let blocks = racer.scores.len().min(base.map_or(0, |base| base.scores.len()));
        let to_base = base
            .filter(|_| blocks > 0)
            .map(|base| (direction * (racer.mean(blocks) - base.mean(blocks))).exp());
        Candidate {
            levels: racer.levels.clone(),
            why: racer.why,
            runs: racer.scores.len(),
            to_base,
            left: racer.left,
        }
    });
    each.collect()
}
