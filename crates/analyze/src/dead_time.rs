//! Dead time: the part of a window in which no byte moved on any flow though operations were under
//! way, and the skew of the hosts' windows.

use wirecost_model::clock::{MICROSECOND, SECOND};
use wirecost_model::measure::{Quiet, Snapshot};
use wirecost_model::outcome::{DeadTimePolicy, HostOutcome, Outcome};
use wirecost_model::program::Side;
use wirecost_model::warning::{self, Warning};

use crate::window::HostWindow;

/// A time without traffic is dead from this length on, and from so many round trips, and from so many
/// times the longest of the ramp.
const SHORTEST: f64 = SECOND as f64;
const ROUND_TRIPS: f64 = 20.0;
const LONGEST_OF_RAMP: f64 = 5.0;
/// Beyond this share of the window the result is invalid.
const MOST: f64 = 0.1;

/// From, to; nanoseconds of the controller's clock.
type Time = (f64, f64);

#[derive(Debug)]
pub(crate) struct DeadTime {
    pub(crate) seconds: f64,
    longest: f64,
    window: f64,
    hosts: Vec<String>,
    /// Each of them: seconds from the start of the window, and its length.
    pub(crate) times: Vec<(f64, f64)>,
}

/// None where there is no window.
pub(crate) fn of_phase(
    outcome: &Outcome,
    phase: usize,
    windows: &[HostWindow<'_>],
) -> Option<DeadTime> {
    let plan = outcome.phases.get(phase)?;
    let (start, end) = common_window(windows)?;
    let least = shortest(windows);
    let of_host = |window: &HostWindow<'_>| -> Vec<Time> {
        let at = |nanos| on_controller(window.host, nanos);
        window.phase.quiet.iter().map(|&Quiet { from, to }| (at(from), at(to))).collect()
    };
    let (masters, peers): (Vec<_>, Vec<_>) =
        windows.iter().partition(|window| window.host.side == Side::Master);
    let of_masters = union(masters.iter().copied().flat_map(of_host).collect());
    let mut dead = Vec::new();
    let mut hosts = Vec::new();
    let mut add = |times: Vec<Time>, names: &[&HostWindow<'_>]| {
        let times: Vec<Time> = times
            .into_iter()
            .filter(|(from, to)| to - from >= least && *from < end && *to > start)
            .collect();
        if !times.is_empty() {
            hosts.extend(names.iter().map(|window| window.host.name.clone()));
            dead.extend(times);
        }
    };
    // One end alone can tell only where nothing but traffic can keep it waiting. With several peers
    // each has to, as the master has traffic with others; and of datagrams, their sender never knows
    // that they do not arrive.
    let alone = !plan.may_idle && (peers.len() > 1 || plan.datagrams);
    if alone || peers.is_empty() {
        add(of_masters, &masters);
        peers.iter().for_each(|&peer| add(union(of_host(peer)), &[peer]));
    } else {
        for &peer in &peers {
            let names: Vec<_> = masters.iter().copied().chain([peer]).collect();
            add(intersection(&of_masters, &union(of_host(peer))), &names);
        }
    }
    let dead = union(dead);
    let within = |(from, to): &Time| (to.min(end) - from.max(start)).max(0.0);
    let second = SECOND as f64;
    let mut seen = std::collections::BTreeSet::new();
    hosts.retain(|host| seen.insert(host.clone()));
    Some(DeadTime {
        // A sum of nothing would be -0.
        seconds: dead.iter().map(within).fold(0.0, |sum, time| sum + time) / second,
        longest: dead.iter().map(|(from, to)| to - from).fold(0.0, f64::max) / second,
        window: (end - start) / second,
        hosts,
        times: dead
            .iter()
            .map(|time| (time.0.max(start), within(time)))
            .map(|(from, length)| ((from - start) / second, length / second))
            .collect(),
    })
}

impl DeadTime {
    pub(crate) fn warning(&self) -> Option<Warning> {
        let Self { seconds, longest, window, hosts, .. } = self;
        (*seconds > 0.0).then(|| {
            Warning::from(warning::DeadTime {
                seconds: *seconds,
                longest: *longest,
                window: *window,
                hosts: hosts.clone(),
            })
        })
    }

    /// Why the result is invalid, where it is.
    pub(crate) fn error(&self, policy: DeadTimePolicy) -> Option<String> {
        let beyond = self.seconds > self.window * MOST && policy == DeadTimePolicy::Invalid;
        beyond.then(|| {
            format!(
                "no byte moved for {:.1} s of the window of {:.1} s, more than a tenth of it \
                 (a study of outages accepts that with dead_time = \"report\", a run with \
                 --dead-time report)",
                self.seconds, self.window
            )
        })
    }
}

fn on_controller(host: &HostOutcome, nanos: u64) -> f64 {
    (i128::from(nanos) - i128::from(host.clock_offset)) as f64
}

/// The window as it was planned, or as long as all hosts were in it.
fn common_window(windows: &[HostWindow<'_>]) -> Option<Time> {
    let at =
        |window: &HostWindow<'_>, snapshot: &Snapshot| on_controller(window.host, snapshot.due);
    let start = windows.iter().map(|window| at(window, window.span.start)).reduce(f64::min)?;
    let end = windows.iter().map(|window| at(window, window.span.end)).reduce(f64::max)?;
    (end > start).then_some((start, end))
}

/// The shortest time without traffic that is dead, nanoseconds.
fn shortest(windows: &[HostWindow<'_>]) -> f64 {
    let samples = windows.iter().flat_map(|window| &window.phase.tcp_samples);
    let mut round_trips: Vec<f64> = samples.map(|sample| sample.rtt_us).collect();
    let middle = round_trips.len() / 2;
    let median = match round_trips.is_empty() {
        true => 0.0,
        false => *round_trips.select_nth_unstable_by(middle, f64::total_cmp).1,
    };
    let ramp = windows.iter().map(|window| window.phase.longest_quiet_in_ramp).max().unwrap_or(0);
    SHORTEST.max(ROUND_TRIPS * median * MICROSECOND as f64).max(LONGEST_OF_RAMP * ramp as f64)
}

/// Sorted, and those that meet joined.
fn union(mut times: Vec<Time>) -> Vec<Time> {
    times.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut joined: Vec<Time> = Vec::new();
    for (from, to) in times {
        match joined.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(to),
            _ => joined.push((from, to)),
        }
    }
    joined
}

/// Of two unions.
fn intersection(a: &[Time], b: &[Time]) -> Vec<Time> {
    let (mut a, mut b) = (a.iter().peekable(), b.iter().peekable());
    let mut both = Vec::new();
    while let (Some(&&(from, to)), Some(&&(other_from, other_to))) = (a.peek(), b.peek()) {
        let common = (from.max(other_from), to.min(other_to));
        if common.0 < common.1 {
            both.push(common);
        }
        if to < other_to {
            a.next();
        } else {
            b.next();
        }
    }
    both
}
