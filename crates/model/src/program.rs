//! What each side of a profile does: the profile resolved for one host.
//!
//! The master runs the profile as written; every peer runs its mirror (where the master writes, the
//! peer reads). `wirecost check` prints programs; an agent compiles one to steps and runs it.

use serde::{Deserialize, Serialize};

use crate::plan::limits::{ACTS, SERVICES};
use crate::plan::{Weight, bounded, bounded_in_all};
use crate::profile::{Arrivals, Options, Part, Position, Until};

/// Which side of a profile a host plays. (uperf: master and slave.)
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    Master,
    Peer,
}

impl Side {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Side::Master => "master",
            Side::Peer => "peer",
        }
    }

    /// The side at the far end.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Side::Master => Side::Peer,
            Side::Peer => Side::Master,
        }
    }
}

impl std::fmt::Display for Side {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Everything one host runs, phase by phase.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Program {
    pub side: Side,
    #[serde(deserialize_with = "bounded_in_all::<_, _, ACTS>")]
    pub groups: Vec<GroupProgram>,
    /// What the host accepts connections or datagrams on.
    #[serde(deserialize_with = "bounded::<_, _, SERVICES>")]
    pub services: Vec<Service>,
}

/// A group's part of a host's program. `phases` has an entry for each phase of the run; `None` where
/// the group has no transaction of that number or this host no part in it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GroupProgram {
    /// Index of the group in the profile.
    pub group: u32,
    pub name: String,
    pub strands: u32,
    #[serde(deserialize_with = "bounded_in_all::<_, _, ACTS>")]
    pub phases: Vec<Option<PhaseProgram>>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PhaseProgram {
    pub until: Until,
    pub arrivals: Option<Arrivals>,
    #[serde(deserialize_with = "bounded::<_, _, ACTS>")]
    pub acts: Vec<HostFlowop>,
    /// As in the profile, also where this host has no act for some of the flowops.
    #[serde(default, deserialize_with = "bounded_in_all::<_, _, ACTS>")]
    pub order: Vec<Part>,
}

impl Weight for GroupProgram {
    fn weight(&self) -> usize {
        1 + self.phases.iter().map(Weight::weight).sum::<usize>()
    }
}

impl Weight for Option<PhaseProgram> {
    fn weight(&self) -> usize {
        let of_phase = |phase: &PhaseProgram| {
            phase.acts.len() + phase.order.iter().map(Weight::weight).sum::<usize>()
        };
        1 + self.as_ref().map_or(0, of_phase)
    }
}

impl Weight for Part {
    fn weight(&self) -> usize {
        let all = |parts: &[Part]| parts.iter().map(Part::weight).sum::<usize>();
        1 + match self {
            Part::Flowop(_) => 0,
            Part::Loop { parts, .. } => all(parts),
            Part::Mix(choices) => choices.iter().map(|choice| 1 + all(&choice.parts)).sum(),
        }
    }
}

/// One flowop as this host executes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostFlowop {
    /// Index of the flowop in its transaction, the same on every host.
    pub flowop: u32,
    /// The flowop that this side executes (on a peer the mirror of the one written).
    pub kind: String,
    pub options: Options,
    /// For connect and accept: the service that is connected to or accepted on.
    pub service: Option<ServiceRef>,
    /// For connect and accept: how many connections of each of its ids a strand may hold at once.
    pub most_open: u32,
    pub at: Position,
}

/// Names a service of a host of the run (indices into the run's hosts and that host's services).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ServiceRef {
    pub host: u32,
    pub service: u32,
}

/// One thing a host accepts on, for all strands of one group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Service {
    pub group: u32,
    pub protocol: String,
    /// Fixed port, or none for one of the kernel's choice.
    pub port: Option<u16>,
    /// Connections a strand may have to this service at once.
    pub conns_per_strand: u32,
    /// Whether connections are opened again and again inside a phase.
    pub reconnects: bool,
    /// Hosts that connect.
    pub clients: Vec<u32>,
    /// Options that must be set before listening (buffers, congestion control, MSS).
    pub options: Options,
}
