use std::time::Duration;

use wirecost_model::clock::nanos;

use super::{Change, RunOption};
use crate::commands::parse_time;

const SHORTEST: Duration = Duration::from_millis(10);

pub(super) struct Interval;

impl RunOption for Interval {
    fn name(&self) -> &'static str {
        "interval"
    }

    fn value_name(&self) -> Option<&'static str> {
        Some("TIME")
    }

    fn help(&self) -> &'static str {
        "Interval of the time series, at least 10ms [default: 1s; longer in runs of over 10 hours, so \
         that they have at most 36,000]"
    }

    fn read(&self, value: &str) -> Result<Change, String> {
        let interval = parse_time(value)?;
        if interval < SHORTEST {
            return Err("must be at least 10ms".to_owned());
        }
        Ok(Change::to_settings(move |settings| settings.interval = Some(nanos(interval))))
    }
}
