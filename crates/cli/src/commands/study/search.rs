//! What `wirecost study check` says of a search.

use std::fmt::Write as _;
use std::time::Duration;

use wirecost_analyze::search;
use wirecost_model::search::{Search, percent};
use wirecost_model::units::{bit_rate, seconds};

use super::counted;
use super::plan::Step;
use super::show::show_time;

/// The goals, the loads at each point, and how long it takes.
pub(super) fn describe(search: &Search, steps: &[Step], text: &mut String) {
    for goal in &search.goals {
        let initial = match goal.initial_trial_seconds < goal.trial_seconds {
            true => format!("{} to ", seconds(goal.initial_trial_seconds)),
            false => String::new(),
        };
        let _ = writeln!(
            text,
            "goal: loss {}, exceed {}, width {}, trials of {initial}{}, sum {}",
            percent(goal.loss_ratio),
            percent(goal.exceed_ratio),
            percent(goal.width),
            seconds(goal.trial_seconds),
            seconds(goal.duration_sum_seconds)
        );
    }
    for (place, step) in steps.iter().enumerate() {
        let possible = step.possible(search);
        let link = possible.link_bits_per_second.map_or_else(String::new, |link| {
            format!(", as its link has {}; higher loads are impossible", bit_rate(link as f64))
        });
        let _ = writeln!(
            text,
            "loads of point {}: {} to {}{link}",
            place + 1,
            bit_rate(possible.min_bits_per_second as f64),
            bit_rate(possible.max_bits_per_second as f64),
        );
    }
    let (trials, time) = typical(search, steps);
    let (most_trials, most_time) = most(search, steps);
    let _ = writeln!(
        text,
        "{}, a search at each: typically {}, {}; at most {}, {}",
        counted(steps.len(), "point"),
        counted(trials, "trial"),
        show_time(time),
        counted(most_trials, "trial"),
        show_time(most_time)
    );
}

/// The trials of a sharp link, and their time.
pub(super) fn typical(search: &Search, steps: &[Step]) -> (usize, Duration) {
    sum(steps, |step| search::typical(&step.possible(search), ramp(step)))
}

/// The most trials, and the longest time.
fn most(search: &Search, steps: &[Step]) -> (usize, Duration) {
    sum(steps, |step| search::most(&step.possible(search), ramp(step)))
}

/// Over all points, with what a run takes besides its ramp and its measurement time.
fn sum(steps: &[Step], of: impl Fn(&Step) -> (usize, f64)) -> (usize, Duration) {
    steps.iter().fold((0, Duration::ZERO), |(all, time), step| {
        let (trials, seconds) = of(step);
        let besides = step.time.saturating_sub(Duration::from_secs_f64(ramp(step)));
        let trials_time = Duration::from_secs_f64(seconds) + besides * trials as u32;
        (all + trials, time + trials_time)
    })
}

fn ramp(step: &Step) -> f64 {
    wirecost_model::clock::seconds(step.options.settings().ramp)
}
