//! The tracker knows at every instant what each CPU does, and counts the time of it. Probes share
//! it: its hooks are paid once.

use std::collections::BTreeMap;
use std::fs;

use libbpf_rs::MapHandle;
use wirecost_model::observe::ProbeCost;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::bpf::{BpfError, Loaded, Options, compiled, possible_cpus};

/// Slots of [`Cpu::ns`], as tracker.h numbers them.
pub(crate) mod slot {
    pub(crate) const IDLE: usize = 0;
    pub(crate) const IDLE_LOOP: usize = 1;
    pub(crate) const TASK: usize = 2;
    pub(crate) const KSOFTIRQD: usize = 3;
    pub(crate) const IRQ: usize = 4;
    /// The first vector.
    pub(crate) const SOFTIRQ: usize = 16;
    pub(crate) const ALL: usize = 32;
}

/// `struct cpu` of tracker.h.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Cpu {
    pub(crate) last: u64,
    pub(crate) count: u64,
    pub(crate) ns: [u64; slot::ALL],
    span_irq: u64,
    span_softirq: u64,
    pub(crate) switches: u64,
    pub(crate) unmatched: u64,
    irq: u32,
    softirq: u32,
    base: u32,
    known: u32,
    ksoftirqd: u32,
    pad: u32,
}

/// `struct source` of tracker.bpf.c: interrupts of one kind on one CPU.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub(crate) struct Source {
    pub(crate) count: u64,
    pub(crate) ns: u64,
    pub(crate) max: u64,
    pub(crate) in_idle: u64,
    pub(crate) in_ksoftirqd: u64,
    /// By powers of two of nanoseconds.
    pub(crate) histogram: [u64; 32],
}

/// What a [`Source`] is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SourceKind {
    /// Index into [`wirecost_model::observe::SOFTIRQS`].
    Softirq(u32),
    /// Index into [`VECTORS`].
    Vector(u32),
    /// Number of the interrupt.
    Device(u32),
}

/// Vectors of the CPU itself, in the order of tracker.bpf.c, as /proc/interrupts names them.
pub(crate) const VECTORS: [&str; 6] = ["LOC", "RES", "CAL", "CAL", "IWI", "TRM"];

/// The first key of [`VECTORS`].
const FIRST_VECTOR: u32 = 16;

#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct Settings {
    tables: u32,
    halts: u32,
}

/// Times of all CPUs over a window.
#[derive(Debug, Clone, Default)]
pub(crate) struct Times {
    /// By number of CPU; only those that are online.
    pub(crate) cpus: BTreeMap<u32, Cpu>,
    /// Whether the idle loop is told from the halt.
    pub(crate) halts: bool,
}

/// The programs, loaded.
#[derive(Debug)]
pub(crate) struct Tracker {
    loaded: Loaded,
    halts: bool,
    online: Vec<u32>,
}

impl Tracker {
    /// Loads the programs. With `tables`, interrupts are counted by their source.
    ///
    /// # Errors
    /// Where the kernel does not allow or have it.
    pub(crate) fn open(tables: bool) -> Result<Self, BpfError> {
        let settings = |halts: bool| Settings { tables: tables.into(), halts: halts.into() };
        let load = |halts: bool| {
            let settings = settings(halts);
            let without: &[&str] = if halts { &[] } else { &["cpu_idle"] };
            let options = Options { without, settings: settings.as_bytes(), ..Options::default() };
            Loaded::load(compiled!("tracker", "tracker_tracker"), &options)
        };
        let mut loaded = load(true)?;
        let halts = !loaded.missing.iter().any(|hook| hook == "cpu_idle");
        if !halts {
            loaded = load(false)?;
        }
        let online = online_cpus();
        let mut states = vec![Cpu::default(); possible_cpus()];
        for (cpu, pid) in ksoftirqd() {
            if let Some(state) = states.get_mut(cpu as usize) {
                state.ksoftirqd = pid;
            }
        }
        loaded.set_percpu("cpus", 0, &states)?;
        Ok(Self { loaded, halts, online })
    }

