//! Windows in which the traffic stood still for a time.

use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use wirecost_linux::privilege::skip_without_namespaces;

use crate::program::{Finished, Program, Running, namespaces_of, signal_to};

/// A run of one connection, and a window of that length; it has begun.
fn in_window(window: &str, arguments: &[&str]) -> Running {
    begin(Program::new(["run", "@stream", "--duration", window]).args(arguments))
}

/// Starts a run, and waits until its window has begun.
fn begin(run: Program) -> Running {
    let output = ["--observe", "none", "--format", "uperf", "--json", "run.json"];
    let mut running = run.args(["--interval", "100ms"]).args(output).start();
    running.line(|line| line.contains(" name:Txn2 ") && !line.contains("nr_bytes:0 "));
    running
}

fn stop_for(pids: &[u32], time: Duration) {
    pids.iter().for_each(|&pid| signal_to(pid, Signal::STOP));
    std::thread::sleep(time);
    pids.iter().for_each(|&pid| signal_to(pid, Signal::CONT));
}

/// Takes the link of one host of the run's lab down for a time.
fn link_down_for(running: &Running, time: Duration) {
    let namespaces = namespaces_of(running.pid);
    let set = |state: &str| {
        let done = Command::new("ip")
            .args(["-n", &namespaces[1], "link", "set", "eth0", state])
            .status()
            .expect("the program ip");
        assert!(done.success());
    };
    set("down");
    std::thread::sleep(time);
    set("up");
}

#[track_caller]
fn is_invalid(finished: &Finished, seconds: std::ops::Range<f64>) {
    let document = finished.document();
    assert_eq!((finished.code, document.text("/status")), (4, "invalid"), "{finished}");
    assert!(document.text("/error").contains("no byte moved for "), "{}", document.text("/error"));
    assert!(document.warning("dead-time").contains("of the window"), "{finished}");
    let dead = document.number("/window/dead_seconds");
    assert!(seconds.contains(&dead), "{dead} s of {seconds:?}");
}

#[test]
fn a_link_that_is_down_in_the_window() {
    if skip_without_namespaces("a_link_that_is_down_in_the_window") {
        return;
    }
    let running = in_window("4s", &["--lab"]);
    link_down_for(&running, Duration::from_secs(8));
    is_invalid(&running.wait(), 2.0..4.1);
}

#[test]
fn a_study_of_outages_accepts_dead_time() {
    if skip_without_namespaces("a_study_of_outages_accepts_dead_time") {
        return;
    }
    let running = in_window("6s", &["--lab", "--dead-time", "report"]);
    link_down_for(&running, Duration::from_secs(2));
    let finished = running.wait();
    let document = finished.document();
    assert_eq!((finished.code, document.text("/status")), (0, "ok"), "{finished}");
    assert!(document.warning("dead-time").contains("no byte moved for "), "{finished}");
    assert!(document.number("/window/dead_seconds") > 1.5);
}

#[test]
fn hosts_that_are_stopped_in_the_window() {
    let running = in_window("6s", &[]);
    stop_for(&running.children(), Duration::from_secs(3));
    is_invalid(&running.wait(), 2.8..4.0);
}

/// A thousand of their transactions are to begin meanwhile.
#[test]
fn hosts_of_a_paced_load_that_are_stopped_in_the_window() {
    let running = begin(Program::new(["run", "@rr", "--load", "1mbit", "--duration", "4s"]));
    stop_for(&running.children(), Duration::from_millis(1400));
    is_invalid(&running.wait(), 1.2..1.8);
}

/// Most of each pass is a thought, which ends while they are stopped.
#[test]
fn hosts_that_think_and_are_stopped_in_the_window() {
    let profile = profile("", "{ type = \"think\", duration = \"20ms\" }");
    let run = Program::new(["run", "thinks.toml", "--duration", "3s"]);
    let running = begin(run.file("thinks.toml", &profile));
    stop_for(&running.children(), Duration::from_secs(2));
    is_invalid(&running.wait(), 1.8..2.4);
}

/// One strand that writes, and what else is in its transactions.
fn profile(keys: &str, flowop: &str) -> String {
    format!(
        "name = \"idle\"\n[[group]]\n[[group.transaction]]\nflowops = [{{ type = \"connect\", remotehost = \
         \"${{h}}\", protocol = \"tcp\" }}]\n[[group.transaction]]\nduration = \"5s\"\n{keys}\nflowops = \
         [{{ type = \"write\", size = \"1k\" }}, {flowop}]\n"
    )
}

#[test]
fn a_peer_that_is_stopped_beyond_the_window() {
    let running = in_window("4s", &[]);
    let peer = *running.children().last().expect("agents");
    stop_for(&[peer], Duration::from_secs(10));
    let finished = running.wait();
    is_invalid(&finished, 2.0..4.1);
    // Its window has ended when it could read its counters again.
    let error = finished.document().text("/error").to_owned();
    assert!(error.contains("the windows of the hosts are "), "{error}");
}

/// Strands that think or are paced are idle because they are meant to be.
#[test]
fn thinking_and_pacing_are_not_dead_time() {
    let think = "{ type = \"think\", duration = \"1500ms\" }";
    for (keys, flowop) in [("", think), ("rate = 0.4", "")] {
        let document = Program::new(["run", "idle.toml", "--ramp", "0s", "--quiet"])
            .file("idle.toml", &profile(keys, flowop))
            .measure();
        assert!(!document.has_warning("dead-time"), "{keys}{flowop}");
        assert!(document.number("/window/dead_seconds") < 1e-9);
    }
}
