//! Latency histograms that merge over workers and hosts.
//!
//! HDR histograms with two significant digits: any quantile is within 1% of the exact one, from one
//! nanosecond to an hour, in a few kilobytes. They travel in HdrHistogram's own V2 format (base64),
//! which other tools read too.

use std::io::Read as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use flate2::read::ZlibDecoder;
use hdrhistogram::serialization::{
    Deserializer, Serializer as _, V2DeflateSerializer, V2Serializer,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Longest latency that is distinguished from longer ones, in nanoseconds: one hour.
const MAX: u64 = 3_600_000_000_000;
const SIGNIFICANT_DIGITS: u8 = 2;

/// Latencies in nanoseconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Histogram(hdrhistogram::Histogram<u64>);

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl Histogram {
    /// An empty histogram; it grows as needed.
    pub fn new() -> Self {
        match hdrhistogram::Histogram::new(SIGNIFICANT_DIGITS) {
            Ok(mut inner) => {
                inner.auto(true);
                Self(inner)
            }
            Err(_) => unreachable!("two significant digits are within the allowed 0 to 5"),
        }
    }

    /// Counts one latency. Values above an hour count as an hour.
    #[inline]
    pub fn record(&mut self, nanos: u64) {
        // Within MAX an auto-resizing histogram has a place for every value.
        let _ = self.0.record(nanos.min(MAX));
    }

    /// Counts a latency this number of times.
    pub fn record_many(&mut self, nanos: u64, times: u64) {
        // Recorded no times a value would still move the maximum.
        if times > 0 {
            let _ = self.0.record_n(nanos.min(MAX), times);
        }
    }

    /// Adds all counts of the other.
    pub fn merge(&mut self, other: &Histogram) {
        // Both have the same precision and grow as needed, so this cannot fail.
        let _ = self.0.add(&other.0);
    }

    /// What was recorded since an earlier state of the same histogram; empty if the other is none. The largest
    /// value is within the precision.
    #[must_use]
    pub fn since(&self, earlier: &Histogram) -> Self {
        let mut difference = self.clone();
        match difference.0.subtract(&earlier.0) {
            Ok(()) => difference,
            Err(_) => Self::new(),
        }
    }

    pub fn count(&self) -> u64 {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Nanoseconds that the share `q` (0 to 1) of the latencies does not exceed; `None` when empty.
    pub fn quantile(&self, q: f64) -> Option<u64> {
        (!self.is_empty()).then(|| self.0.value_at_quantile(q).min(self.0.max()))
    }

    /// How many are from `from` up to `to` nanoseconds, without `to`; exact where both are powers of two.
    pub fn count_between(&self, from: u64, to: u64) -> u64 {
        self.0.count_between(from, to.saturating_sub(1))
    }

    /// Shortest latency in nanoseconds, within 1%.
    pub fn min(&self) -> Option<u64> {
        (!self.is_empty()).then(|| self.0.min())
    }

    /// Longest latency in nanoseconds, within 1%.
    pub fn max(&self) -> Option<u64> {
        (!self.is_empty()).then(|| self.0.max())
    }

    /// Mean in nanoseconds.
    pub fn mean(&self) -> Option<f64> {
        (!self.is_empty()).then(|| self.0.mean())
    }

    /// Mean of this share (0 to 1) of the latencies, the shortest, in nanoseconds; at least of one.
    pub fn mean_of_shortest(&self, share: f64) -> Option<f64> {
        let kept = ((share * self.count() as f64).round() as u64).clamp(1, self.count().max(1));
        let (mut sum, mut left) = (0.0, kept);
        for step in self.0.iter_recorded() {
            let taken = step.count_at_value().min(left);
            sum += taken as f64 * self.0.median_equivalent(step.value_iterated_to()) as f64;
            left -= taken;
            if left == 0 {
                break;
            }
        }
        (!self.is_empty()).then(|| sum / kept as f64)
    }
}

/// Counts latencies where each instruction matters: into the buckets of a [`Histogram`], which it
/// becomes at the end.
#[derive(Debug, Clone)]
pub struct Recorder {
    /// Of bucket `b` (values from 2^(b+7), the first from 0) each half is cut into 128 parts. There is
    /// a place for every value, so none need be checked; memory that is not counted in is not used.
    counts: Box<[u64; PLACES]>,
}

/// Two significant digits take 2^8 parts up to twice that value.
const PART_BITS: u32 = u8::BITS;
const PLACES: usize = ((u64::BITS - PART_BITS + 2) as usize) << (PART_BITS - 1);

impl Default for Recorder {
    fn default() -> Self {
        match vec![0; PLACES].into_boxed_slice().try_into() {
            Ok(counts) => Self { counts },
            Err(_) => unreachable!("it was made of this length"),
        }
    }
}

impl Recorder {
    /// Counts one latency.
    #[inline]
    pub fn record(&mut self, nanos: u64) {
        self.record_many(nanos, 1);
    }

    /// Counts one latency so many times.
    #[inline]
    pub fn record_many(&mut self, nanos: u64, times: u64) {
        let shift = (nanos | u64::from(u8::MAX)).ilog2() - (PART_BITS - 1);
        let part = (nanos >> shift) as u8;
        self.counts[((shift as usize) << (PART_BITS - 1)) + usize::from(part)] += times;
    }

    /// What has been counted.
    #[must_use]
    pub fn histogram(&self) -> Histogram {
        let mut histogram = Histogram::new();
        for (place, &count) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            // Places of the first bucket are values; of the others only the upper half is in use.
            let shift = (place >> (PART_BITS - 1)).saturating_sub(1);
            let part = (place - (shift << (PART_BITS - 1))) as u64;
            histogram.record_many(part << shift, count);
        }
        histogram
    }
}

impl Serialize for Histogram {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut bytes = Vec::new();
        V2Serializer::new().serialize(&self.0, &mut bytes).map_err(serde::ser::Error::custom)?;
        serializer.serialize_str(&BASE64.encode(bytes))
    }
}

