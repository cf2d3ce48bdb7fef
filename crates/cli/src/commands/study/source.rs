//! Finding and reading a study: a built-in, a file, or a saved one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use clap::Args;
use miette::Severity;
use wirecost_model::search::Search;
use wirecost_store::input::{PROFILE, STUDY, read_text};
use wirecost_study::{Definition, Matrix, PLACE, Place, StudyError, builtins};

use super::available::{self, Available};
use super::{missing, plan, settings};
use crate::Failure;
use crate::commands::link_options::LinkOptions;
use crate::commands::run::{HostArgument, HostOptions, options};
use crate::diagnostics;
use crate::input;
use crate::terminal;

/// The study, and the changes of the command line.
#[derive(Debug, Args)]
pub(super) struct Source {
    /// Study: a file, or a built-in study (see `wirecost study list`).
    #[arg(value_name = "FILE|@BUILTIN")]
    study: String,

    /// Run the study's quick variant: fewer points, shorter windows.
    #[arg(long)]
    quick: bool,

    /// Set the values of an axis; overrides the study. `NAME=` removes the axis.
    #[arg(long = "axis", value_name = "NAME=A,B,C", value_parser = parse_axis)]
    axes: Vec<(String, Vec<String>)>,

    /// Set a name to a value at every point, as in `set` of the study.
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = crate::profile::parse_variable)]
    set: Vec<(String, String)>,

    /// Run each point N times; overrides the study.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: Option<u32>,

    /// Run on loopback, even if the study uses a lab.
    #[arg(long, conflicts_with_all = ["lab", "hosts", "vm"])]
    loopback: bool,

    /// Outside of a lab, keep the study's axes of settings of hosts (`tune.NAME`). Each run restores what it changes.
    /// `--set tune-device=NAME` selects the device of hosts on agents.
    #[arg(long)]
    tunables: bool,

    #[command(flatten)]
    hosts: HostOptions,

    /// Seed of the order of runs and of all random values; overrides the study.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Whether the study comes from somebody else.
    #[arg(skip)]
    sealed: bool,
}

pub(crate) fn parse_axis(text: &str) -> Result<(String, Vec<String>), String> {
    match text.split_once('=') {
        Some((name, values)) if !name.is_empty() => {
            Ok((name.to_owned(), values.split(',').map(str::to_owned).collect()))
        }
        _ => Err("must be NAME=A,B,C".to_owned()),
    }
}

/// Refuses a value that an option of this name cannot have, before conditions of the study are tried on
/// it. Options that a profile may have a variable for are left to it.
fn check_value(option: &str, name: &str, value: &str) -> Result<(), Failure> {
    let always = ["connections", "duration", "ramp", "workers", "dead_time"];
    let Some(known) = options::find(name).filter(|_| always.contains(&name)) else { return Ok(()) };
    known.read(value).map(drop).map_err(|message| {
        Failure::usage(format!("{option} {name}: invalid value '{value}': {message}"))
    })
}

/// Before the name of a key of `search`.
const OF_SEARCH: &str = "search.";

fn set_of_search(definition: &mut Definition, key: &str, value: &str) -> Result<(), Failure> {
    let Some(search) = &mut definition.search else {
        return Err(Failure::usage(format!("--set {OF_SEARCH}{key}: the study has no search")));
    };
    match search.set(key, value) {
        true => Ok(()),
        false => Err(Failure::usage(format!("--set {OF_SEARCH}{key}: search has no such key"))
            .help("--set changes search.min, search.max and search.time_limit")),
    }
}

/// A study, read, with all its points.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) definition: Definition,
    pub(super) matrix: Matrix,
    /// What it searches for at each point.
    pub(super) search: Option<Search>,
    /// Directory of its profile files.
    pub(super) beside: PathBuf,
    /// Where it runs.
    pub(super) hosts: HostOptions,
    /// Whether its profiles may name no host and no file.
    pub(super) sealed: bool,
}

