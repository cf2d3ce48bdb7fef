//! What fails while settings are restored, and who is told of it.

use std::fs;
use std::path::PathBuf;

use super::owners::Other;
use super::{Host, block, set};
use crate::error::with_causes;
use crate::{LeftBehind, Outcome, Restored, TuneError, restore_left_behind};
use wirecost_linux::privilege::skip_without_namespaces;
use wirecost_linux::process::ProcessId;

fn outcomes(restored: &Restored) -> Vec<&Outcome> {
    restored.entries.iter().map(|entry| &entry.outcome).collect()
}

/// On a thread that may enter no namespace.
fn restore_without_rights(host: &Host) -> LeftBehind {
    let directory = host.directory();
    std::thread::spawn(move || {
        let mut sets = rustix::thread::capabilities(None).unwrap();
        sets.effective -= rustix::thread::CapabilitySet::SYS_ADMIN;
        rustix::thread::set_capabilities(None, sets).unwrap();
        restore_left_behind(Some(&directory)).unwrap()
    })
    .join()
    .unwrap()
}

#[test]
fn a_place_that_cannot_be_looked_at_is_not_gone() {
    if skip_without_namespaces("faults::a_place_that_cannot_be_looked_at_is_not_gone") {
        return;
    }
    let host = Host::new("look");
    let mut tuner = host.tuner();
    tuner.apply(&host.target("near"), &[set("mtu", "1400"), set("tcp_sack", "0")]).unwrap();
    host.orphan_journal();
    let left = restore_without_rights(&host);
    let [restored] = &left.restored[..] else { panic!("{left:?}") };
    for outcome in outcomes(restored) {
        assert!(matches!(outcome, Outcome::Failed { .. }), "{outcome:?}");
    }
    assert_eq!(restored.entries.len(), 2);
    let left = restore_left_behind(Some(&host.directory())).unwrap();
    let [restored] = &left.restored[..] else { panic!("{left:?}") };
    assert!(restored.is_complete() && restored.entries.len() == 2, "{restored:?}");
    assert_eq!(host.mtu(), Some(1500));
}

/// Files of the copy's first CPU: what it could be set to, and what it is.
fn governor(host: &Host) -> [PathBuf; 2] {
    let policy = host.machine().join("sys/devices/system/cpu/cpufreq/policy0");
    [policy.join("scaling_available_governors"), policy.join("scaling_governor")]
}

#[test]
fn what_could_not_be_restored_is_not_put_over_what_somebody_sets_later() {
    if skip_without_namespaces("faults::what_could_not_be_restored_is_not_put_over") {
        return;
    }
    let host = Host::new("later");
    let [known, current] = governor(&host);
    let mut tuner = host.tuner();
    let copy = host.targets().pop().unwrap();
    tuner.apply(&copy, &[set("governor", "schedutil")]).unwrap();
    fs::write(&known, "powersave schedutil\n").unwrap();
    let restored = tuner.restore().unwrap();
    let [Outcome::Failed { why }] = outcomes(&restored)[..] else { panic!("{restored:?}") };
    assert!(why.contains("there is no governor `performance`"), "{why}");
    // It is tried again while nobody has changed it.
    let restored = tuner.restore().unwrap();
    assert!(matches!(outcomes(&restored)[..], [Outcome::Failed { .. }]), "{restored:?}");
    fs::write(&known, "performance powersave schedutil\n").unwrap();
    fs::write(&current, "powersave\n").unwrap();
    let restored = tuner.restore().unwrap();
    let [Outcome::ChangedByOthers { .. }] = outcomes(&restored)[..] else { panic!("{restored:?}") };
    assert_eq!(fs::read_to_string(&current).unwrap(), "powersave\n");
    assert!(host.journals().is_empty());
}

