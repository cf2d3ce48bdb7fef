//! The hardware under the host: how fast its CPUs ran, how they slept, whether heat slowed them down, and what power and
//! memory bandwidth they took, by counters where the machine has them.

mod clock;
mod counters;

use std::collections::BTreeMap;
use std::path::Path;

use wirecost_linux::hardware::{FrequencySettings, HardwareFiles, HardwareReading};
use wirecost_model::clock::{Nanos, seconds};
use wirecost_model::observe::{
    ClockSettings, ClockSource, CpuHardware, HardwareSection, HostChange, HostObservation,
    IdleShare, MemoryTraffic, Part, Power, StateResidency, Throttling,
};

use crate::probe::{Description, Edge, Extent, Probe, Session, Sets, Shared, Unavailable};
use crate::series::Series;
use crate::tracker::online_cpus;
use clock::{ClockReading, Clocks};
use counters::{Counted, Counters};

#[derive(Debug)]
pub(crate) struct Host;

impl Probe for Host {
    fn name(&self) -> &'static str {
        "host"
    }

    fn about(&self) -> Description {
        Description {
            tells: "clock of each CPU (minimum, mean, maximum), idle states, C-states, slowing down by heat, power, \
                    memory bandwidth, and what of governor, turbo and limits changed",
            needs: "APERF and MPERF by perf (root, CAP_PERFMON or kernel.perf_event_paranoid <= 0) \
                    for exact clocks, otherwise cpufreq; RAPL for power; Intel's memory controllers \
                    for bandwidth, and its C-state counters; most virtual machines have none of these",
            costs: "no hooks: a few counters and small files for each CPU around the window, and the \
                    clocks of all CPUs at each interval",
            limitations: "APERF and MPERF count only while a CPU is not halted; cpufreq may tell what was \
                    asked for; figures are of the whole machine, all programs included",
        }
    }

    fn sets(&self) -> Sets {
        Sets { standard: Some(Extent::Whole), full: Some(Extent::Whole) }
    }

    fn open(&self, _shared: &mut Shared) -> Result<Box<dyn Session>, Unavailable> {
        let (root, online) = (Path::new("/"), online_cpus());
        let files = HardwareFiles::at(root, &online);
        let counters = Counters::open(root, &online);
        Ok(Box::new(Watch {
            files,
            counters,
            series: Series::default(),
            edges: Default::default(),
        }))
    }
}

#[derive(Debug)]
struct Watch {
    files: HardwareFiles,
    counters: Counters,
    series: Series<ClockReading>,
    /// At both edges of the window.
    edges: [Snapshot; 2],
}

/// What was read at an edge.
#[derive(Debug, Default)]
struct Snapshot {
    at: Nanos,
    files: HardwareReading,
    counted: Counted,
}

impl Watch {
    fn clock(&self) -> ClockReading {
        match self.counters.clocks() {
            Some(counts) => ClockReading::Counted(counts),
            None => ClockReading::Told(self.files.frequencies()),
        }
    }
}

impl Session for Watch {
    fn attach(&mut self, _shared: &Shared) -> Result<(), Unavailable> {
        self.counters.start();
        Ok(())
    }

    fn edge(&mut self, _shared: &Shared, at: Nanos, edge: Edge) {
        let counted = self.counters.read();
        self.edges[edge as usize] = Snapshot { at, files: HardwareReading::default(), counted };
        if edge == Edge::Begin {
            self.series = Series::default();
        }
        self.series.push(at, self.clock());
    }

    fn begin(&mut self, _shared: &Shared, _at: Nanos) {
        self.edges[Edge::Begin as usize].files = self.files.read();
    }

    fn interval(&mut self, _shared: &Shared, at: Nanos) {
        if self.series.wants(at) {
            self.series.push(at, self.clock());
        }
    }

    fn end(&mut self, _shared: &Shared, _at: Nanos) {
        self.edges[Edge::End as usize].files = self.files.read();
    }

    fn detach(&mut self) {
        self.counters.stop();
    }

    fn fill(&mut self, _shared: &Shared, part: &Part, into: &mut HostObservation) {
        let wanted = |cpu: u32| part.cpus.as_ref().is_none_or(|cpus| cpus.contains(&cpu));
        let clocks = Clocks::of(self.series.iter());
        into.hardware = Some(section(&self.edges, &clocks, &self.counters, wanted));
    }
}

