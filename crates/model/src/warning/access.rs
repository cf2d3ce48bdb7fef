//! Who may use a host of the run.

use serde::{Deserialize, Serialize};

use super::Problem;

/// A host takes part in runs of anyone who reaches its port.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UnauthenticatedPeer {
    pub host: String,
}

impl Problem for UnauthenticatedPeer {
    fn code(&self) -> &'static str {
        "unauthenticated-peer"
    }

    fn host(&mut self) -> Option<&mut String> {
        Some(&mut self.host)
    }

    fn message(&self) -> String {
        format!(
            "{} does not know who controls it: `wirecost uperf -s` serves anyone who reaches its port. \
             Stop it when it is not needed, or use `wirecost agent` on an address that only you reach",
            self.host
        )
    }
}
