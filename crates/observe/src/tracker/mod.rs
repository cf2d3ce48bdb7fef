//! The tracker knows at every instant what each CPU does, and counts the time of it. Probes share
//! it: its hooks are paid once.

mod samples;
mod scheduling;

use std::collections::BTreeMap;
use std::fs;

use libbpf_rs::MapHandle;
use wirecost_linux::process_time;
use wirecost_model::clock::Nanos;
use wirecost_model::observe::ProbeCost;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::bpf::{BpfError, LoadedObject, Options, compiled, possible_cpus};
pub(crate) use samples::{Counts, READ_EVERY, Samples};
pub(crate) use scheduling::{Held, Holding, Queue, Thread, ThreadState, Waits, Waker};

/// Slots of [`Cpu::ns`], as tracker.h numbers them.
pub(crate) mod slot {
    use std::ops::Range;

    pub(crate) const IDLE: usize = 0;
    pub(crate) const IDLE_LOOP: usize = 1;
    /// In user mode only, where system calls are followed.
    pub(crate) const TASK: usize = 2;
    pub(crate) const KSOFTIRQD: usize = 3;
    /// Kernel threads and system calls, where these are followed.
    pub(crate) const IN_KERNEL: usize = 4;
    /// By what they came upon: a task, an idle CPU, ksoftirqd.
    pub(crate) const IRQ: Range<usize> = 8..11;
    pub(crate) const IRQ_IN_IDLE: usize = 9;
    /// The first vector, upon a task.
    const SOFTIRQ: usize = 16;
    const VECTORS: usize = 16;
    pub(crate) const SOFTIRQS: Range<usize> = SOFTIRQ..ALL;
    pub(crate) const SOFTIRQS_IN_IDLE: Range<usize> = SOFTIRQ + VECTORS..SOFTIRQ + 2 * VECTORS;
    pub(crate) const SOFTIRQS_IN_KSOFTIRQD: Range<usize> = SOFTIRQ + 2 * VECTORS..ALL;
    pub(crate) const ALL: usize = 64;

    /// All slots of one vector.
    pub(crate) fn softirq(vector: usize) -> impl Iterator<Item = usize> {
        (SOFTIRQ + vector..ALL).step_by(VECTORS)
    }
}

/// `struct cpu` of tracker.h.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Cpu {
    pub(crate) last: u64,
    pub(crate) count: u64,
    edge: u64,
    pub(crate) ns: [u64; slot::ALL],
    span_irq: u64,
    span_softirq: u64,
    pub(crate) switches: u64,
    pub(crate) unmatched: u64,
    irq: u32,
    softirq: u32,
    base: u32,
    upon: u32,
    slot: u32,
    known: u32,
    ksoftirqd: u32,
    epoch: u32,
    call: [u64; 4],
    call_number: u32,
    stored: u32,
    halted: u64,
    began: u64,
    interrupts: u64,
}

impl Default for Cpu {
    fn default() -> Self {
        Self::new_zeroed()
    }
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

/// What the program `edge` is told.
const FORGET: u64 = 0;
const START: u64 = 1;
const STOP: u64 = 2;

/// `struct spent` of calls.h: one system call on one CPU.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub(crate) struct Spent {
    pub(crate) count: u64,
    /// On a CPU, without what interrupted it.
    pub(crate) ns: u64,
    pub(crate) max: u64,
    /// Not on a CPU.
    pub(crate) waited: u64,
    pub(crate) interrupted: u64,
    pub(crate) failed: u64,
    /// Sum of what it returned.
    pub(crate) result: u64,
    /// By powers of two of nanoseconds on a CPU.
    pub(crate) histogram: [u64; 32],
}

/// `struct ended` of tracker.bpf.c: a process that ended while time was counted.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Ended {
    ns: u64,
    kernel: u32,
    unused: u32,
    comm: [u8; 16],
}

/// A process that ended in the window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EndedProcess {
    pub(crate) name: String,
    pub(crate) kernel_thread: bool,
    /// CPU time of all its threads since it began.
    pub(crate) time: Nanos,
}

/// Key of the map `calls_of`.
#[derive(Debug, Clone, Copy, FromBytes, KnownLayout, Immutable)]
#[repr(C)]
struct ProcessCall {
    tgid: u32,
    number: u32,
}

/// System calls of all tasks, or of a process, by number, each with a value for every possible CPU.
pub(crate) type Calls = BTreeMap<u32, Vec<Spent>>;

