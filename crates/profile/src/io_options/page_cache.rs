use wirecost_model::profile::IoValue;

use super::{Call, Effect, IoOption, TransferKind, ValueType};
use crate::flowops::Flowops;

#[derive(Debug)]
pub struct PageCache;

/// What of a source is to be in the page cache when the sender begins to read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum CacheState {
    /// Whatever is there.
    #[default]
    AsIs,
    /// Nothing, each time that its reading begins.
    Cold,
    /// All of it.
    Warm,
}

impl CacheState {
    const NAMES: &'static [&'static str] = &["as-is", "cold", "warm"];

    /// The state that a value names.
    #[must_use]
    pub fn of(value: &IoValue) -> Self {
        match value {
            IoValue::Text(word) if word == "cold" => Self::Cold,
            IoValue::Text(word) if word == "warm" => Self::Warm,
            _ => Self::AsIs,
        }
    }
}

impl IoOption for PageCache {
    fn name(&self) -> &'static str {
        "page_cache"
    }

    fn help(&self) -> &'static str {
        "page cache of the source when its reading begins: as-is (default), cold (dropped) or warm (read before)"
    }

    fn flowops(&self) -> Flowops {
        Flowops::Stream
    }

    fn protocols(&self) -> &'static [&'static str] {
        &["tcp", "unix"]
    }

    fn value(&self) -> ValueType {
        ValueType::Choice(CacheState::NAMES)
    }

    fn effect(&self) -> Effect {
        Effect::Call(Call::PageCache, &[TransferKind::Send])
    }

    fn counters(&self) -> &'static [&'static str] {
        &["source_pass_bytes", "source_cached_bytes"]
    }
}
