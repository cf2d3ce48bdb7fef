//! Which resource was saturated.

use std::collections::BTreeMap;

use wirecost_model::run::{HostRow, Run};
use wirecost_model::units::decimal;

use super::line::mean;
use super::words;
use crate::measured::MeasuredPoint;
use crate::metrics;

/// Kinds of resources; where several are full, the first is the one that nothing else explains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Resource {
    /// Payload over the rate.
    Link,
    Cpus,
    OneCpu,
    /// A thread of the load generator.
    Worker,
    Memory,
    /// What TCP may have on its way at once.
    Window,
}

impl Resource {
    /// Share at which it is saturated.
    fn full(self) -> f64 {
        match self {
            Resource::Link => FULL_LINK,
            Resource::Cpus | Resource::OneCpu | Resource::Worker => 0.95,
            // Time under pressure, and time in which the window alone kept data back.
            Resource::Memory => 0.05,
            Resource::Window => 0.50,
        }
    }
}

/// The share of payload in the rate of a full link; the rest includes headers.
pub(super) const FULL_LINK: f64 = 0.90;

/// A resource in one run.
#[derive(Debug)]
pub(super) struct Seen {
    resource: Resource,
    /// `the link of h1`.
    pub(super) name: String,
    pub(super) share: f64,
    /// What the share is of.
    pub(super) unit: String,
}

/// Saturated resources at some points.
#[derive(Debug)]
pub(super) struct Limits {
    /// For the sentence, after "there": `the link of h2 (96% of 100 Mb/s) was saturated`.
    pub(super) text: String,
    pub(super) evidence: Vec<String>,
}

/// Resources saturated in the runs of these points, by the mean.
pub(super) fn limits(points: &[&MeasuredPoint]) -> Limits {
    let mut seen: BTreeMap<(Resource, String, String), Vec<f64>> = BTreeMap::new();
    let runs: Vec<&Run> = points.iter().flat_map(|point| &point.runs).collect();
    for one in runs.iter().flat_map(|run| of_run(run)) {
        seen.entry((one.resource, one.name, one.unit)).or_default().push(one.share);
    }
    let shares: Vec<(Resource, String, f64, String)> = seen
        .into_iter()
        .map(|((resource, name, unit), shares)| {
            // A run without this figure had none of it.
            let share = shares.iter().sum::<f64>() / runs.len() as f64;
            (resource, name, share, unit)
        })
        .collect();
    let is_full =
        |(resource, _, share, _): &&(Resource, String, f64, String)| *share >= resource.full();
    let first = shares.iter().find(is_full).map(|(resource, ..)| *resource);
    let text = match first {
        None => "no monitored resource was saturated".to_owned(),
        Some(resource) => {
            let full: Vec<String> = shares
                .iter()
                .filter(is_full)
                .filter(|(one, ..)| *one == resource)
                .map(|(_, name, share, unit)| format!("{name} ({:.0}% {unit})", share * 100.0))
                .collect();
            let were = match (resource, full.len()) {
                (Resource::Cpus, _) | (_, 2..) => "were",
                _ => "was",
            };
            let how = match resource {
                Resource::Window | Resource::Memory => "the limit",
                _ => "saturated",
            };
            format!("{} {were} {how}", words::list(&full))
        }
    };
    let mut evidence: Vec<String> = shares
        .iter()
        .map(|(_, name, share, unit)| format!("{name}: {:.0}% {unit}", share * 100.0))
        .collect();
    let foreign = runs.iter().filter(|run| has(run, "foreign-cpu")).count();
    if foreign > 0 {
        evidence.push(format!("other programs used CPU time in {foreign} of {} runs", runs.len()));
    }
    Limits { text, evidence }
}

pub(super) fn has(run: &Run, code: &str) -> bool {
    run.warnings.iter().any(|warning| warning.code == code)
}

fn of_run(run: &Run) -> Vec<Seen> {
    let mut seen = Vec::new();
    for host in &run.hosts {
        seen.extend(link(run, host));
        if has_own_cpus(run, host) {
            seen.extend(cpus(&whose(run, host), host.cpu.as_ref()));
        }
    }
    for machine in &run.machines {
        let shared =
            |name: &String| run.hosts.iter().any(|h| h.name == *name && !has_own_cpus(run, h));
        if machine.hosts.iter().any(shared) {
            seen.extend(cpus("the machine", machine.cpu.as_ref()));
        }
    }
    if has(run, "saturated-worker") {
        seen.push(Seen {
            resource: Resource::Worker,
            name: "a worker of the load generator".to_owned(),
            share: 1.0,
            unit: "of the runs".to_owned(),
        });
    }
    seen.extend(tcp(run));
    seen
}

