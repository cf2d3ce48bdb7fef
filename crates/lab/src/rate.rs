//! Parameters of a link with a limited rate.

use wirecost_linux::rate_limit::RateLimit;

/// At a lower rate, not even one packet of 1500 bytes leaves in 100 ms.
pub(crate) const MIN_RATE: u64 = 120_000;

/// Upper bound of the largest frame that a host sends at once: 64 KiB and the headers of its packets. With
/// a smaller bucket the kernel would segment it, at the cost of CPU time.
const LARGEST_FRAME: u64 = 80_000;

/// A timer that is late by less costs no throughput.
pub(crate) const TIMER_DELAY_MICROSECONDS: u64 = 2_000;

/// Queue length of the switch, in time: about ten times the round-trip time of a local network, so that
/// one flow fills the link and many flows do not starve.
const QUEUE_MICROSECONDS: u64 = 50_000;

/// Minimum queue, for slow links: a few of the largest frames, which would otherwise all be dropped.
const MIN_QUEUE: u64 = 4 * LARGEST_FRAME;

pub(crate) fn limit(bits_per_second: u64) -> RateLimit {
    let bytes_in = |microseconds| bytes_in(bits_per_second, microseconds);
    let bytes = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
    RateLimit {
        bits_per_second,
        burst_bytes: bytes(bytes_in(TIMER_DELAY_MICROSECONDS).max(LARGEST_FRAME)),
        queue_bytes: bytes(bytes_in(QUEUE_MICROSECONDS).max(MIN_QUEUE)),
    }
}

/// Bytes that a link sends in a time.
pub(crate) fn bytes_in(bits_per_second: u64, microseconds: u64) -> u64 {
    let bytes = u128::from(bits_per_second) * u128::from(microseconds) / 8_000_000;
    u64::try_from(bytes).unwrap_or(u64::MAX)
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
