//! What probes saw, in the document of the run: whose it is, and what looking cost.

use wirecost_model::measure::{Edge, Snapshot};
use wirecost_model::observe::{HostObservation, ProbeReport, ProbeStatus, ProcessTime};
use wirecost_model::outcome::{HostOutcome, Outcome};
use wirecost_model::run::{Observe, ObserverCost, Pass, Run};

use crate::figures::Totals;
use crate::intervals;
use crate::statistics::{Batches, ratio_of_batches};
use crate::window::{HostWindow, Span};

/// What was seen on the machine of these hosts as a whole, in the phase of the window.
pub(crate) fn of_machine<'a>(
    outcome: &'a Outcome,
    hosts: &[&HostOutcome],
    window: &HostWindow<'_>,
) -> Option<&'a HostObservation> {
    let ours = |name: &String| hosts.iter().any(|host| host.name == *name);
    parts(outcome, window.phase.phase)
        .find(|part| part.covers.len() == hosts.len() && part.covers.iter().all(ours))
}

/// What was seen of a host: of its own CPUs where it has some, else of all that it shares.
pub(crate) fn of_host<'a>(
    outcome: &'a Outcome,
    window: &HostWindow<'_>,
) -> Option<&'a HostObservation> {
    parts(outcome, window.phase.phase)
        .filter(|part| part.covers.contains(&window.host.name))
        .min_by_key(|part| part.covers.len())
}

fn parts(outcome: &Outcome, phase: u32) -> impl Iterator<Item = &HostObservation> {
    let of_phase = outcome.observations.iter().filter(move |seen| seen.phase == phase);
    of_phase.flat_map(|seen| &seen.observation.parts)
}

