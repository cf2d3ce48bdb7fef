use wirecost_model::outcome::DeadTimePolicy;

use super::{Change, RunOption};

pub(super) struct DeadTime;

impl RunOption for DeadTime {
    fn name(&self) -> &'static str {
        "dead_time"
    }

    fn long(&self) -> &'static str {
        "dead-time"
    }

    fn value_name(&self) -> Option<&'static str> {
        Some("invalid|report")
    }

    fn help(&self) -> &'static str {
        "What to do if no byte moved for more than a tenth of the measurement time although operations \
         waited: make the result invalid, or only report it (for tests of loss and outages)"
    }

    fn default(&self) -> Option<&'static str> {
        Some("invalid")
    }

    fn read(&self, value: &str) -> Result<Change, String> {
        let policy = match value {
            "invalid" => DeadTimePolicy::Invalid,
            "report" => DeadTimePolicy::Report,
            _ => return Err("must be invalid or report".to_owned()),
        };
        Ok(Change::to_settings(move |settings| settings.dead_time = policy))
    }
}
