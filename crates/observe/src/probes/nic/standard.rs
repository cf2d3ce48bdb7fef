//! Counters under the names of the standards (IEEE 802.3, RFC 2819), which are the same for all drivers.

use wirecost_linux::standard_statistics::StandardStatistics;
use wirecost_model::observe::{
    Direction, FrameSizes, StandardCounter, StandardCounters, StandardGroup,
};

use super::reading::DeviceReading;

/// Damaged and malformed frames. A frame is in at most one of these, by the definitions in IEEE 802.3 (30.3.1.1) and
/// RFC 2819: `FrameCheckSequenceErrors` leaves out frames that are too long or too short. `etherStatsOversizePkts` is left
/// out, as jumbo frames are in it, and `etherStatsJabbers`, which are too long already.
const RX_ERRORS: [(StandardGroup, &str); 7] = [
    (StandardGroup::EthMac, "FrameCheckSequenceErrors"),
    (StandardGroup::EthMac, "AlignmentErrors"),
    (StandardGroup::EthMac, "FramesLostDueToIntMACRcvError"),
    (StandardGroup::EthMac, "InRangeLengthErrors"),
    (StandardGroup::EthMac, "FrameTooLongErrors"),
    (StandardGroup::Rmon, "etherStatsUndersizePkts"),
    (StandardGroup::Rmon, "etherStatsFragments"),
];
/// Frames that were not sent.
const TX_ERRORS: [(StandardGroup, &str); 2] = [
    (StandardGroup::EthMac, "FramesAbortedDueToXSColls"),
    (StandardGroup::EthMac, "FramesLostDueToIntMACXmitError"),
];

/// Frames that the device dropped as damaged; `None` where the driver counts none of them.
pub(super) fn errors(of: &StandardStatistics, direction: Direction) -> Option<u64> {
    let names = match direction {
        Direction::Rx => &RX_ERRORS[..],
        Direction::Tx => &TX_ERRORS[..],
    };
    let counted = names.iter().filter_map(|name| of.counters.get(name));
    counted.copied().reduce(u64::wrapping_add)
}

/// What grew, or why nothing is known: counts since boot are no growth.
pub(super) fn between(
    before: &DeviceReading,
    after: &DeviceReading,
) -> Result<StandardCounters, String> {
    let now = after.standard.as_ref().map_err(Clone::clone)?;
    if now.is_empty() {
        return Err(match after.device.bus {
            None => "a virtual device has none".to_owned(),
            Some(_) => "its driver has none".to_owned(),
        });
    }
    let then = before.standard.as_ref().map_err(Clone::clone)?;
    let counters = now.counters.iter().map(|(key, count)| StandardCounter {
        group: key.0,
        name: key.1.to_owned(),
        count: count.saturating_sub(then.counters.get(key).copied().unwrap_or(0)),
    });
    let frame_sizes = now.frame_sizes.iter().map(|(key, frames)| {
        let (direction, low, high) = *key;
        FrameSizes {
            direction,
            low,
            high: (high > 0).then_some(high),
            frames: frames.saturating_sub(then.frame_sizes.get(key).copied().unwrap_or(0)),
        }
    });
    Ok(StandardCounters { counters: counters.collect(), frame_sizes: frame_sizes.collect() })
}
