//! The window of a phase as each host timed it, and the difference of two snapshots of one host.

use wirecost_model::clock;
use wirecost_model::measure::{Bytes, Datagrams, Edge, FlowopCounts, PhaseResult, Snapshot};
use wirecost_model::outcome::{HostOutcome, Outcome};
use wirecost_model::profile::Until;

/// What a host counted between two of its snapshots.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span<'a> {
    pub(crate) start: &'a Snapshot,
    pub(crate) end: &'a Snapshot,
}

impl Span<'_> {
    /// Actual length, on the host's own clock.
    pub(crate) fn seconds(&self) -> f64 {
        clock::seconds(self.end.at.saturating_sub(self.start.at))
    }

    pub(crate) fn bytes(&self) -> Bytes {
        let (a, b) = (&self.start.counters.bytes, &self.end.counters.bytes);
        Bytes {
            tx_sent: b.tx_sent.saturating_sub(a.tx_sent),
            tx_received: b.tx_received.saturating_sub(a.tx_received),
            rx_sent: b.rx_sent.saturating_sub(a.rx_sent),
            rx_received: b.rx_received.saturating_sub(a.rx_received),
        }
    }

    pub(crate) fn transactions(&self) -> u64 {
        let (a, b) = (&self.start.counters, &self.end.counters);
        b.transactions.saturating_sub(a.transactions)
    }

    pub(crate) fn datagrams(&self) -> Datagrams {
        self.end.counters.datagrams.since(&self.start.counters.datagrams)
    }

    /// By flowop, in the order of the phase's rows.
    pub(crate) fn flowops(&self) -> impl Iterator<Item = FlowopCounts> {
        let before = self.start.counters.flowops.iter().copied();
        let before = before.chain(std::iter::repeat(FlowopCounts::default()));
        let after = self.end.counters.flowops.iter();
        after.zip(before).map(|(b, a)| FlowopCounts {
            done: b.done.saturating_sub(a.done),
            failed: b.failed.saturating_sub(a.failed),
            timeouts: b.timeouts.saturating_sub(a.timeouts),
            bytes: b.bytes.saturating_sub(a.bytes),
        })
    }

    /// All flowops together.
    pub(crate) fn operations(&self) -> FlowopCounts {
        self.flowops().fold(FlowopCounts::default(), |sum, one| FlowopCounts {
            done: sum.done + one.done,
            failed: sum.failed + one.failed,
            timeouts: sum.timeouts + one.timeouts,
            bytes: sum.bytes + one.bytes,
        })
    }

    /// Whether any counter is smaller at the end than at the start: counters were lost.
    pub(crate) fn went_back(&self) -> bool {
        let (a, b) = (&self.start.counters, &self.end.counters);
        let shrank = |a: &FlowopCounts, b: &FlowopCounts| {
            b.done < a.done || b.failed < a.failed || b.bytes < a.bytes
        };
        b.transactions < a.transactions
            || b.bytes.tx_sent < a.bytes.tx_sent
            || b.bytes.tx_received < a.bytes.tx_received
            || b.bytes.rx_sent < a.bytes.rx_sent
            || b.bytes.rx_received < a.bytes.rx_received
            || b.flowops.len() < a.flowops.len()
            || a.flowops.iter().zip(&b.flowops).any(|(a, b)| shrank(a, b))
    }
}

/// The window of one phase on one host.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HostWindow<'a> {
    pub(crate) host: &'a HostOutcome,
    pub(crate) phase: &'a PhaseResult,
    pub(crate) span: Span<'a>,
    /// Whether the span is the entire phase, whose end nobody knew beforehand.
    pub(crate) whole: bool,
}

/// Why there is no window.
#[derive(Debug)]
pub(crate) enum Incomplete {
    NoHosts,
    /// The host did not reach the end of the phase.
    NotEnded {
        host: String,
        phase: usize,
    },
    /// The phase ended but the edges of its window are missing, or are the same instant.
    NoEdges {
        host: String,
        phase: usize,
    },
}

impl Incomplete {
    /// As part of a sentence that names no cause of its own.
    pub(crate) fn reason(&self) -> String {
        match self {
            Incomplete::NoHosts => "no host reported".to_owned(),
            Incomplete::NotEnded { host, phase } => {
                format!("{host} did not end phase {}", phase + 1)
            }
            Incomplete::NoEdges { host, phase } => {
                format!(
                    "{host} has no snapshots at both edges of the window of phase {}",
                    phase + 1
                )
            }
        }
    }
}

impl std::fmt::Display for Incomplete {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "no complete window: {}", self.reason())
    }
}

/// The window of this phase on every host, or why one has none.
pub(crate) fn of_phase(outcome: &Outcome, phase: usize) -> Result<Vec<HostWindow<'_>>, Incomplete> {
    if outcome.hosts.is_empty() {
        return Err(Incomplete::NoHosts);
    }
    let until = outcome.phases.get(phase).map(|plan| plan.until);
    let whole = matches!(until, Some(Until::Iterations(_)));
    outcome
        .hosts
        .iter()
        .map(|host| {
            let name = || host.name.clone();
            let result =
                result(host, phase).ok_or_else(|| Incomplete::NotEnded { host: name(), phase })?;
            let span = edges(result).ok_or_else(|| Incomplete::NoEdges { host: name(), phase })?;
            Ok(HostWindow { host, phase: result, span, whole })
        })
        .collect()
}

/// What the host reported of this phase.
pub(crate) fn result(host: &HostOutcome, phase: usize) -> Option<&PhaseResult> {
    host.phases.iter().find(|result| result.phase as usize == phase)
}

fn edges(result: &PhaseResult) -> Option<Span<'_>> {
    let start = result.snapshot(Edge::WindowStart)?;
    let end = result.snapshot(Edge::WindowEnd)?;
    (end.at > start.at).then_some(Span { start, end })
}
