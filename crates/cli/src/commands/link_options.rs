//! The links of a lab on the command line and in files: the keys of `model::link::keys`.

use std::path::Path;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use wirecost_lab::{EmulatedLinks, Lab, LabSpec};
use wirecost_model::link::keys::{self, Typed};
use wirecost_model::link::netem::BackendChoice;
use wirecost_model::link::{Capacity, LinkSpec, Topology};
use wirecost_study::{LabDefinition, Scalar};

use crate::Failure;

const HEADING: &str = "Links of the lab";
const TOPOLOGY: &str = "topology";
const BACKEND: &str = "backend";
const BACK: &str = "back";

/// Links as they were typed: keys and values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LinkOptions {
    keys: Vec<(String, String)>,
    /// What differs in the direction to the first host.
    back: Vec<(String, String)>,
    topology: Option<String>,
    /// What makes them.
    backend: Option<String>,
}

/// What is to lie between the hosts of a lab.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Links {
    /// Wires, or a switch.
    Plain,
    /// A switch whose ports have this rate, in bits per second.
    Rate(u64),
    Emulated {
        topology: Option<Topology>,
        link: Box<LinkSpec>,
        backend: BackendChoice,
    },
}

impl LinkOptions {
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The name of an option that was typed.
    pub(crate) fn first(&self) -> Option<&str> {
        let key = self.keys.first().map(|(name, _)| name.as_str());
        let back = self.back.first().map(|_| BACK);
        let topology = self.topology.as_ref().map(|_| TOPOLOGY);
        key.or(topology).or(self.backend.as_ref().map(|_| BACKEND)).or(back)
    }

    /// Sets a key, `topology` and `backend` among them. A later value replaces an earlier one.
    pub(crate) fn set(&mut self, name: &str, value: &str) {
        match name {
            TOPOLOGY => self.topology = Some(value.to_owned()),
            BACKEND => self.backend = Some(value.to_owned()),
            _ => replace(&mut self.keys, name, value),
        }
    }

    /// Sets a key of the direction to the first host.
    pub(crate) fn set_back(&mut self, name: &str, value: &str) {
        replace(&mut self.back, name, value);
    }

    /// What these options replace, where they say something.
    pub(crate) fn over(self, mut other: Self) -> Self {
        for (name, value) in self.keys {
            other.set(&name, &value);
        }
        for (name, value) in self.back {
            other.set_back(&name, &value);
        }
        other.topology = self.topology.or(other.topology);
        other.backend = self.backend.or(other.backend);
        other
    }

    /// What they mean, or why they mean nothing.
    pub(crate) fn links(&self) -> Result<Links, Failure> {
        self.meaning().map_err(|reason| Failure::usage(format!("the links of the lab: {reason}")))
    }

    fn meaning(&self) -> Result<Links, String> {
        let typed = |pairs: &[(String, String)]| {
            let mut typed = Typed::default();
            pairs.iter().try_for_each(|(name, value)| typed.set(name, value))?;
            Ok::<Typed, String>(typed)
        };
        let link = keys::resolve(&typed(&self.keys)?, &typed(&self.back)?, read)?;
        let topology = match self.topology.as_deref() {
            None => None,
            Some("pair") => Some(Topology::Pair),
            Some("star") => Some(Topology::Star),
            Some("dumbbell") => Some(Topology::Dumbbell),
            Some(other) => {
                return Err(format!("topology `{other}`: must be pair, star or dumbbell"));
            }
        };
        let backend = self.backend.as_deref().map_or(Ok(BackendChoice::Auto), |text| {
            text.parse().map_err(|reason| format!("{BACKEND} `{text}`: {reason}"))
        })?;
        let is_plain = self.back.is_empty() && topology.is_none() && backend == BackendChoice::Auto;
        Ok(match (self.keys.as_slice(), &link.forward.capacity) {
            ([], _) if is_plain => Links::Plain,
            // A switch limits a rate without more.
            ([_], Capacity::Rate(rate)) if is_plain => Links::Rate(*rate),
            _ => Links::Emulated { topology, link: Box::new(link), backend },
        })
    }
}

impl Links {
    /// Whether a lab has these links.
    pub(crate) fn are_of(&self, lab: &Lab) -> bool {
        match self {
            Self::Plain => lab.rate_bits_per_second().is_none() && lab.emulated().is_none(),
            Self::Rate(rate) => lab.rate_bits_per_second() == Some(*rate),
            Self::Emulated { topology, link, backend } => {
                lab.emulated().is_some_and(|(of_lab, its_link, made_by)| {
                    topology.is_none_or(|topology| topology == of_lab)
                        && **link == *its_link
                        && match backend {
                            BackendChoice::Auto => true,
                            BackendChoice::Only(only) => *only == made_by,
                        }
                })
            }
        }
    }

