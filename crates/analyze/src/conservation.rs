//! The check of sent and received: every byte that arrived was sent before, none is missing at the
//! end, and the hosts take snapshots of their counters at the same instants.
//!
//! Three questions, from the surest to the weakest:
//! 1. *Totals.* When the last phase has ended, streams have delivered exactly what was sent; of
//!    datagrams no more than were sent, and what is missing is what the receivers counted as lost.
//! 2. *Snapshots.* On the controller's clock the hosts' snapshots are at the same instants.
//! 3. *Causality.* At each snapshot of the headline window, what was sent less what was received is
//!    neither negative nor more than the connections can hold. This finds a host whose clock was
//!    misjudged, which the second question cannot see.
//!
//! Single snapshots may be late on a busy host, so neither 2 nor 3 looks at one snapshot alone: a
//! wrong schedule delays all snapshots of the window (2 takes each host's most punctual one), a
//! wrong clock shows at most of them (3 takes the median).

use wirecost_model::clock::SECOND;
use wirecost_model::measure::{Bytes, Datagrams, Edge, FlowopCounts, Snapshot};
use wirecost_model::outcome::{HostOutcome, Outcome};
use wirecost_model::profile::Until;
use wirecost_model::status::Status;

use crate::intervals;
use crate::window::{self, HostWindow};

/// Lateness of a host's most punctual snapshot that no longer is a scheduler's doing. On an idle
/// host snapshots are within a millisecond; on two CPUs shared by more workers some are late by
/// many time slices, but not every one.
const MAX_SKEW_NANOS: f64 = 100e6;
/// Phases that are counted whole have one start and no intervals, so nothing to outvote one bad
/// moment.
const MAX_SINGLE_SKEW_NANOS: f64 = 200e6;
/// Hosts read the buffers of some connections at the window's edges; others, and those that the
/// kernel has grown and shrunk between, may be this much larger.
const UNSEEN_BUFFERS: f64 = 2.0;
/// Of fewer snapshots than these the median may be one that a busy worker spoilt.
const MIN_CUTS: usize = 3;
/// The workers of a host publish their counters one after another; one that waits for its time
/// slice is behind the others by up to some 10 ms.
const CUT_SECONDS: f64 = 0.020;
/// Datagrams at the end of a connection have none after them, so their loss leaves no gap in the
/// numbers. Sixteen in a row are lost by chance only where hardly any arrives.
const TAIL_PER_CONNECTION: u64 = 16;
/// What a failed connection may have held where its buffers are not known.
const MIN_BUFFER: u64 = 1 << 20;

#[derive(Clone, Copy)]
enum Direction {
    Tx,
    Rx,
}

impl Direction {
    const ALL: [Direction; 2] = [Direction::Tx, Direction::Rx];

    fn sent(self, bytes: &Bytes) -> u64 {
        match self {
            Direction::Tx => bytes.tx_sent,
            Direction::Rx => bytes.rx_sent,
        }
    }

    fn received(self, bytes: &Bytes) -> u64 {
        match self {
            Direction::Tx => bytes.tx_received,
            Direction::Rx => bytes.rx_received,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Direction::Tx => "tx",
            Direction::Rx => "rx",
        }
    }
}

