//! The document of a finished run, `wirecost.run/1`: what `--json` writes and a record keeps.
//!
//! A key is never absent; what was not measured is `null`. Adding a key keeps the version, changing
//! or removing one makes a new one. The JSON Schema is docs/schema/wirecost.run-1.json.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::convergence::{Convergence, Stream};
use crate::frames::Frames;
use crate::histogram::PackedHistogram;
use crate::host::HostFacts;
use crate::link::LinkReport;
use crate::link::netem::NetemReport;
use crate::measure::{Bytes, Setting};
use crate::observe::{HostObservation, ProbeReport};
use crate::placement::StrandPlacement;
use crate::program::Side;
use crate::receive_stamps::ReceiveStamps;
use crate::stability::Stability;
use crate::status::Status;
use crate::study::{StudyRunRef, Value};
use crate::warning::Entry;

pub const SCHEMA: &str = "wirecost.run/1";

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Run {
    #[schemars(extend("const" = SCHEMA))]
    pub schema: String,
    pub status: Status,
    /// One message, where `status` is not `ok`.
    pub error: Option<String>,
    /// The profile as named on the command line: a path or `@builtin`.
    pub profile: String,
    pub engine: String,
    /// Version of wirecost.
    pub version: String,
    /// Wall-clock start, milliseconds since 1970.
    pub started_unix_ms: u64,
    /// Of everything that was drawn: a run with the same one draws the same. Null before any was made.
    #[serde(default)]
    pub seed: Option<u64>,
    /// Options of `run` and variables of the profile that the command line or the study set, by name.
    /// Null in older records.
    #[serde(default)]
    pub options: Option<Vec<Value>>,
    /// What `wirecost run` was to do, so that the page of the run can be run again. Null for runs of studies, and in older
    /// records.
    #[serde(default)]
    pub plan: Option<RunPlan>,
    /// Null for a run of its own.
    pub study: Option<StudyRunRef>,
    pub window: Option<Window>,
    /// Payload per second, over all strands and both directions, that open-loop load was to move; null where
    /// the load was as fast as it could be.
    #[serde(default)]
    pub offered_bits_per_second: Option<f64>,
    pub throughput: Option<Throughput>,
    pub transactions: Option<Transactions>,
    pub operations: Option<Operations>,
    pub connections: Option<Connections>,
    /// Of the master's transactions in the window.
    pub latency_us: Option<Latency>,
    /// The same in full, nanoseconds: an HdrHistogram (V2, compressed, base64) of two significant digits, which can be merged. Null
    /// in older records.
    #[serde(default)]
    pub latency_histogram: Option<PackedHistogram>,
    pub flowops: Vec<FlowopRow>,
    pub phases: Vec<PhaseRow>,
    pub intervals: Vec<Interval>,
    pub tcp: Option<Tcp>,
    /// Round-trip times by group, of sampled TCP connections. Null where there are none, and in older records.
    #[serde(default)]
    pub group_rtts: Option<Vec<GroupRtt>>,
    /// Null for profiles without datagrams.
    pub datagrams: Option<Datagrams>,
    /// How many datagrams passed each stage between the programs. Null for profiles without datagrams, and in older records.
    #[serde(default)]
    pub frames: Option<Frames>,
    pub fairness: Option<Fairness>,
    /// How long throughput took to become steady. Null where no bytes move, and in older records.
    #[serde(default)]
    pub convergence: Option<Convergence>,
    /// Outages, dips and drift in the window. Null where a phase is counted whole, and in older records.
    #[serde(default)]
    pub stability: Option<Stability>,
    /// Each stream over time, by host, group and strand; null where there are more than 64, or none that moves bytes,
    /// and in older records.
    #[serde(default)]
    pub streams: Option<Vec<Stream>>,
    /// TCP throughput by the framework of RFC 6349. Null without TCP connections, and in older records.
    #[serde(default)]
    pub rfc6349: Option<Rfc6349>,
    /// What the profile's I/O options did; null where it has none that does anything.
    pub io: Option<Io>,
    /// What ciphers cost; null for profiles that do not encrypt.
    pub crypto: Option<Crypto>,
    /// Links between the hosts by the emulator; null where there are none.
    #[serde(default)]
    pub link: Option<LinkReport>,
    /// Links between the hosts by netem; null where there are none.
    #[serde(default)]
    pub netem: Option<NetemReport>,
    pub settings: Vec<Setting>,
    /// Where the connections of strands were placed at their peers; null where no connection asks for `placement`.
    #[serde(default)]
    pub placements: Option<Vec<StrandPlacement>>,
    pub hosts: Vec<HostRow>,
    pub machines: Vec<MachineRow>,
    /// What probes saw in the window; null where nothing observed.
    pub observe: Option<Observe>,
    pub warnings: Vec<Entry>,
}

