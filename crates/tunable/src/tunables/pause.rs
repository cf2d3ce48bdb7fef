//! Pause frames of Ethernet.

use wirecost_model::environment::FlowControl;

use super::{Scope, Tunable};
use crate::target::{Refusal, Target};
use crate::values;

#[derive(Debug)]
struct Pause {
    name: &'static str,
    about: &'static str,
    field: fn(&mut FlowControl) -> &mut bool,
}

pub(super) const LIST: &[&dyn Tunable] = &[
    &Pause {
        name: "pause.rx",
        about: "The device stops sending when it receives a pause frame.",
        field: |all| &mut all.rx,
    },
    &Pause {
        name: "pause.tx",
        about: "The device sends a pause frame when its buffers are full.",
        field: |all| &mut all.tx,
    },
    &Pause {
        name: "pause.autoneg",
        about: "Pause frames are negotiated with the far end.",
        field: |all| &mut all.negotiated,
    },
];

impl Pause {
    fn all(target: &Target) -> Result<FlowControl, Refusal> {
        let (ethtool, device) = target.ethtool()?;
        ethtool.flow_control(device).map_err(Refusal::of_driver(device, "tell of pause frames"))
    }
}

impl Tunable for Pause {
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
        "on or off".to_owned()
    }

    fn check(&self, value: &str) -> Option<String> {
        values::switch(value)
    }

    fn read(&self, target: &Target) -> Result<String, Refusal> {
        Ok(values::on_off(*(self.field)(&mut Self::all(target)?)))
    }

    fn write(&self, target: &Target, value: &str) -> Result<(), Refusal> {
        let mut all = Self::all(target)?;
        *(self.field)(&mut all) = value == "on";
        let (ethtool, device) = target.ethtool()?;
        let refused = Refusal::of_driver(device, &format!("set `{}`", self.name));
        ethtool.set_flow_control(device, all).map_err(refused)
    }

    fn disturbs(&self) -> Vec<&'static str> {
        LIST.iter().map(|tunable| tunable.name()).collect()
    }
}
