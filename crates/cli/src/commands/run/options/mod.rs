//! Options of `run` that change what a profile does, a file each. [`ALL`] is the only list of them: the
//! command line, its help and studies have them from here.

mod connections;
mod duration;
mod reverse;
mod tos;

use std::sync::Arc;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use wirecost_model::profile::Profile;

use crate::Failure;

/// One option. It carries itself to where it acts by what it changes of the profile.
pub(crate) trait RunOption: Sync {
    /// As on the command line, without the dashes, and in studies.
    fn name(&self) -> &'static str;

    /// What help calls its value; none for a flag.
    fn value_name(&self) -> Option<&'static str>;

    /// One line for a person.
    fn help(&self) -> &'static str;

    /// What a value of it changes.
    ///
    /// # Errors
    /// What is wrong with the value.
    fn read(&self, value: &str) -> Result<Change, String>;
}

/// In the order in which help lists them and they are applied.
pub(crate) static ALL: &[&dyn RunOption] =
    &[&connections::Connections, &duration::Duration, &reverse::Reverse, &tos::Tos];

/// The option of this name.
pub(crate) fn find(name: &str) -> Option<&'static dyn RunOption> {
    ALL.iter().copied().find(|option| option.name() == name)
}

type Act = dyn Fn(&mut Profile) -> Result<(), Failure> + Send + Sync;

/// A change of a profile.
#[derive(Clone)]
pub(crate) struct Change(Arc<Act>);

impl Change {
    fn new(change: impl Fn(&mut Profile) -> Result<(), Failure> + Send + Sync + 'static) -> Self {
        Self(Arc::new(change))
    }
}

impl std::fmt::Debug for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Change")
    }
}

/// The changes that a command line asks for.
#[derive(Debug, Default)]
pub(crate) struct Changes(Vec<Change>);

impl Changes {
    /// # Errors
    /// A change that the profile has no place for.
    pub(crate) fn apply(&self, profile: &mut Profile) -> Result<(), Failure> {
        self.0.iter().try_for_each(|change| (change.0)(profile))
    }
}

fn argument(option: &'static dyn RunOption) -> Arg {
    let argument = Arg::new(option.name()).long(option.name()).help(option.help());
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
        let given = |option: &&dyn RunOption| match option.value_name() {
            Some(_) => matches.get_one::<Change>(option.name()).cloned(),
            None => matches.get_flag(option.name()).then(|| option.read("").ok()).flatten(),
        };
        Ok(Self(ALL.iter().filter_map(given).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

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
    fn only_what_is_given_changes_a_profile() {
        let command = Changes::augment_args(Command::new("run").no_binary_name(true));
        let changes = |line: &[&str]| {
            let matches = command.clone().try_get_matches_from(line);
            matches.map(|matches| Changes::from_arg_matches(&matches).unwrap().0.len())
        };
        assert_eq!(changes(&[]).unwrap(), 0);
        assert_eq!(changes(&["--reverse", "--connections=2"]).unwrap(), 2);
        assert!(changes(&["--connections=0"]).is_err());
    }
}
