use wirecost_model::profile::IoValue;
use wirecost_model::rss::Placement as Policy;
use wirecost_profile::io_options::placement::Placement as PlacementOption;

use super::{Change, RunOption, set_on_connections};

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
        let value = IoValue::Text(placement.to_string());
        Ok(Change::to_profile(move |profile| {
            set_on_connections(profile, &PlacementOption, &value, "--placement", "by UDP or TCP")
        }))
    }
}
