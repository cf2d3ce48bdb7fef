//! What a result depends on beside the workload: kernel, CPUs, memory, network devices and
//! settings, as `hosts.json` of a record keeps it and the doctor looks at it. A value that could not
//! be read is `null`; 0, `""` and an empty list always mean that the kernel said so.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Surroundings of a host.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Environment {
    pub kernel: Kernel,
    pub cpu: Cpu,
    pub memory: Memory,
    /// Devices of the namespace; `None` when the kernel did not list them.
    pub devices: Option<Vec<Device>>,
    /// What packets meet on their way beside the devices.
    pub path: Path,
    /// The process that reads all this, which is the one that will measure.
    pub process: Process,
    /// Settings by name, blanks as single blanks.
    pub sysctls: BTreeMap<String, Option<String>>,
}

impl Environment {
    /// A setting as the kernel writes it.
    #[must_use]
    pub fn sysctl(&self, name: &str) -> Option<&str> {
        self.sysctls.get(name)?.as_deref()
    }

    /// The numbers of a setting; `None` where one of its parts is not a number.
    #[must_use]
    pub fn sysctl_numbers(&self, name: &str) -> Option<Vec<i64>> {
        self.sysctl(name)?.split_ascii_whitespace().map(|part| part.parse().ok()).collect()
    }

    /// A setting that is one number.
    #[must_use]
    pub fn sysctl_number(&self, name: &str) -> Option<i64> {
        match self.sysctl_numbers(name)?.as_slice() {
            [number] => Some(*number),
            _ => None,
        }
    }

    /// Names of the kernel's congestion controls that this process may choose. Without the right to administer the
    /// network, these are the allowed ones (tcp(7), `tcp_allowed_congestion_control`). `None` where they are unknown.
    #[must_use]
    pub fn congestion_controls(&self) -> Option<Vec<&str>> {
        let list = match self.process.may("cap_net_admin") {
            Some(true) => AVAILABLE_CONGESTION_CONTROL,
            _ => ALLOWED_CONGESTION_CONTROL,
        };
        Some(self.sysctl(list)?.split_ascii_whitespace().collect())
    }
}

