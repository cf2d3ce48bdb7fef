use wirecost_model::clock::nanos;

use super::{Change, RunOption};
use crate::commands::parse_time;

pub(super) struct Ramp;

impl RunOption for Ramp {
    fn name(&self) -> &'static str {
        "ramp"
    }

    fn value_name(&self) -> Option<&'static str> {
        Some("TIME")
    }

    fn help(&self) -> &'static str {
        "Warm-up time, excluded from results"
    }

    fn default(&self) -> Option<&'static str> {
        Some("1s")
    }

    fn read(&self, value: &str) -> Result<Change, String> {
        let ramp = nanos(parse_time(value)?);
        Ok(Change::to_settings(move |settings| settings.ramp = ramp))
    }
}
