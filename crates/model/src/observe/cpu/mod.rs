//! Where the time of CPUs went.

mod document;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Observation;
use crate::document::Section;

/// Names of the kernel's softirq vectors, in their order:
/// <https://elixir.bootlin.com/linux/v6.12/source/include/linux/interrupt.h#L547>.
pub const SOFTIRQS: [&str; 10] =
    ["hi", "timer", "net_tx", "net_rx", "block", "irq_poll", "tasklet", "sched", "hrtimer", "rcu"];

/// Seconds of one softirq vector.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SoftirqTime {
    pub vector: String,
    pub seconds: f64,
}

/// Where the time of one CPU went, or of several: the parts add up to `wall`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct CpuTime {
    /// None for a sum.
    pub cpu: Option<u32>,
    pub wall: f64,
    /// Halted.
    pub idle: f64,
    /// In the idle loop on the way into or out of the halt: work, though no task runs. Null where the
    /// kernel does not tell, and then in `idle`.
    pub idle_loop: Option<f64>,
    /// Tasks, kernel threads included, without what interrupts them.
    pub task: f64,
    /// Interrupts, without softirqs.
    pub irq: f64,
    pub softirq: f64,
    pub softirqs: Vec<SoftirqTime>,
    /// Part of `softirq` that ksoftirqd ran rather than the end of an interrupt or of a system call.
    pub in_ksoftirqd: Option<f64>,
    /// Part of `irq` and `softirq` that came while the CPU was idle, and took no task's time.
    pub in_idle: Option<f64>,
    /// The same of `irq` alone; null in older records.
    #[serde(default)]
    pub irq_in_idle: Option<f64>,
    /// From one task to another. Null where it is not counted by CPU.
    pub switches: Option<u64>,
    /// Part of all of the above that the hypervisor gave to others, as /proc/stat counts it.
    pub steal: Option<f64>,
}

/// How the time of tasks divides.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UsrSys {
    /// `sampled`, `spans` (every system call timed: exact) or `proc-stat`.
    pub source: String,
    /// Share of task time in user space, 0 to 1.
    pub usr: f64,
    /// 95% interval of `usr`.
    pub interval: Option<(f64, f64)>,
    /// Number of samples that this rests on; 0 where it is exact.
    pub samples: u64,
}

/// CPU time of one process or kernel thread, by the kernel's own clock of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessTime {
    pub pid: u32,
    pub name: String,
    pub kernel_thread: bool,
    /// What a process of wirecost does: its command (`run`, `agent`, `observe`), or `agent of HOST`.
    /// Null for others, and in older records.
    #[serde(default)]
    pub role: Option<String>,
    pub seconds: f64,
}

/// How far the kernel's tick-sampled figures were off, percent of the wall.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TickError {
    pub busy: f64,
    pub softirq: f64,
    pub irq: f64,
    pub idle: f64,
    /// Time that /proc/stat shows nowhere.
    pub unaccounted: f64,
}

/// What the probe `cpu` says.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct CpuSection {
    /// `bpf` (every transition timed) or `proc-stat` (sampled by ticks).
    pub source: String,
    pub total: CpuTime,
    pub per_cpu: Vec<CpuTime>,
    /// Where `usr_sys` comes from: `sampled`, `spans` or `proc-stat`.
    pub usr_sys_source: Option<String>,
    /// Null where neither samples nor ticks tell.
    pub usr_sys: Option<UsrSys>,
    /// The same by CPU, in the order of `per_cpu`; null without samples there.
    pub usr_sys_per_cpu: Vec<Option<UsrSys>>,
    /// Those that used most, most first.
    pub processes: Vec<ProcessTime>,
    /// Seconds of all processes together, also of those not listed.
    pub processes_total: f64,
    /// Seconds of tasks that are none of these processes': of programs that ended in the window, and
    /// of those in other PID namespaces. Null where tasks were not traced, or only one process was
    /// observed, and in older records.
    #[serde(default)]
    pub unseen_processes: Option<f64>,
    /// Counts a second of the time-stamp counter, measured over the window.
    pub tsc_hz: Option<f64>,
    /// /proc/stat minus what was traced; null where nothing was traced.
    pub tick_error: Option<TickError>,
}

impl Observation for CpuSection {
    fn document(&self) -> Vec<Section> {
        document::sections(self)
    }
}

impl CpuSection {
    /// Those that used most, of the whole machine; none where none used much.
    #[must_use]
    pub fn processes_document(&self) -> Option<Section> {
        document::processes(self)
    }
}