/// What probes saw, and what it cost to look.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Observe {
    pub cost: Option<ObserverCost>,
    /// Why `cost` is null.
    pub cost_reason: Option<String>,
    pub probes: Vec<ProbeReport>,
    /// Of each host that has CPUs of its own; of those that share CPUs, once for all.
    pub hosts: Vec<HostObservation>,
    /// Runs of the same profile, each under other probes.
    pub passes: Vec<Pass>,
}

/// Throughput under observation against that just before and just after, in the same run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ObserverCost {
    /// `bits_per_second`, or `transactions_per_second` where no bytes move.
    pub metric: String,
    pub observed: f64,
    pub unobserved: f64,
    /// `observed` over `unobserved`; 1 costs nothing.
    pub ratio: f64,
    /// 95% interval of `ratio`; null where there are too few parts to tell.
    pub interval: Option<(f64, f64)>,
    /// Time without observers that this rests on.
    pub unobserved_seconds: f64,
}

/// One run of the profile under one set of probes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Pass {
    pub probes: Vec<String>,
    /// Whether the document's figures are of this pass.
    pub headline: bool,
    pub status: Status,
    pub error: Option<String>,
    /// Length of its window.
    pub seconds: Option<f64>,
    pub bits_per_second: Option<f64>,
    pub transactions_per_second: Option<f64>,
}

/// The steady interval that counts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Window {
    pub seconds: f64,
    /// Index of the phase it belongs to.
    pub phase: u32,
    /// Time of the same phase before the window.
    pub ramp_seconds: f64,
    /// `duration` (an interval of steady traffic) or `iterations` (a phase counted whole).
    pub kind: WindowKind,
    /// Of it, the time in which no byte moved on any flow though operations were under way; null where
    /// that was not measured.
    #[serde(default)]
    pub dead_seconds: Option<f64>,
    /// How long after its beginning or its end a host's counters were read at most, microseconds; null in older
    /// records.
    #[serde(default)]
    pub late_us: Option<f64>,
    /// When it began, milliseconds since 1970 by the controller's clock; null in older records.
    #[serde(default)]
    pub started_unix_ms: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WindowKind {
    Duration,
    Iterations,
}

/// Application bytes received at the far end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Throughput {
    /// Both directions.
    pub bits_per_second: f64,
    pub tx_bits_per_second: f64,
    pub rx_bits_per_second: f64,
    /// From connectors to acceptors, as the acceptors received them.
    pub tx_bytes: u64,
    /// From acceptors to connectors, as the connectors received them.
    pub rx_bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Transactions {
    pub count: u64,
    pub per_second: f64,
}

/// Flowops of the master; each counts once, also where its mirror ran on a peer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Operations {
    pub count: u64,
    pub per_second: f64,
    pub failed: u64,
    pub timeouts: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Connections {
    /// Open when the window began.
    pub open: u64,
    pub failed: u64,
    /// Those that workers accepted until the end of the headline phase, with the option `server_sockets` over TCP. Null
    /// without it, where workers are not pinned to CPUs, and in older records.
    #[serde(default)]
    pub accepted: Option<AcceptedConnections>,
}

