//! The largest packet of a device.

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
}
