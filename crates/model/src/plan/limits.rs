//! The limits within which an agent obeys, each with its reason.
//!
//! They bound what one order can make an agent allocate and do. A profile that needs more is refused
//! before anything is allocated.

use crate::clock::{MILLISECOND, Nanos, SECOND};

/// Hosts of a run. Each is a session of the controller and an entry in the orders to all others.
pub const HOSTS: usize = 4096;

/// Groups of a program. Profiles have tens of groups; all groups are searched for each worker.
pub const GROUPS: usize = 4096;

/// Phases, flowops and parts of their order, in all groups together. Profiles have hundreds. Each
/// flowop has a row of counters on every worker, and flowops are searched for by parts of an order.
pub const ACTS: usize = 16_384;

/// Objects of congestion control of a plan. A run compares a few.
pub const CONGESTION_OBJECTS: usize = 8;

/// Bytes of an object of congestion control. One with debug information has tens of kilobytes.
pub const CONGESTION_OBJECT: usize = 1 << 20;

/// Strands of a host. A strand has some kilobytes, and the largest runs have tens of thousands.
pub const STRANDS: u64 = 1_000_000;

/// Threads of the engine that has one for each strand. Linux allows a machine of up to 32 CPUs
/// 32,768 processes and threads (`kernel.pid_max`, proc(5)); this leaves most of them to others.
pub const THREADS: u64 = 10_000;

/// Workers of a host: more than any machine has CPUs, and each has memory and descriptors of its own.
pub const WORKERS: u32 = 4096;

/// CPUs in a list, and the number above all of theirs (`CONFIG_NR_CPUS` ends at 8192 on x86-64).
pub const CPUS: u32 = 8192;

/// Connections of a host: as many as the default `fs.nr_open` gives one process descriptors, four
/// times over.
pub const CONNECTIONS: u64 = 4 << 20;

/// Connections of all strands of a group that open more for as long as a phase lasts. Such a phase ends
/// with an error when they are reached, as uperf ends when it has no descriptor left (32,768 of them,
/// which is more than many systems give a process).
pub const OPEN_ENDED: u64 = 16_384;

/// Connections that the flowops of a program name, each flowop counted with all of its own. They are
/// walked through one by one before the run.
pub const NAMED_CONNECTIONS: u64 = 1 << 20;

/// Services of a host. A service is something that it listens for in one group, and profiles have a
/// few.
pub const SERVICES: usize = 4096;

/// Strands of the groups of all services together. Each has its place in the answer of the host.
pub const SERVED_STRANDS: u64 = 4 << 20;

/// Addresses that a host listens at. A network namespace has 65,535 ports.
pub const ADDRESSES: usize = 65_536;

/// Where a host is asked whether it agrees to receive: by TCP, vsock and a Unix socket.
pub const CONSENTS: usize = 3;

/// Different payloads of a program. Each is kept whole by every worker.
pub const PAYLOADS: usize = 64;

/// Different sinks of a program. Each is a file of every worker.
pub const SINKS: usize = 64;

/// Bytes that are read of a payload file: as many as the longest piece of a message has.
pub const PAYLOAD_BYTES: u64 = 16 << 20;

/// Files of one `sendfile`. Their names are kept in memory and their sizes are sent to all hosts.
pub const FILES: usize = 100_000;

/// Bytes of a file that a `sendfile` sends. Its receiver adds up as many of them as it executes.
pub const FILE_BYTES: u64 = 1 << 40;

/// Bytes of a message. A phase's sum of these fits 64 bits.
pub const MESSAGE: u64 = 1 << 56;

/// Executions of a flowop in one turn (`count` or `repeat`), as in the profile language.
pub const COUNT: u64 = i32::MAX as u64;

/// Executions of a flowop in one transaction, and bytes moved by it: sums of these fit 64 bits.
pub const IN_A_TRANSACTION: u64 = 1 << 62;

/// Rounds of loops around a mix. A choice may have nothing to do on this host, and then a strand goes
/// through all rounds without giving others their turn.
pub const MIXED_ROUNDS: u64 = 1_000_000;

/// Values of a table. It is searched for every draw.
pub const TABLE: usize = 4096;

/// Values by strand of all flowops. Each is drawn before the run, and kept.
pub const BY_STRAND: u64 = 16 << 20;

/// Intended starts of a trace, as in the profile language.
pub const STARTS: usize = 1_000_000;

/// Intended starts in a second, as in the profile language.
pub const RATE: f64 = i32::MAX as f64;

/// A time-out or a thought. The sum of a few of these and the time since boot fits 64 bits.
pub const LONGEST_WAIT: Nanos = 1 << 61;

/// Bytes of a name, a path or a token: PATH_MAX.
pub const TEXT: usize = 4096;

/// The shortest interval of a series. A reading of all counters takes microseconds, at real-time
/// priority.
pub const SHORTEST_INTERVAL: Nanos = 10 * MILLISECOND;
/// The longest. It only keeps sums of times within 64 bits.
pub const LONGEST_INTERVAL: Nanos = LONGEST_PHASE;

/// How far from now a phase may begin. Orders arrive some milliseconds before, and a host that hears
/// of a phase late begins late.
pub const START_WITHIN: Nanos = 60 * SECOND;

/// Ramp and window together.
pub const LONGEST_PHASE: Nanos = 366 * 24 * 3600 * SECOND;

/// Times beside a window in which nothing observes: before and after.
pub const UNOBSERVED: usize = 2;

/// Numbers in all readings of a phase, a reading being one for each flowop and [`CUT_NUMBERS`] more.
/// They are kept in memory, and are sent in one message of less than 512 MiB.
pub const SERIES: u64 = 8_000_000;
/// Beside its flowops a reading has about as many numbers as this many flowops.
pub const CUT_NUMBERS: u64 = 8;

/// Samples of connections (TCP_INFO) that a worker takes at a time.
pub const TCP_SAMPLES: u32 = 1024;

/// Single operations that a host reports in all phases. They are kept in memory, and are sent in one
/// message for each phase, some 30 bytes for each.
pub const LOGGED_OPERATIONS: u64 = 1_000_000;

/// Probes of a request, parts of a machine, and hosts that a part covers.
pub const PROBES: usize = 64;
/// Settings of a host that a run changes.
pub const SETTINGS: usize = 256;
pub const PARTS: usize = HOSTS + 1;

/// Part of the machine's memory that a plan may need.
pub const MEMORY_SHARE: u64 = 2;

/// Bytes that a strand needs at least.
pub const STRAND_BYTES: u64 = 1 << 10;
/// The same of a connection, with its socket in the kernel.
pub const CONNECTION_BYTES: u64 = 3 << 10;
/// The same of a strand's place in the answer of a service.
pub const PLACE_BYTES: u64 = 16;
/// The same of a row of counters on one worker, with the two pages of its histogram that most latencies
/// fall into.
pub const ROW_BYTES: u64 = 9 << 10;
/// The same of an operation that is reported: as it is kept, and as it is sent.
pub const LOGGED_OPERATION_BYTES: u64 = 24 + 16 + 32;
/// The stack that a thread has touched, and what else it has in the kernel.
pub const THREAD_BYTES: u64 = 48 << 10;
/// The most of a buffer that one call fills: what a socket's receive buffer holds.
pub const FILLED_AT_ONCE: u64 = 6 << 20;
/// A block of a sink that is written past the page cache, or by io_uring.
pub const SINK_BLOCK: u64 = 260 << 10;