/// Connections by the CPU that handled the packets with which they were opened (SO_INCOMING_CPU).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AcceptedConnections {
    /// That of the worker that accepted and served the connection.
    pub on_own_cpu: u64,
    /// Another one.
    pub on_other_cpu: u64,
}

/// Microseconds. Quantiles are within 1%.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Latency {
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub p999: f64,
    pub max: f64,
    pub mean: f64,
    /// Mean of the 95% that are smallest (single-sided trimmed mean). Null in older records.
    #[serde(default)]
    pub trimmed_mean: Option<f64>,
    pub count: u64,
}

/// The round-trip time that the kernels of one side know of the connections of a group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GroupRtt {
    /// Group, by index.
    pub group: u32,
    /// An end that only receives data gets no acknowledgements: its time is that of the handshake.
    pub side: Side,
    /// Samples of the smoothed round-trip time (TCP_INFO) of up to 16 connections of each worker.
    pub rtt_us: Latency,
}

/// Datagrams of all hosts in the window, by sequence number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Datagrams {
    pub sent: u64,
    /// Duplicates included.
    pub received: u64,
    /// Never arrived, as the gaps of sequence numbers say.
    pub lost: i64,
    /// Arrived after later ones of their connection, or after the wait for them had ended. They are not lost.
    pub late: u64,
    /// Those of `late` that arrived after later ones. Null in older records, as all that follows.
    #[serde(default)]
    pub reordered: Option<u64>,
    /// Arrived again. They are neither late nor lost.
    #[serde(default)]
    pub duplicated: Option<u64>,
    /// Lost datagrams that had consecutive numbers, by how many they were. Null also where answers to lost
    /// datagrams are missing.
    #[serde(default)]
    pub loss_bursts: Option<Vec<LossBursts>>,
    /// Jitter (RFC 3550, 6.4.1), microseconds: the mean over the arrivals in the window. Null where no
    /// datagram of at least 16 bytes followed another.
    #[serde(default)]
    pub jitter_us: Option<f64>,
    /// From before the call that sent a datagram until after the one that received it. Null where none has at
    /// least 16 bytes.
    #[serde(default)]
    pub one_way_us: Option<OneWay>,
    /// From the end of the ramp until the phase had ended and everything had arrived or was given up: the
    /// loss of a trial ([RFC 2544, 26.1](https://www.rfc-editor.org/rfc/rfc2544#section-26.1)).
    #[serde(default)]
    pub after_ramp: Option<AfterRamp>,
}

/// Datagrams from the end of the ramp to the end of the phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AfterRamp {
    pub sent: u64,
    pub lost: u64,
}

/// Runs of consecutive lost datagrams of a length.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LossBursts {
    /// Length of the shortest.
    pub from: u64,
    /// Length of the longest; null for any.
    pub to: Option<u64>,
    pub count: u64,
}

/// One-way delays.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OneWay {
    pub delay: Latency,
    /// All delays of one direction may be wrong by so much, microseconds, as far as the clocks of the hosts
    /// are known. 0 where the hosts share a clock.
    pub clock_error_us: f64,
}

/// What one flowop did in the window, summed over the hosts of its side.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FlowopRow {
    #[serde(rename = "type")]
    pub kind: String,
    pub side: Side,
    /// Group, by index.
    pub group: u32,
    /// Place in the transaction's list.
    pub flowop: u32,
    pub count: u64,
    pub bytes: u64,
    pub failed: u64,
    pub timeouts: u64,
    pub latency_us: Option<Latency>,
    /// The same in full, as that of the run. Null in older records.
    #[serde(default)]
    pub latency_histogram: Option<PackedHistogram>,
}

/// One uperf transaction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PhaseRow {
    pub phase: u32,
    pub kind: WindowKind,
    /// Whether this phase gives the document's figures.
    pub headline: bool,
    /// Length of what the row's figures count.
    pub seconds: f64,
    pub tx_bytes: u64,
    pub rx_bytes: u64,
    pub bits_per_second: f64,
    pub transactions: u64,
    pub transactions_per_second: f64,
    pub operations: u64,
    pub failed: u64,
    pub timeouts: u64,
    pub latency_us: Option<Latency>,
    /// Why the phase was not measured; its figures are then 0. Null where it was.
    #[serde(default)]
    pub reason: Option<String>,
}

