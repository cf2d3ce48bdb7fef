//! Warnings and errors of a run, other than the check of sent against received.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use wirecost_model::clock::Nanos;
use wirecost_model::environment::Environment;
use wirecost_model::measure::{Edge, FileChecks, IoCounts, Setting};
use wirecost_model::observe::ThreadScheduling;
use wirecost_model::outcome::{HostOutcome, Outcome};
use wirecost_model::profile::Until;
use wirecost_model::program::Side;
use wirecost_model::run::{FileUse, Run};
use wirecost_model::warning::{self, Warning};

use crate::foreign;
use crate::hardware;
use crate::hosts;
use crate::intervals;
use crate::observed;
use crate::window::{self, HostWindow, Span};

/// A worker this busy is saturated.
const SATURATED: f64 = 0.95;
const STEAL_PERCENT: f64 = 1.0;
const UNACCOUNTED_PERCENT: f64 = 2.0;
/// A smaller share of the busy time changes no conclusion.
const FOREIGN_PERCENT: f64 = 5.0;
/// Of the window: a worker that waited less for a CPU is as good as alone there.
const WAITED_PERCENT: f64 = 1.0;
/// Late frames of emulated links.
const LINK_LATE: f64 = 0.01;
const SKEW_MILLISECONDS: f64 = 10.0;
/// Of the window between hosts; of a short one at least as long as a busy host may keep the thread that
/// reads counters waiting.
const SKEW_SHARE: f64 = 0.01;
const SHORTEST_SKEW_NANOS: f64 = 50e6;
const CLOCK_ERROR_NANOS: u64 = 100_000;
/// A path without loss and reordering has fewer.
const RETRANSMITTED: f64 = 0.001;
/// A tail loss probe or two of a short window tell nothing of the path.
const FEW_RETRANSMITS: u64 = 10;
/// Less of the offered load than this is missing at the edges of a window.
const NOT_REACHED: f64 = 0.05;
/// Standard deviations that chance alone is not beyond.
const FEW_SIGMA: f64 = 4.0;
/// With a greater share of datagrams that came by the kernel's UDP, an engine of frames is not what was measured.
const BYPASSED: f64 = 0.01;
/// At this share of copies the figures are not those of zero-copy.
const COPIED: f64 = 0.01;

/// Of a source, that was in the page cache and should not have been, or was not and should have been.
const UNWANTED: f64 = 0.05;

#[derive(Debug, Default)]
pub(crate) struct RunProblems {
    pub(crate) warnings: Vec<Warning>,
    pub(crate) errors: Vec<String>,
}

