//! The largest packet of a device.

use std::collections::BTreeSet;
use std::io;

use wirecost_linux::sysctl;

use super::{Scope, Tunable};
use crate::target::{Refusal, Target};
use crate::values;

#[derive(Debug)]
struct Mtu;

pub(super) const LIST: &[&dyn Tunable] = &[&Mtu];

/// Below it the kernel removes IPv6, with all its addresses, from a device (RFC 8200, 5):
/// <https://elixir.bootlin.com/linux/v6.12/source/net/ipv6/addrconf.c>.
const LEAST_OF_IPV6: u64 = 1280;

impl Tunable for Mtu {
    fn name(&self) -> &'static str {
        "mtu"
    }

    fn about(&self) -> &'static str {
        "Largest packet of the device, in bytes, without the header of Ethernet."
    }

    fn scope(&self) -> Scope {
        Scope::Device
    }

    fn values(&self) -> String {
        "a number of bytes, at least 1280".to_owned()
    }

    fn check(&self, value: &str) -> Option<String> {
        values::number(value, LEAST_OF_IPV6, u64::from(u32::MAX))
    }

    fn read(&self, target: &Target) -> Result<String, Refusal> {
        let link = target.link()?;
        let mtu =
            link.mtu.ok_or_else(|| Refusal::Unsupported(format!("`{}` has no MTU", link.name)))?;
        Ok(mtu.to_string())
    }

    fn write(&self, target: &Target, value: &str) -> Result<(), Refusal> {
        let bytes = values::parsed(value)?;
        Ok(target.links()?.set_mtu(target.device()?, bytes)?)
    }

    /// With the MTU of IPv6, where the device has IPv6: it can be smaller, and the kernel overwrites it
    /// whenever that of the device changes
    /// (<https://elixir.bootlin.com/linux/v6.12/source/net/ipv6/addrconf.c#L3686>).
    fn save(&self, target: &Target) -> Result<String, Refusal> {
        let of_device = self.read(target)?;
        Ok(match read_ipv6(target)? {
            Some(of_ipv6) => format!("{of_device} {of_ipv6}"),
            None => of_device,
        })
    }

    fn put_back(&self, target: &Target, saved: &str) -> Result<(), Refusal> {
        let (of_device, of_ipv6) =
            saved.split_once(' ').map_or((saved, None), |(a, b)| (a, Some(b)));
        self.write(target, of_device)?;
        let Some(of_ipv6) = of_ipv6 else { return Ok(()) };
        match read_ipv6(target)? {
            Some(current) if current != of_ipv6 => {
                let name = ipv6(target)?;
                let written = target.run(|| sysctl::write(&name, of_ipv6))?;
                written.map_err(Refusal::failed(format!("set `{name}`")))
            }
            // Somebody has taken IPv6 from the device.
            _ => Ok(()),
        }
    }

    /// Those that are made on it: the kernel lowers their MTU with that of the device, and does not raise
    /// it again (`vlan_device_event` and `macvlan_device_event`).
    fn disturbed_devices(&self, target: &Target) -> Result<Vec<String>, Refusal> {
        let links = target.links()?;
        let device = links.get(target.device()?)?;
        let all = links.list()?;
        let mut known = BTreeSet::from([device.index]);
        let mut above = Vec::new();
        loop {
            let is_above = |of: u32| known.contains(&of);
            let next: Vec<_> = all
                .iter()
                .filter(|link| link.lower.is_some_and(is_above) && !known.contains(&link.index))
                .collect();
            if next.is_empty() {
                break;
            }
            known.extend(next.iter().map(|link| link.index));
            above.extend(next.into_iter().map(|link| link.name.clone()));
        }
        // Changes are undone in reverse, and a device cannot have more than the one below it.
        above.reverse();
        Ok(above)
    }
}

/// Name of the sysctl. With slashes, as names of devices have dots.
fn ipv6(target: &Target) -> Result<String, Refusal> {
    Ok(format!("net/ipv6/conf/{}/mtu", target.device()?))
}

/// `None` where the device has no IPv6.
fn read_ipv6(target: &Target) -> Result<Option<String>, Refusal> {
    let name = ipv6(target)?;
    match target.run(|| sysctl::read(&name))? {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Refusal::failed(format!("read `{name}`"))(error)),
    }
}
