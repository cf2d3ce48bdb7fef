//! One host of a lab.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::Command;

use serde::{Deserialize, Serialize};
use wirecost_linux::netns::NetNs;
use wirecost_linux::spawn;

use crate::LabError;

/// The device of every host.
pub(crate) const DEVICE: &str = "eth0";

/// One host of a lab.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabHost {
    /// `h1`, `h2`...
    pub name: String,
    /// Name of its network namespace, for `ip netns` too.
    pub namespace: String,
    pub ipv4: Ipv4Addr,
    /// `None` if the kernel has no IPv6.
    pub ipv6: Option<Ipv6Addr>,
    /// Its network device.
    pub device: String,
    /// CPUs its processes run on.
    pub cpus: Vec<u32>,
    /// Whether no other host uses these CPUs; otherwise all hosts share them.
    pub owns_cpus: bool,
    /// CPUs that do the receive work of its device: of its queues in their order, or those to which RPS steers. If
    /// empty, it runs on the sender's CPU.
    pub receive_cpus: Vec<u32>,
}

impl LabHost {
    /// Its addresses.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        std::iter::once(IpAddr::V4(self.ipv4)).chain(self.ipv6.map(IpAddr::V6))
    }

    /// Makes a child process start on this host: in its namespace and on its CPUs.
    ///
    /// # Errors
    /// [`LabError`] if the namespace is missing or no descriptor is left.
    pub fn place(&self, command: &mut Command) -> Result<(), LabError> {
        let namespace = self.open()?;
        spawn::enter_on_spawn(command, &namespace)
            .map_err(|source| LabError::Place { namespace: self.namespace.clone(), source })?;
        spawn::pin_on_spawn(command, &self.cpus);
        Ok(())
    }

    /// Opens its namespace.
    ///
    /// # Errors
    /// [`LabError::Namespace`] if it is missing.
    pub fn open(&self) -> Result<NetNs, LabError> {
        Ok(NetNs::open(&self.namespace)?)
    }
}
