use wirecost_model::profile::IoValue;

use super::{Call, Effect, IoOption, TransferKind, ValueType};
use crate::flowops::Flowops;

#[derive(Debug)]
pub struct SourceIo;

/// The system calls that bring a file to a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum SourceCalls {
    /// read(2) to memory, write(2) from there.
    #[default]
    Read,
    /// sendfile(2).
    SendFile,
    /// splice(2) from the file to a pipe, and from the pipe to the socket.
    Splice,
    /// io_uring(7): several reads in flight, write(2) from memory.
    IoUring,
}

impl SourceCalls {
    const NAMES: &'static [&'static str] = &["read", "sendfile", "splice", "io_uring"];

    /// The calls that a value names.
    #[must_use]
    pub fn of(value: &IoValue) -> Self {
        match value {
            IoValue::Text(word) if word == "sendfile" => Self::SendFile,
            IoValue::Text(word) if word == "splice" => Self::Splice,
            IoValue::Text(word) if word == "io_uring" => Self::IoUring,
            _ => Self::Read,
        }
    }
}

impl IoOption for SourceIo {
    fn name(&self) -> &'static str {
        "source_io"
    }

    fn help(&self) -> &'static str {
        "calls that move bytes from the source to the socket: read (default), sendfile, splice or io_uring"
    }

    fn flowops(&self) -> Flowops {
        Flowops::Stream
    }

    fn protocols(&self) -> &'static [&'static str] {
        &["tcp", "unix"]
    }

    fn value(&self) -> ValueType {
        ValueType::Choice(SourceCalls::NAMES)
    }

    fn effect(&self) -> Effect {
        Effect::Call(Call::SourceIo, &[TransferKind::Send])
    }

    fn counters(&self) -> &'static [&'static str] {
        &["source_requests", "source_in_flight"]
    }
}
