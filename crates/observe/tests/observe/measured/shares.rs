//! The shares of the probe `functions` against the clock of the thread that has them. The test runs in a process
//! of its own under scripts/test, so that only known loads are in its samples.

use std::fs;

use wirecost_linux::privilege;
use wirecost_model::observe::{FunctionsSection, ObserveRequest, Part};
use wirecost_model::proportion;
use wirecost_observe::Observer;

use crate::known;

/// Standard deviations of the intervals.
const Z: f64 = 4.5;

fn open(per_second: u32) -> Observer {
    let part = Part { pid: Some(std::process::id()), ..Part::default() };
    let request = ObserveRequest { probes: vec!["functions".to_owned()], parts: vec![part] };
    Observer::open_at(request, per_second)
}

fn close(mut observer: Observer) -> FunctionsSection {
    observer.end();
    observer.detach();
    observer.take().parts.remove(0).functions.expect("a section")
}

/// Samples whose stack has this frame.
fn with(section: &FunctionsSection, frame: &str) -> u64 {
    let stacks = section.stacks.stacks.iter();
    stacks
        .filter(|folded| folded.stack.split(';').any(|found| found == frame))
        .map(|folded| folded.count)
        .sum()
}

/// Nanoseconds in user space and in the kernel against the samples. What was not sampled though it was
/// used, as a hypervisor took the CPU away, and what came in between, may have been of either.
fn check(section: &FunctionsSection, user: u64, kernel: u64) {
    let is = kernel as f64 / (user + kernel) as f64;
    let in_read = with(section, "vfs_read_[k]");
    // The function of the kernel with the most samples of its own; vfs_read has some at times only, and a row with them.
    let in_kernel = section.functions.iter().filter(|row| row.module == "kernel");
    let row = in_kernel.max_by(|a, b| a.exclusive.total_cmp(&b.exclusive)).expect("its row");
    let in_it = with(section, &format!("{}_[k]", row.name));
    assert!((row.inclusive - in_it as f64 / section.samples as f64).abs() < 1e-9, "{row:?}");
    let application =
        section.layers.iter().find(|layer| layer.layer == "application").expect("user space");
    let in_user = (application.share * section.samples as f64).round() as u64;
    assert!(in_user <= section.user_samples, "{in_user} of {}: {section:#?}", section.user_samples);
    // Neither is what others make of it: being switched to and from, and interrupts.
    let all = in_read + in_user;
    // False failures: 1e-9 (x3), computed: of 1,250 samples half would be of switches and interrupts, not some percent.
    assert!(all as f64 > 0.5 * section.samples as f64, "{all} of {}", section.samples);
    let used = (user + kernel) as f64 / 1e9;
    let due = (used * f64::from(section.hz)).max(section.samples as f64);
    let known = all as f64 / due;
    let (low, high) = proportion::wilson(in_read, all, Z);
    // The clock of the thread leaves out what a hypervisor took; a sampler cannot tell.
    let (low, high) = (low * known - 0.01, high * known + 1.0 - known + 0.01);
    // False failures: 2e-5, computed: one of three shares of samples is 4.5 standard deviations off.
    assert!(low <= is && is <= high, "{is} is not in {low}..{high} ({all} samples)");
}

/// Descriptors of this process that are performance events.
fn events() -> usize {
    let all = fs::read_dir("/proc/self/fd").expect("descriptors").flatten();
    let links = all.filter_map(|entry| fs::read_link(entry.path()).ok());
    links.filter(|to| to.to_string_lossy().contains("perf_event")).count()
}

/// One test, as loads at once would be in each other's samples.
#[test]
fn functions_have_the_share_they_used() {
    if privilege::skip_without_tracing("functions_have_the_share_they_used") {
        return;
    }
    let mut observer = open(997);
    observer.attach();
    known::use_both(100);
    observer.begin();
    let (user, kernel) = known::use_both(2_500);
    let section = close(observer);
    assert_eq!((section.hz, section.lost), (997, 0));
    // False failures: 1e-9, computed: 2,500 ms of CPU time are 2,490 samples.
    assert!(section.samples > 1_000, "{}", section.samples);
    assert_eq!(section.samples, section.kernel_samples + section.user_samples);
    check(&section, user, kernel);
    // The function that it was in user space, by its name.
    let spin = section.functions.iter().find(|row| row.name.contains("clock_is_before"));
    let spin = spin.or(section.functions.iter().find(|row| row.name.contains("use_both")));
    assert!(spin.is_some_and(|row| row.layer == "application"), "{:?}", section.functions);

    // Two at once: each has its own, at its own rate.
    let (mut one, mut other) = (open(997), open(499));
    one.attach();
    other.attach();
    one.begin();
    other.begin();
    let (user, kernel) = known::use_both(2_500);
    let (one, other) = (close(one), close(other));
    check(&one, user, kernel);
    check(&other, user, kernel);
    // Two samples that are due while the CPU is away are one, which the faster loses more by.
    let ratio = one.samples as f64 / other.samples as f64;
    // False failures: 1e-9, computed: of 2,500 and 1,250 random samples the ratio is 2 with a deviation of 0.07.
    assert!((1.2..2.5).contains(&ratio), "{ratio}");
    assert_eq!(events(), 0);
}