/// One interval of the headline phase's window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Interval {
    /// Seconds since the window began.
    pub start: f64,
    pub seconds: f64,
    pub tx_bytes: u64,
    pub rx_bytes: u64,
    pub bits_per_second: f64,
    pub transactions: u64,
    pub operations: u64,
    pub failed: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Tcp {
    /// Segments retransmitted in the window, all flows, both ends; null where a host could not tell.
    pub retransmits: Option<u64>,
    /// Segments with data sent in the window, those sent again included; null in older records.
    #[serde(default)]
    pub segments_sent: Option<u64>,
    /// Packets received in the window beyond what was awaited; null in older records.
    #[serde(default)]
    pub out_of_order: Option<u64>,
    /// Connections that closed inside the window, at both ends. Each would take a system call to ask for its
    /// counts, so they are not asked, and the three counts are null. Null in older records.
    #[serde(default)]
    pub closed_unread: Option<u64>,
    /// Mean of the smoothed round-trip times of the sampled flows, microseconds.
    pub rtt_us: Option<f64>,
    pub rtt_us_min: Option<f64>,
    pub rtt_us_max: Option<f64>,
    pub rtt_samples: u64,
}

/// What I/O options did in the whole phase that the window belongs to, at both ends. Each part is null
/// where no flowop has the option.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Io {
    /// `zerocopy`.
    pub zerocopy: Option<ZeroCopy>,
    /// `gso` and `batch`, at the senders.
    pub sends: Option<SendBatchCounts>,
    /// `gro` and `batch`, at the receivers.
    pub receives: Option<ReceiveBatchCounts>,
    /// `discard`: received bytes that the kernel dropped instead of copying them.
    pub discarded_bytes: Option<u64>,
    /// `splice`: bytes that went through a pipe.
    pub spliced_bytes: Option<u64>,
    /// `sink`: received bytes that were written to files.
    pub sink_bytes: Option<u64>,
    /// Frames of AF_XDP sockets; null with engines that use none.
    pub frames: Option<FrameCounts>,
    /// Hosts that read files to send them, or write what they receive to files; none in older records.
    #[serde(default)]
    pub files: Vec<FileUse>,
}

/// The files of one host (`source`, `sink`), and the time in the calls that read and write them. Workers wait for
/// these calls, and do nothing else meanwhile.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct FileUse {
    pub host: String,
    /// `source`: bytes that were sent from files; null where the host sends none.
    pub source_bytes: Option<u64>,
    /// Bytes that calls of their own read (read(2), or splice(2) to a pipe): more than were sent where the socket took
    /// less. Null with sendfile(2).
    pub read_bytes: Option<u64>,
    /// Time in these calls, of all workers; null with sendfile(2), which reads and sends in one call.
    pub read_seconds: Option<f64>,
    /// The same over the time of the host's workers, 0 to 1.
    pub read_share: Option<f64>,
    /// The share of the source that was in the page cache when its reading began, over all passes, 0 to 1. With O_DIRECT:
    /// what was there after it was read, as some file systems cache all the same. Null where the kernel does not tell.
    pub cached_share: Option<f64>,
    /// `source_io=io_uring`: requests that read files, and the mean number that a strand had in flight when it made one.
    #[serde(default)]
    pub read_requests: Option<u64>,
    #[serde(default)]
    pub read_depth: Option<f64>,
    /// `sink`: bytes that were written to files; null where the host writes none.
    pub sink_bytes: Option<u64>,
    /// Time in the calls that wrote them, of all workers. To the page cache, unless `o_direct` is set.
    pub write_seconds: Option<f64>,
    /// The same over the time of the host's workers, 0 to 1.
    pub write_share: Option<f64>,
    /// `sink_io=io_uring`: requests that wrote files, and the mean number that a file had in flight when one was made.
    #[serde(default)]
    pub write_requests: Option<u64>,
    #[serde(default)]
    pub write_depth: Option<f64>,
    /// `sink_sync`: time in fdatasync(2) at the end of the phase, of all workers; not part of any other time.
    pub sync_seconds: Option<f64>,
    /// `verify`: bytes whose checksum both ends compared; null also where the phase was cut off.
    pub checked_bytes: Option<u64>,
    /// Bytes of the sink that were read back and compared. Blocks that differ count too, and make the run invalid.
    pub read_back_bytes: Option<u64>,
    /// Bytes of the sink that were still in the page cache when they were about to be read back: these did not come from the
    /// device. All of them where the kernel does not tell.
    #[serde(default)]
    pub read_back_cached_bytes: Option<u64>,
}