impl Source {
    /// A study that a page brought, in this file, on hosts of the user.
    pub(super) fn of_page(
        file: &Path,
        hosts: &HostOptions,
        loopback: bool,
        repeat: Option<u32>,
    ) -> Self {
        Self {
            study: file.display().to_string(),
            quick: false,
            axes: Vec::new(),
            set: Vec::new(),
            repeat,
            loopback,
            tunables: false,
            hosts: hosts.clone(),
            seed: None,
            sealed: true,
        }
    }

    pub(super) fn load(&self) -> Result<Loaded, Failure> {
        let (text, beside) = match self.study.strip_prefix('@') {
            Some(name) => {
                let builtin =
                    builtins::find(name).map_err(
                        |error| match wirecost_profile::builtins::find(name) {
                            Some(_) => Failure::usage(&error)
                                .help(format!("it is a built-in profile: wirecost run @{name}")),
                            None => failure(error),
                        },
                    )?;
                (builtin.source.to_owned(), PathBuf::new())
            }
            None => {
                let text = input::text(&self.study, STUDY).map_err(|error| {
                    let failure =
                        Failure::usage(format!("cannot read the study {}: {error}", self.study));
                    failure.help(match builtins::find(&self.study) {
                        Ok(_) => format!("did you mean the built-in study @{}?", self.study),
                        Err(_) => {
                            "give a file, or a built-in study from `wirecost study list`".to_owned()
                        }
                    })
                })?;
                let beside = Path::new(&self.study).parent().unwrap_or(Path::new(""));
                (text, beside.to_owned())
            }
        };
        let mut definition = Definition::parse(&text).map_err(|e| draw(&self.study, &text, e))?;
        if definition.tune.is_some() {
            return Err(Failure::usage(format!("{} is a search of wirecost tune", self.study))
                .help("continue one with `wirecost study resume DIR`, or start it with `wirecost tune`"));
        }
        let available = Available::of(&definition, &self.hosts, self.loopback);
        available.replace_in(&mut definition)?;
        if self.quick {
            if definition.quick.is_none() {
                return Err(Failure::usage(format!("{} has no table [quick]", self.study))
                    .help("add a table [quick], or use --axis and --set"));
            }
            definition = definition.with_quick_overrides();
        }
        definition.quick = None;
        self.leave_the_lab(&mut definition)?;
        for (name, values) in &self.axes {
            let values = available.values(name, values)?;
            let values: Vec<&str> = values.iter().map(String::as_str).collect();
            if values == [""] {
                definition.remove_axis(name).map_err(failure)?;
                continue;
            }
            for value in &values {
                check_value("--axis", name, value)?;
            }
            definition.set_axis(name, &values).map_err(failure)?;
        }
        if !self.axes.is_empty() {
            let axes: Vec<&str> = self.axes.iter().map(|(name, _)| name.as_str()).collect();
            definition.drop_rules_of(&axes).map_err(failure)?;
        }
        for (name, value) in &self.set {
            if let Some(key) = name.strip_prefix(OF_SEARCH) {
                set_of_search(&mut definition, key, value)?;
                continue;
            }
            check_value("--set", name, value)?;
            definition.set(name, value);
        }
        if let Some(times) = self.repeat {
            definition.set_repeats(times);
        }
        if let Some(seed) = self.seed {
            definition.seed = seed;
        }
        if self.loopback {
            replace_place(&mut definition, "--loopback", Place::Loopback)?;
        }
        self.leave_out_what_is_missing(&mut definition);
        let loaded = Loaded::from(definition, beside, &self.hosts)?;
        let mut loaded = Loaded { sealed: self.sealed, ..loaded };
        loaded.leave_out_shares_of_unknown_links()?;
        Ok(loaded)
    }

