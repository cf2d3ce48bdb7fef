//! How much is handed to a device at once, and by whom: the size of a packet at the driver decides
//! how often the whole path below TCP is walked for the same bytes.

use std::collections::BTreeMap;

use wirecost_model::clock::{Nanos, seconds};
use wirecost_model::observe::{
    Bucket, ContextPackets, DeviceSegments, HostObservation, Part, ProbeCost, SegmentInterval,
    SegmentSizes, SegmentsSection, Slices, TransmitContext, TransmitShare,
};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::bpf::{BpfError, LoadedObject, Options, compiled};
use crate::probe::{Description, Extent, Namespace, Probe, Session, Sets, Shared, Unavailable};
use crate::series::Series;

/// Programs of probe.bpf.c.
const SENT: &str = "net_dev_start_xmit";
const RECEIVED: &str = "netif_receive_skb";

#[derive(Debug)]
pub(crate) struct Segments;

impl Probe for Segments {
    fn name(&self) -> &'static str {
        "segments"
    }

    fn about(&self) -> Description {
        Description {
            tells: "sizes of the packets passed to each device (TSO, GSO) and received from it \
                    (GRO), and the transmit context: a writing thread, a reading thread, the ACK \
                    clock or a worker of the stack",
            needs: "BPF with BTF (root, or CAP_BPF and CAP_PERFMON)",
            costs: "one program at each packet passed to a device, and one at each packet received \
                    from one; as `segments:sliced`, which is in `full`, only in a fifth of the \
                    window",
            limitations: "packets that bypass the stack (XDP); segmentation or joining inside a device. \
                    What a write sends because its socket was locked when an ACK arrived counts to \
                    the writer; forwarded packets count to the ACK clock",
        }
    }

    fn extents(&self) -> &'static [Extent] {
        &[Extent::Sliced]
    }

    fn sets(&self) -> Sets {
        Sets { standard: None, full: Some(Extent::Sliced) }
    }

    fn open(&self, shared: &mut Shared) -> Result<Box<dyn Session>, Unavailable> {
        let cpus = shared.need_tracker()?.share();
        let cpus = cpus.ok_or_else(|| Unavailable::Other("the tracker has no map".to_owned()))?;
        let options = Options { shared: &[cpus], ..Options::default() };
        let loaded = LoadedObject::load(compiled!("segments", "probes_segments_probe"), &options)?;
        if loaded.missing.iter().any(|hook| hook == SENT) {
            return Err(Unavailable::Other(format!("this kernel has no tracepoint {SENT}")));
        }
        Ok(Box::new(Watch {
            loaded,
            sliced: shared.sliced(self.name()),
            coverage: None,
            namespaces: BTreeMap::new(),
            begin: 0,
            over_time: Series::default(),
            devices: BTreeMap::new(),
            no_room: 0,
            missing: Vec::new(),
        }))
    }
}

/// `struct tally` of probe.bpf.c.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Tally {
    packets: u64,
    bytes: u64,
}

impl Tally {
    fn add(&mut self, other: &Self) {
        self.packets += other.packets;
        self.bytes += other.bytes;
    }
}

/// `struct sizes` of probe.bpf.c.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Sizes {
    further: u64,
    gso: u64,
    at_cap: u64,
    squares: u64,
    lengths: [u64; 32],
    segments: [u64; 32],
}

impl Sizes {
    fn add(&mut self, other: &Self) {
        self.further += other.further;
        self.gso += other.gso;
        self.at_cap += other.at_cap;
        self.squares += other.squares;
        for (sum, slot) in self.lengths.iter_mut().zip(other.lengths) {
            *sum += slot;
        }
        for (sum, slot) in self.segments.iter_mut().zip(other.segments) {
            *sum += slot;
        }
    }
}

const CONTEXTS: usize = 16;
const KINDS: usize = 4;

/// What is handed over, as probe.bpf.c numbers it.
mod kind {
    pub(super) const DATA: usize = 0;
    pub(super) const PURE_ACK: usize = 1;
    pub(super) const CONTROL: usize = 2;
}

