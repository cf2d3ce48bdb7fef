//! Packets, drops, interrupts and limits of the queues of a device.

use std::collections::{BTreeMap, BTreeSet};

use wirecost_linux::net_sysfs::NetSysfs;
use wirecost_linux::queues::QueueCounts;
use wirecost_model::environment::{NumaNode, Vector};
use wirecost_model::observe::{
    Direction, NicDevice, NicDropKind, NicDrops, NicQueue, QueueLimit, QueueSource,
};

use super::counted;
use super::reading::DeviceReading;
use super::standard;
use crate::driver_counters::{Translated, translated};
use crate::probes::interrupts::vectors::roles;

/// Queues whose limits are read: each costs two files at every interval.
const MOST_LIMITS: usize = 64;

type Key = (Direction, u32);

/// What was counted of a device until an instant, by the kernel's own interface and by its driver.
#[derive(Debug, Default)]
pub(super) struct Tally {
    netdev: BTreeMap<Key, QueueCounts>,
    driver: BTreeMap<(Direction, Option<u32>), Translated>,
}

impl Tally {
    /// At both edges of the window. Counters that could be read at one edge only tell no growth.
    pub(super) fn of_both(before: &DeviceReading, after: &DeviceReading) -> [Self; 2] {
        let standard = before.standard.is_ok() && after.standard.is_ok();
        [before, after].map(|reading| Self::of(reading, standard))
    }

    fn of(reading: &DeviceReading, standard: bool) -> Self {
        let driver = reading
            .driver
            .as_ref()
            .map(|statistics| translated(reading.device.driver.as_deref(), statistics));
        let mut driver = driver.unwrap_or_default();
        if standard && let Ok(counters) = &reading.standard {
            for direction in [Direction::Rx, Direction::Tx] {
                let Some(errors) = standard::errors(counters, direction) else { continue };
                // Under the driver's own names there are the same frames, or some of them.
                let drops = &mut driver.entry((direction, None)).or_default().drops;
                drops.insert(NicDropKind::Error, errors);
            }
        }
        Self { netdev: reading.queues.clone(), driver }
    }

    /// Pause frames by the driver's counters.
    pub(super) fn pause(&self, direction: Direction) -> Option<u64> {
        self.driver.get(&(direction, None))?.pause
    }

    /// Of the driver, of a queue or of the whole device.
    fn dropped(&self, direction: Direction, queue: Option<u32>, kind: NicDropKind) -> u64 {
        let of = self.driver.get(&(direction, queue));
        of.and_then(|of| of.drops.get(&kind)).copied().unwrap_or(0)
    }
}

/// Whether `hardware_drops` of the kernel's own interface has packets of this cause too:
/// <https://docs.kernel.org/networking/netlink_spec/netdev.html#rx-hw-drops-uint>.
fn in_hardware(kind: NicDropKind) -> bool {
    match kind {
        NicDropKind::NoBuffer
        | NicDropKind::Missed
        | NicDropKind::Error
        | NicDropKind::RateLimit
        | NicDropKind::LinkDown => true,
        NicDropKind::AllocFailed | NicDropKind::Xdp | NicDropKind::Unspecified => false,
    }
}

/// Packets that the device dropped, of which a cause is known.
fn known_causes(drops: &BTreeMap<NicDropKind, u64>) -> u64 {
    drops.iter().filter(|(kind, _)| in_hardware(**kind)).map(|(_, packets)| *packets).sum()
}

/// Drops by cause, as the kernel's own interface tells them. The cause of some of `hardware_drops` is unknown to it.
fn netdev_drops(then: &QueueCounts, now: &QueueCounts) -> BTreeMap<NicDropKind, u64> {
    let grown =
        |of: fn(&QueueCounts) -> Option<u64>| Some(of(now)?.saturating_sub(of(then).unwrap_or(0)));
    let named = [
        (NicDropKind::NoBuffer, grown(|of| of.overruns)),
        (NicDropKind::Error, grown(|of| of.errors)),
        (NicDropKind::RateLimit, grown(|of| of.rate_limited)),
    ];
    let others = [
        (NicDropKind::AllocFailed, grown(|of| of.alloc_failed)),
        (NicDropKind::Unspecified, hardware_drops(then, now)),
    ];
    let all = named.into_iter().chain(others);
    let mut all: BTreeMap<_, _> = all.filter_map(|(kind, count)| Some((kind, count?))).collect();
    let known = known_causes(&all);
    if let Some(rest) = all.get_mut(&NicDropKind::Unspecified) {
        *rest = rest.saturating_sub(known);
    }
    all
}

