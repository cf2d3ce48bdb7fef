//! Clock, idle states, throttling and energy of the CPUs, as the kernel's files show them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::environment::files::Files;

const CPUS: &str = "sys/devices/system/cpu";
const POWERCAP: &str = "sys/class/powercap";

/// Reads the files below a root: `/`, or a fixture.
#[derive(Debug, Clone)]
pub struct HardwareFiles {
    root: PathBuf,
    online: Vec<u32>,
}

/// What the files showed at an instant. What one does not show is not there.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HardwareReading {
    pub idle: BTreeMap<u32, Vec<IdleUse>>,
    pub throttle: BTreeMap<u32, Throttle>,
    pub energy: Vec<Energy>,
    pub settings: FrequencySettings,
}

/// An idle state of one CPU since boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdleUse {
    pub name: String,
    /// Times that it was entered.
    pub entries: u64,
    pub microseconds: u64,
}

/// Times and milliseconds that a CPU, and its package, were slowed down as they were hot; x86 only.
/// <https://elixir.bootlin.com/linux/v6.12/source/Documentation/ABI/testing/sysfs-devices-system-cpu>
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Throttle {
    pub package: Option<u32>,
    pub core_events: Option<u64>,
    pub core_ms: Option<u64>,
    pub package_events: Option<u64>,
    pub package_ms: Option<u64>,
}

/// Energy of a domain since some instant (RAPL).
/// <https://docs.kernel.org/power/powercap/powercap.html>
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Energy {
    /// As `package-0` or `package-0 dram`.
    pub domain: String,
    pub microjoules: u64,
    /// The counter begins again behind this.
    pub range: Option<u64>,
}

impl Energy {
    /// Joules since an earlier reading of the same domain.
    #[must_use]
    pub fn joules_since(&self, earlier: &Self) -> f64 {
        let grown = match self.microjoules.checked_sub(earlier.microjoules) {
            Some(grown) => grown,
            None => {
                (self.microjoules + self.range.unwrap_or(0)).saturating_sub(earlier.microjoules)
            }
        };
        grown as f64 / 1e6
    }
}

/// What somebody set for the clock.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FrequencySettings {
    pub governor: BTreeMap<u32, String>,
    /// Least and most that the clock may be, kHz.
    pub min_khz: BTreeMap<u32, u64>,
    pub max_khz: BTreeMap<u32, u64>,
    pub energy_preference: BTreeMap<u32, String>,
    pub turbo: Option<bool>,
}

impl HardwareFiles {
    #[must_use]
    pub fn at(root: &Path, online: &[u32]) -> Self {
        Self { root: root.to_owned(), online: online.to_vec() }
    }

