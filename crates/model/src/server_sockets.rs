//! Which sockets a server receives datagrams on, or accepts connections at.

use std::fmt;
use std::str::FromStr;

/// How many sockets receive the datagrams of a group's connections, and which of them receives a datagram. Over TCP,
/// the sockets are listeners, and what they receive are new connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerSockets {
    /// Each connection has a socket of its own, which only its client can send to; over TCP, the strand of the same
    /// number serves it, on whichever worker that is.
    PerConnection,
    /// Each worker has one. A datagram goes to that of the CPU which handled the packet.
    PerWorker,
    /// All workers read from one socket.
    Shared,
}

impl ServerSockets {
    pub const NAMES: &[&str] = &["per-connection", "per-worker", "shared"];
    const ALL: [Self; 3] = [Self::PerConnection, Self::PerWorker, Self::Shared];

    #[must_use]
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}

impl FromStr for ServerSockets {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|sockets| sockets.name() == text);
        found.ok_or_else(|| format!("must be one of {}", Self::NAMES.join(", ")))
    }
}

impl fmt::Display for ServerSockets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_its_name() {
        for (sockets, name) in ServerSockets::ALL.into_iter().zip(ServerSockets::NAMES) {
            assert_eq!((sockets.name(), name.parse()), (*name, Ok(sockets)));
        }
        assert!("one".parse::<ServerSockets>().is_err());
    }
}
