//! The engine that has a thread for each strand, with more of them than there are CPUs for.

use std::sync::atomic::AtomicBool;

use wirecost_fleet::controller;
use wirecost_fleet::host::AgentHost;
use wirecost_model::measure::Edge;
use wirecost_model::outcome::{HostOutcome, Outcome};
use wirecost_model::plan::EngineName;
use wirecost_model::status::Status;

use crate::attempts::undisturbed;
use crate::engines;
use crate::honesty::{agent_command, member, profile, settings};
use crate::program::Program;

fn run(engine: EngineName, strands: u32) -> Outcome {
    let name = format!("threads-{engine}-{strands}");
    let settings = settings(engine, &name);
    let mut profile = profile("stream");
    profile.groups[0].strands = strands;
    let members = ["master", "peer"]
        .map(|name| member(AgentHost::spawn(name, agent_command()).unwrap()))
        .into();
    let stop = AtomicBool::new(false);
    controller::run(&profile, members, &settings, &stop, &mut ())
}

/// No thread is busy for longer than there is time, nor are all of a host for longer than its CPUs
/// are there; and somebody did the work.
#[track_caller]
fn is_possible(host: &HostOutcome, threads: usize) {
    let phase = &host.phases[1];
    assert_eq!(phase.workers.len(), threads);
    let at = |edge| phase.snapshot(edge).unwrap().at;
    assert!(at(Edge::WindowEnd) > at(Edge::WindowStart));
    let busy: Vec<f64> = phase.workers.iter().filter_map(|worker| worker.busy).collect();
    assert!(busy.iter().all(|busy| (0.0..=1.0).contains(busy)), "{busy:?}");
    let all: f64 = busy.iter().sum();
    // False failures: 1e-6 (x10), computed: in each of three attempts half of the clocks would have to be read late.
    assert!(busy.len() * 2 > threads, "{} of {threads}", busy.len());
    // Each clock has a window of its own, and they need not be the same time.
    // False failures: 1e-6 (x10), computed: windows would have to be twice as long for some as for others.
    assert!(0.0 < all && all < 2.0 * host.cpus.len() as f64, "{all} on {:?}", host.cpus);
}

/// Hosts whose clocks were read so late that the run itself says that it does not know how busy most threads were.
fn late_clocks(outcome: &Outcome) -> Vec<String> {
    let unknown = |host: &HostOutcome| {
        let workers = &host.phases.get(1)?.workers;
        let unknown = workers.iter().filter(|worker| worker.busy.is_none()).count();
        let of = workers.len();
        (unknown * 2 >= of)
            .then(|| format!("{}: clocks of {unknown} of {of} threads read too late", host.name))
    };
    outcome.hosts.iter().filter_map(unknown).collect()
}

/// So many that they have no addresses of their own: one thread accepts for all.
#[test]
fn thousands_of_threads_behind_shared_addresses() {
    let arguments = ["--engine", "threads", "--connections", "4200", "--observe", "none"];
    let document = Program::short_run("@rr", &arguments).measure();
    assert_eq!(document.count("/connections/open"), 4200);
    assert!(!document.has_warning("saturated-worker"));
}

mod measured {
    use super::*;

    #[test]
    fn hundreds_of_threads_are_not_busier_than_the_cpus() {
        const STRANDS: u32 = 600;
        undisturbed(
            || run("threads".into(), STRANDS),
            late_clocks,
            |outcome| {
                assert_eq!((outcome.status, &outcome.error), (Status::Ok, &None));
                for host in &outcome.hosts {
                    is_possible(host, STRANDS as usize);
                    // Where each connection has a thread, not all of them ask how it is.
                    let mut sampled: Vec<u32> =
                        host.phases[1].tcp_samples.iter().map(|sample| sample.strand).collect();
                    sampled.sort_unstable();
                    sampled.dedup();
                    assert!(sampled.iter().all(|&strand| strand < 4), "{sampled:?}");
                }
            },
        );
    }

    #[test]
    fn few_workers_are_not_busier_than_the_cpus() {
        for engine in engines::event_loops() {
            undisturbed(
                || run(engine.into(), 8),
                late_clocks,
                |outcome| {
                    assert_eq!((outcome.status, &outcome.error), (Status::Ok, &None));
                    for host in &outcome.hosts {
                        is_possible(host, host.workers as usize);
                    }
                },
            );
        }
    }
}
