//! How much is handed to a device at once, and by whom.

mod document;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{MetricDef, MetricScope, Observation, Slices, Value, reading};
use crate::document::Section;
use crate::metric::Better::{Higher, Neither};
use crate::metric::Unit::{Bytes, Percent};
use crate::renamed::renamed;
use crate::sample::{Rows, SampleName, Series, figure};

/// What the probe `segments` says.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct SegmentsSection {
    /// The parts of the window that were watched, and that all counts are of; null for all of it.
    pub slices: Option<Slices>,
    /// Devices of the network namespace that carried something, most bytes first.
    pub devices: Vec<DeviceSegments>,
    /// Packets of all namespaces that were not counted, as there were too many devices.
    pub uncounted_packets: u64,
}

renamed!(
    /// The contexts that handed packets with payload to the device; percentages add up to 100.
    transmit_contexts, formerly drained, in transmit_contexts
);
renamed!(
    /// The same for TCP acknowledgements without payload.
    transmit_contexts_acks, formerly drained_acks, in transmit_contexts_acks
);

/// One network device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DeviceSegments {
    pub device: String,
    pub ifindex: u32,
    /// What the stack handed to the device: a packet here is one call of the driver.
    pub sent: SegmentSizes,
    /// What the device handed to the stack, after GRO. Null where the kernel has no hook there.
    pub received: Option<SegmentSizes>,
    /// Segments that the device takes in one packet.
    pub gso_max_segments: u32,
    #[serde(flatten, with = "transmit_contexts")]
    #[schemars(with = "transmit_contexts::Keys<Vec<TransmitShare>>")]
    pub transmit_contexts: Vec<TransmitShare>,
    #[serde(flatten, with = "transmit_contexts_acks")]
    #[schemars(with = "transmit_contexts_acks::Keys<Vec<TransmitShare>>")]
    pub transmit_contexts_acks: Vec<TransmitShare>,
    /// TCP packets that begin or end a connection and have no payload (SYN, FIN, RST).
    pub control_packets: u64,
}

/// Sizes of one direction.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct SegmentSizes {
    /// As the stack sees them: a packet of several segments is one.
    pub packets: u64,
    /// Sent: with the link header. Received: without it. Headers of the further segments of a
    /// packet are in neither.
    pub bytes: u64,
    /// Packets as on a wire: each packet's segments, at least one.
    pub segments: u64,
    /// Packets of several segments, or that are marked to be cut into such.
    pub gso_packets: u64,
    /// Null where there was no packet.
    pub average_bytes: Option<f64>,
    /// The mean in which each packet counts with its length: the packet that the average byte travels
    /// in. Null in older records.
    #[serde(default)]
    pub average_bytes_by_bytes: Option<f64>,
    pub average_segments: Option<f64>,
    /// Packets to which no segment could have been added.
    pub packets_at_cap: u64,
    pub percent_at_cap: Option<f64>,
    /// The limit of a packet of several segments over IPv4, and over IPv6: 65536, or more with BIG
    /// TCP.
    pub cap_ipv4_bytes: u32,
    pub cap_ipv6_bytes: u32,
    /// Packets by length.
    pub lengths: Vec<Bucket>,
    /// Packets by number of segments.
    pub segments_per_packet: Vec<Bucket>,
    pub intervals: Vec<SegmentInterval>,
}

/// Packets from a value up to twice of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Bucket {
    /// A power of two; below it are the former bucket's.
    pub from: u64,
    pub packets: u64,
}

/// Part of the window.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SegmentInterval {
    /// From the beginning of the window to the end of this interval.
    pub end_seconds: f64,
    pub packets: u64,
    pub bytes: u64,
    pub segments: u64,
    pub average_bytes: Option<f64>,
}

/// In what context a packet is handed to the device.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum TransmitContext {
    /// The thread that writes, in its system call. What waited for its socket to be free is in it
    /// too.
    Writer,
    /// A thread that reads, in its system call.
    Reader,
    /// The NET_RX softirq: what came in let this go out.
    AckClock,
    /// A thread of the stack's own: queues that had been full, timers, pacing, ksoftirqd.
    Worker,
    /// A task in another system call, as close(2) or connect(2).
    Other,
}

/// What one context handed over.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TransmitShare {
    pub by: TransmitContext,
    pub packets: u64,
    pub bytes: u64,
    pub percent_packets: f64,
    pub percent_bytes: f64,
    /// The same in more detail, where there is some: `tasklet` (TCP small queues), `net_tx`,
    /// `timer`,
    /// `hrtimer` (pacing), `ksoftirqd`, `workqueue`, `kernel_thread`...
    pub contexts: Vec<ContextPackets>,
}

/// Packets of one context.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ContextPackets {
    pub context: String,
    pub packets: u64,
    pub bytes: u64,
}

/// Of what the stack hands to a device, and the device to the stack, by interval. Means alone are
/// told where only slices of the window were watched: counts would be of parts of an interval, and
/// 0 of one that nobody watched.
const SENT_MEAN: Series<SegmentInterval> =
    Series { kind: "device", figures: &[figure("sent_average_bytes", "B", |i| i.average_bytes)] };
