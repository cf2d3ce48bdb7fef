//! What a point sets, as the command line of a run: each setting has its meaning in one place.

use clap::Parser;
use wirecost_model::study::{LOAD, OfferedLoad, Point, Value};
use wirecost_study::{Definition, PLACE, Place};

use crate::Failure;
use crate::commands::link_options::LinkOptions;
use crate::commands::run::{ALLOW_CONTROL_DEVICE, HostOptions, RunOptions, options};
use crate::input::STANDARD_INPUT;
use crate::profile;

/// The arguments of `wirecost run` that define how to run.
#[derive(Debug, Parser)]
#[command(no_binary_name = true)]
struct Line {
    #[command(flatten)]
    options: RunOptions,
}

/// Settings that are arguments of `wirecost run` and take a value.
const ARGUMENTS: [&str; 7] =
    ["engine", "duration", "ramp", "workers", "peers", "observe", "tune-device"];
/// Before the name of an option of `wirecost run`, where the profile has a variable of that name.
const OF_RUN: &str = "run.";
/// Before the name of a variable, where `wirecost run` has an argument of that name.
const OF_PROFILE: &str = "var.";
/// Before the name of a key of the lab's links.
pub(super) const OF_LAB: &str = "lab.";
/// Before the name of a tunable.
pub(super) const OF_HOSTS: &str = "tune.";
/// Options of flowops are words of this variable of a profile.
const WORDS: &str = "options";

fn is_of_run(name: &str) -> bool {
    ARGUMENTS.contains(&name) || options::find(name).is_some()
}

/// The settings of a point at which `wirecost run` is called with these options.
///
/// # Errors
/// The profile is none.
pub(crate) fn of_run(options: &RunOptions) -> Result<Vec<Value>, Failure> {
    let variables = profile::variables(&options.profile)?;
    let is_variable = |name: &str| variables.iter().any(|variable| variable == name);
    let of_options = options.given_options().into_iter().map(|Value { name, value }| {
        let plain = ARGUMENTS.contains(&name.as_str()) || !is_variable(&name);
        Value { name: if plain { name } else { format!("{OF_RUN}{name}") }, value }
    });
    let of_variables = options.variables().iter().map(|(name, value)| {
        let taken = name == "profile" || ARGUMENTS.contains(&name.as_str());
        let name = if taken { format!("{OF_PROFILE}{name}") } else { name.clone() };
        Value { name, value: value.clone() }
    });
    Ok(std::iter::once(Value::new("profile", &options.profile))
        .chain(of_options)
        .chain(of_variables)
        .collect())
}

/// Reads the arguments of a run that a person wrote as one text, such as `@stream --engine io_uring`.
///
/// # Errors
/// What is wrong with them.
pub(super) fn parse(text: &str) -> Result<RunOptions, String> {
    let words = shlex::split(text).ok_or("a quotation mark is not closed")?;
    Line::try_parse_from(words).map(|line| line.options).map_err(|error| first_line(&error))
}

fn first_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let first = text.lines().next().unwrap_or_default();
    first.strip_prefix("error: ").unwrap_or(first).to_owned()
}

/// How a point is run. `find` locates a profile.
pub(super) fn run_options(
    point: &Point,
    seed: u64,
    find: &dyn Fn(&str) -> String,
) -> Result<RunOptions, Failure> {
    let profile = point.get("profile").unwrap_or_default();
    if profile == STANDARD_INPUT {
        return Err(Failure::usage("the study sets profile = \"-\": standard input is not kept")
            .help("save the profile to a file, which the study keeps with its records"));
    }
    let path = find(profile);
    let mut line = vec![format!("--seed={seed}")];
    line.extend(arguments(point, &path)?);
    line.push("--".to_owned());
    line.push(path);
    Line::try_parse_from(line)
        .map(|line| line.options)
        .map_err(|error| Failure::usage(format!("at {point}: {}", first_line(&error))))
}

