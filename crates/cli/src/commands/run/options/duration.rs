use wirecost_model::profile::{Profile, Until};
use wirecost_program::headline;

use super::{Change, RunOption};
use crate::Failure;
use crate::commands::parse_time_not_zero;

pub(super) struct Duration;

impl RunOption for Duration {
    fn name(&self) -> &'static str {
        "duration"
    }

    fn value_name(&self) -> Option<&'static str> {
        Some("TIME")
    }

    fn help(&self) -> &'static str {
        "Measurement time, such as 10s; a number alone is seconds [default: the profile's]"
    }

    fn read(&self, value: &str) -> Result<Change, String> {
        let duration = parse_time_not_zero(value)?;
        Ok(Change::to_profile(move |profile| set_duration(profile, duration)))
    }
}

/// Of the headline, where it has a duration, else of the longest phase that has one.
pub(crate) fn set_duration(
    profile: &mut Profile,
    duration: std::time::Duration,
) -> Result<(), Failure> {
    let phases = profile.groups.iter().map(|g| g.transactions.len()).max().unwrap_or(0);
    let length = |phase: usize| {
        let of_group = profile.groups.iter().filter_map(|group| group.transactions.get(phase));
        of_group
            .filter_map(|transaction| match transaction.until {
                Until::Duration(length) => Some(length),
                Until::Iterations(_) => None,
            })
            .max()
    };
    let longest = (0..phases).filter_map(|phase| Some((length(phase)?, phase))).max();
    let headline = headline::of_profile(profile).filter(|&phase| length(phase).is_some());
    let Some(headline) = headline.or(longest.map(|(_, phase)| phase)) else {
        return Err(Failure::usage("--duration: no transaction of the profile has a duration")
            .help("its phases are limited by iterations; change them in the profile"));
    };
    for transaction in profile.groups.iter_mut().filter_map(|g| g.transactions.get_mut(headline)) {
        if let Until::Duration(length) = &mut transaction.until {
            *length = duration;
        }
    }
    Ok(())
}