/// The congestion controls of the kernel, and those of them that everybody may choose.
pub const AVAILABLE_CONGESTION_CONTROL: &str = "net.ipv4.tcp_available_congestion_control";
pub const ALLOWED_CONGESTION_CONTROL: &str = "net.ipv4.tcp_allowed_congestion_control";

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Kernel {
    pub release: Option<String>,
    pub version: Option<String>,
    pub architecture: Option<String>,
    pub command_line: Option<String>,
    pub clocksource: Option<String>,
    pub available_clocksources: Option<Vec<String>>,
    pub transparent_hugepage: Option<String>,
    /// `none`, `integrity` or `confidentiality`.
    pub lockdown: Option<String>,
    pub security_modules: Option<Vec<String>>,
    /// Whether the kernel describes its own types to BPF programs.
    pub btf: Option<bool>,
    /// Whether the events of tracefs can be read.
    pub tracefs: Option<bool>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Cpu {
    pub model: Option<String>,
    /// Packages, cores and hardware threads that are online.
    pub sockets: Option<u32>,
    pub cores: Option<u32>,
    pub threads: Option<u32>,
    pub numa_nodes: Option<Vec<NumaNode>>,
    /// Hypervisor's flag of the CPU: the machine is a virtual one. x86 only.
    pub virtual_machine: Option<bool>,
    /// Whether a program interprets or translates the CPU's instructions, so that times say nothing of
    /// hardware. x86 only.
    pub emulated: Option<bool>,
    /// Maker and model of the machine, which of a virtual one name the hypervisor.
    pub machine: Option<String>,
    /// Vulnerability to what the kernel does about it.
    pub mitigations: Option<BTreeMap<String, String>>,
    pub frequency_driver: Option<String>,
    /// Frequency governors in use.
    pub governors: Option<Vec<String>>,
    pub turbo: Option<bool>,
    /// The file that says so: drivers differ.
    pub turbo_setting: Option<String>,
    /// Idle states that the kernel may choose from, the lightest first.
    pub idle_states: Option<Vec<IdleState>>,
    /// Whether hardware threads that share a core are online.
    pub smt: Option<bool>,
    /// `on`, `off`, `forceoff`, `notsupported` or `notimplemented`.
    pub smt_control: Option<String>,
    /// CPUs kept from ordinary work by `isolcpus`.
    pub isolated: Option<Vec<u32>>,
    /// Whether the time-stamp counter runs at one rate in all states of the CPU.
    pub constant_tsc: Option<bool>,
    /// Counters of the hardware by name, as the kernel lists them; that there is one does not say
    /// that it counts.
    pub pmus: Option<Vec<String>>,
    /// What came of counting a few cycles.
    pub cycle_counter: Option<CycleCounter>,
    /// Part of the CPU time since boot that the hypervisor gave to others.
    pub steal_percent: Option<f64>,
    /// Mean number of tasks that ran or waited for a CPU in the last minute.
    pub load: Option<f64>,
    pub irqbalance: Option<bool>,
}

/// What came of counting cycles by the PMU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CycleCounter {
    Counts,
    /// The machine has none, or its hypervisor keeps it.
    Absent,
    /// This process may not use it.
    Refused,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdleState {
    pub name: String,
    /// Longest time to wake from it.
    pub latency_us: u64,
    /// On every CPU.
    pub disabled: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NumaNode {
    pub node: u32,
    pub cpus: Option<Vec<u32>>,
    pub memory_bytes: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Memory {
    pub total_bytes: Option<u64>,
    pub available_bytes: Option<u64>,
    pub swap_total_bytes: Option<u64>,
    pub page_bytes: Option<u64>,
    /// Bytes of one object of the kernel's caches that connections use, by the cache's name. Only root
    /// may read them; one that the kernel merged with another has no name.
    pub slab_bytes: Option<BTreeMap<String, u64>>,
}

/// A network device.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Device {
    pub name: String,
    /// Kind of a virtual device; `None` for hardware and `lo`.
    pub kind: Option<String>,
    pub up: bool,
    pub mtu: Option<u32>,
    /// `None` also of a pair (veth), unless whoever made it noted the rate of the way.
    pub speed_bits_per_second: Option<u64>,
    pub tx_queue_len: Option<u32>,
    /// Kind of the root queueing discipline.
    pub qdisc: Option<String>,
    /// How many queueing disciplines of each kind it has: those of its queues and classes too, and the
    /// `ingress` or `clsact` that filters hang on.
    pub qdiscs: Option<BTreeMap<String, u32>>,
    pub driver: Option<String>,
    pub driver_version: Option<String>,
    pub firmware: Option<String>,
    /// Place on its bus, as `0000:00:03.0`; virtual devices have none.
    pub bus: Option<String>,
    /// Features by the kernel's names: whether each is on.
    pub features: Option<BTreeMap<String, bool>>,
    /// Those of them that can be switched.
    pub changeable_features: Option<Vec<String>>,
    pub rings: Option<Rings>,
    pub coalescing: Option<Coalescing>,
    pub flow_control: Option<FlowControl>,
    pub channels: Option<Channels>,
    /// How it picks the receive queue of a packet.
    #[serde(default)]
    pub rss: Option<DeviceRss>,
    /// NUMA node it is attached to; `None` also where the kernel does not know.
    pub numa_node: Option<u32>,
    /// Its interrupts that are in use.
    pub vectors: Option<Vec<Vector>>,
    /// Packets that the device dropped since it came up as its ring was full.
    pub rx_missed: Option<u64>,
}

/// How a device picks the receive queue of a packet: by a table that the hash of its addresses and ports indexes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceRss {
    /// Of the hash, as ethtool(8) prints it; `None` where the driver does not tell it.
    pub key: Option<String>,
    /// The queue of each entry.
    pub table: Vec<u32>,
}

impl DeviceRss {
    /// Queues that packets can come to.
    #[must_use]
    pub fn queues(&self) -> usize {
        self.table.iter().collect::<BTreeSet<_>>().len()
    }
}

/// Descriptors of each ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Rings {
    pub rx: u32,
    pub rx_max: u32,
    pub tx: u32,
    pub tx_max: u32,
}

