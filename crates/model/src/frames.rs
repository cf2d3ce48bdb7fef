//! Where the datagrams of a run went: how many passed each stage between two programs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::observe::DropPlace;
use crate::program::Side;

/// Of the headline phase with its ramp and its drain, all hosts of a side together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Frames {
    /// From the masters to the peers, then back; a direction without datagrams is left out.
    pub directions: Vec<FramesDirection>,
    /// Packets in the window by queue of a device, those of others among them; empty where nobody counts them by queue,
    /// and in older records.
    #[serde(default)]
    pub queues: Vec<FramesQueue>,
    /// Packets in the window by CPU that received them; empty where the probe `interrupts` did not run, and in older
    /// records.
    #[serde(default)]
    pub cpus: Vec<FramesCpu>,
    /// Why queues and CPUs of a host are in neither; empty in older records.
    #[serde(default)]
    pub uncounted: Vec<String>,
    /// Why there is nothing of devices; null where there is.
    pub reason: Option<String>,
}

/// One way between the hosts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FramesDirection {
    pub from: Side,
    /// In the order in which a datagram passes them.
    pub stages: Vec<FramesStage>,
    /// Intervals of the window.
    pub intervals: Vec<FramesInterval>,
}

/// A place where datagrams are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Calls of the sending program took them.
    Generated,
    /// The sender's device sent them.
    Sent,
    /// The receiver's device received them.
    Received,
    /// They came to their socket: those that were read and those that its buffer had no room for.
    ReachedSocket,
    /// Calls of the receiving program returned them.
    Read,
}

impl Stage {
    pub const ALL: [Self; 5] =
        [Self::Generated, Self::Sent, Self::Received, Self::ReachedSocket, Self::Read];
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FramesStage {
    pub stage: Stage,
    /// Null where the kernel does not tell, or hosts share a device.
    pub datagrams: Option<u64>,
    /// Packets that the devices counted, those of others among them; null of stages without a device.
    pub packets: Option<u64>,
    /// Packets of others among `packets`: what is beyond the run's own.
    pub foreign: Option<u64>,
    /// In the window. Of a device, those of others are among them.
    pub per_second: Option<f64>,
    /// Datagrams of the stage before that did not come here. Negative where more came, as of a link that
    /// duplicates.
    pub missing: Option<i64>,
    /// Where the kernel counted packets that were lost on the way here.
    pub places: Vec<FramesPlace>,
    /// Lost packets in the window that the probe `drops` traced, by place. Null where it did not trace, and in older
    /// records. It has no packets that a device lost before the kernel saw them.
    #[serde(default)]
    pub traced: Option<Vec<FramesTraced>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FramesTraced {
    pub place: DropPlace,
    pub packets: u64,
}

/// A queue of a device, which receives or sends or does both.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FramesQueue {
    pub host: String,
    /// Null for the device of a lab's host.
    pub device: Option<String>,
    pub queue: u32,
    /// CPUs that receive its packets; null where that is unknown.
    pub cpus: Option<Vec<u32>>,
    /// In the window. Null where nobody counts it, as all that follows.
    pub received: Option<u64>,
    pub received_per_second: Option<f64>,
    /// Received packets that found the queue full, or were lost in the driver.
    pub dropped: Option<u64>,
    pub sent: Option<u64>,
    pub source: FramesSource,
}

/// Who counts the packets of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FramesSource {
    /// The emulated device of a lab.
    Lab,
    /// The kernel (netdev netlink).
    Netdev,
    /// The driver (`ethtool -S`).
    Driver,
}

/// What /proc/net/softnet_stat counts of a CPU: of all network namespaces of the machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FramesCpu {
    /// Hosts of the run that use the CPU.
    pub hosts: Vec<String>,
    pub cpu: u32,
    /// Packets that the stack took there; one that RPS steers counts at the CPU it is steered to.
    pub received: u64,
    /// Wake-ups for packets that another CPU steered here (RPS).
    pub steered: u64,
    /// Packets for which the backlog had no room.
    pub dropped: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FramesPlace {
    pub place: Place,
    pub packets: u64,
}

/// Where the kernel counts lost packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// The root queueing discipline of the sender's device dropped them.
    Qdisc,
    /// Still in that queueing discipline when the phase was over.
    QdiscWaiting,
    /// The sender's device dropped them.
    DeviceOutput,
    /// The receiver's device had no place for them, or received them damaged.
    DeviceMissed,
    /// The receiver's device or its backlog dropped them.
    DeviceInput,
    /// IP of the receiver did not deliver them.
    IpInput,
    /// Fragments of which others were missing.
    Reassembly,
    /// No socket wanted them.
    NoPort,
    Checksum,
    /// UDP had no memory.
    Memory,
    /// The receive buffer of the socket was full.
    SocketBuffer,
    /// An AF_XDP socket had no place for them.
    FrameSocket,
    /// No counter has them.
    Unexplained,
}

impl Place {
    /// As a table names it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Qdisc => "queueing discipline",
            Self::QdiscWaiting => "still queued",
            Self::DeviceOutput => "device, sending",
            Self::DeviceMissed => "device had no room",
            Self::DeviceInput => "device or backlog",
            Self::IpInput => "IP",
            Self::Reassembly => "incomplete fragments",
            Self::NoPort => "no socket",
            Self::Checksum => "checksum",
            Self::Memory => "memory of UDP",
            Self::SocketBuffer => "socket buffer",
            Self::FrameSocket => "AF_XDP socket",
            Self::Unexplained => "not counted",
        }
    }
}

/// Datagrams per second of each stage between two instants; of devices, those of others are among them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FramesInterval {
    /// Seconds since the window began.
    pub start: f64,
    pub seconds: f64,
    pub generated: f64,
    pub sent: Option<f64>,
    pub received: Option<f64>,
    pub reached_socket: Option<f64>,
    pub read: f64,
    /// Datagrams at its end that had been generated in this phase, and neither been read nor counted as dropped:
    /// on their way, in queues and sockets, or lost on the link.
    pub in_flight: i64,
}
