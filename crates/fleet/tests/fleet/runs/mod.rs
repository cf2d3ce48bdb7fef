//! Runs of hosts that answer in any order, late, not at all, or die: each stage of the controller.

mod hosts;

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use hosts::{Fault, Stage, members, result};
use proptest::prelude::*;
use wirecost_fleet::controller::{self, Patience, Settings};
use wirecost_model::clock::SECOND;
use wirecost_model::event::Event;
use wirecost_model::outcome::Outcome;
use wirecost_model::plan::{EngineName, WorkerCpus, Workers};
use wirecost_model::profile::{
    Conns, Flowop, Group, Options, Position, Profile, Transaction, Until,
};
use wirecost_model::status::Status;

const NAMES: [&str; 3] = ["master", "left", "right"];
const PHASES: u32 = 2;

fn profile() -> Profile {
    let connect = |(id, host): (usize, &&str)| Flowop {
        kind: "connect".to_owned(),
        options: Options {
            remotehost: Some((*host).to_owned()),
            protocol: Some("tcp".to_owned()),
            conn: Conns::one(id as u32),
            ..Options::default()
        },
        at: Position::default(),
    };
    let write = Flowop {
        kind: "write".to_owned(),
        options: Options { conn: Conns::one(0), ..Options::default() },
        at: Position::default(),
    };
    let transaction = |flowops| Transaction {
        until: Until::Iterations(1),
        arrivals: None,
        flowops,
        order: Vec::new(),
        at: Position::default(),
    };
    let transactions = vec![
        transaction(NAMES[1..].iter().enumerate().map(connect).collect()),
        transaction(vec![write]),
    ];
    let group = Group { strands: 1, transactions, ..Group::default() };
    Profile { name: String::new(), groups: vec![group] }
}

fn settings(timeout: Duration) -> Settings {
    Settings {
        engine: EngineName::default(),
        workers: Workers::default(),
        interval: Some(SECOND),
        ramp: 0,
        timeout: Some(timeout),
        seed: 1,
        token: "t".to_owned(),
        tcp_samples: 0,
        probes: vec!["cpu".to_owned()],
        ..Settings::default()
    }
}

/// Runs the hosts; the events as well.
fn run(
    choices: impl FnMut(usize) -> usize + Send + 'static,
    fault: Option<(usize, Stage, Fault)>,
    timeout: Duration,
) -> (Outcome, Vec<Event>) {
    let mut events = Vec::new();
    let outcome = controller::run(
        &profile(),
        members(&NAMES, choices, fault, None),
        &settings(timeout),
        &AtomicBool::new(false),
        &mut |event: &Event| events.push(event.clone()),
    );
    (outcome, events)
}

/// Why a run ended with this status.
#[track_caller]
fn error_of(outcome: &Outcome, status: Status, case: &str) -> String {
    let error = outcome.error.clone().unwrap_or_default();
    assert_eq!(outcome.status, status, "{case}: {error}");
    error
}

/// Who measured what is known by the numbers that each host gives.
fn is_whole(outcome: &Outcome) {
    assert_eq!((outcome.status, &outcome.error), (Status::Ok, &None));
    assert_eq!(outcome.hosts.len(), NAMES.len());
    for (number, (host, name)) in outcome.hosts.iter().zip(NAMES).enumerate() {
        assert_eq!(host.name, name);
        assert_eq!(host.pid, number as u32);
        assert_eq!(host.workers, number as u32 + 1);
        assert_eq!(host.environment["host"], name);
        let expected: Vec<_> = (0..PHASES).map(|phase| result(number, phase)).collect();
        assert_eq!(host.phases, expected, "{name}");
        let settings: Vec<_> = host.settings.iter().map(|s| (&*s.host, &*s.name)).collect();
        assert_eq!(settings, [(name, &*format!("of {name}"))]);
    }
}

/// Ticks come while their phase runs, and counters only of that phase.
fn are_in_order(events: &[Event]) {
    let mut under_way = None;
    let mut phases = 0;
    for event in events {
        match event {
            Event::PhaseStarted { phase, .. } => {
                assert_eq!((under_way, *phase), (None, phases));
                under_way = Some(*phase);
            }
            Event::Tick { phase, hosts, .. } => {
                assert_eq!(under_way, Some(*phase));
                assert_eq!(hosts.len(), NAMES.len(), "a tick is told when all have taken one");
                assert!(hosts.iter().all(|host| host.counters.transactions < 1 << 40), "{hosts:?}");
            }
            Event::PhaseEnded { phase, hosts, .. } => {
                assert_eq!(under_way.take(), Some(*phase));
                for host in hosts {
                    let measured = result(host.host as usize, *phase);
                    let last = measured.snapshots.last().unwrap();
                    assert_eq!(host.counters, last.counters);
                }
                phases += 1;
            }
            Event::Preparing { .. } | Event::Ready { .. } | Event::Warning(_) => {
                assert_eq!(under_way, None)
            }
        }
    }
    assert_eq!(phases, PHASES);
}

