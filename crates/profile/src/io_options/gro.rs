use super::{Call, Effect, IoOption, TransferKind, ValueType};
use crate::flowops::Flowops;

#[derive(Debug)]
pub struct Gro;

impl IoOption for Gro {
    fn name(&self) -> &'static str {
        "gro"
    }

    fn help(&self) -> &'static str {
        "UDP_GRO: the receiver's kernel joins datagrams"
    }

    fn flowops(&self) -> Flowops {
        Flowops::Move
    }

    fn protocols(&self) -> &'static [&'static str] {
        &["udp"]
    }

    fn value(&self) -> ValueType {
        ValueType::Flag
    }

    fn effect(&self) -> Effect {
        Effect::Call(Call::Join, &[TransferKind::Receive])
    }

    fn counters(&self) -> &'static [&'static str] {
        &["receive_calls", "received_messages", "received_datagrams"]
    }
}
