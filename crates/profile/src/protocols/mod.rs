//! The facts of the protocols that data can travel by, a file each. [`ALL`] is the only list of them.
//! How their sockets are made is in crate `load`.

pub mod mptcp;
pub mod sctp;
pub mod tcp;
pub mod tls;
pub mod udp;
pub mod unix;
pub mod unix_seqpacket;
pub mod vsock;

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

/// What a protocol promises of the bytes that it carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// Bytes in order and without loss; where one write ends is not kept.
    Stream,
    /// Messages in order and without loss.
    Messages,
    /// Messages that may be lost or overtake one another.
    Datagrams,
}

impl Delivery {
    /// Whether all that was sent arrives, in order.
    pub fn is_reliable(self) -> bool {
        self != Delivery::Datagrams
    }
}

/// One protocol, as far as a profile and a program need to know it.
pub trait Protocol: Sync {
    /// As profiles write it.
    fn name(&self) -> &'static str;

    /// One line for a person: what it is, and what it needs.
    fn help(&self) -> &'static str;

    fn family(&self) -> Family {
        Family::Inet
    }

    fn delivery(&self) -> Delivery;

    /// Whether a TLS session is set up on a connection before anything else.
    fn is_secure(&self) -> bool {
        false
    }

    /// Bytes of the longest message; none where there is no such limit.
    fn longest_message(&self) -> Option<u64> {
        None
    }

    /// Whether TCP_INFO describes its sockets.
    fn has_tcp_info(&self) -> bool {
        false
    }
}

impl std::fmt::Debug for dyn Protocol {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

pub static ALL: &[&dyn Protocol] = &[
    // In this order `wirecost list` shows them.
    &tcp::Tcp,
    &udp::Udp,
    &unix::Unix,
    &unix_seqpacket::UnixSeqpacket,
    &tls::Tls,
    &mptcp::Mptcp,
    &sctp::Sctp,
    &vsock::Vsock,
];

/// The protocol of this name, in lower case.
pub fn find(name: &str) -> Option<&'static dyn Protocol> {
    ALL.iter().copied().find(|protocol| protocol.name() == name)
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
            .filter_map(|file| Some(file.strip_suffix(".rs")?.replace('_', "-")))
            .filter(|name| name != "mod")
            .collect();
        let names: BTreeSet<String> = ALL.iter().map(|p| p.name().to_owned()).collect();
        assert_eq!(files, names);
        assert_eq!(names.len(), ALL.len());
    }
}
