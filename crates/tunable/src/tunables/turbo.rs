//! CPU frequencies above the nominal one.

use super::{Scope, Tunable};
use crate::target::{Refusal, Target};
use crate::values;

#[derive(Debug)]
struct Turbo;

pub(super) const LIST: &[&dyn Tunable] = &[&Turbo];

/// The file of a driver, and whether it says that turbo is off rather than on.
const FILES: &[(&str, bool)] = &[
    ("sys/devices/system/cpu/intel_pstate/no_turbo", true),
    ("sys/devices/system/cpu/cpufreq/boost", false),
];

fn file(target: &Target) -> Result<(&'static str, bool), Refusal> {
    FILES.iter().copied().find(|(path, _)| target.file(path).exists()).ok_or_else(|| {
        Refusal::Unsupported(
            "the frequency driver of this machine has no switch for turbo".to_owned(),
        )
    })
}

impl Tunable for Turbo {
    fn name(&self) -> &'static str {
        "turbo"
    }

    fn about(&self) -> &'static str {
        "CPUs may run above their nominal frequency."
    }

    fn scope(&self) -> Scope {
        Scope::Machine
    }

    fn values(&self) -> String {
        "on or off".to_owned()
    }

    fn check(&self, value: &str) -> Option<String> {
        values::switch(value)
    }

    fn read(&self, target: &Target) -> Result<String, Refusal> {
        let (path, says_off) = file(target)?;
        Ok(values::on_off((target.read_file(path)? == "1") != says_off))
    }

    fn write(&self, target: &Target, value: &str) -> Result<(), Refusal> {
        let (path, says_off) = file(target)?;
        target.write_file(path, if (value == "on") == says_off { "0" } else { "1" })
    }
}
