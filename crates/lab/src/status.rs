//! What labs there are, and how they do.

use serde::{Deserialize, Serialize};
use wirecost_linux::link::{Link, Links};
use wirecost_linux::netns;

use crate::{LabError, LabHost, Lifetime, build, state};

/// The labs of this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    pub labs: Vec<LabStatus>,
    /// Namespaces with names as labs make them, of labs that are not known any more; `down` with
    /// their lab's name removes them.
    pub orphans: Vec<String>,
}

/// One lab.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabStatus {
    pub name: String,
    pub lifetime: Lifetime,
    /// Process that made it.
    pub pid: u32,
    /// Its run ended and left it behind: `remove_stale` removes it.
    pub stale: bool,
    /// All its namespaces are there.
    pub whole: bool,
    /// Rate of each host's link; `None` where nothing limits it.
    pub rate_bits_per_second: Option<u64>,
    pub hosts: Vec<HostStatus>,
}

/// One host of a lab.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostStatus {
    pub host: LabHost,
    /// Its namespace is there.
    pub alive: bool,
    /// Its device; `None` when it is gone, or this process may not look.
    pub link: Option<LinkStatus>,
}

/// Device of a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkStatus {
    /// It can carry packets.
    pub running: bool,
    pub mtu: Option<u32>,
}

/// Looks at all labs. Anyone may; without rights the state of the devices is not known.
///
/// # Errors
/// [`LabError`] when a state file or /run/netns cannot be read.
pub fn status() -> Result<Status, LabError> {
    let states = state::look()?;
    let present = netns::list().map_err(|source| LabError::List { source })?;
    let known = |namespace: &String| {
        states.iter().any(|state| state.namespaces().any(|name| name == *namespace))
    };
    let orphans = present
        .iter()
        .filter(|name| build::lab_of(name).is_some() && !known(name))
        .cloned()
        .collect();
    let labs = states
        .into_iter()
        .map(|state| LabStatus {
            lifetime: state.lifetime,
            pid: state.creator.pid,
            stale: state.is_stale(),
            whole: state.missing_from(&present).is_none(),
            rate_bits_per_second: state.rate_bits_per_second,
            name: state.name,
            hosts: state
                .hosts
                .into_iter()
                .map(|host| HostStatus {
                    alive: present.contains(&host.namespace),
                    link: device_of(&host)
                        .map(|link| LinkStatus { running: link.running, mtu: link.mtu }),
                    host,
                })
                .collect(),
        })
        .collect();
    Ok(Status { labs, orphans })
}

fn device_of(host: &LabHost) -> Option<Link> {
    let namespace = host.open().ok()?;
    Links::of(&namespace).ok()?.get(&host.device).ok()
}
