//! Options of sockets, setsockopt(2), as data: whoever makes sockets sets any of them and reads any of
//! them back without knowing its name.

use std::time::Duration;

use wirecost_model::profile::IoValue;

use crate::protocols::{Family, Protocol};

/// An option of the kernel that an I/O option sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SocketOption {
    /// How results call it; none where they do not tell what took effect.
    pub label: Option<&'static str>,
    /// Protocols that have it; empty: all.
    pub protocols: &'static [&'static str],
    pub on: On,
    pub level: Level,
    /// The third argument of setsockopt(2).
    pub number: i32,
    pub form: Form,
    /// Whether an accepted connection has it from its listener.
    pub inherited: bool,
    /// Whether the run goes on where the kernel refuses it. The result tells what took effect.
    pub optional: bool,
}

impl SocketOption {
    /// A number, of all sockets.
    pub const NUMBER: Self = Self {
        label: None,
        protocols: &[],
        on: On::Any,
        level: Level::Socket,
        number: 0,
        form: Form::Number { times: 1, read_as: 1, bytes: 4 },
        inherited: false,
        optional: false,
    };

    /// Whether sockets of this protocol may have it. Those of IPv4 and of IPv6 differ besides.
    pub fn is_of(&self, protocol: &dyn Protocol) -> bool {
        let named = self.protocols.is_empty() || self.protocols.contains(&protocol.name());
        let family = match self.on {
            On::Any => true,
            On::Inet | On::Ipv4 | On::Ipv6 => protocol.family() == Family::Inet,
            On::Unix => protocol.family() == Family::Unix,
            On::Vsock => protocol.family() == Family::Vsock,
        };
        named && family
    }
}

/// Which sockets have an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum On {
    Any,
    Inet,
    Ipv4,
    Ipv6,
    Unix,
    Vsock,
}

/// The second argument of setsockopt(2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    Socket,
    Ip,
    Ipv6,
    Tcp,
    Udp,
    Sctp,
    Vsock,
}

/// How the kernel writes the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// An integer of so many bytes: `times` the number of the profile. What is read back is `read_as`
    /// times what took effect.
    Number {
        times: u32,
        read_as: u32,
        bytes: u8,
    },
    /// An integer that counts these units of time.
    Time {
        unit: Duration,
    },
    /// 1.
    Switch,
    Text,
}

/// Bytes of the longest value, which is the name of a congestion control algorithm (TCP_CA_NAME_MAX).
pub const LONGEST_VALUE: usize = 16;

impl Form {
    /// What the kernel is given for this value.
    pub fn kernel_value(self, value: &IoValue) -> Vec<u8> {
        let int = |number: u64| i32::try_from(number).unwrap_or(i32::MAX).to_ne_bytes().to_vec();
        match (self, value) {
            (Form::Number { times, bytes: 8, .. }, IoValue::Number(number)) => {
                number.saturating_mul(times.into()).to_ne_bytes().to_vec()
            }
            (Form::Number { times, .. }, IoValue::Number(number)) => {
                int(number.saturating_mul(times.into()))
            }
            (Form::Time { unit }, IoValue::Time(time)) => {
                // Less than a unit would be none at all.
                let units = time.as_nanos().div_ceil(unit.as_nanos().max(1));
                int(u64::try_from(units).unwrap_or(u64::MAX))
            }
            (Form::Text, IoValue::Text(text)) => text.bytes().take(LONGEST_VALUE - 1).collect(),
            _ => int(1),
        }
    }

    /// What the kernel has written, as profiles write it.
    pub fn shown(self, bytes: &[u8]) -> String {
        let number = || match (bytes.try_into().map(u64::from_ne_bytes), bytes.try_into()) {
            (Ok(long), _) => long,
            (_, Ok(short)) => u64::try_from(i32::from_ne_bytes(short)).unwrap_or(0),
            _ => 0,
        };
        match self {
            Form::Number { read_as, .. } => (number() / u64::from(read_as.max(1))).to_string(),
            Form::Time { unit } => {
                let count = u32::try_from(number()).unwrap_or(u32::MAX);
                crate::language::time(unit.saturating_mul(count))
            }
            Form::Switch => if number() == 0 { "off" } else { "on" }.to_owned(),
            Form::Text => {
                let text = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
                String::from_utf8_lossy(text).into_owned()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_as_the_kernel_reads_them() {
        let number = Form::Number { times: 4, read_as: 4, bytes: 4 };
        assert_eq!(number.kernel_value(&IoValue::Number(46)), 184i32.to_ne_bytes());
        assert_eq!(number.shown(&184i32.to_ne_bytes()), "46");
        let long = Form::Number { times: 1, read_as: 1, bytes: 8 };
        assert_eq!(long.kernel_value(&IoValue::Number(1 << 40)), (1u64 << 40).to_ne_bytes());
        assert_eq!(long.shown(&(1u64 << 40).to_ne_bytes()), (1u64 << 40).to_string());
        let buffer = Form::Number { times: 1, read_as: 2, bytes: 4 };
        let most = IoValue::Number(1 << 40);
        assert_eq!(buffer.kernel_value(&most), i32::MAX.to_ne_bytes());
        assert_eq!(buffer.shown(&8192i32.to_ne_bytes()), "4096");
        let time = Form::Time { unit: Duration::from_millis(1) };
        let written = |time: Duration| IoValue::Time(time);
        assert_eq!(time.kernel_value(&written(Duration::from_secs(5))), 5000i32.to_ne_bytes());
        assert_eq!(time.kernel_value(&written(Duration::from_nanos(1))), 1i32.to_ne_bytes());
        assert_eq!(time.shown(&5000i32.to_ne_bytes()), "5s");
        assert_eq!(Form::Switch.kernel_value(&IoValue::On), 1i32.to_ne_bytes());
        assert_eq!(Form::Switch.shown(&0i32.to_ne_bytes()), "off");
        assert_eq!(Form::Text.kernel_value(&IoValue::Text("cubic".to_owned())), b"cubic");
        assert_eq!(Form::Text.shown(b"cubic\0\0\0"), "cubic");
        // An 8-byte name is not a number of 8 bytes.
        assert_eq!(Form::Text.shown(b"westwood"), "westwood");
    }
}
