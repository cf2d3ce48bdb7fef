//! What became of the traffic.

use serde::{Deserialize, Serialize};

use super::Problem;
use crate::units::{bit_rate, decimal};

/// Datagrams were lost; where, as far as the hosts can tell. Where datagrams came `joined`, a drop may
/// be of several.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DatagramsLost {
    pub lost: u64,
    pub sent: u64,
    pub receive_buffer_drops: u64,
    /// By AF_XDP sockets.
    #[serde(default)]
    pub frame_drops: u64,
    pub joined: bool,
    /// What the kernel of each host dropped in the window, and where.
    pub places: Vec<String>,
}

impl Problem for DatagramsLost {
    fn code(&self) -> &'static str {
        "datagrams-lost"
    }

    fn message(&self) -> String {
        let Self { lost, sent, receive_buffer_drops, frame_drops, joined, places } = self;
        let share = *lost as f64 * 100.0 / (*sent).max(1) as f64;
        let dropped = match receive_buffer_drops {
            0 => String::new(),
            drops => format!(
                ", {}{drops} of them dropped by full receive buffers: raise wndsz or lower the rate",
                if *joined { "at least " } else { "" }
            ),
        };
        let frames = match frame_drops {
            0 => String::new(),
            drops => format!(
                ", {drops} of them dropped by AF_XDP sockets: the receiver's worker did not keep up, lower the rate"
            ),
        };
        let places = match places.is_empty() {
            true => String::new(),
            false => format!("; dropped in the kernel during the window: {}", places.join("; ")),
        };
        format!("{lost} of {sent} datagrams were lost ({share:.2}%){dropped}{frames}{places}")
    }

    fn brief(&self) -> String {
        let Self { lost, sent, .. } = self;
        let share = *lost as f64 * 100.0 / (*sent).max(1) as f64;
        format!("{lost} of {sent} datagrams were lost ({share:.2}%)")
    }
}

/// The page cache was not in the state that `page_cache` asked for, or was not bypassed as `o_direct` asks, so the run
/// does not show what it was to show.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PageCache {
    pub host: String,
    /// `cold`, `warm` or `o_direct`.
    pub state: String,
    /// Of what was read, 0 to 1; none where the kernel does not tell.
    pub cached_share: Option<f64>,
}

impl Problem for PageCache {
    fn code(&self) -> &'static str {
        "page-cache"
    }

    fn host(&mut self) -> Option<&mut String> {
        Some(&mut self.host)
    }

    fn message(&self) -> String {
        let remedy = match (self.cached_share, self.state.as_str()) {
            (None, _) => {
                "the kernel reports it only for files that the user may write, on file systems with a page cache: \
                 name such a file, or use source_size"
            }
            (_, "warm") => "use a source that fits in the free memory of the host",
            (_, "o_direct") => {
                "the file system still reads through the page cache, or another program reads the \
                 same file: name a source on another file system"
            }
            _ => {
                "tmpfs never drops pages, and pages that other programs map, write or read meanwhile \
                 stay: name a source on a disk, or use o_direct"
            }
        };
        format!("{}: {remedy}", self.brief())
    }

    fn brief(&self) -> String {
        let Self { host, state, cached_share } = self;
        let asked = match state.as_str() {
            "o_direct" => "o_direct".to_owned(),
            state => format!("page_cache={state}"),
        };
        match cached_share {
            None => {
                format!("{asked} of {host} is not verified: the state of the page cache is unknown")
            }
            Some(share) => format!(
                "{asked} of {host}: {:.0}% of the source was in the page cache",
                100.0 * share
            ),
        }
    }
}

/// Many datagrams came to an engine of frames by the kernel's UDP, so the run does not show what frames cost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FramesBypassed {
    pub host: String,
    pub by_kernel: u64,
    pub of: u64,
}

impl Problem for FramesBypassed {
    fn code(&self) -> &'static str {
        "frames-bypassed"
    }

    fn host(&mut self) -> Option<&mut String> {
        Some(&mut self.host)
    }

    fn message(&self) -> String {
        format!(
            "{}: they arrived at queues of other workers than their connections' (use --workers 1, or --placement even with a number of \
             workers that divides that of queues) or as connections opened",
            self.brief()
        )
    }

    fn brief(&self) -> String {
        let Self { host, by_kernel, of } = self;
        let share = *by_kernel as f64 * 100.0 / (*of).max(1) as f64;
        format!(
            "{by_kernel} of {of} datagrams ({share:.0}%) came to {host} by the kernel's UDP and not by AF_XDP"
        )
    }
}

/// Packets of connections that were placed by observation arrived on other CPUs later.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FlowsMoved {
    pub host: String,
    pub strands: u64,
    pub of: u64,
}

impl Problem for FlowsMoved {
    fn code(&self) -> &'static str {
        "flows-moved"
    }

    fn host(&mut self) -> Option<&mut String> {
        Some(&mut self.host)
    }

    fn message(&self) -> String {
        format!(
            "{}: RFS, threaded NAPI, a moving IRQ affinity or, on virtual links, retransmissions of TCP move flows \
             (`placements` in the JSON names the strands)",
            self.brief()
        )
    }

    fn brief(&self) -> String {
        let Self { host, strands, of } = self;
        format!(
            "packets of {strands} of {of} strands arrived at {host} on other CPUs than `placement` chose"
        )
    }
}

/// Segments of TCP were sent again on a path that should lose none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SegmentsRetransmitted {
    pub retransmits: u64,
    pub sent: u64,
    /// Devices of hosts that may lose packets because they were told to (netem), as `eth0 of h1`.
    pub netem: Vec<String>,
}