const SENT: Series<SegmentInterval> = Series {
    kind: "device",
    figures: &[
        figure("sent_packets", "count", |i| Some(i.packets as f64)),
        figure("sent_segments", "count", |i| Some(i.segments as f64)),
        figure("sent_bytes", "B", |i| Some(i.bytes as f64)),
    ],
};
const RECEIVED_MEAN: Series<SegmentInterval> = Series {
    kind: "device",
    figures: &[figure("received_average_bytes", "B", |i| i.average_bytes)],
};
const RECEIVED: Series<SegmentInterval> = Series {
    kind: "device",
    figures: &[
        figure("received_packets", "count", |i| Some(i.packets as f64)),
        figure("received_segments", "count", |i| Some(i.segments as f64)),
        figure("received_bytes", "B", |i| Some(i.bytes as f64)),
    ],
};

impl Observation for SegmentsSection {
    const METRICS: &'static [MetricDef<Self>] = &[
        reading(
            "segments.sent_bytes",
            Bytes,
            Higher,
            MetricScope::Namespace,
            "average size of what the stack hands to the device",
            Value::One(|s| average(s, |d| (d.sent.bytes, d.sent.packets), "sent")),
        ),
        reading(
            "segments.sent_bytes_by_bytes",
            Bytes,
            Higher,
            MetricScope::Namespace,
            "average size of what the stack hands to the device, each packet weighted by its length",
            Value::One(by_bytes),
        ),
        reading(
            "segments.received_bytes",
            Bytes,
            Higher,
            MetricScope::Namespace,
            "average size of what the device hands to the stack, after GRO",
            Value::One(|s| {
                let received = |d: &DeviceSegments| {
                    d.received.as_ref().map_or((0, 0), |sizes| (sizes.bytes, sizes.packets))
                };
                average(s, received, "received")
            }),
        ),
        reading(
            "segments.at_cap",
            Percent,
            Higher,
            MetricScope::Namespace,
            "packets handed to the device to which no segment could have been added",
            Value::One(|s| {
                let part = |d: &DeviceSegments| (d.sent.packets_at_cap, d.sent.packets);
                Ok(100.0 * average(s, part, "sent")?)
            }),
        ),
        reading(
            "transmit_context.writer",
            Percent,
            Neither,
            MetricScope::Namespace,
            "data handed to the device by threads in their own calls, reading or writing",
            Value::One(|s| {
                transmit_contexts(
                    s,
                    &[TransmitContext::Writer, TransmitContext::Reader, TransmitContext::Other],
                )
            }),
        ),
        reading(
            "transmit_context.worker",
            Percent,
            Neither,
            MetricScope::Namespace,
            "data handed to the device by threads and timers of the stack",
            Value::One(|s| transmit_contexts(s, &[TransmitContext::Worker])),
        ),
        reading(
            "transmit_context.ack",
            Percent,
            Neither,
            MetricScope::Namespace,
            "data handed to the device in the softirq of what came in (the ACK clock)",
            Value::One(|s| transmit_contexts(s, &[TransmitContext::AckClock])),
        ),
    ];

    fn sample_names() -> Vec<SampleName> {
        [SENT_MEAN, SENT, RECEIVED_MEAN, RECEIVED].iter().flat_map(Series::names).collect()
    }

    fn samples(&self, rows: &mut Rows<'_>) {
        for DeviceSegments { device, sent, received, .. } in &self.devices {
            let directions =
                [(Some(sent), &SENT_MEAN, &SENT), (received.as_ref(), &RECEIVED_MEAN, &RECEIVED)];
            for (sizes, mean, counts) in directions {
                let mut start = 0.0;
                for interval in sizes.iter().flat_map(|sizes| &sizes.intervals) {
                    let stretch = (start, interval.end_seconds - start);
                    rows.add(mean, Some(device), stretch, interval);
                    if self.slices.is_none() {
                        rows.add(counts, Some(device), stretch, interval);
                    }
                    start = interval.end_seconds;
                }
            }
        }
    }

    fn document(&self) -> Vec<Section> {
        document::sections(self)
    }
}

/// Of all devices together, so many of so many.
fn average(
    section: &SegmentsSection,
    of: impl Fn(&DeviceSegments) -> (u64, u64),
    what: &str,
) -> Result<f64, String> {
    let (mut sum, mut count) = (0, 0);
    for (part, number) in section.devices.iter().map(of) {
        sum += part;
        count += number;
    }
    if count == 0 {
        return Err(format!("no packet was {what}"));
    }
    Ok(sum as f64 / count as f64)
}

/// The mean packet that a byte is sent in, of all devices together.
fn by_bytes(section: &SegmentsSection) -> Result<f64, String> {
    let (mut sum, mut bytes) = (0.0, 0.0);
    for sent in section.devices.iter().map(|device| &device.sent).filter(|sent| sent.bytes > 0) {
        let mean = sent.average_bytes_by_bytes.ok_or("the record has no mean by bytes")?;
        sum += mean * sent.bytes as f64;
        bytes += sent.bytes as f64;
    }
    if bytes == 0.0 {
        return Err("no packet was sent".to_owned());
    }
    Ok(sum / bytes)
}

/// Percent of what has payload, by packets.
fn transmit_contexts(section: &SegmentsSection, by: &[TransmitContext]) -> Result<f64, String> {
    let all = || section.devices.iter().flat_map(|device| &device.transmit_contexts);
    let packets: u64 = all().map(|share| share.packets).sum();
    if packets == 0 {
        return Err("no packet with data was sent".to_owned());
    }
    let theirs: u64 = all().filter(|d| by.contains(&d.by)).map(|share| share.packets).sum();
    Ok(100.0 * theirs as f64 / packets as f64)
}
