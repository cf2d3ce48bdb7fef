//! The device that carries the control connection. A setting of it can cut off the controller.

use std::collections::BTreeSet;
use std::net::IpAddr;

use wirecost_linux::netns::{NetNs, NetNsError, NetNsId};

use crate::target::{Refusal, Target};
use crate::tunables::Tunable;

/// The connection over which a controller gives orders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ControlConnection {
    namespace: NetNsId,
    local: IpAddr,
}

impl ControlConnection {
    /// A connection in the calling thread's network namespace, by its local address.
    ///
    /// # Errors
    /// Those of [`NetNs::here`] and [`NetNs::id`].
    pub fn here(local: IpAddr) -> Result<Self, NetNsError> {
        Ok(Self::of(NetNs::here()?.id()?, local))
    }

    /// A connection in a network namespace, by its local address.
    #[must_use]
    pub fn of(namespace: NetNsId, local: IpAddr) -> Self {
        // A socket of IPv6 that an IPv4 peer reached has a mapped address.
        Self { namespace, local: local.to_canonical() }
    }

    /// Whether a setting of the target's device concerns the device that has the connection's address,
    /// or one below it: a port of a bridge or bond, the device of a VLAN.
    ///
    /// # Errors
    /// When the kernel does not list devices or addresses.
    pub fn is_concerned(&self, target: &Target, tunable: &dyn Tunable) -> Result<bool, Refusal> {
        let Some(device) = target.device_name() else { return Ok(false) };
        if !tunable.scope().is_of_device() || target.id() != self.namespace {
            return Ok(false);
        }
        let links = target.links()?;
        let Some(first) = links.index_of_address(self.local)? else { return Ok(false) };
        let all = links.list()?;
        let mut carriers = BTreeSet::from([first]);
        loop {
            let below = all.iter().filter(|link| {
                let is_port = link.controller.is_some_and(|index| carriers.contains(&index));
                let carries = |of: &&wirecost_linux::link::Link| {
                    carriers.contains(&of.index) && of.lower == Some(link.index)
                };
                is_port || all.iter().any(|of| carries(&of))
            });
            let before = carriers.len();
            let below: Vec<u32> = below.map(|link| link.index).collect();
            carriers.extend(below);
            if carriers.len() == before {
                break;
            }
        }
        Ok(all.iter().any(|link| link.name == device && carriers.contains(&link.index)))
    }
}