/// Datagrams that were sent and received as frames of AF_XDP sockets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FrameCounts {
    /// Frames that were put into transmit rings.
    pub sent: u64,
    /// System calls that had the kernel send frames.
    pub calls: u64,
    /// Frames taken from receive rings.
    pub received: u64,
    /// Frames that were dropped at the receiving sockets: a ring was full or had no place, or a connection left too many unread.
    pub dropped: u64,
    /// Datagrams that came by the kernel's UDP sockets, as those of another queue than that of their connection's worker.
    pub received_beside: u64,
}

/// Sends without a copy, and with one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ZeroCopy {
    /// Calls with MSG_ZEROCOPY.
    pub calls: u64,
    /// Those of which the kernel has said that it is done with their pages.
    pub completed: u64,
    /// Completed calls whose bytes the kernel still copied.
    pub copied: u64,
    /// `copied` of `completed`, 0 to 1; null where none is completed.
    pub copied_share: Option<f64>,
    /// Sends made with a copy because the kernel refused (ENOBUFS).
    pub refused: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SendBatchCounts {
    pub calls: u64,
    pub datagrams: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReceiveBatchCounts {
    pub calls: u64,
    /// Each may be several datagrams that the kernel has joined.
    pub messages: u64,
    pub datagrams: u64,
}

/// The layer `crypto` of the probe `functions`: ciphers, hashes and random numbers, in the kernel and in
/// user space. The rest of TLS (records, handshakes) is a layer of its own.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Crypto {
    /// Of each host that has CPUs of its own; of those that share CPUs, once for all.
    pub shares: Vec<CryptoShare>,
    /// Why there are none.
    pub reason: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CryptoShare {
    /// Whose CPUs were sampled.
    pub hosts: Vec<String>,
    /// Of the busy time of these CPUs in the window, 0 to 1.
    pub share: f64,
    /// 95% interval of `share`.
    pub interval: (f64, f64),
    /// Null where the cost of these hosts is not known.
    pub cycles_per_kbyte: Option<f64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Fairness {
    /// Jain's index over the master's strands, by bytes (by transactions where no bytes move).
    pub jain: f64,
    pub strands: u64,
    /// Bytes of the fastest strand, relative to those of the slowest. Null where one moved nothing, and in older records.
    #[serde(default)]
    pub ratio: Option<f64>,
    /// Seconds from the start of traffic until streams share fairly: the start of the first window of time (those of
    /// `convergence`) with a Jain's index of at least 0.95 and from which on 90% of the windows have one.
    #[serde(default)]
    pub fair_share_seconds: Option<f64>,
    /// Why `fair_share_seconds` is null.
    #[serde(default)]
    pub fair_share_reason: Option<String>,
    /// The same between groups of streams; null where there is one group.
    #[serde(default)]
    pub between_groups: Option<GroupFairness>,
}

/// How groups of streams share: those of a group of the profile to one peer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GroupFairness {
    /// Jain's index over the groups, by throughput per stream.
    pub jain: f64,
    /// Throughput per stream of the fastest group relative to the slowest; null where one moved nothing.
    pub ratio: Option<f64>,
    /// As of the streams.
    pub fair_share_seconds: Option<f64>,
    pub groups: Vec<StreamGroup>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StreamGroup {
    /// Host that received.
    pub host: String,
    /// Group of the profile, by index.
    pub group: u32,
    pub streams: u64,
    /// Of each stream, on average.
    pub bits_per_second: f64,
    /// Mean of the streams' round-trip times; null where none was sampled.
    pub rtt_us: Option<f64>,
}

/// The TCP metrics of [RFC 6349, section 4](https://www.rfc-editor.org/rfc/rfc6349#section-4), in the window, all
/// connections together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Rfc6349 {
    /// Section 4.1: actual over ideal TCP transfer time; 1 is ideal. The ideal is that of the maximum TCP throughput.
    pub transfer_time_ratio: Option<f64>,
    /// Why it is null.
    pub transfer_time_reason: Option<String>,
    /// Section 4.1.1: (MTU - 40) bytes of each packet that the link carries per second, each packet with 38 bytes of
    /// Ethernet.
    pub max_bits_per_second: Option<f64>,
    /// Section 4.2: share of transmitted bytes that were not retransmitted, in percent, by segments with data.
    pub efficiency_percent: Option<f64>,
    /// Why it is null.
    pub efficiency_reason: Option<String>,
    /// Section 4.3: mean RTT above the baseline RTT, in percent of it.
    pub buffer_delay_percent: Option<f64>,
    /// Why it is null.
    pub buffer_delay_reason: Option<String>,
    /// The smallest RTT that the kernel saw on one of the sampled connections (`tcpi_min_rtt`), microseconds.
    pub baseline_rtt_us: Option<f64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostRow {
    pub name: String,
    pub role: Side,
    pub address: Option<String>,
    /// CPUs that are this host's.
    pub cpus: Vec<u32>,
    pub shares_machine_with: Vec<String>,
    pub workers: u32,
    /// Share of the window in which its busiest worker's thread used a CPU, 0 to 1; null where it was
    /// not measured, and in older records.
    #[serde(default)]
    pub busiest_worker: Option<f64>,
    /// Percent of the time of its CPUs, whoever used it: where another host has the same CPUs
    /// (`shares_machine_with`), its work is in it too.
    pub cpu: Option<Cpu>,
    /// `proc-stat` or `bpf`.
    pub cpu_source: Option<String>,
    pub cycles_per_kbyte: Option<f64>,
    /// `pmu`, `tsc-exact` or `tsc-ticks`.
    pub cycles_source: Option<String>,
    /// Why `cycles_per_kbyte` is null.
    pub cycles_reason: Option<String>,
    /// Part of `cycles_per_kbyte` that programs used which are no part of the run. Null where that is
    /// unknown, as on a machine whose CPUs are divided among hosts, and in older records.
    #[serde(default)]
    pub foreign_cycles_per_kbyte: Option<f64>,
    /// In the window.
    pub bytes: Option<Bytes>,
    /// Time from its driver to the application, with `--receive-stamps`. Null without, and in older records.
    #[serde(default)]
    pub receive_stamps: Option<ReceiveStamps>,
    pub facts: HostFacts,
    /// Offset of its clock to the controller's, and how far that can be wrong, microseconds.
    pub clock_offset_us: f64,
    pub clock_error_us: f64,
    /// Of the process that generates its traffic; null where its kernel does not tell, and in older records.
    #[serde(default)]
    pub memory: Option<Memory>,
}

/// Resident memory of a process at the edges of the window, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Memory {
    pub start: u64,
    pub end: u64,
}

impl HostRow {
    /// Whether its data address is one of the loopback device.
    #[must_use]
    pub fn on_loopback(&self) -> bool {
        // With the port of its agent, where it has one on its own.
        let parse = |text: &String| {
            text.parse().ok().or_else(|| Some(text.parse::<SocketAddr>().ok()?.ip()))
        };
        self.address.as_ref().and_then(parse).is_some_and(|address: IpAddr| address.is_loopback())
    }
}

impl Run {
    /// Whether another host of the run works on CPUs of this one, so that nobody knows what each of them
    /// used.
    #[must_use]
    pub fn shares_cpus(&self, host: &HostRow) -> bool {
        self.hosts.iter().any(|other| {
            host.shares_machine_with.contains(&other.name)
                && other.cpus.iter().any(|cpu| host.cpus.contains(cpu))
        })
    }
}

/// A run as a study of one point.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunPlan {
    /// A file of a study (docs/studies.md), with the seed of the run.
    pub study: String,
    /// Texts of its profiles that are no built-ins, by the path that the study has.
    pub profiles: BTreeMap<String, String>,
}

