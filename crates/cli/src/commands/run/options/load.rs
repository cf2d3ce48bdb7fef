use wirecost_model::profile::Profile;
use wirecost_model::study::OfferedLoad;
use wirecost_model::units::bit_rate;
use wirecost_program::offered;

use super::{Change, RunOption};
use crate::Failure;

pub(super) struct Load;

impl RunOption for Load {
    fn name(&self) -> &'static str {
        "load"
    }

    fn value_name(&self) -> Option<&'static str> {
        Some("RATE")
    }

    fn help(&self) -> &'static str {
        "Offered load (open loop): payload per second of all strands together, such as 1gbit. Operations \
         start at fixed times, even if earlier ones are late; `90%-of-link` is a share of what the link carries, \
         `max` as fast as possible [default: the profile's]"
    }

    fn read(&self, value: &str) -> Result<Change, String> {
        match OfferedLoad::parse(value) {
            Some(OfferedLoad::Max) => Ok(Change::to_profile(|profile| {
                remove(profile);
                Ok(())
            })),
            Some(OfferedLoad::Rate(rate)) => {
                Ok(Change::to_profile(move |profile| offer(profile, rate)))
            }
            // Until the link is known, any rate: what is checked before must find the phase open loop.
            Some(OfferedLoad::OfLink(_)) => {
                Ok(Change::to_profile(|profile| offer(profile, 1_000_000_000)))
            }
            Some(OfferedLoad::Share(_)) => Err(
                "a percentage of the saturation throughput works only in a study; give a rate, such as 1gbit"
                    .to_owned(),
            ),
            None => {
                Err("must be max, a rate such as 1gbit, or a share of the link such as 90%-of-link; in a study also a \
                     share such as 25%"
                    .to_owned())
            }
        }
    }
}

/// Makes the headline phase open loop at this number of bits per second.
pub(crate) fn offer(profile: &mut Profile, rate: u64) -> Result<(), Failure> {
    offered::set(profile, rate as f64).map_err(|error| {
        let rate = bit_rate(rate as f64);
        Failure::usage(format!("load {rate}: {error}"))
            .help("an offered load needs a phase with a duration and with flowops of known sizes")
    })
}

fn remove(profile: &mut Profile) {
    let transactions = profile.groups.iter_mut().flat_map(|group| &mut group.transactions);
    transactions.for_each(|transaction| transaction.arrivals = None);
}
