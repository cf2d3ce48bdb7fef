//! What each CPU did for a short time, event by event, for a trace viewer.

mod document;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Observation;
use crate::document::Section;

/// What the probe `trace` says.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct TraceSection {
    /// How long it goes on from the beginning of the window: to its end, at most 0.2 s, or until the buffer was full.
    pub seconds: f64,
    /// CPUs that were traced.
    pub cpus: Vec<u32>,
    /// How many events the buffer has room for, of all hosts of the machine together.
    pub room: u64,
    /// When the buffer was full, from the beginning on; null where it was not. No later event is kept.
    pub full_after_seconds: Option<f64>,
    /// Events of the machine that found no room.
    pub lost: u64,
    /// Tasks without a name, as there were too many.
    pub unnamed: u64,
    /// Times that a task left a CPU and had not been seen to come: kernels of some virtual machines run no program
    /// while a thread of process 1 runs.
    pub unobserved: u64,
    /// Events of each kind.
    pub counts: TraceCounts,
    /// Tasks of the events.
    pub tasks: Vec<TracedTask>,
    /// By time. Empty in the document of a record, beside which they are in `trace.json`.
    pub events: Vec<TraceEvent>,
}

/// Events of each kind in a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct TraceCounts {
    pub switches: u64,
    pub wakeups: u64,
    pub migrations: u64,
    /// Runs of a softirq, by their beginning.
    pub softirqs: u64,
    /// Interrupts, by their beginning.
    pub interrupts: u64,
}

/// A task of a trace.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct TracedTask {
    /// Its number, as `task` of an event has it.
    pub task: u32,
    pub name: String,
    pub process: u32,
    pub process_name: String,
    pub kernel_thread: bool,
}

/// One event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TraceEvent {
    /// Nanoseconds since the trace began.
    pub at: u64,
    /// Where it happened.
    pub cpu: u32,
    #[serde(flatten)]
    pub what: TraceEventKind,
}

/// What happened. Task 0 is the idle task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum TraceEventKind {
    /// Task `from` leaves the CPU to `to`; `ready` says that it still wants to run.
    Switch {
        from: u32,
        to: u32,
        ready: bool,
    },
    /// `task` is woken while `by` runs, itself or an interrupt or softirq upon it.
    Wake {
        task: u32,
        by: u32,
    },
    /// `task` is moved to the queue of another CPU.
    Migrate {
        task: u32,
        to: u32,
    },
    SoftirqBegins {
        softirq: String,
    },
    SoftirqEnds {
        softirq: String,
    },
    /// Named as in /proc/interrupts: its number, or the abbreviation of a vector of the CPU.
    InterruptBegins {
        interrupt: String,
    },
    InterruptEnds {
        interrupt: String,
    },
}

impl Observation for TraceSection {
    fn document(&self) -> Vec<Section> {
        document::sections(self)
    }
}
