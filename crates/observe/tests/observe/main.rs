//! The probes on loads that are known, against what the kernel, a capture or other programs count.
#![cfg(test)]

mod alone;
#[path = "../../../../tests/attempts.rs"]
mod attempts;
mod capture;
mod cpu;
mod devices;
mod drops;
mod foreign_segments;
mod hooks;
mod interrupts;
mod known;
mod measured;
mod memory;
mod nic;
mod other_programs;
mod packet_peer;
mod pmu;
mod scheduling;
mod segments;
mod syscalls;
mod tcp;
mod two_hosts;
