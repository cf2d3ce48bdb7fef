//! Cycles, instructions and misses by the counters of the hardware.
//!
//! Tried on the PMU that a hypervisor shows one guest (AMD EPYC), where it agrees with
//! perf-stat(1), and not yet run on other hardware. Which events are chosen elsewhere is tested on
//! fixtures only; groups and scaling on software events (`wirecost_linux::perf`).

mod counters;

use wirecost_linux::environment;
use wirecost_model::clock::Nanos;
use wirecost_model::observe::{HostObservation, Part};

use crate::probe::{Description, Edge, Extent, Probe, Session, Sets, Shared, Unavailable};
use crate::tracker::online_cpus;
use counters::{Counters, Reading};

#[derive(Debug)]
pub(crate) struct Pmu;

impl Probe for Pmu {
    fn name(&self) -> &'static str {
        "pmu"
    }

    fn about(&self) -> Description {
        Description {
            tells: "cycles, kernel cycles, instructions, cache and branch misses from hardware \
                    counters, which are then also used for cycles per KByte",
            needs: "CPU counters, and root, CAP_PERFMON or kernel.perf_event_paranoid <= 0; in a \
                    virtual machine they are read only if `pmu` is requested",
            costs: "not measured on hardware yet; half of the throughput of a stream between two \
                    hosts on the one virtual machine where it was tried",
            limitations: "tried on one guest with an AMD EPYC only; multiplexed events are scaled (see \
                    counted)",
        }
    }

    fn extents(&self) -> &'static [Extent] {
        &[Extent::Basic]
    }

    fn sets(&self) -> Sets {
        Sets { standard: Some(Extent::Basic), full: Some(Extent::Basic) }
    }

    fn open(&self, shared: &mut Shared) -> Result<Box<dyn Session>, Unavailable> {
        if shared.basic(self.name()) && environment::virtual_machine() != Some(false) {
            return Err(Unavailable::Other(
                "left out in a virtual machine, where counters can cost more than half of the \
                 throughput: request probe `pmu` to read them"
                    .to_owned(),
            ));
        }
        let counters = Counters::open(&online_cpus()).map_err(Unavailable::Other)?;
        Ok(Box::new(Watch {
            counters,
            begin: Reading::new(),
            end: Reading::new(),
            missing: Vec::new(),
        }))
    }
}

#[derive(Debug)]
struct Watch {
    counters: Counters,
    begin: Reading,
    end: Reading,
    missing: Vec<String>,
}

impl Session for Watch {
    fn edge(&mut self, _shared: &Shared, _at: Nanos, edge: Edge) {
        match edge {
            Edge::Begin => {
                self.missing.clear();
                if let Err(error) = self.counters.start() {
                    self.missing.push(format!("the counters were not started: {error}"));
                }
                self.begin = self.counters.read();
            }
            Edge::End => {
                if let Err(error) = self.counters.stop() {
                    self.missing.push(format!("the counters were not stopped: {error}"));
                }
                self.end = self.counters.read();
            }
        }
    }

    fn fill(&mut self, _shared: &Shared, part: &Part, into: &mut HostObservation) {
        let wanted = |cpu: u32| part.cpus.as_ref().is_none_or(|cpus| cpus.contains(&cpu));
        into.pmu = counters::counts(&self.begin, &self.end, wanted);
    }

    fn missing(&self) -> Vec<String> {
        self.missing.clone()
    }
}