/// Whether no other host of the run uses the CPUs of this one.
pub(super) fn has_own_cpus(run: &Run, host: &HostRow) -> bool {
    let beside = run.hosts.iter().filter(|other| host.shares_machine_with.contains(&other.name));
    let mut theirs = beside.flat_map(|other| &other.cpus);
    !theirs.any(|cpu| host.cpus.contains(cpu))
}

/// `the sender (h1)`.
pub(super) fn whose(run: &Run, host: &HostRow) -> String {
    let is = |role: &str| metrics::host_of(run, role).is_some_and(|found| found.name == host.name);
    let role = ["sender", "receiver"].into_iter().find(|role| is(role));
    role.map_or_else(|| host.name.clone(), |role| format!("the {role} ({})", host.name))
}

/// The fuller direction of a host's link.
pub(super) fn link(run: &Run, host: &HostRow) -> Option<Seen> {
    let rate = host.facts.link_bits_per_second? as f64;
    let (bytes, window) = (host.bytes.as_ref()?, run.window.as_ref()?);
    let sent = bytes.tx_sent + bytes.rx_sent;
    let received = bytes.tx_received + bytes.rx_received;
    // What is sent may be dropped on the way: where it came to is what counts.
    let arrived = run.throughput.as_ref().map_or(f64::INFINITY, |t| t.bits_per_second);
    let bits = (sent.max(received) as f64 * 8.0 / window.seconds).min(arrived);
    Some(Seen {
        resource: Resource::Link,
        name: format!("the link of {}", host.name),
        share: bits / rate,
        unit: format!("of {}", decimal(rate, "b/s")),
    })
}

/// All CPUs together, and the busiest where there are several.
fn cpus(whose: &str, cpu: Option<&wirecost_model::run::Cpu>) -> Vec<Seen> {
    let Some(cpu) = cpu else { return Vec::new() };
    let all = Seen {
        resource: Resource::Cpus,
        name: format!("the CPUs of {whose}"),
        share: 1.0 - cpu.idle / 100.0,
        unit: "busy".to_owned(),
    };
    let busiest = cpu.per_cpu.iter().map(|line| 100.0 - line.idle).fold(0.0, f64::max);
    let one = (cpu.per_cpu.len() > 1).then(|| Seen {
        resource: Resource::OneCpu,
        name: format!("one CPU of {whose}"),
        share: busiest / 100.0,
        unit: "busy".to_owned(),
    });
    [all].into_iter().chain(one).collect()
}

/// Memory of TCP, and windows at the end that sends more.
fn tcp(run: &Run) -> Vec<Seen> {
    let mut seen = Vec::new();
    let seconds = run.window.as_ref().map_or(0.0, |window| window.seconds);
    let sections = run.observe.iter().flat_map(|observe| &observe.hosts);
    let pressure = sections.clone().filter_map(|host| host.tcp.as_ref()?.memory.seconds);
    if let Some(pressure) = pressure.reduce(f64::max)
        && seconds > 0.0
    {
        seen.push(Seen {
            resource: Resource::Memory,
            name: "TCP memory".to_owned(),
            share: pressure / seconds,
            unit: "of the time under pressure".to_owned(),
        });
    }
    let busiest = sections
        .filter_map(|host| Some(&host.tcp.as_ref()?.windows))
        .filter(|windows| windows.busy_seconds.is_some_and(|busy| busy > 0.0))
        .max_by(|a, b| a.busy_seconds.unwrap_or(0.0).total_cmp(&b.busy_seconds.unwrap_or(0.0)));
    if let Some(windows) = busiest {
        let parts = [
            ("the receive window", windows.receive_window_limited_seconds),
            ("the send buffer", windows.send_buffer_limited_seconds),
        ];
        for (name, limited) in parts {
            let (Some(limited), Some(busy)) = (limited, windows.busy_seconds) else { continue };
            seen.push(Seen {
                resource: Resource::Window,
                name: name.to_owned(),
                share: limited / busy,
                unit: "of the sending time limited by it".to_owned(),
            });
        }
    }
    seen
}

/// Mean percent of the time that the CPUs of a host are busy, of the runs in which they are its own.
pub(super) fn busy(runs: &[&Run], role: &str) -> Option<f64> {
    let own = runs.iter().filter_map(|run| {
        let host = metrics::host_of(run, role).filter(|host| has_own_cpus(run, host))?;
        Some(100.0 - host.cpu.as_ref()?.idle)
    });
    let shares: Vec<f64> = own.collect();
    (!shares.is_empty()).then(|| mean(&shares))
}