#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct Settings {
    tables: u32,
    halts: u32,
    calls: u32,
    of: u32,
    by_process: u32,
    in_all: u32,
    scheduling: u32,
    samples: u32,
}

/// Times of all CPUs over a window.
#[derive(Debug, Clone, Default)]
pub(crate) struct Times {
    /// By number of CPU; only those that are online.
    pub(crate) cpus: BTreeMap<u32, Cpu>,
    /// Whether the idle loop is told from the halt.
    pub(crate) halts: bool,
    /// Whether user mode is told from the kernel.
    pub(crate) calls: bool,
}

/// What the tracker is to do beyond the time of each CPU.
#[derive(Debug, Clone, Default)]
pub(crate) struct TrackerNeeds {
    /// Interrupts are counted by their source.
    pub(crate) tables: bool,
    /// System calls are followed.
    pub(crate) calls: bool,
    /// Processes whose system calls are counted apart.
    pub(crate) processes: Vec<u32>,
    /// The system calls of all processes are counted.
    pub(crate) all_processes: bool,
    /// Waits for CPUs are followed.
    pub(crate) scheduling: bool,
    /// Parts of the window are told apart.
    pub(crate) samples: bool,
}

/// The programs, loaded.
#[derive(Debug)]
pub(crate) struct Tracker {
    loaded: LoadedObject,
    halts: bool,
    /// Why system calls are not followed; nothing where nobody asked.
    calls: Result<bool, String>,
    by_process: bool,
    in_all: bool,
    tables: bool,
    /// Why waits for CPUs are not followed; nothing where nobody asked.
    scheduling: Result<bool, String>,
    samples_wanted: bool,
    samples: Samples,
    online: Vec<u32>,
    /// States when the window began.
    before: BTreeMap<u32, Cpu>,
    /// The same of [`Queue`].
    queues_before: BTreeMap<u32, Queue>,
}

/// Programs and maps that only calls.h has.
const OF_CALLS: [&str; 6] = ["sys_enter", "sys_exit", "calls", "calls_of", "counted", "tasks"];

/// Of scheduling.h.
const OF_SCHEDULING: [&str; 5] =
    ["sched_waking", "sched_migrate_task", "threads", "holders", "queues"];

impl Tracker {
    /// Loads the programs.
    ///
    /// # Errors
    /// Where the kernel does not allow or have it.
    pub(crate) fn open(wants: &TrackerNeeds) -> Result<Self, BpfError> {
        // The time of CPUs is worth having without what may be refused.
        match Self::load(wants) {
            Err(error) if wants.calls && !matches!(error, BpfError::NotPermitted) => {
                let mut tracker = Self::open(&TrackerNeeds { calls: false, ..wants.clone() })?;
                tracker.calls = Err(error.to_string());
                Ok(tracker)
            }
            Err(error) if wants.scheduling && !matches!(error, BpfError::NotPermitted) => {
                let mut tracker = Self::load(&TrackerNeeds { scheduling: false, ..wants.clone() })?;
                tracker.scheduling = Err(error.to_string());
                Ok(tracker)
            }
            loaded => loaded,
        }
    }

