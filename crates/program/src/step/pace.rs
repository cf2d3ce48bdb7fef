//! Open-loop load: when transactions are meant to begin.

use std::sync::Arc;

use wirecost_model::clock::{Nanos, SECOND};
use wirecost_model::profile::Arrivals;

use crate::draw;
use crate::quantiles::Quantiles;

/// When the transactions of a strand are meant to begin, in nanoseconds from the beginning of the
/// phase.
#[derive(Debug, Clone)]
pub enum Pace {
    /// At equal distances; the strands spread their starts evenly over the first.
    Even { period: Nanos, strands: u32 },
    /// At random distances.
    SeededDistribution { between: Arc<Quantiles>, key: u64 },
    /// At recorded instants, which the strands take in turn.
    Trace { starts: Arc<[Nanos]>, strands: u32 },
}

impl Pace {
    pub(super) fn new(arrivals: &Arrivals, key: u64, strands: u32) -> Self {
        let period = |rate: f64| (SECOND as f64 / rate) as Nanos;
        match arrivals {
            Arrivals::Even(rate) => Pace::Even { period: period(*rate), strands },
            Arrivals::Poisson(rate) => Pace::SeededDistribution {
                between: Arc::new(Quantiles::exponential(period(*rate), 0, Nanos::MAX)),
                key,
            },
            Arrivals::Trace(trace) => Pace::Trace { starts: trace.starts.clone().into(), strands },
        }
    }

    /// Whether instants count from the beginning of the window instead of the phase.
    #[inline]
    pub fn is_trace(&self) -> bool {
        matches!(self, Pace::Trace { .. })
    }

    /// Intended start of transaction `number`; `before` is that of the previous one.
    #[inline]
    pub fn intended(&self, strand: u32, number: u64, before: Nanos) -> Nanos {
        match self {
            Pace::Even { period, strands } => {
                let first = u128::from(*period) * u128::from(strand) / u128::from(*strands).max(1);
                (first as Nanos).saturating_add(number.saturating_mul(*period))
            }
            Pace::SeededDistribution { between, key } => {
                let word = draw::mix(draw::key(&[*key, u64::from(strand), number]));
                before.saturating_add(between.draw(word))
            }
            Pace::Trace { starts, strands } => {
                let place =
                    number.saturating_mul(u64::from(*strands)).saturating_add(strand.into());
                let start = usize::try_from(place).ok().and_then(|place| starts.get(place));
                start.copied().unwrap_or(Nanos::MAX)
            }
        }
    }
}
