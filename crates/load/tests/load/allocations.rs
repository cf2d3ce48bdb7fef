//! In the steady window no worker allocates memory: an allocation costs as much as a small send,
//! and would be counted as cost of the protocol.
//!
//! Exempt, and counted instead, is what opens and closes connections.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use wirecost_linux::allocations::{self, CountingAllocator};
use wirecost_linux::clock::Monotonic;
use wirecost_linux::privilege::skip;
use wirecost_load::engines;
use wirecost_load::files::Files;
use wirecost_load::load::{Load, LoadEvent, Schedule};
use wirecost_load::permissions::Permissions;
use wirecost_load::preparation::Preparation;
use wirecost_model::clock::{Clock, MILLISECOND, Nanos, SECOND};
use wirecost_model::plan::limits::LOGGED_OPERATIONS;
use wirecost_model::plan::{Endpoints, Plan};
use wirecost_model::profile::{Profile, Until};
use wirecost_model::warning::Warning;
use wirecost_profile::builtins::{self, Builtin};
use wirecost_profile::language::Language;
use wirecost_program::program;

use crate::attempts::undisturbed_machine;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Operations of each host before the window that is looked at, and in it.
const BEFORE: u64 = 1_000;
const WITHIN: u64 = 1_000;
/// Long enough that no phase ends by itself.
const HOUR: Nanos = 3_600 * SECOND;
/// Allocations for each operation of a profile that opens connections, at most.
const PER_OPENING: u64 = 64;

/// As many strands as there are quick ones; of those that think there are more.
fn variables(builtin: &Builtin, name: &str) -> Option<String> {
    let variable = builtin.variables.iter().find(|variable| variable.name == name)?;
    let quick = |text: &str| match name {
        "connections" => "20".to_owned(),
        _ if name.contains("think") => "100us".to_owned(),
        _ => text.to_owned(),
    };
    Some(match variable.default {
        builtins::Default::Text(text) => quick(text),
        builtins::Default::Host => "127.0.0.1".to_owned(),
        builtins::Default::Executable => {
            concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml").to_owned()
        }
    })
}

fn profile(builtin: &Builtin) -> Profile {
    let variables = |name: &str| variables(builtin, name);
    let language = Language::of("", builtin.source);
    language.parse(builtin.source, &variables).unwrap().profile
}

/// The hosts of a run, all in this process.
struct Hosts {
    loads: Vec<Load>,
    news: Receiver<()>,
    /// Operations of each in the phase under way.
    operations: Vec<u64>,
}

impl Hosts {
    fn new(profile: &Profile, engine: &str, run: &str) -> Result<Self, String> {
        let programs = program::compile(profile).map_err(|errors| format!("{errors:?}"))?;
        let (tell, news) = channel();
        let mut hosts = Self { loads: Vec::new(), news, operations: Vec::new() };
        let mut endpoints = Endpoints::default();
        for (number, program) in programs.into_iter().enumerate() {
            let plan = Plan {
                token: format!("allocations {run}"),
                seed: 1,
                host: number as u32,
                engine: engines::find(engine).unwrap().name().into(),
                workers: Some(1),
                cpus: Vec::new(),
                shares_cpus: false,
                interval: 10 * MILLISECOND,
                program,
                data_address: Some("127.0.0.1".parse().unwrap()),
                tcp_samples: 4,
                details: true,
                logged_operations: LOGGED_OPERATIONS,
                receive_stamps: false,
                congestion_objects: Vec::new(),
            };
            let tell = std::sync::Mutex::new(tell.clone());
            let notify = Arc::new(move || {
                let _ = tell.lock().unwrap().send(());
            });
            let permissions = Permissions {
                files: Files::all(),
                writable: Files::all(),
                ..Permissions::default()
            };
            let (load, prepared) =
                Load::prepare(plan, &permissions, notify, &Preparation::default())
                    .map_err(|e| e.to_string())?;
            // Kernel threads that poll beside the worker are slow, but allocate nothing of ours.
            let matters = |warning: &&Warning| !matches!(warning, Warning::PollersShareCpus(_));
            if let Some(warning) = load.warnings().iter().find(matters) {
                return Err(format!("{warning:?}"));
            }
            hosts.loads.push(load);
            endpoints.hosts.push(prepared);
        }
        for load in &mut hosts.loads {
            load.connect(endpoints.clone()).map_err(|error| error.to_string())?;
        }
        hosts.operations = vec![0; hosts.loads.len()];
        Ok(hosts)
    }

