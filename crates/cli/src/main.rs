//! The program `wirecost`: parses, calls a command, exits.

mod commands;
mod diagnostics;
mod failure;
mod input;
mod profile;
mod records;
mod runnable;
mod terminal;

use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;

use wirecost_model::status::Status;

use commands::Command;
use commands::uperf::{self, Uperf};
use failure::Failure;

/// What every byte on the wire costs the CPU.
///
/// Runs a traffic profile (uperf's language) between hosts, measures both ends and reports the cost.
/// Start with `wirecost run @stream` (loopback), or `wirecost run @stream --lab` for two hosts in
/// network namespaces. `wirecost doctor` lists problems that can invalidate a result.
#[derive(Debug, Parser)]
#[command(name = "wirecost", version, max_term_width = 100, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

fn main() -> ExitCode {
    let mut words = std::env::args_os();
    let name = words.next().unwrap_or_default();
    let parsed = match Path::new(&name).file_name() {
        Some(name) if name == uperf::NAME => Ok(Command::Uperf(Uperf::new(words))),
        _ => Arguments::try_parse().map(|arguments| arguments.command),
    };
    let status = match parsed {
        Ok(command) => match command.run() {
            Ok(status) => status,
            Err(failure) => {
                failure.print();
                return ExitCode::from(failure.status.exit_code());
            }
        },
        Err(error) if error.use_stderr() => {
            let _ = error.print();
            // A request for JSON gets JSON, even if the command line cannot be parsed.
            commands::refuse(std::env::args_os(), &error.to_string());
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
        Err(help) => {
            let style = help.render();
            let text = match std::io::stdout().is_terminal() {
                true => style.ansi().to_string(),
                false => style.to_string(),
            };
            let _ = terminal::stdout().write_all(text.as_bytes());
            Status::Ok
        }
    };
    match terminal::finish_output() {
        Ok(()) => ExitCode::from(status.exit_code()),
        Err(error) => {
            terminal::warn(format_args!("wirecost: cannot write to the standard output: {error}"));
            let code = if status == Status::Ok { Status::Failed } else { status };
            ExitCode::from(code.exit_code())
        }
    }
}
