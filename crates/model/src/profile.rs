//! A profile as meant: what a profile file says once its language has been read and checked.
//!
//! Both languages (uperf's dialect and well-formed XML) end here. Words as in uperf: a *group* of
//! *strands* runs *transactions* in order; a transaction is a list of *flowops* that is repeated a
//! number of times or for a time.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Where something stands in its file: line and column, both from 1; (0, 0) where it has no file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, PartialOrd, Ord)]
pub struct Position {
    pub line: u32,
    pub column: u32,
}

impl std::fmt::Display for Position {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// Description of traffic.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Profile {
    /// A label only; empty where the file gives none.
    pub name: String,
    pub groups: Vec<Group>,
}

/// Strands that all run the same transactions, concurrently with the other groups.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Group {
    pub name: String,
    /// Number of strands (`nthreads` or `nprocs`). 0 is legal and does nothing.
    pub strands: u32,
    pub transactions: Vec<Transaction>,
    pub at: Position,
}

/// A list of flowops and how often it is run. Each transaction is a phase of the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Transaction {
    pub until: Until,
    /// Transactions per second and strand, evenly spaced; only used with `Until::Duration`.
    pub rate: Option<f64>,
    pub flowops: Vec<Flowop>,
    pub at: Position,
}

/// When a strand has done enough of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Until {
    /// This many passes through the flowops; 0 skips the transaction.
    Iterations(u64),
    /// Passes begin until the time is up.
    Duration(Duration),
}

/// The smallest act. `kind` is a name of the list of flowops that the `workload` crate keeps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Flowop {
    pub kind: String,
    pub options: Options,
    pub at: Position,
}

/// Every option a flowop can carry, as meant (sizes in bytes, times as durations).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Options {
    /// How often the flowop is executed each time its turn comes.
    pub count: u64,
    /// Inner repeats of one execution (datagram protocols).
    pub repeat: u64,
    /// Bytes per operation. `sendfile` without it sends whole files.
    pub size: Option<Size>,
    /// Bytes per operation on the peer, where they are to differ from `size`.
    pub rsize: Option<u64>,
    /// Connections of the strand that the flowop acts on, one after another; 0 is the anonymous one.
    pub conn: Conns,
    pub remotehost: Option<String>,
    /// A name of the list of protocols that the `workload` crate keeps.
    pub protocol: Option<String>,
    /// Data port of the accepting side; none lets the kernel choose.
    pub port: Option<u16>,
    pub tcp_nodelay: bool,
    /// SO_SNDBUF and SO_RCVBUF, bytes.
    pub wndsz: Option<u64>,
    /// TCP congestion control.
    pub cc: Option<String>,
    /// TCP_MAXSEG, bytes.
    pub mss: Option<u32>,
    /// Differentiated services code point, 0 to 63.
    pub dscp: Option<u8>,
    /// SO_BUSY_POLL, microseconds.
    pub busy_poll: Option<u32>,
    /// TCP_NOTSENT_LOWAT, bytes.
    pub notsent_lowat: Option<u32>,
    /// Local address to bind the connecting side to.
    pub bind: Option<String>,
    /// Longest wait of one operation.
    pub timeout: Option<Duration>,
    /// How long to think.
    pub duration: Option<Duration>,
    /// Think by spinning instead of sleeping.
    pub busy: bool,
    pub non_blocking: bool,
    /// A failure is counted and the strand goes on.
    pub canfail: bool,
    /// File or directory to send.
    pub dir: Option<String>,
    /// Use only the first this many files of `dir`.
    pub nfiles: Option<u64>,
    pub payload: Payload,
    /// The receiver compares what arrives with what was sent.
    pub verify: bool,
    pub io: Io,
    /// Known options that nothing executes yet, as written; `run` refuses a profile that has any.
    pub unbuilt: BTreeMap<String, String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            count: 1,
            repeat: 1,
            size: None,
            rsize: None,
            conn: Conns::default(),
            remotehost: None,
            protocol: None,
            port: None,
            tcp_nodelay: false,
            wndsz: None,
            cc: None,
            mss: None,
            dscp: None,
            busy_poll: None,
            notsent_lowat: None,
            bind: None,
            timeout: None,
            duration: None,
            busy: false,
            non_blocking: false,
            canfail: false,
            dir: None,
            nfiles: None,
            payload: Payload::default(),
            verify: false,
            io: Io::default(),
            unbuilt: BTreeMap::new(),
        }
    }
}

/// By which way of the kernel bytes come and go. The default is a call for each operation, which
/// copies: all else does less than what most programs do, and is said in the result.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Io {
    /// Streams: TCP_CORK while the flowop's messages of one turn are sent.
    pub tcp_cork: bool,
    /// Streams: MSG_ZEROCOPY.
    pub zerocopy: bool,
    /// Datagrams that the kernel cuts from one message (UDP_SEGMENT).
    pub gso: Option<u32>,
    /// The kernel joins datagrams (UDP_GRO).
    pub gro: bool,
    /// Messages of one sendmmsg or recvmmsg.
    pub batch: Option<u32>,
    /// Streams: the receiver has the kernel drop the bytes (MSG_TRUNC).
    pub discard: bool,
    /// Streams: bytes go through a pipe: from the receiver's socket to its sink, or from the file of
    /// `sendfile` to the socket.
    pub splice: bool,
    /// Directory in which the receiver keeps what it receives.
    pub sink: Option<String>,
    /// Bytes of all files of `sink` at a host; one that is full is written anew from its beginning.
    pub sink_size: Option<u64>,
    /// Files are read and written past the page cache (O_DIRECT).
    pub o_direct: bool,
}

impl Io {
    /// Datagrams of one execution: those of one call.
    pub fn datagrams(&self) -> u64 {
        u64::from(self.gso.unwrap_or(1).max(1)) * u64::from(self.batch.unwrap_or(1).max(1))
    }
}

/// Bytes of one operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Size {
    Fixed(u64),
    /// Uniform, both ends included.
    Random {
        min: u64,
        max: u64,
    },
}

impl Size {
    /// The largest size it can be.
    pub fn max(self) -> u64 {
        match self {
            Size::Fixed(n) => n,
            Size::Random { max, .. } => max,
        }
    }
}

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Size::Fixed(n) => f.write_str(&crate::units::binary(*n)),
            Size::Random { min, max } => {
                write!(f, "rand({},{})", crate::units::binary(*min), crate::units::binary(*max))
            }
        }
    }
}

/// A connection of a strand, or a run of them (`conn=1..100`), both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Conns {
    pub first: u32,
    pub last: u32,
}

impl Conns {
    pub fn one(id: u32) -> Self {
        Self { first: id, last: id }
    }

    pub fn contains(self, id: u32) -> bool {
        (self.first..=self.last).contains(&id)
    }
}

impl std::fmt::Display for Conns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.first == self.last {
            write!(f, "{}", self.first)
        } else {
            write!(f, "{}..{}", self.first, self.last)
        }
    }
}

/// What the bytes are. Random is the default because links, tunnels and disks that compress make a
/// constant payload look better than real traffic.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Payload {
    #[default]
    Random,
    Zero,
    /// The content of this file, repeated.
    File(String),
}
