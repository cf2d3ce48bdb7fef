//! How long a device waits before it interrupts.

use wirecost_linux::ethtool::Ethtool;
use wirecost_model::environment::Coalescing;

use super::Tunable;
use crate::driver_field::{DriverField, Field, Number, Structure};

static COALESCING: Structure<Coalescing> = Structure {
    get: Ethtool::coalescing,
    set: Ethtool::set_coalescing,
    what: "how interrupts are coalesced",
    // A driver that is told a time may end adapting it, and the other way round.
    disturbs: || LIST.iter().map(|tunable| tunable.name()).collect(),
};

const fn number(
    name: &'static str,
    about: &'static str,
    of: fn(&mut Coalescing) -> &mut u32,
) -> DriverField<Coalescing> {
    let number = Number { values: "a number", least: 0, most: |_| u32::MAX, of };
    DriverField { name, about, field: Field::Number(number), of: &COALESCING }
}

const fn switch(
    name: &'static str,
    about: &'static str,
    of: fn(&mut Coalescing) -> &mut bool,
) -> DriverField<Coalescing> {
    DriverField { name, about, field: Field::Switch(of), of: &COALESCING }
}

#[rustfmt::skip]
pub(super) const LIST: &[&dyn Tunable] = &[
    &number("coalesce.rx-usecs", "Microseconds that the device waits after a received packet before it interrupts.", |all| &mut all.rx_us),
    &number("coalesce.rx-frames", "Received packets after which the device interrupts.", |all| &mut all.rx_frames),
    &number("coalesce.tx-usecs", "Microseconds that the device waits after a sent packet before it interrupts.", |all| &mut all.tx_us),
    &number("coalesce.tx-frames", "Sent packets after which the device interrupts.", |all| &mut all.tx_frames),
    &switch("coalesce.adaptive-rx", "The driver adapts the waiting time of received packets to their rate.", |all| &mut all.adaptive_rx),
    &switch("coalesce.adaptive-tx", "The driver adapts the waiting time of sent packets to their rate.", |all| &mut all.adaptive_tx),
];
