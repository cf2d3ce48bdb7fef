use super::{Call, Effect, IoOption, TransferKind, ValueType};
use crate::flowops::Flowops;

#[derive(Debug)]
pub struct Discard;

impl IoOption for Discard {
    fn name(&self) -> &'static str {
        "discard"
    }

    fn help(&self) -> &'static str {
        "MSG_TRUNC: the receiver's kernel drops the bytes without copying them"
    }

    fn flowops(&self) -> Flowops {
        Flowops::Stream
    }

    fn protocols(&self) -> &'static [&'static str] {
        &["tcp"]
    }

    fn value(&self) -> ValueType {
        ValueType::Flag
    }

    fn effect(&self) -> Effect {
        Effect::Call(Call::Discard, &[TransferKind::Receive])
    }

    fn counters(&self) -> &'static [&'static str] {
        &["discarded_bytes"]
    }
}
