use wirecost_model::profile::IoValue;

use super::{Effect, IoOption, ValueType};
use crate::flowops::Flowops;
use crate::socket_option::{Form, Level, On, SocketOption};

#[derive(Debug)]
pub struct Dscp;

/// The code point is in the upper six bits (RFC 2474).
const CLASS: Form = Form::Number { times: 4, read_as: 4, bytes: 4 };

impl IoOption for Dscp {
    fn name(&self) -> &'static str {
        "dscp"
    }

    fn help(&self) -> &'static str {
        "differentiated services code point: 0 to 63, or a name such as ef, af41, cs1"
    }

    fn flowops(&self) -> Flowops {
        Flowops::Open
    }

    fn value(&self) -> ValueType {
        ValueType::CodePoint { times: 1, max: 63 }
    }

    fn effect(&self) -> Effect {
        Effect::Socket(&[
            SocketOption {
                label: Some("dscp"),
                on: On::Ipv4,
                level: Level::Ip,
                number: libc::IP_TOS,
                form: CLASS,
                inherited: true,
                ..SocketOption::NUMBER
            },
            SocketOption {
                label: Some("dscp"),
                on: On::Ipv6,
                level: Level::Ipv6,
                number: libc::IPV6_TCLASS,
                form: CLASS,
                inherited: true,
                ..SocketOption::NUMBER
            },
        ])
    }

    fn described(&self, value: &IoValue) -> Option<String> {
        match value {
            IoValue::Number(point) => Some(format!("dscp {point}")),
            _ => None,
        }
    }
}
