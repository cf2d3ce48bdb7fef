//! The figures of a window: throughput, rates, latency, fairness, TCP, and a row per flowop and
//! phase.

use std::collections::{BTreeMap, BTreeSet};

use wirecost_model::clock::seconds;
use wirecost_model::histogram::{Histogram, PackedHistogram};
use wirecost_model::measure::{
    Datagrams as DatagramCounts, Edge, FlowopCounts, FlowopKey, IoCounts, Setting, burst_lengths,
};
use wirecost_model::outcome::Outcome;
use wirecost_model::placement::StrandPlacement;
use wirecost_model::program::Side;
use wirecost_model::run::{
    AcceptedConnections, AfterRamp, Connections, Datagrams, FileUse, FlowopRow, FrameCounts,
    GroupRtt, Io, Latency, LossBursts, OneWay, Operations, PhaseRow, ReceiveBatchCounts,
    SendBatchCounts, Tcp, Throughput, Transactions, ZeroCopy,
};

use crate::window::{self, HostWindow, Span};

/// What all hosts together did in a span that each of them timed by itself. Rates divide each
/// host's counts by its own actual length: a late snapshot has more bytes and more time, not a
/// higher rate.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Totals {
    /// Mean length.
    pub(crate) seconds: f64,
    pub(crate) tx_bytes: u64,
    pub(crate) rx_bytes: u64,
    tx_bits_per_second: f64,
    rx_bits_per_second: f64,
    pub(crate) transactions: u64,
    transactions_per_second: f64,
    pub(crate) operations: FlowopCounts,
    operations_per_second: f64,
}

impl Totals {
    pub(crate) fn of<'a>(spans: impl Iterator<Item = (Side, Span<'a>)>) -> Self {
        let mut totals = Totals::default();
        let mut hosts = 0u32;
        for (side, span) in spans {
            let seconds = span.seconds();
            hosts += 1;
            totals.seconds += seconds;
            let bytes = span.bytes();
            totals.tx_bytes += bytes.tx_received;
            totals.rx_bytes += bytes.rx_received;
            totals.tx_bits_per_second += per_second(bytes.tx_received, seconds) * 8.0;
            totals.rx_bits_per_second += per_second(bytes.rx_received, seconds) * 8.0;
            if side == Side::Master {
                let transactions = span.transactions();
                totals.transactions += transactions;
                totals.transactions_per_second += per_second(transactions, seconds);
                let operations = span.operations();
                totals.operations.done += operations.done;
                totals.operations.failed += operations.failed;
                totals.operations.timeouts += operations.timeouts;
                totals.operations.bytes += operations.bytes;
                totals.operations_per_second += per_second(operations.done, seconds);
            }
        }
        totals.seconds /= f64::from(hosts.max(1));
        totals
    }

    pub(crate) fn bits_per_second(&self) -> f64 {
        self.tx_bits_per_second + self.rx_bits_per_second
    }

    pub(crate) fn throughput(&self) -> Throughput {
        Throughput {
            bits_per_second: self.bits_per_second(),
            tx_bits_per_second: self.tx_bits_per_second,
            rx_bits_per_second: self.rx_bits_per_second,
            tx_bytes: self.tx_bytes,
            rx_bytes: self.rx_bytes,
        }
    }

    pub(crate) fn transactions(&self) -> Transactions {
        Transactions { count: self.transactions, per_second: self.transactions_per_second }
    }

    pub(crate) fn operations(&self) -> Operations {
        Operations {
            count: self.operations.done,
            per_second: self.operations_per_second,
            failed: self.operations.failed,
            timeouts: self.operations.timeouts,
        }
    }
}

/// In no time nothing happens: a rate is never NaN or infinite, which JSON cannot say.
fn per_second(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
}

fn masters<'a, 'b>(
    windows: &'b [HostWindow<'a>],
) -> impl Iterator<Item = &'b HostWindow<'a>> + use<'a, 'b> {
    windows.iter().filter(|w| w.host.side == Side::Master)
}

