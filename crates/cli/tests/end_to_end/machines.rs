//! One measuring run at a time on a machine: who is refused, who waits, and who shares.

use rustix::process::Signal;
use tempfile::TempDir;
use wirecost_linux::thread::allowed_cpus;

use crate::interruption::{is_interrupted, long, moves};
use crate::program::Program;

/// A machine, in effect: runs that are to meet have the same runtime directory.
fn machine() -> TempDir {
    tempfile::tempdir().unwrap()
}

const STUDY: &str = "title = \"held\"\nprofile = \"@rr\"\n[set]\nduration = \"200ms\"\n";

#[test]
fn a_second_run_is_told_who_measures() {
    let machine = machine();
    let first = moves(long().on_machine(machine.path()).start());
    let second = Program::short_run("@rr", &["--json", "run.json"]).on_machine(machine.path());
    let finished = second.finish();
    let document = finished.document();
    assert_eq!((finished.code, document.text("/status")), (3, "peer"), "{finished}");
    let error = document.text("/error").to_owned();
    for part in [
        "another run measures on this machine",
        " runs `wirecost run @stream --duration 1h ",
        &format!("(process {}) since 20", first.pid),
        "on CPUs ",
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
    assert!(finished.stderr.contains("--wait TIME"), "{finished}");
    // To observe is to measure, and so is a study, which leaves no directory behind.
    let observe = Program::new(["observe", "--for", "100ms", "--json", "observe.json"]);
    let finished = observe.on_machine(machine.path()).finish();
    assert_eq!(finished.code, 3, "{finished}");
    assert_eq!(finished.json("observe.json")["status"], "peer");
    let study = Program::new(["study", "run", "study.toml", "--out", "study"]);
    let finished = study.file("study.toml", STUDY).on_machine(machine.path()).finish();
    assert_eq!(finished.code, 3, "{finished}");
    assert!(!finished.path("study").exists());
    // A wait ends too.
    let waits = Program::short_run("@rr", &["--wait", "50ms"]).on_machine(machine.path());
    assert_eq!(waits.finish().code, 3);
    first.signal(Signal::INT);
    is_interrupted(first);
    Program::short_run("@rr", &[]).on_machine(machine.path()).measure();
}

#[test]
fn a_run_that_waits_starts_when_the_other_is_killed() {
    let machine = machine();
    let first = moves(long().on_machine(machine.path()).start());
    // No SHORT: who is quiet does not say that it waits.
    let arguments = ["run", "@rr", "--duration", "300ms", "--wait", "1h", "--json", "run.json"];
    let mut second = Program::new(arguments).on_machine(machine.path()).start();
    let line = second.error_line(|line| line.contains("waiting for another run"));
    assert!(line.contains(&format!("(process {})", first.pid)), "{line}");
    first.signal(Signal::KILL);
    first.wait_only();
    let finished = second.wait();
    assert_eq!(finished.code, 0, "{finished}");
    assert!(!finished.document().has_warning("shared-machine"));
}

#[test]
fn a_run_that_waits_can_be_interrupted() {
    let machine = machine();
    let first = moves(long().on_machine(machine.path()).start());
    let arguments = ["run", "@rr", "--duration", "300ms", "--wait", "1h", "--json", "run.json"];
    let mut second = Program::new(arguments).on_machine(machine.path()).start();
    second.error_line(|line| line.contains("waiting for another run"));
    second.signal(Signal::INT);
    let finished = second.wait();
    assert_eq!((finished.code, finished.document().text("/status")), (130, "interrupted"));
    first.signal(Signal::INT);
    is_interrupted(first);
}

#[test]
fn runs_that_share_say_so_both() {
    let machine = machine();
    let first = moves(long().on_machine(machine.path()).start());
    let second = Program::short_run("@rr", &["--share"]).on_machine(machine.path()).measure();
    let warning = second.warning("shared-machine");
    assert!(warning.contains("`wirecost run @stream"), "{warning}");
    // One that comes later must ask, too.
    let third = Program::short_run("@rr", &[]).on_machine(machine.path());
    assert_eq!(third.finish().code, 3);
    first.signal(Signal::INT);
    let finished = first.wait();
    let document = finished.document();
    let warning = document.warning("shared-machine");
    assert!(warning.contains("`wirecost run @rr"), "{warning}");
    let alone = Program::short_run("@rr", &["--share"]).on_machine(machine.path()).measure();
    assert!(!alone.has_warning("shared-machine"));
}

#[test]
fn runs_on_other_cpus_do_not_meet() {
    let machine = machine();
    let cpus = allowed_cpus().unwrap();
    let (Some((one, others)), true) = (cpus.split_first(), cpus.len() > 1) else {
        wirecost_linux::privilege::skip("runs_on_other_cpus_do_not_meet", "needs two CPUs");
        return;
    };
    let first = moves(long().on_machine(machine.path()).on_cpus(&[*one]).start());
    let second = Program::short_run("@rr", &[]).on_machine(machine.path());
    assert!(!second.on_cpus(others).measure().has_warning("shared-machine"));
    let same = Program::short_run("@rr", &[]).on_machine(machine.path()).on_cpus(&[*one]);
    assert_eq!(same.finish().code, 3);
    first.signal(Signal::INT);
    let finished = first.wait();
    assert!(!finished.document().has_warning("shared-machine"), "{finished}");
}

#[test]
fn a_study_has_the_machine_from_its_first_run_to_its_last() {
    let machine = machine();
    let arguments = ["study", "run", "study.toml", "--out", "study", "--json-lines", "--quiet"];
    let long = "title = \"held\"\nprofile = \"@rr\"\n[set]\nduration = \"50ms\"\nramp = \"0s\"\n\
                [repeat]\ntimes = 10000\n";
    let mut study =
        Program::new(arguments).file("study.toml", long).on_machine(machine.path()).start();
    // Whichever moment of the study this meets, between two runs or within one.
    study.line(|line| line.contains("run"));
    for _ in 0..10 {
        let finished = Program::short_run("@rr", &[]).on_machine(machine.path()).finish();
        assert_eq!(finished.code, 3, "{finished}");
    }
    let finished = Program::short_run("@rr", &[]).on_machine(machine.path()).finish();
    assert!(finished.stderr.contains("`wirecost study run study.toml"), "{finished}");
    study.signal(Signal::INT);
    assert_eq!(study.wait().code, 130);
}
