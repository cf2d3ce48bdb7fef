//! Lengths of the rings between driver and device.

use wirecost_model::environment::Rings;

use super::{Scope, Tunable};
use crate::target::{Refusal, Target};
use crate::values;

#[derive(Debug)]
struct Ring {
    name: &'static str,
    about: &'static str,
    length: fn(&mut Rings) -> &mut u32,
    most: fn(&Rings) -> u32,
}

pub(super) const LIST: &[&dyn Tunable] = &[
    &Ring {
        name: "rings.rx",
        about: "Packets that the device can receive before the driver takes them, per queue.",
        length: |rings| &mut rings.rx,
        most: |rings| rings.rx_max,
    },
    &Ring {
        name: "rings.tx",
        about: "Packets that the driver can hand to the device before they are sent, per queue.",
        length: |rings| &mut rings.tx,
        most: |rings| rings.tx_max,
    },
];

impl Ring {
    fn rings(target: &Target) -> Result<Rings, Refusal> {
        let (ethtool, device) = target.ethtool()?;
        ethtool.rings(device).map_err(Refusal::of_driver(device, "tell the lengths of rings"))
    }
}

impl Tunable for Ring {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn scope(&self) -> Scope {
        Scope::Device
    }

    fn values(&self) -> String {
        "a number of packets".to_owned()
    }

    fn check(&self, value: &str) -> Option<String> {
        values::number(value, 1, u64::from(u32::MAX))
    }

    fn read(&self, target: &Target) -> Result<String, Refusal> {
        let mut rings = Self::rings(target)?;
        Ok((self.length)(&mut rings).to_string())
    }

    fn write(&self, target: &Target, value: &str) -> Result<(), Refusal> {
        let mut rings = Self::rings(target)?;
        let (ethtool, device) = target.ethtool()?;
        let (length, most) = (values::parsed(value)?, (self.most)(&rings));
        if length > most {
            return Err(Refusal::Unsupported(format!(
                "the ring of `{device}` has at most {most} packets"
            )));
        }
        *(self.length)(&mut rings) = length;
        ethtool
            .set_rings(device, rings)
            .map_err(Refusal::of_driver(device, "set the lengths of rings"))
    }
}
