use wirecost_model::profile::IoValue;
use wirecost_model::units;

use super::{Effect, INT_MAX, IoOption, ValueType, Zero};
use crate::flowops::Flowops;
use crate::socket_option::{Form, Level, On, SocketOption};

#[derive(Debug)]
pub struct Wndsz;

/// Twice the size that was requested is effective, as the kernel counts its own book-keeping too
/// (socket(7)).
const BUFFER: SocketOption = SocketOption {
    level: Level::Socket,
    form: Form::Number { times: 1, read_as: 2, bytes: 4 },
    ..SocketOption::NUMBER
};
const SEND: SocketOption =
    SocketOption { label: Some("wndsz.send"), number: libc::SO_SNDBUF, ..BUFFER };
const RECEIVE: SocketOption =
    SocketOption { label: Some("wndsz.receive"), number: libc::SO_RCVBUF, ..BUFFER };
/// The size of a vsock socket's buffer and the limit of that size, which the C library does not
/// name: <https://elixir.bootlin.com/linux/v6.12/source/include/uapi/linux/vm_sockets.h#L29>.
const SO_VM_SOCKETS_BUFFER_SIZE: i32 = 0;
const SO_VM_SOCKETS_BUFFER_MAX_SIZE: i32 = 2;
const VSOCK: SocketOption = SocketOption {
    on: On::Vsock,
    level: Level::Vsock,
    form: Form::Number { times: 1, read_as: 1, bytes: 8 },
    inherited: true,
    ..SocketOption::NUMBER
};

impl IoOption for Wndsz {
    fn name(&self) -> &'static str {
        "wndsz"
    }

    fn help(&self) -> &'static str {
        "send and receive buffer size, bytes"
    }

    fn flowops(&self) -> Flowops {
        Flowops::Open
    }

    fn value(&self) -> ValueType {
        ValueType::Number { min: 0, max: INT_MAX, zero: Zero::Unset }
    }

    fn effect(&self) -> Effect {
        Effect::Socket(&[
            SocketOption { on: On::Inet, inherited: true, ..SEND },
            SocketOption { on: On::Inet, inherited: true, ..RECEIVE },
            // Unlike the others, an accepted Unix socket does not have the buffers of its listener.
            SocketOption { on: On::Unix, ..SEND },
            SocketOption { on: On::Unix, ..RECEIVE },
            SocketOption { number: SO_VM_SOCKETS_BUFFER_MAX_SIZE, ..VSOCK },
            SocketOption {
                label: Some("wndsz.receive"),
                number: SO_VM_SOCKETS_BUFFER_SIZE,
                ..VSOCK
            },
        ])
    }

    fn described(&self, value: &IoValue) -> Option<String> {
        match value {
            IoValue::Number(bytes) => Some(format!("buffers {}", units::binary(*bytes))),
            _ => None,
        }
    }
}
