//! How long throughput takes to become steady.
//!
//! Throughput is averaged over windows of time from the start of traffic, each of 20 round trips and at least 1 s. Its
//! steady mean is that of the last half. It has converged from the first window that lies within 10% of this mean and from
//! which on 90% of the windows do. A trend in the last half means that it did not converge: the Mann-Kendall test finds
//! one (p below 0.05), and by the Theil-Sen slope throughput changes by more than 10% of the mean in this half.

mod curve;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use wirecost_model::clock::seconds;
use wirecost_model::convergence::{Convergence, ConvergenceState};
use wirecost_model::units;

pub(crate) use curve::Curve;

use crate::figures::Totals;
use crate::intervals;
use crate::statistics::{mann_kendall, theil_sen};
use crate::window::{HostWindow, Span};

/// Distance from the steady mean, and the share of windows that must be as near as that.
const NEAR: f64 = 0.1;
pub(crate) const SHARE: f64 = 0.9;
/// The fewest windows of which something can be said: five in the last half, as the Mann-Kendall test needs.
pub(crate) const LEAST: usize = 10;
/// Of the test for a trend.
const LEVEL: f64 = 0.05;
/// Windows are averaged to this many parts for the test, whose time grows with the square of their number.
const PARTS: usize = 100;
const ROUND_TRIPS: f64 = 20.0;
const SHORTEST_WINDOW: f64 = 1.0;

/// A strand of a host that sends. Strands of two hosts can have the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Sender<'a> {
    pub(crate) host: &'a str,
    pub(crate) group: u32,
    pub(crate) strand: u32,
}

/// Of these windows.
pub(crate) fn judge(windows: Vec<f64>, window_seconds: f64) -> Convergence {
    let mut convergence = Convergence {
        state: ConvergenceState::TooShort,
        seconds: None,
        steady_bits_per_second: None,
        steady_share: None,
        change: None,
        p_value: None,
        window_seconds,
        windows,
    };
    let windows = &convergence.windows;
    if windows.len() < LEAST {
        return convergence;
    }
    let last = &windows[windows.len() / 2..];
    let mean = last.iter().sum::<f64>() / last.len() as f64;
    convergence.steady_bits_per_second = Some(mean);
    if mean <= 0.0 {
        convergence.state = ConvergenceState::Idle;
        return convergence;
    }
    let near: Vec<bool> = windows.iter().map(|rate| (rate - mean).abs() <= NEAR * mean).collect();
    let of_last = &near[near.len() / 2..];
    let share = of_last.iter().filter(|near| **near).count() as f64 / of_last.len() as f64;
    let (change, p_value) = trend(last, mean);
    let found = first_lasting(&near).filter(|_| share >= SHARE);
    convergence.state = match found {
        _ if p_value < LEVEL && change.is_some_and(|change| change.abs() > NEAR) => {
            ConvergenceState::Trend
        }
        Some(_) => ConvergenceState::Converged,
        None => ConvergenceState::Unsteady,
    };
    convergence.seconds = found
        .filter(|_| convergence.state == ConvergenceState::Converged)
        .map(|first| first as f64 * window_seconds);
    convergence.steady_share = Some(share);
    convergence.change = change;
    convergence.p_value = Some(p_value);
    convergence
}

/// The first place that holds and from which on enough places do, in the part that leaves half of [`LEAST`] after it.
pub(crate) fn first_lasting(holds: &[bool]) -> Option<usize> {
    let mut rest = holds.iter().filter(|holds| **holds).count();
    for (place, holds_here) in holds.iter().enumerate() {
        let left = holds.len() - place;
        if left < LEAST / 2 {
            return None;
        }
        if *holds_here && rest as f64 >= SHARE * left as f64 {
            return Some(place);
        }
        rest -= usize::from(*holds_here);
    }
    None
}

