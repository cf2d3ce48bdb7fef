//! How much a strand that only receives sleeps for.
//!
//! Woken by the first bytes it would sleep and wake for each write of the other end, which costs more
//! than moving them. So the kernel is told to wake it when many bytes are there (SO_RCVLOWAT), as
//! devices gather packets before they interrupt. How many follows how fast they come, so that on a
//! slow flow none waits for longer than twice [`LINGER`].

use wirecost_model::clock::{MILLISECOND, Nanos};

/// Marks between which it pays: a few segments, and what two cores hand on within their caches.
const LEAST: u64 = 4 << 10;
const MOST: u64 = 128 << 10;
/// Long beside a wake-up, short beside an interval of figures. Waits are given up at multiples of it, so
/// that a worker wakes once for many.
const LINGER: Nanos = 10 * MILLISECOND;

/// The mark of one connection: bytes that must be there for it to be readable.
#[derive(Debug)]
pub(super) struct LowWater {
    mark: u64,
    /// Bytes received since it last waited, and when that was.
    got: u64,
    since: Nanos,
}

impl LowWater {
    pub(super) fn new() -> Self {
        Self { mark: 1, got: 0, since: 0 }
    }

    pub(super) fn received(&mut self, bytes: u64) {
        self.got += bytes;
    }

    /// Which mark to wait for from `now` on: more where the last one was passed, less where it took
    /// too long.
    pub(super) fn next(&mut self, now: Nanos) -> u64 {
        let waited = now.saturating_sub(std::mem::replace(&mut self.since, now));
        let got = std::mem::take(&mut self.got);
        // By steps of two, up where twice as much will be there in time, and down where it was not: each change of
        // the mark is a system call.
        if got >= self.mark {
            if waited < LINGER / 2 { (self.mark * 2).clamp(LEAST, MOST) } else { self.mark }
        } else if waited < LINGER {
            self.mark
        } else if got >= LEAST {
            1 << got.ilog2()
        } else {
            1
        }
    }

    /// Takes note of the mark that is set, and returns until when to wait for it.
    pub(super) fn set(&mut self, mark: u64) -> Option<Nanos> {
        self.mark = mark;
        (mark > 1).then_some((self.since / LINGER + 2) * LINGER)
    }

    pub(super) fn mark(&self) -> u64 {
        self.mark
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a flow of so many bytes a millisecond is waited for, wait after wait: it is read when its
    /// mark is there, or at the latest when that is given up.
    fn marks(rate: u64) -> Vec<u64> {
        let (mut low_water, mut now) = (LowWater::new(), MILLISECOND);
        let mut marks = Vec::new();
        for _ in 0..40 {
            let mark = low_water.next(now);
            let until = low_water.set(mark);
            marks.push(mark);
            let takes = mark * MILLISECOND / rate;
            let slept = until.map_or(takes, |until| takes.min(until - now)).max(1);
            assert!(until.is_none() || slept <= 2 * LINGER);
            now += slept;
            low_water.received((slept * rate).div_ceil(MILLISECOND));
        }
        marks
    }

    #[test]
    fn a_fast_flow_is_waited_for_as_long_as_it_pays() {
        assert_eq!(marks(1 << 20)[39], MOST);
        assert!(marks(1 << 20).windows(2).all(|two| two[0] <= two[1]));
    }

    #[test]
    fn a_slow_flow_is_read_soon() {
        // A mark of 4 KiB would take 41 ms.
        let slow = marks(100);
        assert!(slow.iter().all(|mark| *mark <= LEAST), "{slow:?}");
        // Some 40 KiB in the time that is waited at most.
        let between = marks(4 << 10);
        assert!(between[10..].iter().all(|mark| (16 << 10..MOST).contains(mark)), "{between:?}");
    }

    #[test]
    fn a_steady_flow_has_a_steady_mark() {
        for rate in [1 << 10, 3 << 10, 4 << 10, 10 << 10, 1 << 20] {
            let marks = marks(rate);
            assert!(marks[10..].iter().all(|mark| *mark == marks[10]), "{rate}: {marks:?}");
        }
    }

    #[test]
    fn who_has_stopped_sending_is_not_waited_for() {
        let mut low_water = LowWater::new();
        low_water.received(MOST);
        let mark = low_water.next(MILLISECOND);
        let until = low_water.set(mark).expect("a mark");
        assert_eq!(low_water.next(until), 1);
        assert_eq!(low_water.set(1), None);
    }
}
