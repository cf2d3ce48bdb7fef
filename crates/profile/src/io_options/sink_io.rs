use wirecost_model::profile::IoValue;

use super::{Call, Effect, IoOption, TransferKind, ValueType};
use crate::flowops::Flowops;

#[derive(Debug)]
pub struct SinkIo;

/// The system calls that write what was received to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum SinkCalls {
    /// write(2).
    #[default]
    Write,
    /// io_uring(7): several writes in flight.
    IoUring,
}

impl SinkCalls {
    const NAMES: &'static [&'static str] = &["write", "io_uring"];

    /// The calls that a value names.
    #[must_use]
    pub fn of(value: &IoValue) -> Self {
        match value {
            IoValue::Text(word) if word == "io_uring" => Self::IoUring,
            _ => Self::Write,
        }
    }
}

impl IoOption for SinkIo {
    fn name(&self) -> &'static str {
        "sink_io"
    }

    fn help(&self) -> &'static str {
        "calls that write received bytes to the sink's files: write (default) or io_uring"
    }

    fn flowops(&self) -> Flowops {
        Flowops::StreamOrFile
    }

    fn protocols(&self) -> &'static [&'static str] {
        &["tcp", "unix"]
    }

    fn value(&self) -> ValueType {
        ValueType::Choice(SinkCalls::NAMES)
    }

    fn effect(&self) -> Effect {
        Effect::Call(Call::SinkIo, &[TransferKind::Receive])
    }

    fn counters(&self) -> &'static [&'static str] {
        &["sink_requests", "sink_in_flight"]
    }
}
