//! Which raw lines a phase has: one at every whole interval from the beginning of its window to its
//! end. Their numbers begin with zeros there, so that the difference of any two neighbours is that of
//! one interval of the window.

use wirecost_model::clock::{MILLISECOND, Nanos, nanos};
use wirecost_model::event::Reading;
use wirecost_model::profile::Until;

/// The numbers of a raw line.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Line {
    pub(super) unix_ms: f64,
    pub(super) bytes: u64,
    pub(super) operations: u64,
}

/// The raw lines of one phase, in their order.
#[derive(Debug)]
pub(super) struct Intervals {
    phase: u32,
    /// When the phase began.
    unix_ms: f64,
    interval: Nanos,
    /// When the next line is due, since the phase began.
    next: Nanos,
    /// The end of the window, where that is known before.
    end: Option<Nanos>,
    /// What had been counted at the beginning of the window.
    before: Option<Reading>,
}

impl Intervals {
    pub(super) fn new(
        phase: u32,
        until: Until,
        ramp: Nanos,
        interval: Nanos,
        unix_ms: f64,
    ) -> Self {
        let end = match until {
            Until::Duration(length) => Some(ramp.saturating_add(nanos(length))),
            Until::Iterations(_) => None,
        };
        Self { phase, unix_ms, interval: interval.max(1), next: ramp, end, before: None }
    }

    pub(super) fn phase(&self) -> u32 {
        self.phase
    }

    pub(super) fn is_timed(&self) -> bool {
        self.end.is_some()
    }

    /// The line of this reading, if that is of the next whole interval.
    pub(super) fn line(&mut self, reading: &Reading) -> Option<Line> {
        if reading.due != self.next || self.end.is_some_and(|end| reading.due > end) {
            return None;
        }
        self.next = self.next.saturating_add(self.interval);
        let before = self.before.get_or_insert(*reading);
        Some(Line {
            unix_ms: self.unix_ms + reading.elapsed as f64 / MILLISECOND as f64,
            bytes: reading.bytes.saturating_sub(before.bytes),
            operations: reading.operations.saturating_sub(before.operations),
        })
    }
}
