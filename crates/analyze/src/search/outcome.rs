//! What a search found for a goal: Goal Result of RFC 9971.

use wirecost_model::clock::seconds;
use wirecost_model::search::{Search, SearchGoal};

use super::choose::{Bounds, are_close, by_load};
use super::classify::{Class, class, conditional_throughput};
use super::{Done, LEVELS, Target};

/// The result for a goal. It is regular if `state` is [`State::Reached`].
#[derive(Debug, Clone, PartialEq)]
pub struct GoalOutcome {
    pub state: State,
    /// Relevant Lower Bound; without an upper bound the highest load at which the goal was met.
    pub lower: Option<Bound>,
    /// Relevant Upper Bound.
    pub upper: Option<Bound>,
    /// Conditional Throughput, in bits per second.
    pub throughput: Option<f64>,
    /// What kept the rate from being higher.
    pub limit: Option<Limit>,
}

/// A bound, and the trials that decided it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bound {
    /// Bits per second.
    pub load: u64,
    pub trials: usize,
    /// Sum of their durations, in seconds.
    pub seconds: f64,
}

/// How a search ended for a goal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Both bounds are known, and they are close enough.
    Reached,
    /// The goal is met at the Max Load.
    MaxLoad,
    /// The goal is not met at the Min Load.
    MinLoad,
    TimeLimit,
    /// Trials had no result.
    Invalid,
    /// The search has not ended.
    Unfinished,
}

impl State {
    /// A few words for a table.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Reached => "reached",
            Self::MaxLoad => "met at max",
            Self::MinLoad => "not met at min",
            Self::TimeLimit => "time limit",
            Self::Invalid => "invalid trials",
            Self::Unfinished => "unfinished",
        }
    }
}

/// What limits a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// Datagrams that were sent did not arrive.
    Path,
    /// The sender could not send the load of the upper bound; what it sent arrived.
    Sender,
    /// The Max Load is what the link can carry.
    Link,
    /// The Max Load of the search.
    Search,
}

impl Limit {
    /// A word for a table.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Path => "path",
            Self::Sender => "sender",
            Self::Link => "link rate",
            Self::Search => "max",
        }
    }
}

impl GoalOutcome {
    /// `ended` is the state of a goal that is not reached.
    pub(super) fn of(search: &Search, goal: &SearchGoal, trials: &[Done], ended: State) -> Self {
        let target = Target::of(goal, LEVELS - 1);
        let loads = by_load(trials);
        let bounds = Bounds::of(&target, &loads);
        let (max, min) = (search.max_bits_per_second, search.min_bits_per_second);
        let state = match (bounds.lower, bounds.upper) {
            (Some(lower), Some(upper)) if are_close(lower, upper, target.width) => State::Reached,
            (Some(lower), None) if lower >= max => State::MaxLoad,
            (None, Some(upper)) if upper <= min => State::MinLoad,
            _ => ended,
        };
        let bound = |load: Option<u64>| {
            let load = load?;
            let at = loads.get(&load)?;
            let seconds = at.iter().map(|done| seconds(done.duration)).sum();
            Some(Bound { load, trials: at.len(), seconds })
        };
        let throughput =
            bounds.lower.and_then(|load| conditional_throughput(&target, load, loads.get(&load)?));
        let limit = match (state, bounds.upper.and_then(|upper| loads.get(&upper))) {
            // By loss alone this load would be no upper bound.
            (_, Some(at)) => Some(match class(&target, at, |measured| measured.path_loss) {
                Class::Upper => Limit::Path,
                Class::Lower | Class::Undecided => Limit::Sender,
            }),
            (State::MaxLoad, None) if search.link_bits_per_second.is_some() => Some(Limit::Link),
            (State::MaxLoad, None) => Some(Limit::Search),
            (_, None) => None,
        };
        Self { state, lower: bound(bounds.lower), upper: bound(bounds.upper), throughput, limit }
    }
}
