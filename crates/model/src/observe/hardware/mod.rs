//! The hardware that the host ran on in the window: clock, idle states, throttling, power and memory bandwidth.

mod document;

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{MetricDef, MetricScope, Observation, Value, reading};
use crate::document::Section;
use crate::metric::Better::{Higher, Lower, Neither};
use crate::metric::Unit::{Count, GigaHertz, PerSecond, Watts};

/// What the probe `host` says. What the machine does not tell is null, and a reason stands beside it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct HardwareSection {
    /// Where the clock is from; null where nothing tells it.
    pub clock_source: Option<ClockSource>,
    /// Why `clock_source` is null.
    pub clock_reason: Option<String>,
    pub cpus: Vec<CpuHardware>,
    /// The largest change of the clock of all CPUs together within the window; null where it kept within a tenth, or
    /// is unknown.
    pub clock_change: Option<ClockChange>,
    pub settings: ClockSettings,
    /// Settings that differ between the edges of the window.
    pub changes: Vec<HostChange>,
    /// Why the idle states of CPUs are null.
    pub idle_reason: Option<String>,
    /// Time that cores and packages really were in each C-state, by the hardware's own counters. Null where it has none.
    pub residency: Option<Vec<StateResidency>>,
    /// Why `residency` is null.
    pub residency_reason: Option<String>,
    pub throttling: Option<Throttling>,
    /// Why `throttling` is null.
    pub throttling_reason: Option<String>,
    /// Mean power in the window; null where nothing tells it.
    pub power: Option<Vec<Power>>,
    /// Why `power` is null.
    pub power_reason: Option<String>,
    /// What memory controllers moved, of all programs of the machine; null where nothing tells it.
    pub memory: Option<MemoryTraffic>,
    /// Why `memory` is null.
    pub memory_reason: Option<String>,
}

/// How a clock was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ClockSource {
    /// Counters of the CPU (APERF over MPERF): the exact mean while the CPU was busy.
    AperfMperf,
    /// `scaling_cur_freq` of cpufreq at each interval: on some machines what was asked for, not what ran.
    Cpufreq,
}

/// One CPU in the window.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct CpuHardware {
    pub cpu: u32,
    /// Null where the clock is unknown, or the CPU did nothing.
    pub clock: Option<ClockRange>,
    /// Time that the CPU was not idle, in percent of the window, by MPERF over TSC; null without these.
    pub busy_percent: Option<f64>,
    /// Share of each idle state of cpuidle; null where the kernel does not tell them.
    pub idle_states: Option<Vec<IdleShare>>,
}

/// Clock of a CPU while it was busy.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClockRange {
    /// Of the intervals of the window.
    pub min_ghz: f64,
    /// Of the whole window.
    pub mean_ghz: f64,
    pub max_ghz: f64,
}

/// Time in one idle state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct IdleShare {
    pub state: String,
    /// Of the window.
    pub percent: f64,
    /// Times that it was entered.
    pub entries: u64,
}

/// Time of one core, module or package in one C-state. A core is in the state of its most awake CPU, and a package in that of
/// its most awake core.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StateResidency {
    pub scope: ResidencyScope,
    /// The CPU on which it is counted: one of the core, module or package.
    pub cpu: u32,
    /// The hardware's name, as `C6`; those of cpuidle are other ones.
    pub state: String,
    /// Of the window.
    pub percent: f64,
}

/// What sleeps as one.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum ResidencyScope {
    Core,
    /// Cores that share a cache of the second level.
    Module,
    Package,
}

impl ResidencyScope {
    /// One and several, for people.
    #[must_use]
    pub fn words(self) -> [&'static str; 2] {
        match self {
            Self::Core => ["core", "cores"],
            Self::Module => ["module", "modules"],
            Self::Package => ["package", "packages"],
        }
    }
}

/// A clock that rose or fell.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClockChange {
    pub from_ghz: f64,
    pub to_ghz: f64,
    /// When the second value was reached, since the beginning of the window.
    pub seconds: f64,
}

/// What somebody set, at the end of the window.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct ClockSettings {
    /// Governors in use; null without cpufreq.
    pub governors: Option<Vec<String>>,
    pub turbo: Option<bool>,
    /// The most that any CPU may have.
    pub max_ghz: Option<f64>,
}

/// A setting of the host that changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HostChange {
    pub setting: String,
    pub before: String,
    pub after: String,
}

impl fmt::Display for HostChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} from {} to {}", self.setting, self.before, self.after)
    }
}

/// CPUs slowed down as they were hot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Throttling {
    /// Times that a core was, of all cores.
    pub core_events: u64,
    /// Times that a package was, of all packages.
    pub package_events: u64,
    /// The longest of any core or package; null where the kernel does not count it.
    pub milliseconds: Option<u64>,
}

/// Mean power of a domain.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Power {
    /// As `package-0`, or `package-0 dram`, which is not among the package's own on servers.
    pub domain: String,
    pub watts: f64,
}

/// Traffic between the CPUs and memory.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryTraffic {
    pub read_bytes_per_second: f64,
    pub write_bytes_per_second: f64,
}

impl HardwareSection {
    /// Mean clock of the CPUs, each as much as it was busy where that is known.
    fn mean_ghz(&self) -> Result<f64, String> {
        let (mut sum, mut weights) = (0.0, 0.0);
        for cpu in &self.cpus {
            let Some(clock) = cpu.clock else { continue };
            let weight = cpu.busy_percent.unwrap_or(1.0);
            sum += clock.mean_ghz * weight;
            weights += weight;
        }
        match weights > 0.0 {
            true => Ok(sum / weights),
            false => Err(self.no_clock()),
        }
    }

