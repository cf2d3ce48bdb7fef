//! What drivers count by names of their own (`ethtool -S`): read once at each edge of the window for all probes, and
//! translated to one set of names.

mod names;

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use wirecost_model::observe::{Direction, NicDropKind};

/// Counters of one device by the driver's names.
pub(crate) type Statistics = BTreeMap<String, u64>;

/// By number of the namespace and name of the device; none for a driver that counts nothing.
type Told = BTreeMap<(u32, String), Option<Arc<Statistics>>>;

/// What drivers said at an edge of the window. Some ask their device, which takes long: no probe asks again.
#[derive(Debug, Default)]
pub(crate) struct DriverStatistics(Mutex<Told>);

impl DriverStatistics {
    /// Of a device in the namespace of a number; `None` where its driver counts nothing. `ask` is called if nobody has
    /// asked at this edge.
    pub(crate) fn of(
        &self,
        namespace: u32,
        device: &str,
        ask: impl FnOnce() -> io::Result<Statistics>,
    ) -> Option<Arc<Statistics>> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (namespace, device.to_owned());
        known.entry(key).or_insert_with(|| ask().ok().map(Arc::new)).clone()
    }

    /// Another edge begins.
    pub(crate) fn forget(&mut self) {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// What a counter counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    Packets,
    Bytes,
    Drops(NicDropKind),
    Pause,
}

/// A counter under its common name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counter {
    pub(crate) direction: Direction,
    /// Of the whole device for none.
    pub(crate) queue: Option<u32>,
    pub(crate) what: What,
}

/// The meaning of a driver's counter; `None` for one that is not translated. Of a driver that is not known only packets
/// and bytes of queues are, whose names speak for themselves.
pub(crate) fn meaning(driver: Option<&str>, name: &str) -> Option<Counter> {
    let of_driver = names::FAMILIES
        .iter()
        .find(|family| driver.is_some_and(|driver| family.drivers.contains(&driver)));
    if let Some(family) = of_driver {
        return family.rules.iter().find_map(|rule| rule.read(name));
    }
    let all = names::FAMILIES.iter().flat_map(|family| family.rules);
    all.filter(|rule| matches!(rule.what, What::Packets | What::Bytes))
        .filter_map(|rule| rule.read(name))
        .find(|counter| counter.queue.is_some())
}

/// Counters of one device by what they count. Those that several names have in common are added.
pub(crate) fn translated(
    driver: Option<&str>,
    statistics: &Statistics,
) -> BTreeMap<(Direction, Option<u32>), Translated> {
    let mut all: BTreeMap<(Direction, Option<u32>), Translated> = BTreeMap::new();
    for (name, &count) in statistics {
        let Some(Counter { direction, queue, what }) = meaning(driver, name) else { continue };
        let of = all.entry((direction, queue)).or_default();
        match what {
            What::Packets => *of.packets.get_or_insert(0) += count,
            What::Bytes => *of.bytes.get_or_insert(0) += count,
            What::Pause => *of.pause.get_or_insert(0) += count,
            What::Drops(kind) => *of.drops.entry(kind).or_default() += count,
        }
    }
    all
}

/// What is counted of a queue, or of a device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Translated {
    pub(crate) packets: Option<u64>,
    pub(crate) bytes: Option<u64>,
    pub(crate) pause: Option<u64>,
    pub(crate) drops: BTreeMap<NicDropKind, u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_is_asked_once_at_each_edge() {
        let mut asked = 0;
        let mut shared = DriverStatistics::default();
        for _ in 0..3 {
            let told = shared.of(1, "eth0", || {
                asked += 1;
                Ok(Statistics::from([("rx_packets".to_owned(), asked)]))
            });
            assert_eq!(told.unwrap()["rx_packets"], 1);
        }
        assert!(shared.of(2, "eth0", || Err(io::ErrorKind::Unsupported.into())).is_none());
        assert!(shared.of(2, "eth0", || panic!("it has said that it counts nothing")).is_none());
        shared.forget();
        assert!(shared.of(2, "eth0", || Ok(Statistics::new())).is_some());
    }

    #[test]
    fn of_an_unknown_driver_only_queues_are_translated() {
        let packets = meaning(Some("new"), "rx_queue_3_packets").unwrap();
        assert_eq!((packets.queue, packets.what), (Some(3), What::Packets));
        assert_eq!(meaning(Some("new"), "rx_missed_errors"), None);
        assert_eq!(meaning(None, "rx_queue_0_drops"), None);
    }
}
