//! `available` on an axis of congestion control: every one that all hosts of a study offer.

use std::cell::OnceCell;

use wirecost_fleet::guest::Guest;
use wirecost_fleet::{ask, environment};
use wirecost_model::congestion::{AVAILABLE, BPF_BIC};
use wirecost_model::environment::{Environment, Usability};
use wirecost_model::status::Status;
use wirecost_model::study::Point;
use wirecost_study::{Definition, PLACE, Place};

use crate::Failure;
use crate::commands::run::HostOptions;

/// Names of axes and settings of congestion control.
const NAMES: [&str; 3] = ["cc", "run.cc", "option.cc"];

/// The congestion controls that all hosts offer. Hosts are asked when it is first needed.
pub(crate) struct Available {
    here: bool,
    /// Addresses.
    agents: Vec<String>,
    /// Names of virtual machines.
    machines: Vec<String>,
    names: OnceCell<Vec<String>>,
}

impl Available {
    /// Of a study on hosts that the command line names, or on its own.
    pub(crate) fn of(definition: &Definition, hosts: &HostOptions, loopback: bool) -> Self {
        let mut of = Self {
            here: hosts.uses_this_machine(),
            agents: hosts.hosts.iter().map(|host| host.agent().1).collect(),
            machines: Vec::new(),
            names: OnceCell::new(),
        };
        if !of.agents.is_empty() || hosts.lab.is_some() || loopback {
            return of;
        }
        if let Some(name) = &hosts.vm {
            return Self { here: false, machines: vec![name.clone()], ..of };
        }
        if !definition.hosts.is_empty() {
            // An address that is none is refused with the others.
            let agents = super::source::hosts_of(definition).unwrap_or_default();
            of.here = HostOptions { hosts: agents.clone(), ..hosts.clone() }.uses_this_machine();
            of.agents = agents.iter().map(|host| host.agent().1).collect();
            return of;
        }
        let places: Vec<Place> = match definition.levels_of(PLACE) {
            none if none.is_empty() => vec![definition.place.clone()],
            // One that is none is refused with its point.
            several => several.iter().filter_map(|place| place.parse().ok()).collect(),
        };
        of.here = places.iter().any(|place| !matches!(place, Place::Vm(_)));
        let machine = |place| match place {
            Place::Vm(name) => Some(name),
            Place::Loopback | Place::Lab | Place::LabDirect => None,
        };
        of.machines = places.into_iter().filter_map(machine).collect();
        of
    }

    /// Replaces `available` on the axes of a study.
    ///
    /// # Errors
    /// A host that does not answer, or does not know what it offers.
    pub(super) fn replace_in(&self, definition: &mut Definition) -> Result<(), Failure> {
        for axis in NAMES {
            if definition.has_value(axis, AVAILABLE) {
                definition.replace_value(axis, AVAILABLE, self.names()?);
            }
        }
        Ok(())
    }

    /// The values that the command line gives an axis, without `available`.
    ///
    /// # Errors
    /// As of [`Available::replace_in`].
    pub(crate) fn values(&self, axis: &str, values: &[String]) -> Result<Vec<String>, Failure> {
        if !NAMES.contains(&axis) || !values.iter().any(|value| value == AVAILABLE) {
            return Ok(values.to_vec());
        }
        let names = self.names()?.iter().filter(|name| !values.contains(name));
        let names: Vec<String> = names.cloned().collect();
        let replaced = values.iter().flat_map(|value| match value.as_str() {
            AVAILABLE => names.clone(),
            _ => vec![value.clone()],
        });
        Ok(replaced.collect())
    }

    fn names(&self) -> Result<&[String], Failure> {
        if let Some(names) = self.names.get() {
            return Ok(names);
        }
        let names = common(&self.environments()?).map_err(|host| {
            Failure::usage(format!("{AVAILABLE}: {host} does not report its congestion controls"))
                .help("name them: --axis option.cc=cubic,reno")
        })?;
        Ok(self.names.get_or_init(|| names))
    }

