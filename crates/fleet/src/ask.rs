//! Asks an agent what it is like where it runs, without running anything there.

use std::sync::mpsc::channel;
use std::time::Duration;

use wirecost_model::environment::Environment;
use wirecost_model::host::HostFacts;
use wirecost_model::observe::{ObserveRequest, ProbeReport};

use crate::host::{AgentHost, Host, HostError};
use crate::wire::{self, Notice, Order};

/// To describe a host takes milliseconds; an answer that does not come is lost.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Why an agent did not describe its host.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    #[error(transparent)]
    Host(#[from] HostError),
    #[error("{address}: the agent refused: {message}")]
    Refused { address: String, message: String },
    #[error("{address}: the agent stopped responding")]
    Silent { address: String },
    #[error(
        "{address}: the format of the agent's answer differs: install the same version of wirecost on both hosts: {reason}"
    )]
    Foreign { address: String, reason: String },
}

/// What an agent says of its host.
#[derive(Debug)]
pub struct Answer {
    pub facts: HostFacts,
    pub environment: Environment,
    /// What each probe can do there.
    pub probes: Vec<ProbeReport>,
}

/// What there is to say of the host of the agent at `address` (as in [`AgentHost::connect`]).
///
/// # Errors
/// [`AskError`] names the address and the cause.
pub fn about(address: &str) -> Result<Answer, AskError> {
    let named = || address.to_owned();
    // Errors name the address as well.
    let name = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let mut host = AgentHost::connect(name, address)?;
    let (sender, notices) = channel();
    host.attach(0, sender);
    host.order(Order::Hello { version: wire::VERSION })?;
    host.order(Order::Environment)?;
    host.order(Order::Observe(ObserveRequest {
        probes: wirecost_observe::names().map(str::to_owned).collect(),
        parts: Vec::new(),
    }))?;
    let foreign = |reason| AskError::Foreign { address: named(), reason };
    let (mut facts, mut described) = (None, None);
    loop {
        let (_, notice) =
            notices.recv_timeout(TIMEOUT).map_err(|_| AskError::Silent { address: named() })?;
        match notice? {
            Notice::Welcome { facts: welcome, .. } => facts = Some(*welcome),
            Notice::Environment(environment) => {
                let environment = serde_json::from_value(environment)
                    .map_err(|error| foreign(error.to_string()))?;
                described = Some(environment);
            }
            // The last of the answers.
            Notice::Watching { probes } => {
                let silent = || foreign("it does not answer in turn".to_owned());
                let facts = facts.ok_or_else(silent)?;
                let environment = described.ok_or_else(silent)?;
                return Ok(Answer { facts, environment, probes });
            }
            Notice::Failed { message, .. } | Notice::SessionEnded { reason: message } => {
                return Err(AskError::Refused { address: named(), message });
            }
            // Nothing else was asked for.
            _ => {}
        }
    }
}
