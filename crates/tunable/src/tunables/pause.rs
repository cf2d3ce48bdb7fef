//! Pause frames of Ethernet.

use wirecost_linux::ethtool::Ethtool;
use wirecost_model::environment::FlowControl;

use super::Tunable;
use crate::driver_field::{DriverField, Field, Structure};

static FLOW_CONTROL: Structure<FlowControl> = Structure {
    get: Ethtool::flow_control,
    set: Ethtool::set_flow_control,
    what: "the use of pause frames",
    disturbs: || LIST.iter().map(|tunable| tunable.name()).collect(),
};

const fn pause(
    name: &'static str,
    about: &'static str,
    of: fn(&mut FlowControl) -> &mut bool,
) -> DriverField<FlowControl> {
    DriverField { name, about, field: Field::Switch(of), of: &FLOW_CONTROL }
}

#[rustfmt::skip]
pub(super) const LIST: &[&dyn Tunable] = &[
    &pause("pause.rx", "The device stops sending when it receives a pause frame.", |all| &mut all.rx),
    &pause("pause.tx", "The device sends a pause frame when its buffers are full.", |all| &mut all.tx),
    &pause("pause.autoneg", "Pause frames are negotiated with the far end.", |all| &mut all.negotiated),
];
