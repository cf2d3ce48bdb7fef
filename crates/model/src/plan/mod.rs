//! The plan of a run: what the controller tells each agent to do, and what the agents answer before
//! anything moves.

mod bounded;
mod check;
mod extent;
pub(crate) mod io_limits;
pub mod limits;

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::clock::Nanos;
use crate::congestion::CongestionObject;
use crate::program::{Program, Side};
use crate::rss::DeviceSpreading;

pub use bounded::bounded;
pub(crate) use bounded::{Weight, bounded_in_all};
pub use check::{LimitError, at_least, at_most, open_at_once, text};
pub use extent::Extent;
pub use io_limits::{IoLimits, Sink};

/// Name of the engine by which workers wait for I/O. Which engines there are is for crate `load` to
/// say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EngineName(Cow<'static, str>);

impl EngineName {
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for EngineName {
    fn default() -> Self {
        "epoll".into()
    }
}

impl From<&'static str> for EngineName {
    fn from(name: &'static str) -> Self {
        Self(name.into())
    }
}

impl std::fmt::Display for EngineName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// What each host has, or hosts by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PerHost<T> {
    /// Of each host that is not named; none leaves it to the host.
    each: Option<T>,
    of: Vec<(String, T)>,
}

/// How many workers hosts have.
pub type Workers = PerHost<u32>;

/// On which CPUs the workers of hosts run.
pub type WorkerCpus = PerHost<Vec<u32>>;

impl<T> Default for PerHost<T> {
    fn default() -> Self {
        Self { each: None, of: Vec::new() }
    }
}

impl<T> PerHost<T> {
    /// Of the host of this name on this side. Its name counts for more than `master` or `peer`.
    #[must_use]
    pub fn of(&self, host: &str, side: Side) -> Option<&T> {
        let named = |name: &str| self.of.iter().find(|(of, _)| of == name).map(|(_, value)| value);
        named(host).or_else(|| named(side.name())).or(self.each.as_ref())
    }

    /// Hosts that are named, `master` and `peer` among them.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.of.iter().map(|(name, _)| name.as_str())
    }

    /// For one host, or for each that is not named.
    ///
    /// # Errors
    /// It was set before.
    pub fn set(&mut self, host: Option<&str>, value: T) -> Result<(), String> {
        match host {
            None if self.each.is_none() => self.each = Some(value),
            Some(name) if self.names().all(|known| known != name) => {
                self.of.push((name.to_owned(), value));
            }
            None => return Err("each host has two values".to_owned()),
            Some(name) => return Err(format!("{name} has two values")),
        }
        Ok(())
    }
}

impl std::str::FromStr for Workers {
    type Err = String;

    /// `4`, or `master=4,peer=1`.
    fn from_str(text: &str) -> Result<Self, String> {
        use limits::WORKERS;
        let count = |text: &str| {
            let count = text.trim().parse().ok().filter(|count| (1..=WORKERS).contains(count));
            count.ok_or_else(|| format!("a host has 1 to {WORKERS} workers, and not {text:?}"))
        };
        let mut workers = Self::default();
        for part in text.split(',') {
            match part.split_once('=') {
                None => workers.set(None, count(part)?)?,
                Some((name, number)) => workers.set(Some(name.trim()), count(number)?)?,
            }
        }
        Ok(workers)
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
    pub engine: EngineName,
    /// Number of workers; none leaves it to the host.
    pub workers: Option<u32>,
    /// CPUs in the order in which workers are to be pinned to them; empty: not pinned.
    pub cpus: Vec<u32>,
    /// Whether another host of the run uses the same CPUs.
    #[serde(default)]
    pub shares_cpus: bool,
    pub interval: Nanos,
    pub program: Program,
    /// Where this host accepts; none if it is not known and the wildcard address must do.
    pub data_address: Option<IpAddr>,
    /// Connections that a worker samples with TCP_INFO; where each has a thread of its own, those that
    /// a host samples.
    pub tcp_samples: u32,
    /// Whether each strand and each group is reported by itself too.
    #[serde(default)]
    pub details: bool,
    /// Single operations that are reported, from the beginning of the run.
    #[serde(default)]
    pub logged_operations: u64,
    /// Whether some sockets have the kernel stamp what comes to them ([`crate::receive_stamps`]).
    #[serde(default)]
    pub receive_stamps: bool,
    /// Congestion control of the user's that its connections choose.
    #[serde(default, deserialize_with = "bounded::<_, _, { limits::CONGESTION_OBJECTS }>")]
    pub congestion_objects: Vec<CongestionObject>,
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
    #[serde(deserialize_with = "bounded::<_, _, { 2 * limits::ADDRESSES }>")]
    pub addresses: Vec<Address>,
    /// Addresses of strand `s` are `per_strand` many from index `of_strand[s]`.
    pub of_strand: Vec<u32>,
    pub per_strand: u32,
    /// Which of the addresses data goes to once a hello has been answered; none: that of the hello.
    #[serde(default)]
    pub data: Option<u32>,
}

impl ServiceAddresses {
    /// Where data goes to once a hello has been answered, if not to where the hello goes.
    #[must_use]
    pub fn data_address(&self) -> Option<Address> {
        self.addresses.get(self.data? as usize).cloned()
    }
}

/// What an agent answers once its workers are up and its services listen.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Prepared {
    pub workers: u32,
    /// In the order of the program's services.
    #[serde(deserialize_with = "bounded::<_, _, { limits::SERVICES }>")]
    pub services: Vec<ServiceAddresses>,
    /// What its TLS services prove themselves by (DER), made for this run; none if it has none.
    pub certificate: Option<Vec<u8>>,
    /// Where the agent says that it has agreed to receive; none if it accepts nothing.
    #[serde(deserialize_with = "bounded::<_, _, { limits::CONSENTS }>")]
    pub consent: Vec<Address>,
    /// How the device by which its services receive spreads packets over queues; none where it does not tell.
    #[serde(default)]
    pub spreading: Option<DeviceSpreading>,
    /// Addresses that this host connects from, where that is known; services turn away others.
    pub connects_from: Vec<Address>,
    /// Sizes of the files that a `sendfile` of this host draws from.
    #[serde(deserialize_with = "bounded::<_, _, { limits::ACTS }>")]
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
    #[serde(deserialize_with = "bounded::<_, _, { limits::HOSTS }>")]
    pub hosts: Vec<Prepared>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_are_of_each_host_or_of_those_that_are_named() {
        let of = |text: &str, host, side| text.parse::<Workers>().unwrap().of(host, side).copied();
        assert_eq!(of("4", "h1", Side::Master), Some(4));
        assert_eq!(of("master=4,peer=1", "h1", Side::Master), Some(4));
        assert_eq!(of("master=4, peer=1", "h2", Side::Peer), Some(1));
        assert_eq!(of("master=4", "h2", Side::Peer), None);
        assert_eq!(of("2,peer=3,h3=5", "h3", Side::Peer), Some(5));
        assert_eq!(of("2,peer=3,h3=5", "h2", Side::Peer), Some(3));
        assert_eq!(of("2,peer=3,h3=5", "h1", Side::Master), Some(2));
        assert_eq!(Workers::default().of("h1", Side::Master), None);
        for bad in ["", "0", "x", "4097", "1,2", "h1=1,h1=2", "h1="] {
            assert!(bad.parse::<Workers>().is_err(), "{bad}");
        }
    }
}
