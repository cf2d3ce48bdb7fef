use super::{Call, Effect, IoOption, TransferKind, ValueType};
use crate::flowops::Flowops;

#[derive(Debug)]
pub struct Sink;

impl IoOption for Sink {
    fn name(&self) -> &'static str {
        "sink"
    }

    fn help(&self) -> &'static str {
        "directory to which the receiver writes received bytes, one file per worker"
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
        Effect::Call(Call::Sink, &[TransferKind::Receive])
    }

    fn counters(&self) -> &'static [&'static str] {
        &["sink_bytes"]
    }
}
