//! Tunables that are a field of a structure which a driver tells and takes as a whole, as ethtool(8) does.

use std::fmt::Debug;
use std::io;

use wirecost_linux::ethtool::Ethtool;

use crate::target::{Refusal, Target};
use crate::tunables::{Scope, Tunable};
use crate::values;

/// A structure of a driver.
#[derive(Debug)]
pub(crate) struct Structure<T: 'static> {
    pub(crate) get: fn(&Ethtool, &str) -> io::Result<T>,
    pub(crate) set: fn(&Ethtool, &str, T) -> io::Result<()>,
    /// What the driver can or cannot do, as in `cannot tell ...` and `cannot set ...`.
    pub(crate) what: &'static str,
    /// Tunables that a change of a field may change too.
    pub(crate) disturbs: fn() -> Vec<&'static str>,
}

/// One of its fields.
#[derive(Debug)]
pub(crate) struct DriverField<T: 'static> {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) field: Field<T>,
    pub(crate) of: &'static Structure<T>,
}

#[derive(Debug)]
pub(crate) enum Field<T> {
    Switch(fn(&mut T) -> &mut bool),
    Number(Number<T>),
}

#[derive(Debug)]
pub(crate) struct Number<T> {
    pub(crate) values: &'static str,
    pub(crate) least: u64,
    /// The most that the device can have, where it tells that; 0 where it does not have the setting.
    pub(crate) most: fn(&T) -> u32,
    pub(crate) of: fn(&mut T) -> &mut u32,
}

impl<T> DriverField<T> {
    fn read_all(&self, target: &Target) -> Result<T, Refusal> {
        let (ethtool, device) = target.ethtool()?;
        let act = format!("tell {}", self.of.what);
        let all = (self.of.get)(&ethtool, device).map_err(Refusal::of_driver(device, &act))?;
        match &self.field {
            Field::Number(number) if (number.most)(&all) == 0 => {
                Err(Refusal::Unsupported(format!("`{device}` does not have `{}`", self.name)))
            }
            _ => Ok(all),
        }
    }
}

impl<T: Debug> Tunable for DriverField<T> {
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
        match &self.field {
            Field::Switch(_) => "on or off".to_owned(),
            Field::Number(number) => number.values.to_owned(),
        }
    }

    fn check(&self, value: &str) -> Option<String> {
        match &self.field {
            Field::Switch(_) => values::switch(value),
            Field::Number(number) => values::number(value, number.least, u64::from(u32::MAX)),
        }
    }

    fn read(&self, target: &Target) -> Result<String, Refusal> {
        let mut all = self.read_all(target)?;
        Ok(match &self.field {
            Field::Switch(field) => values::on_off(*field(&mut all)),
            Field::Number(number) => (number.of)(&mut all).to_string(),
        })
    }

    fn write(&self, target: &Target, value: &str) -> Result<(), Refusal> {
        let mut all = self.read_all(target)?;
        let (ethtool, device) = target.ethtool()?;
        match &self.field {
            Field::Switch(field) => *field(&mut all) = value == "on",
            Field::Number(number) => {
                let (wanted, most) = (values::parsed(value)?, (number.most)(&all));
                if wanted > most {
                    let name = self.name;
                    let why = format!("`{name}` of `{device}` is at most {most}");
                    return Err(Refusal::Unsupported(why));
                }
                *(number.of)(&mut all) = wanted;
            }
        }
        let act = format!("set {}", self.of.what);
        (self.of.set)(&ethtool, device, all).map_err(Refusal::of_driver(device, &act))
    }

    fn disturbs(&self) -> Vec<&'static str> {
        (self.of.disturbs)()
    }
}
