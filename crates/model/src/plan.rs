//! The plan of a run: what the controller tells each agent to do, and what the agents answer before
//! anything moves.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::clock::Nanos;
use crate::program::Program;

/// How a worker waits for I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EngineKind {
    /// Workers with an event loop that runs many strands each.
    #[default]
    Epoll,
    /// The same, with a ring of the kernel that takes many operations by one system call.
    IoUring,
    /// uperf's model: a blocking thread for each strand.
    Threads,
}

impl EngineKind {
    pub const ALL: [EngineKind; 3] = [EngineKind::Epoll, EngineKind::IoUring, EngineKind::Threads];

    pub fn name(self) -> &'static str {
        match self {
            EngineKind::Epoll => "epoll",
            EngineKind::IoUring => "io_uring",
            EngineKind::Threads => "threads",
        }
    }

    /// Whether a worker of it runs many strands.
    pub fn shares_threads(self) -> bool {
        self != EngineKind::Threads
    }
}

/// What one host is to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Shared secret of the run's hosts: who can name it has agreed to take part.
    pub token: String,
    /// Seed of everything random; the same on all hosts, so both ends of a connection draw alike.
    pub seed: u64,
    /// This host's index in the run.
    pub host: u32,
    pub engine: EngineKind,
    /// Number of workers; none leaves it to the host.
    pub workers: Option<u32>,
    /// CPUs in the order in which workers are to be pinned to them; empty: not pinned.
    pub cpus: Vec<u32>,
    pub interval: Nanos,
    pub program: Program,
    /// Where this host accepts; none if it is not known and the wildcard address must do.
    pub data_address: Option<IpAddr>,
    /// Connections that a worker samples with TCP_INFO; where each has a thread of its own, those that
    /// a host samples.
    pub tcp_samples: u32,
}

/// An address of a data socket.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Address {
    Inet(SocketAddr),
    Unix(PathBuf),
    /// Between machines, and between a virtual machine and its host (vsock(7)).
    Vsock {
        cid: u32,
        port: u32,
    },
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Address::Inet(address) => address.fmt(f),
            Address::Unix(path) => path.display().fmt(f),
            Address::Vsock { cid, port } => write!(f, "vsock:{cid}:{port}"),
        }
    }
}

/// How the acceptor knows whose connection it has accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Identity {
    /// Each strand has addresses of its own; the workload's bytes are the only ones sent.
    Address,
    /// Strands share addresses; the first bytes of a connection (or the first datagram) say whose.
    Hello,
}

/// A service as it listens.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ServiceAddresses {
    pub identity: Identity,
    pub addresses: Vec<Address>,
    /// Addresses of strand `s` are `per_strand` many from index `of_strand[s]`.
    pub of_strand: Vec<u32>,
    pub per_strand: u32,
}

/// What an agent answers once its workers are up and its services listen.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Prepared {
    pub workers: u32,
    /// In the order of the program's services.
    pub services: Vec<ServiceAddresses>,
    /// What its TLS services prove themselves by (DER), made for this run; none if it has none.
    pub certificate: Option<Vec<u8>>,
    /// Where the agent says that it has agreed to receive; none if it accepts nothing.
    pub consent: Vec<Address>,
    /// Addresses that this host connects from, where that is known; services turn away others.
    pub connects_from: Vec<Address>,
    /// Sizes of the files that a `sendfile` of this host draws from.
    pub files: Vec<FileSizes>,
}

/// Sizes in bytes of the files of one `sendfile`, in the order in which they are drawn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSizes {
    pub group: u32,
    pub phase: u32,
    pub flowop: u32,
    pub sizes: Vec<u64>,
}

/// What every agent needs to know of the others before it connects, in the order of the run's hosts.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Endpoints {
    pub hosts: Vec<Prepared>,
}
