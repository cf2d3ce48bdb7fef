use wirecost_model::profile::IoValue;

use super::{Effect, IoOption, ValueType};
use crate::flowops::Flowops;
use crate::language::code_point;
use crate::socket_option::{Level, On, SocketOption};

/// The whole byte of which `dscp` is the upper six bits. TCP keeps the lower two for itself (RFC 3168).
#[derive(Debug)]
pub struct Tos;

/// A name stands for the upper six bits.
const TIMES: u64 = 4;
const MAX: u64 = 255;

const TOS: SocketOption =
    SocketOption { label: Some("tos"), inherited: true, ..SocketOption::NUMBER };

impl IoOption for Tos {
    fn name(&self) -> &'static str {
        "tos"
    }

    fn help(&self) -> &'static str {
        "IP_TOS, IPV6_TCLASS: type of service of IP packets: 0 to 255, or a code point such as ef, af41, cs1"
    }

    fn flowops(&self) -> Flowops {
        Flowops::Open
    }

    fn value(&self) -> ValueType {
        ValueType::CodePoint { times: TIMES, max: MAX }
    }

    fn effect(&self) -> Effect {
        Effect::Socket(&[
            SocketOption { on: On::Ipv4, level: Level::Ip, number: libc::IP_TOS, ..TOS },
            SocketOption { on: On::Ipv6, level: Level::Ipv6, number: libc::IPV6_TCLASS, ..TOS },
        ])
    }
}

/// A value as it is written.
pub fn read(text: &str) -> Option<IoValue> {
    code_point(text, TIMES, MAX).map(IoValue::Number)
}
