//! The deepest idle state that CPUs enter
//! (<https://docs.kernel.org/admin-guide/pm/cpuidle.html#idle-states-representation>).

use super::{Scope, Tunable};
use crate::parts;
use crate::target::{Refusal, Target};
use crate::values;

#[derive(Debug)]
struct IdleLimit;

pub(super) const LIST: &[&dyn Tunable] = &[&IdleLimit];

const DIRECTORY: &str = "sys/devices/system/cpu";
/// No limit.
const UNLIMITED: &str = "unlimited";
/// Before one digit for each state, 1 where it is disabled, as nothing shorter says it.
const STATES: &str = "states:";

/// A state of a CPU, by its directory.
#[derive(Debug)]
struct State {
    path: String,
    name: String,
    disabled: bool,
}

fn cpus(target: &Target) -> Result<Vec<String>, Refusal> {
    let is_cpu = |name: &String| {
        name.strip_prefix("cpu")
            .is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
    };
    let with_states =
        |cpu: &String| target.file(format!("{DIRECTORY}/{cpu}/cpuidle/state0")).exists();
    let cpus: Vec<String> =
        target.names(DIRECTORY).into_iter().filter(is_cpu).filter(with_states).collect();
    if cpus.is_empty() {
        return Err(Refusal::Unsupported("the kernel does not choose idle states here".to_owned()));
    }
    Ok(cpus)
}

/// The states of a CPU, the shallowest first.
fn states(target: &Target, cpu: &str) -> Result<Vec<State>, Refusal> {
    let mut states = Vec::new();
    for number in 0.. {
        let path = format!("{DIRECTORY}/{cpu}/cpuidle/state{number}");
        if !target.file(&path).exists() {
            break;
        }
        states.push(State {
            name: target.read_file(&format!("{path}/name"))?,
            disabled: target.read_file(&format!("{path}/disable"))? != "0",
            path: format!("{path}/disable"),
        });
    }
    Ok(states)
}

/// The name of the deepest state that is not disabled, if none before it is.
fn written(states: &[State]) -> String {
    let enabled = states.iter().take_while(|state| !state.disabled).count();
    let rest_is_disabled = states[enabled..].iter().all(|state| state.disabled);
    match enabled.checked_sub(1).map(|deepest| &states[deepest].name) {
        Some(_) if enabled == states.len() => UNLIMITED.to_owned(),
        Some(name) if rest_is_disabled => name.clone(),
        _ => {
            let digit = |state: &State| if state.disabled { '1' } else { '0' };
            STATES.chars().chain(states.iter().map(digit)).collect()
        }
    }
}

/// Whether each state is to be disabled.
fn wanted(states: &[State], value: &str) -> Option<Vec<bool>> {
    if value == UNLIMITED {
        return Some(vec![false; states.len()]);
    }
    if let Some(digits) = value.strip_prefix(STATES) {
        let flags: Vec<bool> = digits.bytes().map(|digit| digit == b'1').collect();
        return (flags.len() == states.len()).then_some(flags);
    }
    let deepest = states.iter().position(|state| state.name.eq_ignore_ascii_case(value))?;
    Some((0..states.len()).map(|number| number > deepest).collect())
}

impl Tunable for IdleLimit {
    fn name(&self) -> &'static str {
        "cstate_limit"
    }

    fn about(&self) -> &'static str {
        "Deepest idle state that CPUs may enter."
    }

    fn scope(&self) -> Scope {
        Scope::Machine
    }

    fn values(&self) -> String {
        "the name of an idle state, such as C1, or unlimited".to_owned()
    }

    fn check(&self, value: &str) -> Option<String> {
        parts::check(value, |value| match value.strip_prefix(STATES) {
            Some(digits) => {
                let fits =
                    !digits.is_empty() && digits.bytes().all(|digit| matches!(digit, b'0' | b'1'));
                fits.then(|| value.to_owned())
            }
            None => values::word(value),
        })
    }

    fn read(&self, target: &Target) -> Result<String, Refusal> {
        let values: Result<Vec<_>, Refusal> = cpus(target)?
            .into_iter()
            .map(|cpu| Ok((cpu.clone(), written(&states(target, &cpu)?))))
            .collect();
        Ok(parts::join(&values?))
    }

    fn write(&self, target: &Target, value: &str) -> Result<(), Refusal> {
        let mut changes = Vec::new();
        for (cpu, value) in parts::spread(value, &cpus(target)?) {
            let states = states(target, &cpu)?;
            let flags = wanted(&states, &value).ok_or_else(|| {
                let names: Vec<_> = states.iter().map(|state| state.name.as_str()).collect();
                Refusal::Unsupported(format!(
                    "{cpu} has no idle state `{value}`; it has {}",
                    names.join(" ")
                ))
            })?;
            changes.extend(
                states.into_iter().zip(flags).filter(|(state, flag)| state.disabled != *flag),
            );
        }
        changes.iter().try_for_each(|(state, disabled)| {
            target.write_file(&state.path, if *disabled { "1" } else { "0" })
        })
    }
}
