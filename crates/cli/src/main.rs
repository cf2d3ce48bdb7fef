//! The program `wirecost`: parses, calls a command, exits.

mod commands;
mod diagnostics;
mod failure;
mod input;
mod profile;
mod records;
mod runnable;
mod terminal;

use std::process::ExitCode;

use clap::Parser;

use commands::Command;
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
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let _ = error.print();
            let code = u8::try_from(error.exit_code()).unwrap_or(2);
            if error.use_stderr() {
                // A request for JSON gets JSON, even if the command line cannot be parsed.
                commands::refuse(std::env::args_os(), &error.to_string());
            }
            return ExitCode::from(code);
        }
    };
    match arguments.command.run() {
        Ok(status) => ExitCode::from(status.exit_code()),
        Err(failure) => {
            failure.print();
            ExitCode::from(failure.status.exit_code())
        }
    }
}
