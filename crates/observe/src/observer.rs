//! The observer: takes the probes that were asked for through windows, one after the other.

use wirecost_model::clock::{Nanos, seconds};
use wirecost_model::observe::{
    Observation, ObserveRequest, Observed, ProbeCost, ProbeReport, ProbeStatus,
};

use crate::probe::{Probe, Session, Shared, named};
use crate::probes;
use crate::sampler::PER_SECOND;

/// One probe, as far as it got.
struct Seat {
    probe: &'static dyn Probe,
    session: Option<Box<dyn Session>>,
    /// Why there is nothing of it.
    refused: Option<String>,
    attached: bool,
}

/// Probes of one machine. It never fails: what cannot be had is in the reports.
pub struct Observer {
    request: ObserveRequest,
    shared: Shared,
    seats: Vec<Seat>,
    window: Option<(Nanos, Nanos)>,
}

impl std::fmt::Debug for Observer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Observer").field("probes", &self.request.probes).finish_non_exhaustive()
    }
}

impl Observer {
    /// Loads what the probes need. This may take some hundred milliseconds.
    #[must_use]
    pub fn open(request: ObserveRequest) -> Self {
        Self::open_at(request, PER_SECOND)
    }

    /// The same, with so many samples a second of each CPU.
    #[must_use]
    pub fn open_at(request: ObserveRequest, samples_per_second: u32) -> Self {
        let wanted: Vec<&'static dyn Probe> = probes::ALL
            .iter()
            .copied()
            .filter(|probe| request.probes.iter().any(|name| named(name) == probe.name()))
            .collect();
        let mut shared = Shared::new(&request, samples_per_second);
        let seats = wanted
            .into_iter()
            .map(|probe| match probe.open(&mut shared) {
                Ok(session) => {
                    Seat { probe, session: Some(session), refused: None, attached: false }
                }
                Err(error) => {
                    Seat { probe, session: None, refused: Some(error.to_string()), attached: false }
                }
            })
            .collect();
        Self { request, shared, seats, window: None }
    }

    /// Puts all hooks in place. From here on the host pays.
    pub fn attach(&mut self) {
        self.window = None;
        self.shared.attach();
        for seat in &mut self.seats {
            let Some(session) = &mut seat.session else { continue };
            match session.attach(&self.shared) {
                Ok(()) => seat.attached = true,
                Err(error) => seat.refused = Some(error.to_string()),
            }
        }
    }

    /// The window begins now.
    pub fn begin(&mut self) {
        let at = self.shared.begin();
        self.window = Some((at, at));
        for session in attached(&mut self.seats) {
            session.begin(&self.shared, at);
        }
    }

    /// An interval of the window has passed.
    pub fn interval(&mut self, at: Nanos) {
        for session in attached(&mut self.seats) {
            session.interval(&self.shared, at);
        }
    }

    /// The window ends now.
    pub fn end(&mut self) {
        let at = self.shared.end();
        if let Some((_, end)) = &mut self.window {
            *end = at;
        }
        for session in attached(&mut self.seats) {
            session.end(&self.shared, at);
        }
    }

    /// Takes all hooks away. From here on the host pays nothing.
    pub fn detach(&mut self) {
        for session in attached(&mut self.seats) {
            session.detach();
        }
        self.shared.detach();
    }

    /// What was seen in the window that ended last.
    pub fn take(&mut self) -> Observation {
        let Some((begin, end)) = self.window else {
            return Observation { probes: self.reports(), parts: Vec::new() };
        };
        let mut parts = Vec::new();
        for part in &self.request.parts {
            let mut observed = Observed {
                host: part.host.clone(),
                covers: part.covers.clone(),
                seconds: seconds(end.saturating_sub(begin)),
                ..Observed::default()
            };
            for session in attached(&mut self.seats) {
                session.fill(&self.shared, part, &mut observed);
            }
            parts.push(observed);
        }
        Observation { probes: self.reports(), parts }
    }

    /// How each probe of the request did; before the first window, what each can do.
    pub fn reports(&mut self) -> Vec<ProbeReport> {
        let host = self.request.parts.first().map(|part| part.host.clone()).unwrap_or_default();
        let mut reports = Vec::new();
        for seat in &self.seats {
            let missing =
                seat.session.as_ref().map(|session| session.missing()).unwrap_or_default();
            let (status, reason) = match &seat.refused {
                Some(reason) => (ProbeStatus::No, Some(reason.clone())),
                None if missing.is_empty() => (ProbeStatus::Ready, None),
                None => (ProbeStatus::Partial, Some(missing.join("; "))),
            };
            let own = seat.session.as_ref().map(|session| session.cost()).unwrap_or_default();
            let cost = match seat.session {
                Some(_) => sum(self.shared.cost(), own),
                None => own,
            };
            reports.push(ProbeReport {
                host: host.clone(),
                name: seat.probe.name().to_owned(),
                status,
                reason,
                cost,
            });
        }
        reports
    }
}

fn attached(seats: &mut [Seat]) -> impl Iterator<Item = &mut Box<dyn Session>> {
    seats.iter_mut().filter(|seat| seat.attached).filter_map(|seat| seat.session.as_mut())
}

fn sum(a: ProbeCost, b: ProbeCost) -> ProbeCost {
    ProbeCost {
        hooks: a.hooks + b.hooks,
        load_ms: a.load_ms + b.load_ms,
        attach_ms: a.attach_ms + b.attach_ms,
        recursion_misses: a.recursion_misses + b.recursion_misses,
        lost: a.lost + b.lost,
    }
}