impl<'de> Deserialize<'de> for Histogram {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = BASE64.decode(text).map_err(serde::de::Error::custom)?;
        decode(&bytes).map_err(serde::de::Error::custom)
    }
}

/// Bytes before the counts: `encodeIntoByteBuffer` of
/// <https://github.com/HdrHistogram/HdrHistogram/blob/master/src/main/java/org/HdrHistogram/AbstractHistogram.java>.
const HEADER: usize = 40;

/// The number at a place of a header.
fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// Of the V2 format, not compressed.
fn decode(bytes: &[u8]) -> Result<Histogram, String> {
    // The decoder makes room for as many bytes as the header says.
    let counts = u32::try_from(bytes.len().saturating_sub(HEADER)).unwrap_or(u32::MAX);
    if number(bytes, 4) != Some(counts) {
        return Err("bad histogram: its length is not that of its header".to_owned());
    }
    // Others could not be merged.
    if number(bytes, 12) != Some(u32::from(SIGNIFICANT_DIGITS)) {
        return Err(format!("bad histogram: it does not have {SIGNIFICANT_DIGITS} digits"));
    }
    let inner = Deserializer::new().deserialize(&mut &*bytes);
    inner.map(Histogram).map_err(|error| format!("bad histogram: {error:?}"))
}

/// A histogram as records have it: in HdrHistogram's compressed V2 format, base64, as its logs and its tools have it.
/// Whoever reads a thousand runs does not unpack theirs, each of which takes many times the room then.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PackedHistogram(String);

/// Bytes before what is compressed: what it is, and the length.
const COMPRESSED_HEADER: usize = 8;
/// Of nine bytes for each count there can be, and the header, there are fewer.
const LONGEST: u64 = 1 << 17;

impl PackedHistogram {
    /// # Errors
    /// What is wrong with it.
    pub fn unpack(&self) -> Result<Histogram, String> {
        let bytes = BASE64.decode(&self.0).map_err(|error| format!("bad histogram: {error}"))?;
        let compressed = bytes.get(COMPRESSED_HEADER..).unwrap_or_default();
        let mut unpacked = Vec::new();
        // A few bytes may be gigabytes.
        ZlibDecoder::new(compressed)
            .take(LONGEST)
            .read_to_end(&mut unpacked)
            .map_err(|error| format!("bad histogram: {error}"))?;
        decode(&unpacked)
    }
}

impl From<&Histogram> for PackedHistogram {
    fn from(histogram: &Histogram) -> Self {
        let mut bytes = Vec::new();
        // A vector takes everything, and no count is above what the format holds.
        let _ = V2DeflateSerializer::new().serialize(&histogram.0, &mut bytes);
        Self(BASE64.encode(bytes))
    }
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::read::ZlibEncoder;
    use proptest::prelude::*;

    use super::*;

    fn of(values: &[u64]) -> Histogram {
        let mut histogram = Histogram::new();
        values.iter().for_each(|&value| histogram.record(value));
        histogram
    }

