use std::time::Duration;

use super::{Effect, IoOption, ValueType};
use crate::flowops::Flowops;
use crate::socket_option::{Form, Level, SocketOption};

#[derive(Debug)]
pub struct TcpUserTimeout;

/// The kernel counts milliseconds (tcp(7)).
const UNIT: Duration = Duration::from_millis(1);

impl IoOption for TcpUserTimeout {
    fn name(&self) -> &'static str {
        "tcp_user_timeout"
    }

    fn help(&self) -> &'static str {
        "TCP_USER_TIMEOUT: longest time that sent data may stay unacknowledged, such as 5s"
    }

    fn flowops(&self) -> Flowops {
        Flowops::Open
    }

    fn protocols(&self) -> &'static [&'static str] {
        &["tcp", "tls"]
    }

    fn value(&self) -> ValueType {
        ValueType::Time { min: UNIT, max: Duration::from_millis(i32::MAX as u64) }
    }

    fn effect(&self) -> Effect {
        Effect::Socket(&[SocketOption {
            label: Some("tcp_user_timeout"),
            level: Level::Tcp,
            number: libc::TCP_USER_TIMEOUT,
            form: Form::Time { unit: UNIT },
            ..SocketOption::NUMBER
        }])
    }
}
