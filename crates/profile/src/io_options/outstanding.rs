use wirecost_model::profile::IoValue;

use super::{Effect, IoOption, ValueType, Zero};
use crate::flowops::Flowops;

#[derive(Debug)]
pub struct Outstanding;

/// A strand remembers when each of them was due: 512 KiB.
const MAX_REQUESTS: u64 = 64 << 10;

impl IoOption for Outstanding {
    fn name(&self) -> &'static str {
        "outstanding"
    }

    fn help(&self) -> &'static str {
        "requests of a strand that may be without an answer at a time; it does not wait before it sends the next"
    }

    fn flowops(&self) -> Flowops {
        Flowops::Move
    }

    fn protocols(&self) -> &'static [&'static str] {
        &["udp"]
    }

    fn value(&self) -> ValueType {
        ValueType::Number { min: 0, max: MAX_REQUESTS, zero: Zero::Unset }
    }

    fn effect(&self) -> Effect {
        Effect::Order
    }

    fn described(&self, value: &IoValue) -> Option<String> {
        match value {
            IoValue::Number(number) => Some(format!("up to {number} requests outstanding")),
            _ => None,
        }
    }
}
