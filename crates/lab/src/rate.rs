//! What a link of a set rate is like.

use wirecost_linux::rate_limit::RateLimit;

/// At less than this not even one packet of 1500 bytes would leave in 100 ms.
pub(crate) const LEAST: u64 = 120_000;

/// The largest frame that a host hands over at once, 64 KiB and the headers of each of its packets
/// with room to spare: a smaller bucket would have it cut into packets at the cost of CPU time.
const LARGEST_FRAME: u64 = 80_000;

/// A timer that comes late by less costs no throughput.
const LATE_MICROSECONDS: u64 = 2_000;

/// What the switch keeps, as long as it takes to send: some ten times the round-trip time of a local
/// network, so that one flow fills the link and many do not starve.
const QUEUE_MICROSECONDS: u64 = 50_000;

/// Of slow links: a few of the largest frames, of which else each would be dropped whole.
const LEAST_QUEUE: u64 = 4 * LARGEST_FRAME;

pub(crate) fn limit(bits_per_second: u64) -> RateLimit {
    let bytes_in = |microseconds: u64| {
        let bytes = u128::from(bits_per_second) * u128::from(microseconds) / 8_000_000;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    };
    let bytes = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
    RateLimit {
        bits_per_second,
        burst_bytes: bytes(bytes_in(LATE_MICROSECONDS).max(LARGEST_FRAME)),
        queue_bytes: bytes(bytes_in(QUEUE_MICROSECONDS).max(LEAST_QUEUE)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_and_queues_grow_with_the_rate() {
        let (slow, fast) = (limit(10_000_000), limit(10_000_000_000));
        assert_eq!((slow.burst_bytes, slow.queue_bytes), (80_000, 320_000));
        assert_eq!((fast.burst_bytes, fast.queue_bytes), (2_500_000, 62_500_000));
    }
}
