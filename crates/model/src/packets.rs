//! Counters of the kernel that a datagram passes between two programs: of devices, queueing disciplines, IP and UDP.

use serde::{Deserialize, Serialize};

use crate::clock::Nanos;
use crate::plan::bounded;

/// Devices that an agent may tell of.
const DEVICES: usize = 64;

/// What a host had counted at an instant, since its namespace was made.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PacketCounters {
    /// On the host's clock.
    pub at: Nanos,
    /// Those that the run's traffic goes through.
    #[serde(deserialize_with = "bounded::<_, _, DEVICES>")]
    pub devices: Vec<DevicePackets>,
    /// Packets that all others of the namespace have received, `lo` among them.
    pub rx_elsewhere: u64,
    pub protocols: ProtocolPackets,
}

/// A device and its root queueing discipline.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DevicePackets {
    pub name: String,
    /// Bytes of a packet before its IP header.
    pub link_header: u32,
    pub rx_packets: u64,
    pub tx_packets: u64,
    pub rx_bytes: u64,
    pub tx_bytes: u64,
    pub rx_errors: u64,
    pub tx_errors: u64,
    /// Packets in `rx_packets` that nobody took.
    pub rx_dropped: u64,
    pub tx_dropped: u64,
    /// Packets not in `rx_packets`, as the device had no place for them.
    pub rx_missed: u64,
    /// Of 32 bits, and goes round.
    pub qdisc_drops: u32,
    /// In the queueing discipline; a level, and no count.
    pub qdisc_waiting: u64,
}

/// IP and UDP of a namespace, IPv4 and IPv6 together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ProtocolPackets {
    /// Counted when a program reads them.
    pub udp_received: u64,
    pub udp_sent: u64,
    /// Those of `udp_sent` that went by IPv6.
    pub udp6_sent: u64,
    /// No socket wanted them.
    pub no_port: u64,
    /// The receive buffer of their socket was full.
    pub receive_buffer: u64,
    pub checksum: u64,
    /// UDP had no memory left.
    pub memory: u64,
    /// Packets that came and that IP did not deliver.
    pub ip_in_discarded: u64,
    pub fragments_sent: u64,
    /// Packets that became `fragments_sent`.
    pub fragmented: u64,
    pub fragments_received: u64,
    /// Packets that fragments became.
    pub reassembled: u64,
    pub not_reassembled: u64,
    /// TCP segments and ICMP messages.
    pub other_received: u64,
}

/// Applies a function to each field of two structures that is a count.
macro_rules! each_field {
    ($of:expr, $other:expr, $apply:expr, $($field:ident),+ $(,)?) => {
        $( $of.$field = $apply($of.$field, $other.$field); )+
    };
}

impl PacketCounters {
    /// What has been counted since `before`. A device that was not there before counts from zero.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let mut counted = self.clone();
        for device in &mut counted.devices {
            if let Some(before) = before.devices.iter().find(|of| of.name == device.name) {
                device.combine(before, u64::saturating_sub);
                device.qdisc_drops = device.qdisc_drops.wrapping_sub(before.qdisc_drops);
            }
        }
        counted.rx_elsewhere = self.rx_elsewhere.saturating_sub(before.rx_elsewhere);
        counted.protocols.combine(&before.protocols, u64::saturating_sub);
        counted
    }

    /// All its devices together.
    #[must_use]
    pub fn device_total(&self) -> DevicePackets {
        let mut total = DevicePackets::default();
        for device in &self.devices {
            total.combine(device, u64::saturating_add);
            total.qdisc_drops = total.qdisc_drops.saturating_add(device.qdisc_drops);
            total.qdisc_waiting = total.qdisc_waiting.saturating_add(device.qdisc_waiting);
        }
        total
    }
}

impl DevicePackets {
    fn combine(&mut self, other: &Self, apply: impl Fn(u64, u64) -> u64) {
        each_field!(
            self, other, apply, rx_packets, tx_packets, rx_bytes, tx_bytes, rx_errors, tx_errors,
            rx_dropped, tx_dropped, rx_missed
        );
    }
}

impl ProtocolPackets {
    pub fn combine(&mut self, other: &Self, apply: impl Fn(u64, u64) -> u64) {
        each_field!(
            self,
            other,
            apply,
            udp_received,
            udp_sent,
            udp6_sent,
            no_port,
            receive_buffer,
            checksum,
            memory,
            ip_in_discarded,
            fragments_sent,
            fragmented,
            fragments_received,
            reassembled,
            not_reassembled,
            other_received
        );
    }
}
