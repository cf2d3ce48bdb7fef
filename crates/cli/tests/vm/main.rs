//! Tests that need another kernel, or devices with features of hardware: three virtual machines under QEMU (`scripts/vm`), each
//! of which is booted once and runs its parts one after another. `make test-vm` runs them.
//!
//! `WIRECOST_VM_PARTS=WORD` runs only the parts whose names contain the word.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test fails by panicking, also in what it calls, and says how far it is"
)]

#[path = "../../../../tests/attempts.rs"]
mod attempts;
mod congestion;
mod departures;
#[path = "../end_to_end/document.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod document;
#[path = "../end_to_end/exact.rs"]
mod exact;
mod guest;
mod less_kernel;
mod machine_settings;
mod netem;
#[path = "../end_to_end/program.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod program;
mod protocols;
#[path = "../../../congestion/tests/congestion/flow/record.rs"]
mod record;
mod rss;
#[path = "../end_to_end/timed_datagrams.rs"]
mod timed_datagrams;
mod vm_up;

use guest::Guest;

/// The names of all engines that carry every protocol.
fn engines() -> impl Iterator<Item = &'static str> + Clone {
    let all = wirecost_load::engines::ALL.iter();
    all.filter(|engine| engine.is_general()).map(|engine| engine.name())
}

/// Debian's own kernel. Lockdown comes last, as it stays.
#[test]
fn kernel_6_1() {
    let parts = [protocols::parts(), netem::parts(), vec![less_kernel::part()]];
    Guest::new("kernel_6_1", parts.concat()).run();
}

/// The same with devices.
#[test]
fn devices_on_6_1() {
    let parts =
        [vec![departures::part(), congestion::part()], machine_settings::parts(), rss::parts()];
    vm_up::debian(Guest::new("devices_on_6_1", parts.concat()));
}

#[test]
fn kernel_6_12() {
    vm_up::version(Guest::new("kernel_6_12", Vec::new()), "6.12");
}
