use super::{Call, Effect, INT_MAX, IoOption, TransferKind, ValueType, Zero};
use crate::flowops::Flowops;

#[derive(Debug)]
pub struct SourceSize;

impl IoOption for SourceSize {
    fn name(&self) -> &'static str {
        "source_size"
    }

    fn help(&self) -> &'static str {
        "create a file of this many random bytes in the directory of source before the run, and send it"
    }

    fn flowops(&self) -> Flowops {
        Flowops::Stream
    }

    fn protocols(&self) -> &'static [&'static str] {
        &["tcp", "unix"]
    }

    fn value(&self) -> ValueType {
        ValueType::Number { min: 0, max: INT_MAX, zero: Zero::Unset }
    }

    fn effect(&self) -> Effect {
        Effect::Call(Call::SourceSize, &[TransferKind::Send])
    }
}
