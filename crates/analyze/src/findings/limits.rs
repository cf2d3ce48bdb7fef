//! Which resource was saturated.

use std::borrow::Cow;
use std::collections::BTreeMap;

use wirecost_model::run::{HostRow, Run};
use wirecost_model::units::decimal;

use super::line::mean;
use super::words;
use crate::measured::{MeasuredPoint, Measurements};
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
    /// Time of workers in calls that read or write files. Behind the CPUs: where these are full, the calls copied, and did
    /// not wait.
    Disk,
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
            Resource::Disk | Resource::Window => 0.50,
        }
    }
}

/// The share of payload in the rate of a full link; the rest includes headers.
pub(crate) const FULL_LINK: f64 = 0.90;

/// A resource in one run.
#[derive(Debug)]
pub(crate) struct Seen {
    resource: Resource,
    /// `the link of h1`.
    pub(super) name: String,
    pub(crate) share: f64,
    /// What the share is of.
    pub(super) unit: String,
}

/// A resource in all runs.
struct Shares {
    resource: Resource,
    name: String,
    unit: String,
    /// Of the runs that have it.
    of_runs: Vec<f64>,
    mean: f64,
    is_full: bool,
}

impl Shares {
    /// The mean; of workers each run's own, from the least to the most.
    fn written(&self) -> String {
        let range = self
            .of_runs
            .iter()
            .copied()
            .reduce(f64::min)
            .zip(self.of_runs.iter().copied().reduce(f64::max));
        match (self.resource, range) {
            (Resource::Worker, Some((least, most))) if self.of_runs.len() > 1 => {
                let (least, most) = (least * 100.0, most * 100.0);
                let runs = self.of_runs.len();
                format!("{least:.0} to {most:.0}% {} in {runs} runs", self.unit)
            }
            _ => format!("{:.0}% {}", self.mean * 100.0, self.unit),
        }
    }
}

/// Share of the runs in which a worker must have been saturated for it to be the limit.
const FULL_RUNS: f64 = 0.95;

/// Resources that a sentence names.
const NAMED: usize = 3;

/// Saturated resources at some points.
#[derive(Debug)]
pub(super) struct Limits {
    /// For the sentence, after "there": `the link of h2 was saturated (96% of 100 Mb/s)`.
    pub(super) text: String,
    pub(super) evidence: Vec<String>,
}

/// Resources saturated in the runs of these points, by the mean.
pub(super) fn limits(points: &[&MeasuredPoint]) -> Limits {
    limits_of(&points.iter().flat_map(|point| &point.runs).collect::<Vec<_>>())
}

/// Which resource was saturated in the runs of a point.
#[must_use]
pub fn saturated_at(point: &MeasuredPoint) -> String {
    limits(&[point]).text
}

/// CPU time that is worth telling, percent of all CPUs.
const STORAGE: f64 = 5.0;

/// What storage took of the CPUs at a point, by the mean of its runs, after what was saturated; none where it was little or
/// is unknown.
#[must_use]
pub fn storage_at(point: &MeasuredPoint) -> Option<String> {
    let of = |metric: &str, role: &str| {
        let metric = metrics::find(&format!("hosts.{role}.{metric}")).ok()?;
        let values: Vec<f64> = point.runs.iter().filter_map(|run| metric.of(run).ok()).collect();
        (!values.is_empty()).then(|| mean(&values))
    };
    let one = |role: &str| {
        let (irq, threads) = (of("storage.irq", role), of("storage.threads", role));
        let sum = irq.unwrap_or(0.0) + threads.unwrap_or(0.0);
        if sum < STORAGE {
            return None;
        }
        let part = |share: Option<f64>, what: &str| {
            let share = share.filter(|share| *share >= 0.5)?;
            Some(format!("{share:.0}% in {what}"))
        };
        let parts = [part(irq, "interrupts and softirqs"), part(threads, "kernel threads")];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        Some(format!(
            "storage took {sum:.0}% of the CPU time of the {role} ({})",
            words::list(&parts)
        ))
    };
    // Hosts of one machine have one figure.
    let shared = one("machine");
    let roles = || ["sender", "receiver"].into_iter().filter_map(one).collect::<Vec<_>>();
    let said = shared.map_or_else(roles, |text| vec![text]);
    (!said.is_empty()).then(|| said.join("; "))
}

