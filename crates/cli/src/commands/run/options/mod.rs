//! Options of `run`, a file each. [`ALL`] is the only list of them: the command line, its help and
//! studies have them from here.

mod cc;
pub(crate) mod cc_object;
mod connections;
mod cpus;
mod dead_time;
pub(crate) mod duration;
mod engine;
mod interval;
pub(crate) mod load;
mod placement;
mod ramp;
mod receive_stamps;
mod reverse;
mod server_sockets;
mod timeout;
mod tos;
mod workers;

use std::sync::Arc;

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use wirecost_fleet::controller::Settings;
use wirecost_model::profile::{IoValue, Profile};
use wirecost_model::study::Value;
use wirecost_profile::io_options::IoOption;
use wirecost_profile::protocols;

use crate::Failure;
pub(crate) use engine::parse_engine;

/// One option. It carries itself to where it acts by what it changes: the profile, or the settings of
/// the run.
pub(crate) trait RunOption: Sync {
    /// As in studies.
    fn name(&self) -> &'static str;

    /// As on the command line, without the dashes before it.
    fn long(&self) -> &'static str {
        self.name()
    }

    /// What help calls its value; none for a flag.
    fn value_name(&self) -> Option<&'static str>;

    /// One line for a person.
    fn help(&self) -> &'static str;

    /// Its value where none is given; none where that changes nothing.
    fn default(&self) -> Option<&'static str> {
        None
    }

    /// What a value of it changes.
    ///
    /// # Errors
    /// What is wrong with the value.
    fn read(&self, value: &str) -> Result<Change, String>;
}

/// In the order in which help lists them and they are applied.
pub(crate) static ALL: &[&dyn RunOption] = &[
    &engine::Engine,
    &connections::Connections,
    &load::Load,
    &duration::Duration,
    &ramp::Ramp,
    &reverse::Reverse,
    &tos::Tos,
    &cc::CongestionControl,
    &cc_object::CongestionObjects,
    &placement::Placement,
    &server_sockets::ServerSockets,
    &workers::Workers,
    &cpus::Cpus,
    &interval::Interval,
    &receive_stamps::ReceiveStamps,
    &timeout::Timeout,
    &dead_time::DeadTime,
];

/// The option of this name.
pub(crate) fn find(name: &str) -> Option<&'static dyn RunOption> {
    ALL.iter().copied().find(|option| option.name() == name)
}

/// Sets an I/O option on every connection whose protocol has it.
fn set_on_connections(
    profile: &mut Profile,
    option: &dyn IoOption,
    value: &IoValue,
    long: &str,
    kind: &str,
) -> Result<(), Failure> {
    let flowops =
        profile.groups.iter_mut().flat_map(|g| &mut g.transactions).flat_map(|t| &mut t.flowops);
    let mut fits = false;
    for flowop in flowops.filter(|flowop| option.flowops().contains(&flowop.kind)) {
        let protocol = flowop.options.protocol.as_deref().and_then(protocols::find);
        if option.fits(protocol) {
            fits = true;
            flowop.options.io.set(option.name(), value.clone());
        }
    }
    match fits {
        true => Ok(()),
        false => Err(Failure::usage(format!("{long}: the profile has no connection {kind}"))
            .help(format!("remove {long}, or choose another protocol"))),
    }
}

type OfProfile = dyn Fn(&mut Profile) -> Result<(), Failure> + Send + Sync;
type OfSettings = dyn Fn(&mut Settings) + Send + Sync;

/// What a value of an option changes.
#[derive(Clone)]
pub(crate) enum Change {
    Profile(Arc<OfProfile>),
    Settings(Arc<OfSettings>),
}

impl Change {
    fn to_profile(
        change: impl Fn(&mut Profile) -> Result<(), Failure> + Send + Sync + 'static,
    ) -> Self {
        Self::Profile(Arc::new(change))
    }

    fn to_settings(change: impl Fn(&mut Settings) + Send + Sync + 'static) -> Self {
        Self::Settings(Arc::new(change))
    }
}

