//! How a command ended: one list for exit codes and the `status` of JSON documents.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Everything was done and measured as requested.
    Ok,
    /// An expectation or a comparison did not hold.
    Failed,
    /// Bad usage, profile or study; nothing was started.
    Usage,
    /// A peer, host or network failed.
    Peer,
    /// No complete window, lost counters, an unexplained difference of sent and received, dead time
    /// beyond a tenth of the window, hosts' windows that are apart, or a failed `verify`.
    Invalid,
    /// Stopped by the user.
    Interrupted,
}

impl Status {
    pub const ALL: [Status; 6] = [
        Status::Ok,
        Status::Failed,
        Status::Usage,
        Status::Peer,
        Status::Invalid,
        Status::Interrupted,
    ];

    /// The process exit code.
    pub fn exit_code(self) -> u8 {
        match self {
            Status::Ok => 0,
            Status::Failed => 1,
            Status::Usage => 2,
            Status::Peer => 3,
            Status::Invalid => 4,
            Status::Interrupted => 130,
        }
    }
}
