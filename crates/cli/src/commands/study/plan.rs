//! What a study will do, before it does it: how each point is run, and how long that takes.

use std::time::Duration;

use wirecost_model::profile::{Profile, Until};
use wirecost_model::study::Point;

use super::settings;
use super::source::{Loaded, failure};
use crate::Failure;
use crate::commands::run::How;
use crate::profile::Loaded as Ready;

/// Making hosts ready, connecting, draining, and a little without observers beside the window.
const OVERHEAD: Duration = Duration::from_millis(700);
/// Opening and closing a connection, at both ends.
const CONNECTION: Duration = Duration::from_micros(100);

/// How a point is run.
pub(super) struct Step {
    pub(super) how: How,
    pub(super) ready: Ready,
    /// Time that a run of it takes, about.
    pub(super) time: Duration,
}

/// How each point is run, in their order: whatever can be refused is refused here.
pub(super) fn steps(loaded: &Loaded, find: &dyn Fn(&str) -> String) -> Result<Vec<Step>, Failure> {
    wirecost_study::check(&loaded.definition).map_err(failure)?;
    let points = loaded.matrix.points.iter();
    points.map(|point| step(point, loaded, find)).collect()
}

fn step(point: &Point, loaded: &Loaded, find: &dyn Fn(&str) -> String) -> Result<Step, Failure> {
    let how = settings::how(point, loaded.definition.seed, find)?;
    let mut names = loaded.at.names();
    let ready = how.load(&mut |number| names(number)).map_err(|failure| failure.at(point))?;
    let time = time(&how, &ready.profile);
    Ok(Step { how, ready, time })
}

fn time(how: &How, profile: &Profile) -> Duration {
    let phases = profile.groups.iter().map(|group| group.transactions.len()).max().unwrap_or(0);
    let strands: u32 = profile.groups.iter().map(|group| group.strands).sum();
    let of_phase = |phase: usize| {
        let of_group = profile.groups.iter().filter_map(|group| group.transactions.get(phase));
        let lengths = of_group.filter_map(|transaction| match transaction.until {
            Until::Duration(length) => Some(length + how.ramp),
            Until::Iterations(_) => None,
        });
        lengths.max().unwrap_or_default()
    };
    let phases: Duration = (0..phases).map(of_phase).sum();
    let passes = how.observe.passes.len().max(1) as u32;
    (phases + OVERHEAD + CONNECTION * strands) * passes
}
