//! The hosts of a run, as the caller hands them in.

use std::net::IpAddr;

use wirecost_model::rss::DeviceSpreading;

use crate::host::Host;
use crate::wire::ClaimRequest;

/// One host of a run and what is known of it beforehand.
pub struct Member {
    pub host: Box<dyn Host>,
    /// Where its services are reached; none where only Unix sockets are used, or nothing is accepted.
    pub data_address: Option<IpAddr>,
    /// Where it binds them: the same, or none for the wildcard address (behind a translated one).
    pub listens_at: Option<IpAddr>,
    /// As the user gave it, for the record.
    pub address: Option<String>,
    /// CPUs that are its own; empty leaves it to the controller.
    pub cpus: Vec<u32>,
    pub owns_cpus: bool,
    /// The device through which its traffic goes, where that is known.
    pub device: Option<String>,
    /// How an emulated device spreads packets over its queues, which the host cannot tell.
    pub spreading: Option<DeviceSpreading>,
    /// What its agent is asked for before anything else; none where the host is this machine, which
    /// the caller has claimed.
    pub claim: Option<ClaimRequest>,
}

impl std::fmt::Debug for Member {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Member").field("name", &self.host.name()).finish_non_exhaustive()
    }
}
