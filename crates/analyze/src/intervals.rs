//! The window in intervals: which snapshots of the hosts belong together, what each interval moved,
//! and which intervals were lost.

use std::collections::BTreeMap;

use wirecost_model::clock::{self, Nanos};
use wirecost_model::measure::{Edge, Snapshot};
use wirecost_model::run::Interval;

use crate::figures::Totals;
use crate::window::{HostWindow, Span};

/// The snapshots of one host at the boundaries of its window's intervals, by number of the
/// boundary.
struct Boundaries<'a> {
    snapshots: Vec<Option<&'a Snapshot>>,
}

/// Length of an interval as planned: the least distance of two snapshots that any host was asked
/// for.
/// `None` where the window has no boundary inside.
pub(crate) fn length(windows: &[HostWindow<'_>]) -> Option<Nanos> {
    let distances = windows.iter().flat_map(|w| {
        let mut due = vec![w.span.start.due];
        due.extend(inner(w).map(|snapshot| snapshot.due));
        let pairs: Vec<Nanos> =
            due.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).collect();
        pairs
    });
    distances.filter(|&distance| distance > 0).min()
}

/// Interval snapshots inside the window; those of the ramp and the drain are not.
fn inner<'a>(window: &HostWindow<'a>) -> impl Iterator<Item = &'a Snapshot> + use<'a> {
    let (from, to) = (window.span.start.due, window.span.end.due);
    window.phase.snapshots.iter().filter(move |snapshot| {
        snapshot.edge == Edge::Interval && snapshot.due > from && snapshot.due < to
    })
}

/// Number of intervals the window was planned to have; the last may be shorter.
fn planned(window: &HostWindow<'_>, length: Nanos) -> usize {
    let whole = window.span.end.due.saturating_sub(window.span.start.due);
    usize::try_from(whole.div_ceil(length)).unwrap_or(usize::MAX).max(1)
}

fn boundaries<'a>(window: &HostWindow<'a>, length: Nanos, intervals: usize) -> Boundaries<'a> {
    let mut snapshots = vec![None; intervals + 1];
    snapshots[0] = Some(window.span.start);
    for snapshot in inner(window) {
        // Nearest multiple: `due` of a host may be rounded.
        let number = (snapshot.due - window.span.start.due + length / 2) / length;
        if let Some(place) = snapshots[1..intervals].get_mut((number as usize).wrapping_sub(1)) {
            *place = Some(snapshot);
        }
    }
    snapshots[intervals] = Some(window.span.end);
    Boundaries { snapshots }
}

/// The boundaries of which every host has a snapshot, in order, each with the hosts' snapshots in
/// the order of
/// `windows`. The first are the starts of the window, the last its ends.
pub(crate) fn aligned<'a>(windows: &[HostWindow<'a>]) -> Vec<Vec<&'a Snapshot>> {
    if windows.is_empty() {
        return Vec::new();
    }
    let edges =
        |pick: fn(&Span<'a>) -> &'a Snapshot| windows.iter().map(|w| pick(&w.span)).collect();
    let Some(length) = length(windows) else {
        return vec![edges(|span| span.start), edges(|span| span.end)];
    };
    let intervals = windows.iter().map(|w| planned(w, length)).max().unwrap_or(1);
    let hosts: Vec<Boundaries<'a>> =
        windows.iter().map(|w| boundaries(w, length, intervals)).collect();
    (0..=intervals)
        .filter_map(|number| hosts.iter().map(|host| host.snapshots[number]).collect())
        .collect()
}

/// The same from the start of traffic: the start of the phase and the intervals of the ramp come before the window.
pub(crate) fn since_start<'a>(windows: &[HostWindow<'a>]) -> Vec<Vec<&'a Snapshot>> {
    let of_start = |window: &HostWindow<'a>| {
        let start = window.phase.snapshot(Edge::PhaseStart)?;
        (start.at < window.span.start.at).then_some(start)
    };
    let start: Option<Vec<&Snapshot>> = windows.iter().map(of_start).collect();
    let ramp = length(windows).map(|length| ramp(windows, length)).unwrap_or_default();
    start.into_iter().chain(ramp).chain(aligned(windows)).collect()
}

/// The boundaries of the ramp of which every host has a snapshot; they count back from the window's start.
fn ramp<'a>(windows: &[HostWindow<'a>], length: Nanos) -> Vec<Vec<&'a Snapshot>> {
    let of_host = |window: &HostWindow<'a>| -> BTreeMap<Nanos, &'a Snapshot> {
        let from = window.span.start.due;
        let before = window.phase.snapshots.iter().filter(|s| s.edge == Edge::Interval);
        let before = before.filter(|snapshot| snapshot.due < from);
        before.map(|snapshot| ((from - snapshot.due + length / 2) / length, snapshot)).collect()
    };
    let hosts: Vec<BTreeMap<Nanos, &Snapshot>> = windows.iter().map(of_host).collect();
    let numbers = hosts.first().map(|first| first.keys().rev().copied()).into_iter().flatten();
    numbers
        .filter_map(|number| hosts.iter().map(|host| host.get(&number).copied()).collect())
        .collect()
}

/// From one boundary to the next, the hosts' spans in the order of `windows`.
pub(crate) fn spans<'a>(windows: &[HostWindow<'a>]) -> Vec<Vec<Span<'a>>> {
    let boundaries = aligned(windows);
    let pairs = boundaries.windows(2);
    pairs
        .map(|pair| {
            pair[0].iter().zip(&pair[1]).map(|(&start, &end)| Span { start, end }).collect()
        })
        .collect()
}

/// What moved between one boundary and the next. A boundary that a host has no snapshot of joins
/// two intervals to one, so that the rows always add up to the window.
pub(crate) fn rows(windows: &[HostWindow<'_>]) -> Vec<Interval> {
    spans(windows)
        .into_iter()
        .map(|spans| {
            let since_start = spans.iter().zip(windows).map(|(span, window)| {
                clock::seconds(span.start.at.saturating_sub(window.span.start.at))
            });
            let start = since_start.sum::<f64>() / spans.len() as f64;
            let sides = windows.iter().map(|w| w.host.side);
            let totals = Totals::of(sides.zip(spans));
            Interval {
                start,
                seconds: totals.seconds,
                tx_bytes: totals.tx_bytes,
                rx_bytes: totals.rx_bytes,
                bits_per_second: totals.bits_per_second(),
                transactions: totals.transactions,
                operations: totals.operations.done,
                failed: totals.operations.failed,
            }
        })
        .collect()
}

/// How many of a window's intervals were lost: without a snapshot, or with one late by more than
/// half of one.
pub(crate) fn lost(window: &HostWindow<'_>, length: Nanos) -> (u64, u64) {
    let intervals = planned(window, length);
    let snapshots = boundaries(window, length, intervals).snapshots;
    let late = |snapshot: &Snapshot| snapshot.at.saturating_sub(snapshot.due) > length / 2;
    let lost = snapshots[1..].iter().filter(|snapshot| snapshot.is_none_or(late)).count();
    (lost as u64, intervals as u64)
}
