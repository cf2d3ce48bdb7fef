//! What a host measured: cumulative counters at instants, and histograms of a phase's window.
//!
//! Counters only grow; analysis subtracts two snapshots. All byte counts are application bytes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::clock::Nanos;
use crate::histogram::Histogram;
use crate::host::CpuSnapshot;
use crate::packets::PacketCounters;
use crate::program::Side;
use crate::receive_stamps::StampCounts;
use crate::renamed::renamed;

/// Bytes a host has moved, by direction and end. `tx` is from connector to acceptor, `rx` back.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema,
)]
pub struct Bytes {
    /// Sent by this host as the connector.
    pub tx_sent: u64,
    /// Received by this host as the acceptor.
    pub tx_received: u64,
    /// Sent by this host as the acceptor.
    pub rx_sent: u64,
    /// Received by this host as the connector.
    pub rx_received: u64,
}

impl Bytes {
    pub fn sent(&self) -> u64 {
        self.tx_sent + self.rx_sent
    }

    pub fn received(&self) -> u64 {
        self.tx_received + self.rx_received
    }

    pub fn total(&self) -> u64 {
        self.sent() + self.received()
    }
}

/// Names a row of counters: one flowop of one group's transaction, as one side executes it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FlowopKey {
    pub group: u32,
    /// Index of the flowop in its transaction.
    pub flowop: u32,
    pub kind: String,
    pub side: Side,
}

/// What one flowop has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FlowopCounts {
    /// Completed operations.
    pub done: u64,
    /// Operations that failed (and, without `canfail`, ended the run). Time-outs are among them.
    pub failed: u64,
    pub timeouts: u64,
    /// Bytes moved, also those of operations still under way.
    pub bytes: u64,
}

/// Everything a host counts, summed over its workers.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Counters {
    pub bytes: Bytes,
    /// Completed passes through a phase's flowops.
    pub transactions: u64,
    /// In the order of [`PhaseResult::flowops`].
    pub flowops: Vec<FlowopCounts>,
    pub datagrams: Datagrams,
}

/// What I/O options did, beside moving bytes. All zero without them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct IoCounts {
    /// Calls that sent with MSG_ZEROCOPY; those of which the kernel has said that it is done with
    /// their pages; and of these, those whose bytes it still copied.
    pub zerocopy_calls: u64,
    pub zerocopy_completed: u64,
    pub zerocopy_copied: u64,
    /// Sends that were to be without a copy, and were made with one because the kernel refused.
    pub zerocopy_refused: u64,
    /// Of flowops that move several datagrams by a call: calls and datagrams, and messages
    /// received, each of which may be several datagrams.
    pub send_calls: u64,
    pub sent_datagrams: u64,
    pub receive_calls: u64,
    pub received_messages: u64,
    pub received_datagrams: u64,
    /// Received bytes that the kernel dropped instead of copying them.
    pub discarded_bytes: u64,
    /// Bytes that went through a pipe.
    pub spliced_bytes: u64,
    /// Received bytes that were written to files, and the time in the calls that wrote them.
    pub sink_bytes: u64,
    #[serde(default)]
    pub sink_write_ns: u64,
    /// Calls of fdatasync(2) of these files at the end of phases, and their time.
    #[serde(default)]
    pub sink_syncs: u64,
    #[serde(default)]
    pub sink_sync_ns: u64,
    /// Bytes of files that were sent; of these (and of what had to be read again) those that calls of their own
    /// read, not sendfile(2), and the time in these calls.
    #[serde(default)]
    pub source_bytes: u64,
    #[serde(default)]
    pub source_read_bytes: u64,
    #[serde(default)]
    pub source_read_ns: u64,
    /// Bytes that lay before a sender when it began to read its part of a file, and those of them that were in the
    /// page cache. Nothing where the kernel does not say.
    #[serde(default)]
    pub source_pass_bytes: u64,
    #[serde(default)]
    pub source_cached_bytes: u64,
    /// Requests of io_uring that read files to be sent, and the sum over them of the requests that their strand had in flight
    /// then, each itself included.
    #[serde(default)]
    pub source_requests: u64,
    #[serde(default)]
    pub source_in_flight: u64,
    /// The same of those that wrote received bytes to files.
    #[serde(default)]
    pub sink_requests: u64,
    #[serde(default)]
    pub sink_in_flight: u64,
    /// Looks at sockets of a host that uses `busy_poll` (at their end and at that of each phase),
    /// and those that saw packets brought by a device.
    pub polling: u64,
    pub polled: u64,
    /// Of engines that send and receive frames (AF_XDP): frames, system calls that had the kernel send them, and frames
    /// that were lost at the receiving sockets.
    pub frames_sent: u64,
    pub frame_calls: u64,
    pub frames_received: u64,
    pub frames_dropped: u64,
    /// Datagrams that such an engine received from the kernel's sockets.
    pub received_beside_frames: u64,
    /// Connections that workers accepted at listeners of several clients: where the worker's CPU had handled the packets
    /// of the handshake, and where another one had. None of workers that are not pinned.
    pub accepted_on_own_cpu: u64,
    pub accepted_on_other_cpu: u64,
}

