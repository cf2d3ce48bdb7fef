use super::{Call, Effect, IoOption, TransferKind, ValueType};
use crate::flowops::Flowops;

#[derive(Debug)]
pub struct Zerocopy;

impl IoOption for Zerocopy {
    fn name(&self) -> &'static str {
        "zerocopy"
    }

    fn help(&self) -> &'static str {
        "MSG_ZEROCOPY: send without copying, if the path allows it; message numbers of verify are copied"
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
        Effect::Call(Call::ZeroCopy, &[TransferKind::Send])
    }

    fn counters(&self) -> &'static [&'static str] {
        &["zerocopy_calls", "zerocopy_completed", "zerocopy_copied", "zerocopy_refused"]
    }
}
