use super::{Effect, INT_MAX, IoOption, ValueType, Zero};
use crate::flowops::Flowops;
use crate::socket_option::{Level, SocketOption};

#[derive(Debug)]
pub struct NotsentLowat;

impl IoOption for NotsentLowat {
    fn name(&self) -> &'static str {
        "notsent_lowat"
    }

    fn help(&self) -> &'static str {
        "TCP_NOTSENT_LOWAT: unsent bytes above which the socket is not writable"
    }

    fn flowops(&self) -> Flowops {
        Flowops::Open
    }

    fn protocols(&self) -> &'static [&'static str] {
        &["tcp", "tls", "mptcp"]
    }

    fn value(&self) -> ValueType {
        ValueType::Number { min: 1, max: INT_MAX, zero: Zero::Value }
    }

    fn effect(&self) -> Effect {
        Effect::Socket(&[SocketOption {
            label: Some("notsent_lowat"),
            level: Level::Tcp,
            number: libc::TCP_NOTSENT_LOWAT,
            ..SocketOption::NUMBER
        }])
    }
}
