use super::{Effect, IoOption, ValueType, Zero};
use crate::flowops::Flowops;
use crate::socket_option::{Form, Level, SocketOption};

#[derive(Debug)]
pub struct BusyPoll;

/// Microseconds. With a longer time the kernel would hold a CPU for one call.
const LONGEST: u64 = 1_000_000;

impl IoOption for BusyPoll {
    fn name(&self) -> &'static str {
        "busy_poll"
    }

    fn help(&self) -> &'static str {
        "SO_BUSY_POLL: microseconds to poll the device while waiting"
    }

    fn flowops(&self) -> Flowops {
        Flowops::Open
    }

    fn protocols(&self) -> &'static [&'static str] {
        &["tcp", "udp", "tls", "mptcp", "sctp"]
    }

    fn value(&self) -> ValueType {
        ValueType::Number { min: 0, max: LONGEST, zero: Zero::Unset }
    }

    fn effect(&self) -> Effect {
        Effect::Socket(&[
            SocketOption {
                label: Some("busy_poll"),
                level: Level::Socket,
                number: libc::SO_BUSY_POLL,
                optional: true,
                ..SocketOption::NUMBER
            },
            SocketOption {
                label: Some("busy_poll.prefer"),
                level: Level::Socket,
                number: libc::SO_PREFER_BUSY_POLL,
                form: Form::Switch,
                optional: true,
                ..SocketOption::NUMBER
            },
        ])
    }

    fn counters(&self) -> &'static [&'static str] {
        &["polling", "polled"]
    }
}
