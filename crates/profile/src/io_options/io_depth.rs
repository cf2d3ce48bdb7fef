use super::{Call, Effect, IoOption, TransferKind, ValueType, Zero};
use crate::flowops::Flowops;

#[derive(Debug)]
pub struct IoDepth;

/// Requests in flight of each file, unless the profile says otherwise.
pub const DEFAULT: u16 = 8;

impl IoOption for IoDepth {
    fn name(&self) -> &'static str {
        "io_depth"
    }

    fn help(&self) -> &'static str {
        "requests of 256 KiB that io_uring has in flight for each strand's source or each sink, default 8"
    }

    fn flowops(&self) -> Flowops {
        Flowops::StreamOrFile
    }

    fn protocols(&self) -> &'static [&'static str] {
        &["tcp", "unix"]
    }

    fn value(&self) -> ValueType {
        ValueType::Number { min: 1, max: 128, zero: Zero::Value }
    }

    fn effect(&self) -> Effect {
        Effect::Call(Call::IoDepth, &[TransferKind::Send, TransferKind::Receive])
    }
}
