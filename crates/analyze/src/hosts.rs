//! A row per host and per machine: which CPUs it had, what they did, and what a byte cost.

use wirecost_model::link::LinkReport;
use wirecost_model::outcome::{HostOutcome, Outcome};
use wirecost_model::program::Side;
use wirecost_model::receive_stamps::{
    NotSampledSockets, ReceiveStamps, StampCounts, UnstampedMessages,
};
use wirecost_model::run::{HostRow, MachineRow, Memory};

use crate::cpu::{self, CpuUse};
use crate::figures;
use crate::foreign;
use crate::observed;
use crate::window::HostWindow;

const NO_WINDOW: &str = "no complete window";

/// Hosts that share a kernel, in the order of their first host.
pub(crate) fn by_machine(outcome: &Outcome) -> Vec<Vec<&HostOutcome>> {
    let mut machines: Vec<Vec<&HostOutcome>> = Vec::new();
    for host in &outcome.hosts {
        let known =
            machines.iter_mut().find(|hosts| hosts.iter().any(|other| same_machine(host, other)));
        match known {
            Some(hosts) => hosts.push(host),
            None => machines.push(vec![host]),
        }
    }
    machines
}

/// A host that could not read its boot id is taken for a machine of its own.
fn same_machine(a: &HostOutcome, b: &HostOutcome) -> bool {
    !a.facts.boot_id.is_empty() && a.facts.boot_id == b.facts.boot_id
}

/// The CPU time of emulated links is that of no host.
pub(crate) fn hosts(
    outcome: &Outcome,
    windows: &[HostWindow<'_>],
    link: Option<&LinkReport>,
) -> Vec<HostRow> {
    let row = |host| host_row(outcome, host, window_of(host, windows), link);
    outcome.hosts.iter().map(row).collect()
}

fn window_of<'a, 'b>(
    host: &HostOutcome,
    windows: &'b [HostWindow<'a>],
) -> Option<&'b HostWindow<'a>> {
    windows.iter().find(|w| std::ptr::eq(w.host, host))
}

fn host_row(
    outcome: &Outcome,
    host: &HostOutcome,
    window: Option<&HostWindow<'_>>,
    link: Option<&LinkReport>,
) -> HostRow {
    let bytes = window.map(|w| w.span.bytes());
    let used = window.and_then(|w| cpu::used(w, observed::of_host(outcome, w), Some(&host.cpus)));
    let used = used.map(|used| used.without(link, Some(&host.cpus)));
    let cycles = if !host.owns_cpus {
        Err("its CPUs are shared with another host of the run: see machines".to_owned())
    } else if let Some(bytes) = &bytes {
        cpu::cycles_per_kbyte(used.as_ref(), bytes.total())
    } else {
        Err(NO_WINDOW.to_owned())
    };
    HostRow {
        name: host.name.clone(),
        role: host.side,
        address: host.address.clone(),
        cpus: host.cpus.clone(),
        shares_machine_with: outcome
            .hosts
            .iter()
            .filter(|other| !std::ptr::eq(*other, host) && same_machine(host, other))
            .map(|other| other.name.clone())
            .collect(),
        workers: host.workers,
        busiest_worker: window.and_then(|w| {
            let shares = w.phase.workers.iter().filter_map(|worker| worker.busy);
            shares.reduce(f64::max)
        }),
        cpu_source: used.as_ref().map(|used| used.source.clone()),
        cycles_source: cycles_source(&cycles, used.as_ref()),
        cpu: used.map(|used| used.split),
        cycles_per_kbyte: cycles.as_ref().ok().copied(),
        // Of a host that has the machine for itself.
        foreign_cycles_per_kbyte: window
            .filter(|_| {
                !outcome.hosts.iter().any(|o| !std::ptr::eq(o, host) && same_machine(host, o))
            })
            .and_then(|w| foreign_cycles(outcome, &[host], w, &cycles)),
        cycles_reason: cycles.err(),
        bytes,
        receive_stamps: window.and_then(|w| w.phase.receive_stamps.as_ref()).map(receive_stamps),
        facts: host.facts.clone(),
        clock_offset_us: host.clock_offset as f64 / 1e3,
        clock_error_us: host.clock_error as f64 / 1e3,
        memory: window.and_then(|w| w.phase.memory).map(|(start, end)| Memory { start, end }),
    }
}

