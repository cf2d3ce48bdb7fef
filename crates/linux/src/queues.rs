//! What the kernel itself knows of the queues of network devices, by netdev netlink, with the same names for all drivers:
//! packets, bytes and drops of each queue (since Linux 6.9) and the interrupt that serves it (since 6.8).
//! <https://docs.kernel.org/networking/netlink_spec/netdev.html>

use std::collections::BTreeMap;
use std::io;

use wirecost_model::observe::Direction;

use crate::generic_netlink::{Family, u32_of, uint_of};
use crate::netlink::with_header;

// <https://elixir.bootlin.com/linux/v6.12/source/include/uapi/linux/netdev.h>
const NETDEV_CMD_QUEUE_GET: u8 = 10;
const NETDEV_CMD_NAPI_GET: u8 = 11;
const NETDEV_CMD_QSTATS_GET: u8 = 12;
const NETDEV_A_NAPI_ID: u16 = 2;
const NETDEV_A_NAPI_IRQ: u16 = 3;
const NETDEV_A_QUEUE_ID: u16 = 1;
const NETDEV_A_QUEUE_IFINDEX: u16 = 2;
const NETDEV_A_QUEUE_TYPE: u16 = 3;
const NETDEV_A_QUEUE_NAPI_ID: u16 = 4;
const NETDEV_A_QSTATS_IFINDEX: u16 = 1;
const NETDEV_A_QSTATS_QUEUE_TYPE: u16 = 2;
const NETDEV_A_QSTATS_QUEUE_ID: u16 = 3;
const NETDEV_A_QSTATS_SCOPE: u16 = 4;
const NETDEV_A_QSTATS_RX_PACKETS: u16 = 8;
const NETDEV_A_QSTATS_RX_BYTES: u16 = 9;
const NETDEV_A_QSTATS_TX_PACKETS: u16 = 10;
const NETDEV_A_QSTATS_TX_BYTES: u16 = 11;
const NETDEV_A_QSTATS_RX_ALLOC_FAIL: u16 = 12;
const NETDEV_A_QSTATS_RX_HW_DROPS: u16 = 13;
const NETDEV_A_QSTATS_RX_HW_DROP_OVERRUNS: u16 = 14;
const NETDEV_A_QSTATS_RX_HW_DROP_RATELIMITS: u16 = 23;
const NETDEV_A_QSTATS_TX_HW_DROPS: u16 = 24;
const NETDEV_A_QSTATS_TX_HW_DROP_ERRORS: u16 = 25;
const NETDEV_A_QSTATS_TX_HW_DROP_RATELIMITS: u16 = 32;
const NETDEV_QSTATS_SCOPE_QUEUE: u32 = 1;
const NETDEV_QUEUE_TYPE_RX: u32 = 0;
const NETDEV_QUEUE_TYPE_TX: u32 = 1;

/// A queue of a device: index of the device, direction, number.
pub type QueueKey = (u32, Direction, u32);

/// What one queue counted since it was set up; what its driver does not count is `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueueCounts {
    pub packets: Option<u64>,
    pub bytes: Option<u64>,
    /// Times that the driver had no memory for a packet or a new buffer.
    pub alloc_failed: Option<u64>,
    /// All that the hardware dropped; the next three are among them.
    pub hardware_drops: Option<u64>,
    /// For want of descriptors or of the device's own buffer.
    pub overruns: Option<u64>,
    pub errors: Option<u64>,
    pub rate_limited: Option<u64>,
}

/// Reads the queues of the namespace of the thread that opened it.
#[derive(Debug)]
pub struct Queues(Family);

impl Queues {
    /// # Errors
    /// `NotFound` before Linux 6.3, which has no family `netdev`.
    pub fn open() -> io::Result<Self> {
        Family::open("netdev", 1).map(Self)
    }

    /// Counters of the queues of all devices whose driver has them.
    ///
    /// # Errors
    /// `Unsupported` before Linux 6.9.
    pub fn counts(&self) -> io::Result<BTreeMap<QueueKey, QueueCounts>> {
        let mut all = BTreeMap::new();
        let scope = with_header(NETDEV_A_QSTATS_SCOPE, &NETDEV_QSTATS_SCOPE_QUEUE.to_ne_bytes());
        self.0.dump(NETDEV_CMD_QSTATS_GET, &scope, |attributes| all.extend(counts(attributes)))?;
        Ok(all)
    }

    /// The interrupt of each queue whose driver tells it.
    ///
    /// # Errors
    /// `Unsupported` before Linux 6.8.
    pub fn interrupts(&self) -> io::Result<BTreeMap<QueueKey, u32>> {
        let mut served = BTreeMap::new();
        self.0.dump(NETDEV_CMD_QUEUE_GET, &[], |attributes| served.extend(queue(attributes)))?;
        let mut irqs = BTreeMap::new();
        self.0.dump(NETDEV_CMD_NAPI_GET, &[], |attributes| {
            let id = u32_of(attributes, NETDEV_A_NAPI_ID);
            irqs.extend(id.zip(u32_of(attributes, NETDEV_A_NAPI_IRQ)));
        })?;
        let with_irq = served.into_iter().filter_map(|(key, napi)| Some((key, *irqs.get(&napi)?)));
        Ok(with_irq.collect())
    }
}

fn direction(number: u32) -> Option<Direction> {
    match number {
        NETDEV_QUEUE_TYPE_RX => Some(Direction::Rx),
        NETDEV_QUEUE_TYPE_TX => Some(Direction::Tx),
        _ => None,
    }
}