    fn min_ghz(&self) -> Result<f64, String> {
        let all = self.cpus.iter().filter_map(|cpu| Some(cpu.clock?.min_ghz));
        all.reduce(f64::min).ok_or_else(|| self.no_clock())
    }

    fn no_clock(&self) -> String {
        self.clock_reason.clone().unwrap_or_else(|| "no CPU was busy".to_owned())
    }

    /// Of all packages, with memory where it is a domain of its own.
    fn watts(&self) -> Result<f64, String> {
        let reason = || self.power_reason.clone().unwrap_or_else(|| "nothing tells it".to_owned());
        let power = self.power.as_ref().ok_or_else(reason)?;
        let packages = power.iter().filter(|of| of.domain.starts_with("package"));
        let counted = packages.filter(|of| !of.domain.contains(' ') || of.domain.ends_with("dram"));
        Ok(counted.map(|of| of.watts).sum())
    }
}

const NOT_COUNTED: &str = "the machine does not count it";

impl Observation for HardwareSection {
    const METRICS: &'static [MetricDef<Self>] = &[
        reading(
            "host.frequency_ghz",
            GigaHertz,
            Higher,
            MetricScope::Kernel,
            "mean clock of the machine's CPUs while they were busy",
            Value::One(Self::mean_ghz),
        ),
        reading(
            "host.frequency_min_ghz",
            GigaHertz,
            Higher,
            MetricScope::Kernel,
            "lowest clock of any CPU of the machine in any interval of the window",
            Value::One(Self::min_ghz),
        ),
        reading(
            "host.power_w",
            Watts,
            Lower,
            MetricScope::Kernel,
            "mean power of the machine's CPU packages, and of memory where it is counted separately",
            Value::One(Self::watts),
        ),
        reading(
            "host.throttled",
            Count,
            Lower,
            MetricScope::Kernel,
            "times that cores and packages were slowed down by heat",
            Value::One(|s| {
                let all = s.throttling.map(|of| (of.core_events + of.package_events) as f64);
                all.ok_or_else(|| s.throttling_reason.clone().unwrap_or(NOT_COUNTED.to_owned()))
            }),
        ),
        reading(
            "host.memory_read",
            PerSecond,
            Neither,
            MetricScope::Kernel,
            "bytes that the machine read from memory per second",
            Value::One(|s| {
                let read = s.memory.map(|of| of.read_bytes_per_second);
                read.ok_or_else(|| s.memory_reason.clone().unwrap_or(NOT_COUNTED.to_owned()))
            }),
        ),
        reading(
            "host.memory_write",
            PerSecond,
            Neither,
            MetricScope::Kernel,
            "bytes that the machine wrote to memory per second",
            Value::One(|s| {
                let written = s.memory.map(|of| of.write_bytes_per_second);
                written.ok_or_else(|| s.memory_reason.clone().unwrap_or(NOT_COUNTED.to_owned()))
            }),
        ),
    ];

    fn document(&self) -> Vec<Section> {
        document::sections(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metric(of: &HardwareSection, name: &str) -> Result<f64, String> {
        let def = HardwareSection::METRICS.iter().find(|def| def.metric.name == name);
        match def.expect(name).value {
            Value::One(read) => read(of),
            Value::Named(_) => unreachable!("none has a name"),
        }
    }

    #[test]
    fn a_busy_cpu_counts_more_than_an_idle_one() {
        let cpu = |cpu, mean_ghz, busy_percent| CpuHardware {
            cpu,
            clock: Some(ClockRange { min_ghz: mean_ghz - 0.5, mean_ghz, max_ghz: mean_ghz }),
            busy_percent,
            ..CpuHardware::default()
        };
        let cpus = vec![cpu(0, 3.0, Some(75.0)), cpu(1, 2.0, Some(25.0))];
        let section = HardwareSection { cpus, ..HardwareSection::default() };
        assert_eq!(metric(&section, "host.frequency_ghz"), Ok(2.75));
        assert_eq!(metric(&section, "host.frequency_min_ghz"), Ok(1.5));
        let cpus = vec![cpu(0, 3.0, None), cpu(1, 2.0, None)];
        let section = HardwareSection { cpus, ..HardwareSection::default() };
        assert_eq!(metric(&section, "host.frequency_ghz"), Ok(2.5));
    }

    #[test]
    fn power_is_of_packages_and_of_memory_beside_them() {
        let power = |domain: &str, watts| Power { domain: domain.to_owned(), watts };
        let domains = vec![
            power("package-0", 80.0),
            power("package-0 core", 60.0),
            power("package-0 dram", 10.0),
            power("package-1", 50.0),
        ];
        let section = HardwareSection { power: Some(domains), ..HardwareSection::default() };
        assert_eq!(metric(&section, "host.power_w"), Ok(140.0));
        let reason = Some("a reason".to_owned());
        let section = HardwareSection { power_reason: reason, ..HardwareSection::default() };
        assert_eq!(metric(&section, "host.power_w"), Err("a reason".to_owned()));
        for name in ["host.frequency_ghz", "host.throttled", "host.memory_read"] {
            assert!(metric(&section, name).is_err(), "{name}");
        }
    }
}