/// The options of `wirecost run` that make a point, without its profile, which is at this path, and its seed.
///
/// # Errors
/// A setting that the profile does not have.
pub(crate) fn arguments(point: &Point, path: &str) -> Result<Vec<String>, Failure> {
    let profile = point.get("profile").unwrap_or_default();
    let variables = profile::variables(path)?;
    let mut arguments = Vec::new();
    let mut words = Vec::new();
    for setting in &point.settings {
        let (name, value) = (setting.name.as_str(), setting.value.as_str());
        let of_run = name.strip_prefix(OF_RUN).filter(|name| is_of_run(name));
        let is_variable = of_run.is_none() && variables.iter().any(|variable| variable == name);
        let name = of_run.unwrap_or(name);
        // A share is a rate once the point that it is a share of was measured.
        let is_share = name == LOAD && matches!(point.load(), OfferedLoad::Share(_));
        if name == "profile" || name == PLACE || is_share || name.starts_with(OF_LAB) {
            continue;
        } else if let Some(tunable) = name.strip_prefix(OF_HOSTS) {
            arguments.push(format!("--tune={tunable}={value}"));
        } else if let Some(variable) = name.strip_prefix(OF_PROFILE) {
            arguments.push(format!("--var={variable}={value}"));
        } else if name == ALLOW_CONTROL_DEVICE {
            match value {
                "true" => arguments.push(format!("--{name}")),
                "false" => {}
                _ => return Err(wrong(name, value, "must be true or false")),
            }
        } else if name == WORDS {
            words.push(value.to_owned());
        } else if let Some(option) = name.strip_prefix("option.") {
            words.extend(option_word(option, value));
        } else if ARGUMENTS.contains(&name) {
            arguments.push(format!("--{name}={value}"));
        } else if let Some(option) = options::find(name).filter(|_| !is_variable) {
            match (option.value_name(), value) {
                (Some(_), _) => arguments.push(format!("--{}={value}", option.long())),
                (None, "true") => arguments.push(format!("--{}", option.long())),
                (None, "false") => {}
                (None, _) => return Err(wrong(name, value, "must be true or false")),
            }
        } else if is_variable {
            arguments.push(format!("--var={name}={value}"));
        } else {
            let message = format!("{profile} has no variable {name}");
            let failure = Failure::usage(format!("the study sets {name}: {message}"));
            let known = variables.iter().map(String::as_str);
            let known =
                known.chain(ARGUMENTS).chain(options::ALL.iter().map(|option| option.name()));
            let known = known.chain(["profile", PLACE]);
            return Err(match profile::nearest(name, known) {
                Some(near) => failure.help(format!("did you mean {near}?")),
                None => failure.help(format!("it has {}", variables.join(", "))),
            });
        }
    }
    if !words.is_empty() {
        if !variables.iter().any(|variable| variable == WORDS) {
            return Err(Failure::usage(format!("{profile} has no variable {WORDS}")).help(
                "add $options to the options of its flowops; each flowop uses those that apply",
            ));
        }
        arguments.push(format!("--var={WORDS}={}", words.join(" ")));
    }
    Ok(arguments)
}

/// The lab and the virtual machine of a place; `lab` names one that exists, or is empty.
pub(super) fn lab_or_vm(place: &Place, lab: &str) -> (Option<String>, Option<String>) {
    match place {
        Place::Loopback => (None, None),
        Place::Lab => (Some(lab.to_owned()), None),
        Place::LabDirect => (Some(String::new()), None),
        Place::Vm(name) => (None, Some(name.clone())),
    }
}

/// Where a point is run: its place and the links of the lab may be among what it sets.
pub(super) fn hosts(
    point: &Point,
    study: &Definition,
    of_study: &HostOptions,
) -> Result<HostOptions, Failure> {
    let mut hosts = of_study.clone();
    let mut place = study.place.clone();
    if let Some(text) = point.get(PLACE) {
        place = text.parse().map_err(|message: String| wrong(PLACE, text, &message))?;
        let lab = of_study.lab.clone().unwrap_or_default();
        (hosts.lab, hosts.vm) = lab_or_vm(&place, &lab);
        // The table `lab` of a study with several places is of its points in the lab.
        if place != Place::Lab {
            hosts.links = LinkOptions::default();
        }
    }
    for setting in &point.settings {
        let Some(key) = setting.name.strip_prefix(OF_LAB) else { continue };
        match key.strip_prefix("back.") {
            Some(key) => hosts.links.set_back(key, &setting.value),
            None => hosts.links.set(key, &setting.value),
        }
    }
    let has_links = hosts.hosts.is_empty() && place == Place::Lab;
    if let Some(key) = hosts.links.first().filter(|_| !has_links) {
        let message = format!("the study sets lab.{key} but does not run in a lab with links");
        return Err(match point.get(PLACE) {
            None => {
                Failure::usage(message).help(format!("set place = \"lab\", or remove lab.{key}"))
            }
            Some(_) => Failure::usage(message)
                .at(point)
                .help(format!("leave out such points with [[skip]], or remove lab.{key}")),
        });
    }
    hosts.links.links().map_err(|failure| failure.at(point))?;
    Ok(hosts)
}

/// `NAME=VALUE`; for a flag, `NAME` or nothing.
fn option_word(name: &str, value: &str) -> Option<String> {
    match value {
        "false" => None,
        "true" => Some(name.to_owned()),
        _ => Some(format!("{name}={value}")),
    }
}

fn wrong(name: &str, value: &str, message: &str) -> Failure {
    Failure::usage(format!("the study sets {name} = {value:?}: {message}"))
}