/// As when /run is full.
#[test]
fn a_journal_that_cannot_be_written_keeps_nothing_from_being_restored() {
    if skip_without_namespaces("faults::a_journal_that_cannot_be_written") {
        return;
    }
    let host = Host::new("full");
    let near = host.target("near");
    let mut tuner = host.tuner();
    tuner.apply(&near, &[set("mtu", "1400")]).unwrap();
    let draft = block(&host.journal().0);
    // It is removed, for which it need not be written.
    assert!(tuner.restore().unwrap().is_complete());
    assert_eq!(host.mtu(), Some(1500));
    assert!(host.journals().is_empty());
    fs::remove_dir(draft).unwrap();
    // Where something is left, what is on disk is wrong, and that is told.
    let [known, _] = governor(&host);
    let governors = fs::read(&known).unwrap();
    tuner.apply(&near, &[set("mtu", "1400")]).unwrap();
    tuner.apply(&host.targets().pop().unwrap(), &[set("governor", "schedutil")]).unwrap();
    fs::write(&known, "powersave schedutil\n").unwrap();
    let draft = block(&host.journal().0);
    let error = tuner.restore().unwrap_err();
    assert!(matches!(error, TuneError::Journal { act: "write", .. }), "{error:?}");
    assert_eq!(host.mtu(), Some(1500));
    fs::remove_dir(draft).unwrap();
    fs::write(&known, governors).unwrap();
    assert!(tuner.restore().unwrap().is_complete());
}

#[test]
fn a_journal_that_cannot_be_written_keeps_no_other_from_being_restored() {
    if skip_without_namespaces("faults::a_journal_that_cannot_be_written_keeps_no_other") {
        return;
    }
    let host = Host::new("full-other");
    let other = Other::start();
    other.change(&host, &host.targets().pop().unwrap(), set("governor", "schedutil"));
    let [known, _] = governor(&host);
    fs::write(&known, "powersave schedutil\n").unwrap();
    block(&host.journals()[0]);
    drop(other);
    let mut tuner = host.tuner();
    assert_eq!(tuner.take_left_behind().problems.len(), 1);
    tuner.apply(&host.target("near"), &[set("mtu", "1400")]).unwrap();
    // One that is read after the other: it sorts last, and is above all numbers of processes.
    host.give_journal_to(ProcessId { pid: 999_999_999, started: 1 });
    let left = restore_left_behind(Some(&host.directory())).unwrap();
    let [problem] = &left.problems[..] else { panic!("{left:?}") };
    assert!(matches!(problem, TuneError::Journal { act: "write", .. }), "{problem:?}");
    assert_eq!(left.restored.len(), 2, "{left:?}");
    assert_eq!(host.mtu(), Some(1500));
}

#[test]
fn what_a_dropped_tuner_could_not_restore_is_told_to_the_next() {
    if skip_without_namespaces("faults::what_a_dropped_tuner_could_not_restore") {
        return;
    }
    let host = Host::new("told");
    let near = host.target("near");
    let mut tuner = host.tuner();
    tuner.apply(&near, &[set("mtu", "1400"), set("tcp_sack", "0")]).unwrap();
    host.links().set_mtu("near", 1450).unwrap();
    drop(tuner);
    // One that has an error of its own tells nothing else.
    for _ in 0..2 {
        let mut tuner = host.tuner();
        let error = tuner.apply(&near, &[set("qdisc", "no-such")]).unwrap_err();
        assert!(with_causes(&error).contains("no-such"));
    }
    let mut tuner = host.tuner();
    let left = tuner.take_left_behind();
    let [restored] = &left.restored[..] else { panic!("{left:?}") };
    let changed = Outcome::ChangedByOthers { current: "1450".to_owned() };
    assert_eq!(outcomes(restored), [&changed, &Outcome::Restored]);
    assert!(tuner.take_left_behind().restored.is_empty());
    drop(tuner);
    assert!(host.tuner().take_left_behind().restored.is_empty(), "it is told once");
}

/// What a tuner restored when it was opened is in no journal any more.
#[test]
fn what_a_tuner_found_and_did_not_tell_is_told_by_the_next() {
    if skip_without_namespaces("faults::what_a_tuner_found_and_did_not_tell") {
        return;
    }
    let host = Host::new("untold");
    let mut tuner = host.tuner();
    tuner.apply(&host.target("near"), &[set("mtu", "1400")]).unwrap();
    host.links().set_mtu("near", 1450).unwrap();
    host.orphan_journal();
    drop(host.tuner());
    assert!(host.journals().is_empty());
    let left = host.tuner().take_left_behind();
    let changed = Outcome::ChangedByOthers { current: "1450".to_owned() };
    assert_eq!(outcomes(&left.restored[0]), [&changed]);
}
