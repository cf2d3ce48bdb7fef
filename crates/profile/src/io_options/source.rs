use super::{Call, Effect, IoOption, TransferKind, ValueType};
use crate::flowops::Flowops;

#[derive(Debug)]
pub struct Source;

impl IoOption for Source {
    fn name(&self) -> &'static str {
        "source"
    }

    fn help(&self) -> &'static str {
        "file, or directory of files, that the sender sends; at the end it starts over"
    }

    fn flowops(&self) -> Flowops {
        Flowops::Stream
    }

    fn protocols(&self) -> &'static [&'static str] {
        &["tcp", "unix"]
    }

    fn value(&self) -> ValueType {
        ValueType::Text
    }

    fn effect(&self) -> Effect {
        Effect::Call(Call::Source, &[TransferKind::Send])
    }

    fn counters(&self) -> &'static [&'static str] {
        &["source_bytes", "source_read_bytes", "source_read_ns"]
    }
}