/// Which resource was saturated in one run, as a sentence.
#[must_use]
pub fn saturated(run: &Run) -> String {
    let text = limits_of(&[run]).text;
    let mut letters = text.chars();
    letters
        .next()
        .map_or_else(String::new, |first| format!("{}{}.", first.to_uppercase(), letters.as_str()))
}

/// The same of all runs of a point, in the middle of a sentence, with its evidence.
pub(crate) fn limits_at(point: &MeasuredPoint) -> (String, Vec<String>) {
    let Limits { text, evidence } = limits(&[point]);
    (text, evidence)
}

fn limits_of(runs: &[&Run]) -> Limits {
    let mut seen: BTreeMap<(Resource, String, String), Vec<f64>> = BTreeMap::new();
    for one in runs.iter().flat_map(|run| of_run(run)) {
        seen.entry((one.resource, one.name, one.unit)).or_default().push(one.share);
    }
    let shares: Vec<Shares> = seen
        .into_iter()
        .map(|((resource, name, unit), of_runs)| {
            // A run without this figure had none of it.
            let mean = of_runs.iter().sum::<f64>() / runs.len() as f64;
            let saturated = of_runs.iter().filter(|share| **share >= resource.full()).count();
            let is_full = match resource {
                // One run in which the load generator was the limit says nothing of the others.
                Resource::Worker => saturated as f64 >= FULL_RUNS * runs.len() as f64,
                _ => mean >= resource.full(),
            };
            Shares { resource, name, unit, of_runs, mean, is_full }
        })
        .collect();
    let first = shares.iter().find(|shares| shares.is_full).map(|shares| shares.resource);
    let text = match first {
        None => "no monitored resource was saturated".to_owned(),
        Some(resource) => {
            let full: Vec<&Shares> = shares
                .iter()
                .filter(|shares| shares.is_full && shares.resource == resource)
                .collect();
            let were = match (resource, full.len()) {
                (Resource::Cpus, _) | (_, 2..) => "were",
                _ => "was",
            };
            let how = match resource {
                Resource::Window | Resource::Memory | Resource::Disk => "the limit",
                _ => "saturated",
            };
            let name = |shares: &&Shares| format!("{} ({})", shares.name, shares.written());
            if let [one] = full.as_slice() {
                format!("{} {were} {how} ({})", one.name, one.written())
            } else {
                let mut named: Vec<String> = full.iter().take(NAMED).map(name).collect();
                if full.len() > NAMED {
                    named.push(format!("{} more", full.len() - NAMED));
                }
                format!("{} {were} {how}", words::list(&named))
            }
        }
    };
    let mut evidence: Vec<String> = shares
        .iter()
        .map(|shares| {
            let each = of_each_run(&shares.of_runs);
            format!("{}: {:.0}% {}{each}", shares.name, shares.mean * 100.0, shares.unit)
        })
        .collect();
    let foreign = runs.iter().filter(|run| has(run, "foreign-cpu")).count();
    if foreign > 0 {
        evidence.push(format!("other programs used CPU time in {foreign} of {} runs", runs.len()));
    }
    Limits { text, evidence }
}

fn has(run: &Run, code: &str) -> bool {
    run.warnings.iter().any(|warning| warning.code == code)
}

/// Without the points with runs on emulated CPUs: their times say nothing of those on others.
pub(super) fn without_emulated_cpus(measured: &Measurements) -> Cow<'_, Measurements> {
    if !measured.points.iter().any(MeasuredPoint::has_emulated_cpus) {
        return Cow::Borrowed(measured);
    }
    let points = measured.points.iter().filter(|point| !point.has_emulated_cpus());
    Cow::Owned(Measurements { points: points.cloned().collect() })
}

/// Without the runs in which other programs used CPU time: what they did says nothing of the network.
pub(super) fn without_other_programs(measured: &Measurements) -> Cow<'_, Measurements> {
    let is_alone = |run: &Run| !has(run, "foreign-cpu");
    if measured.points.iter().flat_map(|point| &point.runs).all(is_alone) {
        return Cow::Borrowed(measured);
    }
    let mut measured = measured.clone();
    for point in &mut measured.points {
        point.runs.retain(is_alone);
    }
    Cow::Owned(measured)
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
    if let Some(share) = busiest_worker(run) {
        seen.push(Seen {
            resource: Resource::Worker,
            name: "a worker of the load generator".to_owned(),
            share,
            unit: "busy".to_owned(),
        });
    }
    seen.extend(disks(run));
    seen.extend(tcp(run));
    seen
}