/// Percent; the seven add up to 100.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Cpu {
    pub usr: f64,
    /// Work of the idle loop included, where that was timed.
    pub sys: f64,
    pub irq: f64,
    pub softirq: f64,
    /// As /proc/stat counts it. A trace cannot see it, so it is taken off usr and sys.
    pub steal: f64,
    /// Waiting for a disk included.
    pub idle: f64,
    /// Time that passed but that /proc/stat shows nowhere; negative where it shows too much. 0
    /// where every transition was timed (`cpu_source` is `bpf`).
    pub unaccounted: f64,
    pub per_cpu: Vec<CpuLine>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CpuLine {
    pub cpu: u32,
    pub usr: f64,
    pub sys: f64,
    pub irq: f64,
    pub softirq: f64,
    pub steal: f64,
    pub idle: f64,
}

/// A kernel that one or more hosts share: all its CPUs' busy cycles over all bytes delivered once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MachineRow {
    pub name: String,
    pub hosts: Vec<String>,
    pub cpus: u32,
    pub cpu: Option<Cpu>,
    pub cpu_source: Option<String>,
    pub cycles_per_kbyte: Option<f64>,
    pub cycles_source: Option<String>,
    pub cycles_reason: Option<String>,
    /// Part of `cycles_per_kbyte` that programs used which are no part of the run. Null where that is
    /// unknown, and in older records.
    #[serde(default)]
    pub foreign_cycles_per_kbyte: Option<f64>,
}

