//! How sockets of each protocol are made, a file each. [`ALL`] is the only list of them. What a
//! program needs to know of a protocol is in [`wirecost_profile::protocols`].

mod mptcp;
mod sctp;
pub(crate) mod tcp;
mod tls;
pub(crate) mod udp;
mod unix;
mod unix_seqpacket;
mod vsock;

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use wirecost_linux::tcp_info::TcpInfo;
use wirecost_model::plan::Address;
use wirecost_model::profile::Options;
use wirecost_profile::protocols::Protocol;
use wirecost_program::calls::EffectiveSetting;
use wirecost_program::socket_setup::SocketSetup;

use crate::socket_options;

/// How the sockets of one protocol are made. Moving bytes is the same for all.
pub trait Transport: Sync {
    /// Its facts.
    fn protocol(&self) -> &'static dyn Protocol;

    /// Bytes that one call may at most be given to send, where the kernel would refuse more.
    fn longest_send(&self, _: &OwnedFd) -> usize {
        usize::MAX
    }

    /// Bytes of the longest message that a connection with these options carries whole; none where
    /// there is no such limit.
    ///
    /// # Errors
    /// Those of asking a socket.
    fn longest_message(&self, _: &SocketSetup) -> io::Result<Option<u64>> {
        Ok(self.protocol().longest_message())
    }

    /// What TCP_INFO tells of a socket.
    fn tcp_info(&self, _: &OwnedFd) -> Option<TcpInfo> {
        None
    }

    /// What of it this host cannot do, with the remedy: found by trying, before a run begins.
    fn missing(&self, _: &Options) -> Option<String> {
        None
    }

    /// A non-blocking socket that accepts at `address` (port 0: the kernel chooses), and where.
    ///
    /// # Errors
    /// Those of socket, setsockopt, bind and listen.
    fn listen(&self, address: &Address, setup: &SocketSetup) -> io::Result<(OwnedFd, Address)>;

    /// A non-blocking socket whose connection to `address` is under way.
    ///
    /// # Errors
    /// Those of socket, setsockopt, bind and connect.
    fn connect(&self, address: &Address, setup: &SocketSetup) -> io::Result<OwnedFd>;

    /// The same from an address and port of this host's.
    ///
    /// # Errors
    /// The same; `AddrInUse` where another socket has the port; `Unsupported` of a protocol without ports.
    fn connect_from(
        &self,
        _from: SocketAddr,
        _address: &Address,
        _setup: &SocketSetup,
    ) -> io::Result<OwnedFd> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Sets what an accepted connection does not have from its listener.
    ///
    /// # Errors
    /// Those of setsockopt.
    fn accepted(&self, socket: &OwnedFd, setup: &SocketSetup) -> io::Result<()> {
        socket_options::set_accepted(socket, setup)
    }

    /// Whether only a listener that poll(2) finds ready may be asked to accept.
    fn polls_before_accept(&self) -> bool {
        false
    }

    /// Whether an event without an error that tells that bytes can be sent tells that it is connected.
    fn tells_connected(&self) -> bool {
        false
    }

    /// Whether a wait for bytes can be for many of them (SO_RCVLOWAT).
    fn has_low_water(&self) -> bool {
        false
    }

    /// Whether a ring cannot move its bytes: they are encrypted here, or go through TLS of the
    /// kernel, or the protocol wants its calls in a way of its own. The ring only tells when to
    /// make them.
    fn bypasses_ring(&self) -> bool {
        self.protocol().is_secure() || self.polls_before_accept()
    }

    /// Looks at a connection that has just come about, on either side, and says what is to be
    /// known.
    ///
    /// # Errors
    /// Why it is not what was asked for.
    fn opened(&self, _: &OwnedFd) -> io::Result<Option<EffectiveSetting>> {
        Ok(None)
    }

    /// What a connection that is about to be closed has turned into meanwhile.
    fn closing(&self, _: &OwnedFd) -> Option<EffectiveSetting> {
        None
    }
}

pub static ALL: &[&dyn Transport] = &[
    // In the order of the protocols.
    &tcp::Tcp,
    &udp::Udp,
    &unix::Unix,
    &unix_seqpacket::UnixSeqpacket,
    &tls::Tls,
    &mptcp::Mptcp,
    &sctp::Sctp,
    &vsock::Vsock,
];

impl std::fmt::Debug for dyn Transport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.protocol().name())
    }
}

/// The transport of the protocol of this name, in lower case.
pub fn find(name: &str) -> Option<&'static dyn Transport> {
    ALL.iter().copied().find(|transport| transport.protocol().name() == name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use wirecost_profile::protocols;

    use super::*;

    #[test]
    fn every_protocol_has_a_transport() {
        let names = |all: Vec<&'static str>| all.into_iter().collect::<BTreeSet<_>>();
        let transports = names(ALL.iter().map(|transport| transport.protocol().name()).collect());
        assert_eq!(transports, names(protocols::ALL.iter().map(|p| p.name()).collect()));
        assert_eq!(transports.len(), ALL.len());
    }
}
