//! What a page holds so that its study can be run again on other hosts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Finding;

/// The format that this version writes and reads.
pub const REPLAY_VERSION: u32 = 1;

/// A study without what is of the machines that it was run on, and what it found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Replay {
    /// [`REPLAY_VERSION`] of who wrote it.
    pub version: u32,
    /// The definition as a file of a study (docs/studies.md), with its seed.
    pub study: String,
    /// Texts of its profiles that are no built-ins, by file name.
    pub profiles: BTreeMap<String, String>,
    /// Where it ran, in words: `loopback`, `lab`, `vm:6.1`, `hosts`.
    pub place: String,
    /// What it is without, a sentence each.
    pub left_out: Vec<String>,
    /// Without evidence.
    pub findings: Vec<Finding>,
}
