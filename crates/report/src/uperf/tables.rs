//! The tables that follow uperf's totals: groups, threads, averages of transactions and flowops, devices.
//!
//! Where uperf prints a defect, these do not: the bytes of a group count once (uperf: once for each of its
//! flowops), and longest and shortest are those of single operations (uperf: of `count` operations together).

use std::io::{self, Write};

use wirecost_model::clock::Nanos;
use wirecost_model::histogram::Histogram;
use wirecost_model::measure::{Edge, FlowopCounts, FlowopKey, PhaseResult};
use wirecost_model::outcome::{HostOutcome, Outcome};
use wirecost_model::profile::Group;
use wirecost_model::program::Side;
use wirecost_model::visible::visible;

use super::RULE;
use super::numbers::{bits_per_second, time};

/// What is known at the end of a run beside its events.
#[derive(Debug, Clone, Copy)]
pub struct Details<'a> {
    pub outcome: &'a Outcome,
    /// Those of the profile.
    pub groups: &'a [Group],
    /// Of the master's machine.
    pub devices: &'a [DeviceRates],
}

/// What a network device has done per second, from the beginning of the run to its end.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceRates {
    pub name: String,
    pub sent_packets: f64,
    pub received_packets: f64,
    pub sent_bits: f64,
    pub received_bits: f64,
}

/// Operations and bytes of a part of the run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Sum {
    pub(super) bytes: u64,
    pub(super) operations: u64,
    pub(super) failed: u64,
}

impl Sum {
    fn add(&mut self, row: &FlowopCounts) {
        self.bytes += row.bytes;
        self.operations += row.done + row.failed;
        self.failed += row.failed;
    }
}

/// The flowops of a phase with all that they have done in it.
fn rows(phase: &PhaseResult) -> impl Iterator<Item = (&FlowopKey, &FlowopCounts)> {
    let end = phase.snapshot(Edge::PhaseEnd).into_iter();
    end.flat_map(|snapshot| phase.flowops.iter().zip(&snapshot.counters.flowops))
}

/// Whether the master has ended every phase. Of one that broke off, the tables would show zeros.
pub(super) fn are_complete(details: Details<'_>) -> bool {
    let ended = master(details.outcome).map_or(&[][..], |host| &host.phases);
    ended.len() == details.outcome.phases.len()
        && ended.iter().all(|phase| phase.snapshot(Edge::PhaseEnd).is_some())
}

/// What a host has done for a group in all phases.
pub(super) fn of_group(host: &HostOutcome, group: u32) -> Sum {
    let mut sum = Sum::default();
    let rows = host.phases.iter().flat_map(rows);
    rows.filter(|(key, _)| key.group == group).for_each(|(_, row)| sum.add(row));
    sum
}

fn master(outcome: &Outcome) -> Option<&HostOutcome> {
    outcome.hosts.iter().find(|host| host.side == Side::Master)
}

pub(super) fn groups(out: &mut impl Write, details: Details<'_>) -> io::Result<Vec<(String, Sum)>> {
    heading(out, "Group Details")?;
    let sums = (0..).zip(details.groups).map(|(number, group)| {
        let sum = master(details.outcome).map(|host| of_group(host, number)).unwrap_or_default();
        (visible(&group.name).into_owned(), sum)
    });
    Ok(sums.collect())
}

/// Of each thread of each group; uperf counts them from 0 in each.
pub(super) fn threads(
    out: &mut impl Write,
    details: Details<'_>,
) -> io::Result<Vec<(String, Sum)>> {
    heading(out, "Strand Details")?;
    let Some(host) = master(details.outcome) else { return Ok(Vec::new()) };
    let mut all = Vec::new();
    for (number, group) in (0u32..).zip(details.groups) {
        let mut of_threads = vec![Sum::default(); group.strands as usize];
        for phase in &host.phases {
            let (mut operations, mut transactions) = (0, 0);
            for (_, row) in rows(phase).filter(|(key, _)| key.group == number) {
                operations += row.done + row.failed;
            }
            let strands = || phase.strands.iter().filter(|strand| strand.group == number);
            strands().for_each(|strand| transactions += strand.transactions);
            for strand in strands() {
                let Some(sum) = of_threads.get_mut(strand.strand as usize) else { continue };
                sum.bytes += strand.bytes;
                sum.operations += share(operations, strand.transactions, transactions);
            }
        }
        all.extend((0..).zip(of_threads).map(|(thread, sum)| (format!("Thr{thread}"), sum)));
    }
    Ok(all)
}