/// Contexts in the order of probe.bpf.c, each with who that is.
const WHO: [(&str, TransmitContext); CONTEXTS] = [
    ("write", TransmitContext::Writer),
    ("read", TransmitContext::Reader),
    // It sends and receives. What it sends is written, what it acknowledges was read.
    (RING, TransmitContext::Writer),
    ("other_call", TransmitContext::Other),
    ("kernel_thread", TransmitContext::Worker),
    ("workqueue", TransmitContext::Worker),
    ("ksoftirqd", TransmitContext::Worker),
    ("irq", TransmitContext::Worker),
    ("other_softirq", TransmitContext::Worker),
    ("timer", TransmitContext::Worker),
    ("net_tx", TransmitContext::Worker),
    ("net_rx", TransmitContext::AckClock),
    ("tasklet", TransmitContext::Worker),
    ("hrtimer", TransmitContext::Worker),
    ("unknown", TransmitContext::Other),
    ("unknown", TransmitContext::Other),
];
const RING: &str = "io_uring_enter";

/// `struct device` of probe.bpf.c: a device as one CPU saw it, or all.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Device {
    netns: u32,
    ifindex: u32,
    name: [u8; 16],
    gso_max: u32,
    gso_max_ipv4: u32,
    gso_max_segs: u32,
    gro_max: u32,
    gro_max_ipv4: u32,
    pad: u32,
    by: [[Tally; KINDS]; CONTEXTS],
    got: Tally,
    sent: Sizes,
    received: Sizes,
}

impl Device {
    fn add(&mut self, other: &Self) {
        for (sums, tallies) in self.by.iter_mut().zip(&other.by) {
            for (sum, tally) in sums.iter_mut().zip(tallies) {
                sum.add(tally);
            }
        }
        self.got.add(&other.got);
        self.sent.add(&other.sent);
        self.received.add(&other.received);
    }

    fn name(&self) -> String {
        let end = self.name.iter().position(|&byte| byte == 0).unwrap_or(self.name.len());
        String::from_utf8_lossy(&self.name[..end]).into_owned()
    }

    fn handed(&self) -> Tally {
        let mut sum = Tally::default();
        self.by.iter().flatten().for_each(|tally| sum.add(tally));
        sum
    }

    fn of_kind(&self, kind: usize) -> impl Iterator<Item = (&'static str, TransmitContext, Tally)> {
        let by = WHO.iter().zip(&self.by);
        by.map(move |((context, who), kinds)| (*context, *who, kinds[kind]))
    }
}

/// `struct overview` of probe.bpf.c.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Overview {
    used: u64,
    no_room: u64,
}

/// A device: its namespace, and its number there.
type DeviceKey = (u32, u32);

/// Of a device at an instant.
#[derive(Debug, Clone, Copy, Default)]
struct Reading {
    sent: Tally,
    sent_further: u64,
    received: Tally,
    received_further: u64,
}

impl Reading {
    fn of(device: &Device) -> Self {
        Self {
            sent: device.handed(),
            sent_further: device.sent.further,
            received: device.got,
            received_further: device.received.further,
        }
    }
}

#[derive(Debug)]
struct Watch {
    loaded: LoadedObject,
    /// Whether it is attached for slices of the window only.
    sliced: bool,
    coverage: Option<Slices>,
    namespaces: BTreeMap<Option<u32>, Namespace>,
    begin: Nanos,
    over_time: Series<BTreeMap<DeviceKey, Reading>>,
    devices: BTreeMap<DeviceKey, Device>,
    no_room: u64,
    missing: Vec<String>,
}

impl Watch {
    /// All devices with what all CPUs counted of them.
    fn read(&self) -> Result<(BTreeMap<DeviceKey, Device>, u64), BpfError> {
        let overviews = self.loaded.percpu::<Overview>("overviews", 0)?;
        let used = overviews.iter().fold(0, |used, overview| used | overview.used);
        let mut devices: BTreeMap<DeviceKey, Device> = BTreeMap::new();
        for place in (0..u64::BITS).filter(|place| used >> place & 1 == 1) {
            for device in self.loaded.percpu::<Device>("devices", place)? {
                if device.ifindex != 0 {
                    devices
                        .entry((device.netns, device.ifindex))
                        .and_modify(|sum| sum.add(&device))
                        .or_insert(device);
                }
            }
        }
        Ok((devices, overviews.iter().map(|overview| overview.no_room).sum()))
    }