    fn start(&mut self, phase: u32, window: bool) {
        let start = Monotonic.now() + 20 * MILLISECOND;
        let window = window.then_some((start + 20 * MILLISECOND, start + HOUR));
        for load in &mut self.loads {
            load.start(Schedule { phase, start, window, unobserved: Vec::new() });
        }
        self.operations.fill(0);
    }

    /// Waits for the next news, and hands on what it is.
    fn next(&mut self) -> Vec<(usize, LoadEvent)> {
        self.news.recv().unwrap();
        let mut events = Vec::new();
        for (host, load) in self.loads.iter_mut().enumerate() {
            while let Some(event) = load.event() {
                match event {
                    LoadEvent::Snapshot(snapshot) => {
                        let flowops = &snapshot.counters.flowops;
                        self.operations[host] = flowops.iter().map(|flowop| flowop.done).sum();
                    }
                    LoadEvent::Failed(error) => panic!("{error}"),
                    other => events.push((host, other)),
                }
            }
        }
        events
    }

    /// Runs a phase of iterations to its end.
    fn complete(&mut self, phase: u32) {
        self.start(phase, false);
        let (mut held, mut ended) = (0, 0);
        let mut limits: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        while ended < self.loads.len() {
            for (_, event) in self.next() {
                match event {
                    LoadEvent::Quiesced(started) => {
                        held += 1;
                        for (group, counts) in started {
                            let limit = limits.entry(group).or_default();
                            limit.resize(limit.len().max(counts.len()), 0);
                            limit.iter_mut().zip(counts).for_each(|(l, n)| *l = n.max(*l));
                        }
                        if held == self.loads.len() {
                            self.loads.iter().for_each(|load| load.finish(limits.clone()));
                        }
                    }
                    LoadEvent::Ended(_) => ended += 1,
                    _ => {}
                }
            }
        }
    }

    /// Waits until each host has done so many operations in this phase.
    fn wait_for(&mut self, operations: &[u64]) {
        while self.operations.iter().zip(operations).any(|(done, wanted)| done < wanted) {
            assert!(self.next().is_empty(), "the phase has ended");
        }
    }

    /// Waits until each worker has prepared the phase that has been started. It allocates for that,
    /// and of threads that compete for a CPU some prepare late.
    fn wait_for_all(&mut self) {
        let mut late = workers();
        loop {
            late.retain(|&worker| !has_prepared(worker));
            if late.is_empty() {
                return;
            }
            assert!(self.next().is_empty(), "the phase has ended");
        }
    }
}

/// Whether a worker has prepared the phase that was started before: it has slept since, or has run for
/// far longer than that takes. One that the order has not reached yet has been woken, and is running.
fn has_prepared(worker: i32) -> bool {
    let directory = format!("/proc/self/task/{worker}");
    let stat = std::fs::read_to_string(format!("{directory}/stat")).unwrap();
    let state = stat.rsplit_once(") ").unwrap().1;
    let ran = std::fs::read_to_string(format!("{directory}/schedstat")).unwrap();
    let ran: u64 = ran.split(' ').next().unwrap().parse().unwrap();
    state.starts_with('S') || ran > 100 * MILLISECOND
}

/// The threads of all workers of this process.
fn workers() -> Vec<i32> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let is_worker = |name: &str| {
        let number = name.trim().strip_prefix("wirecost-");
        number.is_some_and(|number| number.parse::<u32>().is_ok())
    };
    tasks
        .filter_map(|task| {
            let task = task.unwrap();
            let name = std::fs::read_to_string(task.path().join("comm")).ok()?;
            is_worker(&name).then(|| task.file_name().to_str()?.parse().ok())?
        })
        .collect()
}

fn opens_in(profile: &Profile, phase: usize) -> bool {
    let transactions = profile.groups.iter().filter_map(|group| group.transactions.get(phase));
    let mut flowops = transactions.flat_map(|transaction| &transaction.flowops);
    flowops.any(|flowop| ["connect", "accept", "disconnect"].contains(&flowop.kind.as_str()))
}

