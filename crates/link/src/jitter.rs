//! A delay that varies: straight lines between values drawn at equal distances in time.

use crate::clock::Instant;

/// The distance of two values, in multiples of the jitter: a packet that follows another is delayed less by at most
/// half of the time between both, so that it does not overtake it.
const DISTANCE: u64 = 4;

#[derive(Debug)]
pub(crate) struct Jitter {
    jitter: u64,
    /// The line that is in effect: its number, and the values at its ends (0 to twice the jitter).
    line: Option<(u64, u64, u64)>,
}

impl Jitter {
    pub(crate) fn new(jitter: u64) -> Self {
        Self { jitter, line: None }
    }

    /// By how much a packet at this instant comes later, and by how much earlier: the difference counts.
    pub(crate) fn at(&mut self, instant: Instant, random: &mut fastrand::Rng) -> (u64, u64) {
        if self.jitter == 0 {
            return (0, 0);
        }
        let length = DISTANCE * self.jitter;
        let (number, within) = (instant / length, instant % length);
        let mut draw = || random.u64(0..=2 * self.jitter);
        let (from, to) = match self.line {
            Some((known, from, to)) if known == number => (from, to),
            Some((known, _, to)) if known + 1 == number => (to, draw()),
            _ => (draw(), draw()),
        };
        self.line = Some((number, from, to));
        let share = within as f64 / length as f64;
        let value = from as f64 + (to as f64 - from as f64) * share;
        (value as u64, self.jitter)
    }
}
