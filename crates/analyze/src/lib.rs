//! Numbers from counters: makes the document of a run ([`Run`]) of what its hosts reported
//! ([`Outcome`]). Pure: no I/O and no clock, so a saved outcome gives the same document again.
//!
//! A value that was not measured is `None`, never 0. Lost counters or an unexplained difference of sent
//! and received make the run invalid. Anything else that can invalidate its figures is a warning.

pub mod compare;
mod conclusions;
mod conservation;
pub mod convergence;
pub mod cost_model;
mod cpu;
mod crypto;
mod dead_time;
pub mod disk_limits;
pub mod doctor;
mod figures;
pub mod findings;
#[cfg(test)]
mod fixtures;
mod foreign;
mod frames;
pub mod function_counts;
mod hardware;
mod hosts;
pub mod interrupt_polling;
mod intervals;
pub mod knee;
pub mod latency_knee;
mod link;
pub mod measured;
pub mod metrics;
mod observed;
pub mod option_payoff;
pub mod replay;
pub mod responsiveness;
mod rfc6349;
pub mod rtt_fairness;
mod run_warnings;
pub mod search;
pub mod stability;
pub mod statistics;
mod streams;
pub mod tuning;
pub mod udp_scaling;
pub mod wan_tuning;
mod watched;
mod window;

use wirecost_model::outcome::{DeadTimePolicy, Outcome};
use wirecost_model::profile::Until;
use wirecost_model::run::{Run, Window, WindowKind};
use wirecost_model::status::Status;
use wirecost_model::warning::Entry;

use crate::window::HostWindow;

pub use conclusions::Conclusions;
pub use statistics::Estimate;
pub use watched::watched;

/// Properties of a run that its hosts do not know.
#[derive(Debug, Clone, PartialEq)]
pub struct RunMeta {
    /// As named on the command line: a path or `@builtin`.
    pub profile: String,
    pub engine: String,
    /// Version of wirecost.
    pub version: String,
    /// Wall-clock start, milliseconds since 1970.
    pub started_unix_ms: u64,
    /// Names of the probes.
    pub probes: Vec<String>,
    pub dead_time: DeadTimePolicy,
    /// Offered load of the headline phase, bits per second of payload; `None` if it is as fast as it can be.
    pub offered_bits_per_second: Option<f64>,
}

/// Adds the observations of another run of the same profile, with these probes, to a document. The
/// figures stay those of the first run.
pub fn add_pass(document: &mut Run, pass: Run, probes: &[String]) {
    observed::add_pass(document, pass, probes);
    document.crypto = document.crypto.is_some().then(|| crypto::of(document));
}

