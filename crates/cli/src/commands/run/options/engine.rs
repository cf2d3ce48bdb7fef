use wirecost_load::engines;
use wirecost_model::plan::EngineName;

use super::{Change, RunOption};

pub(super) struct Engine;

/// The name of an engine that this program has.
pub(crate) fn parse_engine(value: &str) -> Result<EngineName, String> {
    let engine = engines::find(value);
    let engine = engine.ok_or_else(|| format!("must be one of {}", engines::names()))?;
    Ok(EngineName::from(engine.name()))
}

impl RunOption for Engine {
    fn name(&self) -> &'static str {
        "engine"
    }

    fn value_name(&self) -> Option<&'static str> {
        Some("ENGINE")
    }

    fn help(&self) -> &'static str {
        "How workers wait for I/O: one of the engines of `wirecost list`"
    }

    fn default(&self) -> Option<&'static str> {
        Some("epoll")
    }

    fn read(&self, value: &str) -> Result<Change, String> {
        let name = parse_engine(value)?;
        Ok(Change::to_settings(move |settings| settings.engine = name.clone()))
    }
}
