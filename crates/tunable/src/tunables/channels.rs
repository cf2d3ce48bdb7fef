//! Numbers of a device's queues.

use wirecost_linux::ethtool::Ethtool;
use wirecost_model::environment::Channels;

use super::Tunable;
use crate::driver_field::{DriverField, Field, Number, Structure};

static CHANNELS: Structure<Channels> = Structure {
    get: Ethtool::channels,
    set: Ethtool::set_channels,
    what: "the number of queues",
    // A queue that ends takes its settings with it, and interrupts are requested anew.
    disturbs: || vec!["rss.table", "rps_cpus", "rps_flow_cnt", "xps_cpus", "irq_affinity"],
};

const fn channels(
    name: &'static str,
    about: &'static str,
    of: fn(&mut Channels) -> &mut u32,
    most: fn(&Channels) -> u32,
) -> DriverField<Channels> {
    let number = Number { values: "a number of queues", least: 0, most, of };
    DriverField { name, about, field: Field::Number(number), of: &CHANNELS }
}

#[rustfmt::skip]
pub(super) const LIST: &[&dyn Tunable] = &[
    &channels("channels.combined", "Queues of the device that both receive and send.", |all| &mut all.combined, |all| all.combined_max),
    &channels("channels.rx", "Queues of the device that only receive.", |all| &mut all.rx, |all| all.rx_max),
    &channels("channels.tx", "Queues of the device that only send.", |all| &mut all.tx, |all| all.tx_max),
];