/// The files of each host, as far as its workers waited for them.
fn disks(run: &Run) -> Vec<Seen> {
    let files = run.io.iter().flat_map(|io| &io.files);
    let seen = files.flat_map(|of| {
        let host = run.hosts.iter().find(|host| host.name == of.host);
        let whose = host.map_or_else(|| of.host.clone(), |host| whose(run, host));
        let one = |share: Option<f64>, does: &str| {
            Some(Seen {
                resource: Resource::Disk,
                name: format!("the disk of {whose}"),
                share: share?,
                unit: format!("of its workers' time in calls that {does} files"),
            })
        };
        [one(of.read_share, "read"), one(of.write_share, "write")]
    });
    seen.flatten().collect()
}

/// How busy the busiest worker of the run was. Older records have it only in the warning of one that
/// was saturated.
fn busiest_worker(run: &Run) -> Option<f64> {
    let measured = run.hosts.iter().filter_map(|host| host.busiest_worker).reduce(f64::max);
    let warned = || {
        let of_warning = |message: &str| {
            let (_, rest) = message.split_once("was busy ")?;
            Some(rest.split_once('%')?.0.parse::<f64>().ok()? / 100.0)
        };
        let warnings = run.warnings.iter().filter(|warning| warning.code == "saturated-worker");
        warnings.filter_map(|warning| of_warning(&warning.message)).reduce(f64::max)
    };
    measured.or_else(warned)
}

/// The shares of the runs, where they are not all the same when written.
fn of_each_run(shares: &[f64]) -> String {
    let written: Vec<String> =
        shares.iter().map(|share| format!("{:.0}%", share * 100.0)).collect();
    match written.first() {
        Some(first) if written.iter().any(|share| share != first) => {
            format!(" ({} in the runs)", words::list(&written))
        }
        _ => String::new(),
    }
}

/// Whether no other host of the run uses the CPUs of this one.
pub(crate) fn has_own_cpus(run: &Run, host: &HostRow) -> bool {
    !run.shares_cpus(host)
}

/// `the sender (h1)`.
pub(super) fn whose(run: &Run, host: &HostRow) -> String {
    let is = |role: &str| metrics::host_of(run, role).is_some_and(|found| found.name == host.name);
    let role = ["sender", "receiver"].into_iter().find(|role| is(role));
    role.map_or_else(|| host.name.clone(), |role| format!("the {role} ({})", host.name))
}