    /// A study lists more than a kernel has. What another machine has is not known before it is asked, and what the command
    /// line names is meant: there, the run tells what is missing.
    fn leave_out_what_is_missing(&self, definition: &mut Definition) {
        let elsewhere = self.hosts.vm.is_some()
            || !self.hosts.hosts.is_empty()
            || !definition.hosts.is_empty()
            || matches!(definition.place, Place::Vm(_));
        if elsewhere {
            return;
        }
        let loads = definition.set.contains_key("cc_object");
        let is_lab = matches!(definition.place, Place::Lab | Place::LabDirect)
            && !definition.axes.contains_key(PLACE);
        let is_in_lab = is_lab || self.hosts.lab.is_some();
        let named = |axis: &String| self.axes.iter().any(|(name, _)| name == axis);
        let axes: Vec<String> =
            definition.axes.keys().filter(|axis| !named(axis)).cloned().collect();
        for axis in axes {
            definition.leave_out_values(&axis, |name, value| match name {
                "option.cc" if loads => None,
                _ => is_in_lab
                    .then(|| missing::why_in_a_lab(name))
                    .flatten()
                    .or_else(|| missing::why(name, value)),
            });
        }
    }

    /// A study that is written for a lab and runs elsewhere is without its axes of settings of the lab and
    /// of its hosts: what the study may change of devices that it makes, only the user may of others.
    fn leave_the_lab(&self, definition: &mut Definition) -> Result<(), Failure> {
        let elsewhere = self.loopback || self.hosts.vm.is_some() || !self.hosts.hosts.is_empty();
        if definition.place != Place::Lab || !definition.hosts.is_empty() || !elsewhere {
            return Ok(());
        }
        let of_lab = &[settings::OF_LAB, settings::OF_HOSTS][..if self.tunables { 1 } else { 2 }];
        let kept_by_option = definition.axes_of(&[settings::OF_HOSTS]);
        for axis in definition.axes_of(of_lab) {
            definition.remove_axis(&axis).map_err(failure)?;
            if !self.axes.iter().any(|(name, _)| *name == axis) {
                let how = match kept_by_option.contains(&axis) {
                    true => "--tunables keeps it, --axis adds one",
                    false => "--axis adds one",
                };
                terminal::warn(format_args!(
                    "wirecost: without a lab, the study has no axis {axis}; {how}"
                ));
            }
        }
        for (axis, labels) in definition.drop_values_of(of_lab) {
            let values = labels.join(", ");
            terminal::warn(format_args!(
                "wirecost: without a lab, the study's axis {axis} is without {values}"
            ));
        }
        let links = definition.lab.take().is_some();
        let before = definition.set.len();
        definition.set.retain(|name, _| !name.starts_with(settings::OF_LAB));
        if links || definition.set.len() < before {
            terminal::warn(format_args!(
                "wirecost: without a lab, the study has no links of its own: the path is as it is"
            ));
        }
        Ok(())
    }
}

impl Loaded {
    /// Leaves out points whose load is a share of a link of unknown rate, if the study has others.
    fn leave_out_shares_of_unknown_links(&mut self) -> Result<(), Failure> {
        let find = |name: &str| super::beside(self, name);
        let mut unknown = Vec::new();
        for point in &self.matrix.points {
            if plan::lacks_its_link(point, self, &find)? {
                unknown.push(point.clone());
            }
        }
        if unknown.is_empty() || unknown.len() == self.matrix.points.len() {
            return Ok(());
        }
        for point in &unknown {
            let why = "its load is a share of the link, whose rate is unknown";
            self.definition.leave_out_point(point, why);
        }
        self.matrix = Matrix::of(&self.definition).map_err(failure)?;
        Ok(())
    }

    /// A study on these hosts, with profiles as the command line names them.
    pub(super) fn on(definition: Definition, hosts: &HostOptions) -> Result<Self, Failure> {
        Self::from(definition, PathBuf::new(), hosts)
    }

    /// A study, on other hosts if the command line names some.
    fn from(
        mut definition: Definition,
        beside: PathBuf,
        hosts: &HostOptions,
    ) -> Result<Self, Failure> {
        if hosts.lab.is_some() {
            replace_place(&mut definition, "--lab", Place::Lab)?;
        } else if let Some(name) = &hosts.vm {
            replace_place(&mut definition, "--vm", Place::Vm(name.clone()))?;
        } else if !hosts.hosts.is_empty() {
            definition.hosts = hosts.hosts.iter().map(HostArgument::parts).collect();
        }
        if !hosts.links.is_empty() {
            let of_study = definition.lab.as_ref().map(LinkOptions::from).unwrap_or_default();
            definition.lab = Some(hosts.links.clone().over(of_study).into());
        }
        let lab = hosts.lab.clone().filter(|name| !name.is_empty());
        Self::of(definition, beside, lab)
    }

