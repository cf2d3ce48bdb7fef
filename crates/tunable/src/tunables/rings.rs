//! Lengths of the rings between driver and device.

use wirecost_linux::ethtool::Ethtool;
use wirecost_model::environment::Rings;

use super::Tunable;
use crate::driver_field::{DriverField, Field, Number, Structure};

static RINGS: Structure<Rings> = Structure {
    get: Ethtool::rings,
    set: Ethtool::set_rings,
    what: "the lengths of rings",
    disturbs: Vec::new,
};

const fn ring(
    name: &'static str,
    about: &'static str,
    of: fn(&mut Rings) -> &mut u32,
    most: fn(&Rings) -> u32,
) -> DriverField<Rings> {
    let number = Number { values: "a number of packets", least: 1, most, of };
    DriverField { name, about, field: Field::Number(number), of: &RINGS }
}

#[rustfmt::skip]
pub(super) const LIST: &[&dyn Tunable] = &[
    &ring("rings.rx", "Packets that the device can receive before the driver takes them, per queue.", |all| &mut all.rx, |all| all.rx_max),
    &ring("rings.tx", "Packets that the driver can hand to the device before they are sent, per queue.", |all| &mut all.tx, |all| all.tx_max),
];
