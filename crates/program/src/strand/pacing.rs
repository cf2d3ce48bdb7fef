//! When a strand may act: the intended starts of open-loop load, and pauses after failures.

use wirecost_model::clock::Nanos;

use crate::departures::{Departures, LONGEST_SPREAD};
use crate::step::Pace;

#[derive(Debug, Default)]
pub(super) struct Pacing {
    /// Intended start of the last transaction that was drawn, from the beginning of the phase.
    intended: Nanos,
    /// Transactions drawn.
    drawn: u64,
    /// No attempt before this instant; 0 for none.
    pause: Nanos,
    /// When the transaction under way is due, and over which time its datagrams are spread, where they have departure
    /// times; none: they leave at once.
    due: Option<(Nanos, Nanos)>,
    /// When the last datagram leaves that has a departure time.
    left: Nanos,
}

impl Pacing {
    /// Intended start of transaction `number`, from the instant that the pace counts from.
    pub(super) fn intended(&mut self, pace: &Pace, strand: u32, number: u64) -> Nanos {
        while self.drawn <= number {
            self.intended = pace.intended(strand, self.drawn, self.intended);
            self.drawn += 1;
        }
        self.intended
    }

    /// The transaction that was drawn last is due at this instant, and its datagrams are spread over the time until the
    /// next one is.
    pub(super) fn schedule(&mut self, pace: &Pace, strand: u32, due: Nanos) {
        let next = pace.intended(strand, self.drawn, self.intended);
        // A trace that ends has no next one.
        let spread = if next == Nanos::MAX { 0 } else { next.saturating_sub(self.intended) };
        self.due = Some((due, spread.min(LONGEST_SPREAD)));
    }

    /// The transaction that begins is not due at any instant.
    pub(super) fn unschedule(&mut self) {
        self.due = None;
    }

    /// When messages leave that are handed over `now`: `before` of them have been, of all `messages` of the transaction.
    /// A datagram that is late leaves at once, but none overtakes another: fq sorts those of a socket by their times.
    pub(super) fn departures(&self, (before, messages): (u64, u64), now: Nanos) -> Departures {
        let earliest = now.max(self.left);
        Departures::new(self.due.unwrap_or((now, 0)), (before, messages), earliest)
    }

    pub(super) fn note_departure(&mut self, at: Nanos) {
        self.left = self.left.max(at);
    }

    pub(super) fn pause(&mut self, until: Nanos) {
        self.pause = until;
    }

    /// Until when there is to be no attempt.
    #[inline]
    pub(super) fn paused(&mut self, now: impl FnOnce() -> Nanos) -> Option<Nanos> {
        if self.pause == 0 {
            return None;
        }
        if now() < self.pause {
            return Some(self.pause);
        }
        self.pause = 0;
        None
    }
}
