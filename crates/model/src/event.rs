//! What happens while a run is under way. The controller emits events; the live display, the raw
//! lines of uperf's format and whatever comes later only listen.

use serde::{Deserialize, Serialize};

use crate::clock::Nanos;
use crate::measure::{Counters, Snapshot};
use crate::profile::Until;
use crate::program::Side;
use crate::warning::Warning;

#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A host is preparing the files that it sends: bytes that it has written or read, and those that it is to.
    Preparing {
        host: String,
        done: u64,
        total: u64,
        unix_ms: f64,
    },
    /// All hosts have agreed and every service listens; nothing has moved yet.
    Ready {
        hosts: Vec<HostBrief>,
        phases: u32,
    },
    PhaseStarted {
        phase: u32,
        until: Until,
        /// Time before the window.
        ramp: Nanos,
        /// Whether the window of this phase gives the run's figures.
        headline: bool,
        /// Wall-clock time at which the phase begins, milliseconds since 1970, for display only.
        unix_ms: f64,
    },
    /// New counters, as often as the interval says. Cumulative since the phase began.
    Tick {
        phase: u32,
        /// Since the phase began, ramp included.
        elapsed: Nanos,
        unix_ms: f64,
        /// The newest counters of each host that has reported in this phase.
        hosts: Vec<HostCounters>,
        /// What the master had counted at each instant since the last tick, in order of time.
        readings: Vec<Reading>,
    },
    PhaseEnded {
        phase: u32,
        unix_ms: f64,
        hosts: Vec<HostCounters>,
        /// What the master had counted at each instant of the whole phase, in order of time.
        readings: Vec<Reading>,
    },
    Warning(Warning),
}

/// A host as events name it.
#[derive(Debug, Clone, PartialEq)]
pub struct HostBrief {
    pub name: String,
    pub side: Side,
    pub workers: u32,
    pub cpus: Vec<u32>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct HostCounters {
    pub host: u32,
    pub side: Side,
    /// Since the phase began, on the host's own clock.
    pub elapsed: Nanos,
    pub counters: Counters,
}

/// What a host had counted at one instant, since the phase began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Reading {
    /// When it was due, since the phase began.
    pub due: Nanos,
    /// When it was taken, since the phase began.
    pub elapsed: Nanos,
    /// Sent and received.
    pub bytes: u64,
    /// Operations of all flowops, those that failed included.
    pub operations: u64,
}

impl Reading {
    /// Of a snapshot, in a phase that began at `start` on the same clock.
    pub fn new(snapshot: &Snapshot, start: Nanos) -> Self {
        let counters = &snapshot.counters;
        Self {
            due: snapshot.due.saturating_sub(start),
            elapsed: snapshot.at.saturating_sub(start),
            bytes: counters.bytes.total(),
            operations: counters.flowops.iter().map(|flowop| flowop.done + flowop.failed).sum(),
        }
    }
}

/// Receives events in the order in which they happen, on the controller's thread. A listener must
/// not block: what it spends is spent by the controller.
pub trait Listener {
    fn event(&mut self, event: &Event);
}

impl Listener for () {
    fn event(&mut self, _: &Event) {}
}

impl<F: FnMut(&Event)> Listener for F {
    fn event(&mut self, event: &Event) {
        self(event);
    }
}
