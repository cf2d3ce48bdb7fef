//! The search for the highest load whose loss stays within a bound: MLRsearch (RFC 9971,
//! <https://www.rfc-editor.org/rfc/rfc9971>). Pure: what comes next, and what was found, follow from the
//! trials alone, so a search continues from its records.
//!
//! The RFC leaves open which load is tried next; `choose` decides that. How trials decide about a load
//! (`classify`) and what the result is are the RFC's.

mod choose;
mod classify;
mod outcome;
#[cfg(test)]
mod tests;
mod trial;

use wirecost_model::clock::{Nanos, nanos, seconds};
use wirecost_model::search::{Search, SearchGoal};

pub use outcome::{Bound, GoalOutcome, Limit, State};
pub use trial::{Measured, Trial};

/// Trials in a row without a result, after which a search ends.
const MOST_INVALID: usize = 3;

/// Levels of a goal: each has trials that are longer, and bounds that are closer, than the one before. The
/// last is the goal itself.
const LEVELS: usize = 3;

/// What comes next.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Next {
    /// A trial at this load, in bits per second.
    Trial {
        load: u64,
        duration: Nanos,
    },
    Finished,
}

/// A goal, or one of its earlier levels.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Target {
    loss_ratio: f64,
    exceed_ratio: f64,
    width: f64,
    trial: Nanos,
    sum: Nanos,
}

impl Target {
    fn of(goal: &SearchGoal, level: usize) -> Self {
        // Trials grow from the initial to the final duration, and their sum to the Goal Duration Sum, by
        // equal factors.
        let grown =
            |from: f64, to: f64| from * (to / from).powf(level as f64 / (LEVELS - 1).max(1) as f64);
        let is_last = level + 1 == LEVELS;
        let initial = goal.initial_trial_seconds.min(goal.trial_seconds);
        let trial = match is_last {
            true => goal.trial_seconds,
            false => grown(initial, goal.trial_seconds),
        };
        let sum = match is_last {
            true => goal.duration_sum_seconds,
            false => grown(initial, goal.duration_sum_seconds).max(trial),
        };
        Self {
            loss_ratio: goal.loss_ratio,
            exceed_ratio: goal.exceed_ratio,
            width: goal.width * f64::from(1u32 << (LEVELS - 1 - level)),
            trial: of_seconds(trial),
            sum: of_seconds(sum),
        }
    }
}

fn of_seconds(seconds: f64) -> Nanos {
    // A millisecond is as fine as a trial can be timed.
    let millis = (seconds * 1e3).round().max(1.0);
    nanos(std::time::Duration::from_millis(millis as u64))
}

/// What the next trial of a search is. The trials are in the order in which they were made.
#[must_use]
pub fn next(search: &Search, trials: &[Trial]) -> Next {
    if out_of_time(search, trials) || only_invalid(trials) {
        return Next::Finished;
    }
    choose::next(search, &measured(trials))
}

/// What has been found for each goal, in their order, whether or not the search is finished.
#[must_use]
pub fn outcomes(search: &Search, trials: &[Trial]) -> Vec<GoalOutcome> {
    let of_all = measured(trials);
    let ended = match only_invalid(trials) {
        true => State::Invalid,
        false if out_of_time(search, trials) => State::TimeLimit,
        false => State::Unfinished,
    };
    search.goals.iter().map(|goal| GoalOutcome::of(search, goal, &of_all, ended)).collect()
}

/// Time that trials took, in seconds, with their ramps.
#[must_use]
pub fn spent(trials: &[Trial]) -> f64 {
    trials.iter().map(|trial| seconds(trial.duration) + trial.ramp_seconds).sum()
}

/// How many trials a search makes of a link that loses what exceeds a load halfway (by factors) between Min
/// and Max Load, and their time in seconds.
#[must_use]
pub fn typical(search: &Search, ramp_seconds: f64) -> (usize, f64) {
    let capacity = (search.min_bits_per_second as f64 * search.max_bits_per_second as f64).sqrt();
    let mut trials = Vec::new();
    while let Next::Trial { load, duration } = next(search, &trials) {
        let lost = (1.0 - capacity / load as f64).max(0.0);
        let result = Ok(Measured::new(lost, 0.0));
        trials.push(Trial { load, duration, ramp_seconds, result });
    }
    (trials.len(), spent(&trials))
}

/// The largest number of trials of a search, and their longest time in seconds.
#[must_use]
pub fn most(search: &Search, ramp_seconds: f64) -> (usize, f64) {
    let durations = |of: fn(&SearchGoal) -> f64| search.goals.iter().map(of);
    let shortest = durations(|goal| goal.initial_trial_seconds.min(goal.trial_seconds))
        .fold(f64::MAX, f64::min);
    let longest = durations(|goal| goal.trial_seconds).fold(0.0, f64::max);
    // The last one begins within the limit.
    let trials = (search.time_limit_seconds / (shortest + ramp_seconds)).ceil().max(1.0);
    (trials as usize, search.time_limit_seconds + longest + ramp_seconds)
}

fn out_of_time(search: &Search, trials: &[Trial]) -> bool {
    spent(trials) >= search.time_limit_seconds
}

fn only_invalid(trials: &[Trial]) -> bool {
    let last = trials.iter().rev().take_while(|trial| trial.result.is_err());
    last.count() >= MOST_INVALID
}

/// A trial with a result.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Done {
    load: u64,
    duration: Nanos,
    measured: Measured,
}

fn measured(trials: &[Trial]) -> Vec<Done> {
    let done = trials.iter().filter_map(|trial| {
        let measured = *trial.result.as_ref().ok()?;
        Some(Done { load: trial.load, duration: trial.duration, measured })
    });
    done.collect()
}
