//! What a probe is, and what it is given.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::{fs, io};

use wirecost_linux::clock::Monotonic;
use wirecost_model::clock::{Clock, Nanos};
use wirecost_model::observe::{HostObservation, ObserveRequest, Part, ProbeCost};

use crate::bpf::BpfError;
use crate::driver_counters::DriverStatistics;
use crate::probes;
use crate::sampler::Sampler;
use crate::slices::Slices;
use crate::tracker::{EndedProcess, Tracker, TrackerNeeds};

/// Something that can be read of a host while traffic runs. One folder of `probes` each.
pub(crate) trait Probe: Sync {
    /// As `--observe` names it.
    fn name(&self) -> &'static str;

    /// What it tells, what it needs, what it costs and what it cannot see: a sentence each.
    fn about(&self) -> Description;

    /// What of it can be asked for besides the whole.
    fn extents(&self) -> &'static [Extent] {
        &[]
    }

    /// How much of it the sets of `--observe` ask for.
    fn sets(&self) -> Sets;

    /// Whether it is in no set, only asked for by name, and then has a pass of its own.
    fn on_request(&self) -> bool {
        false
    }

    /// What it needs of the tracker where its hooks are wanted.
    fn ask_tracker(&self, _wants: &mut TrackerNeeds) {}

    /// Gets ready: loads programs and opens files. Nothing is attached yet.
    ///
    /// # Errors
    /// Why this host cannot have it at all.
    fn open(&self, shared: &mut Shared) -> Result<Box<dyn Session>, Unavailable>;
}

/// What `wirecost observe --list` and the documentation say of a probe.
#[derive(Debug, Clone, Copy)]
pub struct Description {
    pub tells: &'static str,
    pub needs: &'static str,
    pub costs: &'static str,
    pub limitations: &'static str,
}

/// Which end of the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Edge {
    Begin,
    End,
}

/// A probe at work. The observer calls, for each window: `attach`, `edge`, `begin`, `interval` now and
/// then, `edge`, `end`, `detach`; then `fill` for each part. Slices begin after `begin` and end before
/// the second `edge`.
pub(crate) trait Session {
    /// Puts hooks in place.
    ///
    /// # Errors
    /// Why nothing can be measured in this window.
    fn attach(&mut self, _shared: &Shared) -> Result<(), Unavailable> {
        Ok(())
    }

    /// The window begins or ends. Reads the counters that figures relate to each other, to the exact
    /// times and counts of BPF, or to bytes. All sessions do this before any of them reads more, so that
    /// these are of the same window: nothing that takes long may be read here.
    fn edge(&mut self, _shared: &Shared, _at: Nanos, _edge: Edge) {}

    /// The window has begun: reads what may take long.
    fn begin(&mut self, _shared: &Shared, _at: Nanos) {}

    /// An interval of the window has passed.
    fn interval(&mut self, _shared: &Shared, _at: Nanos) {}

    /// The window is over, and what is shared has stopped counting: reads what may take long.
    fn end(&mut self, _shared: &Shared, _at: Nanos) {}

    /// In a window of a probe that is [`Extent::Sliced`]: a slice begins, or ends.
    fn slice(&mut self, _begins: bool) {}

    fn detach(&mut self) {}

    /// Writes what was seen of a part of the machine.
    fn fill(&mut self, shared: &Shared, part: &Part, into: &mut HostObservation);

    /// What is missing of the figures, and why.
    fn missing(&self) -> Vec<String> {
        Vec::new()
    }

    /// What it took, without what is shared.
    fn cost(&self) -> ProbeCost {
        ProbeCost::default()
    }
}

/// How much of a probe is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Extent {
    /// `NAME:basic`: what it tells for little.
    Basic,
    /// `NAME:sliced`: its hooks on hot paths are in place for slices of the window only.
    Sliced,
    /// `NAME`
    Whole,
}

impl Extent {
    /// A probe to this extent, as an entry of a request names it.
    pub(crate) fn of(self, probe: &str) -> String {
        match self {
            Self::Basic => format!("{probe}:basic"),
            Self::Sliced => format!("{probe}:sliced"),
            Self::Whole => probe.to_owned(),
        }
    }
}

/// How much of a probe is in each set; `None` leaves it out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sets {
    /// What tells much for little.
    pub(crate) standard: Option<Extent>,
    /// What can share one pass.
    pub(crate) full: Option<Extent>,
}

