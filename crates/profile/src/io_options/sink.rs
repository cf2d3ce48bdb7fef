use super::{Call, Effect, IoOption, TransferKind, ValueType};
use crate::flowops::Flowops;

#[derive(Debug)]
pub struct Sink;

impl IoOption for Sink {
    fn name(&self) -> &'static str {
        "sink"
    }

    fn help(&self) -> &'static str {
        "directory in which the receiver writes received bytes to files of its own, one per worker"
    }

    fn flowops(&self) -> Flowops {
        Flowops::StreamOrFile
    }

    fn protocols(&self) -> &'static [&'static str] {
        &["tcp", "unix"]
    }

    fn value(&self) -> ValueType {
        ValueType::Text
    }

    fn effect(&self) -> Effect {
        Effect::Call(Call::Sink, &[TransferKind::Receive])
    }

    fn counters(&self) -> &'static [&'static str] {
        &["sink_bytes", "sink_write_ns"]
    }
}