/// Between two readings; clocks and idle states of the CPUs that are wanted, the rest of the whole machine.
fn section(
    [before, after]: &[Snapshot; 2],
    clocks: &Clocks,
    counters: &Counters,
    wanted: impl Fn(u32) -> bool,
) -> HardwareSection {
    let window = seconds(after.at.saturating_sub(before.at));
    let (then, now) = (&before.files, &after.files);
    let mut cpus: BTreeMap<u32, CpuHardware> = BTreeMap::new();
    for cpu in clocks.cpus().chain(now.idle.keys().copied()).filter(|cpu| wanted(*cpu)) {
        cpus.entry(cpu).or_insert_with(|| CpuHardware {
            cpu,
            clock: clocks.range(cpu),
            busy_percent: clocks.busy_percent(cpu),
            idle_states: idle(then, now, cpu, window),
        });
    }
    let clock_source = clocks.source();
    let no_idle = now.idle.is_empty().then(|| "the kernel has no cpuidle".to_owned());
    let throttling = throttling(then, now);
    let power = power(before, after, window);
    let memory = memory(before, after, window);
    let residency = residency(&before.counted, &after.counted);
    HardwareSection {
        clock_source,
        clock_reason: match clock_source {
            Some(ClockSource::AperfMperf) => None,
            Some(ClockSource::Cpufreq) => None,
            None => Some(format!("{}; no cpufreq", counters.no_clocks())),
        },
        clock_change: clocks.change(&wanted),
        cpus: cpus.into_values().collect(),
        settings: settings(&now.settings),
        changes: changes(&then.settings, &now.settings),
        idle_reason: no_idle,
        residency_reason: residency.is_none().then(|| counters.no_cstates().to_owned()),
        residency,
        throttling_reason: throttling
            .is_none()
            .then(|| "the kernel shows no thermal_throttle".to_owned()),
        throttling,
        power_reason: power
            .is_none()
            .then(|| format!("{}; no readable powercap", counters.no_energy())),
        power,
        memory_reason: memory.is_none().then(|| counters.no_memory().to_owned()),
        memory,
    }
}

fn idle(
    before: &HardwareReading,
    after: &HardwareReading,
    cpu: u32,
    window: f64,
) -> Option<Vec<IdleShare>> {
    let (then, now) = (before.idle.get(&cpu)?, after.idle.get(&cpu)?);
    let states = now.iter().filter_map(|now| {
        let then = then.iter().find(|then| then.name == now.name)?;
        let spent = now.microseconds.saturating_sub(then.microseconds) as f64 / 1e6;
        // A sleep that began before the window is counted when it ends.
        let percent = (spent * 100.0 / window.max(f64::MIN_POSITIVE)).min(100.0);
        let entries = now.entries.saturating_sub(then.entries);
        Some(IdleShare { state: now.name.clone(), percent, entries })
    });
    Some(states.collect())
}

/// C-states are counted in ticks of the time-stamp counter, of which as many passed.
fn residency(before: &Counted, after: &Counted) -> Option<Vec<StateResidency>> {
    let passed = after.tsc?.count.checked_sub(before.tsc?.count).filter(|passed| *passed > 0)?;
    let states = after.cstates.iter().filter_map(|(key, now)| {
        let spent = now - before.cstates.get(key)?;
        let (scope, cpu, state) = key.clone();
        // The counters are read one after another.
        let percent = (spent * 100.0 / passed as f64).clamp(0.0, 100.0);
        Some(StateResidency { scope, cpu, state, percent })
    });
    let states: Vec<StateResidency> = states.collect();
    (!states.is_empty()).then_some(states)
}