/// The fuller direction of a host's link.
pub(crate) fn link(run: &Run, host: &HostRow) -> Option<Seen> {
    let rate = host.facts.link_bits_per_second.or_else(|| crate::link::emulated_rate(run))? as f64;
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

#[cfg(test)]
mod tests {
    use super::*;
    use wirecost_model::study::Point;
    use wirecost_model::warning::{EmulatedCpu, Entry, Warning};

    use super::super::findings;
    use super::super::simulation::{self, Figures};
    use crate::fixtures;

    fn point(busy: &[Option<f64>]) -> MeasuredPoint {
        let run = |busy: &Option<f64>| {
            let mut run = Run::empty("@stream", "epoll", "0.1.0", 0);
            run.hosts = vec![HostRow { busiest_worker: *busy, ..fixtures::host("master") }];
            run
        };
        let (point, failed) = (Point::default(), Vec::new());
        MeasuredPoint { point, runs: busy.iter().map(run).collect(), failed }
    }

    /// Two hosts with CPUs of their own on one machine: the interrupts of its disk come to one of them.
    #[test]
    fn storage_is_told_of_the_machine_where_it_took_a_twentieth() {
        use wirecost_model::observe::{
            CpuSection, CpuTime, Handled, HostObservation, InterruptRow, InterruptsSection,
            ProcessTime,
        };
        use wirecost_model::run::Observe;

        let observed = |host: &str, seconds: f64| HostObservation {
            host: host.to_owned(),
            covers: vec![host.to_owned()],
            interrupts: Some(InterruptsSection {
                source: "bpf".to_owned(),
                seconds: 10.0,
                cpus: 1,
                interrupts: vec![InterruptRow {
                    source: "36".to_owned(),
                    total: Handled { seconds: Some(seconds), ..Handled::default() },
                    ..InterruptRow::default()
                }],
                storage_sources: Some(vec!["36".to_owned()]),
                ..InterruptsSection::default()
            }),
            cpu: Some(CpuSection {
                total: CpuTime { wall: 10.0, ..CpuTime::default() },
                processes: vec![ProcessTime {
                    pid: 7,
                    name: "jbd2/vda-8".to_owned(),
                    kernel_thread: true,
                    role: None,
                    seconds: 0.6,
                }],
                ..CpuSection::default()
            }),
            ..HostObservation::default()
        };
        let of = |seconds: f64| {
            let mut point = point(&[None]);
            let run = &mut point.runs[0];
            run.hosts.push(fixtures::host("peer"));
            let mut machine = fixtures::machine("master", 1000.0);
            machine.hosts.push("peer".to_owned());
            run.machines = vec![machine];
            run.observe = Some(Observe {
                cost: None,
                cost_reason: None,
                probes: Vec::new(),
                hosts: vec![observed("master", 0.0), observed("peer", seconds)],
                passes: Vec::new(),
            });
            storage_at(&point)
        };
        let text = "storage took 16% of the CPU time of the machine (10% in interrupts and softirqs \
                    and 6% in kernel threads)";
        assert_eq!(of(2.0).as_deref(), Some(text));
        // Kernel threads alone.
        let text = "storage took 6% of the CPU time of the machine (6% in kernel threads)";
        assert_eq!(of(0.0).as_deref(), Some(text));
        assert_eq!(storage_at(&point(&[None])), None);
    }

    #[test]
    fn a_saturated_worker_is_told_with_the_share_of_each_run() {
        let of = |busy: &[Option<f64>]| limits(&[&point(busy)]);
        let limits = of(&[Some(0.97), Some(0.99), Some(0.96)]);
        let text = "a worker of the load generator was saturated (96 to 99% busy in 3 runs)";
        assert_eq!(limits.text, text);
        assert!(
            limits.evidence.contains(
                &"a worker of the load generator: 97% busy (97%, 99% and 96% in the runs)"
                    .to_owned()
            ),
            "{:?}",
            limits.evidence
        );
        // The mean would be saturated: one run was not.
        let none = "no monitored resource was saturated";
        assert_eq!(of(&[Some(1.0), Some(1.0), Some(0.90)]).text, none);
        assert_eq!(of(&[None]).text, none);
    }

    #[test]
    fn a_side_whose_workers_wait_for_files_is_the_limit_unless_its_cpu_is() {
        use wirecost_model::run::{FileUse, Io};

        let mut measured = point(&[Some(0.60)]);
        let run = &mut measured.runs[0];
        run.hosts.push(HostRow { busiest_worker: Some(0.30), ..fixtures::host("peer") });
        let files = |write_share| FileUse {
            host: "peer".to_owned(),
            write_share: Some(write_share),
            ..FileUse::default()
        };
        let sender = FileUse { host: "master".to_owned(), read_share: Some(0.2), ..files(0.0) };
        let sender = FileUse { write_share: None, ..sender };
        let of = |measured: &mut MeasuredPoint, write_share| {
            let files = vec![sender.clone(), files(write_share)];
            measured.runs[0].io = Some(Io { files, ..Io::default() });
            limits(&[&*measured]).text
        };
        let text = of(&mut measured, 0.83);
        assert!(text.starts_with("the disk of ") && text.contains("peer"), "{text}");
        assert!(
            text.ends_with("was the limit (83% of its workers' time in calls that write files)"),
            "{text}"
        );
        assert_eq!(of(&mut measured, 0.49), "no monitored resource was saturated");
        measured.runs[0].hosts[1].busiest_worker = Some(0.99);
        assert!(of(&mut measured, 0.83).starts_with("a worker of the load generator"));
    }

    /// A hundredth of the rate, as of an emulated CPU.
    #[test]
    fn no_finding_uses_emulated_cpus() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut study = simulation::study(&[("place", &["lab", "vm:6.1"])], 5, |at| {
            let slow = if at[0] == "lab" { 1.0 } else { 100.0 };
            let figures = Figures { bits_per_second: 1e9 / slow, ..Figures::default() };
            figures.noisy(0.01, &mut random)
        });
        let about_places = |study: &Measurements| {
            findings(study).iter().filter(|found| found.axis.as_deref() == Some("place")).count()
        };
        assert!(about_places(&study) > 0);
        let warning = Warning::from(EmulatedCpu { host: "h1".to_owned() });
        study.points[1].runs.iter_mut().for_each(|run| run.warnings.push(Entry::from(&warning)));
        assert_eq!(about_places(&study), 0);
    }
}