    fn read_or_tell(&mut self) -> Option<(BTreeMap<DeviceKey, Device>, u64)> {
        match self.read() {
            Ok(read) => Some(read),
            Err(error) => {
                self.missing = vec![error.to_string()];
                None
            }
        }
    }
}

impl Session for Watch {
    fn attach(&mut self, shared: &Shared) -> Result<(), Unavailable> {
        if let Some(error) = shared.tracker_error() {
            return Err(Unavailable::Other(error.to_owned()));
        }
        self.namespaces = shared.namespaces();
        // Nothing counts before the window begins, so what is left is of another window.
        self.loaded.clear::<Device>("devices")?;
        self.loaded.clear::<Overview>("overviews")?;
        self.over_time = Series::default();
        self.missing =
            self.loaded.missing.iter().map(|hook| format!("no tracepoint {hook}")).collect();
        self.missing.extend(shared.lost_namespaces());
        if !self.sliced {
            self.loaded.attach()?;
        }
        Ok(())
    }

    fn slice(&mut self, begins: bool) {
        if !begins {
            self.loaded.detach();
        } else if let Err(error) = self.loaded.attach() {
            self.missing = vec![error.to_string()];
        }
    }

    fn begin(&mut self, _shared: &Shared, at: Nanos) {
        self.begin = at;
        self.over_time.push(at, BTreeMap::new());
    }

    fn interval(&mut self, _shared: &Shared, at: Nanos) {
        if self.over_time.wants(at)
            && let Some((devices, _)) = self.read_or_tell()
        {
            let readings = devices.iter().map(|(key, device)| (*key, Reading::of(device)));
            self.over_time.push(at, readings.collect());
        }
    }

    fn end(&mut self, shared: &Shared, at: Nanos) {
        if let Some(error) = shared.tracker_error() {
            self.missing = vec![error.to_owned()];
        }
        if let Some((devices, no_room)) = self.read_or_tell() {
            let readings = devices.iter().map(|(key, device)| (*key, Reading::of(device)));
            self.over_time.push(at, readings.collect());
            self.devices = devices;
            self.no_room = no_room;
        }
        self.coverage = self.sliced.then(|| shared.slices.coverage(at));
        if self.no_room > 0 {
            self.missing
                .push(format!("{} packets, because there were too many devices", self.no_room));
        }
    }

    fn detach(&mut self) {
        self.loaded.detach();
    }

    fn fill(&mut self, _shared: &Shared, part: &Part, into: &mut HostObservation) {
        let Some(namespace) = self.namespaces.get(&part.netns_of) else { return };
        let of_part = |device: &&Device| {
            device.netns == namespace.inode
                && part.device.as_ref().is_none_or(|name| *name == device.name())
        };
        let received = !self.loaded.missing.iter().any(|hook| hook == RECEIVED);
        let mut devices: Vec<DeviceSegments> = self
            .devices
            .values()
            .filter(of_part)
            .map(|device| described(device, self.begin, &self.over_time, received))
            .collect();
        devices.sort_by_key(|device| {
            let received = device.received.as_ref().map_or(0, |received| received.bytes);
            std::cmp::Reverse(device.sent.bytes + received)
        });
        let slices = self.coverage;
        into.segments = Some(SegmentsSection { slices, devices, uncounted_packets: self.no_room });
    }

    fn missing(&self) -> Vec<String> {
        self.missing.clone()
    }

    fn cost(&self) -> ProbeCost {
        self.loaded.cost()
    }
}

fn described(
    device: &Device,
    begin: Nanos,
    over_time: &Series<BTreeMap<DeviceKey, Reading>>,
    received: bool,
) -> DeviceSegments {
    let key = (device.netns, device.ifindex);
    let mut sent = sizes(device.handed(), &device.sent);
    sent.cap_ipv4_bytes = device.gso_max_ipv4;
    sent.cap_ipv6_bytes = device.gso_max;
    sent.intervals = intervals(begin, over_time, key, |r| (r.sent, r.sent_further));
    let received = received.then(|| {
        let mut received = sizes(device.got, &device.received);
        received.cap_ipv4_bytes = device.gro_max_ipv4;
        received.cap_ipv6_bytes = device.gro_max;
        received.intervals = intervals(begin, over_time, key, |r| (r.received, r.received_further));
        received
    });
    let control = device.of_kind(kind::CONTROL).map(|(_, _, tally)| tally.packets).sum();
    DeviceSegments {
        device: device.name(),
        ifindex: device.ifindex,
        gso_max_segments: device.gso_max_segs,
        sent,
        received,
        transmit_contexts: transmit_contexts(device.of_kind(kind::DATA)),
        transmit_contexts_acks: transmit_contexts(device.of_kind(kind::PURE_ACK).map(
            |(context, who, tally)| {
                (context, if context == RING { TransmitContext::Reader } else { who }, tally)
            },
        )),
        control_packets: control,
    }
}

