//! Streams over time: the convergence of each, and how they share.
//!
//! The end that received more tells what moved, as what a sender has handed to its kernel has not arrived. Of a stream it
//! knows bytes at instants; between these its throughput is even.

use std::collections::{BTreeMap, BTreeSet};

use wirecost_model::clock;
use wirecost_model::convergence::Stream;
use wirecost_model::measure::{Edge, FairnessSums, StrandSeries};
use wirecost_model::program::Side;
use wirecost_model::run::{Fairness, GroupFairness, Run, StreamGroup};

use crate::convergence::{self, Curve, LEAST, Sender};
use crate::window::HostWindow;

/// Jain's index of streams that share fairly.
const FAIR: f64 = 0.95;

/// A stream that was followed.
struct Followed<'a> {
    host: &'a str,
    series: &'a StrandSeries,
    curve: Curve,
    /// Throughput of the windows of time.
    rates: Vec<f64>,
    /// In the window of the run.
    rate: f64,
    rtt_us: Option<f64>,
}

/// Fills in the convergence of the run and of its streams, and its fairness.
pub(crate) fn fill(run: &mut Run, windows: &[HostWindow<'_>]) {
    let total = convergence::total(windows);
    // Where a host has no snapshot, nothing is known of what moved between.
    let length = longest(convergence::window_seconds(windows), total.largest_gap());
    run.convergence = total.moved().then(|| convergence::judge(total.rates(length), length));
    let followed = follow(windows, length);
    run.fairness = fairness(windows, &followed, length);
    let streams = followed.iter().map(|of| Stream {
        host: of.host.to_owned(),
        group: of.series.group,
        strand: of.series.strand,
        bits_per_second: of.rate,
        rtt_us: of.rtt_us,
        convergence: convergence::judge(of.rates.clone(), of.length(length)),
    });
    run.streams = (!followed.is_empty()).then(|| streams.collect());
}

impl Followed<'_> {
    /// Of a long run only some instants are kept.
    fn length(&self, length: f64) -> f64 {
        longest(length, self.curve.spacing())
    }
}

/// A length of windows that instants at this distance can tell.
fn longest(length: f64, spacing: f64) -> f64 {
    // Instants are late by milliseconds.
    if spacing > 1.2 * length { spacing } else { length }
}

/// The streams that moved bytes, as the side that received more knows them.
fn follow<'a>(windows: &[HostWindow<'a>], length: f64) -> Vec<Followed<'a>> {
    let received = |side: Side| -> u64 {
        let of_side = windows.iter().filter(|window| window.host.side == side);
        of_side.map(|window| window.span.bytes().received()).sum()
    };
    let side = match received(Side::Peer) >= received(Side::Master) {
        true => Side::Peer,
        false => Side::Master,
    };
    let of_side = || windows.iter().filter(|window| window.host.side == side);
    let is_unfollowed = |window: &HostWindow<'_>| {
        window.span.bytes().received() > 0 && window.phase.strand_series.is_empty()
    };
    // Of a part of the streams, nothing is said.
    if of_side().any(is_unfollowed) {
        return Vec::new();
    }
    let series = || of_side().flat_map(|window| &window.phase.strand_series);
    let moved = |series: &&StrandSeries| series.bytes.last().is_some_and(|(_, bytes)| *bytes > 0);
    // A stream that moved nothing beside others of its group starved.
    let groups: BTreeSet<u32> = series().filter(moved).map(|series| series.group).collect();
    let round_trips = convergence::round_trips(windows);
    let mut followed = Vec::new();
    for window in of_side() {
        let Some(start) = window.phase.snapshot(Edge::PhaseStart) else { continue };
        let since = |at: u64| clock::seconds(at.saturating_sub(start.due));
        let (from, to) = (since(window.span.start.due), since(window.span.end.due));
        for series in window.phase.strand_series.iter().filter(|of| groups.contains(&of.group)) {
            let points = series.bytes.iter().map(|&(at, bytes)| (since(at), bytes as f64 * 8.0));
            let curve = Curve::new(points);
            followed.push(Followed {
                host: &window.host.name,
                series,
                rates: curve.rates(longest(length, curve.spacing())),
                rate: curve.mean(from, to),
                rtt_us: round_trip(windows, &round_trips, window, series),
                curve,
            });
        }
    }
    followed
}

