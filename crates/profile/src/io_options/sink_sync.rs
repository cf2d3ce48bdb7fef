use super::{Call, Effect, IoOption, TransferKind, ValueType};
use crate::flowops::Flowops;

#[derive(Debug)]
pub struct SinkSync;

impl IoOption for SinkSync {
    fn name(&self) -> &'static str {
        "sink_sync"
    }

    fn help(&self) -> &'static str {
        "fdatasync(2) of the sink's files at the end of the phase; its time is reported separately"
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
        Effect::Call(Call::SinkSync, &[TransferKind::Receive])
    }

    fn counters(&self) -> &'static [&'static str] {
        &["sink_syncs", "sink_sync_ns"]
    }
}
