//! The protocols data can travel by, a file each. [`ALL`] is the only list of them.

mod mptcp;
mod sctp;
mod tcp;
mod tls;
mod udp;
mod unix;
mod vsock;

use std::io;
use std::os::fd::OwnedFd;

use wirecost_linux::tcp_info::TcpInfo;
use wirecost_model::plan::Address;
use wirecost_model::profile::Options;

/// What kind of addresses a protocol has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// IPv4 and IPv6.
    Inet,
    /// Paths: no further than the machine.
    Unix,
    /// Numbers of virtual machines.
    Vsock,
}

/// One protocol: how its sockets are made. Moving bytes is the same for all.
pub trait Protocol: Sync {
    /// As profiles write it.
    fn name(&self) -> &'static str;

    /// One line for a person: what it is, and what it needs.
    fn help(&self) -> &'static str;

    fn family(&self) -> Family {
        Family::Inet
    }

    /// Whether bytes come in order and without loss; else datagrams that may be lost.
    fn stream(&self) -> bool;

    /// Whether a TLS session is set up on a connection before anything else.
    fn is_secure(&self) -> bool {
        false
    }

    /// Bytes of the longest message; none where there is no such limit.
    fn longest_message(&self) -> Option<u64> {
        None
    }

    /// Bytes that one call may at most be given to send, where the kernel would refuse more.
    fn longest_send(&self, _: &OwnedFd) -> usize {
        usize::MAX
    }

    /// Whether TCP_INFO tells of its sockets.
    fn has_tcp_info(&self) -> bool {
        false
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
    fn listen(&self, address: &Address, options: &Options) -> io::Result<(OwnedFd, Address)>;

    /// A non-blocking socket whose connection to `address` is under way.
    ///
    /// # Errors
    /// Those of socket, setsockopt, bind and connect.
    fn connect(&self, address: &Address, options: &Options) -> io::Result<OwnedFd>;

    /// Sets what an accepted connection does not have from its listener.
    ///
    /// # Errors
    /// Those of setsockopt.
    fn accepted(&self, socket: &OwnedFd, options: &Options) -> io::Result<()>;

    /// Whether only a listener that poll(2) finds ready may be asked to accept.
    fn polls_before_accept(&self) -> bool {
        false
    }

    /// Whether a wait for bytes can be for many of them (SO_RCVLOWAT).
    fn has_low_water(&self) -> bool {
        false
    }

    /// Whether a ring cannot move its bytes: they are encrypted here, or go through TLS of the kernel,
    /// or the protocol wants its calls in a way of its own. The ring only tells when to make them.
    fn by_calls(&self) -> bool {
        self.is_secure() || self.polls_before_accept()
    }

    /// Looks at a connection that has just come about, on either side, and says what is to be known.
    ///
    /// # Errors
    /// Why it is not what was asked for.
    fn opened(&self, _: &OwnedFd) -> io::Result<Option<Granted>> {
        Ok(None)
    }

    /// What a connection that is about to be closed has turned into meanwhile.
    fn closing(&self, _: &OwnedFd) -> Option<Granted> {
        None
    }

    /// What the kernel granted of what was asked: (name, asked, granted).
    fn granted(&self, socket: &OwnedFd, options: &Options) -> Vec<Granted>;
}

/// A socket option as asked for and as the kernel keeps it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Granted {
    pub name: &'static str,
    pub asked: String,
    pub granted: String,
}

pub static ALL: [&dyn Protocol; 7] =
    [&tcp::Tcp, &udp::Udp, &unix::Unix, &tls::Tls, &mptcp::Mptcp, &sctp::Sctp, &vsock::Vsock];

/// The protocol of this name, in lower case.
pub fn find(name: &str) -> Option<&'static dyn Protocol> {
    ALL.into_iter().find(|protocol| protocol.name() == name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_file_of_the_folder_is_listed_once() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/protocols");
        let files: BTreeSet<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter_map(|file| Some(file.strip_suffix(".rs")?.to_owned()))
            .filter(|name| name != "mod")
            .collect();
        let names: BTreeSet<String> = ALL.iter().map(|p| p.name().to_owned()).collect();
        assert_eq!(files, names);
        assert_eq!(names.len(), ALL.len());
    }
}