impl IoCounts {
    /// The fields, for what is done to each.
    fn fields(&mut self) -> [&mut u64; 33] {
        [
            &mut self.zerocopy_calls,
            &mut self.zerocopy_completed,
            &mut self.zerocopy_copied,
            &mut self.zerocopy_refused,
            &mut self.send_calls,
            &mut self.sent_datagrams,
            &mut self.receive_calls,
            &mut self.received_messages,
            &mut self.received_datagrams,
            &mut self.discarded_bytes,
            &mut self.spliced_bytes,
            &mut self.sink_bytes,
            &mut self.sink_write_ns,
            &mut self.sink_syncs,
            &mut self.sink_sync_ns,
            &mut self.source_bytes,
            &mut self.source_read_bytes,
            &mut self.source_read_ns,
            &mut self.source_pass_bytes,
            &mut self.source_cached_bytes,
            &mut self.source_requests,
            &mut self.source_in_flight,
            &mut self.sink_requests,
            &mut self.sink_in_flight,
            &mut self.polling,
            &mut self.polled,
            &mut self.frames_sent,
            &mut self.frame_calls,
            &mut self.frames_received,
            &mut self.frames_dropped,
            &mut self.received_beside_frames,
            &mut self.accepted_on_own_cpu,
            &mut self.accepted_on_other_cpu,
        ]
    }

    pub fn add(&mut self, mut other: IoCounts) {
        for (sum, more) in self.fields().into_iter().zip(other.fields()) {
            *sum += *more;
        }
    }

    /// What has been counted since `before`.
    pub fn since(mut self, mut before: IoCounts) -> IoCounts {
        for (sum, less) in self.fields().into_iter().zip(before.fields()) {
            *sum = sum.saturating_sub(*less);
        }
        self
    }
}

/// Checks of what came from files (`source` with `verify`) and went to files (`sink` with `verify`). All zero without
/// them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FileChecks {
    /// Bytes of files that were sent and have been summed, and the sum of [`stream_sum`] over the connections.
    pub sent_bytes: u64,
    pub sent: u64,
    /// The same of what was received. What all hosts together have sent and received must be equal.
    pub received_bytes: u64,
    pub received: u64,
    /// Bytes of files that were read back, blocks of them, and blocks that were not what had been written.
    pub read_back_bytes: u64,
    pub read_back_blocks: u64,
    pub read_back_failures: u64,
    /// Bytes that were in the page cache when they were about to be read back.
    #[serde(default)]
    pub read_back_cached_bytes: u64,
}

impl FileChecks {
    pub fn add(&mut self, other: &Self) {
        self.sent_bytes += other.sent_bytes;
        self.sent = self.sent.wrapping_add(other.sent);
        self.received_bytes += other.received_bytes;
        self.received = self.received.wrapping_add(other.received);
        self.read_back_bytes += other.read_back_bytes;
        self.read_back_blocks += other.read_back_blocks;
        self.read_back_failures += other.read_back_failures;
        self.read_back_cached_bytes += other.read_back_cached_bytes;
    }
}

