//! Where the connections of strands were placed at the peer (option `placement`), and where their packets went.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How the place was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PlacedBy {
    /// By source ports, from the key, the table and the hashed fields of the peer's device.
    DeviceTable,
    /// By connections that were opened until the peer said that one had arrived on the right CPU.
    Observation,
}

/// Where the connections of one strand were placed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StrandPlacement {
    /// The host that connects.
    pub host: String,
    /// The host that it connects to.
    pub peer: String,
    /// Number of the group in the profile, from 0.
    pub group: u32,
    /// Number of the strand in its group, from 0.
    pub strand: u32,
    /// Null where only the peer has reported the strand.
    pub by: Option<PlacedBy>,
    /// Receive queue of the peer's device; null by observation.
    pub queue: Option<u32>,
    /// CPU of the peer; null by the device's table.
    pub cpu: Option<u32>,
    /// Connections that the strand opened.
    pub connections: u64,
    /// Connections that were opened to find them, these included.
    pub connections_tried: u64,
    /// CPUs of the peer on which the last packets of these connections arrived, at the ends of phases and of connections
    /// (SO_INCOMING_CPU). Empty where the peer cannot tell: connections to addresses of the strand's own, and sockets
    /// that clients share.
    pub arrived_on: BTreeSet<u32>,
}

impl StrandPlacement {
    /// Strands of a host that are reported.
    pub const MOST: usize = 4096;

    #[must_use]
    pub fn of(group: u32, strand: u32) -> Self {
        Self {
            host: String::new(),
            peer: String::new(),
            group,
            strand,
            by: None,
            queue: None,
            cpu: None,
            connections: 0,
            connections_tried: 0,
            arrived_on: BTreeSet::new(),
        }
    }
}
