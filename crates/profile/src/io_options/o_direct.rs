use super::{Call, Effect, IoOption, TransferKind, ValueType};
use crate::flowops::Flowops;

#[derive(Debug)]
pub struct ODirect;

impl IoOption for ODirect {
    fn name(&self) -> &'static str {
        "o_direct"
    }

    fn help(&self) -> &'static str {
        "O_DIRECT: bypass the page cache for files of source, sink and sendfile"
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
        Effect::Call(
            Call::Direct,
            &[TransferKind::Send, TransferKind::Receive, TransferKind::SendFile],
        )
    }
}