    fn files(&self) -> Files<'_> {
        Files { root: &self.root }
    }

    #[must_use]
    pub fn read(&self) -> HardwareReading {
        HardwareReading {
            idle: self.each(|cpu| self.idle(cpu)),
            throttle: self.each(|cpu| self.throttle(cpu)),
            energy: self.energy(),
            settings: self.settings(),
        }
    }

    /// The clock of each CPU by its driver, kHz: on x86 the mean since the kernel's last look at it, elsewhere mostly
    /// what was asked for. <https://docs.kernel.org/admin-guide/pm/cpufreq.html>
    #[must_use]
    pub fn frequencies(&self) -> BTreeMap<u32, u64> {
        self.each(|cpu| self.files().number(&format!("{CPUS}/cpu{cpu}/cpufreq/scaling_cur_freq")))
    }

    fn each<T>(&self, read: impl Fn(u32) -> Option<T>) -> BTreeMap<u32, T> {
        self.online.iter().filter_map(|&cpu| Some((cpu, read(cpu)?))).collect()
    }

    fn idle(&self, cpu: u32) -> Option<Vec<IdleUse>> {
        let files = self.files();
        let directory = format!("{CPUS}/cpu{cpu}/cpuidle");
        let places = (0..).map_while(|place| {
            let state = format!("{directory}/state{place}");
            Some(IdleUse {
                name: files.text(&format!("{state}/name"))?,
                entries: files.number(&format!("{state}/usage"))?,
                microseconds: files.number(&format!("{state}/time"))?,
            })
        });
        let states: Vec<IdleUse> = places.collect();
        (!states.is_empty()).then_some(states)
    }

    fn throttle(&self, cpu: u32) -> Option<Throttle> {
        let files = self.files();
        let directory = format!("{CPUS}/cpu{cpu}/thermal_throttle");
        let count = |name: &str| files.number(&format!("{directory}/{name}"));
        let throttle = Throttle {
            package: None,
            core_events: count("core_throttle_count"),
            core_ms: count("core_throttle_total_time_ms"),
            package_events: count("package_throttle_count"),
            package_ms: count("package_throttle_total_time_ms"),
        };
        let package = files.number(&format!("{CPUS}/cpu{cpu}/topology/physical_package_id"));
        let package = package.and_then(|number| u32::try_from(number).ok());
        (throttle != Throttle::default()).then_some(Throttle { package, ..throttle })
    }

    /// Domains of `intel-rapl` (AMD's too), each with its package's name before it.
    fn energy(&self) -> Vec<Energy> {
        let files = self.files();
        let mut zones = files.names(POWERCAP).unwrap_or_default();
        zones.retain(|zone| zone.starts_with("intel-rapl:"));
        zones.sort();
        let name = |zone: &str| files.text(&format!("{POWERCAP}/{zone}/name"));
        let domain = |zone: &String| {
            let own = name(zone)?;
            let domain = match zone.rsplit_once(':') {
                // `intel-rapl:0:2` is a part of `intel-rapl:0`.
                Some((above, _)) if above.contains(':') => format!("{} {own}", name(above)?),
                _ => own,
            };
            Some(Energy {
                domain,
                microjoules: files.number(&format!("{POWERCAP}/{zone}/energy_uj"))?,
                range: files.number(&format!("{POWERCAP}/{zone}/max_energy_range_uj")),
            })
        };
        zones.iter().filter_map(domain).collect()
    }

    fn settings(&self) -> FrequencySettings {
        let files = self.files();
        let path = |cpu: u32, name: &str| format!("{CPUS}/cpu{cpu}/cpufreq/{name}");
        FrequencySettings {
            governor: self.each(|cpu| files.text(&path(cpu, "scaling_governor"))),
            min_khz: self.each(|cpu| files.number(&path(cpu, "scaling_min_freq"))),
            max_khz: self.each(|cpu| files.number(&path(cpu, "scaling_max_freq"))),
            energy_preference: self
                .each(|cpu| files.text(&path(cpu, "energy_performance_preference"))),
            turbo: files.turbo().map(|(on, _)| on),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::tests::fixture;

    #[test]
    fn files_of_a_machine_with_a_clock_that_changes() {
        let cpu = |path: &str| format!("{CPUS}/cpu1/{path}");
        let files = [
            (cpu("cpufreq/scaling_cur_freq"), "3400123"),
            (cpu("cpufreq/scaling_governor"), "schedutil"),
            (cpu("cpufreq/scaling_max_freq"), "3500000"),
            (cpu("cpufreq/scaling_min_freq"), "800000"),
            (cpu("cpufreq/energy_performance_preference"), "balance_performance"),
            (cpu("cpuidle/state0/name"), "POLL"),
            (cpu("cpuidle/state0/usage"), "5"),
            (cpu("cpuidle/state0/time"), "17"),
            (cpu("cpuidle/state1/name"), "C6"),
            (cpu("cpuidle/state1/usage"), "900"),
            (cpu("cpuidle/state1/time"), "123456"),
            (cpu("thermal_throttle/core_throttle_count"), "3"),
            (cpu("thermal_throttle/core_throttle_total_time_ms"), "40"),
            (cpu("thermal_throttle/package_throttle_count"), "7"),
            (cpu("topology/physical_package_id"), "0"),
            (format!("{CPUS}/intel_pstate/no_turbo"), "0"),
            (format!("{POWERCAP}/intel-rapl:0/name"), "package-0"),
            (format!("{POWERCAP}/intel-rapl:0/energy_uj"), "1000000"),
            (format!("{POWERCAP}/intel-rapl:0/max_energy_range_uj"), "262143328850"),
            (format!("{POWERCAP}/intel-rapl:0:1/name"), "dram"),
            (format!("{POWERCAP}/intel-rapl:0:1/energy_uj"), "500"),
        ];
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (&**path, *text)).collect();
        let root = fixture(&files);
        let reader = HardwareFiles::at(root.path(), &[0, 1]);
        assert_eq!(reader.frequencies(), BTreeMap::from([(1, 3_400_123)]));
        let of = reader.read();
        let state = |name: &str, entries, microseconds| IdleUse {
            name: name.to_owned(),
            entries,
            microseconds,
        };
        assert_eq!(of.idle[&1], [state("POLL", 5, 17), state("C6", 900, 123_456)]);
        let throttle = Throttle {
            package: Some(0),
            core_events: Some(3),
            core_ms: Some(40),
            package_events: Some(7),
            package_ms: None,
        };
        assert_eq!(of.throttle, BTreeMap::from([(1, throttle)]));
        let domains: Vec<_> =
            of.energy.iter().map(|of| (of.domain.as_str(), of.microjoules)).collect();
        assert_eq!(domains, [("package-0", 1_000_000), ("package-0 dram", 500)]);
        assert_eq!(of.settings.governor[&1], "schedutil");
        assert_eq!((of.settings.max_khz[&1], of.settings.min_khz[&1]), (3_500_000, 800_000));
        assert_eq!(of.settings.turbo, Some(true));
        let none = HardwareFiles::at(&root.path().join("nothing"), &[0, 1]);
        assert_eq!(none.read(), HardwareReading::default());
    }

    #[test]
    fn energy_goes_on_behind_its_range() {
        let at = |microjoules| Energy {
            domain: "package-0".to_owned(),
            microjoules,
            range: Some(10_000_000),
        };
        assert_eq!(at(7_000_000).joules_since(&at(4_000_000)), 3.0);
        assert_eq!(at(1_000_000).joules_since(&at(9_000_000)), 2.0);
    }
}
