//! Hooks are there while they are wanted, and not a moment longer. Each test runs in a process of its own under
//! scripts/test, whose descriptors it counts.

use std::fs;

use wirecost_linux::privilege;
use wirecost_model::observe::{ObserveRequest, Part};
use wirecost_observe::Observer;

/// Descriptors of this process that hold a BPF program in a hook.
fn links() -> usize {
    let all = fs::read_dir("/proc/self/fd").expect("descriptors").flatten();
    let links = all.filter_map(|entry| fs::read_link(entry.path()).ok());
    links.filter(|to| to.to_string_lossy().contains("bpf_link")).count()
}

#[test]
fn hooks_are_gone_when_they_are_not_wanted() {
    if privilege::skip_without_tracing("hooks_are_gone_when_they_are_not_wanted") {
        return;
    }
    let probes = wirecost_observe::names().map(str::to_owned).collect();
    let mut observer = Observer::open(ObserveRequest { probes, parts: vec![Part::default()] });
    assert_eq!(links(), 0);
    for _ in 0..2 {
        observer.attach();
        assert!(links() >= 10);
        observer.begin();
        observer.end();
        observer.detach();
        assert_eq!(links(), 0);
    }
}

/// Set for the child of [`a_killed_observer_leaves_nothing`].
const CHILD: &str = "WIRECOST_TEST_OBSERVES";

/// Not a test but what the test's child does: observes until it is killed.
#[test]
fn observes_until_it_is_killed() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let probes = wirecost_observe::names().map(str::to_owned).collect();
    let mut observer = Observer::open(ObserveRequest { probes, parts: vec![Part::default()] });
    observer.attach();
    observer.begin();
    // Whoever started it may be killed, too.
    std::thread::sleep(std::time::Duration::from_secs(60));
}

/// Programs that a process holds, by the kernel's numbers.
fn programs_of(pid: u32) -> Vec<u32> {
    let all = fs::read_dir(format!("/proc/{pid}/fdinfo")).into_iter().flatten().flatten();
    let texts = all.filter_map(|entry| fs::read_to_string(entry.path()).ok());
    let numbers = texts.filter_map(|text| {
        text.lines().find_map(|line| line.strip_prefix("prog_id:")?.trim().parse().ok())
    });
    numbers.collect()
}

#[test]
fn a_killed_observer_leaves_nothing() {
    if privilege::skip_without_tracing("a_killed_observer_leaves_nothing") {
        return;
    }
    let mut child = std::process::Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "hooks::observes_until_it_is_killed", "--nocapture"])
        .env(CHILD, "1")
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("the child starts");
    // Programs, and the links that hold them in their hooks.
    let mut programs = Vec::new();
    while programs.len() < 20 {
        assert!(child.try_wait().expect("a child").is_none(), "it ended by itself");
        std::thread::sleep(std::time::Duration::from_millis(5));
        programs = programs_of(child.id());
    }
    child.kill().expect("it is there");
    child.wait().expect("it ends");
    // The kernel frees them when no CPU runs them any more.
    let left = || {
        let all: Vec<u32> = libbpf_rs::query::ProgInfoIter::default().map(|p| p.id).collect();
        programs.iter().filter(|program| all.contains(program)).count()
    };
    while left() > 0 {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}
