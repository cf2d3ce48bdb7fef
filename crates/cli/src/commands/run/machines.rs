//! The machines that a run or a study measures on, claimed for as long as it does.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use wirecost_fleet::machine::{self, Claim, ClaimError, ClaimWaiter, ConflictPolicy};
use wirecost_fleet::remote_claim::{RemoteClaim, RemoteClaimError};
use wirecost_fleet::runtime_dir::RuntimeDirError;
use wirecost_fleet::wire::ClaimRequest;
use wirecost_lab::Lab;
use wirecost_linux::{facts, thread};
use wirecost_model::holder::{Holder, RunIdentity};
use wirecost_model::status::Status;
use wirecost_model::warning::Warning;

use super::hosts::HostOptions;
use crate::Failure;
use crate::commands::parse_time;
use crate::terminal;

/// What to do where another run measures on the same CPUs.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct ConflictOptions {
    /// Wait up to this long for other measuring runs on the same CPUs to end [default: exit with 3
    /// at once, and name the other runs].
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    wait: Option<Duration>,

    /// Run beside other measuring runs on the same CPUs; the results of all of them have the
    /// warning `shared-machine`.
    #[arg(long, conflicts_with = "wait")]
    share: bool,
}

impl ConflictOptions {
    /// Run beside others.
    pub(crate) fn share() -> Self {
        Self { wait: None, share: true }
    }
}

/// What the session of an agent does beside generating load, for which it keeps privileges.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Uses {
    pub(super) observes: bool,
    pub(super) tunes: bool,
    pub(super) loads_congestion_control: bool,
}

/// The claims of one run or study. Dropping it releases them.
#[derive(Debug)]
pub(crate) struct Machines {
    run: RunIdentity,
    conflict: ConflictOptions,
    here: Option<Claim>,
    /// Of machines that have agents.
    _holds: Vec<RemoteClaim>,
}

impl Machines {
    /// Claims the machines of all hosts: this one first, then those of agents.
    pub(crate) fn of(
        host_options: &HostOptions,
        conflict: ConflictOptions,
        stop: &AtomicBool,
        quiet: bool,
    ) -> Result<Self, Failure> {
        let mut waiting = User { stop, quiet };
        let here = host_options.uses_this_machine().then(|| cpus(host_options)).transpose()?;
        let mut machines = Self::here(conflict, here.as_deref(), &mut waiting)?;
        let mut hosts: Vec<(String, String)> =
            host_options.hosts.iter().map(|host| host.agent()).collect();
        // All runs claim in the same order, so that two do not wait for each other.
        hosts.sort_by(|a, b| a.1.cmp(&b.1));
        let request = machines.request(Uses::default());
        for (name, address) in hosts {
            let hold = RemoteClaim::take(&name, &address, &request, &waiting).map_err(not_held)?;
            machines._holds.push(hold);
        }
        Ok(machines)
    }

    /// Claims these CPUs of this machine, all where there are none, to observe them.
    pub(crate) fn to_observe(
        cpus: &[u32],
        conflict: ConflictOptions,
        stop: &AtomicBool,
    ) -> Result<Self, Failure> {
        Self::here(conflict, Some(cpus), &mut User { stop, quiet: false })
    }

    fn here(
        conflict: ConflictOptions,
        cpus: Option<&[u32]>,
        waiting: &mut dyn ClaimWaiter,
    ) -> Result<Self, Failure> {
        let run = machine::this_run(command_line())
            .map_err(|error| Failure::new(Status::Failed, error))?;
        let rule =
            ConflictPolicy { wait: conflict.wait.unwrap_or_default(), share: conflict.share };
        let here = match cpus {
            Some(cpus) => Some(Claim::take(&run, cpus, rule, waiting).map_err(not_claimed)?),
            None => None,
        };
        Ok(Self { run, conflict, here, _holds: Vec::new() })
    }

    /// What the session of an agent is asked for.
    pub(super) fn request(&self, uses: Uses) -> ClaimRequest {
        let ConflictOptions { wait, share } = self.conflict;
        let (run, wait) = (self.run.clone(), wait.unwrap_or_default());
        let Uses { observes, tunes, loads_congestion_control } = uses;
        ClaimRequest { run, wait, share, observes, tunes, loads_congestion_control }
    }

    /// That other runs have used CPUs of this machine since then. Agents tell for theirs.
    pub(crate) fn shared_since(&self, instant: Instant) -> Option<Warning> {
        machine::shared(&facts::hostname(), &self.here.as_ref()?.others_since(instant))
    }
}

/// CPUs that hosts on this machine may use.
fn cpus(host_options: &HostOptions) -> Result<Vec<u32>, Failure> {
    let mut cpus = thread::allowed_cpus().map_err(|error| Failure::new(Status::Failed, error))?;
    // A lab that was made before has those of whoever made it. Where there is none, its place says
    // so.
    let lab = host_options.lab.as_deref().filter(|name| !name.is_empty()).map(Lab::open);
    if let Some(Ok(lab)) = lab {
        let of_hosts = lab.hosts().iter().flat_map(|host| [&host.cpus, &host.receive_cpus]);
        cpus.extend(of_hosts.flatten());
    }
    cpus.sort_unstable();
    cpus.dedup();
    Ok(cpus)
}

/// As it was typed.
fn command_line() -> String {
    let arguments = std::env::args_os().skip(1);
    let words = arguments.map(|argument| argument.to_string_lossy().into_owned());
    std::iter::once("wirecost".to_owned()).chain(words).collect::<Vec<_>>().join(" ")
}

struct User<'a> {
    stop: &'a AtomicBool,
    quiet: bool,
}

impl ClaimWaiter for User<'_> {
    fn is_cancelled(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn on_conflict(&mut self, holders: &[Holder]) {
        if !self.quiet {
            let held = machine::list(holders);
            terminal::warn(format_args!("wirecost: waiting for another run: {held}"));
        }
    }
}

const WHAT_TO_DO: &str = "wait for it (--wait TIME), measure beside it (--share: the results of both say \
                          so), or give each run CPUs of its own (taskset -c LIST wirecost ...)";

fn not_claimed(error: ClaimError) -> Failure {
    let status = match &error {
        ClaimError::Interrupted => Status::Interrupted,
        _ => Status::Peer,
    };
    let failure = Failure::new(status, &error);
    match error {
        ClaimError::Busy { .. } => failure.help(WHAT_TO_DO),
        ClaimError::Directory(_) => failure.help(RuntimeDirError::remedy()),
        _ => failure,
    }
}

fn not_held(error: RemoteClaimError) -> Failure {
    match &error {
        RemoteClaimError::Busy { .. } => Failure::new(Status::Peer, error).help(WHAT_TO_DO),
        RemoteClaimError::Interrupted => Failure::new(Status::Interrupted, error),
        RemoteClaimError::Refused { status, .. } => Failure::new(*status, error),
        RemoteClaimError::Host(_) | RemoteClaimError::Silent { .. } => {
            Failure::new(Status::Peer, error)
        }
    }
}