/// The document of a run, from everything that its hosts reported.
pub fn run(outcome: &Outcome, meta: &RunMeta) -> Run {
    let mut run = Run::empty(&meta.profile, &meta.engine, &meta.version, meta.started_unix_ms);
    let mut errors = Vec::new();

    let headline = outcome.phases.iter().position(|plan| plan.headline);
    let windows = match headline.map(|phase| window::of_phase(outcome, phase)) {
        Some(Ok(windows)) => windows,
        Some(Err(incomplete)) => {
            errors.push(incomplete.to_string());
            Vec::new()
        }
        None => {
            errors.push("no complete window: no phase was run".to_owned());
            Vec::new()
        }
    };

    run.offered_bits_per_second = meta.offered_bits_per_second;
    if let Some(phase) = headline
        && !windows.is_empty()
    {
        fill_headline(&mut run, outcome, phase, &windows);
    }
    let dead_time = headline.and_then(|phase| dead_time::of_phase(outcome, phase, &windows));
    if let (Some(window), Some(dead_time)) = (&mut run.window, &dead_time) {
        window.dead_seconds = Some(dead_time.seconds);
        let lost = intervals::length(&windows).map_or(0, |length| {
            windows.iter().map(|window| intervals::lost(window, length).0).max().unwrap_or(0)
        });
        let timed = window.kind == WindowKind::Duration;
        run.stability = timed.then(|| stability::of(&run.intervals, &dead_time.times, lost));
    }
    run.phases = figures::phases(outcome);
    run.link = link::report(outcome, &windows);
    run.netem = link::netem(outcome, &windows);
    run.hosts = hosts::hosts(outcome, &windows, run.link.as_ref());
    run.machines = hosts::machines(outcome, &windows, run.link.as_ref());
    run.rfc6349 = rfc6349::of(&run, &windows);
    run.observe = observed::section(outcome, &windows);
    observed::spread_cost(&mut run);
    frames::add_observed(&mut run);
    let encrypts = outcome.phases.iter().any(|plan| plan.encrypts);
    run.crypto = encrypts.then(|| crypto::of(&run));
    run.settings = figures::settings(outcome);
    run.placements = figures::placements(outcome);
    errors.extend(conservation::check(outcome, headline, &windows));

    let mut problems = run_warnings::of(outcome, headline, &windows, &run);
    errors.extend(problems.errors);
    if let Some(dead_time) = dead_time {
        errors.extend(dead_time.error(meta.dead_time));
        problems.warnings.extend(dead_time.warning());
    }
    run.warnings = problems.warnings.iter().map(Entry::from).collect();
    run.warnings.dedup();

    set_status(&mut run, outcome, errors);
    let headline = observed::pass(&run, &meta.probes, true);
    if let Some(observe) = &mut run.observe {
        observe.passes.push(headline);
    }
    run
}

fn set_status(run: &mut Run, outcome: &Outcome, errors: Vec<String>) {
    // A failed run reports how it ended; incomplete figures follow from that.
    if outcome.status != Status::Ok {
        run.status = outcome.status;
        run.error = outcome.error.clone().or_else(|| errors.into_iter().next());
    } else if !errors.is_empty() {
        run.status = Status::Invalid;
        run.error = Some(errors.join("; "));
    }
}

fn fill_headline(run: &mut Run, outcome: &Outcome, phase: usize, windows: &[HostWindow<'_>]) {
    let plan = &outcome.phases[phase];
    let totals = figures::Totals::of(windows.iter().map(|w| (w.host.side, w.span)));
    run.window = Some(Window {
        seconds: totals.seconds,
        phase: phase as u32,
        ramp_seconds: plan.ramp_seconds,
        kind: kind(plan.until),
        dead_seconds: None,
        late_us: lateness(windows),
        started_unix_ms: plan.window_unix_ms,
    });
    run.throughput = Some(totals.throughput());
    run.transactions = Some(totals.transactions());
    run.operations = Some(totals.operations());
    run.connections = Some(figures::connections(outcome, phase, windows));
    let latency = figures::transactions(windows);
    run.latency_us = figures::microseconds(&latency);
    run.latency_histogram = figures::packed(&latency);
    run.flowops = figures::flowops(windows);
    run.intervals = intervals::rows(windows);
    run.tcp = figures::tcp(windows);
    run.group_rtts = figures::group_rtts(windows);
    run.datagrams = plan.datagrams.then(|| figures::datagrams(windows));
    run.frames = plan.datagrams.then(|| frames::of(windows, run.engine == NATIVE_FRAMES));
    streams::fill(run, windows);
    run.io = figures::io(windows);
}

/// How long after an edge of the window a host's counters were read at most, microseconds.
fn lateness(windows: &[HostWindow<'_>]) -> Option<f64> {
    let edges = windows.iter().flat_map(|window| [window.span.start, window.span.end]);
    let late = edges.map(|edge| edge.at.saturating_sub(edge.due)).max()?;
    Some(late as f64 / 1e3)
}

/// The engine whose XDP program runs in the driver.
const NATIVE_FRAMES: &str = "af_xdp_native";

fn kind(until: Until) -> WindowKind {
    match until {
        Until::Iterations(_) => WindowKind::Iterations,
        Until::Duration(_) => WindowKind::Duration,
    }
}
