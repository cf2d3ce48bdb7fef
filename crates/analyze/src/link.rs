//! Emulated links in the window of a run.

use std::collections::BTreeMap;

use wirecost_model::clock;
use wirecost_model::histogram::Histogram;
use wirecost_model::link::netem::{NetemLineReport, NetemReport, UNKNOWN_OF_NETEM};
use wirecost_model::link::{
    LineCounts, LinePart, LineReport, LinkCounts, LinkError, LinkOutcome, LinkReport, LinkSample,
    NamedLine, WIRE_OVERHEAD,
};
use wirecost_model::observe::HostObservation;
use wirecost_model::outcome::Outcome;
use wirecost_model::run::{HostRow, Run};

use crate::window::HostWindow;
use crate::{hosts, observed};

/// Bits on the wire per second of the slowest link of a run: of an emulated link, or of the hosts' devices. `None` where
/// that of any host is unknown, as it may be the slowest, and over loopback, where no device sends.
pub(crate) fn rate(run: &Run) -> Option<u64> {
    let of_host = |host: &HostRow| match host.on_loopback() {
        true => None,
        false => host.facts.link_bits_per_second,
    };
    let of_hosts: Option<Vec<u64>> = run.hosts.iter().map(of_host).collect();
    emulated_rate(run).or_else(|| of_hosts?.into_iter().min())
}

/// Bits on the wire per second of an emulated link in the direction in which more bytes went; of a trace, its mean.
pub(crate) fn emulated_rate(run: &Run) -> Option<u64> {
    let of_lab = run.link.as_ref().map(|link| &link.link);
    let specs = of_lab.into_iter().chain(run.netem.as_ref().map(|netem| &netem.link));
    let to_master = run
        .throughput
        .as_ref()
        .is_some_and(|throughput| throughput.rx_bits_per_second > throughput.tx_bits_per_second);
    let emulated = specs.filter_map(|spec| {
        let direction = if to_master { &spec.back } else { &spec.forward };
        direction.capacity.mean()
    });
    emulated.min()
}