/// Of a stream as its receiver names it: that of the strand of the same number at the far end.
fn round_trip(
    windows: &[HostWindow<'_>],
    round_trips: &BTreeMap<Sender<'_>, f64>,
    receiver: &HostWindow<'_>,
    series: &StrandSeries,
) -> Option<f64> {
    let (side, group, strand) = (receiver.host.side, series.group, series.strand);
    let has_group = |window: &&HostWindow<'_>| {
        window.host.side == side && window.phase.strand_series.iter().any(|of| of.group == group)
    };
    // A strand of the master with connections to several peers is sampled on one of them, and it is unknown on which.
    if side == Side::Peer && windows.iter().filter(has_group).count() > 1 {
        return None;
    }
    let senders = windows.iter().filter(|window| window.host.side != side);
    let known = senders.filter_map(|window| {
        round_trips.get(&Sender { host: &window.host.name, group, strand }).copied()
    });
    // What several peers send to a strand of the master is one stream, which is as slow as the slowest of them.
    known.reduce(f64::max)
}

fn fairness(
    windows: &[HostWindow<'_>],
    followed: &[Followed<'_>],
    length: f64,
) -> Option<Fairness> {
    let mut sums = FairnessSums::default();
    let masters = windows.iter().filter(|window| window.host.side == Side::Master);
    masters.for_each(|window| sums.merge(&window.phase.fairness));
    let rates: Vec<&[f64]> = followed.iter().map(|of| &of.rates[..]).collect();
    let length = followed.iter().map(|of| of.length(length)).fold(length, f64::max);
    let time = match followed.len() {
        0 => Err("streams were not followed: there are more than 64, or they move no bytes".into()),
        1 => Err("there is one stream".to_owned()),
        _ => time_to_fair_share(&rates, length),
    };
    Some(Fairness {
        jain: sums.jain()?,
        strands: sums.strands,
        ratio: sums.ratio(),
        fair_share_seconds: time.as_ref().ok().copied(),
        fair_share_reason: time.err(),
        between_groups: between_groups(followed, length),
    })
}

/// When shares become fair and stay so, seconds since the start of traffic.
///
/// # Errors
/// They do not, or nothing can be said.
fn time_to_fair_share(rates: &[&[f64]], length: f64) -> Result<f64, String> {
    let count = rates.iter().map(|of| of.len()).min().unwrap_or(0);
    if count < LEAST {
        return Err(convergence::too_short(count, length));
    }
    let jain = |place: usize| {
        let mut sums = FairnessSums::default();
        rates.iter().for_each(|of| sums.add(of[place]));
        sums.jain()
    };
    let fair: Vec<bool> =
        (0..count).map(|place| jain(place).is_some_and(|jain| jain >= FAIR)).collect();
    match convergence::first_lasting(&fair) {
        Some(place) => Ok(place as f64 * length),
        None => {
            let share = 100 * fair.iter().filter(|fair| **fair).count() / count;
            Err(format!(
                "Jain's index was at least {FAIR} in {share}% of the time, and never lasted"
            ))
        }
    }
}

/// Groups of the profile, each to each peer; `None` where there is one.
fn between_groups(followed: &[Followed<'_>], length: f64) -> Option<GroupFairness> {
    let key = |of: &Followed<'_>| (of.host.to_owned(), of.series.group);
    let mut keys: Vec<(String, u32)> = followed.iter().map(key).collect();
    keys.sort();
    keys.dedup();
    if keys.len() < 2 {
        return None;
    }
    let mut sums = FairnessSums::default();
    let (mut groups, mut rates) = (Vec::new(), Vec::new());
    for name in keys {
        let members: Vec<&Followed<'_>> = followed.iter().filter(|of| key(of) == name).collect();
        let count = members.len() as f64;
        let bits_per_second = members.iter().map(|of| of.rate).sum::<f64>() / count;
        sums.add(bits_per_second);
        let least = members.iter().map(|of| of.rates.len()).min().unwrap_or(0);
        let mean = |place: usize| members.iter().map(|of| of.rates[place]).sum::<f64>() / count;
        rates.push((0..least).map(mean).collect::<Vec<f64>>());
        let round_trips: Vec<f64> = members.iter().filter_map(|of| of.rtt_us).collect();
        let (host, group) = name;
        groups.push(StreamGroup {
            host,
            group,
            streams: members.len() as u64,
            bits_per_second,
            rtt_us: (!round_trips.is_empty())
                .then(|| round_trips.iter().sum::<f64>() / round_trips.len() as f64),
        });
    }
    let rates: Vec<&[f64]> = rates.iter().map(|of| &of[..]).collect();
    Some(GroupFairness {
        jain: sums.jain()?,
        ratio: sums.ratio(),
        fair_share_seconds: time_to_fair_share(&rates, length).ok(),
        groups,
    })
}
