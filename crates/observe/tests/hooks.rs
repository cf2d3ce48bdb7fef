//! Hooks are there while they are wanted, and not a moment longer. Alone in its process, because it
//! counts the descriptors of the process.

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
