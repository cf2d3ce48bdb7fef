use wirecost_model::plan::Workers as Counts;

use super::{Change, RunOption};

pub(super) struct Workers;

impl RunOption for Workers {
    fn name(&self) -> &'static str {
        "workers"
    }

    fn value_name(&self) -> Option<&'static str> {
        Some("N|NAME=N,...")
    }

    fn help(&self) -> &'static str {
        "Number of workers on each host, or on hosts by name: `master=4,peer=1` [default: one per CPU; engine af_xdp: 1]"
    }

    fn read(&self, value: &str) -> Result<Change, String> {
        let counts: Counts = value.parse()?;
        Ok(Change::to_settings(move |settings| settings.workers = counts.clone()))
    }
}