/// Finds all problems; those of hosts and controller come first. `run` has its figures already.
pub(crate) fn of(
    outcome: &Outcome,
    headline: Option<usize>,
    windows: &[HostWindow<'_>],
    run: &Run,
) -> RunProblems {
    let mut problems = RunProblems::default();
    let warnings = &mut problems.warnings;
    warnings.extend(outcome.warnings.iter().cloned());
    if let Some(link) =
        run.link.as_ref().filter(|link| link.late > LINK_LATE || link.lost_frames() > 0)
    {
        warnings.push(Warning::from(warning::LinkLate {
            late: link.late,
            p99: link.error_us.map_or(0.0, |error| error.p99),
            lost: link.lost_frames(),
        }));
    }
    if outcome.link.is_some() && run.link.is_none() && !windows.is_empty() {
        warnings.push(Warning::from(warning::LinkUnmeasured {}));
    }
    if run.netem.as_ref().is_some_and(|netem| netem.lines.is_empty()) {
        warnings.push(Warning::from(warning::LinkQdiscsUnread {}));
    }
    for host in &outcome.hosts {
        warnings.extend(host.warnings.iter().cloned());
    }
    warnings.extend(outcome.hosts.iter().filter_map(emulated));
    saturated(windows, warnings);
    intervals_and_edges(windows, warnings);
    skew(outcome, headline, windows, &mut problems.errors);
    let warnings = &mut problems.warnings;
    cpus(outcome, run, warnings);
    foreign(outcome, windows, warnings);
    changed(run, warnings);
    waited(run, warnings);
    warnings.extend(run.settings.iter().filter_map(clipped));
    clocks(outcome, warnings);
    datagrams(outcome, headline, run, warnings);
    moved(run, warnings);
    warnings.extend(retransmitted(outcome, run));
    warnings.extend(not_reached(run));
    io_options(run, windows, warnings);
    failed(outcome, warnings);
    unfinished(outcome, &mut problems);
    unverified(outcome, &mut problems.errors);
    nothing_moved(run, &mut problems);
    problems
}

/// Placement by a device's table is of queues, whose CPUs nobody chose.
fn moved(run: &Run, warnings: &mut Vec<Warning>) {
    let mut strands: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for strand in run.placements.iter().flatten() {
        let Some(cpu) = strand.cpu else { continue };
        let (moved, of) = strands.entry(&strand.peer).or_default();
        *moved += u64::from(strand.arrived_on.iter().any(|arrived| *arrived != cpu));
        *of += 1;
    }
    for (host, (strands, of)) in strands.into_iter().filter(|(_, (moved, _))| *moved > 0) {
        warnings.push(Warning::from(warning::FlowsMoved { host: host.to_owned(), strands, of }));
    }
}

fn emulated(host: &HostOutcome) -> Option<Warning> {
    let environment = Environment::deserialize(&host.environment).ok()?;
    let host = host.name.clone();
    (environment.cpu.emulated == Some(true)).then(|| warning::EmulatedCpu { host }.into())
}

fn saturated(windows: &[HostWindow<'_>], warnings: &mut Vec<Warning>) {
    for window in windows {
        let workers = window.phase.workers.iter();
        for (worker, busy) in workers.filter_map(|worker| Some((worker, worker.busy?))) {
            if busy < SATURATED {
                continue;
            }
            warnings.push(Warning::from(warning::SaturatedWorker {
                host: window.host.name.clone(),
                worker: worker.worker,
                cpu: worker.cpu,
                busy,
            }));
        }
    }
}

fn intervals_and_edges(windows: &[HostWindow<'_>], warnings: &mut Vec<Warning>) {
    let length = intervals::length(windows);
    for window in windows {
        let host = &window.host.name;
        if let Some((lost, of)) = length.map(|length| intervals::lost(window, length))
            && lost > 0
        {
            warnings.push(Warning::from(warning::LostIntervals { host: host.clone(), lost, of }));
        }
        let off = [window.span.start, window.span.end]
            .map(|snapshot| snapshot.at.abs_diff(snapshot.due) as f64 / 1e6)
            .into_iter()
            .fold(0.0, f64::max);
        if off > SKEW_MILLISECONDS {
            warnings
                .push(Warning::from(warning::WindowSkew { host: host.clone(), milliseconds: off }));
        }
    }
}

/// Windows that are not of the same time at all hosts.
fn skew(
    outcome: &Outcome,
    headline: Option<usize>,
    windows: &[HostWindow<'_>],
    errors: &mut Vec<String>,
) {
    let plan = headline.and_then(|phase| outcome.phases.get(phase));
    // Where iterations decide, each host's window ends with its own.
    if !plan.is_some_and(|plan| matches!(plan.until, Until::Duration(_))) {
        return;
    }
    let apart = |pick: fn(&Span<'_>) -> Nanos| {
        let at = |window: &HostWindow<'_>| {
            i128::from(pick(&window.span)) - i128::from(window.host.clock_offset)
        };
        let first = windows.iter().map(at).min().unwrap_or(0);
        let last = windows.iter().map(at).max().unwrap_or(0);
        (last - first) as f64
    };
    let skew = apart(|span| span.start.at).max(apart(|span| span.end.at));
    let uncertain: f64 = windows.iter().map(|window| window.host.clock_error as f64).sum();
    let length = windows.iter().map(|window| window.span.seconds()).fold(0.0, f64::max);
    let most = (length * SKEW_SHARE * 1e9).max(SHORTEST_SKEW_NANOS);
    for window in windows {
        let end = window.span.end;
        let is_over =
            window.phase.snapshot(Edge::PhaseEnd).is_some_and(|last| last.counters == end.counters);
        let late = end.at.saturating_sub(end.due) as f64;
        if is_over && late > most {
            errors.push(format!(
                "the window of {} ended {:.3} s late, after its traffic: the host was too busy to read its counters \
                 on time",
                window.host.name,
                late / 1e9
            ));
        }
    }
    if skew - uncertain > most {
        errors.push(format!(
            "the windows of the hosts are {:.3} s apart, more than a percent of the window of \
             {length:.1} s: a host was stopped, or too busy to read its counters on time",
            skew / 1e9
        ));
    }
}

/// Steal and unaccounted time, by host where it has CPUs of its own, else by machine.
fn cpus(outcome: &Outcome, run: &Run, warnings: &mut Vec<Warning>) {
    let of_hosts = run.hosts.iter().map(|row| (&row.name, &row.cpu));
    let shared = |name: &String| {
        let row = run.hosts.iter().find(|row| row.name == *name);
        row.is_some_and(|row| row.cpu.is_none())
    };
    let of_machines = run
        .machines
        .iter()
        .filter(|row| row.hosts.iter().any(shared))
        .map(|row| (&row.name, &row.cpu));
    for (name, cpu) in of_hosts.chain(of_machines) {
        let Some(cpu) = cpu else { continue };
        if cpu.steal > STEAL_PERCENT {
            warnings.push(Warning::from(warning::Steal { host: name.clone(), percent: cpu.steal }));
        }
        if cpu.unaccounted.abs() > UNACCOUNTED_PERCENT {
            warnings.push(Warning::from(warning::UnaccountedCpu {
                host: name.clone(),
                percent: cpu.unaccounted,
            }));
        }
    }
    for (hosts, row) in hosts::by_machine(outcome).iter().zip(&run.machines) {
        if hosts.len() > 1 && hosts.iter().any(|host| !host.owns_cpus) {
            warnings.push(Warning::from(warning::SharedCpus {
                machine: row.name.clone(),
                hosts: hosts.len() as u32,
                cpus: row.cpus,
            }));
        }
    }
}

/// Programs that are no part of the run, where they used enough to matter.
fn foreign(outcome: &Outcome, windows: &[HostWindow<'_>], warnings: &mut Vec<Warning>) {
    for hosts in hosts::by_machine(outcome) {
        let here =
            windows.iter().find(|window| hosts.iter().any(|h| std::ptr::eq(*h, window.host)));
        let seen = here.and_then(|window| observed::of_machine(outcome, &hosts, window));
        let Some(foreign) = seen.and_then(|seen| foreign::of(outcome, &hosts, seen)) else {
            continue;
        };
        let percent = foreign.share * 100.0;
        if percent >= FOREIGN_PERCENT {
            warnings.push(Warning::from(warning::ForeignCpu {
                host: hosts.first().map(|host| host.facts.hostname.clone()).unwrap_or_default(),
                percent,
                programs: foreign.programs,
            }));
        }
    }
}

/// Of each host that was observed. What is of a machine is said once where all hosts share it.
fn changed(run: &Run, warnings: &mut Vec<Warning>) {
    let shared = run.machines.len() == 1;
    for seen in run.observe.iter().flat_map(|observe| &observe.hosts) {
        for warning in hardware::changes(&seen.host, seen) {
            let of_machine =
                matches!(warning, Warning::ClockSettingsChanged(_) | Warning::Throttled(_));
            let same = |known: &Warning| known.code() == warning.code();
            if !(shared && of_machine && warnings.iter().any(same)) {
                warnings.push(warning);
            }
        }
    }
}

/// Workers that waited for a CPU, where the probe `scheduling` looked: of each host the one that waited longest.
fn waited(run: &Run, warnings: &mut Vec<Warning>) {
    let observed = run.observe.iter().flat_map(|observe| &observe.hosts);
    for section in observed.filter_map(|host| host.scheduling.as_ref()) {
        let mut by_host: BTreeMap<&str, Vec<(f64, &ThreadScheduling)>> = BTreeMap::new();
        for thread in &section.threads {
            let percent = section.waited_percent(thread).filter(|waited| *waited > WAITED_PERCENT);
            if let (Some(host), Some(percent)) = (&thread.host, percent) {
                by_host.entry(host).or_default().push((percent, thread));
            }
        }
        for (host, workers) in by_host {
            let longest = workers.iter().max_by(|a, b| a.0.total_cmp(&b.0));
            let Some((percent, thread)) = longest else { continue };
            let preempted = thread.preempted_seconds.unwrap_or(0.0);
            warnings.push(Warning::from(warning::WorkerWaited {
                host: host.to_owned(),
                worker: thread.worker.unwrap_or_default(),
                cpu: thread.cpu,
                percent: *percent,
                preempted_percent: preempted * 100.0 / section.seconds,
                waited_for: section.waited_for(thread),
                further: workers.len() as u32 - 1,
            }));
        }
    }
}

fn clipped(setting: &Setting) -> Option<Warning> {
    let Setting { name, host, requested, effective, .. } = setting;
    if name == "mss" && is_less_timestamps(requested, effective) {
        return None;
    }
    (requested != effective).then(|| {
        Warning::from(warning::ClippedSetting {
            host: host.clone(),
            name: name.clone(),
            requested: requested.clone(),
            effective: effective.clone(),
            remedy: remedy(setting),
        })
    })
}

/// Timestamps take 12 bytes of each segment (RFC 7323, appendix A), and the kernel tells what is
/// left.
fn is_less_timestamps(requested: &str, effective: &str) -> bool {
    const TIMESTAMPS: u64 = 12;
    let numbers = (requested.parse::<u64>(), effective.parse::<u64>());
    matches!(numbers, (Ok(requested), Ok(effective)) if effective + TIMESTAMPS == requested)
}

/// What to do where the kernel granted something else.
fn remedy(setting: &Setting) -> String {
    let Setting { name, host, requested, effective, .. } = setting;
    let more =
        matches!((requested.parse::<u64>(), effective.parse::<u64>()), (Ok(a), Ok(g)) if g > a);
    match name.as_str() {
        "wndsz.send" | "wndsz.receive" if more => "this is the minimum of its kernel".to_owned(),
        "wndsz.send" => format!("on {host}: sysctl -w net.core.wmem_max={requested}"),
        "wndsz.receive" => format!("on {host}: sysctl -w net.core.rmem_max={requested}"),
        "mss" => format!(
            "the MTU of the path and the TCP options allow no more: raise the MTU, or set mss={effective}"
        ),
        "cc" => format!(
            "on {host}: modprobe tcp_{requested}; for an ordinary user also add it to \
             net.ipv4.tcp_allowed_congestion_control"
        ),
        "sctp.window" => {
            "the receive buffer holds less than two packets of the path, so SCTP waits for timers: \
             set wndsz=1m, or a smaller sctp_path_mtu"
                .to_owned()
        }
        "protocol" => "MPTCP fell back to TCP: something on the path changed its options or the \
                       data"
            .to_owned(),
        "busy_poll.waits" => {
            "epoll and io_uring poll devices while they wait only since Linux 6.9; before, use \
             --engine threads, or set net.core.busy_poll for epoll"
                .to_owned()
        }
        "dscp" | "busy_poll" | "busy_poll.prefer" => {
            format!("run the agent of {host} with CAP_NET_ADMIN")
        }
        _ => format!("raise the limit of {host}, or request {effective}"),
    }
}

/// Hosts that share a kernel share its clock.
fn clocks(outcome: &Outcome, warnings: &mut Vec<Warning>) {
    for host in &outcome.hosts {
        if host.clock_error > CLOCK_ERROR_NANOS {
            warnings.push(Warning::from(warning::ClockOffset {
                host: host.name.clone(),
                error_us: host.clock_error as f64 / 1e3,
            }));
        }
    }
}

/// Over the whole headline phase: the kernel's drops are not known for the window alone.
fn datagrams(outcome: &Outcome, headline: Option<usize>, run: &Run, warnings: &mut Vec<Warning>) {
    let Some(phase) = headline else { return };
    let (mut lost, mut sent, mut receive_buffer_drops, mut frame_drops) = (0i64, 0, 0, 0);
    for result in outcome.hosts.iter().filter_map(|host| window::result(host, phase)) {
        if let Some(end) = result.snapshot(Edge::PhaseEnd).or(result.snapshots.last()) {
            lost += end.counters.datagrams.lost;
            sent += end.counters.datagrams.sent;
        }
        let of_frames = result.io.frames_dropped;
        frame_drops += of_frames;
        receive_buffer_drops += result.receive_buffer_drops.saturating_sub(of_frames);
    }
    let lost = u64::try_from(lost).unwrap_or(0);
    if lost > 0 || receive_buffer_drops > 0 || frame_drops > 0 {
        let joined = outcome
            .hosts
            .iter()
            .filter_map(|host| window::result(host, phase))
            .any(|r| r.io.received_datagrams > r.io.received_messages);
        warnings.push(Warning::from(warning::DatagramsLost {
            lost,
            sent,
            receive_buffer_drops,
            frame_drops,
            joined,
            places: places_of_drops(run),
        }));
    }
}

/// Where the kernel of each host dropped packets in the window, as far as the probe `drops` traced it.
fn places_of_drops(run: &Run) -> Vec<String> {
    let observed = run.observe.iter().flat_map(|observe| &observe.hosts);
    let places = observed.filter_map(|host| {
        let brief = host.drops.as_ref()?.brief()?;
        Some(format!("{}: {brief}", host.covers.join(" and ")))
    });
    places.collect()
}

fn retransmitted(outcome: &Outcome, run: &Run) -> Option<Warning> {
    let tcp = run.tcp.as_ref()?;
    let (retransmits, sent) = (tcp.retransmits?, tcp.segments_sent?);
    let many = retransmits >= FEW_RETRANSMITS && retransmits as f64 > RETRANSMITTED * sent as f64;
    many.then(|| {
        let netem = netem(outcome);
        Warning::from(warning::SegmentsRetransmitted { retransmits, sent, netem })
    })
}

/// Devices of hosts with a queueing discipline that loses packets on purpose. What a router between
/// them has is not known, nor what the kernel did not list.
fn netem(outcome: &Outcome) -> Vec<String> {
    const NETEM: &str = "netem";
    let mut found = Vec::new();
    for host in &outcome.hosts {
        let Ok(environment) = Environment::deserialize(&host.environment) else { continue };
        for device in environment.devices.iter().flatten() {
            let below = device.qdiscs.as_ref().is_some_and(|qdiscs| qdiscs.contains_key(NETEM));
            if below || device.qdisc.as_deref() == Some(NETEM) {
                found.push(format!("{} of {}", device.name, host.name));
            }
        }
    }
    found
}

/// Open-loop load that came late. How many transactions fall into a window varies by about the root of
/// their number where they begin at random.
fn not_reached(run: &Run) -> Option<Warning> {
    let offered = run.offered_bits_per_second?;
    let delivered = run.throughput.as_ref()?.bits_per_second;
    let begun = run.transactions.as_ref()?.count as f64;
    let chance = FEW_SIGMA / begun.max(1.0).sqrt();
    let short = 1.0 - delivered / offered;
    (short > NOT_REACHED.max(chance))
        .then(|| Warning::from(warning::OfferedLoadNotReached { offered, delivered }))
}

/// Where an I/O option did not do what it is for, or makes a figure that others must not be
/// compared with.
fn io_options(run: &Run, windows: &[HostWindow<'_>], warnings: &mut Vec<Warning>) {
    for window in windows {
        let counts = &window.phase.io;
        let mut no_effect = |option: &str, reason: &str| {
            let (host, option) = (window.host.name.clone(), option.to_owned());
            warnings.push(Warning::from(warning::NoEffect {
                host,
                option,
                reason: reason.to_owned(),
            }));
        };
        if counts.polling > 0 && counts.polled == 0 {
            no_effect(
                "busy_poll",
                "no packet arrived through a device that can be polled; loopback cannot",
            );
        }
        let has =
            |name: &str| run.settings.iter().any(|s| s.name == name && s.host == window.host.name);
        let one_each =
            counts.received_datagrams > 0 && counts.received_messages >= counts.received_datagrams;
        if has("gro") && one_each {
            no_effect(
                "gro",
                "the kernel joined no datagrams: use gso at the sender, or enable GRO of the device \
                 (ethtool -K DEVICE gro on)",
            );
        }
    }
    let Some(io) = &run.io else { return };
    if let Some(share) = io.zerocopy.as_ref().and_then(|zerocopy| zerocopy.copied_share)
        && share >= COPIED
    {
        warnings.push(Warning::from(warning::ZeroCopyCopied { percent: share * 100.0 }));
    }
    for window in windows.iter().filter(|window| window.phase.io.zerocopy_refused > 0) {
        let counts = &window.phase.io;
        warnings.push(Warning::from(warning::ZeroCopyRefused {
            host: window.host.name.clone(),
            refused: counts.zerocopy_refused,
            of: counts.zerocopy_calls + counts.zerocopy_refused,
        }));
    }
    for window in windows {
        if let Some((by_kernel, of)) = bypassed(&window.phase.io) {
            let host = window.host.name.clone();
            warnings.push(Warning::from(warning::FramesBypassed { host, by_kernel, of }));
        }
    }
    warnings.extend(io.files.iter().filter_map(|of| page_cache(run, of)).map(Warning::from));
    if io.discarded_bytes.is_some() {
        warnings.push(Warning::from(warning::Discarded {}));
    }
}

/// Where the page cache's state was not what was asked of it, or is not known.
fn page_cache(run: &Run, of: &FileUse) -> Option<warning::PageCache> {
    of.source_bytes?;
    let set = |name: &str| {
        let of_host = run.settings.iter().filter(|s| s.host == of.host && s.name == name);
        of_host.map(|setting| setting.effective.as_str()).collect::<BTreeSet<_>>()
    };
    let mut asked = set("page_cache");
    // It bypasses the page cache, or should. Of a host that writes files too, it may be the option of these.
    if of.sink_bytes.is_none() && !set("o_direct").is_empty() {
        asked.insert("o_direct");
    }
    let state = match (asked.pop_first()?, asked.is_empty()) {
        (state, true) => state,
        // Sources in different states have one figure.
        (_, false) => return None,
    };
    let as_asked = match (state, of.cached_share) {
        ("cold" | "o_direct", Some(cached)) => cached <= UNWANTED,
        ("warm", Some(cached)) => cached >= 1.0 - UNWANTED,
        ("cold" | "warm" | "o_direct", None) => false,
        _ => true,
    };
    let (host, state, cached_share) = (of.host.clone(), state.to_owned(), of.cached_share);
    (!as_asked).then_some(warning::PageCache { host, state, cached_share })
}

/// Datagrams that came to a host by the kernel's UDP, and all that came, where frames were to carry them.
fn bypassed(counts: &IoCounts) -> Option<(u64, u64)> {
    let by_kernel = counts.received_beside_frames;
    let all = by_kernel + counts.frames_received + counts.frames_dropped;
    (by_kernel as f64 > BYPASSED * all as f64).then_some((by_kernel, all))
}

/// Of the masters, over all phases: a connect that failed spoils the phases after it.
fn failed(outcome: &Outcome, warnings: &mut Vec<Warning>) {
    let (mut failed, mut timeouts) = (0, 0);
    let masters = outcome.hosts.iter().filter(|h| h.side == Side::Master);
    for result in masters.flat_map(|host| &host.phases) {
        if let Some(end) = result.snapshot(Edge::PhaseEnd).or(result.snapshots.last()) {
            failed += end.counters.flowops.iter().map(|f| f.failed).sum::<u64>();
            timeouts += end.counters.flowops.iter().map(|f| f.timeouts).sum::<u64>();
        }
    }
    if failed > 0 {
        warnings.push(Warning::from(warning::FailedOperations { failed, timeouts }));
    }
}

fn unfinished(outcome: &Outcome, problems: &mut RunProblems) {
    for host in &outcome.hosts {
        for result in host.phases.iter().filter(|r| r.unfinished_strands > 0) {
            let warning = Warning::from(warning::UnfinishedStrands {
                host: host.name.clone(),
                phase: result.phase,
                strands: result.unfinished_strands,
            });
            problems.errors.push(warning.to_string());
            problems.warnings.push(warning);
        }
    }
}

fn unverified(outcome: &Outcome, errors: &mut Vec<String>) {
    for host in &outcome.hosts {
        let failures: u64 = host.phases.iter().map(|r| r.verify_failures).sum();
        if failures > 0 {
            errors.push(format!(
                "verify failed: {failures} messages received by {} differ from what was sent",
                host.name
            ));
        }
    }
    let mut of_phases: BTreeMap<u32, FileChecks> = BTreeMap::new();
    let mut cut_off = BTreeSet::new();
    for host in &outcome.hosts {
        let mut read_back = FileChecks::default();
        for result in &host.phases {
            read_back.add(&result.file_checks);
            of_phases.entry(result.phase).or_default().add(&result.file_checks);
            if result.unfinished_strands > 0 {
                cut_off.insert(result.phase);
            }
        }
        if read_back.read_back_failures > 0 {
            errors.push(format!(
                "verify failed: {} of {} blocks that {} wrote to its sink and read back are not what it received",
                read_back.read_back_failures, read_back.read_back_blocks, host.name
            ));
        }
    }
    // What was cut off was not all received.
    for (phase, of) in of_phases.iter().filter(|(phase, _)| !cut_off.contains(phase)) {
        if (of.sent_bytes, of.sent) != (of.received_bytes, of.received) {
            errors.push(format!(
                "verify failed: in phase {}, the checksums of {} bytes sent from files differ from those of the {} \
                 bytes received",
                phase + 1,
                of.sent_bytes,
                of.received_bytes
            ));
        }
    }
}

/// A window in which bytes moved is measured even where no long transaction came to its end.
fn nothing_moved(run: &Run, problems: &mut RunProblems) {
    let (Some(throughput), Some(transactions)) = (&run.throughput, &run.transactions) else {
        return;
    };
    if throughput.tx_bytes + throughput.rx_bytes + transactions.count == 0 {
        problems.errors.push(Warning::from(warning::NothingMoved {}).to_string());
        problems.warnings.push(Warning::from(warning::NothingMoved {}));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_that_bypass_frames_are_told_where_they_are_many() {
        let counts = |beside, received, dropped| IoCounts {
            received_beside_frames: beside,
            frames_received: received,
            frames_dropped: dropped,
            ..IoCounts::default()
        };
        assert_eq!(bypassed(&counts(0, 0, 0)), None);
        assert_eq!(bypassed(&counts(10, 980, 10)), None);
        assert_eq!(bypassed(&counts(11, 979, 10)), Some((11, 1000)));
        assert_eq!(bypassed(&counts(5, 0, 0)), Some((5, 5)));
    }
}
