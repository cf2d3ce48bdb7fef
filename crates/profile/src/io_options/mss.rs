use wirecost_model::profile::IoValue;

use super::{Effect, IoOption, ValueType, Zero};
use crate::flowops::Flowops;
use crate::socket_option::{Level, SocketOption};

#[derive(Debug)]
pub struct Mss;

impl IoOption for Mss {
    fn name(&self) -> &'static str {
        "mss"
    }

    fn help(&self) -> &'static str {
        "maximum TCP segment size, bytes"
    }

    fn flowops(&self) -> Flowops {
        Flowops::Open
    }

    fn protocols(&self) -> &'static [&'static str] {
        &["tcp", "tls", "mptcp"]
    }

    fn value(&self) -> ValueType {
        ValueType::Number { min: 1, max: 65535, zero: Zero::Value }
    }

    fn effect(&self) -> Effect {
        Effect::Socket(&[SocketOption {
            label: Some("mss"),
            level: Level::Tcp,
            number: libc::TCP_MAXSEG,
            inherited: true,
            ..SocketOption::NUMBER
        }])
    }

    fn noted(&self) -> bool {
        false
    }

    fn described(&self, value: &IoValue) -> Option<String> {
        match value {
            IoValue::Number(bytes) => Some(format!("mss {bytes}")),
            _ => None,
        }
    }
}
