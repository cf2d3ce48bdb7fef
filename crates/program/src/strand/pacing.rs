//! When a strand may act: the intended starts of open-loop load, and pauses after failures.

use wirecost_model::clock::Nanos;

use crate::step::Pace;

#[derive(Debug, Default)]
pub(super) struct Pacing {
    /// Intended start of the last transaction that was drawn, from the beginning of the phase.
    intended: Nanos,
    /// Transactions drawn.
    drawn: u64,
    /// No attempt before this instant; 0 for none.
    pause: Nanos,
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
