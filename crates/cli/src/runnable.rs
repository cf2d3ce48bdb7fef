//! Whether a profile can be run, decided once for `check` and `run`: what its languages refuse, what
//! does not compile, and what agents refuse as too large.

use miette::Severity;
use wirecost_model::congestion::CongestionObject;
use wirecost_model::plan::limits::{ACTS, HOSTS, NAMED_CONNECTIONS};
use wirecost_model::plan::{EngineName, LimitError, Plan, at_most};
use wirecost_model::profile::{Flowop, Position, Profile};
use wirecost_model::program::Program;
use wirecost_model::status::Status;
use wirecost_program::calls::KnownOptions;
use wirecost_program::program::{self, ProgramError};

use wirecost_fleet::agent::{has_thread_for_each, status_of};
use wirecost_fleet::memory;
use wirecost_linux::facts;
use wirecost_load::files::Files;
use wirecost_load::load::check_host;
use wirecost_load::permissions::Permissions;

use crate::commands::run::{HostOptions, Place};
use crate::diagnostics::{self, File};
use crate::failure::Failure;
use crate::profile::{Loaded, describe};

/// Phases of all hosts together, most of which have nothing to do: each takes memory in programs.
const PHASES_OF_HOSTS: usize = 1 << 20;

/// A profile's programs, as far as there are any, and whether it can be run.
#[derive(Debug)]
pub(crate) struct Checked {
    /// The master's first.
    pub(crate) programs: Vec<Program>,
    pub(crate) refusal: Option<Failure>,
}

/// Everything that does not depend on the hosts of a run, with this engine.
pub(crate) fn check(loaded: &Loaded, engine: &EngineName) -> Checked {
    let of_language = refused_by_language(loaded);
    let compiled = match check_size(&loaded.profile) {
        Ok(()) => program::compile(&loaded.profile),
        Err(error) => Err(vec![error]),
    };
    match compiled {
        Ok(programs) => {
            let refusal = of_language.or_else(|| {
                let error = check_limits(&programs, engine).err()?;
                Some(refused(loaded, &[without_place(&error)]))
            });
            Checked { programs, refusal }
        }
        Err(errors) => {
            let refusal = of_language.unwrap_or_else(|| refused(loaded, &errors));
            Checked { programs: Vec::new(), refusal: Some(refusal) }
        }
    }
}

/// Why its language says that it cannot be run, if it does.
pub(crate) fn refused_by_language(loaded: &Loaded) -> Option<Failure> {
    let Loaded { name, source, refusals, .. } = loaded;
    (!refusals.is_empty()).then(|| describe(name, source, refusals))
}

/// What would take too much memory to compile.
fn check_size(profile: &Profile) -> Result<(), ProgramError> {
    let groups = || profile.groups.iter();
    let phases = groups().map(|group| group.transactions.len()).sum::<usize>();
    let flowops: Vec<&Flowop> =
        groups().flat_map(|group| &group.transactions).flat_map(|t| &t.flowops).collect();
    let weight = profile.groups.len() + phases + flowops.len();
    let sized = at_most("the number of phases, flowops and parts of their order", weight, ACTS);
    sized.map_err(|error| without_place(&error))?;
    let hosts = program::remote_hosts(profile).len() + 1;
    let sized = at_most("hosts", hosts, HOSTS).and_then(|()| {
        at_most("the number of phases of all hosts", phases.saturating_mul(hosts), PHASES_OF_HOSTS)
    });
    sized.map_err(|error| without_place(&error))?;
    let mut named = 0u64;
    for flowop in flowops {
        let conns = flowop.options.conn;
        named += (u64::from(conns.last) + 1).saturating_sub(conns.first.into());
        at_most("the number of connections that flowops name", named, NAMED_CONNECTIONS)
            .map_err(|error| ProgramError { at: flowop.at, message: error.to_string() })?;
    }
    Ok(())
}