/// The JSON Schema of a document of wirecost, as it is published in docs/schema.
#[must_use]
pub fn schema_of<T: JsonSchema>(name: &str) -> serde_json::Value {
    // Of what is written, where every key is there.
    let settings = schemars::generate::SchemaSettings::draft2020_12().for_serialize();
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    let file = name.replace('/', "-");
    schema.insert(
        "$id".to_owned(),
        format!("https://github.com/wirecost/wirecost/blob/main/docs/schema/{file}.json").into(),
    );
    schema.insert("title".to_owned(), name.into());
    schema.to_value()
}

/// Beyond what any link of hosts carries: 100 Tb/s.
const MOST_BITS_PER_SECOND: f64 = 1e14;
/// Ten years.
const LONGEST_WINDOW: f64 = 10.0 * 366.0 * 86_400.0;
/// Seconds by which what the kernel tells of a CPU's time can be beyond a window: it counts in ticks.
const CPU_TIME_ERROR: f64 = 1.0;
/// Seconds by which the windows of two hosts can differ in a good run, and the share of rounding.
const WINDOW_ERROR: f64 = 0.1;
const ROUNDING: f64 = 0.01;

/// A value with what it can be.
struct Bounded {
    name: &'static str,
    value: f64,
    least: f64,
    most: f64,
}

impl Bounded {
    fn new(name: &'static str, value: f64, most: f64) -> Self {
        Self { name, value, least: 0.0, most }
    }

    fn error(&self) -> Option<String> {
        let Self { name, value, least, most } = *self;
        // A value that is no number is in no range.
        (!(least..=most).contains(&value)).then(|| match value < least || most == f64::MAX {
            true => format!("{name} is {value}, and cannot be less than {least}"),
            false => format!("{name} is {value:e}, and cannot be more than {most:e}"),
        })
    }
}