    /// Has a lab these links.
    pub(crate) fn apply(&self, spec: &mut LabSpec) -> Result<(), Failure> {
        match self {
            Self::Plain => {}
            Self::Rate(rate) => spec.rate_bits_per_second = Some(*rate),
            Self::Emulated { topology, link, backend } => {
                if let Some(host) =
                    link.host_rtt_nanoseconds.keys().find(|host| usize::from(**host) > spec.hosts)
                {
                    return Err(Failure::usage(format!(
                        "the links of the lab: host-rtt names h{host}, but the last host is h{}",
                        spec.hosts
                    )));
                }
                let by_hosts = if spec.hosts == 2 { Topology::Pair } else { Topology::Star };
                spec.emulated = Some(EmulatedLinks {
                    topology: topology.unwrap_or(by_hosts),
                    link: (**link).clone(),
                    backend: *backend,
                    seed: super::run::new_seed(),
                    program: super::lab::emulator_program()?,
                });
            }
        }
        Ok(())
    }
}

impl From<&LabDefinition> for LinkOptions {
    fn from(lab: &LabDefinition) -> Self {
        let mut links = Self::default();
        for (name, value) in &lab.keys {
            links.set(name, &value.0);
        }
        for (name, value) in &lab.back {
            links.set_back(name, &value.0);
        }
        links
    }
}

impl From<LinkOptions> for LabDefinition {
    fn from(links: LinkOptions) -> Self {
        let all = |pairs: Vec<(String, String)>| {
            pairs.into_iter().map(|(name, value)| (name, Scalar(value))).collect()
        };
        let topology = links.topology.map(|topology| (TOPOLOGY.to_owned(), topology));
        let backend = links.backend.map(|backend| (BACKEND.to_owned(), backend));
        let keys = links.keys.into_iter().chain(topology).chain(backend);
        Self { keys: all(keys.collect()), back: all(links.back) }
    }
}

fn replace(pairs: &mut Vec<(String, String)>, name: &str, value: &str) {
    pairs.retain(|(known, _)| known != name);
    pairs.push((name.to_owned(), value.to_owned()));
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path)
        .map_err(|error| format!("cannot read {}: {error}", path.display()))
}

fn parse_back(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("must be KEY=VALUE, such as rate=100mbit".to_owned()),
    }
}

impl Args for LinkOptions {
    fn augment_args(command: Command) -> Command {
        let command = keys::ALL.iter().fold(command, |command, key| {
            let about = match key.default {
                Some(default) => format!("{} [default: {default}]", key.about),
                None => key.about.to_owned(),
            };
            let option = Arg::new(key.name).long(key.name).value_name(key.value).help(about);
            command.arg(option.help_heading(HEADING))
        });
        let topology = Arg::new(TOPOLOGY)
            .long(TOPOLOGY)
            .value_name("NAME")
            .help("pair; star: a link for each host; dumbbell: half of the hosts on each side of one link")
            .help_heading(HEADING);
        let back = Arg::new(BACK)
            .long(BACK)
            .value_name("KEY=VALUE")
            .action(ArgAction::Append)
            .value_delimiter(',')
            .value_parser(parse_back)
            .help("What differs in the direction to the first host, such as `rate=100mbit,loss=1%`")
            .help_heading(HEADING);
        let backend = Arg::new(BACKEND)
            .long(BACKEND)
            .value_name("NAME")
            .help(
                "What makes the links: netem (the kernel's), emulator (a process), or auto: netem where the kernel \
                 has it and it has these keys, else the emulator [default: auto]",
            )
            .help_heading(HEADING);
        command.arg(topology).arg(backend).arg(back)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for LinkOptions {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut options = Self::default();
        options.update_from_arg_matches(matches)?;
        Ok(options)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        let names = keys::ALL.iter().map(|key| key.name).chain([TOPOLOGY, BACKEND]);
        for name in names {
            if let Some(value) = matches.get_one::<String>(name) {
                self.set(name, value);
            }
        }
        for (name, value) in matches.get_many::<(String, String)>(BACK).into_iter().flatten() {
            self.set_back(name, value);
        }
        Ok(())
    }
}
