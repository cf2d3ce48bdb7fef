//! When a link has sent a packet: a constant rate, a rate that changes, or a trace of opportunities.

use wirecost_model::link::{Capacity, OPPORTUNITY_BYTES, WIRE_OVERHEAD};

/// Nanoseconds since the link began.
pub(crate) type Instant = u64;

const SECOND: u128 = 1_000_000_000;

/// Transmits packets one after another. Instants that it gets never decrease.
#[derive(Debug)]
pub(crate) enum Transmitter {
    Unlimited,
    Rate(Rate),
    Steps(Steps),
    Opportunities(Opportunities),
}

impl Transmitter {
    pub(crate) fn new(capacity: &Capacity) -> Self {
        match capacity {
            Capacity::Unlimited => Self::Unlimited,
            Capacity::Rate(rate) => Self::Rate(Rate::new(*rate)),
            Capacity::Steps(steps) => Self::Steps(Steps::new(steps)),
            Capacity::Opportunities(milliseconds) => {
                Self::Opportunities(Opportunities::new(milliseconds))
            }
        }
    }

    /// When a packet of `bytes` (IP) whose transmission begins at `start` has been sent.
    pub(crate) fn transmit(&mut self, start: Instant, bytes: u32) -> Instant {
        match self {
            Self::Unlimited => start,
            Self::Rate(rate) => rate.transmit(start, bytes + WIRE_OVERHEAD),
            Self::Steps(steps) => steps.transmit(start, bytes + WIRE_OVERHEAD),
            Self::Opportunities(opportunities) => opportunities.transmit(start, bytes),
        }
    }

    /// About how long `bytes` take that follow one another.
    pub(crate) fn estimate(&self, bytes: u32) -> u64 {
        let rate = match self {
            Self::Unlimited => return 0,
            Self::Rate(rate) => rate.bits_per_second,
            Self::Steps(steps) => steps.steps[steps.at].1.max(1),
            Self::Opportunities(_) => return MILLISECOND,
        };
        u64::try_from(u128::from(bytes) * 8 * SECOND / u128::from(rate)).unwrap_or(u64::MAX)
    }
}

/// A constant rate, without rounding errors that add up.
#[derive(Debug)]
pub(crate) struct Rate {
    bits_per_second: u64,
    /// End of the last transmission, and the fraction of a nanosecond by which it ends later, times
    /// the rate.
    end: Instant,
    remainder: u128,
}

impl Rate {
    fn new(bits_per_second: u64) -> Self {
        Self { bits_per_second: bits_per_second.max(1), end: 0, remainder: 0 }
    }

    fn transmit(&mut self, start: Instant, bytes: u32) -> Instant {
        // The fraction counts only where one transmission follows another.
        let fraction = if start == self.end { self.remainder } else { 0 };
        let rate = u128::from(self.bits_per_second);
        let nanobits = u128::from(bytes) * 8 * SECOND + fraction;
        self.remainder = nanobits % rate;
        self.end = start.saturating_add(u64::try_from(nanobits / rate).unwrap_or(u64::MAX));
        self.end
    }
}

/// A rate that changes at given times, and begins anew after the last.
#[derive(Debug)]
pub(crate) struct Steps {
    /// Length in nanoseconds, and rate in bits per second.
    steps: Vec<(u64, u64)>,
    /// Length of all.
    length: u64,
    /// The step that is in effect, and its end.
    at: usize,
    until: Instant,
}

impl Steps {
    fn new(steps: &[(u64, u64)]) -> Self {
        let until = steps.first().map_or(u64::MAX, |(length, _)| *length);
        let length = steps.iter().map(|(length, _)| length).sum::<u64>().max(1);
        Self { steps: steps.to_vec(), length, at: 0, until }
    }

    fn transmit(&mut self, start: Instant, bytes: u32) -> Instant {
        let mut nanobits = u128::from(bytes) * 8 * SECOND;
        let mut now = start;
        // Whole passes in which nothing was sent.
        self.until += now.saturating_sub(self.until) / self.length * self.length;
        loop {
            while self.until <= now {
                self.at = (self.at + 1) % self.steps.len();
                self.until = self.until.saturating_add(self.steps[self.at].0);
            }
            let rate = u128::from(self.steps[self.at].1);
            let possible = rate * u128::from(self.until - now);
            if possible >= nanobits {
                return now + u64::try_from(nanobits.div_ceil(rate.max(1))).unwrap_or(u64::MAX);
            }
            nanobits -= possible;
            now = self.until;
        }
    }
}