/// What does not add up, as sentences.
pub(crate) fn check(
    outcome: &Outcome,
    headline: Option<usize>,
    windows: &[HostWindow<'_>],
) -> Vec<String> {
    let mut errors: Vec<String> = outcome.hosts.iter().flat_map(shrunken).collect();
    // What is left of a run that broke off need not add up.
    if outcome.status == Status::Ok {
        match totals(outcome) {
            Ok(totals) => errors.extend(check_totals(outcome, &totals)),
            // That there is no window has been said, and is the same thing.
            Err(missing) if !windows.is_empty() => errors.push(missing),
            Err(_) => {}
        }
    }
    if let Some(phase) = headline
        && windows.len() > 1
    {
        let skewed = check_cuts(outcome, phase, windows);
        // Snapshots at other instants make for bytes out of place: one error says it.
        if skewed.is_empty() && matches!(outcome.phases[phase].until, Until::Duration(_)) {
            errors.extend(check_causality(outcome, phase, windows));
        }
        errors.extend(skewed);
    }
    errors
}

fn shrunken(host: &HostOutcome) -> Option<String> {
    let bad = host.phases.iter().find(|result| {
        let pairs = result.snapshots.windows(2);
        pairs
            .map(|pair| window::Span { start: &pair[0], end: &pair[1] })
            .any(|span| span.went_back())
    })?;
    Some(format!("counters were lost: those of {} decreased in phase {}", host.name, bad.phase + 1))
}

/// Everything all hosts counted over all phases.
#[derive(Default)]
struct RunTotals {
    bytes: Bytes,
    datagrams: Datagrams,
    failed: u64,
    timeouts: u64,
    receive_buffer_drops: u64,
    connections: u64,
    buffer_bytes: u64,
    /// No datagram was larger.
    largest_operation: u64,
}

impl RunTotals {
    /// Bytes that may have been received twice.
    fn duplicate_bytes(&self) -> u64 {
        self.datagrams.duplicated.saturating_mul(self.largest_operation)
    }
}

/// Most bytes of one operation: where all are alike, their size; of sizes drawn evenly from a
/// range, the largest is at most twice the mean.
fn largest(flowop: &FlowopCounts) -> u64 {
    match flowop.bytes.checked_rem(flowop.done) {
        None => 0,
        Some(0) => flowop.bytes / flowop.done,
        Some(_) => 2 * flowop.bytes.div_ceil(flowop.done),
    }
}

fn totals(outcome: &Outcome) -> Result<RunTotals, String> {
    let mut totals = RunTotals::default();
    for host in &outcome.hosts {
        for phase in 0..outcome.phases.len() {
            let result = window::result(host, phase);
            let end = result.and_then(|result| result.snapshot(Edge::PhaseEnd));
            let (Some(result), Some(end)) = (result, end) else {
                return Err(format!(
                    "counters were lost: {} did not report the end of phase {}",
                    host.name,
                    phase + 1
                ));
            };
            totals.bytes = add(&totals.bytes, &end.counters.bytes);
            totals.datagrams.add(&end.counters.datagrams);
            let flowops = end.counters.flowops.iter();
            let operation = flowops.clone().map(largest).max().unwrap_or(0);
            totals.largest_operation = totals.largest_operation.max(operation);
            totals.timeouts += flowops.clone().map(|f| f.timeouts).sum::<u64>();
            totals.failed += flowops.map(|f| f.failed).sum::<u64>();
            totals.failed += result.connections_failed;
            totals.receive_buffer_drops += result.receive_buffer_drops;
            totals.connections = totals.connections.max(result.connections_open);
            totals.buffer_bytes = totals.buffer_bytes.max(result.buffer_bytes);
        }
    }
    Ok(totals)
}

fn add(a: &Bytes, b: &Bytes) -> Bytes {
    Bytes {
        tx_sent: a.tx_sent + b.tx_sent,
        tx_received: a.tx_received + b.tx_received,
        rx_sent: a.rx_sent + b.rx_sent,
        rx_received: a.rx_received + b.rx_received,
    }
}

fn check_totals(outcome: &Outcome, totals: &RunTotals) -> Vec<String> {
    let mut errors = Vec::new();
    let missing_datagrams = datagrams_missing(totals, &mut errors);
    let lossy = outcome.phases.iter().any(|plan| plan.datagrams);
    for direction in Direction::ALL {
        let sent = direction.sent(&totals.bytes);
        let received = direction.received(&totals.bytes);
        // Where datagrams are, a time-out is the wait for a lost one and closes no connection.
        let may_miss = if lossy {
            let failed = totals.failed.saturating_sub(totals.timeouts);
            missing_datagrams.saturating_mul(totals.largest_operation) + may_lose(failed, totals)
        } else {
            may_lose(totals.failed, totals)
        };
        let at_most = sent.saturating_add(totals.duplicate_bytes());
        if received > at_most || sent.saturating_sub(received) > may_miss {
            errors.push(difference(direction, sent, received));
        }
    }
    errors
}

/// A connection that failed takes with it what it held; nothing else loses bytes of a stream.
fn may_lose(failed: u64, totals: &RunTotals) -> u64 {
    let held = totals.buffer_bytes * 2 / totals.connections.max(1);
    failed.saturating_mul(held.max(MIN_BUFFER))
}

fn difference(direction: Direction, sent: u64, received: u64) -> String {
    let apart = sent.abs_diff(received);
    let percent = apart as f64 * 100.0 / sent.max(received).max(1) as f64;
    format!(
        "sent and received differ: {} {sent} bytes sent, {received} received ({apart} bytes, \
         {percent:.2}%)",
        direction.name()
    )
}

/// Number of datagrams that did not arrive; an error where the receivers' own count of lost ones
/// does not explain it. A late datagram may have been counted as lost before it came.
fn datagrams_missing(totals: &RunTotals, errors: &mut Vec<String>) -> u64 {
    let d = &totals.datagrams;
    let received = d.received.saturating_sub(d.duplicated);
    let Some(missing) = d.sent.checked_sub(received) else {
        errors.push(format!(
            "sent and received differ: {} datagrams sent, {received} received without duplicates",
            d.sent
        ));
        return 0;
    };
    let tail = totals.connections.max(1) * TAIL_PER_CONNECTION;
    let lost = u64::try_from(d.lost).unwrap_or(0);
    let most = lost + d.late + totals.receive_buffer_drops + tail;
    let least = lost.saturating_sub(d.late);
    if missing < least || missing > most {
        errors.push(format!(
            "sent and received differ: of {} datagrams {missing} did not arrive, but the receivers \
             count {} as lost",
            d.sent, lost
        ));
    }
    missing
}

/// The instant of a snapshot on the controller's clock. As a float it is exact to far less than a
/// microsecond over years of uptime.
fn instant(host: &HostOutcome, snapshot: &Snapshot) -> f64 {
    (i128::from(snapshot.at) - i128::from(host.clock_offset)) as f64
}

fn clock_errors(windows: &[HostWindow<'_>]) -> f64 {
    windows.iter().map(|w| w.host.clock_error as f64).sum()
}

fn check_cuts(outcome: &Outcome, phase: usize, windows: &[HostWindow<'_>]) -> Vec<String> {
    let mut boundaries = intervals::aligned(windows);
    let mut limit = MAX_SKEW_NANOS;
    if matches!(outcome.phases[phase].until, Until::Iterations(_)) {
        // Each host ends such a phase when it is done, so only the starts belong together.
        boundaries.truncate(1);
        limit = MAX_SINGLE_SKEW_NANOS;
    }
    limit += clock_errors(windows);
    let starts: Vec<f64> = windows
        .iter()
        .enumerate()
        .map(|(place, window)| {
            window_began(window, boundaries.iter().map(|snapshots| snapshots[place]))
        })
        .collect();
    let first = starts.iter().copied().fold(f64::INFINITY, f64::min);
    windows
        .iter()
        .zip(starts)
        .map(|(window, start)| (window, start - first))
        .filter(|&(_, behind)| behind > limit)
        .map(|(window, behind)| {
            format!(
                "sent and received differ: the snapshots of {} are {:.0} ms behind the others",
                window.host.name,
                behind / 1e6
            )
        })
        .collect()
}

/// When a host's window began by its schedule, as its most punctual snapshot shows: a snapshot is
/// never early, and its distance from the window's start is known from what was asked for.
fn window_began<'a>(window: &HostWindow<'_>, snapshots: impl Iterator<Item = &'a Snapshot>) -> f64 {
    let start = window.span.start;
    snapshots
        .map(|snapshot| {
            instant(window.host, snapshot) - snapshot.due.saturating_sub(start.due) as f64
        })
        .fold(f64::INFINITY, f64::min)
}

/// Of an even number, the smaller of the two in the middle.
fn lower_median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len().saturating_sub(1) / 2;
    values.get(middle).copied().unwrap_or(0.0)
}

/// What all hosts had sent and received in one direction when one boundary was due.
struct Instant {
    /// Mean of the hosts' instants, and how far the first and the last are apart; nanoseconds.
    at: f64,
    skew: f64,
    sent: f64,
    received: f64,
}

fn check_causality(outcome: &Outcome, phase: usize, windows: &[HostWindow<'_>]) -> Vec<String> {
    let boundaries = intervals::aligned(windows);
    let buffers: u64 = windows.iter().map(|w| w.phase.buffer_bytes).sum();
    // Datagrams that were lost look like datagrams in flight, so there is no most.
    let most = (buffers > 0 && !outcome.phases[phase].datagrams)
        .then_some(buffers as f64 * UNSEEN_BUFFERS);
    // Nor are those any sign of a fault that came twice.
    let duplicates: u64 = windows.iter().map(|window| duplicates(window.span.end)).sum();
    let before = bytes_before(phase, windows);
    Direction::ALL
        .into_iter()
        .filter_map(|direction| {
            let series: Vec<Instant> = boundaries
                .iter()
                .map(|snapshots| total_at(direction, &before, windows, snapshots))
                .collect();
            causality_of(direction, &series, most, duplicates as f64, windows)
        })
        .collect()
}

/// Bytes of all datagrams that came again in a phase.
fn duplicates(snapshot: &Snapshot) -> u64 {
    let counters = &snapshot.counters;
    let largest = counters.flowops.iter().map(largest).max().unwrap_or(0);
    counters.datagrams.duplicated.saturating_mul(largest)
}

/// What all hosts moved in earlier phases: counters begin with each phase, but what an earlier one sent may arrive in
/// this one.
fn bytes_before(phase: usize, windows: &[HostWindow<'_>]) -> Bytes {
    let phases = windows.iter().flat_map(|window| &window.host.phases);
    let earlier = phases.filter(|result| (result.phase as usize) < phase);
    let ends = earlier.filter_map(|result| result.snapshot(Edge::PhaseEnd));
    ends.fold(Bytes::default(), |sum, end| add(&sum, &end.counters.bytes))
}

fn total_at(
    direction: Direction,
    before: &Bytes,
    windows: &[HostWindow<'_>],
    snapshots: &[&Snapshot],
) -> Instant {
    let mut bytes = *before;
    let mut instants = Vec::new();
    for (window, snapshot) in windows.iter().zip(snapshots) {
        instants.push(instant(window.host, snapshot));
        bytes = add(&bytes, &snapshot.counters.bytes);
    }
    let first = instants.iter().copied().fold(f64::INFINITY, f64::min);
    let last = instants.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    Instant {
        at: instants.iter().sum::<f64>() / instants.len().max(1) as f64,
        skew: last - first,
        sent: direction.sent(&bytes) as f64,
        received: direction.received(&bytes) as f64,
    }
}

fn causality_of(
    direction: Direction,
    series: &[Instant],
    most: Option<f64>,
    duplicates: f64,
    windows: &[HostWindow<'_>],
) -> Option<String> {
    let under_way = under_way(windows);
    let errors = clock_errors(windows) / SECOND as f64;
    let mut early: Vec<f64> = Vec::new();
    let mut stuck: Vec<f64> = Vec::new();
    // Traffic stops at the window's end: a host whose snapshot comes after it finds all arrived.
    let informative = series.len().saturating_sub(1);
    if informative < MIN_CUTS {
        return None;
    }
    for (number, instant) in series.iter().enumerate().take(informative) {
        let uncertain = instant.skew / SECOND as f64 + errors + CUT_SECONDS;
        let tolerance = rate_around(series, number) * uncertain + under_way;
        let in_flight = instant.sent - instant.received;
        early.push(-in_flight - tolerance - duplicates);
        stuck.push(in_flight - tolerance - most.unwrap_or(f64::INFINITY));
    }
    let (early, stuck) = (lower_median(&mut early), lower_median(&mut stuck));
    let name = direction.name();
    if early > 0.0 {
        Some(format!(
            "sent and received differ: at most snapshots of the window {name} had {early:.0} bytes more \
             received than sent, more than late snapshots explain: a host counts at other times than \
             its peers"
        ))
    } else if stuck > 0.0 {
        Some(format!(
            "sent and received differ: at most snapshots of the window {name} had {stuck:.0} bytes more \
             sent than received and held in buffers: a host counts at other times than its peers"
        ))
    } else {
        None
    }
}

/// Bytes a second just before or after this boundary, whichever is more.
fn rate_around(series: &[Instant], number: usize) -> f64 {
    let rate = |a: usize, b: usize| {
        let (a, b) = (series.get(a)?, series.get(b)?);
        let seconds = (b.at - a.at) / SECOND as f64;
        (seconds > 0.0).then(|| (b.sent - a.sent).max(b.received - a.received) / seconds)
    };
    let before = number.checked_sub(1).and_then(|a| rate(a, number));
    let after = rate(number, number + 1);
    before.unwrap_or(0.0).max(after.unwrap_or(0.0))
}

/// Bytes that may have arrived though their sender does not count them yet, because the system call
/// that sends them has not returned: one operation of each connection. Its size is known when the
/// phase has ended; over a slow link a blocking write may take longer than the window.
fn under_way(windows: &[HostWindow<'_>]) -> f64 {
    let of_host = |window: &HostWindow<'_>| {
        let end = window.phase.snapshots.last().unwrap_or(window.span.end);
        let flowops = end.counters.flowops.iter();
        let per_operation = flowops
            .map(|flowop| flowop.bytes as f64 / flowop.done.max(1) as f64)
            .fold(0.0, f64::max);
        per_operation * window.phase.connections_open as f64
    };
    windows.iter().map(of_host).fold(0.0, f64::max)
}
