//! Network devices: what they are set to, what of it changed, and what each queue moved and dropped.

mod changes;
mod queues;
mod reading;
mod standard;

use std::collections::BTreeMap;

use wirecost_linux::environment;
use wirecost_linux::net_sysfs::NetSysfs;
use wirecost_linux::netns::NetNs;
use wirecost_model::clock::{Nanos, seconds};
use wirecost_model::environment::NumaNode;
use wirecost_model::observe::{
    Direction, HostObservation, NicDevice, NicDrops, NicSection, NicSettings, Part, PauseFrames,
    PauseSource,
};

use crate::probe::{Description, Extent, Namespace, Probe, Session, Sets, Shared, Unavailable};
use queues::{Limits, Tally};
use reading::{DeviceReading, Reading};

#[derive(Debug)]
pub(crate) struct Nic;

impl Probe for Nic {
    fn name(&self) -> &'static str {
        "nic"
    }

    fn about(&self) -> Description {
        Description {
            tells: "network devices: link, queues, rings, coalescing, offloads, RSS, and which of them \
                    changed; pause frames; counters of IEEE 802.3 and RFC 2819; packets and drops of each queue under the same names for \
                    all drivers; the queue's interrupt, CPU and NUMA node; byte queue limits",
            needs: "nothing for settings and counters; root for the queues and their limits in /sys",
            costs: "no hooks: a few ms for each network namespace before and after the window, plus \
                    the time that drivers take to read their counters, and at each interval a file \
                    for each transmit queue",
            limitations: "what a driver does not report is null; queue counters restart when a \
                    device is reset; a setting that changed and changed back within the window \
                    is not seen",
        }
    }

    fn sets(&self) -> Sets {
        Sets { standard: Some(Extent::Whole), full: Some(Extent::Whole) }
    }

    fn open(&self, _shared: &mut Shared) -> Result<Box<dyn Session>, Unavailable> {
        Ok(Box::new(Watch {
            nodes: environment::numa_nodes().unwrap_or_default(),
            ..Watch::default()
        }))
    }
}

#[derive(Debug, Default)]
struct Watch {
    nodes: Vec<NumaNode>,
    /// By the process that names the namespace.
    namespaces: BTreeMap<Option<u32>, Watched>,
    window: (Nanos, Nanos),
    missing: Vec<String>,
}

/// One network namespace.
#[derive(Debug)]
struct Watched {
    namespace: Namespace,
    /// Its /sys, or why there is none.
    sysfs: Result<NetSysfs, String>,
    before: Reading,
    after: Reading,
    limits: Limits,
}

impl Watched {
    fn of(namespace: Namespace) -> Self {
        let sysfs = NetNs::open_path(&namespace.process.join("ns/net"))
            .and_then(|there| NetSysfs::of(&there))
            .map_err(|error| format!("the queues of /sys and their limits: {error}"));
        let (before, after, limits) = Default::default();
        Self { namespace, sysfs, before, after, limits }
    }

    fn read(&self, shared: &Shared) -> Reading {
        Reading::of(&self.namespace, self.sysfs.as_ref().ok(), &shared.driver_statistics)
    }

    fn read_limits(&mut self) {
        if let Ok(sysfs) = &self.sysfs {
            let queues = self.before.devices.iter().map(DeviceReading::queues_that_send);
            self.limits.read(sysfs, queues);
        }
    }
}

impl Session for Watch {
    fn attach(&mut self, shared: &Shared) -> Result<(), Unavailable> {
        self.missing = shared.lost_namespaces();
        let namespaces = shared.namespaces().into_iter();
        self.namespaces =
            namespaces.map(|(named, namespace)| (named, Watched::of(namespace))).collect();
        Ok(())
    }

    fn begin(&mut self, shared: &Shared, at: Nanos) {
        self.window = (at, at);
        for watched in self.namespaces.values_mut() {
            watched.limits = Limits::default();
            watched.before = watched.read(shared);
            watched.read_limits();
        }
    }

    fn interval(&mut self, _shared: &Shared, _at: Nanos) {
        self.namespaces.values_mut().for_each(Watched::read_limits);
    }

    fn end(&mut self, shared: &Shared, at: Nanos) {
        self.window.1 = at;
        for watched in self.namespaces.values_mut() {
            watched.read_limits();
            watched.after = watched.read(shared);
            self.missing.extend(watched.sysfs.as_ref().err().cloned());
            self.missing.append(&mut watched.before.missing);
            self.missing.append(&mut watched.after.missing);
        }
        self.missing.sort();
        self.missing.dedup();
    }