/// Each connection has an end on a master, so only the masters' are counted.
pub(crate) fn connections(
    outcome: &Outcome,
    headline: usize,
    windows: &[HostWindow<'_>],
) -> Connections {
    Connections {
        open: masters(windows).map(|w| w.phase.connections_open).sum(),
        failed: masters(windows).map(|w| w.phase.connections_failed).sum(),
        accepted: accepted(outcome, headline),
    }
}

/// Of all phases until the headline phase has ended: what is open there may have been accepted in an earlier one.
fn accepted(outcome: &Outcome, headline: usize) -> Option<AcceptedConnections> {
    let mut sum = IoCounts::default();
    let phases = outcome.hosts.iter().flat_map(|host| &host.phases);
    phases.filter(|of| of.phase as usize <= headline).for_each(|of| sum.add(of.io));
    let (on_own_cpu, on_other_cpu) = (sum.accepted_on_own_cpu, sum.accepted_on_other_cpu);
    (on_own_cpu + on_other_cpu > 0).then_some(AcceptedConnections { on_own_cpu, on_other_cpu })
}

/// Of the masters' transactions.
pub(crate) fn transactions(windows: &[HostWindow<'_>]) -> Histogram {
    let mut all = Histogram::new();
    masters(windows).for_each(|w| all.merge(&w.phase.transactions));
    all
}

/// As a record has it; `None` where there is nothing in it.
pub(crate) fn packed(histogram: &Histogram) -> Option<PackedHistogram> {
    (!histogram.is_empty()).then(|| histogram.into())
}

/// The share of latencies that a trimmed mean is of.
const UNTRIMMED: f64 = 0.95;

pub(crate) fn microseconds(histogram: &Histogram) -> Option<Latency> {
    let quantile = |q| Some(histogram.quantile(q)? as f64 / 1e3);
    Some(Latency {
        p50: quantile(0.5)?,
        p90: quantile(0.9)?,
        p99: quantile(0.99)?,
        p999: quantile(0.999)?,
        max: histogram.max()? as f64 / 1e3,
        mean: histogram.mean()? / 1e3,
        trimmed_mean: Some(histogram.mean_of_shortest(UNTRIMMED)? / 1e3),
        count: histogram.count(),
    })
}

/// A row for each flowop of each side, the masters' first.
pub(crate) fn flowops(windows: &[HostWindow<'_>]) -> Vec<FlowopRow> {
    type Row = (FlowopCounts, Histogram);
    let mut rows: BTreeMap<(Side, u32, u32, &str), Row> = BTreeMap::new();
    fn place(key: &FlowopKey) -> (Side, u32, u32, &str) {
        (key.side, key.group, key.flowop, key.kind.as_str())
    }
    for window in windows {
        for (key, counts) in window.phase.flowops.iter().zip(window.span.flowops()) {
            let (sum, _) = rows.entry(place(key)).or_default();
            sum.done += counts.done;
            sum.failed += counts.failed;
            sum.timeouts += counts.timeouts;
            sum.bytes += counts.bytes;
        }
        for one in &window.phase.latencies {
            let (_, latency) = rows.entry(place(&one.key)).or_default();
            latency.merge(&one.latency);
        }
    }
    rows.into_iter()
        .map(|((side, group, flowop, kind), (counts, latency))| FlowopRow {
            kind: kind.to_owned(),
            side,
            group,
            flowop,
            count: counts.done,
            bytes: counts.bytes,
            failed: counts.failed,
            timeouts: counts.timeouts,
            latency_us: microseconds(&latency),
            latency_histogram: packed(&latency),
        })
        .collect()
}

/// A row for each phase of the plan; of one that was not measured, why.
pub(crate) fn phases(outcome: &Outcome) -> Vec<PhaseRow> {
    let rows = outcome.phases.iter().enumerate().map(|(phase, plan)| {
        let (windows, reason) = match window::of_phase(outcome, phase) {
            Ok(windows) => (windows, None),
            Err(incomplete) => (Vec::new(), Some(incomplete.reason())),
        };
        let totals = Totals::of(windows.iter().map(|w| (w.host.side, w.span)));
        PhaseRow {
            phase: phase as u32,
            kind: crate::kind(plan.until),
            headline: plan.headline,
            seconds: totals.seconds,
            tx_bytes: totals.tx_bytes,
            rx_bytes: totals.rx_bytes,
            bits_per_second: totals.bits_per_second(),
            transactions: totals.transactions,
            transactions_per_second: totals.transactions_per_second,
            operations: totals.operations.done,
            failed: totals.operations.failed,
            timeouts: totals.operations.timeouts,
            latency_us: microseconds(&transactions(&windows)),
            reason,
        }
    });
    rows.collect()
}

/// Retransmits of all flows. Round-trip times only of hosts that sent: an end that only receives
/// gets no acknowledgements, so its kernel still shows the handshake's.
pub(crate) fn tcp(windows: &[HostWindow<'_>]) -> Option<Tcp> {
    let sends = |w: &&HostWindow<'_>| w.span.bytes().sent() > 0;
    let any_sends = windows.iter().any(|w| sends(&w));
    let rtts: Vec<f64> = windows
        .iter()
        .filter(|w| !any_sends || sends(w))
        .flat_map(|w| {
            let within = w.span.start.at..=w.span.end.at;
            let samples = w.phase.tcp_samples.iter();
            samples.filter(move |s| within.contains(&s.at) && s.rtt_us > 0.0)
        })
        .map(|sample| sample.rtt_us)
        .collect();
    let closed_unread: u64 = windows.iter().map(|w| w.phase.closed_unread).sum();
    let knows_segments = windows.iter().any(|w| w.phase.retransmits.is_some());
    if rtts.is_empty() && !knows_segments && closed_unread == 0 {
        return None;
    }
    let mean = rtts.iter().sum::<f64>() / rtts.len().max(1) as f64;
    Some(Tcp {
        retransmits: windows.iter().map(|w| w.phase.retransmits).sum(),
        segments_sent: windows.iter().map(|w| w.phase.segments_sent).sum(),
        out_of_order: windows.iter().map(|w| w.phase.out_of_order).sum(),
        closed_unread: Some(closed_unread),
        rtt_us: (!rtts.is_empty()).then_some(mean),
        rtt_us_min: rtts.iter().copied().reduce(f64::min),
        rtt_us_max: rtts.iter().copied().reduce(f64::max),
        rtt_samples: rtts.len() as u64,
    })
}

/// Smoothed round-trip times of the sampled connections, by group and side.
pub(crate) fn group_rtts(windows: &[HostWindow<'_>]) -> Option<Vec<GroupRtt>> {
    let mut groups: BTreeMap<(u32, Side), Histogram> = BTreeMap::new();
    for window in windows {
        let within = window.span.start.at..=window.span.end.at;
        let samples = window.phase.tcp_samples.iter();
        for sample in samples.filter(|of| within.contains(&of.at) && of.rtt_us > 0.0) {
            let of_group = groups.entry((sample.group, window.host.side)).or_default();
            of_group.record((sample.rtt_us * 1e3) as u64);
        }
    }
    let rows = groups.into_iter().filter_map(|((group, side), rtts)| {
        Some(GroupRtt { group, side, rtt_us: microseconds(&rtts)? })
    });
    let rows: Vec<GroupRtt> = rows.collect();
    (!rows.is_empty()).then_some(rows)
}

pub(crate) fn datagrams(windows: &[HostWindow<'_>]) -> Datagrams {
    let (mut all, mut delays) = (DatagramCounts::default(), Histogram::new());
    for window in windows {
        all.add(&window.span.datagrams());
        delays.merge(&window.phase.one_way);
    }
    let loss_bursts = all.bursts.iter().enumerate().filter_map(|(class, &count)| {
        let count = u64::try_from(count).ok().filter(|&count| count > 0)?;
        let (from, to) = burst_lengths(class);
        Some(LossBursts { from, to, count })
    });
    Datagrams {
        sent: all.sent,
        received: all.received,
        // A host may take back in the window what another counted before it.
        lost: all.lost.max(0),
        late: all.late,
        reordered: Some(all.reordered),
        duplicated: Some(all.duplicated),
        // What was never sent looks like a loss to its receiver.
        loss_bursts: (all.skipped == 0).then(|| loss_bursts.collect()),
        jitter_us: (all.jitters > 0).then(|| all.jitter_sum as f64 / all.jitters as f64 / 1e3),
        one_way_us: microseconds(&delays)
            .map(|delay| OneWay { delay, clock_error_us: clock_error(windows) }),
        after_ramp: after_ramp(windows),
    }
}

/// Losses at the end of the window are known only when the phase has ended.
fn after_ramp(windows: &[HostWindow<'_>]) -> Option<AfterRamp> {
    let mut all = DatagramCounts::default();
    for window in windows {
        let end = window.phase.snapshot(Edge::PhaseEnd)?;
        all.add(&end.counters.datagrams.since(&window.span.start.counters.datagrams));
    }
    // What arrived late may have been counted as lost in the ramp.
    Some(AfterRamp { sent: all.sent, lost: u64::try_from(all.lost).unwrap_or(0) })
}

/// How far the clocks of two machines may differ from what is known of them, microseconds.
fn clock_error(windows: &[HostWindow<'_>]) -> f64 {
    let mut machines: BTreeMap<&str, u64> = BTreeMap::new();
    for host in windows.iter().map(|window| window.host) {
        machines.insert(&host.facts.boot_id, host.clock_error);
    }
    let mut errors: Vec<u64> = machines.into_values().collect();
    errors.sort_unstable_by(|a, b| b.cmp(a));
    match errors[..] {
        [first, second, ..] => (first + second) as f64 / 1e3,
        _ => 0.0,
    }
}

/// Of the whole phase: what came by completions and pipes is not known at the window's edges.
pub(crate) fn io(windows: &[HostWindow<'_>]) -> Option<Io> {
    let mut sum = IoCounts::default();
    windows.iter().for_each(|w| sum.add(w.phase.io));
    let some = |count: u64| (count > 0).then_some(count);
    let io = Io {
        zerocopy: some(sum.zerocopy_calls + sum.zerocopy_refused).map(|_| ZeroCopy {
            calls: sum.zerocopy_calls,
            completed: sum.zerocopy_completed,
            copied: sum.zerocopy_copied,
            copied_share: some(sum.zerocopy_completed)
                .map(|completed| sum.zerocopy_copied as f64 / completed as f64),
            refused: sum.zerocopy_refused,
        }),
        sends: some(sum.send_calls)
            .map(|calls| SendBatchCounts { calls, datagrams: sum.sent_datagrams }),
        receives: some(sum.receive_calls).map(|calls| ReceiveBatchCounts {
            calls,
            messages: sum.received_messages,
            datagrams: sum.received_datagrams,
        }),
        discarded_bytes: some(sum.discarded_bytes),
        spliced_bytes: some(sum.spliced_bytes),
        sink_bytes: some(sum.sink_bytes),
        frames: some(
            sum.frames_sent + sum.frames_received + sum.frames_dropped + sum.received_beside_frames,
        )
        .map(|_| FrameCounts {
            sent: sum.frames_sent,
            calls: sum.frame_calls,
            received: sum.frames_received,
            dropped: sum.frames_dropped,
            received_beside: sum.received_beside_frames,
        }),
        files: files(windows),
    };
    (io != Io::default()).then_some(io)
}

fn files(windows: &[HostWindow<'_>]) -> Vec<FileUse> {
    let mut all: Vec<FileUse> = windows.iter().filter_map(files_of).collect();
    // What was cut off was not all received: nobody compares its checksums.
    if windows.iter().any(|window| window.phase.unfinished_strands > 0) {
        all.iter_mut().for_each(|of| of.checked_bytes = None);
    }
    all
}

/// What a host did with files in a phase; `None` without any.
fn files_of(window: &HostWindow<'_>) -> Option<FileUse> {
    let (io, checks) = (&window.phase.io, &window.phase.file_checks);
    let some = |count: u64| (count > 0).then_some(count);
    let (source, sink) = (some(io.source_bytes), some(io.sink_bytes));
    let read = some(io.source_read_bytes);
    source.or(sink).or(read)?;
    // Until the window ends: what comes after is short, but for the time in fdatasync, which is no worker's traffic.
    let start = window.phase.snapshot(Edge::PhaseStart).map_or(window.span.start.at, |of| of.at);
    let length = seconds(window.span.end.at.saturating_sub(start));
    let workers = window.phase.workers.len() as f64 * length;
    let mean = |sum: u64, of: u64| (of > 0).then(|| sum as f64 / of as f64);
    let share = |ns: u64| (workers > 0.0).then(|| (seconds(ns) / workers).min(1.0));
    Some(FileUse {
        host: window.host.name.clone(),
        source_bytes: source,
        read_bytes: read,
        read_seconds: read.map(|_| seconds(io.source_read_ns)),
        read_share: read.and_then(|_| share(io.source_read_ns)),
        cached_share: some(io.source_pass_bytes)
            .map(|all| io.source_cached_bytes as f64 / all as f64),
        read_requests: some(io.source_requests),
        read_depth: mean(io.source_in_flight, io.source_requests),
        sink_bytes: sink,
        write_requests: some(io.sink_requests),
        write_depth: mean(io.sink_in_flight, io.sink_requests),
        write_seconds: sink.map(|_| seconds(io.sink_write_ns)),
        write_share: sink.and_then(|_| share(io.sink_write_ns)),
        sync_seconds: some(io.sink_syncs).map(|_| seconds(io.sink_sync_ns)),
        checked_bytes: some(checks.sent_bytes + checks.received_bytes),
        read_back_bytes: some(checks.read_back_bytes),
        read_back_cached_bytes: some(checks.read_back_bytes).map(|_| checks.read_back_cached_bytes),
    })
}

/// Where strands were placed, as the hosts that connect say, with what their peers saw of the packets.
pub(crate) fn placements(outcome: &Outcome) -> Option<Vec<StrandPlacement>> {
    let all = || outcome.hosts.iter().flat_map(|host| &host.placements);
    let mut seen: BTreeMap<(&str, u32, u32), BTreeSet<u32>> = BTreeMap::new();
    for of in all().filter(|of| of.by.is_none()) {
        seen.entry((&of.peer, of.group, of.strand)).or_default().extend(&of.arrived_on);
    }
    let placed = all().filter(|of| of.by.is_some()).map(|of| {
        let seen = seen.get(&(&of.peer[..], of.group, of.strand));
        StrandPlacement { arrived_on: seen.cloned().unwrap_or_default(), ..of.clone() }
    });
    let placed: Vec<StrandPlacement> = placed.collect();
    (!placed.is_empty()).then_some(placed)
}

/// Of all hosts, each said once.
pub(crate) fn settings(outcome: &Outcome) -> Vec<Setting> {
    let mut settings: Vec<Setting> =
        outcome.hosts.iter().flat_map(|host| host.settings.iter().cloned()).collect();
    settings.sort();
    settings.dedup();
    settings
}