/// All packets that the device dropped, whatever the cause.
fn hardware_drops(then: &QueueCounts, now: &QueueCounts) -> Option<u64> {
    Some(now.hardware_drops?.saturating_sub(then.hardware_drops.unwrap_or(0)))
}

/// Drops of one queue by cause, of those that somebody counts. What both count is the same packets.
fn queue_drops([then, now]: &[Tally; 2], key: Key) -> BTreeMap<NicDropKind, u64> {
    let (direction, queue) = key;
    let begun = QueueCounts::default();
    let mut all = match now.netdev.get(&key) {
        Some(counts) => netdev_drops(then.netdev.get(&key).unwrap_or(&begun), counts),
        None => BTreeMap::new(),
    };
    let driver = now.driver.get(&(direction, Some(queue)));
    for (&kind, &count) in driver.iter().flat_map(|of| &of.drops) {
        let grown = count.saturating_sub(then.dropped(direction, Some(queue), kind));
        let known = all.entry(kind).or_default();
        *known = grown.max(*known);
    }
    // Of what the kernel has no cause for, the driver may name one.
    let counts = now.netdev.get(&key);
    let hardware =
        counts.and_then(|counts| hardware_drops(then.netdev.get(&key).unwrap_or(&begun), counts));
    if let Some(hardware) = hardware {
        let own = driver.and_then(|of| of.drops.get(&NicDropKind::Unspecified)).map(|&count| {
            count.saturating_sub(then.dropped(direction, Some(queue), NicDropKind::Unspecified))
        });
        let rest = hardware.saturating_sub(known_causes(&all));
        all.insert(NicDropKind::Unspecified, rest.max(own.unwrap_or(0)));
    }
    all
}

/// Drops of the whole device by cause: of its queues, and what is counted of no queue.
pub(super) fn drops(tallies: &[Tally; 2]) -> Vec<NicDrops> {
    let [then, now] = tallies;
    let mut all: BTreeMap<(Direction, NicDropKind), u64> = BTreeMap::new();
    let of_driver =
        now.driver.keys().filter_map(|(direction, queue)| Some((*direction, (*queue)?)));
    let queues: BTreeSet<Key> = of_driver.chain(now.netdev.keys().copied()).collect();
    for key in queues {
        for (kind, packets) in queue_drops(tallies, key) {
            *all.entry((key.0, kind)).or_default() += packets;
        }
    }
    for direction in [Direction::Rx, Direction::Tx] {
        let of_device = now.driver.get(&(direction, None));
        let of_device: BTreeMap<NicDropKind, u64> = of_device
            .iter()
            .flat_map(|of| &of.drops)
            .map(|(&kind, &count)| {
                (kind, count.saturating_sub(then.dropped(direction, None, kind)))
            })
            .collect();
        // What the kernel counts of the queues without a cause may be what the driver counts of the device with one.
        let mut named = known_causes(&of_device);
        let in_netdev = |(of, _): &&Key| *of == direction;
        if now.netdev.keys().any(|key| in_netdev(&key))
            && let Some(rest) = all.get_mut(&(direction, NicDropKind::Unspecified))
        {
            let own = now.driver.keys().filter(|(of, queue)| *of == direction && queue.is_some());
            let own: u64 = own
                .map(|&(_, queue)| {
                    let kind = NicDropKind::Unspecified;
                    now.dropped(direction, queue, kind)
                        .saturating_sub(then.dropped(direction, queue, kind))
                })
                .sum();
            named = named.min(rest.saturating_sub(own));
            *rest -= named;
        }
        for (kind, grown) in of_device {
            *all.entry((direction, kind)).or_default() += grown;
        }
    }
    let drops =
        all.into_iter().map(|((direction, kind), packets)| NicDrops { direction, kind, packets });
    counted(drops)
}

