use wirecost_model::profile::IoValue;

use super::{Effect, IoOption, ValueType};
use crate::flowops::Flowops;
use crate::socket_option::{Form, Level, SocketOption};

#[derive(Debug)]
pub struct Cc;

impl IoOption for Cc {
    fn name(&self) -> &'static str {
        "cc"
    }

    fn help(&self) -> &'static str {
        "TCP congestion control: a name of the kernel, such as cubic; bpf-bic: BIC as a BPF program that the run loads"
    }

    fn flowops(&self) -> Flowops {
        Flowops::Open
    }

    fn protocols(&self) -> &'static [&'static str] {
        &["tcp", "tls", "mptcp"]
    }

    fn value(&self) -> ValueType {
        ValueType::Text
    }

    fn effect(&self) -> Effect {
        Effect::Socket(&[SocketOption {
            label: Some("cc"),
            level: Level::Tcp,
            number: libc::TCP_CONGESTION,
            form: Form::Text,
            inherited: true,
            ..SocketOption::NUMBER
        }])
    }

    fn noted(&self) -> bool {
        false
    }

    fn described(&self, value: &IoValue) -> Option<String> {
        match value {
            IoValue::Text(name) => Some(format!("congestion control {name}")),
            _ => None,
        }
    }
}