    fn load(wants: &TrackerNeeds) -> Result<Self, BpfError> {
        let calls = wants.calls;
        let alone = wants.processes.len() == 1 && !wants.all_processes;
        let by_process = calls && !wants.processes.is_empty() && !alone;
        let in_all = calls && (alone || wants.all_processes);
        let of = if alone { wants.processes[0] } else { 0 };
        let mut without: Vec<&str> = Vec::new();
        if !calls {
            without.extend(OF_CALLS);
        } else {
            if !in_all {
                without.push("calls");
            }
            if !by_process {
                without.extend(["calls_of", "counted"]);
            }
        }
        if !wants.tables {
            without.extend(["sources", "irqs"]);
        }
        if !wants.scheduling {
            without.extend(OF_SCHEDULING);
        }
        if !wants.samples {
            without.push("crossings");
        }
        let load = |halts: bool, without: &[&str]| {
            let settings = Settings {
                tables: wants.tables.into(),
                halts: halts.into(),
                calls: calls.into(),
                of,
                by_process: by_process.into(),
                in_all: in_all.into(),
                scheduling: wants.scheduling.into(),
                samples: wants.samples.into(),
            };
            let options = Options { without, settings: settings.as_bytes(), ..Options::default() };
            LoadedObject::load(compiled!("tracker", "tracker_tracker"), &options)
        };
        let mut loaded = load(true, &without)?;
        let halts = !loaded.missing.iter().any(|hook| hook == "cpu_idle");
        if !halts {
            without.push("cpu_idle");
            loaded = load(false, &without)?;
        }
        let online = online_cpus();
        let mut states = vec![Cpu::default(); possible_cpus()];
        for (cpu, pid) in ksoftirqd() {
            if let Some(state) = states.get_mut(cpu as usize) {
                state.ksoftirqd = pid;
            }
        }
        loaded.set_percpu("cpus", 0, &states)?;
        for process in wants.processes.iter().filter(|_| by_process) {
            loaded.set("counted", process, &1u32)?;
        }
        let lacks = |hook: &&str| loaded.missing.iter().any(|missing| missing == hook);
        let calls = match ["sys_enter", "sys_exit"].iter().find(|hook| lacks(hook)) {
            Some(hook) if calls => Err(format!("this kernel has no tracepoint {hook}")),
            _ => Ok(calls),
        };
        let scheduling = match lacks(&"sched_waking") {
            true => Err("this kernel has no tracepoint sched_waking".to_owned()),
            false => Ok(wants.scheduling),
        };
        Ok(Self {
            loaded,
            halts,
            calls,
            by_process,
            in_all,
            online,
            tables: wants.tables,
            scheduling,
            samples_wanted: wants.samples,
            samples: Samples::default(),
            before: BTreeMap::new(),
            queues_before: BTreeMap::new(),
        })
    }

    /// # Errors
    /// Where a hook was refused.
    pub(crate) fn attach(&mut self) -> Result<(), BpfError> {
        // What was known when the programs were detached is no longer true.
        self.online.iter().try_for_each(|&cpu| self.loaded.run_on("edge", cpu, FORGET))?;
        self.loaded.attach()
    }

    pub(crate) fn detach(&mut self) {
        self.loaded.detach();
    }

    /// Begins to count, on every CPU for itself.
    ///
    /// # Errors
    /// Where a CPU cannot be told.
    pub(crate) fn start(&mut self) -> Result<(), BpfError> {
        // While nothing counts: what is read later has already gone on.
        self.before = self.states()?;
        self.forget_samples()?;
        if self.scheduling == Ok(true) {
            self.queues_before = self.queues()?;
        }
        // Longest times are of one window only, so what there is of another goes.
        if self.tables {
            self.loaded.clear::<Source>("sources")?;
            self.loaded.clear::<Source>("irqs")?;
        }
        self.loaded.clear::<Ended>("ended")?;
        if self.calls == Ok(true) {
            if self.by_process {
                self.loaded.clear::<Spent>("calls_of")?;
            }
            if self.in_all {
                self.loaded.clear::<Spent>("calls")?;
            }
        }
        self.online.iter().try_for_each(|&cpu| self.loaded.run_on("edge", cpu, START))
    }

    /// Ends the counting.
    ///
    /// # Errors
    /// Where a CPU cannot be told.
    pub(crate) fn stop(&self) -> Result<(), BpfError> {
        self.online.iter().try_for_each(|&cpu| self.loaded.run_on("edge", cpu, STOP))
    }

    /// Times of the window, so far or from edge to edge.
    ///
    /// # Errors
    /// Where the kernel does not give the map.
    pub(crate) fn times(&self) -> Result<Times, BpfError> {
        let since_start = |(cpu, after): (u32, Cpu)| {
            let before = self.before.get(&cpu)?;
            Some((cpu, difference(before, &after)))
        };
        let cpus = self.states()?.into_iter().filter_map(since_start).collect();
        Ok(Times { cpus, halts: self.halts, calls: self.calls == Ok(true) })
    }

    /// States of the CPUs that are online.
    fn states(&self) -> Result<BTreeMap<u32, Cpu>, BpfError> {
        Ok(self.of_online(self.loaded.percpu("cpus", 0)?))
    }

    /// Values of the CPUs that are online.
    fn of_online<V>(&self, all: Vec<V>) -> BTreeMap<u32, V> {
        let numbered = all.into_iter().enumerate().map(|(cpu, value)| (cpu as u32, value));
        numbered.filter(|(cpu, _)| self.online.contains(cpu)).collect()
    }