/// Cores that share their counter with a sibling are told twice by the kernel, packages by every CPU: a package counts once.
fn throttling(before: &HardwareReading, after: &HardwareReading) -> Option<Throttling> {
    if after.throttle.is_empty() {
        return None;
    }
    let mut all = Throttling::default();
    let mut packages: BTreeMap<Option<u32>, u64> = BTreeMap::new();
    for (cpu, now) in &after.throttle {
        let Some(then) = before.throttle.get(cpu) else { continue };
        let grown = |then: Option<u64>, now: Option<u64>| Some(now?.saturating_sub(then?));
        all.core_events += grown(then.core_events, now.core_events).unwrap_or(0);
        let of_package = packages.entry(now.package).or_default();
        let events = grown(then.package_events, now.package_events).unwrap_or(0);
        *of_package = events.max(*of_package);
        for ms in [grown(then.core_ms, now.core_ms), grown(then.package_ms, now.package_ms)] {
            all.milliseconds = all.milliseconds.max(ms);
        }
    }
    all.package_events = packages.values().sum();
    Some(all)
}

/// By perf's counters, or else by the files of powercap.
fn power(before: &Snapshot, after: &Snapshot, window: f64) -> Option<Vec<Power>> {
    let watts = |joules: f64| joules / window.max(f64::MIN_POSITIVE);
    let counted: Vec<Power> = after
        .counted
        .joules
        .iter()
        .filter_map(|(domain, now)| {
            let joules = now - before.counted.joules.get(domain)?;
            Some(Power { domain: domain.clone(), watts: watts(joules) })
        })
        .collect();
    if !counted.is_empty() {
        return Some(counted);
    }
    let told = after.files.energy.iter().filter_map(|now| {
        let then = before.files.energy.iter().find(|then| then.domain == now.domain)?;
        Some(Power { domain: now.domain.clone(), watts: watts(now.joules_since(then)) })
    });
    let told: Vec<Power> = told.collect();
    (!told.is_empty()).then_some(told)
}

fn memory(before: &Snapshot, after: &Snapshot, window: f64) -> Option<MemoryTraffic> {
    let [(read_then, written_then), (read, written)] =
        [before.counted.memory_bytes?, after.counted.memory_bytes?];
    let rate = |bytes: f64| bytes / window.max(f64::MIN_POSITIVE);
    Some(MemoryTraffic {
        read_bytes_per_second: rate(read - read_then),
        write_bytes_per_second: rate(written - written_then),
    })
}

fn settings(of: &FrequencySettings) -> ClockSettings {
    let mut governors: Vec<String> = of.governor.values().cloned().collect();
    governors.sort();
    governors.dedup();
    ClockSettings {
        governors: (!governors.is_empty()).then_some(governors),
        turbo: of.turbo,
        max_ghz: of.max_khz.values().max().map(|khz| *khz as f64 / 1e6),
    }
}

/// What changed of one setting on several CPUs is told once for those that changed in the same way.
fn changes(before: &FrequencySettings, after: &FrequencySettings) -> Vec<HostChange> {
    let mut all = Vec::new();
    let on = |on: bool| if on { "on" } else { "off" }.to_owned();
    if let (Some(then), Some(now)) = (before.turbo, after.turbo)
        && then != now
    {
        all.push(HostChange { setting: "turbo".to_owned(), before: on(then), after: on(now) });
    }
    let ghz = |khz: &u64| format!("{:.2} GHz", *khz as f64 / 1e6);
    changed(&mut all, "governor", &before.governor, &after.governor, Clone::clone);
    changed(&mut all, "least frequency", &before.min_khz, &after.min_khz, ghz);
    changed(&mut all, "highest frequency", &before.max_khz, &after.max_khz, ghz);
    let (then, now) = (&before.energy_preference, &after.energy_preference);
    changed(&mut all, "energy preference", then, now, Clone::clone);
    all
}

fn changed<T: PartialEq>(
    all: &mut Vec<HostChange>,
    setting: &str,
    before: &BTreeMap<u32, T>,
    after: &BTreeMap<u32, T>,
    show: impl Fn(&T) -> String,
) {
    let mut ways: BTreeMap<(String, String), Vec<u32>> = BTreeMap::new();
    for (cpu, now) in after {
        if let Some(then) = before.get(cpu).filter(|then| *then != now) {
            ways.entry((show(then), show(now))).or_default().push(*cpu);
        }
    }
    for ((before, after), cpus) in ways {
        let cpus = wirecost_linux::cpu_list::format_list(&cpus);
        all.push(HostChange { setting: format!("{setting} of CPU {cpus}"), before, after });
    }
}

#[cfg(test)]
mod tests;