    fn fill(&mut self, _shared: &Shared, part: &Part, into: &mut HostObservation) {
        let Some(watched) = self.namespaces.get(&part.netns_of) else { return };
        let (begin, end) = self.window;
        let wanted = |of: &DeviceReading| match &part.device {
            Some(device) => of.device.name == *device,
            None => of.device.up,
        };
        let devices = watched.after.devices.iter().filter(|of| wanted(of)).map(|after| {
            let before = watched.before.devices.iter().find(|of| of.index == after.index);
            // One that came in the window has counted from its beginning.
            let begun = DeviceReading::default();
            let window = seconds(end.saturating_sub(begin));
            device((before.unwrap_or(&begun), after), &watched.limits, &self.nodes, window)
        });
        into.nic = Some(NicSection { devices: devices.collect() });
    }

    fn missing(&self) -> Vec<String> {
        self.missing.clone()
    }
}

/// One device between two readings of it.
fn device(
    (before, after): (&DeviceReading, &DeviceReading),
    limits: &Limits,
    nodes: &[NumaNode],
    seconds: f64,
) -> NicDevice {
    let (then, now) = (&before.statistics, &after.statistics);
    let tallies = Tally::of_both(before, after);
    let drops = queues::drops(&tallies);
    let lost = |direction: Direction, of_every_device: u64| {
        let of_driver = drops.iter().filter(|of| of.direction == direction && of.kind.is_loss());
        of_driver.map(|of| of.packets).sum::<u64>().max(of_every_device)
    };
    let (pause, pause_reason) = match pause(before, after, &tallies) {
        Ok(pause) => (Some(pause), None),
        Err(reason) => (None, Some(reason)),
    };
    let (standard, standard_reason) = match standard::between(before, after) {
        Ok(standard) => (Some(standard), None),
        Err(reason) => (None, Some(reason)),
    };
    let mut of = NicDevice {
        device: after.device.name.clone(),
        driver: after.device.driver.clone(),
        bus: after.device.bus.clone(),
        numa_node: after.device.numa_node,
        settings: settings(after),
        changes: if before.index == 0 { Vec::new() } else { changes::between(before, after) },
        rx_packets: now.rx_packets.saturating_sub(then.rx_packets),
        rx_bytes: now.rx_bytes.saturating_sub(then.rx_bytes),
        tx_packets: now.tx_packets.saturating_sub(then.tx_packets),
        tx_bytes: now.tx_bytes.saturating_sub(then.tx_bytes),
        rx_drops: lost(
            Direction::Rx,
            now.rx_missed_errors.saturating_sub(then.rx_missed_errors)
                + now.rx_dropped.saturating_sub(then.rx_dropped),
        ),
        tx_drops: lost(Direction::Tx, now.tx_dropped.saturating_sub(then.tx_dropped)),
        drops: drops.clone(),
        pause,
        pause_reason,
        standard,
        standard_reason,
        ..NicDevice::default()
    };
    queues::fill(&mut of, (after, &tallies), limits, nodes, seconds);
    of
}

fn settings(of: &DeviceReading) -> NicSettings {
    let device = &of.device;
    let offloads = device.features.as_ref().map(|features| {
        let on = features.iter().filter(|(_, on)| **on);
        on.map(|(name, _)| name.clone()).collect()
    });
    NicSettings {
        carrier: device.up && of.statistics.carrier,
        mtu: device.mtu,
        speed_bits_per_second: device.speed_bits_per_second,
        full_duplex: of.full_duplex,
        rings: device.rings,
        coalescing: device.coalescing,
        flow_control: device.flow_control,
        channels: device.channels,
        offloads,
        rss: of.rss.clone(),
    }
}

/// Pause frames, by the kernel's own interface, or else by the driver's counters.
fn pause(
    before: &DeviceReading,
    after: &DeviceReading,
    tallies: &[Tally; 2],
) -> Result<PauseFrames, String> {
    let grown = |then: Option<u64>, now: Option<u64>| Some(now?.saturating_sub(then.unwrap_or(0)));
    if let Some(now) = &after.pause {
        let then = before.pause.unwrap_or_default();
        let (rx, tx) = (grown(then.rx, now.rx), grown(then.tx, now.tx));
        return Ok(PauseFrames { rx, tx, source: PauseSource::Standard });
    }
    let [then, now] = tallies;
    let of = |direction| grown(then.pause(direction), now.pause(direction));
    match (of(Direction::Rx), of(Direction::Tx)) {
        (None, None) => Err(match (&after.device.bus, after.device.flow_control) {
            (None, _) => "a virtual device has no wire to pause on".to_owned(),
            (_, None) => "its driver has no flow control".to_owned(),
            _ => "its driver does not count them".to_owned(),
        }),
        (rx, tx) => Ok(PauseFrames { rx, tx, source: PauseSource::Driver }),
    }
}

/// Drops of one direction and cause, of what is not 0.
fn counted(drops: impl IntoIterator<Item = NicDrops>) -> Vec<NicDrops> {
    drops.into_iter().filter(|of| of.packets > 0).collect()
}

#[cfg(test)]
mod tests;
