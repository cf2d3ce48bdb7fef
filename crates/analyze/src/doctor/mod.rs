//! The doctor: what of a host's surroundings spoils a benchmark, and what can be measured there.
//! Pure, as everything here: a list of checks, each a function of the [`Environment`].
//!
//! A check never takes what is not known for good or bad: it says that it is not known, and why.

mod capacity;
mod cpu;
mod device;
mod path;
mod probes;
mod settings;
#[cfg(test)]
mod tests;

use wirecost_model::doctor::{Examination, Finding, Subject, Unknown};
use wirecost_model::environment::{Device, Environment};

pub use capacity::{USER_BYTES, capacity};
pub use probes::probes;

/// Looks at one thing.
#[derive(Debug)]
pub struct Check {
    /// Unique, and stable for programs.
    pub name: &'static str,
    look: fn(&Environment, &mut Verdict),
}

/// Everything that is looked at. Within a severity findings come in this order.
pub const ALL: &[Check] = &[
    Check { name: "turbo", look: cpu::turbo },
    Check { name: "governor", look: cpu::governor },
    Check { name: "idle-states", look: cpu::idle_states },
    Check { name: "steal", look: cpu::steal },
    Check { name: "cpu-quota", look: cpu::quota },
    Check { name: "busy-host", look: cpu::busy_host },
    Check { name: "clocksource", look: cpu::clocksource },
    Check { name: "numa-balancing", look: cpu::numa_balancing },
    Check { name: "irqbalance", look: cpu::irqbalance },
    Check { name: "flow-control", look: device::flow_control },
    Check { name: "shaping", look: device::shaping },
    Check { name: "offloads", look: device::offloads },
    Check { name: "device-node", look: device::node },
    Check { name: "vector-node", look: device::vector_node },
    Check { name: "vector-spread", look: device::vector_spread },
    Check { name: "queues", look: device::queues },
    Check { name: "ring-size", look: device::rings },
    Check { name: "firewall", look: path::firewall },
    Check { name: "connection-tracking", look: path::connection_tracking },
    Check { name: "ipsec", look: path::ipsec },
    Check { name: "backlog", look: path::backlog },
    Check { name: "tcp-features", look: settings::tcp_features },
    Check { name: "socket-buffers", look: settings::socket_buffers },
    Check { name: "tcp-buffers", look: settings::tcp_buffers },
    Check { name: "tcp-memory", look: settings::tcp_memory },
    Check { name: "accept-queue", look: settings::accept_queue },
    Check { name: "port-range", look: settings::port_range },
    Check { name: "descriptors", look: settings::descriptors },
    Check { name: "io-uring", look: settings::io_uring },
    Check { name: "congestion-control", look: settings::congestion_control },
    Check { name: "coalescing", look: device::coalescing },
    Check { name: "receive-budget", look: path::receive_budget },
    Check { name: "busy-poll", look: settings::busy_poll },
    Check { name: "smt", look: cpu::smt },
    Check { name: "huge-pages", look: settings::huge_pages },
    Check { name: "bpf-jit", look: settings::bpf_jit },
];

/// What a check says.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    findings: Vec<Finding>,
    unknown: Vec<(Option<String>, String)>,
}

impl Verdict {
    fn finding(&mut self, finding: Finding) {
        self.findings.push(finding);
    }

    fn unknown(&mut self, reason: impl Into<String>) {
        self.unknown.push((None, reason.into()));
    }

    fn unknown_of(&mut self, about: &str, reason: impl Into<String>) {
        self.unknown.push((Some(about.to_owned()), reason.into()));
    }
}

/// Fills in all that follows from the surroundings, but for what can be measured ([`probes`]).
pub fn examine(environment: &Environment, examination: &mut Examination) {
    examination.host = Some(Subject {
        name: None,
        kernel: environment.kernel.release.clone(),
        cpu_model: environment.cpu.model.clone(),
        threads: environment.cpu.threads,
        virtual_machine: environment.cpu.virtual_machine,
        cycle_counter: environment.cpu.cycle_counter,
    });
    for check in ALL {
        let mut verdict = Verdict::default();
        (check.look)(environment, &mut verdict);
        let name = || check.name.to_owned();
        examination.checks.push(name());
        examination.findings.extend(
            verdict.findings.into_iter().map(|finding| Finding { check: name(), ..finding }),
        );
        let unknown = |(about, reason)| Unknown { check: name(), about, reason };
        examination.unknown.extend(verdict.unknown.into_iter().map(unknown));
    }
    // The order of the checks stays among those of one severity.
    examination.findings.sort_by_key(|finding| finding.severity);
}

/// Devices that are switched on and have a place on a bus: the ones with rings, queues and wires.
fn hardware<'a>(
    environment: &'a Environment,
    verdict: &mut Verdict,
) -> impl Iterator<Item = &'a Device> + use<'a> {
    up(environment, verdict).filter(|device| device.bus.is_some())
}

fn up<'a>(
    environment: &'a Environment,
    verdict: &mut Verdict,
) -> impl Iterator<Item = &'a Device> + use<'a> {
    if environment.devices.is_none() {
        verdict.unknown("the kernel did not list the devices");
    }
    environment.devices.iter().flatten().filter(|device| device.up)
}

/// Whether there is more than one place for memory, so that it matters where things are.
fn several_nodes(environment: &Environment) -> bool {
    environment.cpu.numa_nodes.as_ref().is_some_and(|nodes| nodes.len() > 1)
}

/// The reason for what only the host of a virtual machine knows, or else this one.
fn hidden(environment: &Environment, otherwise: &str) -> String {
    match environment.cpu.virtual_machine {
        Some(true) => "not visible in a virtual machine: check its host".to_owned(),
        _ => otherwise.to_owned(),
    }
}

/// CPUs in runs, as taskset(1) and the kernel write them: `0-3,8`.
fn list(cpus: &[u32]) -> String {
    let mut cpus = cpus.to_vec();
    cpus.sort_unstable();
    cpus.dedup();
    let runs = cpus.chunk_by(|one, next| one + 1 == *next);
    let run = |run: &[u32]| match run {
        [first, .., last] => format!("{first}-{last}"),
        [only] => only.to_string(),
        [] => String::new(),
    };
    runs.map(run).collect::<Vec<_>>().join(",")
}

/// Bytes as people say them of buffers: `208 KiB`.
fn bytes(bytes: i64) -> String {
    let bytes = bytes as f64;
    let (unit, one) = match bytes {
        b if b >= 1048576.0 => ("MiB", 1048576.0),
        b if b >= 1024.0 => ("KiB", 1024.0),
        _ => ("B", 1.0),
    };
    format!("{} {unit}", wirecost_model::units::three_digits(bytes / one))
}