/// The document's part; `None` where nothing observed.
pub(crate) fn section(outcome: &Outcome, windows: &[HostWindow<'_>]) -> Option<Observe> {
    let phase = windows.first()?.phase.phase;
    let mut of_phase = outcome.observations.iter().filter(|seen| seen.phase == phase).peekable();
    of_phase.peek()?;
    let (mut probes, mut hosts) = (Vec::new(), Vec::new());
    for seen in of_phase {
        probes.extend(seen.observation.probes.iter().cloned());
        // What is told of each host is not told of the machine again.
        let parts = &seen.observation.parts;
        let least = parts.iter().map(|part| part.covers.len()).min().unwrap_or(0);
        hosts.extend(parts.iter().filter(|part| part.covers.len() == least).cloned());
    }
    for process in hosts.iter_mut().filter_map(|seen: &mut HostObservation| seen.cpu.as_mut()) {
        name_agents(outcome, &mut process.processes);
    }
    let (cost, cost_reason) = match cost(windows) {
        Ok(cost) => (Some(cost), None),
        Err(reason) => (None, Some(reason.to_owned())),
    };
    Some(Observe { cost, cost_reason, probes, hosts, passes: Vec::new() })
}

/// Which agent of this run a process is, where there are several.
fn name_agents(outcome: &Outcome, processes: &mut [ProcessTime]) {
    for process in processes.iter_mut().filter(|process| process.role.is_some()) {
        if let Some(host) = outcome.hosts.iter().find(|host| host.pid == process.pid) {
            process.role = Some(format!("agent of {}", host.name));
        }
    }
}

/// Divides the cost of each host, or of the machine that hosts share, among what was observed of
/// it.
pub(crate) fn spread_cost(run: &mut Run) {
    let Some(observe) = &mut run.observe else { return };
    for seen in &mut observe.hosts {
        let of_host = run.hosts.iter().find(|host| seen.covers == [host.name.as_str()]);
        let cost = match of_host {
            Some(host) => host.cycles_per_kbyte,
            None => run
                .machines
                .iter()
                .find(|machine| machine.hosts == seen.covers)
                .and_then(|machine| machine.cycles_per_kbyte),
        };
        seen.divide_cost(cost);
    }
}

/// Adds what a further pass under other probes saw: of hosts and probes that the document does not
/// have, all; of the others, what is missing.
pub(crate) fn add_pass(document: &mut Run, pass: Run, probes: &[String]) {
    let observe = document.observe.get_or_insert_default();
    observe.passes.push(self::pass(&pass, probes, false));
    let Some(further) = pass.observe else { return };
    for report in further.probes {
        let known =
            |other: &&mut ProbeReport| other.host == report.host && other.name == report.name;
        match observe.probes.iter_mut().find(known) {
            // The sections are of whoever saw more, and so is the report.
            Some(known) if known.status != ProbeStatus::Ready => *known = report,
            Some(_) => {}
            None => observe.probes.push(report),
        }
    }
    for host in further.hosts {
        match observe.hosts.iter_mut().find(|known| known.host == host.host) {
            Some(known) => known.complete_with(host),
            None => observe.hosts.push(host),
        }
    }
}

/// How a run did under these probes.
pub(crate) fn pass(run: &Run, probes: &[String], headline: bool) -> Pass {
    Pass {
        probes: probes.to_vec(),
        headline,
        status: run.status,
        error: run.error.clone(),
        seconds: run.window.as_ref().map(|window| window.seconds),
        bits_per_second: run.throughput.as_ref().map(|throughput| throughput.bits_per_second),
        transactions_per_second: run.transactions.as_ref().map(|t| t.per_second),
    }
}

/// The window against the time just before and after it.
fn cost(windows: &[HostWindow<'_>]) -> Result<ObserverCost, &'static str> {
    let beside = beside(windows);
    if beside.is_empty() {
        return Err(
            "the run is too short to measure load without probes: use a --duration of 2s or more, \
             the same for all groups, and the default --ramp",
        );
    }
    let moved = windows.iter().any(|window| window.span.bytes().total() > 0);
    let rate = |spans: &Vec<Span<'_>>| {
        let sides = windows.iter().map(|window| window.host.side);
        let totals = Totals::of(sides.zip(spans.iter().copied()));
        match moved {
            true => totals.bits_per_second(),
            false => totals.transactions as f64 / totals.seconds,
        }
    };
    let seconds = |spans: &Vec<Span<'_>>| {
        spans.iter().map(Span::seconds).sum::<f64>() / spans.len().max(1) as f64
    };
    let rates = |spans: &[Vec<Span<'_>>]| -> Vec<(f64, f64)> {
        spans.iter().map(|spans| (seconds(spans), rate(spans))).collect()
    };
    let (within, outside) = (rates(&intervals::spans(windows)), rates(&beside));
    // The time before the window, and that after it, are a batch each.
    let length = outside.iter().map(|(seconds, _)| seconds).sum::<f64>() / 2.0;
    let (observed, unobserved) = (Batches::of(&within, length), Batches::of(&outside, length));
    // Intervals need not fill the window; the whole of it is the figure.
    let whole: Vec<Span<'_>> = windows.iter().map(|window| window.span).collect();
    let observed = observed.with_mean(rate(&whole));
    let (value, interval) = ratio_of_batches(&observed, &unobserved)
        .ok_or("nothing moved before and after the window")?;
    Ok(ObserverCost {
        metric: if moved { "bits_per_second" } else { "transactions_per_second" }.to_owned(),
        observed: observed.mean(),
        unobserved: unobserved.mean(),
        ratio: value,
        interval,
        unobserved_seconds: beside
            .iter()
            .filter_map(|spans| spans.first())
            .map(Span::seconds)
            .sum(),
    })
}

/// Parts of the time beside the window: of each, what every host counted.
fn beside<'a>(windows: &[HostWindow<'a>]) -> Vec<Vec<Span<'a>>> {
    let of_host = |window: &HostWindow<'a>| -> Vec<Span<'a>> {
        let snapshots: Vec<&'a Snapshot> = window
            .phase
            .snapshots
            .iter()
            .filter(|snapshot| snapshot.edge == Edge::Unobserved)
            .collect();
        let same_side = |a: &Snapshot, b: &Snapshot| {
            let before = |snapshot: &Snapshot| snapshot.due < window.span.start.due;
            before(a) == before(b)
        };
        snapshots
            .windows(2)
            .filter(|pair| same_side(pair[0], pair[1]))
            .map(|pair| Span { start: pair[0], end: pair[1] })
            .collect()
    };
    let hosts: Vec<Vec<Span<'a>>> = windows.iter().map(of_host).collect();
    let parts = hosts.iter().map(Vec::len).min().unwrap_or(0);
    (0..parts)
        .map(|part| hosts.iter().map(|spans| spans[part]).collect::<Vec<_>>())
        .filter(|spans| spans.iter().all(|span| span.seconds() > 0.0))
        .collect()
}
