use super::{Call, Effect, INT_MAX, IoOption, TransferKind, ValueType, Zero};
use crate::flowops::Flowops;

#[derive(Debug)]
pub struct SinkSize;

impl IoOption for SinkSize {
    fn name(&self) -> &'static str {
        "sink_size"
    }

    fn help(&self) -> &'static str {
        "total size of the sink's files, default 64m; a full file is overwritten"
    }

    fn flowops(&self) -> Flowops {
        Flowops::StreamOrFile
    }

    fn protocols(&self) -> &'static [&'static str] {
        &["tcp", "unix"]
    }

    fn value(&self) -> ValueType {
        ValueType::Number { min: 1 << 20, max: INT_MAX, zero: Zero::Value }
    }

    fn effect(&self) -> Effect {
        Effect::Call(Call::SinkSize, &[TransferKind::Receive])
    }
}
