//! The sampler looks at every CPU some hundred times a second: where it is in the kernel and in user
//! space. Probes share it. It works without BPF.
//!
//! It takes samples only in the window. A thread empties the rings when they are half full; names
//! are looked up after the window, when nobody is measured any more.

mod blocks;
mod collector;
mod mappings;
mod profile;
mod programs;

use std::cell::{OnceCell, RefCell};
use std::io;

use wirecost_linux::kallsyms::Kallsyms;
use wirecost_linux::perf::{CpuSampler, paranoid};
use wirecost_model::observe::ProbeCost;

use crate::tracker::online_cpus;
pub(crate) use blocks::{Blocks, ByBlock, add_blocks};
use collector::{Collected, Collector};
pub(crate) use profile::{AggregatedStack, Context, Frame, FrameId, Profile, UNKNOWN};
use programs::Programs;

/// Samples a second of each CPU. Not 100: a sampler in step with the tick (CONFIG_HZ is 100, 250,
/// 300 or 1000) would find the tick's own work always or never.
pub(crate) const PER_SECOND: u32 = 99;

/// Samples of the window that was last, of all CPUs.
#[derive(Debug)]
pub(crate) struct Sampler {
    per_second: u32,
    cpus: Vec<u32>,
    collector: Option<Collector>,
    last: Option<Collected>,
    profile: OnceCell<Profile>,
    programs: RefCell<Programs>,
    lost: u64,
    attach_ms: f64,
}

impl Sampler {
    /// Finds out whether sampling is allowed; nothing stays open.
    ///
    /// # Errors
    /// Why there can be no samples, and what to do about it.
    pub(crate) fn open(per_second: u32) -> Result<Self, String> {
        let cpus = online_cpus();
        if let Some(&cpu) = cpus.first() {
            CpuSampler::open(cpu, per_second).map_err(|error| refused(&error))?;
        }
        Ok(Self {
            per_second,
            cpus,
            collector: None,
            last: None,
            profile: OnceCell::new(),
            programs: RefCell::default(),
            lost: 0,
            attach_ms: 0.0,
        })
    }

    /// Opens a sampler on every CPU; they take nothing yet.
    ///
    /// # Errors
    /// The first CPU that is refused; those before it are closed again.
    pub(crate) fn attach(&mut self) -> Result<(), String> {
        let begin = std::time::Instant::now();
        let samplers = self
            .cpus
            .iter()
            .map(|&cpu| CpuSampler::open(cpu, self.per_second).map_err(|error| refused(&error)))
            .collect::<Result<Vec<_>, _>>()?;
        let collector = Collector::start(samplers)
            .map_err(|error| format!("the thread that collects samples did not start: {error}"))?;
        self.collector = Some(collector);
        self.last = None;
        self.profile = OnceCell::new();
        self.attach_ms = begin.elapsed().as_secs_f64() * 1e3;
        Ok(())
    }

    /// The window begins.
    ///
    /// # Errors
    /// What the kernel said.
    pub(crate) fn begin(&mut self) -> Result<(), String> {
        self.last = None;
        self.profile = OnceCell::new();
        match &self.collector {
            Some(collector) => collector.begin().map_err(|error| refused(&error)),
            None => Ok(()),
        }
    }

    /// The window ends.
    ///
    /// # Errors
    /// What the kernel said.
    pub(crate) fn stop(&self) -> Result<(), String> {
        match &self.collector {
            Some(collector) => collector.stop().map_err(|error| refused(&error)),
            None => Ok(()),
        }
    }

    /// After the window: keeps what it took, and where the programs that it met are in memory.
    pub(crate) fn collect(&mut self) {
        if let Some(collector) = &self.collector {
            let collected = collector.collect();
            self.lost = collected.lost;
            self.last = Some(collected);
        }
    }

    pub(crate) fn detach(&mut self) {
        self.collector = None;
    }

    pub(crate) fn per_second(&self) -> u32 {
        self.per_second
    }

    /// The samples of the last window with names, which are looked up when first asked for.
    pub(crate) fn profile(&self) -> Option<&Profile> {
        let last = self.last.as_ref()?;
        Some(self.profile.get_or_init(|| {
            // Read after each window: modules and BPF programs come and go.
            let kernel = Kallsyms::load();
            Profile::resolve(last, kernel, &mut self.programs.borrow_mut())
        }))
    }

    /// What it took.
    pub(crate) fn cost(&self) -> ProbeCost {
        ProbeCost { attach_ms: self.attach_ms, lost: self.lost, ..ProbeCost::default() }
    }
}

fn refused(error: &io::Error) -> String {
    let setting = paranoid().map(|value| format!(" (now {value})")).unwrap_or_default();
    match error.kind() {
        io::ErrorKind::PermissionDenied => format!(
            "sampling CPUs is not permitted: it needs root, CAP_PERFMON, or \
             kernel.perf_event_paranoid=0{setting}"
        ),
        io::ErrorKind::NotFound | io::ErrorKind::Unsupported => {
            format!("this kernel cannot sample CPUs (CONFIG_PERF_EVENTS): {error}")
        }
        _ => format!("CPUs cannot be sampled: {error}"),
    }
}