    #[test]
    fn a_trimmed_mean_leaves_out_the_longest() {
        // The values are exact up to 255.
        let values: Vec<u64> = (1..=100).collect();
        assert_eq!(of(&values).mean_of_shortest(0.95), Some(48.0));
        assert_eq!(of(&values).mean_of_shortest(1.0), Some(50.5));
        // A part of equal values is left out too.
        assert_eq!(of(&[1, 1, 4, 4]).mean_of_shortest(0.75), Some(2.0));
        assert_eq!(of(&[7]).mean_of_shortest(0.1), Some(7.0));
        assert_eq!(of(&[]).mean_of_shortest(0.95), None);
    }

    /// A header of four gigabytes takes no memory, nor do as many that are compressed.
    #[test]
    fn what_is_no_histogram_is_refused() {
        let bytes = |histogram: &Histogram| {
            let text: String =
                serde_json::from_value(serde_json::to_value(histogram).unwrap()).unwrap();
            BASE64.decode(text).unwrap()
        };
        let good = bytes(&of(&[1, 1000, 1_000_000]));
        assert_eq!(decode(&good).unwrap(), of(&[1, 1000, 1_000_000]));
        // What it is, length, digits, smallest value.
        for (at, byte) in [(3, 0), (4, 0xff), (7, 0), (15, 5), (16, 0xff)] {
            let mut bad = good.clone();
            bad[at] = byte;
            assert!(decode(&bad).is_err(), "byte {at} is {byte}");
        }
        assert!(decode(&good[..20]).is_err());
        assert!(serde_json::from_str::<Histogram>("\"HISTFAAA\"").is_err());
        for bad in ["?", "", "HISTFAAA", "HISTFAAAAAAAAAAAAAAA"] {
            assert!(PackedHistogram(bad.to_owned()).unpack().is_err(), "{bad}");
        }
        let mut bomb = vec![0; COMPRESSED_HEADER];
        let mut zeros = ZlibEncoder::new(std::io::repeat(0).take(1 << 30), Compression::fast());
        zeros.read_to_end(&mut bomb).unwrap();
        assert!(PackedHistogram(BASE64.encode(bomb)).unpack().is_err());
    }

    #[test]
    fn a_packed_histogram_is_that_of_other_tools() {
        let packed = PackedHistogram::from(&of(&[1, 1000, 1_000_000]));
        // As each histogram in a log of HdrHistogram begins.
        assert!(packed.0.starts_with("HISTFAAA"), "{packed:?}");
    }

    proptest! {
        /// Splitting the recording over workers and merging changes nothing.
        #[test]
        fn merging_equals_recording_together(
            values in prop::collection::vec(0u64..10_000_000_000, 1..200),
            cut in 0usize..200,
        ) {
            let cut = cut.min(values.len());
            let mut merged = of(&values[..cut]);
            merged.merge(&of(&values[cut..]));
            let whole = of(&values);
            prop_assert_eq!(merged.count(), whole.count());
            for q in [0.5, 0.9, 0.99, 0.999, 1.0] {
                prop_assert_eq!(merged.quantile(q), whole.quantile(q));
            }
        }

        /// The short way counts as the long one does.
        #[test]
        fn a_recorder_becomes_the_same_histogram(
            values in prop::collection::vec(
                prop_oneof![0u64..600, any::<u64>(), (0u32..64).prop_map(|bit| 1 << bit)], 0..200,
            ),
        ) {
            let mut recorder = Recorder::default();
            values.iter().for_each(|&value| recorder.record(value));
            prop_assert_eq!(recorder.histogram(), of(&values));
        }

        /// Any quantile is within 1% of the exact order statistic.
        #[test]
        fn quantiles_are_within_one_percent(
            mut values in prop::collection::vec(1u64..100_000_000_000, 1..200),
            q in 0.0f64..=1.0,
        ) {
            let got = of(&values).quantile(q).unwrap() as f64;
            values.sort_unstable();
            let rank = ((q * values.len() as f64).ceil() as usize).clamp(1, values.len());
            let exact = values[rank - 1] as f64;
            prop_assert!((got - exact).abs() <= exact * 0.01 + 1.0, "{} is not {}", got, exact);
        }

        #[test]
        fn survives_the_wire(values in prop::collection::vec(0u64..10_000_000_000, 0..50)) {
            let histogram = of(&values);
            let text = serde_json::to_string(&histogram).unwrap();
            let back: Histogram = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(back.count(), histogram.count());
            prop_assert_eq!(back.quantile(0.9), histogram.quantile(0.9));
            let packed = PackedHistogram::from(&histogram);
            prop_assert_eq!(packed.unpack().unwrap(), histogram);
        }
    }
}