/// A queue and the NAPI instance that polls it.
fn queue(attributes: &[u8]) -> Option<(QueueKey, u32)> {
    let device = u32_of(attributes, NETDEV_A_QUEUE_IFINDEX)?;
    let direction = direction(u32_of(attributes, NETDEV_A_QUEUE_TYPE)?)?;
    let number = u32_of(attributes, NETDEV_A_QUEUE_ID)?;
    Some(((device, direction, number), u32_of(attributes, NETDEV_A_QUEUE_NAPI_ID)?))
}

fn counts(attributes: &[u8]) -> Option<(QueueKey, QueueCounts)> {
    let device = u32_of(attributes, NETDEV_A_QSTATS_IFINDEX)?;
    let direction = direction(u32_of(attributes, NETDEV_A_QSTATS_QUEUE_TYPE)?)?;
    let number = u32_of(attributes, NETDEV_A_QSTATS_QUEUE_ID)?;
    let value = |kind| uint_of(attributes, kind);
    let counts = match direction {
        Direction::Rx => QueueCounts {
            packets: value(NETDEV_A_QSTATS_RX_PACKETS),
            bytes: value(NETDEV_A_QSTATS_RX_BYTES),
            alloc_failed: value(NETDEV_A_QSTATS_RX_ALLOC_FAIL),
            hardware_drops: value(NETDEV_A_QSTATS_RX_HW_DROPS),
            overruns: value(NETDEV_A_QSTATS_RX_HW_DROP_OVERRUNS),
            errors: None,
            rate_limited: value(NETDEV_A_QSTATS_RX_HW_DROP_RATELIMITS),
        },
        Direction::Tx => QueueCounts {
            packets: value(NETDEV_A_QSTATS_TX_PACKETS),
            bytes: value(NETDEV_A_QSTATS_TX_BYTES),
            alloc_failed: None,
            hardware_drops: value(NETDEV_A_QSTATS_TX_HW_DROPS),
            overruns: None,
            errors: value(NETDEV_A_QSTATS_TX_HW_DROP_ERRORS),
            rate_limited: value(NETDEV_A_QSTATS_TX_HW_DROP_RATELIMITS),
        },
    };
    Some(((device, direction, number), counts))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attributes(of: &[(u16, u32)]) -> Vec<u8> {
        of.iter().flat_map(|(kind, value)| with_header(*kind, &value.to_ne_bytes())).collect()
    }

    #[test]
    fn counters_of_each_direction_are_where_the_kernel_has_them() {
        let mut received = attributes(&[
            (NETDEV_A_QSTATS_IFINDEX, 3),
            (NETDEV_A_QSTATS_QUEUE_TYPE, 0),
            (NETDEV_A_QSTATS_QUEUE_ID, 2),
            (NETDEV_A_QSTATS_RX_BYTES, 9000),
            (NETDEV_A_QSTATS_RX_ALLOC_FAIL, 5),
            (NETDEV_A_QSTATS_RX_HW_DROPS, 9),
            (NETDEV_A_QSTATS_RX_HW_DROP_OVERRUNS, 7),
            (NETDEV_A_QSTATS_RX_HW_DROP_RATELIMITS, 1),
        ]);
        received.extend(with_header(NETDEV_A_QSTATS_RX_PACKETS, &(1u64 << 33).to_ne_bytes()));
        let expected = QueueCounts {
            packets: Some(1 << 33),
            bytes: Some(9000),
            alloc_failed: Some(5),
            hardware_drops: Some(9),
            overruns: Some(7),
            errors: None,
            rate_limited: Some(1),
        };
        assert_eq!(counts(&received), Some(((3, Direction::Rx, 2), expected)));
        let sent = attributes(&[
            (NETDEV_A_QSTATS_IFINDEX, 3),
            (NETDEV_A_QSTATS_QUEUE_TYPE, 1),
            (NETDEV_A_QSTATS_QUEUE_ID, 0),
            (NETDEV_A_QSTATS_TX_PACKETS, 4),
            (NETDEV_A_QSTATS_TX_HW_DROPS, 3),
            (NETDEV_A_QSTATS_TX_HW_DROP_ERRORS, 2),
        ]);
        let expected = QueueCounts {
            packets: Some(4),
            hardware_drops: Some(3),
            errors: Some(2),
            ..QueueCounts::default()
        };
        assert_eq!(counts(&sent), Some(((3, Direction::Tx, 0), expected)));
        // Of a whole device.
        assert_eq!(counts(&attributes(&[(NETDEV_A_QSTATS_IFINDEX, 3)])), None);
    }

    #[test]
    fn a_queue_leads_to_its_napi_instance() {
        let told = [
            (NETDEV_A_QUEUE_ID, 1),
            (NETDEV_A_QUEUE_IFINDEX, 3),
            (NETDEV_A_QUEUE_TYPE, 1),
            (NETDEV_A_QUEUE_NAPI_ID, 8001),
        ];
        assert_eq!(queue(&attributes(&told)), Some(((3, Direction::Tx, 1), 8001)));
        assert_eq!(queue(&attributes(&told[..3])), None, "it has none");
    }

    /// This kernel answers or says that it has no such thing; an answer is of devices that there are.
    #[test]
    fn this_kernel() {
        let Ok(queues) = Queues::open() else { return };
        for read in [queues.counts().map(|_| ()), queues.interrupts().map(|_| ())] {
            if let Err(error) = read {
                assert_eq!(error.kind(), io::ErrorKind::Unsupported, "{error}");
            }
        }
    }
}