/// Packets and bytes of a queue in the window, by either.
fn moved([then, now]: &[Tally; 2], key: Key) -> (Option<QueueSource>, Option<u64>, Option<u64>) {
    let grown = |then: Option<u64>, now: Option<u64>| Some(now?.saturating_sub(then.unwrap_or(0)));
    if let Some(counts) = now.netdev.get(&key).filter(|of| of.packets.is_some()) {
        let earlier = then.netdev.get(&key).copied().unwrap_or_default();
        let packets = grown(earlier.packets, counts.packets);
        return (Some(QueueSource::Netdev), packets, grown(earlier.bytes, counts.bytes));
    }
    let key = (key.0, Some(key.1));
    let Some(of) = now.driver.get(&key) else { return (None, None, None) };
    let begun = Translated::default();
    let earlier = then.driver.get(&key).unwrap_or(&begun);
    let (packets, bytes) = (grown(earlier.packets, of.packets), grown(earlier.bytes, of.bytes));
    (packets.or(bytes).map(|_| QueueSource::Driver), packets, bytes)
}

/// Fills in the queues of a device whose own counters are there already.
pub(super) fn fill(
    of: &mut NicDevice,
    (reading, tallies): (&DeviceReading, &[Tally; 2]),
    limits: &Limits,
    nodes: &[NumaNode],
    seconds: f64,
) {
    let [_, now] = tallies;
    let vectors = vectors(reading);
    let queues: BTreeSet<Key> = match &reading.numbers {
        Some(numbers) => numbers.clone(),
        None => {
            let driver = now.driver.keys().filter_map(|(of, queue)| Some((*of, (*queue)?)));
            driver.chain(now.netdev.keys().copied()).chain(vectors.keys().copied()).collect()
        }
    };
    for &(direction, queue) in &queues {
        let key = (direction, queue);
        let (source, packets, bytes) = moved(tallies, key);
        of.queue_source = of.queue_source.or(source);
        let drops = queue_drops(tallies, key);
        let vector = vectors.get(&key);
        let cpus = vector.and_then(|of| of.effective_cpus.clone().or_else(|| of.cpus.clone()));
        of.queues.push(NicQueue {
            direction,
            queue,
            packets,
            bytes,
            packets_per_second: None,
            dropped: lost(&drops),
            drops: counted(drops.into_iter().map(|(kind, packets)| NicDrops {
                direction,
                kind,
                packets,
            })),
            irq: vector.map(|of| of.irq),
            numa_nodes: cpus.as_deref().map(|cpus| nodes_of(cpus, nodes)),
            cpus,
            bql: match direction {
                Direction::Rx => None,
                Direction::Tx => limits.of(&of.device, queue),
            },
        });
    }
    let mut reasons = Vec::new();
    for direction in [Direction::Rx, Direction::Tx] {
        reasons.extend(uncounted(of, direction));
    }
    reasons.dedup();
    of.queue_reason = (!reasons.is_empty()).then(|| reasons.join("; "));
    if of.queues.iter().all(|queue| queue.packets.or(queue.bytes).is_none()) {
        of.queue_source = None;
    }
    for queue in &mut of.queues {
        let rate = |packets: u64| packets as f64 / seconds.max(f64::MIN_POSITIVE);
        queue.packets_per_second = queue.packets.map(rate);
    }
}

/// Losses, where any of them are counted.
fn lost(drops: &BTreeMap<NicDropKind, u64>) -> Option<u64> {
    let losses = drops.iter().filter(|(kind, _)| kind.is_loss());
    losses.map(|(_, packets)| *packets).reduce(|a, b| a + b)
}

