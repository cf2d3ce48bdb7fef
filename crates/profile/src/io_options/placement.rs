use wirecost_model::profile::IoValue;
use wirecost_model::rss::Placement as Policy;

use super::{Effect, IoOption, ValueType};
use crate::flowops::Flowops;

#[derive(Debug)]
pub struct Placement;

impl IoOption for Placement {
    fn name(&self) -> &'static str {
        "placement"
    }

    fn help(&self) -> &'static str {
        "receive queues of the peer's device for the strands of the group, by choice of source ports"
    }

    fn flowops(&self) -> Flowops {
        Flowops::Connect
    }

    fn protocols(&self) -> &'static [&'static str] {
        &["tcp", "udp", "tls"]
    }

    fn value(&self) -> ValueType {
        ValueType::Choice(Policy::NAMES)
    }

    fn effect(&self) -> Effect {
        Effect::Opening
    }

    fn described(&self, value: &IoValue) -> Option<String> {
        match value {
            IoValue::Text(name) => Some(format!("placement {name}")),
            _ => None,
        }
    }
}