/// Mahimahi's traces: instants at which 1500 bytes can leave, again and again. What no packet uses at
/// its instant is lost. <https://github.com/ravinet/mahimahi>
#[derive(Debug)]
pub(crate) struct Opportunities {
    milliseconds: Vec<u64>,
    /// The next opportunity: its index, and the time at which this pass of the trace began.
    at: usize,
    began: Instant,
    /// What is left of the opportunity before it, and when that was.
    left: u32,
    left_at: Instant,
}

const MILLISECOND: u64 = 1_000_000;

impl Opportunities {
    fn new(milliseconds: &[u64]) -> Self {
        Self { milliseconds: milliseconds.to_vec(), at: 0, began: 0, left: 0, left_at: 0 }
    }

    fn transmit(&mut self, start: Instant, bytes: u32) -> Instant {
        let mut bytes = bytes;
        if self.left_at < start {
            self.left = 0;
        }
        // Whole passes in which nothing was sent.
        let length = self.milliseconds.last().map_or(1, |last| last * MILLISECOND).max(1);
        let passes = start.saturating_sub(self.began).saturating_sub(1) / length;
        if passes > 0 {
            self.began += passes * length;
            self.at = 0;
        }
        loop {
            let used = bytes.min(self.left);
            self.left -= used;
            bytes -= used;
            if bytes == 0 {
                return self.left_at;
            }
            self.left_at = loop {
                let instant = self.began + self.milliseconds[self.at] * MILLISECOND;
                self.at += 1;
                if self.at == self.milliseconds.len() {
                    self.at = 0;
                    self.began = instant;
                }
                if instant >= start {
                    break instant;
                }
            };
            self.left = OPPORTUNITY_BYTES;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_exact_over_many_packets() {
        // 1538 bytes at 7 Gb/s take 1757.714... ns.
        let mut clock = Transmitter::new(&Capacity::Rate(7_000_000_000));
        let mut now = 0;
        for _ in 0..7_000_000 {
            now = clock.transmit(now, 1500);
        }
        assert_eq!(now, 1538 * 8 * 1_000_000);
    }

    #[test]
    fn a_packet_can_span_steps() {
        // 1500 bytes with what surrounds them are 12,304 bits.
        let steps =
            Capacity::Steps(vec![(1_000_000, 6_152_000), (2_000_000, 0), (1_000_000, 12_304_000)]);
        let mut clock = Transmitter::new(&steps);
        // 1 ms gives 6,152 bits, 2 ms give nothing, and 0.5 ms gives the rest.
        assert_eq!(clock.transmit(0, 1500), 3_500_000);
        assert_eq!(clock.transmit(3_500_000, 1500), 5_000_000);
    }

    #[test]
    fn idle_passes_are_skipped() {
        let year = 365 * 24 * 3_600 * 1_000 * MILLISECOND;
        let steps = vec![(MILLISECOND, 12_304_000), (MILLISECOND, 0)];
        let mut clock = Transmitter::new(&Capacity::Steps(steps));
        assert_eq!(clock.transmit(year, 1500), year + MILLISECOND);
        let mut clock = Transmitter::new(&Capacity::Opportunities(vec![1, 1, 2]));
        assert_eq!(clock.transmit(year, 1500), year);
        assert_eq!(clock.transmit(year + 1, 1500), year + MILLISECOND);
    }

    #[test]
    fn opportunities_are_used_or_lost() {
        let mut clock = Transmitter::new(&Capacity::Opportunities(vec![1, 1, 5, 10]));
        let at = |ms: u64| ms * MILLISECOND;
        assert_eq!(clock.transmit(0, 1500), at(1));
        // The second at 1 ms was not used, as the packet came later.
        assert_eq!(clock.transmit(at(2), 700), at(5));
        // It has room for another, but not for a third.
        assert_eq!(clock.transmit(at(5), 800), at(5));
        assert_eq!(clock.transmit(at(5), 1501), at(11));
        // The trace repeats every 10 ms.
        assert_eq!(clock.transmit(at(16), 1500), at(20));
    }
}