impl Problem for SegmentsRetransmitted {
    fn code(&self) -> &'static str {
        "segments-retransmitted"
    }

    fn message(&self) -> String {
        let Self { retransmits, sent, netem } = self;
        let share = *retransmits as f64 * 100.0 / (*sent).max(1) as f64;
        let look = match netem.as_slice() {
            [] => "look for drops (ethtool -S DEVICE, ip -s link, /proc/net/softnet_stat) and for \
                   reordering"
                .to_owned(),
            devices => format!(
                "loss or reordering may be configured by netem on {} (tc -s qdisc)",
                devices.join(", ")
            ),
        };
        format!("{retransmits} of {sent} TCP segments were retransmissions ({share:.2}%): {look}")
    }

    fn brief(&self) -> String {
        let Self { retransmits, sent, .. } = self;
        let share = *retransmits as f64 * 100.0 / (*sent).max(1) as f64;
        format!("{share:.2}% of the TCP segments were retransmissions")
    }
}

/// Operations failed and `canfail` let the strand go on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FailedOperations {
    pub failed: u64,
    pub timeouts: u64,
}

impl Problem for FailedOperations {
    fn code(&self) -> &'static str {
        "failed-operations"
    }

    fn message(&self) -> String {
        let Self { failed, timeouts } = self;
        format!(
            "{failed} operations failed ({timeouts} of them timed out) and do not count as completed"
        )
    }

    fn brief(&self) -> String {
        let Self { failed, timeouts } = self;
        format!("{failed} operations failed ({timeouts} timed out)")
    }
}

/// Strands had to be cut off at the end of a phase.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UnfinishedStrands {
    pub host: String,
    pub phase: u32,
    pub strands: u64,
}

impl Problem for UnfinishedStrands {
    fn code(&self) -> &'static str {
        "unfinished-strands"
    }

    fn host(&mut self) -> Option<&mut String> {
        Some(&mut self.host)
    }

    fn message(&self) -> String {
        let Self { host, phase, strands } = self;
        let phase = phase + 1;
        format!("{strands} strands of {host} did not finish phase {phase} in time and were aborted")
    }

    fn brief(&self) -> String {
        let Self { host, phase, strands } = self;
        format!("{strands} strands of {host} did not finish phase {}", phase + 1)
    }
}

/// Nothing moved in the window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NothingMoved {}

impl Problem for NothingMoved {
    fn code(&self) -> &'static str {
        "nothing-moved"
    }

    fn message(&self) -> String {
        "no bytes and no transactions in the window".to_owned()
    }
}

/// Connections that did not belong to the run were turned away.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ConnectionsRejected {
    pub host: String,
    pub connections: u64,
}

impl Problem for ConnectionsRejected {
    fn code(&self) -> &'static str {
        "connections-rejected"
    }

    fn host(&mut self) -> Option<&mut String> {
        Some(&mut self.host)
    }

    fn message(&self) -> String {
        let Self { host, connections } = self;
        format!("{host} rejected {connections} connections that are not part of this run")
    }
}

/// Workers with listeners of their own accepted connections whose packets another CPU had handled.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ConnectionsOnOtherCpu {
    pub host: String,
    pub connections: u64,
    /// All that they accepted.
    pub of: u64,
}

impl Problem for ConnectionsOnOtherCpu {
    fn code(&self) -> &'static str {
        "connections-on-other-cpu"
    }

    fn host(&mut self) -> Option<&mut String> {
        Some(&mut self.host)
    }

    fn message(&self) -> String {
        format!(
            "{}, although server_sockets=per-worker: most likely packets arrive on CPUs that no worker is pinned to (pin one \
             to each by --cpus and --workers, or keep interrupts and rps_cpus on the workers' CPUs); otherwise RPS, RFS or \
             threaded NAPI moved a connection during its handshake",
            self.brief()
        )
    }

    fn brief(&self) -> String {
        let Self { host, connections, of } = self;
        format!(
            "{connections} of {of} connections to {host} were accepted by a worker on another CPU than the one that handled \
             their packets"
        )
    }
}

/// The offered load is more than the link carries.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ImpossibleLoad {
    /// Bits per second of payload.
    pub offered: f64,
    /// Bits per second on the wire.
    pub link: u64,
    /// The most payload that the link carries, in bits per second.
    pub payload: u64,
}

impl Problem for ImpossibleLoad {
    fn code(&self) -> &'static str {
        "impossible-load"
    }

    fn message(&self) -> String {
        let Self { offered, link, payload } = self;
        format!(
            "an offered load of {} is impossible: the link has {}, which carries at most {} of payload \
             with its headers",
            bit_rate(*offered),
            decimal(*link as f64, "b/s"),
            bit_rate(*payload as f64)
        )
    }
}

/// The load was open loop, and the hosts or the network did not keep up with it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OfferedLoadNotReached {
    /// Bits per second of payload.
    pub offered: f64,
    pub delivered: f64,
}

impl Problem for OfferedLoadNotReached {
    fn code(&self) -> &'static str {
        "offered-load-not-reached"
    }

    fn message(&self) -> String {
        let Self { offered, delivered } = self;
        format!(
            "the run delivered {} of the offered {} ({:.0}%), so latency includes queueing time: lower \
             the load, or find the saturated resource",
            bit_rate(*delivered),
            bit_rate(*offered),
            100.0 * delivered / offered
        )
    }
}
