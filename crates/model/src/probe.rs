//! What is asked of probes, and how they did.

use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::clock::Nanos;
use crate::observe::HostObservation;

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
    /// Connections by which the run is controlled, by the addresses of their ends: they are none of
    /// the load's.
    #[serde(default)]
    pub control: Vec<(SocketAddr, SocketAddr)>,
    /// Processes whose threads named `wirecost-N` are the workers of a host of the run, by its name.
    #[serde(default)]
    pub workers_of: Vec<(String, u32)>,
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

/// What one observer says of a window.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct ObserverReport {
    pub probes: Vec<ProbeReport>,
    pub parts: Vec<HostObservation>,
}