/// What one connection adds to the sum of a host: its bytes in a phase and their CRC-32. Mixed, so that errors of
/// two connections do not cancel each other out (the finalizer of MurmurHash3).
pub fn stream_sum(bytes: u64, crc: u32) -> u64 {
    let mut mixed = bytes.rotate_left(32) ^ u64::from(crc);
    mixed = (mixed ^ (mixed >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    mixed = (mixed ^ (mixed >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    mixed ^ (mixed >> 33)
}

/// Datagrams by sequence number. All zero for stream protocols.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Datagrams {
    pub sent: u64,
    /// Duplicates included.
    pub received: u64,
    /// Never arrived, as the gaps of sequence numbers say. Only the sum over the hosts is a loss:
    /// one that leaves out an answer because the question was lost takes that gap back here.
    pub lost: i64,
    /// Arrived after later ones, or after the wait for them had ended.
    pub late: u64,
    /// Those of `late` that arrived after later ones.
    pub reordered: u64,
    /// Arrived again.
    pub duplicated: u64,
    /// Numbers of datagrams that were never sent, as what they were to answer had not arrived. They are in
    /// gaps of the other end too.
    pub skipped: u64,
    /// Runs of consecutive datagrams that have not arrived, by class of their length. What arrives late takes
    /// its run back, so a part of the time may have fewer than none.
    pub bursts: [i64; BURST_CLASSES],
    /// Sum of the jitter (RFC 3550, 6.4.1) at the arrival of each of `jitters` datagrams, nanoseconds.
    pub jitter_sum: u64,
    pub jitters: u64,
}

/// Classes of lengths: 1, 2, 3-4, 5-8, and so on; the last has all that are longer.
pub const BURST_CLASSES: usize = 16;

/// The class of a length, which is at least 1.
pub fn burst_class(length: u64) -> usize {
    let class = u64::BITS - length.saturating_sub(1).leading_zeros();
    (class as usize).min(BURST_CLASSES - 1)
}

/// The lengths of a class; `None` for the end of the last one.
pub fn burst_lengths(class: usize) -> (u64, Option<u64>) {
    let longest = |class: usize| 1u64 << class;
    let first = class.checked_sub(1).map_or(1, |before| longest(before) + 1);
    (first, (class + 1 < BURST_CLASSES).then(|| longest(class)))
}

impl Datagrams {
    pub fn add(&mut self, other: &Self) {
        self.combine(other, u64::wrapping_add, i64::wrapping_add);
    }

    /// What has been counted since `before`.
    #[must_use]
    pub fn since(mut self, before: &Self) -> Self {
        self.combine(before, u64::saturating_sub, i64::wrapping_sub);
        self
    }

    fn combine(
        &mut self,
        other: &Self,
        counts: impl Fn(u64, u64) -> u64,
        balances: impl Fn(i64, i64) -> i64,
    ) {
        let Self {
            sent,
            received,
            lost,
            late,
            reordered,
            duplicated,
            skipped,
            bursts,
            jitter_sum,
            jitters,
        } = self;
        for (count, of_other) in [
            (sent, other.sent),
            (received, other.received),
            (late, other.late),
            (reordered, other.reordered),
            (duplicated, other.duplicated),
            (skipped, other.skipped),
            (jitter_sum, other.jitter_sum),
            (jitters, other.jitters),
        ] {
            *count = counts(*count, of_other);
        }
        for (balance, of_other) in
            bursts.iter_mut().chain([lost]).zip(other.bursts.iter().chain([&other.lost]))
        {
            *balance = balances(*balance, *of_other);
        }
    }
}

/// The instant that a snapshot is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Edge {
    PhaseStart,
    WindowStart,
    /// A multiple of the interval after the window's start (or, in the ramp, before it).
    Interval,
    WindowEnd,
    /// Within the time just before or just after the window in which nothing observes.
    Unobserved,
    /// Everything sent has arrived or is given up.
    PhaseEnd,
}

/// All counters of a host at one instant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    pub edge: Edge,
    /// When it was due, on this host's clock.
    pub due: Nanos,
    /// When it was taken.
    pub at: Nanos,
    pub counters: Counters,
    /// Only at the edges of the window.
    pub cpu: Option<CpuSnapshot>,
    /// Only in phases with datagrams; read just after the counters, and at the start of a phase before anything moves.
    pub packets: Option<PacketCounters>,
}

/// Latencies of one flowop in the window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FlowopLatency {
    pub key: FlowopKey,
    pub latency: Histogram,
}

