//! What probes say of a host while traffic runs: the sections of `observe` in `wirecost.run/1`, and
//! of `wirecost.observe/1`.
//!
//! A key is never absent; what was not measured is `null`, and the probe's report says why.

mod cpu;
mod functions;
mod interrupts;
mod segments;
mod syscalls;
mod tcp;
mod watched;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use cpu::*;
pub use functions::*;
pub use interrupts::*;
pub use segments::*;
pub use syscalls::*;
pub use tcp::*;
pub use watched::{Basis, DeviceTraffic, SCHEMA, Watched};

use crate::clock::Nanos;

/// How far a probe can do what it is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProbeStatus {
    Ready,
    /// Some of its figures are missing, or come from a poorer source.
    Partial,
    No,
}

/// What observing took.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct ProbeCost {
    /// Places in the kernel where a program of this probe runs; those it shares are the first's.
    pub hooks: u32,
    pub load_ms: f64,
    pub attach_ms: f64,
    /// Runs that the kernel left out because the program was under way on that CPU already.
    pub recursion_misses: u64,
    /// Samples that found no room.
    pub lost: u64,
}

/// How one probe did on one host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProbeReport {
    pub host: String,
    pub name: String,
    pub status: ProbeStatus,
    /// What is missing and why, where the status is not `ready`.
    pub reason: Option<String>,
    pub cost: ProbeCost,
}

/// Slices of a window in which hooks of hot paths were in place. What they counted is of them.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Slices {
    pub count: u32,
    /// All of them together.
    pub seconds: f64,
    /// Of the window.
    pub percent: f64,
}

/// The part of a machine that figures are wanted of.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Part {
    /// Host of the run, or of its hosts the first.
    pub host: String,
    /// All hosts of the run whose work is in the figures.
    pub covers: Vec<String>,
    /// CPUs; all for none.
    pub cpus: Option<Vec<u32>>,
    /// A process in the network namespace that is meant; the observer's own for none.
    pub netns_of: Option<u32>,
    /// Network device; all of the namespace for none.
    pub device: Option<String>,
    /// Only this process, for figures that are of processes.
    pub pid: Option<u32>,
}

/// What is to be observed on one machine.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct ObserveRequest {
    /// Names of probes; `NAME:basic` is as much of one as is cheap, `NAME:sliced` has hooks on hot
    /// paths in slices of the window only.
    pub probes: Vec<String>,
    pub parts: Vec<Part>,
}

/// When probes are attached and what of it counts, on the clock of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ObserveTimes {
    pub attach: Nanos,
    pub start: Nanos,
    /// None where the end is not known before.
    pub end: Option<Nanos>,
}

/// What was observed of one part of a machine in one window.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Observed {
    /// Host of the run, or of several that share CPUs the first.
    pub host: String,
    /// All hosts of the run whose work is in these figures.
    pub covers: Vec<String>,
    /// Length of the window as the probes cut it.
    pub seconds: f64,
    pub cpu: Option<CpuSection>,
    pub pmu: Option<PmuCounts>,
    pub interrupts: Option<InterruptsSection>,
    pub segments: Option<SegmentsSection>,
    pub tcp: Option<TcpSection>,
    pub syscalls: Option<SyscallsSection>,
    pub functions: Option<FunctionsSection>,
}

impl Observed {
    /// Takes over what another pass saw and this one did not.
    pub fn complete_with(&mut self, other: Observed) {
        self.cpu = self.cpu.take().or(other.cpu);
        self.pmu = self.pmu.take().or(other.pmu);
        // One pass may have counted what another timed.
        let timed = |section: &InterruptsSection| section.source == "bpf";
        if !self.interrupts.as_ref().is_some_and(timed) {
            self.interrupts = other.interrupts.or(self.interrupts.take());
        }
        self.segments = self.segments.take().or(other.segments);
        self.tcp = self.tcp.take().or(other.tcp);
        self.syscalls = self.syscalls.take().or(other.syscalls);
        self.functions = self.functions.take().or(other.functions);
    }
}

/// All of one observer.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Observation {
    pub probes: Vec<ProbeReport>,
    pub parts: Vec<Observed>,
}
