use wirecost_model::profile::{IoValue, Profile};
use wirecost_model::rss::Placement as Policy;
use wirecost_profile::io_options::IoOption;
use wirecost_profile::io_options::placement::Placement as PlacementOption;
use wirecost_profile::protocols;

use super::{Change, RunOption};
use crate::Failure;

pub(super) struct Placement;

impl RunOption for Placement {
    fn name(&self) -> &'static str {
        "placement"
    }

    fn value_name(&self) -> Option<&'static str> {
        Some("PLACEMENT")
    }

    fn help(&self) -> &'static str {
        "Receive queues of the peer's device for the connections of each group: one-per-queue, even, all-on-one, \
         or random [default: the profile's]"
    }

    fn read(&self, value: &str) -> Result<Change, String> {
        let placement: Policy = value.parse()?;
        Ok(Change::to_profile(move |profile| set(profile, placement)))
    }
}

/// Sets it on every connection.
fn set(profile: &mut Profile, placement: Policy) -> Result<(), Failure> {
    let flowops =
        profile.groups.iter_mut().flat_map(|g| &mut g.transactions).flat_map(|t| &mut t.flowops);
    let mut fits = false;
    for flowop in flowops.filter(|flowop| PlacementOption.flowops().contains(&flowop.kind)) {
        let protocol = flowop.options.protocol.as_deref().and_then(protocols::find);
        if PlacementOption.fits(protocol) {
            fits = true;
            flowop.options.io.set(PlacementOption.name(), IoValue::Text(placement.to_string()));
        }
    }
    match fits {
        true => Ok(()),
        false => Err(Failure::usage("--placement: the profile has no connection by UDP or TCP")
            .help("remove --placement, or choose another protocol")),
    }
}