/// The probe that an entry of a request is of, and how much of it.
pub(crate) fn parse_entry(entry: &str) -> (&str, Extent) {
    match entry.split_once(':') {
        Some((name, "basic")) => (name, Extent::Basic),
        Some((name, "sliced")) => (name, Extent::Sliced),
        _ => (entry, Extent::Whole),
    }
}

/// Why a probe says nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unavailable {
    #[error(transparent)]
    Bpf(#[from] BpfError),
    #[error("{0}")]
    Other(String),
}

/// A network namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Namespace {
    /// What programs know it by.
    pub(crate) inode: u32,
    /// Directory of one of its processes: it leads there.
    pub(crate) process: PathBuf,
}

impl Namespace {
    /// Of this process, or the caller's own.
    ///
    /// # Errors
    /// The process has gone, or is another user's.
    pub(crate) fn of(pid: Option<u32>) -> io::Result<Self> {
        let process = match pid {
            Some(pid) => format!("/proc/{pid}").into(),
            // The thread's, which may have left for another.
            None => fs::canonicalize("/proc/thread-self")?,
        };
        let inode = fs::metadata(process.join("ns/net"))?.ino();
        Ok(Self { inode: u32::try_from(inode).map_err(io::Error::other)?, process })
    }
}

/// What several probes use, opened when the first of them asks.
#[derive(Debug)]
pub(crate) struct Shared {
    wants: TrackerNeeds,
    extents: BTreeMap<String, Extent>,
    /// Slices of the window that began last.
    pub(crate) slices: Slices,
    /// What figures are wanted of.
    parts: Vec<Part>,
    tracker: Option<Result<Tracker, String>>,
    /// Whether the cost of this window has been told.
    told: bool,
    samples_per_second: u32,
    sampler: Option<Result<Sampler, String>>,
    /// Of the edge that has been read last.
    pub(crate) driver_statistics: DriverStatistics,
}

impl Shared {
    /// The sampler looks at each CPU so many times a second.
    pub(crate) fn new(request: &ObserveRequest, samples_per_second: u32) -> Self {
        let entries = request.probes.iter().map(|entry| parse_entry(entry));
        let extents: BTreeMap<String, Extent> =
            entries.map(|(name, extent)| (name.to_owned(), extent)).collect();
        let processes: BTreeSet<u32> = request.parts.iter().filter_map(|part| part.pid).collect();
        let mut wants = TrackerNeeds {
            processes: processes.into_iter().collect(),
            // A part without a process is of all of them.
            all_processes: request.parts.is_empty()
                || request.parts.iter().any(|part| part.pid.is_none()),
            ..TrackerNeeds::default()
        };
        let hooked = |name| extents.get(name).is_some_and(|extent| *extent > Extent::Basic);
        for probe in probes::ALL.iter().filter(|probe| hooked(probe.name())) {
            probe.ask_tracker(&mut wants);
        }
        Self {
            wants,
            extents,
            slices: Slices::default(),
            parts: request.parts.clone(),
            tracker: None,
            told: false,
            samples_per_second,
            sampler: None,
            driver_statistics: DriverStatistics::default(),
        }
    }

    /// Before the tracker is loaded: it is not to tell parts of the window apart.
    pub(crate) fn leave_out_cpu_samples(&mut self) {
        self.wants.samples = false;
    }

    /// How much of a probe is wanted.
    pub(crate) fn extent(&self, name: &str) -> Extent {
        self.extents.get(name).copied().unwrap_or(Extent::Whole)
    }

    /// Whether only what it tells for little is wanted of a probe.
    pub(crate) fn basic(&self, name: &str) -> bool {
        self.extent(name) == Extent::Basic
    }

    /// Whether the hooks of a probe are wanted in slices of the window only.
    pub(crate) fn sliced(&self, name: &str) -> bool {
        self.extent(name) == Extent::Sliced
    }

    /// The network namespaces of all parts, by the process that names them. One of a process that
    /// has gone is not there.
    pub(crate) fn namespaces(&self) -> BTreeMap<Option<u32>, Namespace> {
        let named = self.parts.iter().map(|part| part.netns_of);
        named.filter_map(|pid| Some((pid, Namespace::of(pid).ok()?))).collect()
    }

    /// What to say of the parts whose namespace cannot be found.
    pub(crate) fn lost_namespaces(&self) -> Vec<String> {
        let found = self.namespaces();
        let lost = self.parts.iter().filter(|part| !found.contains_key(&part.netns_of));
        lost.map(|part| match part.netns_of {
            Some(pid) => {
                format!(
                    "nothing of {}: process {pid}, which gives access to its namespace, is gone",
                    part.host
                )
            }
            None => format!("nothing of {}: its network namespace is unknown", part.host),
        })
        .collect()
    }