/// One sample of one TCP connection.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TcpSample {
    pub at: Nanos,
    /// Strand number within its group.
    pub group: u32,
    pub strand: u32,
    /// Smoothed round-trip time, microseconds.
    pub rtt_us: f64,
    /// Smallest round-trip time that the kernel has seen on the connection; 0 where it does not tell.
    #[serde(default)]
    pub min_rtt_us: f64,
    /// Largest packet that the path takes, bytes of IP; 0 where the kernel does not tell.
    #[serde(default)]
    pub path_mtu: u32,
    /// Congestion window, segments.
    pub cwnd: u32,
    pub retransmits: u32,
}

/// What one worker did in the window.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct WorkerUse {
    pub worker: u32,
    /// CPU it is pinned to; `None` if it is not.
    pub cpu: Option<u32>,
    /// CPU time of its thread over the window's length, 0 to 1; `None` where too little of the
    /// window was measured.
    pub busy: Option<f64>,
}

/// Sums over strands from which Jain's fairness index follows: (sum x)^2 / (n * sum x^2).
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct FairnessSums {
    pub strands: u64,
    pub sum: f64,
    pub sum_of_squares: f64,
    /// Of the strand that moved least, and of the one that moved most.
    pub least: f64,
    pub most: f64,
}

impl FairnessSums {
    /// Adds one strand that moved this many bytes (or, without bytes, transactions).
    pub fn add(&mut self, moved: f64) {
        self.merge(&Self {
            strands: 1,
            sum: moved,
            sum_of_squares: moved * moved,
            least: moved,
            most: moved,
        });
    }

    pub fn merge(&mut self, other: &FairnessSums) {
        if other.strands == 0 {
            return;
        }
        self.least = if self.strands == 0 { other.least } else { self.least.min(other.least) };
        self.most = self.most.max(other.most);
        self.strands += other.strands;
        self.sum += other.sum;
        self.sum_of_squares += other.sum_of_squares;
    }

    /// The most that a strand moved relative to the least; `None` where one moved nothing.
    pub fn ratio(&self) -> Option<f64> {
        (self.least > 0.0).then(|| self.most / self.least)
    }

    /// Jain's index, 1/n (one strand has all) to 1 (all alike); `None` when nothing moved.
    /// R. Jain, D. Chiu, W. Hawe, DEC-TR-301, 1984.
    pub fn jain(&self) -> Option<f64> {
        (self.sum > 0.0 && self.strands > 0)
            .then(|| self.sum * self.sum / (self.strands as f64 * self.sum_of_squares))
    }
}

renamed!(
    /// As the profile has it.
    requested, formerly asked, in requested
);
renamed!(
    /// As the kernel tells it.
    effective, formerly granted, in effective
);

/// A setting as it was requested, and its effective value.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
pub struct Setting {
    /// Socket option as in the profile, and which half of it: `wndsz.send`, `wndsz.receive`, `mss`.
    pub name: String,
    pub host: String,
    #[serde(flatten, with = "requested")]
    #[schemars(with = "requested::Keys<String>")]
    pub requested: String,
    #[serde(flatten, with = "effective")]
    #[schemars(with = "effective::Keys<String>")]
    pub effective: String,
    /// Of a tunable: its value before the run changed it; null for an option of a socket.
    pub previous: Option<String>,
}

/// A time in which a host moved no byte and completed no operation, though a strand had one under way
/// and none thought or was paced; on the host's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quiet {
    pub from: Nanos,
    pub to: Nanos,
}

/// What one strand of a host did in a phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StrandTotals {
    pub group: u32,
    /// Number within its group.
    pub strand: u32,
    /// Sent and received.
    pub bytes: u64,
    /// Completed.
    pub transactions: u64,
}

/// What one strand has moved since the start of the phase, over time.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StrandSeries {
    pub group: u32,
    /// Number within its group.
    pub strand: u32,
    /// Bytes sent and received until an instant of this host's clock, in order of time. At the start of the phase there
    /// are none.
    pub bytes: Vec<(Nanos, u64)>,
}

