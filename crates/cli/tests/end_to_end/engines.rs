//! Tests of each engine.

use std::collections::BTreeSet;

use rustix::process::Signal;
use wirecost_linux::privilege::skip_without_namespaces;

use crate::interruption::{is_interrupted, under_way};
use crate::program::Running;

/// The names of all engines that carry every protocol.
pub(crate) fn names() -> impl Iterator<Item = &'static str> + Clone {
    let all = wirecost_load::engines::ALL.iter();
    all.filter(|engine| engine.is_general()).map(|engine| engine.name())
}

/// Those whose workers run many strands.
pub(crate) fn event_loops() -> impl Iterator<Item = &'static str> {
    let all = wirecost_load::engines::ALL.iter();
    all.filter(|engine| engine.is_general() && engine.shares_threads()).map(|engine| engine.name())
}

/// Makes a module for each engine, with a test for each line: `NAME: FUNCTION(ARGUMENTS);`. The function's
/// last argument is the engine.
macro_rules! on_every_engine {
    ($tests:tt) => {
        on_every_engine!([epoll io_uring io_uring_sqpoll poll threads] $tests);
    };
    ([$($engine:ident)*] $tests:tt) => {
        #[test]
        fn every_engine_is_tested() {
            let tested = [$(stringify!($engine)),*];
            let all: std::collections::BTreeSet<_> = crate::engines::names().collect();
            assert_eq!(std::collections::BTreeSet::from(tested), all);
        }

        $(on_every_engine!(@ $engine $tests);)*
    };
    (@ $engine:ident { $($test:ident: $function:ident($($argument:expr),*);)* }) => {
        mod $engine {
            $(
                #[test]
                fn $test() {
                    super::$function($($argument,)* stringify!($engine));
                }
            )*
        }
    };
}

/// Scheduling policies of the workers of a run, by number (field 41 of proc_pid_stat(5)).
fn policies(running: &Running) -> BTreeSet<u32> {
    let tasks = running.children().into_iter().flat_map(|pid| {
        std::fs::read_dir(format!("/proc/{pid}/task")).expect("its threads").map(|task| {
            std::fs::read_to_string(task.expect("a thread").path().join("stat")).expect("its state")
        })
    });
    let is_worker = |stat: &String| {
        let number = stat.split_once("(wirecost-").and_then(|(_, rest)| rest.split_once(')'));
        number.is_some_and(|(number, _)| number.parse::<u32>().is_ok())
    };
    let workers = tasks.filter(is_worker);
    let policy = |stat: String| -> Option<u32> {
        let (_, fields) = stat.rsplit_once(") ")?;
        fields.split(' ').nth(41 - 3)?.parse().ok()
    };
    workers.map(|stat| policy(stat).expect("a policy")).collect()
}

/// See ADR 0040.
#[test]
fn workers_that_share_cpus_with_the_other_end_preempt_nobody() {
    const OTHER: u32 = 0;
    const BATCH: u32 = 3;
    let mut cases = vec![
        (BATCH, vec!["--engine", "epoll"]),
        (BATCH, vec!["--engine", "io_uring"]),
        (OTHER, vec!["--engine", "threads"]),
    ];
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    if cpus >= 2 && !skip_without_namespaces("workers of a lab") {
        // Each host has CPUs of its own.
        cases.push((OTHER, vec!["--engine", "epoll", "--lab"]));
    }
    for (policy, arguments) in cases {
        let running = under_way(&arguments);
        let policies = policies(&running);
        running.signal(Signal::INT);
        is_interrupted(running);
        assert_eq!(policies, BTreeSet::from([policy]), "{arguments:?}");
    }
}