    /// What figures are wanted of.
    pub(crate) fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// The tracker, loaded now if it is not yet.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) fn need_tracker(&mut self) -> Result<&Tracker, Unavailable> {
        let tracker = self
            .tracker
            .get_or_insert_with(|| Tracker::open(&self.wants).map_err(|error| error.to_string()));
        tracker.as_ref().map_err(|error| Unavailable::Other(error.clone()))
    }

    /// The tracker, if a probe asked for it and the kernel gave it.
    pub(crate) fn tracker(&self) -> Option<&Tracker> {
        self.tracker.as_ref()?.as_ref().ok()
    }

    /// Processes that ended in the window, by number; `None` where that is not known.
    pub(crate) fn ended(&self) -> Option<BTreeMap<u32, EndedProcess>> {
        self.tracker()?.ended()
    }

    /// Why there is none, if one was asked for.
    pub(crate) fn tracker_error(&self) -> Option<&str> {
        self.tracker.as_ref()?.as_ref().err().map(String::as_str)
    }

    /// The sampler, opened now if it is not yet.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) fn need_sampler(&mut self) -> Result<&Sampler, Unavailable> {
        let per_second = self.samples_per_second;
        let sampler = self.sampler.get_or_insert_with(|| Sampler::open(per_second));
        sampler.as_ref().map_err(|error| Unavailable::Other(error.clone()))
    }

    /// The sampler, if a probe asked for it and the kernel gave it.
    pub(crate) fn sampler(&self) -> Option<&Sampler> {
        self.sampler.as_ref()?.as_ref().ok()
    }

    /// Why there is none, if one was asked for.
    pub(crate) fn sampler_error(&self) -> Option<&str> {
        self.sampler.as_ref()?.as_ref().err().map(String::as_str)
    }

    pub(crate) fn attach(&mut self) {
        self.told = false;
        self.on_sampler(Sampler::attach);
        if let Some(Ok(tracker)) = &mut self.tracker
            && let Err(error) = tracker.attach()
        {
            self.tracker = Some(Err(error.to_string()));
        }
    }

    /// Begins to count. Returns when.
    pub(crate) fn begin(&mut self) -> Nanos {
        self.driver_statistics.forget();
        self.on_sampler(Sampler::begin);
        self.on_tracker(Tracker::start);
        Monotonic.now()
    }

    /// Takes over what the tracker has kept of parts of the window, while it goes on.
    pub(crate) fn read(&mut self) {
        self.on_tracker(Tracker::read_samples);
    }

    /// Stops counting. Returns when.
    pub(crate) fn end(&mut self) -> Nanos {
        let at = Monotonic.now();
        self.driver_statistics.forget();
        self.on_tracker(|tracker| tracker.stop());
        self.on_sampler(|sampler| sampler.stop());
        at
    }

    /// After the end: takes over what was sampled.
    pub(crate) fn collect(&mut self) {
        self.read();
        if let Some(Ok(sampler)) = &mut self.sampler {
            sampler.collect();
        }
    }

    fn on_sampler(&mut self, act: impl Fn(&mut Sampler) -> Result<(), String>) {
        if let Some(Ok(sampler)) = &mut self.sampler
            && let Err(error) = act(sampler)
        {
            self.sampler = Some(Err(error));
        }
    }

    fn on_tracker(&mut self, act: impl Fn(&mut Tracker) -> Result<(), BpfError>) {
        if let Some(Ok(tracker)) = &mut self.tracker
            && let Err(error) = act(tracker)
        {
            self.tracker = Some(Err(error.to_string()));
        }
    }

    pub(crate) fn detach(&mut self) {
        if let Some(Ok(tracker)) = &mut self.tracker {
            tracker.detach();
        }
        if let Some(Ok(sampler)) = &mut self.sampler {
            sampler.detach();
        }
    }

    /// What is shared costs the first probe that uses it.
    pub(crate) fn cost(&mut self) -> ProbeCost {
        if std::mem::replace(&mut self.told, true) {
            return ProbeCost::default();
        }
        let tracker = self.tracker().map(Tracker::cost).unwrap_or_default();
        let sampler = self.sampler().map(Sampler::cost).unwrap_or_default();
        ProbeCost {
            attach_ms: tracker.attach_ms + sampler.attach_ms,
            lost: tracker.lost + sampler.lost,
            ..tracker
        }
    }
}
