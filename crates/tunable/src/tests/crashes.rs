//! kill -9 of the owner, of the guardian, of both.

use std::path::Path;
use std::time::Duration;

use fastrand::Rng;
use rustix::process::{Pid, Signal, kill_process};

use super::seed::seed;
use super::{
    Host, Owner, assert_complete, assert_same, change, changeable, guardian_program, set, snapshot,
    targets,
};
use crate::guardian::Guardian;
use crate::restore::restore_after;
use crate::{Options, Outcome, Target, TuneError, Tuner, restore_left_behind};
use wirecost_linux::netns::{self, NetNs};
use wirecost_linux::privilege::skip_without_namespaces;

/// Namespace and directory of a started owner, and what it does there.
const HOST: &str = "WIRECOST_TEST_TUNE_HOST";
const FILES: &str = "WIRECOST_TEST_TUNE_FILES";
const TASK: &str = "WIRECOST_TEST_TUNE_TASK";
/// Changes everything, and says so; then changes and restores at random.
const EVERYTHING: &str = "everything";
/// Changes the MTU of a device, without a guardian.
const ALONE: &str = "alone";
/// Changes the MTU of a device and a sysctl in a namespace that it is in, with a guardian.
const INSIDE: &str = "inside";

/// Is an owner where a test has started it as one.
#[test]
fn owner_process() {
    let Ok(host) = std::env::var(HOST) else { return };
    let files = std::env::var(FILES).unwrap();
    let (directory, machine) =
        (Path::new(&files).join("journals"), Path::new(&files).join("machine"));
    let options = Options::default().with_directory(&directory);
    let guardian = || Guardian::start(&guardian_program(), Some(&directory)).unwrap();
    match std::env::var(TASK).unwrap().as_str() {
        EVERYTHING => {
            let targets = targets(&host, &machine);
            let found = changeable(&targets);
            let guardian = guardian();
            println!("\nguardian {}", guardian.pid());
            let mut tuner = Tuner::open(options.with_guardian(guardian)).unwrap();
            for (target, tunable) in &found {
                change(&mut tuner, target, *tunable);
            }
            println!("\nchanged everything");
            let mut random = Rng::with_seed(seed());
            loop {
                let (target, tunable) = &found[random.usize(..found.len())];
                change(&mut tuner, target, *tunable);
                if random.u32(..20) == 0 {
                    tuner.restore().unwrap();
                }
            }
        }
        ALONE => {
            let near = Target::of(NetNs::open(&host).unwrap()).unwrap().with_device("near");
            let mut tuner = Tuner::open(options).unwrap();
            tuner.apply(&near, &[set("mtu", "1400"), set("tcp_sack", "0")]).unwrap();
            println!("\nchanged mtu");
            std::thread::sleep(super::PATIENCE * 6);
        }
        INSIDE => {
            // A process starts in the namespace of the thread that starts it.
            let guardian = guardian();
            println!("\nguardian {}", guardian.pid());
            NetNs::open(&host).unwrap().enter_current_thread().unwrap();
            let mut tuner = Tuner::open(options.with_guardian(guardian)).unwrap();
            // Only this thread and the guardian will lead to the namespace.
            let near = Target::here().unwrap().with_device("near");
            tuner.apply(&near, &[set("mtu", "1400"), set("tcp_sack", "0")]).unwrap();
            println!("\nchanged inside");
            std::thread::sleep(super::PATIENCE * 6);
        }
        other => panic!("{other}"),
    }
}

fn start(host: &Host, task: &str) -> Owner {
    let files = host.files.path().to_str().unwrap();
    Owner::start(
        "tests::crashes::owner_process",
        &[(HOST, host.name.as_str()), (FILES, files), (TASK, task)],
    )
}

fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid as i32).unwrap(), signal).unwrap();
}

#[test]
fn the_guardian_restores_everything_when_its_owner_is_killed() {
    if skip_without_namespaces("crashes::the_guardian_restores_everything") {
        return;
    }
    const ROUNDS: u32 = 8;
    let host = Host::new("killed");
    let targets = host.targets();
    let before = snapshot(&targets);
    let mut times = Vec::new();
    let mut instants = Rng::with_seed(seed());
    for round in 0..ROUNDS {
        let mut owner = start(&host, EVERYTHING);
        let guardian: u32 = owner.wait_for("guardian ").parse().unwrap();
        if round < 2 {
            owner.wait_for("changed everything");
            let changed = snapshot(&targets);
            let unchanged: Vec<_> = before
                .iter()
                .filter(|(key, value)| changed.get(*key) == Some(*value))
                .map(|((place, name), _)| format!("{place}.{name}"))
                .collect();
            println!("unchanged when killed: {unchanged:?}");
            assert!(changed.len() > unchanged.len() + 60, "{unchanged:?}");
        }
        std::thread::sleep(Duration::from_micros(instants.u64(..600_000)));
        // None of these ends it.
        for number in [Signal::HUP, Signal::INT, Signal::TERM] {
            signal(guardian, number);
        }
        owner.kill();
        times.push(host.wait_until_restored());
        assert_same(&snapshot(&targets), &before, &format!("round {round}"));
    }
    println!("restored after {times:?}");
    assert!(restore_left_behind(Some(&host.directory())).unwrap().restored.is_empty());
}

