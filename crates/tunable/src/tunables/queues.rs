//! What each queue of a device has in /sys: packet steering and flow steering
//! (<https://docs.kernel.org/networking/scaling.html>).

use wirecost_linux::cpu_list::{format_list, format_mask, parse_list, parse_mask};

use super::{Scope, Tunable};
use crate::parts;
use crate::target::{Refusal, Target};
use crate::values::{self, NONE};

#[derive(Debug)]
struct Queue {
    name: &'static str,
    about: &'static str,
    /// Start of the queues' names.
    queues: &'static str,
    form: Form,
}

#[derive(Debug, Clone, Copy)]
enum Form {
    /// A file with a mask of CPUs.
    Cpus,
    Number,
}

pub(super) const LIST: &[&dyn Tunable] = &[
    &Queue {
        name: "rps_cpus",
        about: "CPUs to which receive packet steering spreads the receive work of each queue.",
        queues: "rx-",
        form: Form::Cpus,
    },
    &Queue {
        name: "rps_flow_cnt",
        about: "Flows of each queue that receive flow steering remembers; a power of two.",
        queues: "rx-",
        form: Form::Number,
    },
    &Queue {
        name: "xps_cpus",
        about: "CPUs that send through each queue of a device with several.",
        queues: "tx-",
        form: Form::Cpus,
    },
];

impl Queue {
    fn queues(&self, target: &Target) -> Result<Vec<String>, Refusal> {
        let path = target.device_path("queues")?;
        let names =
            target.sysfs()?.names(&path).map_err(Refusal::failed(format!("list /sys/{path}")))?;
        Ok(names.into_iter().filter(|name| name.starts_with(self.queues)).collect())
    }

    fn path(&self, target: &Target, queue: &str) -> Result<String, Refusal> {
        target.device_path(&format!("queues/{queue}/{}", self.name))
    }

    fn read_queue(&self, target: &Target, queue: &str) -> Result<String, Refusal> {
        let path = self.path(target, queue)?;
        let text = target.sysfs()?.read(&path).map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound => {
                Refusal::Unsupported(format!("queue `{queue}` has no `{}`", self.name))
            }
            _ => Refusal::failed(format!("read /sys/{path}"))(source),
        })?;
        match self.form {
            Form::Number => Ok(text),
            Form::Cpus => match parse_mask(&text) {
                Some(cpus) if cpus.is_empty() => Ok(NONE.to_owned()),
                Some(cpus) => Ok(format_list(&cpus)),
                None => {
                    Err(Refusal::Unsupported(format!("`{text}` in /sys/{path} is no CPU mask")))
                }
            },
        }
    }
}

impl Tunable for Queue {
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
            Form::Cpus => "a list of CPUs such as 0-3,8, or none".to_owned(),
            Form::Number => "a number of flows".to_owned(),
        }
    }

    fn check(&self, value: &str) -> Option<String> {
        parts::check(value, |value| match self.form {
            Form::Cpus => values::cpus_or_none(value),
            Form::Number => values::number(value, 0, 1 << 29),
        })
    }

    fn read(&self, target: &Target) -> Result<String, Refusal> {
        let queues = self.queues(target)?.into_iter();
        let values: Result<Vec<_>, Refusal> =
            queues.map(|queue| Ok((queue.clone(), self.read_queue(target, &queue)?))).collect();
        match values? {
            values if values.is_empty() => {
                Err(Refusal::Unsupported("the device has no queues".to_owned()))
            }
            values => Ok(parts::join(&values)),
        }
    }

    fn write(&self, target: &Target, value: &str) -> Result<(), Refusal> {
        let sysfs = target.sysfs()?;
        for (queue, value) in parts::spread(value, &self.queues(target)?) {
            let text = match self.form {
                Form::Number => value,
                Form::Cpus if value == NONE => "0".to_owned(),
                Form::Cpus => format_mask(&parse_list(&value).unwrap_or_default()),
            };
            let path = self.path(target, &queue)?;
            sysfs
                .write(&path, &text)
                .map_err(Refusal::failed(format!("write `{text}` to /sys/{path}")))?;
        }
        Ok(())
    }
}