impl std::fmt::Debug for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Change")
    }
}

/// The changes that a command line asks for.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// With those that options make by default.
    all: Vec<Change>,
    given: Vec<Value>,
}

impl Changes {
    /// # Errors
    /// A change that the profile has no place for.
    pub(crate) fn apply(&self, profile: &mut Profile) -> Result<(), Failure> {
        self.all.iter().try_for_each(|change| match change {
            Change::Profile(change) => change(profile),
            Change::Settings(_) => Ok(()),
        })
    }

    /// The settings that options make; the others are as by default.
    pub(crate) fn settings(&self) -> Settings {
        let mut settings = Settings::default();
        for change in &self.all {
            if let Change::Settings(change) = change {
                change(&mut settings);
            }
        }
        settings
    }

    /// Options that were given, by name, with their values as they were written.
    pub(crate) fn given(&self) -> &[Value] {
        &self.given
    }
}

fn argument(option: &'static dyn RunOption) -> Arg {
    let argument = Arg::new(option.name())
        .long(option.long())
        .help(option.help())
        .default_value(option.default());
    match option.value_name() {
        Some(name) => argument.value_name(name).value_parser(|value: &str| option.read(value)),
        None => argument.action(ArgAction::SetTrue),
    }
}

impl Args for Changes {
    fn augment_args(command: Command) -> Command {
        ALL.iter().fold(command, |command, option| command.arg(argument(*option)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Changes {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let change = |option: &&dyn RunOption| match option.value_name() {
            Some(_) => matches.get_one::<Change>(option.name()).cloned(),
            None => matches.get_flag(option.name()).then(|| option.read("").ok()).flatten(),
        };
        let given = |option: &&dyn RunOption| {
            let name = option.name();
            let is_given = matches.value_source(name) == Some(ValueSource::CommandLine);
            let text = match option.value_name() {
                Some(_) => matches.get_raw(name)?.next_back()?.to_str()?,
                None => "true",
            };
            is_given.then(|| Value::new(name, text))
        };
        Ok(Self {
            all: ALL.iter().filter_map(change).collect(),
            given: ALL.iter().filter_map(given).collect(),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use wirecost_model::clock::{MILLISECOND, SECOND};

    use super::*;

    #[test]
    fn every_file_of_the_folder_is_listed_once() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/commands/run/options");
        let files: BTreeSet<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter_map(|file| Some(file.strip_suffix(".rs")?.to_owned()))
            .filter(|name| name != "mod")
            .collect();
        let names: BTreeSet<String> = ALL.iter().map(|option| option.name().to_owned()).collect();
        assert_eq!(files, names);
        assert_eq!(names.len(), ALL.len());
    }

    #[test]
    fn what_is_not_given_is_the_default() {
        let command = Changes::augment_args(Command::new("run").no_binary_name(true));
        let changes = |line: &[&str]| {
            let matches = command.clone().try_get_matches_from(line);
            matches.map(|matches| Changes::from_arg_matches(&matches).unwrap())
        };
        let none = changes(&[]).unwrap();
        assert!(none.all.iter().all(|change| matches!(change, Change::Settings(_))));
        assert_eq!(none.given(), []);
        let settings = none.settings();
        assert_eq!((settings.engine.as_str(), settings.timeout), ("epoll", None));
        assert_eq!((settings.ramp, settings.interval), (SECOND, None));
        let given = changes(&["--reverse", "--connections=2", "--ramp=20ms"]).unwrap();
        assert_eq!(given.all.len(), none.all.len() + 2);
        let of_line = [("connections", "2"), ("ramp", "20ms"), ("reverse", "true")];
        assert_eq!(given.given(), of_line.map(|(name, value)| Value::new(name, value)));
        assert_eq!(given.settings().ramp, 20 * MILLISECOND);
        assert!(changes(&["--connections=0"]).is_err());
        assert!(changes(&["--interval=1ms"]).is_err());
    }
}