const LONG: Duration = Duration::from_secs(60);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Notices of one host come in their order; those of different hosts in any.
    #[test]
    fn notices_of_different_hosts_come_in_any_order(
        choices in prop::collection::vec(0usize..64, 1..40),
    ) {
        let mut choices = choices.into_iter().cycle();
        let (outcome, events) = run(move |_| choices.next().unwrap(), None, LONG);
        is_whole(&outcome);
        are_in_order(&events);
        // The only phase that moves data is the headline, which alone is observed.
        prop_assert_eq!(outcome.observations.len(), 1);
    }
}

/// One host always first, and one always last: the orders at both ends.
#[test]
fn a_host_may_always_be_the_first_or_the_last() {
    for choice in [0usize, usize::MAX] {
        let (outcome, events) = run(move |waiting| choice.min(waiting - 1), None, LONG);
        is_whole(&outcome);
        are_in_order(&events);
    }
}

/// Stages that this host takes part in: only the first of a machine observes it.
fn stages(host: usize) -> impl Iterator<Item = Stage> {
    Stage::ALL.into_iter().filter(move |stage| host == 0 || *stage != Stage::Observe)
}

/// Whatever it was in, the run ends, says whose fault it was, and keeps what was measured before.
#[test]
fn a_host_that_dies_ends_the_run_in_every_stage() {
    for (host, name) in NAMES.iter().enumerate() {
        for stage in stages(host) {
            for fault in [Fault::RefusesOrder, Fault::Dies] {
                let (outcome, _) = run(|_| 0, Some((host, stage, fault)), LONG);
                let error = error_of(&outcome, Status::Peer, &format!("{stage:?} {fault:?}"));
                let expected = format!("{name}: lost the agent");
                assert!(error.starts_with(&expected), "{stage:?} {fault:?}: {error}");
                assert_eq!(outcome.hosts.len(), NAMES.len());
                let complete = if stage == Stage::Summarize { PHASES as usize } else { 0 };
                let phases = outcome.hosts.iter().map(|host| host.phases.len());
                assert!(phases.clone().all(|phases| phases >= complete), "{stage:?} {fault:?}");
                // In a phase the others may have ended it already.
                assert!(
                    phases.clone().all(|phases| phases <= complete.max(1)),
                    "{stage:?} {fault:?}"
                );
            }
        }
    }
}

#[test]
fn a_host_that_gives_up_says_with_which_status() {
    for stage in stages(1) {
        let (outcome, _) = run(|_| 0, Some((1, stage, Fault::Fails)), LONG);
        let error = error_of(&outcome, Status::Invalid, &format!("{stage:?}"));
        assert_eq!(error, "left: it cannot go on", "{stage:?}");
    }
}

/// Each host alone would have enough.
#[test]
fn hosts_that_need_more_memory_than_their_machine_has_left_do_not_begin() {
    let of = |available| {
        let mut begun = false;
        let outcome = controller::run(
            &profile(),
            members(&NAMES, |_| 0, None, Some(available)),
            &settings(Duration::from_secs(3600)),
            &AtomicBool::new(false),
            &mut |event: &Event| begun |= matches!(event, Event::Ready { .. }),
        );
        (outcome, begun)
    };
    // Each has a pattern of 64 KiB and a place for messages of 64 KiB at least.
    let (outcome, begun) = of(300 << 10);
    let error = error_of(&outcome, Status::Peer, "too little memory");
    assert!(!begun, "{error}");
    assert!(error.starts_with("the hosts master, left, right of one machine need"), "{error}");
    assert!(error.contains("307 kB"), "{error}");
    let (outcome, begun) = of(1 << 30);
    assert_eq!((outcome.status, outcome.error, begun), (Status::Ok, None, true));
}

