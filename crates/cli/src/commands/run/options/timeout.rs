use super::{Change, RunOption};
use crate::commands::parse_time_not_zero;

pub(super) struct Timeout;

impl RunOption for Timeout {
    fn name(&self) -> &'static str {
        "timeout"
    }

    fn value_name(&self) -> Option<&'static str> {
        Some("TIME")
    }

    fn help(&self) -> &'static str {
        "Stop the entire run after this time"
    }

    fn read(&self, value: &str) -> Result<Change, String> {
        let timeout = parse_time_not_zero(value)?;
        Ok(Change::to_settings(move |settings| settings.timeout = Some(timeout)))
    }
}
