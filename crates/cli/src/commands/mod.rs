//! The commands, one file each.

mod agent;
mod check;
mod compare;
mod doctor;
mod explain;
mod flame;
mod lab;
mod link_options;
mod list;
mod observe;
mod output;
mod predict;
mod replay;
mod report;
mod restore;
mod rss;
pub(crate) mod run;
mod study;
mod tune;
pub(crate) mod uperf;

use std::ffi::OsString;

use clap::Subcommand;
use wirecost_model::status::Status;

use crate::Failure;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(Box<run::Run>),
    Study(study::Study),
    Tune(Box<tune::Tune>),
    Compare(compare::Compare),
    Explain(explain::Explain),
    Predict(predict::Predict),
    Doctor(doctor::Doctor),
    Observe(observe::Observe),
    Report(report::Report),
    Replay(Box<replay::Replay>),
    Flame(flame::Flame),
    Check(check::Check),
    List(list::List),
    Agent(agent::Agent),
    Lab(lab::Lab),
    /// Emulates the links of a lab. Labs start it.
    #[command(name = lab::EMULATOR, hide = true)]
    LinkEmulator,
    Rss(rss::Rss),
    Restore(restore::Restore),
    /// Restores the settings of the process that starts it. Runs start it.
    #[command(name = restore::GUARDIAN, hide = true)]
    Guardian,
    Uperf(uperf::Uperf),
}

impl Command {
    pub(crate) fn run(self) -> Result<Status, Failure> {
        match self {
            Command::Run(command) => command.run(),
            Command::Study(command) => command.run(),
            Command::Tune(command) => command.run(),
            Command::Compare(command) => command.run(),
            Command::Explain(command) => command.run(),
            Command::Predict(command) => command.run(),
            Command::Doctor(command) => command.run(),
            Command::Observe(command) => command.run(),
            Command::Report(command) => command.run(),
            Command::Replay(command) => command.run(),
            Command::Flame(command) => command.run(),
            Command::Check(command) => command.run(),
            Command::List(command) => command.run(),
            Command::Agent(command) => command.run(),
            Command::Lab(command) => command.run(),
            Command::LinkEmulator => lab::emulate(),
            Command::Rss(command) => command.run(),
            Command::Restore(command) => command.run(),
            Command::Guardian => restore::guard(),
            Command::Uperf(command) => command.run(),
        }
    }
}

/// Writes the JSON that an invalid command line requests.
pub(crate) fn refuse(arguments: impl Iterator<Item = OsString>, message: &str) {
    let arguments: Vec<String> =
        arguments.map(|argument| argument.to_string_lossy().into_owned()).collect();
    let value = |option: &str| {
        arguments.iter().enumerate().find_map(|(place, argument)| {
            match argument.strip_prefix(option) {
                Some("") => arguments.get(place + 1).cloned(),
                Some(value) => value.strip_prefix('=').map(ToOwned::to_owned),
                None => None,
            }
        })
    };
    let Some(command) = arguments.get(1) else { return };
    let json = value("--json");
    let as_format = value("--format").is_some_and(|format| format == "json");
    let json_lines = arguments.iter().any(|argument| argument == "--json-lines");
    let repeats = arguments.iter().any(|argument| argument.split('=').next() == Some("--repeat"));
    let message = message.trim_end();
    let written = match (command.as_str(), json) {
        ("run", Some(target)) => run::refuse(&target, repeats, message),
        ("doctor", Some(target)) => doctor::refuse(&target, message),
        ("observe", Some(target)) => observe::refuse(&target, message),
        ("compare", _) if as_format => compare::refuse(message),
        ("explain" | "predict", _) if as_format => explain::refuse(message),
        ("tune" | "replay", _) if as_format => report::refuse(Status::Usage, message),
        ("study", _) if json_lines => study::refuse(message),
        ("report", _) if as_format => report::refuse(Status::Usage, message),
        _ => return,
    };
    if let Err(failure) = written {
        failure.print();
    }
}

/// A rate on the command line.
fn parse_rate(text: &str) -> Result<u64, String> {
    wirecost_model::units::parse_bit_rate(text).ok_or_else(|| {
        "must be a number with k, m or g, or with bit, kbit, mbit or gbit, such as 1gbit".to_owned()
    })
}

/// A duration on the command line: `10s`, `500ms`, `2m` (two minutes). A bare number is seconds.
fn parse_time(text: &str) -> Result<std::time::Duration, String> {
    if let Ok(seconds) = text.parse::<f64>() {
        return std::time::Duration::try_from_secs_f64(seconds).map_err(|e| e.to_string());
    }
    humantime::parse_duration(text)
        .map_err(|_| "must be a time: a number with ms, s, m or h, such as 10s".to_owned())
}

fn parse_time_not_zero(text: &str) -> Result<std::time::Duration, String> {
    let time = parse_time(text)?;
    if time.is_zero() { Err("must be greater than zero".to_owned()) } else { Ok(time) }
}
