use super::{Call, Effect, IoOption, TransferKind, ValueType};
use crate::flowops::Flowops;

#[derive(Debug)]
pub struct Splice;

impl IoOption for Splice {
    fn name(&self) -> &'static str {
        "splice"
    }

    fn help(&self) -> &'static str {
        "move bytes through a pipe: from the receiver's socket to its sink or /dev/null, or from sendfile's file"
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
        Effect::Call(Call::Splice, &[TransferKind::Receive, TransferKind::SendFile])
    }

    fn counters(&self) -> &'static [&'static str] {
        &["spliced_bytes"]
    }
}