/// The report; `None` without emulated links or without two readings of their counters in the window.
pub(crate) fn report(outcome: &Outcome, windows: &[HostWindow<'_>]) -> Option<LinkReport> {
    let link = outcome.link.as_ref()?;
    let window = windows.first()?;
    // All hosts of a lab have the clock of its machine.
    let (start, end) = (window.span.start.at, window.span.end.at);
    let (first, last) = edges(&link.samples, |sample| sample.at, start, end)?;
    let seconds = clock::seconds(last.at - first.at);
    let (before, after) = (&first.counts, &last.counts);
    let none = LineCounts::default();
    let reports = after.lines.iter().map(|after| {
        let same = before.lines.iter().find(|before| before.name == after.name);
        let report = line(same.map_or(&none, |before| &before.counts), after, seconds);
        LineReport { parts: parts(&link.samples, &after.name, start, end), ..report }
    });
    let unheld =
        |counts: &LinkCounts| counts.lines.iter().map(|line| line.counts.unheld).sum::<u64>();
    let unheld = unheld(after) - unheld(before);
    let (mut error, mut late, mut refused) = (Histogram::new(), 0, 0);
    for (before, after) in before.sides.iter().zip(&after.sides) {
        error.merge(&after.error.since(&before.error));
        late += after.late - before.late;
        refused += after.refused - before.refused;
    }
    let devices = after.devices.iter().map(|after| {
        let same = before.devices.iter().find(|before| before.host == after.host);
        same.map_or_else(|| after.clone(), |before| after.since(before))
    });
    let scheduled = cpus(before, after, seconds);
    let all: f64 = scheduled.values().sum();
    let machine = hosts::by_machine(outcome).into_iter().next().unwrap_or_default();
    let traced =
        observed::of_machine(outcome, &machine, window).and_then(|seen| traced(link, seen));
    let cpu_percent = traced.unwrap_or(all);
    let scale = if all > 0.0 { cpu_percent / all } else { 0.0 };
    let microseconds = |quantile| error.quantile(quantile).map(|nanos| nanos as f64 / 1e3);
    let quantiles = microseconds(0.5).zip(microseconds(0.99)).zip(microseconds(1.0));
    Some(LinkReport {
        topology: link.topology,
        link: link.link.clone(),
        seconds,
        lines: reports.collect(),
        devices: devices.collect(),
        error_us: quantiles.map(|((p50, p99), max)| LinkError { p50, p99, max }),
        late: if error.is_empty() { 0.0 } else { late as f64 / error.count() as f64 },
        refused,
        unread: after.unread - before.unread,
        unheld,
        cpu_percent,
        cpu_source: if traced.is_some() { "bpf" } else { "schedstat" }.to_owned(),
        cpus: scheduled.into_iter().map(|(cpu, percent)| (cpu, percent * scale)).collect(),
    })
}

/// The report of links by netem; `None` without such links or without a window.
pub(crate) fn netem(outcome: &Outcome, windows: &[HostWindow<'_>]) -> Option<NetemReport> {
    let netem = outcome.netem.as_ref()?;
    let window = windows.first()?;
    let (start, end) = (window.span.start.at, window.span.end.at);
    let edges = edges(&netem.samples, |sample| sample.at, start, end);
    let seconds = edges.map_or(0.0, |(first, last)| clock::seconds(last.at - first.at));
    let lines = edges.iter().flat_map(|(first, last)| {
        last.lines.iter().map(move |after| {
            let before = first.lines.iter().find(|before| before.name == after.name);
            let line = before.map_or_else(|| after.clone(), |before| after.since(before));
            NetemLineReport { bits_per_second: line.wire_bits() as f64 / seconds, line }
        })
    });
    let mut unknown = UNKNOWN_OF_NETEM.map(str::to_owned).to_vec();
    if edges.is_none() {
        unknown
            .push("the counters of the queueing disciplines, which were not read twice".to_owned());
    }
    Some(NetemReport {
        topology: netem.topology,
        link: netem.link.clone(),
        seconds,
        lines: lines.collect(),
        unknown,
    })
}

/// The readings at both edges of the window: the first and the last within it, or around it where it has too few.
fn edges<T>(samples: &[T], at: impl Fn(&T) -> u64, start: u64, end: u64) -> Option<(&T, &T)> {
    let within = |sample: &&T| (start..=end).contains(&at(sample));
    let inner = samples.iter().find(within).zip(samples.iter().rev().find(within));
    let covers = |(first, last): &(&T, &T)| 2 * (at(last) - at(first)) >= end - start;
    inner.filter(covers).or_else(|| {
        let first = samples.iter().rev().find(|sample| at(sample) <= start).or(samples.first())?;
        let last = samples.iter().find(|sample| at(sample) >= end).or(samples.last())?;
        (at(last) > at(first)).then_some((first, last))
    })
}

fn line(before: &LineCounts, after: &NamedLine, seconds: f64) -> LineReport {
    let counts = after.counts.since(before);
    let packets = counts.sent + counts.cross;
    let bytes = counts.sent_bytes + counts.cross_bytes + packets * u64::from(WIRE_OVERHEAD);
    LineReport {
        line: NamedLine { name: after.name.clone(), counts },
        bits_per_second: bytes as f64 * 8.0 / seconds,
        parts: Vec::new(),
    }
}

/// A line from each reading within the window to the next.
fn parts(samples: &[LinkSample], name: &str, start: u64, end: u64) -> Vec<LinePart> {
    let within = samples.iter().filter(|sample| (start..=end).contains(&sample.at));
    let of = |sample: &'_ LinkSample| {
        let line = sample.counts.lines.iter().find(|line| line.name == name)?;
        Some((sample.at, line.clone()))
    };
    let readings: Vec<(u64, NamedLine)> = within.filter_map(of).collect();
    let pairs = readings.windows(2).filter(|pair| pair[1].0 > pair[0].0);
    pairs
        .map(|pair| {
            let (from, to) = (pair[0].0, pair[1].0);
            let seconds = clock::seconds(to - from);
            LinePart {
                start: clock::seconds(from - start),
                seconds,
                bits_per_second: line(&pair[0].1.counts, &pair[1].1, seconds).bits_per_second,
                queue_bytes: pair[1].1.counts.queue,
            }
        })
        .collect()
}

/// Percent of each CPU that threads of the emulator used, as the scheduler counts it.
fn cpus(before: &LinkCounts, after: &LinkCounts, seconds: f64) -> BTreeMap<u32, f64> {
    let mut percent = BTreeMap::new();
    for (before, after) in before.sides.iter().zip(&after.sides) {
        for (cpu, nanoseconds) in &after.cpu_nanoseconds {
            let before = before.cpu_nanoseconds.get(cpu).copied().unwrap_or_default();
            let used = clock::seconds(nanoseconds.saturating_sub(before));
            *percent.entry(*cpu).or_default() += used * 100.0 / seconds;
        }
    }
    percent
}

/// Percent of one CPU that the emulator used as a task, without softirqs that interrupted it.
fn traced(link: &LinkOutcome, seen: &HostObservation) -> Option<f64> {
    let cpu = seen.cpu.as_ref().filter(|cpu| cpu.source == "bpf")?;
    let users = cpu.users();
    let user = users.iter().find(|user| user.pid == Some(link.pid))?;
    (seen.seconds > 0.0).then(|| user.seconds * 100.0 / seen.seconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;
    use wirecost_model::link::{Capacity, Conditions, LinkSpec, Topology};

    fn run(forward: Capacity, back: Capacity) -> Run {
        let mut run = Run::empty("@stream", "epoll", "0.1.0", 0);
        let of = |capacity| Conditions { capacity, ..Conditions::default() };
        run.link = Some(LinkReport {
            topology: Topology::Pair,
            link: LinkSpec { forward: of(forward), back: of(back), ..LinkSpec::default() },
            seconds: 1.0,
            lines: Vec::new(),
            devices: Vec::new(),
            error_us: None,
            late: 0.0,
            refused: 0,
            unread: 0,
            unheld: 0,
            cpu_percent: 0.0,
            cpu_source: String::new(),
            cpus: BTreeMap::new(),
        });
        run
    }

    #[test]
    fn an_emulated_link_has_the_rate_of_the_busier_direction() {
        let mut run = run(Capacity::Rate(500), Capacity::Rate(20));
        run.throughput = Some(fixtures::throughput(7.0, 0));
        assert_eq!(rate(&run), Some(500));
        let throughput = run.throughput.as_mut().unwrap();
        (throughput.tx_bits_per_second, throughput.rx_bits_per_second) = (1.0, 7.0);
        assert_eq!(rate(&run), Some(20));
    }

    #[test]
    fn the_slowest_link_counts_and_none_is_unknown() {
        let mut run = run(Capacity::Unlimited, Capacity::Rate(20));
        assert_eq!(rate(&run), None);
        let mut host: HostRow = fixtures::host("h1");
        host.facts.link_bits_per_second = Some(300);
        run.hosts = vec![host, fixtures::host("h2")];
        assert_eq!(rate(&run), None, "that of h2 may be slower");
        run.hosts[1].facts.link_bits_per_second = Some(200);
        assert_eq!(rate(&run), Some(200));
        run.hosts[0].address = Some("127.0.0.1".to_owned());
        assert_eq!(rate(&run), None, "no device sends");
        run.link.as_mut().unwrap().link.forward.capacity =
            Capacity::Steps(vec![(1_000_000_000, 100)]);
        assert_eq!(rate(&run), Some(100));
    }
}
