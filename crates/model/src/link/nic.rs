//! Devices of hosts, where they are more than an end of a link.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::environment::{Channels, Coalescing, Device, DeviceRss, FlowControl, Rings};
use crate::rss::{DeviceSpreading, Fields, Flow, Rss, Symmetry};
use crate::units;

/// Queues of a device at most: a CPU serves each.
pub const MAX_QUEUES: u8 = 64;

/// The device of each host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Nic {
    /// Of both directions; a CPU serves each.
    pub queues: u8,
    pub rss: Rss,
    /// Packets that wait in a receive queue at most.
    pub ring: u32,
    /// From the arrival of a packet in an empty receive queue to its interrupt.
    pub coalesce_nanoseconds: u64,
    /// Whether a device pauses the link when a receive queue is nearly full (IEEE 802.3, annex 31B).
    pub pause: bool,
}

impl Nic {
    /// How it spreads packets over its queues.
    #[must_use]
    pub fn spreading(&self) -> DeviceSpreading {
        DeviceSpreading {
            key: Some(self.rss.key.to_string()),
            table: self.rss.table.iter().map(|queue| u32::from(*queue)).collect(),
            queues: u32::from(self.queues),
            toeplitz: true,
            symmetry: Some(Symmetry::None),
            fields: Flow::ALL.map(|flow| (flow, Some(Fields::AddressesAndPorts))).into(),
        }
    }

    /// Gives a device of the environment the settings that ethtool reads from hardware.
    pub fn show_in(&self, device: &mut Device) {
        let queues = u32::from(self.queues);
        // Frames that are sent wait in the link.
        device.rings = Some(Rings { rx: self.ring, rx_max: self.ring, tx: 0, tx_max: 0 });
        device.coalescing = Some(Coalescing {
            adaptive_rx: false,
            adaptive_tx: false,
            rx_us: u32::try_from(self.coalesce_nanoseconds / 1_000).unwrap_or(u32::MAX),
            rx_frames: 0,
            tx_us: 0,
            tx_frames: 0,
        });
        device.flow_control =
            Some(FlowControl { negotiated: false, rx: self.pause, tx: self.pause });
        device.channels = Some(Channels {
            rx: 0,
            rx_max: 0,
            tx: 0,
            tx_max: 0,
            combined: queues,
            combined_max: queues,
        });
        device.rss = Some(DeviceRss {
            key: Some(self.rss.key.to_string()),
            table: self.rss.table.iter().map(|queue| u32::from(*queue)).collect(),
        });
    }

    /// In words.
    pub(super) fn describe(&self) -> Vec<String> {
        let queues = if self.queues == 1 { "queue" } else { "queues" };
        let mut words = vec![format!("{} {queues} of {} packets", self.queues, self.ring)];
        if self.coalesce_nanoseconds > 0 {
            let time = units::latency(self.coalesce_nanoseconds as f64 / 1e3);
            words.push(format!("interrupts after {time}"));
        }
        if self.pause {
            words.push("pause frames".to_owned());
        }
        words
    }
}

/// What a device of a host has done.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeviceCounts {
    /// Its host.
    pub host: String,
    /// How often it has paused the link.
    pub pauses: u64,
    /// In the order of their numbers.
    pub queues: Vec<QueueCounts>,
}

/// What has passed through one queue of a device, in packets, and in bytes from the IP header on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QueueCounts {
    /// Receives its packets.
    pub cpu: u32,
    pub sent: u64,
    pub sent_bytes: u64,
    /// Handed to the host.
    pub received: u64,
    pub received_bytes: u64,
    /// Found the receive queue full.
    pub dropped: u64,
    pub interrupts: u64,
}

impl DeviceCounts {
    /// What has happened since earlier counts.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let none = QueueCounts::default();
        let of = |(place, queue): (usize, &QueueCounts)| {
            let earlier = earlier.queues.get(place).unwrap_or(&none);
            QueueCounts {
                cpu: queue.cpu,
                sent: queue.sent - earlier.sent,
                sent_bytes: queue.sent_bytes - earlier.sent_bytes,
                received: queue.received - earlier.received,
                received_bytes: queue.received_bytes - earlier.received_bytes,
                dropped: queue.dropped - earlier.dropped,
                interrupts: queue.interrupts - earlier.interrupts,
            }
        };
        Self {
            host: self.host.clone(),
            pauses: self.pauses - earlier.pauses,
            queues: self.queues.iter().enumerate().map(of).collect(),
        }
    }
}