    /// Of each host, by its name.
    fn environments(&self) -> Result<Vec<(String, Environment)>, Failure> {
        let mut environments = Vec::new();
        if self.here {
            environments.push(("this machine".to_owned(), environment::read()));
        }
        let mut agents = self.agents.clone();
        for name in &self.machines {
            let guest = Guest::find(name).map_err(|error| Failure::new(Status::Peer, error))?;
            // Its hosts have one kernel.
            agents.extend(guest.hosts.into_iter().next().map(|host| host.agent));
        }
        for address in agents {
            let answer = ask::about(&address).map_err(|error| Failure::new(Status::Peer, error))?;
            environments.push((address, answer.environment));
        }
        Ok(environments)
    }
}

/// What all of them offer, in the order of the first. The error is the name of one whose offer is unknown.
fn common(environments: &[(String, Environment)]) -> Result<Vec<String>, String> {
    let mut common: Option<Vec<String>> = None;
    for (host, environment) in environments {
        let names = environment.congestion_controls().ok_or_else(|| host.clone())?;
        let bic = environment.process.bpf_congestion == Some(Usability::Usable);
        let names = names.into_iter().chain(bic.then_some(BPF_BIC)).map(str::to_owned);
        let names: Vec<String> = names.collect();
        common = Some(match common {
            None => names,
            Some(known) => known.into_iter().filter(|name| names.contains(name)).collect(),
        });
    }
    Ok(common.unwrap_or_default())
}

/// Refuses `available` where there can be only one congestion control.
pub(super) fn check(point: &Point) -> Result<(), Failure> {
    match point.settings.iter().find(|of| NAMES.contains(&&*of.name) && of.value == AVAILABLE) {
        None => Ok(()),
        Some(setting) => Err(Failure::usage(format!(
            "the study sets {} = {AVAILABLE:?}, which stands for several congestion controls",
            setting.name
        ))
        .help(format!("write it as a value of the axis {0}: {0} = [{AVAILABLE:?}]", setting.name))),
    }
}

#[cfg(test)]
mod tests {
    use wirecost_model::environment::{
        ALLOWED_CONGESTION_CONTROL, AVAILABLE_CONGESTION_CONTROL, Process,
    };

    use super::*;

    fn host(name: &str, available: &str, bic: bool, is_root: bool) -> (String, Environment) {
        let sysctls =
            [(AVAILABLE_CONGESTION_CONTROL, available), (ALLOWED_CONGESTION_CONTROL, "reno cubic")];
        let reason = || Usability::Unusable("it needs Linux 6.4".to_owned());
        let environment = Environment {
            process: Process {
                capabilities: Some(
                    is_root.then(|| "cap_net_admin".to_owned()).into_iter().collect(),
                ),
                bpf_congestion: Some(if bic { Usability::Usable } else { reason() }),
                ..Process::default()
            },
            sysctls: sysctls.map(|(name, value)| (name.to_owned(), Some(value.to_owned()))).into(),
            ..Environment::default()
        };
        (name.to_owned(), environment)
    }

    #[test]
    fn what_all_hosts_offer_is_available() {
        let one = host("one", "reno bbr cubic", true, true);
        let other = host("other", "cubic dctcp reno", false, true);
        let names = |hosts: &[(String, Environment)]| common(hosts).unwrap().join(" ");
        assert_eq!(names(std::slice::from_ref(&one)), "reno bbr cubic bpf-bic");
        assert_eq!(names(&[one.clone(), other]), "reno cubic");
        // Others choose only what is allowed to them.
        assert_eq!(names(&[host("user", "reno bbr cubic", false, false)]), "reno cubic");
        let unknown = ("silent".to_owned(), Environment::default());
        assert_eq!(common(&[one, unknown]), Err("silent".to_owned()));
    }

    #[test]
    fn it_is_replaced_on_the_command_line_and_other_axes_keep_their_values() {
        let names = OnceCell::from(vec!["reno".to_owned(), "cubic".to_owned()]);
        let of = Available { here: true, agents: Vec::new(), machines: Vec::new(), names };
        let values = |axis: &str, values: &[&str]| {
            let values: Vec<String> = values.iter().map(|&value| value.to_owned()).collect();
            of.values(axis, &values).unwrap().join(",")
        };
        assert_eq!(values("option.cc", &["available"]), "reno,cubic");
        assert_eq!(values("cc", &["cubic", "available", "x"]), "cubic,reno,x");
        assert_eq!(values("option.cc", &["bbr"]), "bbr");
        assert_eq!(values("size", &["available"]), "available");
    }
}