/// Runs hosts that have CPUs 0 to 3 each, with workers on these.
fn run_on(cpus: WorkerCpus) -> (Outcome, Vec<Vec<u32>>) {
    let mut members = members(&NAMES, |_| 0, None, None);
    members.iter_mut().for_each(|member| member.cpus = vec![0, 1, 2, 3]);
    let settings = Settings { cpus, ..settings(Duration::from_secs(3600)) };
    let mut used = Vec::new();
    let mut listener = |event: &Event| {
        if let Event::Ready { hosts, .. } = event {
            used = hosts.iter().map(|host| host.cpus.clone()).collect();
        }
    };
    let stop = AtomicBool::new(false);
    let outcome = controller::run(&profile(), members, &settings, &stop, &mut listener);
    (outcome, used)
}

#[test]
fn workers_run_on_the_cpus_that_are_asked_for_and_hosts_keep_theirs() {
    let mut cpus = WorkerCpus::default();
    cpus.set(Some("peer"), vec![1]).unwrap();
    cpus.set(Some("right"), vec![0, 3]).unwrap();
    let (outcome, used) = run_on(cpus);
    assert_eq!(outcome.error, None);
    assert_eq!(used, [vec![0, 1, 2, 3], vec![1], vec![0, 3]]);
    // What the kernel does on the other CPUs is for the host too.
    assert!(outcome.hosts.iter().all(|host| host.cpus == [0, 1, 2, 3]));
}

#[test]
fn cpus_that_a_host_does_not_have_are_refused() {
    let mut cpus = WorkerCpus::default();
    cpus.set(None, vec![3, 4, 5]).unwrap();
    let (outcome, used) = run_on(cpus);
    let error = error_of(&outcome, Status::Usage, "CPUs that master lacks");
    assert_eq!(error, "master cannot use CPU 4-5: it has CPU 0-3");
    assert_eq!(used.len(), 0);
}

/// Hosts that answer late, or not at all.
mod waiting {
    use super::*;

    /// A lost answer keeps nobody waiting beyond the time of the run.
    #[test]
    fn a_lost_answer_ends_with_the_time_of_the_run() {
        std::thread::scope(|scope| {
            for stage in stages(2) {
                scope.spawn(move || {
                    let short = Duration::from_millis(300);
                    let (outcome, _) = run(|_| 0, Some((2, stage, Fault::LosesAnswer)), short);
                    let error = outcome.error.unwrap();
                    assert_eq!(outcome.status, Status::Invalid, "{stage:?}: {error}");
                    assert!(error.contains("--timeout"), "{stage:?}: {error}");
                });
            }
        });
    }

    /// A host that is slow, but alive, is waited for in every stage. It answers at the second sign of
    /// life.
    #[test]
    fn a_slow_host_is_waited_for() {
        std::thread::scope(|scope| {
            for stage in stages(1) {
                scope.spawn(move || {
                    let (outcome, events) =
                        run(|_| 0, Some((1, stage, Fault::AnswersAfterPings(2))), LONG);
                    assert_eq!(outcome.status, Status::Ok, "{stage:?}: {:?}", outcome.error);
                    is_whole(&outcome);
                    are_in_order(&events);
                });
            }
        });
    }

    /// Files may take longer than anything else before traffic, as long as their host says that it goes on.
    #[test]
    fn a_host_that_prepares_files_is_waited_for_as_long_as_it_says_so() {
        let patience = Patience { set_up: Duration::from_secs(1), ..Patience::default() };
        let run = |fault| {
            let mut told = Vec::new();
            let outcome = controller::run(
                &profile(),
                members(&NAMES, |_| 0, Some((1, Stage::Prepare, fault)), None),
                &Settings { patience, ..settings(LONG) },
                &AtomicBool::new(false),
                &mut |event: &Event| {
                    if let Event::Preparing { host, done, total, .. } = event {
                        told.push((host.clone(), *done, *total));
                    }
                },
            );
            (outcome, told)
        };
        // Two seconds and more.
        let (outcome, told) = run(Fault::Prepares(100));
        assert_eq!((outcome.status, outcome.error.as_deref()), (Status::Ok, None));
        let expected: Vec<_> = (0..100).map(|done| ("left".to_owned(), done, 100)).collect();
        assert_eq!(told, expected);
        let (outcome, told) = run(Fault::LosesAnswer);
        assert_eq!((outcome.status, told.len()), (Status::Peer, 0));
        assert_eq!(outcome.error.unwrap(), "timed out waiting for the workers of the hosts");
    }
}
