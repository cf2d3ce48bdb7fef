//! The labs of this machine and their state.

use serde::{Deserialize, Serialize};
use wirecost_linux::link::{Link, Links};
use wirecost_linux::netns;
use wirecost_model::link::netem::{Backend, NetemLine};
use wirecost_model::link::{LinkCounts, LinkSpec, Topology};

use crate::state::{self, State};
use crate::{LabError, LabHost, Lifetime, LinkReader, build};

/// The labs of this machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    pub labs: Vec<LabStatus>,
    /// Why the state files of others cannot be read.
    pub unreadable: Vec<String>,
    /// Namespaces named like a lab's, without a state file. `down` with the lab's name removes them.
    pub orphans: Vec<String>,
}

/// One lab.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LabStatus {
    pub name: String,
    pub lifetime: Lifetime,
    /// Process that created it.
    pub pid: u32,
    /// Whether its run ended without removing it; `remove_stale` removes it.
    pub stale: bool,
    /// Whether all its namespaces exist.
    pub whole: bool,
    /// Rate of each host's link; `None` if unlimited.
    pub rate_bits_per_second: Option<u64>,
    /// Its emulated links.
    pub emulated: Option<EmulatedStatus>,
    pub hosts: Vec<HostStatus>,
}

/// Emulated links of a lab.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EmulatedStatus {
    pub topology: Topology,
    pub link: LinkSpec,
    /// What makes them.
    pub backend: Backend,
    /// Whether the process that emulates them runs, or the namespace of the switch exists.
    pub alive: bool,
    /// What the emulator has done since the lab was created; `None` of links by netem, if the process does not
    /// answer, or if this one may not ask it.
    pub counts: Option<LinkCounts>,
    /// What the queueing disciplines have done since the lab was created; `None` of links by the emulator, or if
    /// this process may not read them.
    pub qdiscs: Option<Vec<NetemLine>>,
}

/// One host of a lab.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostStatus {
    pub host: LabHost,
    /// Whether its namespace exists.
    pub alive: bool,
    /// Its device; `None` if it is missing or this process may not query it.
    pub link: Option<LinkStatus>,
}

/// Device of a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkStatus {
    /// Whether it can carry packets.
    pub running: bool,
    pub mtu: Option<u32>,
}

/// Reads the state of all labs. Without privileges the state of the devices is unknown.
///
/// # Errors
/// [`LabError`] when a state file or /run/netns cannot be read.
pub fn status() -> Result<Status, LabError> {
    let (states, unreadable) = state::load_all_unlocked()?;
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
            emulated: emulated(&state, &present),
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
    let why = |error: &LabError| {
        let cause = std::error::Error::source(error).map(|cause| format!(": {cause}"));
        format!("{error}{}", cause.unwrap_or_default())
    };
    Ok(Status { labs, unreadable: unreadable.iter().map(why).collect(), orphans })
}

fn emulated(state: &State, present: &[String]) -> Option<EmulatedStatus> {
    let (topology, link, backend) = state.emulated()?;
    let process = state.emulator.as_ref().and_then(|emulator| emulator.process);
    let process = process.filter(|process| process.is_alive());
    let has_switch = state.switch.as_ref().is_some_and(|switch| present.contains(switch));
    Some(EmulatedStatus {
        topology,
        link: link.clone(),
        backend,
        alive: match backend {
            Backend::Netem => has_switch,
            Backend::Emulator => process.is_some(),
        },
        counts: process.and_then(|process| LinkReader::new(&state.name, process.pid).read().ok()),
        qdiscs: state.qdisc_reader().and_then(|reader| reader.ok()?.read().ok()),
    })
}

fn device_of(host: &LabHost) -> Option<Link> {
    let namespace = host.open().ok()?;
    Links::of(&namespace).ok()?.get(&host.device).ok()
}
