//! Settings of hosts that a run changes, and restores when it ends.

use serde::{Deserialize, Serialize};

/// What a run changes on a host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tuning {
    /// Names of tunables and their values, in the order in which they are set. To the controller, a name may
    /// be of one host ([`host_and_name`]).
    pub settings: Vec<(String, String)>,
    /// The device that settings of devices are of.
    pub device: Option<String>,
    /// Whether it may be the device that carries the connection to the controller.
    pub allow_control_device: bool,
}

/// The host of `HOST:NAME`, by its name or its side (`master`, `peer`), and the tunable.
#[must_use]
pub fn host_and_name(text: &str) -> (Option<&str>, &str) {
    match text.split_once(':') {
        Some((host, name)) => (Some(host), name),
        None => (None, text),
    }
}

/// A setting that was changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tuned {
    /// Name of the tunable.
    pub name: String,
    pub requested: String,
    /// As it was read back.
    pub effective: String,
    /// Its value before the change.
    pub previous: String,
}

/// A setting that does not have its previous value again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotRestored {
    pub name: String,
    pub place: String,
    /// Its value before it was changed.
    pub previous: String,
    pub why: String,
}
