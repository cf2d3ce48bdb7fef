//! System calls: how often, how long on a CPU, how long they waited.

mod document;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Observation, UsrSys};
use crate::document::Section;

/// One system call, by all tasks that are meant.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct SyscallRow {
    pub number: u32,
    /// As the kernel's headers name it; `syscall_N` where they do not.
    pub name: String,
    /// Those that returned in the window.
    pub count: u64,
    pub per_second: f64,
    /// On a CPU, without the interrupts and softirqs that came in between.
    pub seconds: f64,
    pub average_us: f64,
    pub max_us: f64,
    /// Time of those interrupts and softirqs: also what the call itself set off, such as the
    /// receiving side of loopback.
    pub interrupted_seconds: f64,
    /// Not on a CPU: asleep, or waiting for its turn.
    pub waited_seconds: f64,
    /// Those that returned an error, `EAGAIN` too.
    pub failed: u64,
    /// What calls that move bytes returned; null for others.
    pub bytes: Option<u64>,
    /// Calls by their time on a CPU: at place n those of 2^n to 2^(n+1) ns, the last open.
    pub histogram_ns: Vec<u64>,
}

/// What the probe `syscalls` says.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct SyscallsSection {
    /// Of this process; of all for none.
    pub pid: Option<u32>,
    /// Most time first.
    pub calls: Vec<SyscallRow>,
    pub count: u64,
    pub per_second: f64,
    /// Of all together, on a CPU.
    pub seconds: f64,
    /// Length of the window.
    pub window_seconds: f64,
    /// How the time of all tasks on these CPUs divides, to the nanosecond. What a task faults in user
    /// mode counts to the user.
    pub usr_sys: Option<UsrSys>,
}

impl Observation for SyscallsSection {
    fn document(&self) -> Vec<Section> {
        document::sections(self)
    }
}
