//! The document of a host that was observed while some other program made the traffic,
//! `wirecost.observe/1`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::host::HostFacts;
use crate::observe::HostObservation;
use crate::probe::ProbeReport;
use crate::run::Cpu;
use crate::status::Status;
use crate::warning::Entry;

pub const SCHEMA: &str = "wirecost.observe/1";

/// Bytes that cycles are divided by, where wirecost did not move them itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// Bytes that a network device counted, received and transmitted, headers included.
    Device,
}

/// What a network device counted in the window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DeviceTraffic {
    pub device: String,
    pub rx_bytes: u64,
    pub rx_packets: u64,
    pub rx_drops: u64,
    pub tx_bytes: u64,
    pub tx_packets: u64,
    pub tx_drops: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ObserveDocument {
    #[schemars(extend("const" = SCHEMA))]
    pub schema: String,
    pub status: Status,
    /// One message, where `status` is not `ok`.
    pub error: Option<String>,
    /// Version of wirecost.
    pub version: String,
    /// Wall-clock start, milliseconds since 1970.
    pub started_unix_ms: u64,
    /// Length of the window.
    pub seconds: Option<f64>,
    pub facts: Option<HostFacts>,
    /// Percent of the time of the CPUs that were watched.
    pub cpu: Option<Cpu>,
    /// `bpf` or `proc-stat`.
    pub cpu_source: Option<String>,
    /// Busy cycles of those CPUs over 1024 bytes.
    pub cycles_per_kbyte: Option<f64>,
    /// What the bytes are; null with `cycles_per_kbyte`.
    pub basis: Option<Basis>,
    /// `pmu`, `tsc-exact` or `tsc-ticks`.
    pub cycles_source: Option<String>,
    /// Why `cycles_per_kbyte` is null.
    pub cycles_reason: Option<String>,
    /// Devices of the network namespace that moved anything, or the one that was named.
    pub devices: Vec<DeviceTraffic>,
    pub probes: Vec<ProbeReport>,
    /// The one host.
    pub hosts: Vec<HostObservation>,
    pub warnings: Vec<Entry>,
}

impl ObserveDocument {
    /// A document that has seen nothing (yet).
    #[must_use]
    pub fn empty(version: &str, started_unix_ms: u64) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            status: Status::Ok,
            error: None,
            version: version.to_owned(),
            started_unix_ms,
            seconds: None,
            facts: None,
            cpu: None,
            cpu_source: None,
            cycles_per_kbyte: None,
            basis: None,
            cycles_source: None,
            cycles_reason: None,
            devices: Vec::new(),
            probes: Vec::new(),
            hosts: Vec::new(),
            warnings: Vec::new(),
        }
    }
}