    pub(super) fn of(
        definition: Definition,
        beside: PathBuf,
        lab: Option<String>,
    ) -> Result<Self, Failure> {
        let matrix = Matrix::of(&definition).map_err(failure)?;
        for point in &matrix.points {
            available::check(point).map_err(|failure| failure.at(point))?;
        }
        let hosts = hosts_of(&definition)?;
        let elsewhere = !hosts.is_empty();
        if elsewhere && matrix.points.iter().any(|point| point.get(PLACE).is_some()) {
            return Err(Failure::usage(
                "the study sets place at points, and its hosts have agents",
            )
            .help("remove hosts (or --host), or place"));
        }
        let links = definition.lab.as_ref().map(LinkOptions::from).unwrap_or_default();
        let mut hosts = HostOptions { lab: None, links, hosts, vm: None };
        if !elsewhere {
            let lab = lab.unwrap_or_default();
            (hosts.lab, hosts.vm) = settings::lab_or_vm(&definition.place, &lab);
        }
        let search = wirecost_study::search(&definition).map_err(failure)?;
        Ok(Self { definition, matrix, search, beside, hosts, sealed: false })
    }

    /// Texts of the profile files, by file name.
    pub(super) fn profiles(&self) -> Result<BTreeMap<String, String>, Failure> {
        let names = self.matrix.points.iter().filter_map(|point| point.get("profile"));
        let files: BTreeSet<&str> = names.filter(|name| !name.starts_with('@')).collect();
        let mut texts = BTreeMap::new();
        for name in files {
            let path = self.beside.join(name);
            let text = read_text(&path, PROFILE).map_err(|error| {
                Failure::usage(format!("cannot read the profile {}: {error}", path.display()))
            })?;
            if texts.insert(file_name(name), text).is_some() {
                let message = format!("two profiles of the study are named {}", file_name(name));
                return Err(Failure::usage(message).help("give them different names"));
            }
        }
        Ok(texts)
    }
}

/// The hosts that a study names.
///
/// # Errors
/// An address that is none.
pub(super) fn hosts_of(definition: &Definition) -> Result<Vec<HostArgument>, Failure> {
    let hosts = definition.hosts.iter().map(|(name, address)| {
        HostArgument::new(name, address)
            .map_err(|error| Failure::usage(format!("host {name}: {error}")))
    });
    hosts.collect()
}

/// Runs the whole study at another place.
fn replace_place(definition: &mut Definition, option: &str, place: Place) -> Result<(), Failure> {
    if definition.axes.contains_key(PLACE) {
        return Err(Failure::usage(format!("{option}: the study runs at several places"))
            .help(format!("choose one with --axis {PLACE}={place}")));
    }
    definition.place = place;
    Ok(())
}

/// File name of a profile in the study's directory.
pub(super) fn file_name(profile: &str) -> String {
    let name = Path::new(profile).file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

pub(super) fn failure(error: StudyError) -> Failure {
    let failure = Failure::usage(&error);
    match error.help() {
        Some(help) => failure.help(help),
        None => failure,
    }
}

/// A mistake in the text, with its position.
pub(super) fn draw(name: &str, text: &str, error: StudyError) -> Failure {
    let StudyError::Text { message, at: Some(at), .. } = &error else { return failure(error) };
    let line = text[..at.start.min(text.len())].lines().count().max(1);
    let file = diagnostics::File { name, text };
    let place = at.start..at.end.max(at.start + 1);
    let report = file.report(Severity::Error, message, error.help(), place);
    Failure::reports(format!("{name}:{line}: {message}"), vec![report])
}