/// Operations of a thread: each of its transactions has as many as those of the others in its group.
fn share(operations: u64, transactions: u64, all: u64) -> u64 {
    let product = u128::from(operations) * u128::from(transactions);
    product.checked_div(u128::from(all)).and_then(|n| u64::try_from(n).ok()).unwrap_or(0)
}

/// One row for each transaction of each group; uperf counts them from 0 here.
pub(super) fn transactions(out: &mut impl Write, details: Details<'_>) -> io::Result<()> {
    average_heading(out, "Txn")?;
    let phases = master(details.outcome).map_or(&[][..], |host| &host.phases);
    for number in 0..details.groups.len() as u32 {
        for phase in phases {
            let strands = phase.strands.iter().filter(|strand| strand.group == number);
            let count = strands.map(|strand| strand.transactions).sum();
            let latency = phase.group_transactions.get(&number);
            average(out, &format!("Txn{}", phase.phase), count, latency)?;
        }
    }
    writeln!(out)
}

/// One row for each flowop of each group.
pub(super) fn flowops(out: &mut impl Write, details: Details<'_>) -> io::Result<()> {
    average_heading(out, "Flowop")?;
    let phases = master(details.outcome).map_or(&[][..], |host| &host.phases);
    for number in 0..details.groups.len() as u32 {
        for phase in phases {
            for (key, row) in rows(phase).filter(|(key, _)| key.group == number) {
                let mut latencies = phase.latencies.iter();
                let latency = latencies.find(|of| of.key == *key).map(|of| &of.latency);
                average(out, &key.kind, row.done + row.failed, latency)?;
            }
        }
    }
    writeln!(out)
}

pub(super) fn devices(out: &mut impl Write, devices: &[DeviceRates]) -> io::Result<()> {
    heading(out, "Netstat statistics for this run")?;
    let [name, sent, received] = ["Nic", "opkts/s", "ipkts/s"];
    writeln!(out, "{name:<5}  {sent:>10}  {received:>10}  {:>11}  {:>11}", "obits/s", "ibits/s")?;
    for device in devices.iter().filter(|d| d.sent_packets > 0.0 || d.received_packets > 0.0) {
        writeln!(
            out,
            "{:<5}  {:>10.0}  {:>10.0}  {:>11}  {:>11} ",
            visible(&device.name),
            device.sent_packets,
            device.received_packets,
            bits_per_second(device.sent_bits),
            bits_per_second(device.received_bits),
        )?;
    }
    writeln!(out, "{}", "-".repeat(RULE))
}

fn heading(out: &mut impl Write, title: &str) -> io::Result<()> {
    writeln!(out, "\n{title}\n{}", "-".repeat(RULE))
}

fn average_heading(out: &mut impl Write, name: &str) -> io::Result<()> {
    let [count, average, cpu, longest, shortest] = ["Count", "avg", "cpu", "max", "min"];
    writeln!(
        out,
        "\n{name:<15} {count:>8} {average:>11} {cpu:>11} {longest:>11} {shortest:>11} \n{}",
        "-".repeat(RULE)
    )
}

/// Nothing where there is nothing to take an average of. CPU time is 0, as it is of uperf on Linux.
fn average(
    out: &mut impl Write,
    name: &str,
    count: u64,
    latency: Option<&Histogram>,
) -> io::Result<()> {
    if count == 0 {
        return Ok(());
    }
    let known = |value: Option<f64>| value.unwrap_or(0.0);
    let nanos = |value: Option<Nanos>| time(known(value.map(|nanos| nanos as f64)));
    writeln!(
        out,
        "{name:<15} {count:>8} {:>11} {:>11} {:>11} {:>11} ",
        time(known(latency.and_then(Histogram::mean))),
        time(0.0),
        nanos(latency.and_then(Histogram::max)),
        nanos(latency.and_then(Histogram::min)),
    )
}
