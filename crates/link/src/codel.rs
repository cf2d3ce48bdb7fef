//! Controlled delay (CoDel): drops where packets have waited too long for too long (RFC 8289).

use crate::clock::Instant;

/// The waiting time that is acceptable, and for how long more is (RFC 8289, sections 4.2 and 4.3).
const TARGET: u64 = 5_000_000;
const INTERVAL: u64 = 100_000_000;

/// A queue of less than one packet is not too long.
const MAX_PACKET: u64 = 1_514;

/// State of RFC 8289, section 5.
#[derive(Debug, Default)]
pub(crate) struct CoDel {
    /// When drops begin if packets keep waiting for longer than the target.
    first_above: Option<Instant>,
    dropping: bool,
    drop_next: Instant,
    count: u32,
    last_count: u32,
    /// Whether a drop at this instant has begun the dropping state: the next packet is sent.
    spared: bool,
    /// Whether the last packet was dropped: if the next waited too long as well, the next drop is due later.
    dropped: bool,
}

impl CoDel {
    /// Whether a packet that leaves the queue at `now`, after it waited for `sojourn`, is dropped. It is
    /// asked for each packet until one is not dropped.
    pub(crate) fn drops(&mut self, now: Instant, sojourn: u64, queue_bytes: u64) -> bool {
        let too_long = self.is_too_long(now, sojourn, queue_bytes);
        if std::mem::take(&mut self.spared) {
            return false;
        }
        if self.dropping {
            let dropped = std::mem::take(&mut self.dropped);
            if !too_long {
                self.dropping = false;
                return false;
            }
            if dropped {
                self.drop_next = self.next_after(self.drop_next);
            }
            if now < self.drop_next {
                return false;
            }
            self.count += 1;
            self.dropped = true;
            return true;
        }
        if !too_long {
            return false;
        }
        self.dropping = true;
        self.spared = true;
        // It resumes at the rate of drops that controlled the queue before, if that was recent.
        let delta = self.count - self.last_count;
        let recent = now.saturating_sub(self.drop_next) < 16 * INTERVAL;
        self.count = if delta > 1 && recent { delta } else { 1 };
        self.drop_next = self.next_after(now);
        self.last_count = self.count;
        true
    }

    fn is_too_long(&mut self, now: Instant, sojourn: u64, queue_bytes: u64) -> bool {
        if sojourn < TARGET || queue_bytes <= MAX_PACKET {
            self.first_above = None;
            return false;
        }
        match self.first_above {
            Some(first_above) => now >= first_above,
            None => {
                self.first_above = Some(now + INTERVAL);
                false
            }
        }
    }

    fn next_after(&self, instant: Instant) -> Instant {
        instant + (INTERVAL as f64 / f64::from(self.count.max(1)).sqrt()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Instants of drops in ms, where a packet leaves each ms and waited for `sojourn`.
    fn drops(codel: &mut CoDel, from: u64, to: u64, sojourn: u64) -> Vec<u64> {
        let mut drops = Vec::new();
        for ms in from..to {
            while codel.drops(ms * MS, sojourn * MS, 100_000) {
                drops.push(ms);
            }
        }
        drops
    }

    #[test]
    fn drops_come_faster_while_packets_wait_too_long() {
        let mut codel = CoDel::default();
        // The first an interval after the wait began, then 100 ms / sqrt(n) apart, at the next packet.
        let expected = [100, 200, 271, 329, 379, 424, 464];
        assert_eq!(drops(&mut codel, 0, 500, 20), expected);
        assert_eq!(drops(&mut codel, 500, 800, 4), [0; 0]);
        // Resumed at the rate at which it ended: 7 drops, less the 1 that was there when dropping began.
        let again = drops(&mut codel, 800, 1_000, 20);
        assert_eq!(again[..2], [900, 941]);
    }

    #[test]
    fn short_queues_are_left_alone() {
        let mut codel = CoDel::default();
        assert!(!(0..1_000).any(|ms| codel.drops(ms * MS, 50 * MS, MAX_PACKET)));
    }
}
