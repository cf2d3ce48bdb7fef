//! Everything that the hosts of a run reported: what analysis makes a [`crate::run::Run`] of.

use serde::{Deserialize, Serialize};

use crate::host::HostFacts;
use crate::link::LinkOutcome;
use crate::link::netem::NetemOutcome;
use crate::measure::{PhaseResult, Setting};
use crate::observe::ObserverReport;
use crate::placement::StrandPlacement;
use crate::profile::Until;
use crate::program::Side;
use crate::status::Status;
use crate::warning::Warning;

/// What the controller has when a run ends, well or not.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// `Ok` where every phase ran to its end; analysis may still find it invalid.
    pub status: Status,
    pub error: Option<String>,
    pub phases: Vec<PhasePlan>,
    pub hosts: Vec<HostOutcome>,
    pub observations: Vec<PhaseObservation>,
    pub warnings: Vec<Warning>,
    /// Links between the hosts by the emulator.
    #[serde(default)]
    pub link: Option<LinkOutcome>,
    /// Links between the hosts by netem.
    #[serde(default)]
    pub netem: Option<NetemOutcome>,
}

/// What was observed of one machine in one phase.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PhaseObservation {
    pub phase: u32,
    /// Host that observed, by index.
    pub host: u32,
    pub observation: ObserverReport,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PhasePlan {
    /// The longest of the groups' transactions of that number.
    pub until: Until,
    /// Seconds before the window.
    pub ramp_seconds: f64,
    pub headline: bool,
    /// Whether any flowop of the phase moves data.
    pub moves_data: bool,
    /// Whether any flow of the phase uses datagrams, which may be lost without fault of ours.
    pub datagrams: bool,
    /// Whether any flow of the profile is encrypted.
    pub encrypts: bool,
    /// Whether the profile may keep a strand waiting at one end while those at the other end are idle:
    /// strands think, are paced, end before others, or turn from one host to another.
    pub may_idle: bool,
    /// When the window began, milliseconds since 1970 by the controller's clock.
    #[serde(default)]
    pub window_unix_ms: Option<f64>,
}

/// What a run is worth whose traffic stood still for more than a tenth of its window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeadTimePolicy {
    /// Nothing: the result is invalid.
    #[default]
    Invalid,
    /// It is what the run is about: only a warning.
    Report,
}

/// One host's part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostOutcome {
    pub name: String,
    pub side: Side,
    pub address: Option<String>,
    pub facts: HostFacts,
    /// CPUs that are the host's own; all of the machine's where it has none of its own.
    pub cpus: Vec<u32>,
    /// Whether no other host of the run uses those CPUs.
    pub owns_cpus: bool,
    pub workers: u32,
    /// Process of its agent, as its machine numbers processes.
    pub pid: u32,
    /// Number of its network namespace: hosts of a kernel with the same one share devices. `None` where it is not known.
    pub network_namespace: Option<u64>,
    /// Its clock minus the controller's, nanoseconds, and how far that can be wrong.
    pub clock_offset: i64,
    pub clock_error: u64,
    /// By phase; phases that did not end are missing.
    pub phases: Vec<PhaseResult>,
    pub settings: Vec<Setting>,
    pub placements: Vec<StrandPlacement>,
    pub warnings: Vec<Warning>,
    /// What `hosts.json` of a record keeps of it.
    pub environment: serde_json::Value,
}
