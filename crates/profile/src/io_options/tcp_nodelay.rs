use wirecost_model::profile::IoValue;

use super::{Effect, IoOption, ValueType};
use crate::flowops::Flowops;
use crate::socket_option::{Form, Level, SocketOption};

#[derive(Debug)]
pub struct TcpNodelay;

impl IoOption for TcpNodelay {
    fn name(&self) -> &'static str {
        "tcp_nodelay"
    }

    fn help(&self) -> &'static str {
        "TCP_NODELAY: send small writes immediately"
    }

    fn flowops(&self) -> Flowops {
        Flowops::Open
    }

    fn protocols(&self) -> &'static [&'static str] {
        &["tcp", "tls", "mptcp", "sctp"]
    }

    fn value(&self) -> ValueType {
        ValueType::Flag
    }

    fn effect(&self) -> Effect {
        Effect::Socket(&[
            // An accepted connection is a copy of its listener's socket, `nonagle` included:
            // https://elixir.bootlin.com/linux/v6.12/source/net/ipv4/tcp_minisocks.c#L529
            SocketOption {
                protocols: &["tcp", "tls"],
                level: Level::Tcp,
                number: libc::TCP_NODELAY,
                inherited: true,
                form: Form::Switch,
                ..SocketOption::NUMBER
            },
            SocketOption {
                protocols: &["mptcp"],
                level: Level::Tcp,
                number: libc::TCP_NODELAY,
                form: Form::Switch,
                ..SocketOption::NUMBER
            },
            SocketOption {
                protocols: &["sctp"],
                level: Level::Sctp,
                number: libc::SCTP_NODELAY,
                form: Form::Switch,
                ..SocketOption::NUMBER
            },
        ])
    }

    fn noted(&self) -> bool {
        false
    }

    fn described(&self, _: &IoValue) -> Option<String> {
        Some("nodelay".to_owned())
    }
}