    /// # Errors
    /// Where a hook was refused.
    pub(crate) fn attach(&mut self) -> Result<(), BpfError> {
        self.loaded.attach()
    }

    pub(crate) fn detach(&mut self) {
        self.loaded.detach();
    }

    /// Begins to count, on every CPU for itself.
    ///
    /// # Errors
    /// Where a CPU cannot be told.
    pub(crate) fn start(&self) -> Result<(), BpfError> {
        // Longest times are of one window only, so what there is of another goes.
        self.loaded.clear::<Source>("sources")?;
        self.loaded.clear::<Source>("irqs")?;
        self.online.iter().try_for_each(|&cpu| self.loaded.run_on("edge", cpu, 1))
    }

    /// Ends the counting.
    ///
    /// # Errors
    /// Where a CPU cannot be told.
    pub(crate) fn stop(&self) -> Result<(), BpfError> {
        self.online.iter().try_for_each(|&cpu| self.loaded.run_on("edge", cpu, 2))
    }

    /// All times since the programs were loaded.
    ///
    /// # Errors
    /// Where the kernel does not give the map.
    pub(crate) fn times(&self) -> Result<Times, BpfError> {
        let all = self.loaded.values::<u32, Cpu>("cpus")?;
        let states = all.into_iter().flat_map(|(_, states)| states).enumerate();
        let cpus = states
            .map(|(cpu, state)| (cpu as u32, state))
            .filter(|(cpu, _)| self.online.contains(cpu))
            .collect();
        Ok(Times { cpus, halts: self.halts })
    }

    /// Interrupts of the window by source, each with a value for every possible CPU.
    ///
    /// # Errors
    /// Where the kernel does not give the maps.
    pub(crate) fn sources(&self) -> Result<BTreeMap<SourceKind, Vec<Source>>, BpfError> {
        let of_cpu = self.loaded.values::<u32, Source>("sources")?;
        let of_devices = self.loaded.values::<u32, Source>("irqs")?;
        let named = of_cpu.into_iter().map(|(key, values)| match key.checked_sub(FIRST_VECTOR) {
            Some(vector) => (SourceKind::Vector(vector), values),
            None => (SourceKind::Softirq(key), values),
        });
        let devices = of_devices.into_iter().map(|(irq, v)| (SourceKind::Device(irq), v));
        Ok(named.chain(devices).filter(|(_, v)| v.iter().any(|v| v.count > 0)).collect())
    }

    /// The state of the CPUs, for programs of other objects that include tracker.h.
    pub(crate) fn share(&self) -> Option<(&'static str, MapHandle)> {
        self.loaded.share("cpus")
    }

    pub(crate) fn cost(&self) -> ProbeCost {
        self.loaded.cost()
    }

    /// Hooks that this kernel lacks and that matter.
    pub(crate) fn missing(&self) -> &[String] {
        &self.loaded.missing
    }
}

/// What has been counted between two readings of one state.
pub(crate) fn difference(before: &Cpu, after: &Cpu) -> Cpu {
    let mut cpu = *after;
    for (ns, before) in cpu.ns.iter_mut().zip(before.ns) {
        *ns = ns.saturating_sub(before);
    }
    cpu.switches = after.switches.saturating_sub(before.switches);
    cpu.unmatched = after.unmatched.saturating_sub(before.unmatched);
    cpu
}

pub(crate) fn online_cpus() -> Vec<u32> {
    fs::read_to_string("/sys/devices/system/cpu/online")
        .ok()
        .and_then(|text| wirecost_linux::cpu_list::parse_list(text.trim()))
        .unwrap_or_else(|| (0..possible_cpus() as u32).collect())
}

/// The thread of each CPU that runs softirqs when there are too many: its pid by CPU.
fn ksoftirqd() -> Vec<(u32, u32)> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| {
            let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
            let name = fs::read_to_string(entry.path().join("comm")).ok()?;
            let cpu = name.trim().strip_prefix("ksoftirqd/")?.parse().ok()?;
            Some((cpu, pid))
        })
        .collect()
}
