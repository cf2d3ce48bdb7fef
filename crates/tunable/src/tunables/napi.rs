//! How a device is polled.

use super::{Scope, Tunable};
use crate::target::{Refusal, Target};
use crate::values;

#[derive(Debug)]
struct Napi {
    name: &'static str,
    about: &'static str,
    form: Form,
}

#[derive(Debug, Clone, Copy)]
enum Form {
    Switch,
    Number(u64, &'static str),
}

pub(super) const LIST: &[&dyn Tunable] = &[
    &Napi {
        name: "threaded",
        about: "The device is polled by a kernel thread for each queue instead of in softirq context.",
        form: Form::Switch,
    },
    &Napi {
        name: "napi_defer_hard_irqs",
        about: "Times that a queue without packets is polled again before its interrupt is enabled.",
        form: Form::Number(i32::MAX as u64, "a number of polls"),
    },
    &Napi {
        name: "gro_flush_timeout",
        about: "Time after which GRO hands up packets that wait, and after which a deferred queue is polled, in nanoseconds.",
        form: Form::Number(i64::MAX as u64, "a number of nanoseconds"),
    },
];

impl Tunable for Napi {
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
        match self.form {
            Form::Switch => "on or off".to_owned(),
            Form::Number(_, what) => what.to_owned(),
        }
    }

    fn check(&self, value: &str) -> Option<String> {
        match self.form {
            Form::Switch => values::switch(value),
            Form::Number(most, _) => values::number(value, 0, most),
        }
    }

    fn read(&self, target: &Target) -> Result<String, Refusal> {
        let path = target.device_path(self.name)?;
        let text = target.sysfs()?.read(&path).map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound => {
                Refusal::Unsupported(format!("this kernel has no `{}` of devices", self.name))
            }
            _ => Refusal::failed(format!("read /sys/{path}"))(source),
        })?;
        Ok(match (self.form, text.as_str()) {
            (Form::Switch, "0") => values::on_off(false),
            (Form::Switch, "1") => values::on_off(true),
            _ => text,
        })
    }

    fn write(&self, target: &Target, value: &str) -> Result<(), Refusal> {
        let text = match value {
            "on" => "1",
            "off" => "0",
            number => number,
        };
        let path = target.device_path(self.name)?;
        target.sysfs()?.write(&path, text).map_err(|source| match source.kind() {
            std::io::ErrorKind::Unsupported => {
                Refusal::Unsupported("the driver of the device does not poll (NAPI)".to_owned())
            }
            _ => Refusal::failed(format!("write `{text}` to /sys/{path}"))(source),
        })
    }

    /// A pair polls only while it has GRO (or XDP), and without it cannot be told that it shall poll no
    /// more by threads: <https://elixir.bootlin.com/linux/v6.12/source/drivers/net/veth.c>.
    fn put_back(&self, target: &Target, saved: &str) -> Result<(), Refusal> {
        const GRO: &str = "rx-gro";
        let refused = match self.write(target, saved) {
            Err(refusal @ Refusal::Unsupported(_)) => refusal,
            other => return other,
        };
        let (ethtool, device) = target.ethtool()?;
        if ethtool
            .features(device)
            .map_or(true, |features| features.get(GRO).is_none_or(|gro| gro.on))
            || ethtool.set_feature(device, GRO, true).is_err()
        {
            return Err(refused);
        }
        let written = self.write(target, saved);
        let without = ethtool.set_feature(device, GRO, false);
        written.and(without.map_err(Refusal::of_driver(device, "switch GRO off")))
    }
}
