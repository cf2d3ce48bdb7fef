use super::{Call, Effect, IoOption, TransferKind, ValueType, Zero};
use crate::flowops::Flowops;

#[derive(Debug)]
pub struct Gso;

/// UDP_MAX_SEGMENTS before Linux 6.9:
/// <https://elixir.bootlin.com/linux/v6.8/source/include/linux/udp.h#L103>
const MAX_SEGMENTS: u64 = 64;

impl IoOption for Gso {
    fn name(&self) -> &'static str {
        "gso"
    }

    fn help(&self) -> &'static str {
        "UDP_SEGMENT: datagrams of size bytes that the kernel makes from one message"
    }

    fn flowops(&self) -> Flowops {
        Flowops::Move
    }

    fn protocols(&self) -> &'static [&'static str] {
        &["udp"]
    }

    fn value(&self) -> ValueType {
        ValueType::Number { min: 0, max: MAX_SEGMENTS, zero: Zero::Unset }
    }

    fn effect(&self) -> Effect {
        Effect::Call(Call::Segments, &[TransferKind::Send])
    }

    fn counters(&self) -> &'static [&'static str] {
        &["send_calls", "sent_datagrams"]
    }
}