/// How long a device waits before it interrupts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Coalescing {
    /// Whether the driver changes the times by itself.
    pub adaptive_rx: bool,
    pub adaptive_tx: bool,
    pub rx_us: u32,
    pub rx_frames: u32,
    pub tx_us: u32,
    pub tx_frames: u32,
}

/// As `adaptive, 8 us, 64 frames / 0 us, 1 frames`, receiving first; once where both are the same.
impl fmt::Display for Coalescing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let one = |adaptive: bool, us: u32, frames: u32| {
            let adaptive = if adaptive { "adaptive, " } else { "" };
            format!("{adaptive}{us} us, {frames} frames")
        };
        let rx = one(self.adaptive_rx, self.rx_us, self.rx_frames);
        let tx = one(self.adaptive_tx, self.tx_us, self.tx_frames);
        if rx == tx { f.write_str(&rx) } else { write!(f, "{rx} / {tx}") }
    }
}

/// Pause frames (IEEE 802.3, annex 31B).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FlowControl {
    /// Agreed upon with the other end of the wire.
    pub negotiated: bool,
    pub rx: bool,
    pub tx: bool,
}

/// Queues in use and how many there can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Channels {
    pub rx: u32,
    pub rx_max: u32,
    pub tx: u32,
    pub tx_max: u32,
    pub combined: u32,
    pub combined_max: u32,
}

/// As `8 combined` or `4 rx, 2 tx`.
impl fmt::Display for Channels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = [(self.combined, "combined"), (self.rx, "rx"), (self.tx, "tx")];
        let used = named.iter().filter(|(number, _)| *number > 0);
        let parts: Vec<String> = used.map(|(number, name)| format!("{number} {name}")).collect();
        f.write_str(&parts.join(", "))
    }
}

/// An interrupt of a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vector {
    pub irq: u32,
    /// Who handles it, as /proc/interrupts says.
    pub name: String,
    /// CPUs it may go to.
    pub cpus: Option<Vec<u32>>,
    /// CPUs it goes to.
    pub effective_cpus: Option<Vec<u32>>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Path {
    /// Tables of nftables, those that `iptables-nft` makes among them.
    pub nftables: Option<Vec<RuleTable>>,
    /// Tables of the older iptables and ip6tables.
    pub iptables: Option<Vec<RuleTable>>,
    pub ipsec: Option<Ipsec>,
    pub backlog: Option<Backlog>,
}

/// Rules of a packet filter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleTable {
    /// `ip`, `ip6`, `inet`, `netdev`, `bridge`, `arp`.
    pub family: String,
    pub name: String,
    pub rules: u32,
}

/// What the kernel's IPsec holds, beside the policies of single sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ipsec {
    pub policies: u32,
    pub associations: u32,
}

/// What became of packets between device and protocol since boot, of the whole machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backlog {
    pub processed: u64,
    /// As the queue of a CPU was full.
    pub dropped: u64,
    /// Times that a CPU had to leave packets for later.
    pub squeezed: u64,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Process {
    /// Rights in effect, by the names of capabilities(7) in small letters.
    pub capabilities: Option<Vec<String>>,
    /// Whether these rights hold on the whole machine: false in a container with users of its own.
    pub rights_hold_everywhere: Option<bool>,
    pub allowed_cpus: Option<Vec<u32>>,
    /// Most CPU time its control group may have, in CPUs; `None` also where there is no limit.
    pub quota_cpus: Option<f64>,
    /// The file that says so, and what it says.
    pub quota_setting: Option<String>,
    pub quota_value: Option<String>,
    /// Most descriptors it can open.
    pub descriptors: Option<u64>,
    pub io_uring: Option<Usability>,
    /// Congestion control in BPF programs, which the kernel removes with the process that loaded them.
    pub bpf_congestion: Option<Usability>,
}

/// Whether a process can use a facility of the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Usability {
    Usable,
    /// Why not, and what to do about it.
    Unusable(String),
}

impl Process {
    /// Whether it has a right; `None` where its rights are not known.
    #[must_use]
    pub fn may(&self, capability: &str) -> Option<bool> {
        Some(self.capabilities.as_ref()?.iter().any(|has| has == capability))
    }
}
