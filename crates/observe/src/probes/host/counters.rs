//! Counters of perf that tell of the hardware: APERF, MPERF and TSC of each CPU (PMU `msr`), energy of each package (PMU
//! `power`, RAPL), what memory controllers moved (PMUs `uncore_imc...`), and how long cores and packages were in each C-state
//! (PMUs `cstate_core` and `cstate_pkg`).

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use wirecost_linux::perf::{Event, Group, PmuEvent, Scope, cpumask, pmu_event, pmu_events, pmus};
use wirecost_linux::tsc::{self, TscReading};
use wirecost_model::observe::ResidencyScope;

use super::clock::ClockCounts;

/// Domains of RAPL by perf's names, and as powercap names them below a package.
/// <https://elixir.bootlin.com/linux/v6.12/source/arch/x86/events/rapl.c>
const DOMAINS: [(&str, &str); 5] = [
    ("energy-pkg", ""),
    ("energy-cores", " core"),
    ("energy-ram", " dram"),
    ("energy-gpu", " uncore"),
    ("energy-psys", " psys"),
];

/// Reads and writes of memory controllers: of servers, and of other machines.
/// <https://elixir.bootlin.com/linux/v6.12/source/arch/x86/events/intel/uncore_snbep.c>,
/// <https://elixir.bootlin.com/linux/v6.12/source/arch/x86/events/intel/uncore_snb.c>
const MEMORY: [[&str; 2]; 2] =
    [["cas_count_read", "cas_count_write"], ["data_reads", "data_writes"]];

/// PMUs that count C-states, each on one CPU of what sleeps as one, in ticks of the time-stamp counter.
/// <https://elixir.bootlin.com/linux/v6.12/source/arch/x86/events/intel/cstate.c>
const CSTATES: [(&str, ResidencyScope); 3] = [
    ("cstate_core", ResidencyScope::Core),
    ("cstate_module", ResidencyScope::Module),
    ("cstate_pkg", ResidencyScope::Package),
];

const MIB: f64 = 1024.0 * 1024.0;

/// Counters that this machine has; why it has no others.
#[derive(Debug)]
pub(super) struct Counters {
    clocks: Result<BTreeMap<u32, Group>, String>,
    energy: Result<Vec<(String, Counter)>, String>,
    memory: Result<Vec<[Counter; 2]>, String>,
    cstates: Result<Vec<(StateKey, Counter)>, String>,
}

/// A C-state of what sleeps as one, and the CPU on which it is counted.
pub(super) type StateKey = (ResidencyScope, u32, String);

/// One counter and what a count is.
#[derive(Debug)]
struct Counter {
    group: Group,
    scale: f64,
}

impl Counter {
    fn open(cpu: u32, of: &PmuEvent) -> io::Result<Self> {
        Ok(Self { group: Group::open(Scope::Cpu(cpu), &[of.event])?, scale: of.scale })
    }

    fn read(&self) -> Option<f64> {
        let counts = self.group.read().ok()?;
        Some(*counts.values.first()? as f64 * self.scale)
    }
}

/// Sums since the counters were opened.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Counted {
    /// By domain.
    pub(super) joules: BTreeMap<String, f64>,
    /// Read and written.
    pub(super) memory_bytes: Option<(f64, f64)>,
    /// Ticks in each C-state.
    pub(super) cstates: BTreeMap<StateKey, f64>,
    /// The time-stamp counter, where C-states are counted.
    pub(super) tsc: Option<TscReading>,
}

impl Counters {
    /// Opens what there is below `root`; nothing counts yet.
    pub(super) fn open(root: &Path, online: &[u32]) -> Self {
        Self {
            clocks: clocks(root, online),
            energy: energy(root),
            memory: memory(root),
            cstates: cstates(root),
        }
    }

    fn groups(&self) -> impl Iterator<Item = &Group> {
        let energy = self.energy.iter().flatten().map(|(_, counter)| &counter.group);
        let memory = self.memory.iter().flatten().flatten().map(|counter| &counter.group);
        let cstates = self.cstates.iter().flatten().map(|(_, counter)| &counter.group);
        self.clocks.iter().flat_map(BTreeMap::values).chain(energy).chain(memory).chain(cstates)
    }

    /// One that cannot be started stays at 0, and is not told.
    pub(super) fn start(&self) {
        for group in self.groups() {
            let _ = group.start();
        }
    }

    pub(super) fn stop(&self) {
        for group in self.groups() {
            let _ = group.stop();
        }
    }