/// What depends on the hosts: that each has a place, and that this machine can be those for which it is to
/// be, as `run` finds out before any traffic.
pub(crate) fn check_hosts(
    loaded: &Loaded,
    programs: &[Program],
    engine: &EngineName,
    hosts: &HostOptions,
    objects: &[CongestionObject],
) -> Result<(), Failure> {
    Place::check(&loaded.profile, hosts, &loaded.assigned)?;
    let plans: Vec<(usize, Plan)> = programs
        .iter()
        .enumerate()
        .filter(|(host, _)| hosts.is_here(*host))
        .map(|(host, program)| {
            let congestion_objects = objects.to_vec();
            (host, Plan { congestion_objects, ..plan(host, program, engine) })
        })
        .collect();
    let permissions =
        Permissions { files: Files::all(), writable: Files::all(), ..Permissions::default() };
    for (host, plan) in &plans {
        let memory = wirecost_fleet::agent::memory();
        let limits =
            plan.check(memory, has_thread_for_each(engine), &KnownOptions).map_err(Failure::usage);
        let name = name_of(*host);
        limits.and_then(|()| {
            check_host(plan, &permissions).map_err(|error| {
                Failure::new(status_of(&error), format!("{name} on this machine: {error}"))
                    .help(ELSEWHERE)
            })
        })?;
    }
    match facts::available_memory() {
        Some(available) => check_memory(&plans, available),
        None => Ok(()),
    }
}

/// Each host has enough alone; this is what they need together.
fn check_memory(plans: &[(usize, Plan)], available: u64) -> Result<(), Failure> {
    let named: Vec<(&str, &Plan)> =
        plans.iter().map(|(host, plan)| (name_of(*host), plan)).collect();
    memory::check(&named, available)
        .map_err(|error| Failure::new(Status::Peer, error).help(ELSEWHERE))
}

/// What to do where this machine cannot be all hosts.
const ELSEWHERE: &str =
    "to run a host on another machine, start an agent there and add --host NAME=ADDR";

fn name_of(host: usize) -> &'static str {
    if host == 0 { "master" } else { "peer" }
}

/// As an agent with any amount of memory checks each program.
fn check_limits(programs: &[Program], engine: &EngineName) -> Result<(), LimitError> {
    programs.iter().enumerate().try_for_each(|(host, program)| {
        plan(host, program, engine).check(u64::MAX, has_thread_for_each(engine), &KnownOptions)
    })
}

fn plan(host: usize, program: &Program, engine: &EngineName) -> Plan {
    Plan {
        token: String::new(),
        seed: 0,
        host: host as u32,
        engine: engine.clone(),
        workers: None,
        cpus: Vec::new(),
        shares_cpus: false,
        interval: wirecost_model::clock::SECOND,
        program: program.clone(),
        data_address: None,
        tcp_samples: 0,
        details: false,
        logged_operations: 0,
        receive_stamps: false,
        congestion_objects: Vec::new(),
    }
}

fn without_place(error: &LimitError) -> ProgramError {
    ProgramError { at: Position::default(), message: error.to_string() }
}

fn refused(loaded: &Loaded, errors: &[ProgramError]) -> Failure {
    let Loaded { name, source, .. } = loaded;
    let (shown, left) = diagnostics::first(errors);
    let mut messages = Vec::new();
    let mut reports = Vec::new();
    for ProgramError { at, message } in shown {
        messages.push(diagnostics::message_text(&match at.line {
            0 => format!("{name}: {message}"),
            _ => format!("{name}:{at}: {message}"),
        }));
        let file = File { name, text: source };
        reports.push(file.report(Severity::Error, message, None, file.line_from(*at)));
    }
    messages.extend(left.map(|left| left.to_string()));
    Failure::reports(messages.join("\n"), reports).and_more(left)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile;

    #[test]
    fn hosts_of_this_machine_must_have_memory_for_all_of_them() {
        let loaded = profile::load("@stream", &[], &mut |_| Some("127.0.0.1".to_owned())).unwrap();
        let engine = EngineName::default();
        let programs = check(&loaded, &engine).programs;
        let plans: Vec<(usize, Plan)> = programs
            .iter()
            .enumerate()
            .map(|(host, program)| (host, plan(host, program, &engine)))
            .collect();
        assert_eq!(plans.len(), 2);
        let each = memory::check(&[("peer", &plans[1].1)], 0).unwrap_err().needed;
        let refusal = check_memory(&plans, each).unwrap_err();
        assert_eq!(refusal.status, Status::Peer);
        assert!(refusal.message.starts_with("the hosts master, peer of one machine need"));
        check_memory(&plans, 1 << 40).unwrap();
    }
}
