//! Settings of hosts: the process that restores them, and the command that does so after it.

use std::ffi::OsString;
use std::fmt::Write as _;

use clap::Args;
use wirecost_model::status::Status;
use wirecost_model::visible::visible;
use wirecost_tunable::{Outcome, TuneError, guardian, restore_left_behind};

use crate::Failure;
use crate::terminal;

/// Restore settings that killed runs left changed on this host.
///
/// A run restores what it changed (`--tune`) when it ends. If the run is killed, its guardian process does.
/// Use this command if both were killed. A setting that somebody else has changed since then is left as it
/// is.
#[derive(Debug, Args)]
pub(crate) struct Restore {}

impl Restore {
    #[expect(clippy::unused_self, reason = "as all commands")]
    pub(crate) fn run(self) -> Result<Status, Failure> {
        let left = restore_left_behind(None).map_err(|error| failure(&error))?;
        let mut out = String::new();
        let entries: Vec<_> = left.restored.iter().flat_map(|owner| &owner.entries).collect();
        if entries.is_empty() && left.problems.is_empty() {
            out.push_str("nothing to restore\n");
        }
        let mut status = Status::Ok;
        for entry in entries {
            let (name, place) = (visible(&entry.name), visible(&entry.place));
            let previous = visible(&entry.previous);
            let _ = match &entry.outcome {
                Outcome::Restored => writeln!(out, "{name} of {place}: {previous}"),
                Outcome::ChangedByOthers { current } => writeln!(
                    out,
                    "{name} of {place}: left as somebody else has set it, {} (was {previous})",
                    visible(current)
                ),
                Outcome::Gone { what } => {
                    writeln!(out, "{name} of {place}: {}", visible(what))
                }
                Outcome::Failed { why } => {
                    status = Status::Failed;
                    writeln!(out, "{name} of {place}: not restored to {previous}: {}", visible(why))
                }
            };
        }
        // One can be returned as the error; the others are told before it.
        let Some((last, others)) = left.problems.split_last() else {
            terminal::print(&out);
            return Ok(status);
        };
        for problem in others {
            let _ = writeln!(out, "{}", visible(&problem.to_string()));
            if let Some(remedy) = problem.remedy() {
                let _ = writeln!(out, "  {}", visible(&remedy));
            }
        }
        terminal::print(&out);
        Err(failure(last))
    }
}

fn failure(error: &TuneError) -> Failure {
    let failure = Failure::new(Status::Peer, error.to_string());
    match error.remedy() {
        Some(remedy) => failure.help(remedy),
        None => failure,
    }
}

/// Name of the command that is the guardian of another process.
pub(crate) const GUARDIAN: &str = "guardian";

/// Restores the settings of the process that has started this one, when that ends.
pub(crate) fn guard() -> Result<Status, Failure> {
    match guardian::run() {
        Ok(()) => Ok(Status::Ok),
        Err(error) => Err(Failure::new(Status::Peer, error.to_string())),
    }
}

/// What starts this program as a guardian.
pub(crate) fn guardian_program() -> Vec<OsString> {
    // Also where the file of this program has been replaced meanwhile.
    vec!["/proc/self/exe".into(), GUARDIAN.into()]
}