/// Why packets of a direction are not told by queue. All packets of the only queue are its own.
fn uncounted(of: &mut NicDevice, direction: Direction) -> Option<String> {
    let (packets, bytes, what) = match direction {
        Direction::Rx => (of.rx_packets, of.rx_bytes, "received"),
        Direction::Tx => (of.tx_packets, of.tx_bytes, "sent"),
    };
    let veth = of.driver.as_deref() == Some("veth");
    let mut queues: Vec<&mut NicQueue> =
        of.queues.iter_mut().filter(|queue| queue.direction == direction).collect();
    let none = queues.iter().all(|queue| queue.packets.unwrap_or(0) == 0) && packets > 0;
    if queues.is_empty() || queues.iter().all(|queue| queue.packets.is_some()) && !none {
        return None;
    }
    if let [only] = queues.as_mut_slice() {
        (only.packets, only.bytes) = (Some(packets), Some(bytes));
        return None;
    }
    let counters = queues.iter().any(|queue| queue.packets.is_some());
    for queue in &mut queues {
        (queue.packets, queue.bytes) = (None, None);
    }
    Some(match (veth, counters) {
        (true, true) => format!(
            "veth counts {what} packets by queue only where NAPI polls them: with an XDP program, or GRO that \
             takes them"
        ),
        (false, true) => format!("its driver counted none of the {what} packets by queue"),
        (_, false) => format!("its driver does not count {what} packets by queue"),
    })
}

fn nodes_of(cpus: &[u32], nodes: &[NumaNode]) -> Vec<u32> {
    let has = |node: &&NumaNode| node.cpus.iter().flatten().any(|cpu| cpus.contains(cpu));
    nodes.iter().filter(has).map(|node| node.node).collect()
}

/// The interrupt of each queue: as the kernel tells it, or by the names of the handlers.
fn vectors(of: &DeviceReading) -> BTreeMap<Key, &Vector> {
    let all: Vec<&Vector> = of.device.vectors.iter().flatten().collect();
    let names: Vec<&str> = all.iter().map(|vector| vector.name.as_str()).collect();
    let mut found = BTreeMap::new();
    for (vector, role) in all.iter().zip(roles(&names, &of.device.name)) {
        let Some(role) = role else { continue };
        for (serves, direction) in [(role.rx, Direction::Rx), (role.tx, Direction::Tx)] {
            if serves {
                found.insert((direction, role.queue), *vector);
            }
        }
    }
    for (key, irq) in &of.irqs {
        if let Some(vector) = all.iter().find(|vector| vector.irq == *irq) {
            found.insert(*key, vector);
        }
    }
    found
}

/// Readings of the byte queue limits, by device and queue.
#[derive(Debug, Default)]
pub(super) struct Limits(BTreeMap<(String, u32), LimitReadings>);

/// Of one queue.
#[derive(Debug, Clone, Copy)]
struct LimitReadings {
    limit: QueueLimit,
    stalls_before: Option<u64>,
    /// Whether anything was ever under way or limited: a driver that does not use limits has zeros.
    used: bool,
}

impl Limits {
    /// Adds a reading of these queues of each device.
    pub(super) fn read<'a>(
        &mut self,
        sysfs: &NetSysfs,
        queues: impl Iterator<Item = (&'a str, Vec<u32>)>,
    ) {
        let all =
            queues.flat_map(|(device, numbers)| numbers.into_iter().map(move |n| (device, n)));
        for (device, number) in all.take(MOST_LIMITS) {
            let directory = format!("class/net/{device}/queues/tx-{number}/byte_queue_limits");
            let file = |name: &str| -> Option<u64> {
                sysfs.read(&format!("{directory}/{name}")).ok()?.parse().ok()
            };
            if let (Some(limit), Some(inflight)) = (file("limit"), file("inflight")) {
                self.add((device.to_owned(), number), limit, inflight, file("stall_cnt"));
            }
        }
    }

    fn add(&mut self, key: (String, u32), limit: u64, inflight: u64, stalls: Option<u64>) {
        let first = LimitReadings {
            limit: QueueLimit {
                limit_bytes: limit,
                limit_min_bytes: limit,
                limit_max_bytes: limit,
                inflight_max_bytes: inflight,
                stalls: stalls.map(|_| 0),
            },
            stalls_before: stalls,
            used: false,
        };
        let of = self.0.entry(key).or_insert(first);
        of.used |= limit > 0 || inflight > 0;
        let known = &mut of.limit;
        known.limit_bytes = limit;
        known.limit_min_bytes = known.limit_min_bytes.min(limit);
        known.limit_max_bytes = known.limit_max_bytes.max(limit);
        known.inflight_max_bytes = known.inflight_max_bytes.max(inflight);
        known.stalls = stalls.zip(of.stalls_before).map(|(now, then)| now.saturating_sub(then));
    }

