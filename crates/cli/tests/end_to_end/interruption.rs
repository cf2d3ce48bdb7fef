//! Runs that do not get to their end.

use rustix::process::Signal;

use crate::program::{Program, Running, namespaces_of, processes, signal_to, until};
use wirecost_linux::privilege::skip_without_namespaces;

/// A long run whose traffic moves.
pub(crate) fn under_way(arguments: &[&str]) -> Running {
    moves(long().args(arguments).start())
}

/// A run that nobody waits for the end of.
pub(crate) fn long() -> Program {
    Program::new(["run", "@stream", "--duration", "1h", "--ramp", "0s"]).args([
        "--interval",
        "50ms",
        "--format",
        "uperf",
        "--json",
        "run.json",
    ])
}

/// Waits until its traffic moves.
pub(crate) fn moves(mut running: Running) -> Running {
    // The lines of the second phase begin at 0 bytes.
    running.line(|line| line.contains(" name:Txn2 ") && !line.contains("nr_bytes:0 "));
    running
}

pub(crate) fn is_interrupted(running: Running) {
    let finished = running.wait();
    let document = finished.document();
    assert_eq!((finished.code, document.text("/status")), (130, "interrupted"), "{finished}");
    assert_eq!(document.list("/hosts").len(), 2);
}

#[test]
fn control_c() {
    for signal in [Signal::INT, Signal::TERM] {
        let running = under_way(&[]);
        assert_eq!(running.children().len(), 2, "two agents");
        running.signal(signal);
        is_interrupted(running);
    }
}

#[test]
fn control_c_in_a_lab() {
    if skip_without_namespaces("control_c_in_a_lab") {
        return;
    }
    let running = under_way(&["--lab"]);
    assert_eq!(namespaces_of(running.pid).len(), 2);
    running.signal(Signal::INT);
    // Waiting makes sure that the namespaces are gone.
    is_interrupted(running);
}

/// The host that died is the reason; that another could not tell it something is none.
#[test]
fn a_session_that_dies_is_the_only_error() {
    for dies in [0, 1] {
        let running = under_way(&[]);
        signal_to(running.children()[dies], Signal::KILL);
        let finished = running.wait();
        assert_eq!(finished.code, 3, "{finished}");
        let errors = finished.stderr.lines().filter(|line| line.starts_with("wirecost: "));
        assert_eq!(errors.count(), 1, "{finished}");
        assert!(!finished.stderr.contains("Broken pipe"), "{finished}");
    }
}

#[test]
fn a_controller_that_is_killed() {
    let running = under_way(&[]);
    let mark = running.mark.clone();
    running.signal(Signal::KILL);
    assert_eq!(running.wait_only().code, 1009);
    until("the agents have ended by themselves", || processes(&mark).is_empty());
}

#[test]
fn a_lab_that_is_left_behind() {
    if skip_without_namespaces("a_lab_that_is_left_behind") {
        return;
    }
    let running = under_way(&["--lab"]);
    let (pid, mark) = (running.pid, running.mark.clone());
    let name = namespaces_of(pid)[0].trim_start_matches("wirecost-").to_owned();
    let name = name.rsplit_once('-').unwrap().0.to_owned();
    // A lab of a run under way is not taken from it.
    let finished = Program::new(["lab", "down", "--name", &name]).finish();
    assert_eq!(finished.code, 3, "{finished}");
    running.signal(Signal::KILL);
    running.wait_only();
    until("the agents have ended by themselves", || processes(&mark).is_empty());
    // The next lab, of whomever, removes what nobody was there to remove.
    let finished = Program::short_run("@rr", &["--lab", "--observe", "none"]).finish();
    assert_eq!(finished.code, 0, "{finished}");
    assert!(namespaces_of(pid).is_empty(), "{:?}", namespaces_of(pid));
}

#[test]
fn an_agent_that_is_killed() {
    let running = under_way(&[]);
    let agents = running.children();
    signal_to(agents[1], Signal::KILL);
    let finished = running.wait();
    let document = finished.document();
    assert_eq!((finished.code, document.text("/status")), (3, "peer"), "{finished}");
    assert!(!document.text("/error").is_empty());
}

#[test]
fn a_run_that_takes_too_long() {
    let finished = Program::new(["run", "@stream", "--duration", "1h", "--timeout", "1s"])
        .args(["--json", "run.json"])
        .finish();
    let document = finished.document();
    assert_eq!((finished.code, document.text("/status")), (4, "invalid"), "{finished}");
    assert!(document.text("/error").contains("--timeout"));
}