impl Run {
    /// A value that no run can have measured, where there is one: the document is damaged, or is not
    /// of a run.
    #[must_use]
    pub fn impossible(&self) -> Option<String> {
        let mut values = Vec::new();
        if let Some(throughput) = &self.throughput {
            values.extend(
                [
                    ("throughput.bits_per_second", throughput.bits_per_second),
                    ("throughput.tx_bits_per_second", throughput.tx_bits_per_second),
                    ("throughput.rx_bits_per_second", throughput.rx_bits_per_second),
                ]
                .map(|(name, value)| Bounded::new(name, value, MOST_BITS_PER_SECOND)),
            );
        }
        for interval in &self.intervals {
            let rate = interval.bits_per_second;
            values.push(Bounded::new("intervals.bits_per_second", rate, MOST_BITS_PER_SECOND));
        }
        for cost in self.hosts.iter().filter_map(|host| host.cycles_per_kbyte) {
            values.push(Bounded::new("hosts.cycles_per_kbyte", cost, f64::MAX));
        }
        if let Some(window) = &self.window {
            values.push(Bounded::new("window.seconds", window.seconds, LONGEST_WINDOW));
            values.extend(self.bounded_by(window));
        }
        values.iter().find_map(Bounded::error)
    }

    /// What the length of the window bounds.
    fn bounded_by(&self, window: &Window) -> Vec<Bounded> {
        let mut values = Vec::new();
        // What ends in the window has begun in its phase.
        let longest = (window.seconds + window.ramp_seconds + WINDOW_ERROR) * (1.0 + ROUNDING);
        if let Some(of) = &self.latency_us {
            values.extend(
                [
                    ("latency_us.p50", of.p50),
                    ("latency_us.p99", of.p99),
                    ("latency_us.max", of.max),
                    ("latency_us.mean", of.mean),
                ]
                .map(|(name, value)| Bounded::new(name, value, longest * 1e6)),
            );
        }
        if let Some(of) = self.transactions.as_ref().filter(|_| self.status == Status::Ok) {
            let at = |seconds: f64| of.per_second * seconds.max(0.0);
            values.push(Bounded {
                name: "transactions.count",
                value: of.count as f64,
                least: at(window.seconds - WINDOW_ERROR) * (1.0 - ROUNDING),
                most: at(window.seconds + WINDOW_ERROR) * (1.0 + ROUNDING),
            });
        }
        let most = 100.0 * (1.0 + CPU_TIME_ERROR / window.seconds.max(f64::MIN_POSITIVE));
        for cpu in self.hosts.iter().filter_map(|host| host.cpu.as_ref()) {
            values.extend(
                [
                    ("hosts.cpu.usr", cpu.usr),
                    ("hosts.cpu.sys", cpu.sys),
                    ("hosts.cpu.irq", cpu.irq),
                    ("hosts.cpu.softirq", cpu.softirq),
                    ("hosts.cpu.idle", cpu.idle),
                ]
                .map(|(name, value)| Bounded::new(name, value, most)),
            );
        }
        values
    }

    /// A document that has measured nothing (yet).
    pub fn empty(profile: &str, engine: &str, version: &str, started_unix_ms: u64) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            status: Status::Ok,
            error: None,
            profile: profile.to_owned(),
            engine: engine.to_owned(),
            version: version.to_owned(),
            started_unix_ms,
            seed: None,
            options: None,
            plan: None,
            study: None,
            window: None,
            offered_bits_per_second: None,
            throughput: None,
            transactions: None,
            operations: None,
            connections: None,
            latency_us: None,
            latency_histogram: None,
            flowops: Vec::new(),
            phases: Vec::new(),
            intervals: Vec::new(),
            tcp: None,
            group_rtts: None,
            datagrams: None,
            frames: None,
            fairness: None,
            convergence: None,
            stability: None,
            streams: None,
            rfc6349: None,
            io: None,
            crypto: None,
            link: None,
            netem: None,
            settings: Vec::new(),
            placements: None,
            hosts: Vec::new(),
            machines: Vec::new(),
            observe: None,
            warnings: Vec::new(),
        }
    }
}
