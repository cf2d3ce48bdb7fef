//! The commands, a file each.

mod agent;
mod check;
mod lab;
mod list;
mod observe;
pub(crate) mod run;

use clap::Subcommand;
use wirecost_model::status::Status;

use crate::Failure;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(Box<run::Run>),
    Observe(observe::Observe),
    Check(check::Check),
    List(list::List),
    Agent(agent::Agent),
    Lab(lab::Lab),
}

impl Command {
    pub(crate) fn run(self) -> Result<Status, Failure> {
        match self {
            Command::Run(command) => command.run(),
            Command::Observe(command) => command.run(),
            Command::Check(command) => command.run(),
            Command::List(command) => command.run(),
            Command::Agent(command) => command.run(),
            Command::Lab(command) => command.run(),
        }
    }
}

/// A length of time on the command line: `10s`, `500ms`, `2m` is two minutes; a bare number is
/// seconds.
fn parse_time(text: &str) -> Result<std::time::Duration, String> {
    if let Ok(seconds) = text.parse::<f64>() {
        return std::time::Duration::try_from_secs_f64(seconds).map_err(|e| e.to_string());
    }
    humantime::parse_duration(text).map_err(|error| error.to_string())
}

fn parse_time_not_zero(text: &str) -> Result<std::time::Duration, String> {
    let time = parse_time(text)?;
    if time.is_zero() { Err("it must be longer than nothing".to_owned()) } else { Ok(time) }
}
