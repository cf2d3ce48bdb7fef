//! How far a host's clock is from the controller's.

use wirecost_model::clock::Nanos;

/// A host's clock minus the controller's, and how far that can be wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Offset {
    pub(crate) nanos: i64,
    pub(crate) error: Nanos,
}

impl Offset {
    /// An instant of the controller's clock on the host's.
    pub(crate) fn host_time(&self, here: Nanos) -> Nanos {
        here.saturating_add_signed(self.nanos)
    }

    /// An instant of the host's clock on the controller's.
    pub(crate) fn controller_time(&self, there: Nanos) -> Nanos {
        there.saturating_add_signed(self.nanos.saturating_neg())
    }
}

/// One question and answer: sent and received on the controller's clock, answered on the host's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exchange {
    pub(crate) sent: Nanos,
    pub(crate) there: Nanos,
    pub(crate) received: Nanos,
}

/// The best estimate: that of the quickest exchange, in the middle of which the host is assumed to
/// have answered. It can be wrong by half of that exchange's time (RFC 5905, section 8).
pub(crate) fn estimate(exchanges: &[Exchange]) -> Offset {
    let Some(best) = exchanges.iter().min_by_key(|e| e.received.saturating_sub(e.sent)) else {
        return Offset::default();
    };
    let round_trip = best.received.saturating_sub(best.sent);
    let middle = best.sent + round_trip / 2;
    Offset { nanos: best.there.wrapping_sub(middle) as i64, error: round_trip.div_ceil(2) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_truth_is_within_the_error() {
        let truth: i64 = -5_000_000;
        let exchanges: Vec<Exchange> = [(300, 900), (100, 150), (2000, 10)]
            .iter()
            .zip([10_000_000u64, 20_000_000, 30_000_000])
            .map(|(&(out, back), sent)| Exchange {
                sent,
                there: (sent + out).saturating_add_signed(truth),
                received: sent + out + back,
            })
            .collect();
        let offset = estimate(&exchanges);
        assert_eq!(offset.error, 125);
        assert!((offset.nanos - truth).unsigned_abs() <= offset.error);
        assert_eq!(offset.host_time(10_000_000).abs_diff(5_000_000), offset.nanos.abs_diff(truth));
    }
}