#[test]
fn what_a_killed_guardian_and_a_killed_owner_left_is_restored_by_the_next() {
    if skip_without_namespaces("crashes::what_a_killed_guardian_and_a_killed_owner_left") {
        return;
    }
    let host = Host::new("both");
    let targets = host.targets();
    let before = snapshot(&targets);
    let mut instants = Rng::with_seed(seed());
    for round in 0..4 {
        let mut owner = start(&host, EVERYTHING);
        let guardian: u32 = owner.wait_for("guardian ").parse().unwrap();
        owner.wait_for("changed everything");
        std::thread::sleep(Duration::from_micros(instants.u64(..300_000)));
        signal(guardian, Signal::KILL);
        owner.kill();
        if host.journals().is_empty() {
            // It was killed just after it had restored everything.
            assert_same(&snapshot(&targets), &before, &format!("round {round}"));
            continue;
        }
        let restored = restore_left_behind(Some(&host.directory())).unwrap().restored;
        let [restored] = &restored[..] else { panic!("{restored:?}") };
        assert_complete(restored);
        assert_same(&snapshot(&targets), &before, &format!("round {round}"));
        assert!(host.journals().is_empty());
        assert!(restore_left_behind(Some(&host.directory())).unwrap().restored.is_empty());
    }
}

#[test]
fn the_next_owner_restores_first_what_was_left() {
    if skip_without_namespaces("crashes::the_next_owner_restores_first_what_was_left") {
        return;
    }
    let host = Host::new("next");
    let mut owner = start(&host, ALONE);
    owner.wait_for("changed mtu");
    owner.kill();
    assert_eq!(host.mtu(), Some(1400));
    let mut tuner = host.tuner();
    assert_eq!(host.mtu(), Some(1500));
    let left = tuner.take_left_behind();
    assert!(left.restored.len() == 1 && left.restored[0].is_complete(), "{left:?}");
    // Also what is left while it is open.
    let mut owner = start(&host, ALONE);
    owner.wait_for("changed mtu");
    owner.kill();
    let applied = tuner.apply(&host.target("near"), &[set("mtu", "1399")]).unwrap();
    assert_eq!(applied[0].previous, "1500");
    tuner.restore().unwrap();
    assert_eq!(host.mtu(), Some(1500));
}

#[test]
fn two_owners_never_change_the_same_setting() {
    if skip_without_namespaces("crashes::two_owners_never_change_the_same_setting") {
        return;
    }
    let host = Host::new("two");
    let mut owner = start(&host, ALONE);
    owner.wait_for("changed mtu");
    let mut tuner = host.tuner();
    let error = tuner.apply(&host.target("near"), &[set("mtu", "1399")]).unwrap_err();
    let pid = owner.child.id();
    let expected = format!(
        "`mtu` on `near` is already changed by process {pid}, which has not restored it yet"
    );
    assert_eq!(error.to_string(), expected);
    assert_eq!(host.mtu(), Some(1400));
    // Of another device, and another setting.
    tuner.apply(&host.target("far"), &[set("mtu", "1399")]).unwrap();
    tuner.apply(&host.target("near"), &[set("txqueuelen", "17")]).unwrap();
    assert!(
        restore_left_behind(Some(&host.directory())).unwrap().restored.is_empty(),
        "its owner lives"
    );
    assert_eq!(host.mtu(), Some(1400));
    owner.kill();
    assert!(tuner.restore().unwrap().is_complete());
    assert_eq!(host.mtu(), Some(1400));
    assert!(restore_left_behind(Some(&host.directory())).unwrap().restored[0].is_complete());
    assert_eq!(host.mtu(), Some(1500));
}

#[test]
fn the_guardian_restores_in_a_namespace_that_has_neither_name_nor_process() {
    if skip_without_namespaces("crashes::the_guardian_restores_in_a_namespace_without_a_name") {
        return;
    }
    let host = Host::new("nameless");
    let namespace = host.namespace();
    let mut owner = start(&host, INSIDE);
    owner.wait_for("changed inside");
    netns::delete(&host.name).unwrap();
    let links = wirecost_linux::link::Links::of(&namespace).unwrap();
    assert_eq!(links.get("near").unwrap().mtu, Some(1400));
    owner.kill();
    host.wait_until_restored();
    assert_eq!(links.get("near").unwrap().mtu, Some(1500));
    assert!(restore_left_behind(Some(&host.directory())).unwrap().restored.is_empty());
}

