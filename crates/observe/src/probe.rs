//! What a probe is, and what it is given.

use wirecost_linux::clock::Monotonic;
use wirecost_model::clock::{Clock, Nanos};
use wirecost_model::observe::{Observed, Part, ProbeCost};

use crate::bpf::BpfError;
use crate::sampler::Sampler;
use crate::tracker::Tracker;

/// Something that can be read of a host while traffic runs. One folder of `probes` each.
pub(crate) trait Probe: Sync {
    /// As `--observe` names it.
    fn name(&self) -> &'static str;

    /// What it tells, what it needs, what it costs and what it cannot see: a sentence each.
    fn about(&self) -> About;

    /// Gets ready: loads programs and opens files. Nothing is attached yet.
    ///
    /// # Errors
    /// Why this host cannot have it at all.
    fn open(&self, shared: &mut Shared) -> Result<Box<dyn Session>, Unavailable>;
}

/// What `wirecost observe --list` and the documentation say of a probe.
#[derive(Debug, Clone, Copy)]
pub struct About {
    pub tells: &'static str,
    pub needs: &'static str,
    pub costs: &'static str,
    pub blind: &'static str,
}

/// A probe at work. The observer calls, for each window: `attach`, `begin`, `interval` now and then,
/// `end`, `detach`; then `fill` for each part.
pub(crate) trait Session {
    /// Puts hooks in place.
    ///
    /// # Errors
    /// Why nothing can be measured in this window.
    fn attach(&mut self, _shared: &Shared) -> Result<(), Unavailable> {
        Ok(())
    }

    /// The window begins.
    fn begin(&mut self, shared: &Shared, at: Nanos);

    /// An interval of the window has passed.
    fn interval(&mut self, _shared: &Shared, _at: Nanos) {}

    /// The window is over; what is shared has stopped counting.
    fn end(&mut self, shared: &Shared, at: Nanos);

    fn detach(&mut self) {}

    /// Writes what was seen of a part of the machine.
    fn fill(&mut self, shared: &Shared, part: &Part, into: &mut Observed);

    /// What is missing of the figures, and why.
    fn missing(&self) -> Vec<String> {
        Vec::new()
    }

    /// What it took, without what is shared.
    fn cost(&self) -> ProbeCost {
        ProbeCost::default()
    }
}

/// Why a probe says nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unavailable {
    #[error(transparent)]
    Bpf(#[from] BpfError),
    #[error("{act}: {source}")]
    System { act: String, source: std::io::Error },
    #[error("{0}")]
    Other(String),
}

/// What several probes use, opened when the first of them asks.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Whether interrupts are counted by source.
    tables: bool,
    tracker: Option<Result<Tracker, String>>,
    /// Whether the cost of this window has been told.
    told: bool,
    samples_per_second: u32,
    sampler: Option<Result<Sampler, String>>,
}

impl Shared {
    /// For these probes, by name. The sampler looks at each CPU so many times a second.
    pub(crate) fn new(probes: &[&str], samples_per_second: u32) -> Self {
        Self {
            tables: probes.contains(&"interrupts"),
            tracker: None,
            told: false,
            samples_per_second,
            sampler: None,
        }
    }

    /// The tracker, loaded now if it is not yet.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) fn need_tracker(&mut self) -> Result<&Tracker, Unavailable> {
        let tables = self.tables;
        let tracker = self
            .tracker
            .get_or_insert_with(|| Tracker::open(tables).map_err(|error| error.to_string()));
        tracker.as_ref().map_err(|error| Unavailable::Other(error.clone()))
    }

    /// The tracker, if a probe asked for it and the kernel gave it.
    pub(crate) fn tracker(&self) -> Option<&Tracker> {
        self.tracker.as_ref()?.as_ref().ok()
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
        self.on_sampler(Sampler::begin);
        self.on_tracker(Tracker::start);
        Monotonic.now()
    }

    /// Stops counting. Returns when.
    pub(crate) fn end(&mut self) -> Nanos {
        let at = Monotonic.now();
        self.on_tracker(Tracker::stop);
        self.on_sampler(Sampler::end);
        at
    }

    fn on_sampler(&mut self, act: impl Fn(&mut Sampler) -> Result<(), String>) {
        if let Some(Ok(sampler)) = &mut self.sampler
            && let Err(error) = act(sampler)
        {
            self.sampler = Some(Err(error));
        }
    }

    fn on_tracker(&mut self, act: impl Fn(&Tracker) -> Result<(), BpfError>) {
        if let Some(Ok(tracker)) = &self.tracker
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
