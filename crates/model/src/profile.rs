//! A profile as meant: what a profile file says once its language has been read and checked.
//!
//! All languages (uperf's dialect, well-formed XML, TOML) end here. Words as in uperf: a *group* of
//! *strands* runs *transactions* in order; a transaction is a list of *flowops* that is repeated a
//! number of times or for a time.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use crate::quantity::{ByStrand, IMIX, Quantity, Weighted};

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
    /// Whether uperf would run each strand as a process (`nprocs`). Here it changes a label only.
    #[serde(default)]
    pub processes: bool,
    pub transactions: Vec<Transaction>,
    pub at: Position,
}

/// A list of flowops and how often it is run. Each transaction is a phase of the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Transaction {
    pub until: Until,
    /// When transactions are meant to begin, where that does not depend on when others end (open
    /// loop); only used with `Until::Duration`.
    pub arrivals: Option<Arrivals>,
    /// Every flowop, in the order of the file.
    pub flowops: Vec<Flowop>,
    /// How the flowops follow one another; empty where they do so once each, in their order.
    #[serde(default)]
    pub order: Vec<Part>,
    pub at: Position,
}

/// Intended starts of a strand's transactions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arrivals {
    /// So many per second and strand, evenly spaced.
    Even(f64),
    /// So many per second and strand on average, each independent of the others.
    Poisson(f64),
    Trace(Trace),
}

impl Arrivals {
    /// The longest time, in seconds, that one of so many strands may have to wait for its next start
    /// (but for one wait in 10^13 where starts are random).
    pub fn longest_pause(&self, strands: u32) -> f64 {
        match self {
            Arrivals::Even(rate) => 1.0 / rate,
            Arrivals::Poisson(rate) => 30.0 / rate,
            Arrivals::Trace(trace) => trace.longest_pause(strands.max(1) as usize),
        }
    }
}

/// Intended starts that somebody has recorded. They are dealt to the strands of the group in turn.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Trace {
    pub file: String,
    /// Whether the file holds the times between starts instead of the starts.
    pub intervals: bool,
    /// Nanoseconds from the beginning of the window that counts, ascending; empty until the file has been read.
    pub starts: Vec<u64>,
}

impl Trace {
    fn longest_pause(&self, strands: usize) -> f64 {
        let first = self.starts.iter().take(strands).copied();
        let later = self.starts.iter().zip(self.starts.iter().skip(strands));
        let pauses = first.chain(later.map(|(before, after)| after.saturating_sub(*before)));
        pauses.max().unwrap_or(0) as f64 / 1e9
    }
}

/// A piece of a transaction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// The flowop of this index.
    Flowop(u32),
    /// These, so many times over.
    Loop { times: u32, parts: Vec<Part> },
    /// One of these, drawn each time their turn comes.
    Mix(Vec<Choice>),
}

/// One of the choices of a mix.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    pub weight: u32,
    pub parts: Vec<Part>,
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
    /// One call for each read, where a peer that only receives would take what there is.
    pub single_reads: bool,
    pub sctp: Sctp,
    /// Of TLS; none leaves the library's first choice.
    pub cipher: Option<Cipher>,
    /// After the handshake the kernel encrypts and decrypts.
    pub ktls: bool,
    /// Local address to bind the connecting side to.
    pub bind: Option<String>,
    /// Longest wait of one operation.
    pub timeout: Option<Duration>,
    /// How long to think.
    pub duration: Option<Pause>,
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
    pub io: IoValues,
    /// Known options that nothing executes yet, as written; `run` refuses a profile that has any.
    pub unsupported: BTreeMap<String, String>,
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
            single_reads: false,
            sctp: Sctp::default(),
            cipher: None,
            ktls: false,
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
            io: IoValues::default(),
            unsupported: BTreeMap::new(),
        }
    }
}

/// The I/O options that are set, by name. Crate `profile` knows what each name means.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct IoValues(BTreeMap<String, IoValue>);

/// The value of an I/O option.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IoValue {
    /// Of an option without a value.
    On,
    Number(u64),
    Time(Duration),
    Text(String),
}

impl IoValues {
    pub fn get(&self, name: &str) -> Option<&IoValue> {
        self.0.get(name)
    }

    pub fn set(&mut self, name: &str, value: IoValue) {
        self.0.insert(name.to_owned(), value);
    }

    pub fn remove(&mut self, name: &str) {
        self.0.remove(name);
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &IoValue)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }
}

/// How TLS 1.3 protects the bytes (RFC 8446, appendix B.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cipher {
    Aes128Gcm,
    Aes256Gcm,
    ChaCha20Poly1305,
}

impl Cipher {
    pub const ALL: [Cipher; 3] = [Cipher::Aes128Gcm, Cipher::Aes256Gcm, Cipher::ChaCha20Poly1305];

    /// As profiles write it.
    pub fn name(self) -> &'static str {
        match self {
            Cipher::Aes128Gcm => "aes128",
            Cipher::Aes256Gcm => "aes256",
            Cipher::ChaCha20Poly1305 => "chacha20",
        }
    }

    /// As OpenSSL and the RFC write it.
    pub fn suite(self) -> &'static str {
        match self {
            Cipher::Aes128Gcm => "TLS_AES_128_GCM_SHA256",
            Cipher::Aes256Gcm => "TLS_AES_256_GCM_SHA384",
            Cipher::ChaCha20Poly1305 => "TLS_CHACHA20_POLY1305_SHA256",
        }
    }
}

/// What can be asked of an SCTP association; `None` leaves the kernel's setting.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Sctp {
    /// Small messages are sent at once.
    pub nodelay: bool,
    /// Streams as this end sees them.
    pub out_streams: Option<u16>,
    pub in_streams: Option<u16>,
    /// Milliseconds.
    pub rto_initial: Option<u32>,
    pub rto_min: Option<u32>,
    pub rto_max: Option<u32>,
    pub sack_delay: Option<u32>,
    pub hb_interval: Option<u32>,
    /// Packets.
    pub sack_frequency: Option<u32>,
    pub max_burst_size: Option<u32>,
    /// Bytes.
    pub max_fragment_size: Option<u32>,
    pub path_mtu: Option<u32>,
}

/// Bytes of one operation.
pub type Size = Quantity;

/// Nanoseconds of one thought.
pub type Pause = Quantity;

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