/// Only the guardian finds the namespace, so nobody else may say that it is gone.
#[test]
fn what_a_guardian_is_about_to_restore_is_left_to_it() {
    if skip_without_namespaces("crashes::what_a_guardian_is_about_to_restore_is_left_to_it") {
        return;
    }
    let host = Host::new("at-work");
    let links = host.links();
    let mut owner = start(&host, INSIDE);
    let guardian: u32 = owner.wait_for("guardian ").parse().unwrap();
    owner.wait_for("changed inside");
    netns::delete(&host.name).unwrap();
    signal(guardian, Signal::STOP);
    // It must not come to see that its owner has ended.
    let stat = || std::fs::read_to_string(format!("/proc/{guardian}/stat")).unwrap();
    while !stat().rsplit_once(')').unwrap().1.starts_with(" T") {
        std::thread::sleep(Duration::from_millis(1));
    }
    owner.kill();
    let left = restore_after(Duration::from_millis(20), &host.directory()).unwrap();
    let [problem] = &left.problems[..] else { panic!("{left:?}") };
    assert!(matches!(problem, TuneError::GuardianAtWork { .. }), "{problem:?}");
    assert!(left.restored.is_empty() && host.journals().len() == 1, "{left:?}");
    // Who has time waits for it.
    let directory = host.directory();
    let waiting = std::thread::spawn(move || restore_left_behind(Some(&directory)).unwrap());
    signal(guardian, Signal::CONT);
    let left = waiting.join().unwrap();
    assert!(left.restored.is_empty() && left.problems.is_empty(), "{left:?}");
    assert_eq!(links.get("near").unwrap().mtu, Some(1500));
}

#[test]
fn without_a_guardian_a_nameless_namespace_is_gone() {
    if skip_without_namespaces("crashes::without_a_guardian_a_nameless_namespace_is_gone") {
        return;
    }
    let host = Host::new("gone");
    let mut owner = start(&host, ALONE);
    owner.wait_for("changed mtu");
    owner.kill();
    netns::delete(&host.name).unwrap();
    let restored = restore_left_behind(Some(&host.directory())).unwrap().restored;
    let [restored] = &restored[..] else { panic!("{restored:?}") };
    let gone = Outcome::Gone { what: "the network namespace is gone".to_owned() };
    let outcomes: Vec<_> = restored.entries.iter().map(|entry| &entry.outcome).collect();
    assert_eq!(outcomes, [&gone, &gone]);
    assert!(host.journals().is_empty());
}

#[test]
fn a_guardian_that_has_ended_allows_no_change() {
    if skip_without_namespaces("crashes::a_guardian_that_has_ended_allows_no_change") {
        return;
    }
    let host = Host::new("unguarded");
    let guardian = Guardian::start(&guardian_program(), Some(&host.directory())).unwrap();
    let pid = guardian.pid();
    let mut tuner = Tuner::open(host.options().with_guardian(guardian)).unwrap();
    signal(pid, Signal::KILL);
    let error = tuner.apply(&host.target("near"), &[set("mtu", "1400")]).unwrap_err();
    assert_eq!(error.to_string(), "no answer from the guardian process, which restores settings");
    assert_eq!(host.mtu(), Some(1500));
    assert!(host.journals().is_empty());
    let program = ["/nonexistent/wirecost".into()];
    assert!(Guardian::start(&program, Some(&host.directory())).is_err());
    let program = ["true".into()];
    assert!(Guardian::start(&program, Some(&host.directory())).is_err());
}

/// What somebody else changed stays, also when the guardian restores; the next one is told.
#[test]
fn what_a_guardian_left_is_reported_later() {
    if skip_without_namespaces("crashes::what_a_guardian_left_is_reported_later") {
        return;
    }
    let host = Host::new("report");
    let mut owner = start(&host, INSIDE);
    owner.wait_for("changed inside");
    host.links().set_mtu("near", 1450).unwrap();
    owner.kill();
    host.wait_until_restored();
    let restored = restore_left_behind(Some(&host.directory())).unwrap().restored;
    let outcomes: Vec<_> = restored[0].entries.iter().map(|entry| &entry.outcome).collect();
    let left = Outcome::ChangedByOthers { current: "1450".to_owned() };
    assert_eq!(outcomes, [&left, &Outcome::Restored]);
    assert_eq!(host.mtu(), Some(1450));
    assert!(
        restore_left_behind(Some(&host.directory())).unwrap().restored.is_empty(),
        "it is told once"
    );
}
