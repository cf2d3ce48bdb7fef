use super::{Call, Effect, IoOption, TransferKind, ValueType};
use crate::flowops::Flowops;

#[derive(Debug)]
pub struct SinkKeep;

impl IoOption for SinkKeep {
    fn name(&self) -> &'static str {
        "sink_keep"
    }

    fn help(&self) -> &'static str {
        "keep the sink's files; by default they have no name and are deleted when the run ends"
    }

    fn flowops(&self) -> Flowops {
        Flowops::StreamOrFile
    }

    fn protocols(&self) -> &'static [&'static str] {
        &["tcp", "unix"]
    }

    fn value(&self) -> ValueType {
        ValueType::Flag
    }

    fn effect(&self) -> Effect {
        Effect::Call(Call::SinkKeep, &[TransferKind::Receive])
    }
}
