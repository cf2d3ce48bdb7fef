use super::{Call, Effect, IoOption, TransferKind, ValueType, Zero};
use crate::flowops::Flowops;

#[derive(Debug)]
pub struct Batch;

/// UIO_MAXIOV:
/// <https://elixir.bootlin.com/linux/v6.12/source/include/uapi/linux/uio.h#L46>
const MAX_MESSAGES: u64 = 1024;

impl IoOption for Batch {
    fn name(&self) -> &'static str {
        "batch"
    }

    fn help(&self) -> &'static str {
        "messages per call (sendmmsg, recvmmsg) and per execution"
    }

    fn flowops(&self) -> Flowops {
        Flowops::Move
    }

    fn protocols(&self) -> &'static [&'static str] {
        &["udp"]
    }

    fn value(&self) -> ValueType {
        ValueType::Number { min: 0, max: MAX_MESSAGES, zero: Zero::Unset }
    }

    fn effect(&self) -> Effect {
        Effect::Call(Call::Messages, &[TransferKind::Send, TransferKind::Receive])
    }

    fn counters(&self) -> &'static [&'static str] {
        &[
            "send_calls",
            "sent_datagrams",
            "receive_calls",
            "received_messages",
            "received_datagrams",
        ]
    }
}