    /// The clock counters of all CPUs; none where there are none.
    pub(super) fn clocks(&self) -> Option<BTreeMap<u32, ClockCounts>> {
        let read = |(cpu, group): (&u32, &Group)| match group.read().ok()?.values[..] {
            [aperf, mperf, tsc] => Some((*cpu, ClockCounts { aperf, mperf, tsc })),
            _ => None,
        };
        Some(self.clocks.as_ref().ok()?.iter().filter_map(read).collect())
    }

    pub(super) fn read(&self) -> Counted {
        let joules = self.energy.iter().flatten();
        let sum = |which: usize| {
            let controllers = self.memory.as_ref().ok()?.iter();
            controllers.map(|of| of[which].read()).sum::<Option<f64>>()
        };
        Counted {
            joules: joules.filter_map(|(name, of)| Some((name.clone(), of.read()?))).collect(),
            memory_bytes: sum(0).zip(sum(1)),
            tsc: self.cstates.is_ok().then(tsc::read).flatten(),
            cstates: self
                .cstates
                .iter()
                .flatten()
                .filter_map(|(key, of)| Some((key.clone(), of.read()?)))
                .collect(),
        }
    }

    pub(super) fn no_clocks(&self) -> &str {
        reason(&self.clocks)
    }

    pub(super) fn no_energy(&self) -> &str {
        reason(&self.energy)
    }

    pub(super) fn no_memory(&self) -> &str {
        reason(&self.memory)
    }

    pub(super) fn no_cstates(&self) -> &str {
        match &self.cstates {
            Err(error) => error,
            Ok(_) if tsc::read().is_none() => {
                "they count in ticks of the time-stamp counter, whose rate is not constant here"
            }
            Ok(_) => "their counters could not be read",
        }
    }
}

fn reason<T>(of: &Result<T, String>) -> &str {
    of.as_ref().err().map_or("its counters could not be read", String::as_str)
}

fn clocks(root: &Path, online: &[u32]) -> Result<BTreeMap<u32, Group>, String> {
    let event = |name| pmu_event(root, "msr", name).map(|of| of.event);
    let events = ["aperf", "mperf", "tsc"].map(event);
    let events: Vec<Event> = events
        .into_iter()
        .collect::<Result<_, _>>()
        .map_err(|_| "the CPU shows no APERF and MPERF (PMU `msr`)".to_owned())?;
    let open = |&cpu: &u32| Ok((cpu, Group::open(Scope::Cpu(cpu), &events)?));
    let all: io::Result<BTreeMap<u32, Group>> = online.iter().map(open).collect();
    all.map_err(|error| format!("APERF and MPERF cannot be counted: {error}"))
}

fn energy(root: &Path) -> Result<Vec<(String, Counter)>, String> {
    let cpus = cpumask(root, "power").ok_or("no counters of energy (PMU `power`)")?;
    let mut all = Vec::new();
    for (name, below) in DOMAINS {
        let Ok(event) = pmu_event(root, "power", name) else { continue };
        for (package, &cpu) in cpus.iter().enumerate() {
            let counter = Counter::open(cpu, &event)
                .map_err(|error| format!("energy cannot be counted: {error}"))?;
            all.push((format!("package-{package}{below}"), counter));
        }
    }
    if all.is_empty() { Err("no domain of energy is known".to_owned()) } else { Ok(all) }
}

fn memory(root: &Path) -> Result<Vec<[Counter; 2]>, String> {
    let mut all = Vec::new();
    for pmu in pmus(root, "uncore_imc") {
        let events = MEMORY.iter().find_map(|[read, write]| {
            Some([pmu_event(root, &pmu, read).ok()?, pmu_event(root, &pmu, write).ok()?])
        });
        let Some(events) = events else { continue };
        for cpu in cpumask(root, &pmu).unwrap_or_default() {
            let open = |event: &PmuEvent| {
                let counter = Counter::open(cpu, event)
                    .map_err(|error| format!("memory controllers cannot be counted: {error}"))?;
                Ok::<_, String>(Counter { scale: counter.scale * unit_bytes(event), ..counter })
            };
            all.push([open(&events[0])?, open(&events[1])?]);
        }
    }
    if all.is_empty() {
        return Err("no counters of memory controllers (PMUs `uncore_imc`)".to_owned());
    }
    Ok(all)
}