    /// Interrupts of the window by source, each with a value for every possible CPU.
    ///
    /// # Errors
    /// Where the kernel does not give the maps.
    pub(crate) fn sources(&self) -> Result<BTreeMap<SourceKind, Vec<Source>>, BpfError> {
        if !self.tables {
            return Ok(BTreeMap::new());
        }
        let of_cpu = self.loaded.values::<u32, Source>("sources")?;
        let of_devices = self.loaded.values::<u32, Source>("irqs")?;
        let named = of_cpu.into_iter().map(|(key, values)| match key.checked_sub(FIRST_VECTOR) {
            Some(vector) => (SourceKind::Vector(vector), values),
            None => (SourceKind::Softirq(key), values),
        });
        let devices = of_devices.into_iter().map(|(irq, v)| (SourceKind::Device(irq), v));
        Ok(named.chain(devices).filter(|(_, v)| v.iter().any(|v| v.count > 0)).collect())
    }

    /// Processes that ended in the window, by number; `None` where that is not known.
    pub(crate) fn ended(&self) -> Option<BTreeMap<u32, EndedProcess>> {
        // Numbers are of the first PID namespace, and mean other processes elsewhere.
        if !process_time::in_first_pid_namespace() {
            return None;
        }
        let all = self.loaded.values::<u32, Ended>("ended").ok()?;
        let named = |ended: &Ended| EndedProcess {
            name: c_text(&ended.comm),
            kernel_thread: ended.kernel != 0,
            time: ended.ns,
        };
        Some(all.into_iter().filter_map(|(id, ended)| Some((id, named(ended.first()?)))).collect())
    }

    /// Whether system calls are followed.
    ///
    /// # Errors
    /// Why they are not, though somebody asked.
    pub(crate) fn follows_calls(&self) -> Result<bool, &str> {
        self.calls.as_ref().copied().map_err(String::as_str)
    }

    /// System calls of the window: of this process, or of all processes.
    ///
    /// # Errors
    /// Where the kernel does not give the maps.
    pub(crate) fn calls(&self, process: Option<u32>) -> Result<Calls, BpfError> {
        let mut all = Calls::new();
        if let (true, Some(process)) = (self.by_process, process) {
            let of_processes = self.loaded.values::<ProcessCall, Spent>("calls_of")?;
            let of_process = of_processes.into_iter().filter(|(key, _)| key.tgid == process);
            all.extend(of_process.map(|(key, values)| (key.number, values)));
        } else {
            all.extend(self.loaded.values::<u32, Spent>("calls")?);
        }
        all.retain(|_, values| values.iter().any(|spent| spent.count > 0));
        Ok(all)
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

impl Spent {
    /// Adds what another CPU or process spent.
    pub(crate) fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.ns += other.ns;
        self.max = self.max.max(other.max);
        self.waited += other.waited;
        self.interrupted += other.interrupted;
        self.failed += other.failed;
        self.result += other.result;
        for (sum, count) in self.histogram.iter_mut().zip(other.histogram) {
            *sum += count;
        }
    }
}

impl Source {
    /// Adds what came on another CPU.
    pub(crate) fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.ns += other.ns;
        self.max = self.max.max(other.max);
        self.in_idle += other.in_idle;
        self.in_ksoftirqd += other.in_ksoftirqd;
        for (sum, count) in self.histogram.iter_mut().zip(other.histogram) {
            *sum += count;
        }
    }
}

/// What has been counted between two readings of one state.
fn difference(before: &Cpu, after: &Cpu) -> Cpu {
    let mut cpu = *after;
    for (ns, before) in cpu.ns.iter_mut().zip(before.ns) {
        *ns = ns.saturating_sub(before);
    }
    cpu.switches = after.switches.saturating_sub(before.switches);
    cpu.unmatched = after.unmatched.saturating_sub(before.unmatched);
    cpu
}

/// What comes before the first NUL.
fn c_text(bytes: &[u8]) -> String {
    let text = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

pub(crate) fn online_cpus() -> Vec<u32> {
    fs::read_to_string("/sys/devices/system/cpu/online")
        .ok()
        .and_then(|text| wirecost_linux::cpu_list::parse_list(text.trim()))
        .unwrap_or_else(|| (0..possible_cpus() as u32).collect())
}

/// The thread of each CPU that runs softirqs when there are too many: its pid by CPU.
pub(crate) fn ksoftirqd() -> Vec<(u32, u32)> {
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
