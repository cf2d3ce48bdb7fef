//! How long a device waits before it interrupts.

use wirecost_model::environment::Coalescing;

use super::{Scope, Tunable};
use crate::target::{Refusal, Target};
use crate::values;

#[derive(Debug)]
struct Coalesce {
    name: &'static str,
    about: &'static str,
    field: Field,
}

#[derive(Debug)]
enum Field {
    Number(fn(&mut Coalescing) -> &mut u32),
    Switch(fn(&mut Coalescing) -> &mut bool),
}

pub(super) const LIST: &[&dyn Tunable] = &[
    &Coalesce {
        name: "coalesce.rx-usecs",
        about: "Microseconds that the device waits after a received packet before it interrupts.",
        field: Field::Number(|all| &mut all.rx_us),
    },
    &Coalesce {
        name: "coalesce.rx-frames",
        about: "Received packets after which the device interrupts.",
        field: Field::Number(|all| &mut all.rx_frames),
    },
    &Coalesce {
        name: "coalesce.tx-usecs",
        about: "Microseconds that the device waits after a sent packet before it interrupts.",
        field: Field::Number(|all| &mut all.tx_us),
    },
    &Coalesce {
        name: "coalesce.tx-frames",
        about: "Sent packets after which the device interrupts.",
        field: Field::Number(|all| &mut all.tx_frames),
    },
    &Coalesce {
        name: "coalesce.adaptive-rx",
        about: "The driver adapts the waiting time of received packets to their rate.",
        field: Field::Switch(|all| &mut all.adaptive_rx),
    },
    &Coalesce {
        name: "coalesce.adaptive-tx",
        about: "The driver adapts the waiting time of sent packets to their rate.",
        field: Field::Switch(|all| &mut all.adaptive_tx),
    },
];

impl Coalesce {
    fn all(target: &Target) -> Result<Coalescing, Refusal> {
        let (ethtool, device) = target.ethtool()?;
        ethtool
            .coalescing(device)
            .map_err(Refusal::of_driver(device, "tell how interrupts are coalesced"))
    }
}

impl Tunable for Coalesce {
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
        match self.field {
            Field::Number(_) => "a number".to_owned(),
            Field::Switch(_) => "on or off".to_owned(),
        }
    }

    fn check(&self, value: &str) -> Option<String> {
        match self.field {
            Field::Number(_) => values::number(value, 0, u64::from(u32::MAX)),
            Field::Switch(_) => values::switch(value),
        }
    }

    fn read(&self, target: &Target) -> Result<String, Refusal> {
        let mut all = Self::all(target)?;
        Ok(match self.field {
            Field::Number(field) => field(&mut all).to_string(),
            Field::Switch(field) => values::on_off(*field(&mut all)),
        })
    }

    fn write(&self, target: &Target, value: &str) -> Result<(), Refusal> {
        let mut all = Self::all(target)?;
        match self.field {
            Field::Number(field) => *field(&mut all) = values::parsed(value)?,
            Field::Switch(field) => *field(&mut all) = value == "on",
        }
        let (ethtool, device) = target.ethtool()?;
        let refused = Refusal::of_driver(device, &format!("set `{}`", self.name));
        ethtool.set_coalescing(device, all).map_err(refused)
    }

    /// A driver that is told a time may end adapting it, and the other way round.
    fn disturbs(&self) -> Vec<&'static str> {
        LIST.iter().map(|tunable| tunable.name()).collect()
    }
}
