//! The governor of CPU frequencies.

use super::{Scope, Tunable};
use crate::parts;
use crate::target::{Refusal, Target};
use crate::values;

#[derive(Debug)]
struct Governor;

pub(super) const LIST: &[&dyn Tunable] = &[&Governor];

const DIRECTORY: &str = "sys/devices/system/cpu/cpufreq";

fn policies(target: &Target) -> Result<Vec<String>, Refusal> {
    let policies: Vec<String> = target
        .names(DIRECTORY)
        .into_iter()
        .filter(|name| name.starts_with("policy") && target.file(path(name)).exists())
        .collect();
    if policies.is_empty() {
        return Err(Refusal::Unsupported(
            "the kernel does not scale CPU frequencies here".to_owned(),
        ));
    }
    Ok(policies)
}

fn path(policy: &str) -> String {
    format!("{DIRECTORY}/{policy}/scaling_governor")
}

impl Tunable for Governor {
    fn name(&self) -> &'static str {
        "governor"
    }

    fn about(&self) -> &'static str {
        "CPU frequency governor (cpufreq) of all CPUs."
    }

    fn scope(&self) -> Scope {
        Scope::Machine
    }

    fn values(&self) -> String {
        "the name of a governor, such as performance or schedutil".to_owned()
    }

    fn check(&self, value: &str) -> Option<String> {
        parts::check(value, values::word)
    }

    fn read(&self, target: &Target) -> Result<String, Refusal> {
        let values: Result<Vec<_>, Refusal> = policies(target)?
            .into_iter()
            .map(|policy| Ok((policy.clone(), target.read_file(&path(&policy))?)))
            .collect();
        Ok(parts::join(&values?))
    }

    fn write(&self, target: &Target, value: &str) -> Result<(), Refusal> {
        let wanted = parts::spread(value, &policies(target)?);
        for (policy, governor) in &wanted {
            let known = format!("{DIRECTORY}/{policy}/scaling_available_governors");
            let known = target.read_file(&known).unwrap_or_default();
            if !known.is_empty() && !known.split_ascii_whitespace().any(|name| name == governor) {
                let why = format!("there is no governor `{governor}` here; there are {known}");
                return Err(Refusal::Unsupported(why));
            }
        }
        wanted.iter().try_for_each(|(policy, governor)| target.write_file(&path(policy), governor))
    }
}