/// Allocations of the workers in the steady window of the first phase with a duration, and their
/// operations; none where there is no such phase.
fn measure(builtin: &Builtin, engine: &str) -> Result<Option<(u64, u64, bool)>, String> {
    let profile = profile(builtin);
    let run = format!("{} {engine}", builtin.name);
    let mut hosts = Hosts::new(&profile, engine, &run)?;
    let phases = profile.groups.iter().map(|group| group.transactions.len()).max().unwrap_or(0);
    for phase in 0..phases {
        let mut of_phase = profile.groups.iter().filter_map(|g| g.transactions.get(phase));
        if !of_phase.any(|transaction| matches!(transaction.until, Until::Duration(_))) {
            hosts.complete(phase as u32);
            continue;
        }
        let opens = opens_in(&profile, phase);
        hosts.start(phase as u32, true);
        hosts.wait_for_all();
        hosts.wait_for(&vec![BEFORE; hosts.loads.len()]);
        let workers = workers();
        let count = || workers.iter().map(|&worker| allocations::of_thread(worker)).sum::<u64>();
        workers.iter().for_each(|&worker| allocations::watch(worker, !opens));
        let (before, operations) = (count(), hosts.operations.clone());
        let wanted: Vec<u64> = operations.iter().map(|done| done + WITHIN).collect();
        hosts.wait_for(&wanted);
        let allocations = count() - before;
        workers.iter().for_each(|&worker| allocations::watch(worker, false));
        let done: u64 = hosts.operations.iter().sum::<u64>() - operations.iter().sum::<u64>();
        return Ok(Some((allocations, done, opens)));
    }
    Ok(None)
}

/// What is wrong with what was measured. `None` where it could not be measured.
fn fault(builtin: &Builtin, engine: &str) -> Option<Result<(), String>> {
    let name = format!("@{} on {engine}", builtin.name);
    let (allocations, operations, opens) = match measure(builtin, engine) {
        Ok(measured) => measured?,
        Err(reason) => {
            skip(&name, &reason);
            return None;
        }
    };
    let traces = allocations::take_backtraces();
    Some(if opens {
        println!("{name}: {allocations} allocations in {operations} operations");
        match allocations > operations * PER_OPENING {
            true => Err(format!("{name}: {allocations} in {operations} operations")),
            false => Ok(()),
        }
    } else if allocations > 0 {
        let first = traces.first().cloned().unwrap_or_default();
        Err(format!("{name}: {allocations} allocations, the first one at\n{first}"))
    } else {
        Ok(())
    })
}

/// One after the other: workers are found by the names of their threads. Returns how many were measured.
fn is_measured_without_faults(wanted: impl Fn(&str, &Builtin) -> bool) -> usize {
    let measured = Cell::new(0);
    for engine in engines::ALL.iter().filter(|engine| engine.is_general()) {
        for builtin in builtins::ALL.iter().filter(|builtin| wanted(engine.name(), builtin)) {
            // A worker that others keep from a CPU finds more received than the buffers of its ring hold,
            // and copies that.
            undisturbed_machine(|| match fault(builtin, engine.name()) {
                Some(Ok(())) => measured.set(measured.get() + 1),
                Some(Err(fault)) => panic!("{fault}"),
                None => {}
            });
        }
    }
    println!("{} were measured", measured.get());
    measured.get()
}

mod alone {
    use super::*;

    /// Each profile on epoll, and on all engines those that differ in what they ask of an engine.
    #[test]
    fn no_worker_allocates_in_the_steady_window() {
        const ON_EVERY_ENGINE: [&str; 5] = ["stream", "rr", "crr", "sendfile", "udp-rr"];
        let measured = is_measured_without_faults(|engine, builtin| {
            engine == "epoll" || ON_EVERY_ENGINE.contains(&builtin.name)
        });
        assert!(measured > builtins::ALL.len(), "only {measured} were measured");
    }
}

mod long {
    use super::*;

    #[test]
    fn no_worker_allocates_in_the_steady_window_of_any_engine() {
        assert!(is_measured_without_faults(|_, _| true) > builtins::ALL.len());
    }
}
