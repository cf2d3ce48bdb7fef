//! What is read of the devices of one network namespace at an edge of the window.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use wirecost_linux::environment;
use wirecost_linux::ethtool::Ethtool;
use wirecost_linux::link_statistics::{LinkStatistics, LinkStatisticsReader};
use wirecost_linux::net_sysfs::NetSysfs;
use wirecost_linux::netns::{self, NetNs};
use wirecost_linux::pause::{PauseCounts, PauseReader};
use wirecost_linux::queues::{QueueCounts, QueueKey, Queues};
use wirecost_linux::standard_statistics::{StandardStatistics, StandardStatisticsReader};
use wirecost_model::environment::Device;
use wirecost_model::observe::Direction;
use wirecost_model::rss::DeviceSpreading;

use crate::driver_counters::{DriverStatistics, Statistics};
use crate::probe::Namespace;

/// Devices beyond this number are left out: a host of containers has thousands of virtual ones.
const MOST_DEVICES: usize = 64;

/// All devices but `lo`.
#[derive(Debug, Default)]
pub(super) struct Reading {
    pub(super) devices: Vec<DeviceReading>,
    pub(super) missing: Vec<String>,
}

/// One device. What its driver does not tell is not there.
#[derive(Debug, Clone)]
pub(super) struct DeviceReading {
    pub(super) index: u32,
    pub(super) device: Device,
    pub(super) statistics: LinkStatistics,
    pub(super) full_duplex: Option<bool>,
    pub(super) rss: Option<DeviceSpreading>,
    /// By the kernel's own interface.
    pub(super) pause: Option<PauseCounts>,
    /// Under the names of the standards; why not, where the kernel refuses.
    pub(super) standard: Result<StandardStatistics, String>,
    /// By the driver's names.
    pub(super) driver: Option<Arc<Statistics>>,
    /// By the kernel's own interface.
    pub(super) queues: BTreeMap<(Direction, u32), QueueCounts>,
    pub(super) irqs: BTreeMap<(Direction, u32), u32>,
    /// Queues in use; none where /sys cannot be read.
    pub(super) numbers: Option<BTreeSet<(Direction, u32)>>,
}

impl Default for DeviceReading {
    fn default() -> Self {
        Self {
            index: 0,
            device: Device::default(),
            statistics: LinkStatistics::default(),
            full_duplex: None,
            rss: None,
            pause: None,
            standard: Ok(StandardStatistics::default()),
            driver: None,
            queues: BTreeMap::new(),
            irqs: BTreeMap::new(),
            numbers: None,
        }
    }
}

impl DeviceReading {
    /// Name of the device, and numbers of its queues that send.
    pub(super) fn queues_that_send(&self) -> (&str, Vec<u32>) {
        let numbers = self.numbers.iter().flatten();
        let send = numbers.filter(|(direction, _)| *direction == Direction::Tx);
        (&self.device.name, send.map(|(_, number)| *number).collect())
    }
}

impl Reading {
    pub(super) fn of(
        namespace: &Namespace,
        sysfs: Option<&NetSysfs>,
        known: &DriverStatistics,
    ) -> Self {
        let inode = namespace.inode;
        let read = || read(inode, known);
        let there = NetNs::open_path(&namespace.process.join("ns/net")).map_err(|e| e.to_string());
        let reading = there.and_then(|there| {
            netns::run_in(&there, read).map_err(|error| error.to_string()).and_then(|read| read)
        });
        let mut reading = reading.unwrap_or_else(|error| Self {
            missing: vec![format!("devices of a network namespace: {error}")],
            ..Self::default()
        });
        if let Some(sysfs) = sysfs {
            for of in &mut reading.devices {
                of.numbers = numbers(sysfs, &of.device.name);
            }
        }
        reading
    }
}

/// Queues of a device in the namespace's /sys.
fn numbers(sysfs: &NetSysfs, device: &str) -> Option<BTreeSet<(Direction, u32)>> {
    let queue = |name: String| {
        let (direction, number) = name.split_once('-')?;
        let direction = match direction {
            "rx" => Direction::Rx,
            "tx" => Direction::Tx,
            _ => return None,
        };
        Some((direction, number.parse().ok()?))
    };
    let names = sysfs.names(&format!("class/net/{device}/queues")).ok()?;
    Some(names.into_iter().filter_map(queue).collect())
}

/// Reads the namespace of the calling thread.
fn read(inode: u32, known: &DriverStatistics) -> Result<Reading, String> {
    let statistics = LinkStatisticsReader::open().and_then(|links| links.read());
    let statistics = statistics.map_err(|error| format!("counters of devices: {error}"))?;
    let mut found = environment::devices().ok_or("the kernel does not list network devices")?;
    found.retain(|device| device.name != "lo");
    let mut missing = Vec::new();
    if found.len() > MOST_DEVICES {
        // Those that are up, and of these hardware, before others.
        found.sort_by_key(|device| (!device.up, device.bus.is_none()));
        let left_out = found.len() - MOST_DEVICES;
        missing
            .push(format!("{left_out} devices of a namespace that has more than {MOST_DEVICES}"));
        found.truncate(MOST_DEVICES);
    }
    let index: BTreeMap<&str, u32> =
        statistics.iter().map(|(index, (name, _))| (name.as_str(), *index)).collect();
    let ethtool = Ethtool::open().map_err(|error| format!("settings of devices: {error}"))?;
    let pause = PauseReader::open().ok();
    let standard = StandardStatisticsReader::open();
    let queues = Queues::open().ok();
    // Older kernels have neither.
    let counts = queues.as_ref().and_then(|queues| queues.counts().ok()).unwrap_or_default();
    let irqs = queues.as_ref().and_then(|queues| queues.interrupts().ok()).unwrap_or_default();
    let devices = found.into_iter().filter_map(|device| {
        // One that came between the two lists is left for later.
        let index = *index.get(device.name.as_str())?;
        let name = device.name.as_str();
        Some(DeviceReading {
            index,
            statistics: statistics.get(&index)?.1,
            full_duplex: ethtool.full_duplex(name).ok().flatten(),
            rss: ethtool.device_spreading(name).ok(),
            pause: pause.as_ref().and_then(|reader| reader.read(index).ok()),
            standard: standard_counters(standard.as_ref(), index),
            driver: known.of(inode, name, || ethtool.statistics(name)),
            queues: of_device(&counts, index),
            irqs: of_device(&irqs, index),
            numbers: None,
            device,
        })
    });
    Ok(Reading { devices: devices.collect(), missing })
}

fn standard_counters(
    reader: Result<&StandardStatisticsReader, &io::Error>,
    index: u32,
) -> Result<StandardStatistics, String> {
    match reader {
        Ok(reader) => reader.read(index).map_err(|error| match error.kind() {
            io::ErrorKind::Unsupported => "kernel or driver has no standard counters".to_owned(),
            _ => error.to_string(),
        }),
        Err(error) => Err(format!("no ethtool netlink: {error}")),
    }
}

fn of_device<T: Copy>(all: &BTreeMap<QueueKey, T>, index: u32) -> BTreeMap<(Direction, u32), T> {
    let own = all.iter().filter(|((device, ..), _)| *device == index);
    own.map(|((_, direction, number), of)| ((*direction, *number), *of)).collect()
}