/// The change over all of the windows relative to their mean, and the p-value of a trend.
fn trend(windows: &[f64], mean: f64) -> (Option<f64>, f64) {
    let parts = windows.chunks(windows.len().div_ceil(PARTS));
    let parts: Vec<f64> = parts.map(|part| part.iter().sum::<f64>() / part.len() as f64).collect();
    let points: Vec<(f64, f64)> =
        parts.iter().enumerate().map(|(place, rate)| (place as f64, *rate)).collect();
    let slope = theil_sen::slope(&points).map(|(slope, _)| slope);
    let change = slope.map(|slope| slope * points.len() as f64 / mean);
    (change, mann_kendall::p_value(&parts))
}

/// What all hosts together received since the start of traffic.
pub(crate) fn total(windows: &[HostWindow<'_>]) -> Curve {
    let boundaries = intervals::since_start(windows);
    let (mut time, mut bits) = (0.0, 0.0);
    let points = boundaries.windows(2).map(|pair| {
        let spans = pair[0].iter().zip(&pair[1]).map(|(&start, &end)| Span { start, end });
        let sides = windows.iter().map(|window| window.host.side);
        let totals = Totals::of(sides.zip(spans));
        time += totals.seconds;
        bits += totals.bits_per_second() * totals.seconds;
        (time, bits)
    });
    Curve::new(points.collect::<Vec<_>>())
}

/// Length of the windows of time of a run, seconds.
pub(crate) fn window_seconds(windows: &[HostWindow<'_>]) -> f64 {
    let longest = round_trips(windows).into_values().reduce(f64::max).unwrap_or(0.0);
    let interval = intervals::length(windows).map_or(0.0, seconds);
    SHORTEST_WINDOW.max(ROUND_TRIPS * longest / 1e6).max(interval)
}

/// Median of the smoothed round-trip times of each sampled stream, microseconds. Only of hosts that send: the kernel of an end
/// that only receives gets no acknowledgements.
pub(crate) fn round_trips<'a>(windows: &[HostWindow<'a>]) -> BTreeMap<Sender<'a>, f64> {
    let mut samples: BTreeMap<Sender<'_>, Vec<f64>> = BTreeMap::new();
    for window in windows.iter().filter(|window| window.span.bytes().sent() > 0) {
        let host = &window.host.name;
        for sample in window.phase.tcp_samples.iter().filter(|sample| sample.rtt_us > 0.0) {
            let sender = Sender { host, group: sample.group, strand: sample.strand };
            samples.entry(sender).or_default().push(sample.rtt_us);
        }
    }
    let median = |mut of: Vec<f64>| {
        let middle = of.len() / 2;
        *of.select_nth_unstable_by(middle, f64::total_cmp).1
    };
    samples.into_iter().map(|(sender, of)| (sender, median(of))).collect()
}

/// `after 3.00 s`, or why there is no time.
#[must_use]
pub fn describe(of: &Convergence) -> String {
    let steady = of.steady_bits_per_second.map(units::bit_rate).unwrap_or_default();
    let window = units::seconds(of.window_seconds);
    match of.state {
        ConvergenceState::Converged => {
            let seconds = of.seconds.unwrap_or_default();
            format!(
                "{} to within 10% of {steady} (90% of windows of {window})",
                units::seconds(seconds)
            )
        }
        ConvergenceState::Trend => {
            let change = 100.0 * of.change.unwrap_or_default();
            format!("did not converge: throughput changed by {change:+.0}% over the last half")
        }
        ConvergenceState::Unsteady => {
            let share = 100.0 * of.steady_share.unwrap_or_default();
            format!("did not converge: {share:.0}% of the last half within 10% of {steady}")
        }
        ConvergenceState::TooShort => too_short(of.windows.len(), of.window_seconds),
        ConvergenceState::Idle => "nothing moved in the last half".to_owned(),
    }
}

/// Why nothing is said of too few windows.
pub(crate) fn too_short(windows: usize, window_seconds: f64) -> String {
    let least = units::seconds(LEAST as f64 * window_seconds);
    let window = units::seconds(window_seconds);
    format!(
        "too short: {windows} windows of {window}, and {LEAST} are needed: use at least {least}"
    )
}