/// An operation of a strand, when it ended and how long it took; on the host's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(Nanos, Nanos)", into = "(Nanos, Nanos)")]
pub struct LoggedOperation {
    pub end: Nanos,
    pub length: Nanos,
}

impl From<(Nanos, Nanos)> for LoggedOperation {
    fn from((end, length): (Nanos, Nanos)) -> Self {
        Self { end, length }
    }
}

impl From<LoggedOperation> for (Nanos, Nanos) {
    fn from(operation: LoggedOperation) -> Self {
        (operation.end, operation.length)
    }
}

/// Operations of one strand in a phase, in their order; those that failed are among them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StrandOperations {
    pub group: u32,
    /// Number within its group.
    pub strand: u32,
    pub operations: Vec<LoggedOperation>,
}

/// What one host measured in one phase.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct PhaseResult {
    pub phase: u32,
    /// Names of the rows of [`Counters::flowops`].
    pub flowops: Vec<FlowopKey>,
    /// In order of time.
    pub snapshots: Vec<Snapshot>,
    /// Those of a second and more, in order of time.
    pub quiet: Vec<Quiet>,
    /// Before the window, of any length.
    pub longest_quiet_in_ramp: Nanos,
    /// Transactions of this host's strands, think time excluded. Analysis uses the master's.
    pub transactions: Histogram,
    pub latencies: Vec<FlowopLatency>,
    /// Connections open when the window began.
    pub connections_open: u64,
    pub connections_failed: u64,
    /// Segments retransmitted by this host's TCP connections within the window.
    pub retransmits: Option<u64>,
    /// Segments with data that they sent, those sent again included, and packets that came to them
    /// beyond what was awaited.
    pub segments_sent: Option<u64>,
    pub out_of_order: Option<u64>,
    /// TCP connections that closed inside the window and were not asked for these three, which are `None`
    /// then: that would be a system call of each transaction.
    #[serde(default)]
    pub closed_unread: u64,
    pub tcp_samples: Vec<TcpSample>,
    pub workers: Vec<WorkerUse>,
    pub fairness: FairnessSums,
    /// Datagrams the kernel dropped for want of receive buffer (SO_MEMINFO).
    pub receive_buffer_drops: u64,
    /// From the call that sent a datagram to the one that received it, in the window. The clocks of two
    /// hosts agree as well as the controller knows them.
    pub one_way: Histogram,
    /// What sockets with receive stamps have read in the window; only where the plan asks for them.
    #[serde(default)]
    pub receive_stamps: Option<StampCounts>,
    /// When every host had ended the phase, and so after all packets had come; `None` without datagrams.
    pub drained: Option<PacketCounters>,
    /// What I/O options did in the phase.
    pub io: IoCounts,
    /// Messages whose content was not what the sender sent.
    pub verify_failures: u64,
    #[serde(default)]
    pub file_checks: FileChecks,
    /// Strands that did not reach the end of the phase within the drain's deadline.
    pub unfinished_strands: u64,
    /// By group, the part of `transactions` that is its own; only where the plan asks for details.
    #[serde(default)]
    pub group_transactions: BTreeMap<u32, Histogram>,
    /// Of the whole phase; only where the plan asks for details.
    #[serde(default)]
    pub strands: Vec<StrandTotals>,
    /// Up to the end of the window; none of a host with many strands.
    #[serde(default)]
    pub strand_series: Vec<StrandSeries>,
    /// Of strands that have any; only where the plan asks for them.
    #[serde(default)]
    pub logged: Vec<StrandOperations>,
    /// Operations beyond those that the plan asks for.
    #[serde(default)]
    pub not_logged: u64,
    /// Most bytes that this host's connections could hold between send and receive call:
    /// effective sizes of send and receive buffers.
    pub buffer_bytes: u64,
    /// Resident bytes of this host's process at the edges of the window.
    #[serde(default)]
    pub memory: Option<(u64, u64)>,
}

impl PhaseResult {
    /// The snapshot at this edge.
    pub fn snapshot(&self, edge: Edge) -> Option<&Snapshot> {
        self.snapshots.iter().find(|snapshot| snapshot.edge == edge)
    }
}
