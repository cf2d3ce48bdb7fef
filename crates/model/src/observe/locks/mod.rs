//! Waiting for locks of the kernel: which lock, where in the code, how often and how long.

mod document;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{MetricDef, MetricScope, Observation, Value, reading};
use crate::document::Section;
use crate::metric::Better::Lower;
use crate::metric::Unit::{Count, Microseconds};

/// What the probe `locks` says: waits in the window, not how long locks were held. A wait counts where it
/// ends, with its part inside the window; one that had not ended is in `still_waiting`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct LocksSection {
    /// Waits that ended in the window, on the CPUs of the host.
    pub waits: u64,
    /// Sum of their lengths.
    pub wait_seconds: f64,
    /// The part of `wait_seconds` in which a CPU did nothing but wait. In the rest the task slept.
    pub spin_seconds: f64,
    /// The part of `wait_seconds` in which the probe read the stack. The waits would have been shorter by at most
    /// that without the probe.
    pub probe_seconds: f64,
    /// The part of `wait_seconds` that is counted twice: waits inside another wait of the same task or CPU, such as for
    /// a mutex's own spinlock, have a row of their own. Without it the sum is exclusive.
    pub inner_seconds: f64,
    pub longest_seconds: f64,
    /// Waits that had not ended when the window did.
    pub still_waiting: u64,
    /// Their part of the window.
    pub still_waiting_seconds: f64,
    /// Each lock, stack, waiting process and owner; longest total first.
    pub sites: Vec<LockSite>,
    /// What the list has no room for; it is in the sums.
    pub unlisted: UnlistedWaits,
    /// Whether waits for the owner of a socket were seen.
    pub socket_owners: bool,
    /// Waits that began in the window and whose end was not seen; they are in no other figure.
    pub abandoned: u64,
    /// Ends of waits that had begun before the probe was attached; they are in no other figure.
    pub unbegun: u64,
    /// Waits that the tables had no room for; they are in no other figure.
    pub uncounted: u64,
    /// Waits that came while a program of the probe ran on their CPU, its own waits among them; they are in no other
    /// figure.
    pub during_probe: u64,
    /// Waits whose stack was lost, as another had its place: their function and context are unknown.
    pub lost_stacks: u64,
    /// Waits whose stack was not read: they are in the row of the wait for the same lock before, in the same task and at
    /// the same depth of the kernel's stack. A stack that was read serves 15 such waits at most.
    #[serde(default)]
    pub assumed_stacks: u64,
}

/// Waits for one lock, by one stack of calls, of one process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LockSite {
    pub kind: LockKind,
    /// What the lock protects, as far as the function tells; null for others.
    pub class: Option<String>,
    /// Address of the lock; of the socket (`struct sock`) where its owner was waited for. Null where a socket was released
    /// before the task slept.
    pub lock: Option<String>,
    /// The function that wanted the lock: the innermost that is not part of the locks' own code. Null where the
    /// names of functions are hidden or the stack was lost.
    pub function: Option<String>,
    /// Its module; null for the kernel's own.
    pub module: Option<String>,
    /// From the beginning of `function`, as addr2line(1) takes it.
    pub offset: u64,
    pub context: WaitContext,
    /// Process that waited; null in softirqs and interrupts, which interrupt any.
    pub waiter: Option<LockTask>,
    /// Process that held the lock when the wait began. Null where the kernel does not keep it: spinlocks, locks
    /// held by readers, owners of sockets.
    pub owner: Option<LockTask>,
    /// Functions from `function` outwards.
    pub stack: Vec<String>,
    pub waits: u64,
    pub seconds: f64,
    /// As of all.
    pub spin_seconds: f64,
    /// As of all.
    pub probe_seconds: f64,
    /// As of all.
    pub inner_seconds: f64,
    pub longest_seconds: f64,
    pub still_waiting: u64,
    pub still_waiting_seconds: f64,
}

/// Sums of the rows that are not listed.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct UnlistedWaits {
    pub sites: u64,
    pub waits: u64,
    pub seconds: f64,
}

/// A process.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct LockTask {
    pub pid: u32,
    pub name: String,
    /// What a process of wirecost does; null for other programs and for those that have ended.
    pub role: Option<String>,
}

/// What kind of lock, and what for.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum LockKind {
    Spinlock,
    /// A spinning lock of readers and writers.
    RwlockRead,
    RwlockWrite,
    Mutex,
    /// A sleeping lock of readers and writers.
    RwsemRead,
    RwsemWrite,
    /// The same, with a counter of readers on each CPU.
    PercpuRwsemRead,
    PercpuRwsemWrite,
    Semaphore,
    /// A lock with priority inheritance: futexes, and most locks under PREEMPT_RT.
    RtMutex,
    /// Not a lock to the kernel: a task has the socket (`sk_lock.owned`), and others sleep until it is done.
    SocketOwner,
}

/// What the CPU was doing when the wait began.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum WaitContext {
    Task,
    Softirq,
    Interrupt,
    /// The stack was lost, or functions have no names.
    Unknown,
}

impl LocksSection {
    /// The most important fact in one line, where waiting of wirecost's own processes, of softirqs and of
    /// interrupts is at least a hundredth of the CPUs' busy time.
    #[must_use]
    pub fn brief(&self, busy_seconds: f64) -> Option<String> {
        document::brief(self, busy_seconds)
    }
}

impl Observation for LocksSection {
    const METRICS: &'static [MetricDef<Self>] = &[
        reading(
            "locks.waits",
            Count,
            Lower,
            MetricScope::Cpus,
            "waits for locks of the kernel that ended in the window",
            Value::One(|s| Ok(s.waits as f64)),
        ),
        reading(
            "locks.wait_total",
            Microseconds,
            Lower,
            MetricScope::Cpus,
            "time spent waiting for locks of the kernel, of all waiters together",
            Value::One(|s| Ok(s.wait_seconds * 1e6)),
        ),
        reading(
            "locks.spin_total",
            Microseconds,
            Lower,
            MetricScope::Cpus,
            "CPU time spent spinning for locks of the kernel",
            Value::One(|s| Ok(s.spin_seconds * 1e6)),
        ),
        reading(
            "locks.wait_max",
            Microseconds,
            Lower,
            MetricScope::Cpus,
            "longest wait for a lock of the kernel",
            Value::One(|s| Ok(s.longest_seconds * 1e6)),
        ),
    ];

    fn document(&self) -> Vec<Section> {
        document::sections(self)
    }
}

impl LockKind {
    /// For people.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Spinlock => "spinlock",
            Self::RwlockRead => "rwlock, read",
            Self::RwlockWrite => "rwlock, write",
            Self::Mutex => "mutex",
            Self::RwsemRead => "rwsem, read",
            Self::RwsemWrite => "rwsem, write",
            Self::PercpuRwsemRead => "per-CPU rwsem, read",
            Self::PercpuRwsemWrite => "per-CPU rwsem, write",
            Self::Semaphore => "semaphore",
            Self::RtMutex => "rt_mutex",
            Self::SocketOwner => "socket owner",
        }
    }
}

impl WaitContext {
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Task => "task",
            Self::Softirq => "softirq",
            Self::Interrupt => "interrupt",
            Self::Unknown => "unknown",
        }
    }
}
