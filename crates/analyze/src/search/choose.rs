//! Which trial is next.
//!
//! Each goal is approached by levels ([`Target`]): short trials find the neighbourhood, longer ones confirm
//! both bounds there and narrow them. All goals pass a level before any begins the next. Within a level the
//! lowest load comes first: an upper bound there is valid for all loads above it.

use std::collections::BTreeMap;

use wirecost_model::search::Search;

use super::classify::{Class, class};
use super::{Done, LEVELS, Next, Target};

/// Loads that are decided, up to which the loss at the upper bound suggests the next one. Beyond, halving the
/// interval is surer.
const HINTS: usize = 6;

/// The trials by load.
pub(super) type ByLoad<'a> = BTreeMap<u64, Vec<&'a Done>>;

pub(super) fn by_load(trials: &[Done]) -> ByLoad<'_> {
    let mut loads = ByLoad::new();
    for done in trials {
        loads.entry(done.load).or_default().push(done);
    }
    loads
}

/// The bounds of a target among the loads.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Bounds {
    /// The lowest upper bound.
    pub(super) upper: Option<u64>,
    /// The highest lower bound below it.
    pub(super) lower: Option<u64>,
    uppers: usize,
    lowers: usize,
}

impl Bounds {
    pub(super) fn of(target: &Target, loads: &ByLoad<'_>) -> Self {
        let mut bounds = Self::default();
        for (load, at) in loads {
            match class(target, at, |measured| measured.loss) {
                Class::Upper => {
                    bounds.upper = bounds.upper.or(Some(*load));
                    bounds.uppers += 1;
                }
                Class::Lower => {
                    bounds.lowers += 1;
                    if bounds.upper.is_none() {
                        bounds.lower = Some(*load);
                    }
                }
                Class::Undecided => {}
            }
        }
        bounds
    }

    /// Whether nothing is left to try: the bounds are close enough, or are the ends of what may be tried.
    fn are_final(&self, target: &Target, search: &Search) -> bool {
        match (self.lower, self.upper) {
            (Some(lower), Some(upper)) => are_close(lower, upper, target.width),
            (Some(lower), None) => lower >= search.max_bits_per_second,
            (None, Some(upper)) => upper <= search.min_bits_per_second,
            (None, None) => false,
        }
    }
}

/// Whether two bounds are within this width, relative to the upper one, or have no load between them.
pub(super) fn are_close(lower: u64, upper: u64, width: f64) -> bool {
    (upper - lower) as f64 <= width * upper as f64 || upper - lower <= 1
}

pub(super) fn next(search: &Search, trials: &[Done]) -> Next {
    let loads = by_load(trials);
    for level in 0..LEVELS {
        let wanted = search.goals.iter().filter_map(|goal| {
            let target = Target::of(goal, level);
            let earlier = level.checked_sub(1).map(|level| Target::of(goal, level));
            let load = wanted(search, &target, earlier.as_ref(), &loads)?;
            Some((load, target.trial))
        });
        if let Some((load, duration)) = wanted.min() {
            return Next::Trial { load, duration };
        }
    }
    Next::Finished
}

/// The load that a target needs a trial at; `None` if it has what it needs.
fn wanted(
    search: &Search,
    target: &Target,
    earlier: Option<&Target>,
    loads: &ByLoad<'_>,
) -> Option<u64> {
    let bounds = Bounds::of(target, loads);
    if bounds.are_final(target, search) {
        return None;
    }
    let (min, max) = (search.min_bits_per_second, search.max_bits_per_second);
    let open = |load: &u64| {
        bounds.lower.is_none_or(|lower| *load > lower)
            && bounds.upper.is_none_or(|upper| *load < upper)
    };
    // What the earlier level found comes first, the lower bound before the upper.
    let found = earlier.map(|earlier| Bounds::of(earlier, loads)).unwrap_or_default();
    if let Some(load) = [found.lower, found.upper].into_iter().flatten().find(open) {
        return Some(load);
    }
    // A load that is begun is decided before another is: the nearest to the bound that is known.
    let is_begun = |done: &&Done| done.duration >= target.trial;
    let mut begun = loads.iter().filter(|(_, at)| at.iter().any(is_begun)).map(|(load, _)| *load);
    let begun = match bounds.lower {
        Some(_) => begun.find(open),
        None => begun.rev().find(open),
    };
    if begun.is_some() {
        return begun;
    }
    Some(match (bounds.lower, bounds.upper) {
        // The loss at the most that can be offered tells how much passes.
        (None, None) => max,
        (None, Some(upper)) => below(target, upper, &bounds, loads).max(min),
        (Some(lower), None) => {
            let step = 1.0 + target.width * doubled(bounds.lowers);
            ((lower as f64 * step).ceil() as u64).clamp(lower + 1, max)
        }
        (Some(lower), Some(upper)) => between(target, lower, upper, &bounds, loads),
    })
}

/// 1, 2, 4 and so on: a search that goes one way takes ever larger steps.
fn doubled(times: usize) -> f64 {
    (times.saturating_sub(1).min(60) as f64).exp2()
}

/// The load at which a target may be met, by what passed at this one: payload that arrived, and what may be
/// lost of it.
fn passing(target: &Target, load: u64, loads: &ByLoad<'_>) -> Option<f64> {
    let at = loads.get(&load)?;
    let passed = 1.0 - at.iter().map(|done| done.measured.loss).sum::<f64>() / at.len() as f64;
    let passing = load as f64 * passed / (1.0 - target.loss_ratio);
    (passing > 0.0).then_some(passing)
}

/// A load below the lowest upper bound, where no lower bound is known.
fn below(target: &Target, upper: u64, bounds: &Bounds, loads: &ByLoad<'_>) -> u64 {
    let from = passing(target, upper, loads).unwrap_or(0.0).min(upper as f64);
    let load = from * (1.0 - target.width / 2.0 * doubled(bounds.uppers));
    (load.max(0.0) as u64).min(upper - 1)
}

/// A load between two bounds that are not close enough.
fn between(target: &Target, lower: u64, upper: u64, bounds: &Bounds, loads: &ByLoad<'_>) -> u64 {
    let (low, high) = (lower as f64, upper as f64);
    let is_wide = (upper - lower) as f64 > 2.0 * target.width * high;
    if is_wide
        && bounds.uppers + bounds.lowers <= HINTS
        && let Some(passing) = passing(target, upper, loads)
    {
        let margin = target.width / 4.0;
        let inside = |load: &f64| *load > low * (1.0 + margin) && *load < high * (1.0 - margin);
        let around = [1.0 - target.width / 2.0, 1.0 + target.width / 2.0];
        if let Some(load) = around.map(|factor| passing * factor).into_iter().find(inside) {
            return (load as u64).clamp(lower + 1, upper - 1);
        }
    }
    ((low * high).sqrt() as u64).clamp(lower + 1, upper - 1)
}