fn sizes(tally: Tally, sizes: &Sizes) -> SegmentSizes {
    let packets = tally.packets;
    let average = |of: u64| (packets > 0).then(|| of as f64 / packets as f64);
    let segments = packets + sizes.further;
    let of_several: u64 = sizes.segments.iter().sum();
    let mut by_segments = sizes.segments;
    by_segments[0] += packets.saturating_sub(of_several);
    SegmentSizes {
        packets,
        bytes: tally.bytes,
        segments,
        gso_packets: sizes.gso,
        average_bytes: average(tally.bytes),
        average_bytes_by_bytes: (tally.bytes > 0)
            .then(|| sizes.squares as f64 / tally.bytes as f64),
        average_segments: average(segments),
        packets_at_cap: sizes.at_cap,
        percent_at_cap: average(sizes.at_cap).map(|share| share * 100.0),
        lengths: buckets(&sizes.lengths),
        segments_per_packet: buckets(&by_segments),
        ..SegmentSizes::default()
    }
}

/// From the first that has something to the last.
fn buckets(slots: &[u64; 32]) -> Vec<Bucket> {
    let first = slots.iter().position(|&packets| packets > 0).unwrap_or(0);
    let last = slots.iter().rposition(|&packets| packets > 0).map_or(0, |last| last + 1);
    let slots = slots.iter().enumerate().take(last).skip(first);
    slots.map(|(slot, &packets)| Bucket { from: 1 << slot, packets }).collect()
}

fn intervals(
    begin: Nanos,
    over_time: &Series<BTreeMap<DeviceKey, Reading>>,
    key: DeviceKey,
    direction: impl Fn(&Reading) -> (Tally, u64),
) -> Vec<SegmentInterval> {
    let mut before = (Tally::default(), 0);
    let mut all = Vec::new();
    // The first reading is the beginning itself.
    for (at, devices) in over_time.iter().skip(1) {
        let (tally, further) = devices.get(&key).map(&direction).unwrap_or_default();
        let packets = tally.packets.saturating_sub(before.0.packets);
        let bytes = tally.bytes.saturating_sub(before.0.bytes);
        all.push(SegmentInterval {
            end_seconds: seconds(at.saturating_sub(begin)),
            packets,
            bytes,
            segments: packets + further.saturating_sub(before.1),
            average_bytes: (packets > 0).then(|| bytes as f64 / packets as f64),
        });
        before = (tally, further);
    }
    all
}

fn transmit_contexts(
    by: impl Iterator<Item = (&'static str, TransmitContext, Tally)>,
) -> Vec<TransmitShare> {
    let mut shares: BTreeMap<TransmitContext, (Tally, Vec<ContextPackets>)> = BTreeMap::new();
    let mut total = Tally::default();
    for (context, who, tally) in by.filter(|(_, _, tally)| tally.packets > 0) {
        total.add(&tally);
        let (sum, contexts) = shares.entry(who).or_default();
        sum.add(&tally);
        contexts.push(ContextPackets {
            context: context.to_owned(),
            packets: tally.packets,
            bytes: tally.bytes,
        });
    }
    let percent = |part: u64, whole: u64| part as f64 * 100.0 / whole.max(1) as f64;
    shares
        .into_iter()
        .map(|(by, (sum, contexts))| TransmitShare {
            by,
            packets: sum.packets,
            bytes: sum.bytes,
            percent_packets: percent(sum.packets, total.packets),
            percent_bytes: percent(sum.bytes, total.bytes),
            contexts,
        })
        .collect()
}
