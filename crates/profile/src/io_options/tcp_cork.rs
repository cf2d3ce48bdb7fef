use super::{Call, Effect, IoOption, TransferKind, ValueType};
use crate::flowops::Flowops;

#[derive(Debug)]
pub struct TcpCork;

impl IoOption for TcpCork {
    fn name(&self) -> &'static str {
        "tcp_cork"
    }

    fn help(&self) -> &'static str {
        "TCP_CORK: send partial segments only after the last of count messages"
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
        Effect::Call(Call::Cork, &[TransferKind::Send])
    }
}