fn receive_stamps(counts: &StampCounts) -> ReceiveStamps {
    let StampCounts { sockets, messages, negative, by_device, clock_step, .. } = *counts;
    let not_sampled = counts.not_sampled.iter();
    let unstamped = counts.unstamped.iter();
    ReceiveStamps {
        sockets,
        not_sampled: not_sampled
            .map(|(&reason, &sockets)| NotSampledSockets { reason, sockets })
            .collect(),
        messages,
        delay_us: figures::microseconds(&counts.delays),
        negative,
        unstamped: unstamped
            .map(|(&reason, &messages)| UnstampedMessages { reason, messages })
            .collect(),
        by_device,
        clock_step_us: (clock_step != 0).then_some(clock_step as f64 / 1e3),
    }
}

pub(crate) fn machines(
    outcome: &Outcome,
    windows: &[HostWindow<'_>],
    link: Option<&LinkReport>,
) -> Vec<MachineRow> {
    let row = |hosts: Vec<&HostOutcome>| machine_row(outcome, &hosts, windows, link);
    by_machine(outcome).into_iter().map(row).collect()
}

fn machine_row(
    outcome: &Outcome,
    hosts: &[&HostOutcome],
    windows: &[HostWindow<'_>],
    link: Option<&LinkReport>,
) -> MachineRow {
    let here: Vec<&HostWindow<'_>> =
        hosts.iter().filter_map(|host| window_of(host, windows)).collect();
    // Every host of a machine reads the same /proc/stat; the first that did will do.
    let used =
        here.iter().find_map(|w| cpu::used(w, observed::of_machine(outcome, hosts, w), None));
    let used = used.map(|used| used.without(link, None));
    let cycles = if here.is_empty() {
        Err(NO_WINDOW.to_owned())
    } else {
        bytes_once(outcome, hosts, &here)
            .and_then(|bytes| cpu::cycles_per_kbyte(used.as_ref(), bytes))
    };
    MachineRow {
        name: hosts.first().map(|host| host.facts.hostname.clone()).unwrap_or_default(),
        hosts: hosts.iter().map(|host| host.name.clone()).collect(),
        cpus: hosts.first().map_or(0, |host| host.facts.machine_cpus),
        cpu_source: used.as_ref().map(|used| used.source.clone()),
        cycles_source: cycles_source(&cycles, used.as_ref()),
        cpu: used.map(|used| used.split),
        cycles_per_kbyte: cycles.as_ref().ok().copied(),
        foreign_cycles_per_kbyte: here
            .first()
            .and_then(|w| foreign_cycles(outcome, hosts, w, &cycles)),
        cycles_reason: cycles.err(),
    }
}

/// The part of a cost that other programs had.
fn foreign_cycles(
    outcome: &Outcome,
    hosts: &[&HostOutcome],
    window: &HostWindow<'_>,
    cycles: &Result<f64, String>,
) -> Option<f64> {
    let foreign = foreign::of(outcome, hosts, observed::of_machine(outcome, hosts, window)?)?;
    Some(cycles.as_ref().ok()? * foreign.share)
}

fn cycles_source(cycles: &Result<f64, String>, used: Option<&CpuUse>) -> Option<String> {
    cycles.as_ref().ok()?;
    used.map(|used| used.cycles_source().to_owned())
}

/// Bytes that this machine's CPUs handled at all, each counted once.
///
/// Every byte has one end on a master and one on a peer. With all hosts of the run here, a byte is
/// counted where it was received. With the hosts of one side only, each byte has one end here: what
/// they sent plus what they received. With all masters (or all peers) and some of the others, every
/// byte has an end on one of those. In any other case the bytes with both ends here are not told
/// from those with one.
fn bytes_once(
    outcome: &Outcome,
    hosts: &[&HostOutcome],
    here: &[&HostWindow<'_>],
) -> Result<u64, String> {
    let of_run = |side| outcome.hosts.iter().filter(|h| h.side == side).count();
    let of_machine = |side| hosts.iter().filter(|h| h.side == side).count();
    let handled = |side| {
        let windows = here.iter().filter(|w| w.host.side == side);
        windows.map(|w| w.span.bytes().total()).sum::<u64>()
    };
    let (masters, peers) = (of_machine(Side::Master), of_machine(Side::Peer));
    let all_masters = masters == of_run(Side::Master);
    let all_peers = peers == of_run(Side::Peer);
    if all_masters && all_peers {
        Ok(here.iter().map(|w| w.span.bytes().received()).sum())
    } else if peers == 0 || all_masters {
        Ok(handled(Side::Master))
    } else if masters == 0 || all_peers {
        Ok(handled(Side::Peer))
    } else {
        Err("masters and peers run both on this machine and on others: which bytes stayed on it is \
             unknown"
            .to_owned())
    }
}
