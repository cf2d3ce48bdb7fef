use super::{Call, Effect, IoOption, TransferKind, ValueType};
use crate::flowops::Flowops;

#[derive(Debug)]
pub struct SinkPreallocate;

impl IoOption for SinkPreallocate {
    fn name(&self) -> &'static str {
        "sink_preallocate"
    }

    fn help(&self) -> &'static str {
        "fallocate(2): reserve the sink's files before the run, instead of having them grow"
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
        Effect::Call(Call::SinkPreallocate, &[TransferKind::Receive])
    }
}