fn cstates(root: &Path) -> Result<Vec<(StateKey, Counter)>, String> {
    let mut all = Vec::new();
    for (pmu, scope) in CSTATES {
        let cpus = cpumask(root, pmu).unwrap_or_default();
        for name in pmu_events(root, pmu) {
            let Some(state) = name.strip_suffix("-residency") else { continue };
            let Ok(event) = pmu_event(root, pmu, &name) else { continue };
            for &cpu in &cpus {
                let counter = Counter::open(cpu, &event)
                    .map_err(|error| format!("C-states cannot be counted: {error}"))?;
                all.push(((scope, cpu, state.to_uppercase()), counter));
            }
        }
    }
    if all.is_empty() {
        return Err("no PMU `cstate_core` or `cstate_pkg`".to_owned());
    }
    Ok(all)
}

/// Of a scaled count.
fn unit_bytes(event: &PmuEvent) -> f64 {
    match event.unit.as_deref() {
        Some("MiB") => MIB,
        // A cache line.
        None => 64.0,
        Some(_) => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_counters_says_what_it_lacks() {
        let root = tempfile::tempdir().unwrap();
        let none = Counters::open(root.path(), &[0]);
        assert!(none.no_clocks().contains("APERF"), "{}", none.no_clocks());
        assert!(none.no_energy().contains("`power`"), "{}", none.no_energy());
        assert!(none.no_memory().contains("`uncore_imc`"), "{}", none.no_memory());
        assert!(none.no_cstates().contains("`cstate_core`"), "{}", none.no_cstates());
        none.start();
        assert_eq!((none.clocks(), none.read()), (None, Counted::default()));
        none.stop();
    }

    #[test]
    fn counts_of_memory_controllers_are_bytes() {
        let event = |unit: Option<&str>| PmuEvent {
            event: Event { kind: 0, config: 0, user: true, kernel: true },
            scale: 1.0,
            unit: unit.map(str::to_owned),
        };
        let all = [Some("MiB"), None, Some("Bytes")].map(|unit| unit_bytes(&event(unit)));
        assert_eq!(all, [MIB, 64.0, 1.0]);
    }

    /// The real time-stamp counter stands for the clock's counters: every machine with the PMU `msr` has it.
    #[test]
    fn counters_of_this_machine_count() {
        let root = Path::new("/");
        let Ok(tsc) = pmu_event(root, "msr", "tsc") else { return };
        let Ok(counter) = Counter::open(0, &tsc) else { return };
        counter.group.start().unwrap();
        let first = counter.read().unwrap();
        let second = counter.read().unwrap();
        assert!(second > first && first > 0.0, "{first} {second}");
    }

    /// The real time-stamp counter stands for C-states, so that each core is in each of them all the time.
    #[test]
    fn c_states_are_counted_in_ticks_on_one_cpu_of_each_core() {
        let Ok(number) = std::fs::read_to_string("/sys/bus/event_source/devices/msr/type") else {
            return;
        };
        let root = tempfile::tempdir().unwrap();
        let write = |pmu: &str, file: &str, text: &str| {
            let path = root.path().join("sys/bus/event_source/devices").join(pmu).join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        for (pmu, states) in [("cstate_core", &["c1", "c6"][..]), ("cstate_pkg", &["c10"])] {
            write(pmu, "type", &number);
            write(pmu, "cpumask", "0\n");
            write(pmu, "format/event", "config:0-63\n");
            for state in states {
                write(pmu, &format!("events/{state}-residency"), "event=0x00\n");
            }
        }
        let counters = Counters::open(root.path(), &[]);
        if let Err(error) = &counters.cstates {
            // Counters of a whole CPU take privileges.
            return assert!(error.contains("cannot be counted"), "{error}");
        }
        counters.start();
        let first = counters.read();
        std::thread::sleep(std::time::Duration::from_millis(20));
        let second = counters.read();
        counters.stop();
        let (core, package) = (ResidencyScope::Core, ResidencyScope::Package);
        let keys: Vec<StateKey> = second.cstates.keys().cloned().collect();
        let expected = [(core, 0, "C1"), (core, 0, "C6"), (package, 0, "C10")];
        assert_eq!(keys, expected.map(|(scope, cpu, state)| (scope, cpu, state.to_owned())));
        let Some((then, now)) = first.tsc.zip(second.tsc) else {
            return assert!(counters.no_cstates().contains("not constant"));
        };
        for (key, ticks) in &second.cstates {
            // The counters are read one after another.
            assert!(ticks - first.cstates[key] > 0.0 && now.count > then.count, "{key:?}");
        }
    }
}