    fn of(&self, device: &str, queue: u32) -> Option<QueueLimit> {
        let of = self.0.get(&(device.to_owned(), queue))?;
        of.used.then_some(of.limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_causes_that_the_kernel_knows_are_parts_of_all_drops() {
        let now = QueueCounts {
            alloc_failed: Some(3),
            hardware_drops: Some(20),
            overruns: Some(12),
            rate_limited: Some(5),
            ..QueueCounts::default()
        };
        let then = QueueCounts { hardware_drops: Some(4), overruns: Some(2), ..now };
        let drops = netdev_drops(&then, &now);
        let expected = [
            (NicDropKind::NoBuffer, 10),
            (NicDropKind::AllocFailed, 0),
            (NicDropKind::RateLimit, 0),
            (NicDropKind::Unspecified, 6),
        ];
        assert_eq!(drops.into_iter().collect::<Vec<_>>(), expected);
        assert!(netdev_drops(&QueueCounts::default(), &QueueCounts::default()).is_empty());
    }

    /// Of one queue, and of the device as a whole, at the end of a window that began with nothing.
    fn counted_by(
        hardware_drops: u64,
        of_queue: &[(NicDropKind, u64)],
        of_device: &[(NicDropKind, u64)],
    ) -> BTreeMap<NicDropKind, u64> {
        let translated = |drops: &[(NicDropKind, u64)]| Translated {
            drops: drops.iter().copied().collect(),
            ..Translated::default()
        };
        let counts = QueueCounts { hardware_drops: Some(hardware_drops), ..QueueCounts::default() };
        let now = Tally {
            netdev: BTreeMap::from([((Direction::Rx, 0), counts)]),
            driver: BTreeMap::from([
                ((Direction::Rx, Some(0)), translated(of_queue)),
                ((Direction::Rx, None), translated(of_device)),
            ]),
        };
        let all = drops(&[Tally::default(), now]);
        all.into_iter().map(|of| (of.kind, of.packets)).collect()
    }

    #[test]
    fn packets_whose_cause_only_the_driver_names_count_once() {
        use NicDropKind::{Missed, NoBuffer, Unspecified, Xdp};
        let of = |all: &[(NicDropKind, u64)]| all.iter().copied().collect::<BTreeMap<_, _>>();
        // The driver names the cause of some, of the queue or of the device.
        assert_eq!(counted_by(20, &[(NoBuffer, 15)], &[]), of(&[(NoBuffer, 15), (Unspecified, 5)]));
        assert_eq!(counted_by(20, &[], &[(Missed, 15)]), of(&[(Missed, 15), (Unspecified, 5)]));
        // It names more than the kernel has.
        assert_eq!(counted_by(20, &[], &[(Missed, 35)]), of(&[(Missed, 35)]));
        assert_eq!(
            counted_by(20, &[(NoBuffer, 12)], &[(Missed, 5)]),
            of(&[(NoBuffer, 12), (Missed, 5), (Unspecified, 3)])
        );
        // Both have no cause for the same packets, and what a program dropped is not the device's.
        assert_eq!(counted_by(20, &[(Unspecified, 18)], &[]), of(&[(Unspecified, 20)]));
        assert_eq!(counted_by(20, &[(Xdp, 7)], &[]), of(&[(Xdp, 7), (Unspecified, 20)]));
    }

    #[test]
    fn a_limit_has_its_range_and_zeros_are_no_limit() {
        let mut limits = Limits::default();
        let key = || ("eth0".to_owned(), 1);
        limits.add(key(), 0, 0, Some(7));
        assert_eq!(limits.of("eth0", 1), None);
        limits.add(key(), 3000, 1500, Some(9));
        limits.add(key(), 2000, 100, Some(10));
        let expected = QueueLimit {
            limit_bytes: 2000,
            limit_min_bytes: 0,
            limit_max_bytes: 3000,
            inflight_max_bytes: 1500,
            stalls: Some(3),
        };
        assert_eq!(limits.of("eth0", 1), Some(expected));
        assert_eq!(limits.of("eth0", 0), None);
    }
}
