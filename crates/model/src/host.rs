//! Facts of a host, and what its kernel counted.

use serde::{Deserialize, Serialize};

use crate::clock::Nanos;

/// What a host is, read once when its agent starts.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, schemars::JsonSchema)]
pub struct HostFacts {
    pub hostname: String,
    /// /proc/sys/kernel/random/boot_id: hosts with the same one share a kernel, and so a clock.
    pub boot_id: String,
    /// Kernel release, as `uname -r`.
    pub kernel: String,
    pub architecture: String,
    pub cpu_model: String,
    /// CPUs the agent may run on.
    pub cpus: Vec<u32>,
    /// CPUs online on the machine.
    pub machine_cpus: u32,
    pub memory_bytes: u64,
    /// Hard limit of descriptors of one process.
    pub descriptor_limit: u64,
    /// Rate of the one link that leads out, each way; null where there are several, or none that says
    /// its rate.
    pub link_bits_per_second: Option<u64>,
    /// Version of wirecost on that host.
    pub version: String,
}

/// Time a CPU has spent, in clock ticks since boot, as /proc/stat counts it. `nice` is in `user`;
/// guest time is not counted again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CpuTicks {
    pub cpu: u32,
    pub user: u64,
    pub system: u64,
    pub irq: u64,
    pub softirq: u64,
    pub steal: u64,
    pub idle: u64,
    pub iowait: u64,
}

impl CpuTicks {
    /// Ticks between an earlier reading and this one. The kernel lets idle and iowait go back a
    /// little; that is no time, not an age.
    #[must_use]
    pub fn since(&self, before: &CpuTicks) -> CpuTicks {
        CpuTicks {
            cpu: self.cpu,
            user: self.user.saturating_sub(before.user),
            system: self.system.saturating_sub(before.system),
            irq: self.irq.saturating_sub(before.irq),
            softirq: self.softirq.saturating_sub(before.softirq),
            steal: self.steal.saturating_sub(before.steal),
            idle: self.idle.saturating_sub(before.idle),
            iowait: self.iowait.saturating_sub(before.iowait),
        }
    }
}

/// State of all CPUs at one instant.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct CpuSnapshot {
    pub ticks: Vec<CpuTicks>,
    /// Ticks of /proc/stat a second.
    pub ticks_per_second: u64,
    /// Time-stamp counter; `None` where the CPU has none that counts at a constant rate.
    pub tsc: Option<u64>,
    /// When it was read, which is not quite when the rest was.
    #[serde(default)]
    pub tsc_at: Option<Nanos>,
}
