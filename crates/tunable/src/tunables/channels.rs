//! Numbers of a device's queues.

use wirecost_model::environment::Channels;

use super::{Scope, Tunable};
use crate::target::{Refusal, Target};
use crate::values;

#[derive(Debug)]
struct Channel {
    name: &'static str,
    about: &'static str,
    count: fn(&mut Channels) -> &mut u32,
    most: fn(&Channels) -> u32,
}

pub(super) const LIST: &[&dyn Tunable] = &[
    &Channel {
        name: "channels.combined",
        about: "Queues of the device that both receive and send.",
        count: |channels| &mut channels.combined,
        most: |channels| channels.combined_max,
    },
    &Channel {
        name: "channels.rx",
        about: "Queues of the device that only receive.",
        count: |channels| &mut channels.rx,
        most: |channels| channels.rx_max,
    },
    &Channel {
        name: "channels.tx",
        about: "Queues of the device that only send.",
        count: |channels| &mut channels.tx,
        most: |channels| channels.tx_max,
    },
];

impl Channel {
    fn channels(&self, target: &Target) -> Result<Channels, Refusal> {
        let (ethtool, device) = target.ethtool()?;
        let told = ethtool.channels(device);
        let channels = told.map_err(Refusal::of_driver(device, "tell the number of queues"))?;
        if (self.most)(&channels) == 0 {
            return Err(Refusal::Unsupported(format!("`{device}` has no queues of this kind")));
        }
        Ok(channels)
    }
}

impl Tunable for Channel {
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
        "a number of queues".to_owned()
    }

    fn check(&self, value: &str) -> Option<String> {
        values::number(value, 0, u64::from(u32::MAX))
    }

    fn read(&self, target: &Target) -> Result<String, Refusal> {
        let mut channels = self.channels(target)?;
        Ok((self.count)(&mut channels).to_string())
    }

    fn write(&self, target: &Target, value: &str) -> Result<(), Refusal> {
        let mut channels = self.channels(target)?;
        let (ethtool, device) = target.ethtool()?;
        let (count, most) = (values::parsed(value)?, (self.most)(&channels));
        if count > most {
            return Err(Refusal::Unsupported(format!(
                "`{device}` has at most {most} of these queues"
            )));
        }
        *(self.count)(&mut channels) = count;
        ethtool
            .set_channels(device, channels)
            .map_err(Refusal::of_driver(device, "set the number of queues"))
    }

    /// A queue that ends takes its settings with it, and interrupts are requested anew.
    fn disturbs(&self) -> Vec<&'static str> {
        vec!["rss.table", "rps_cpus", "rps_flow_cnt", "xps_cpus", "irq_affinity"]
    }
}
