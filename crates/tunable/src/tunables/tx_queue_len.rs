//! The length of a device's queue, as its queueing discipline takes it.

use super::{Scope, Tunable};
use crate::target::{Refusal, Target};
use crate::values;

#[derive(Debug)]
struct TxQueueLen;

pub(super) const LIST: &[&dyn Tunable] = &[&TxQueueLen];

impl Tunable for TxQueueLen {
    fn name(&self) -> &'static str {
        "txqueuelen"
    }

    fn about(&self) -> &'static str {
        "Packets that the device's queueing discipline holds, if it has no limit of its own (pfifo_fast, pfifo)."
    }

    fn scope(&self) -> Scope {
        Scope::Device
    }

    fn values(&self) -> String {
        "a number of packets".to_owned()
    }

    fn check(&self, value: &str) -> Option<String> {
        values::number(value, 0, i32::MAX as u64)
    }

    fn read(&self, target: &Target) -> Result<String, Refusal> {
        let link = target.link()?;
        let length = link
            .tx_queue_len
            .ok_or_else(|| Refusal::Unsupported(format!("`{}` has no queue", link.name)))?;
        Ok(length.to_string())
    }

    fn write(&self, target: &Target, value: &str) -> Result<(), Refusal> {
        let packets = values::parsed(value)?;
        Ok(target.links()?.set_tx_queue_len(target.device()?, packets)?)
    }
}
