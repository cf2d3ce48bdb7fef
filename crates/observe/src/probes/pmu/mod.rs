//! Cycles, instructions and misses by the counters of the hardware.
//!
//! Tried on the PMU that a hypervisor shows one guest (AMD EPYC), where it agrees with perf-stat(1),
//! and not yet run on other hardware. Which events are chosen elsewhere is tested on fixtures only;
//! groups and scaling on software events (`wirecost_linux::perf`).

mod counters;

use wirecost_linux::environment;
use wirecost_model::clock::Nanos;
use wirecost_model::observe::{Observed, Part};

use crate::probe::{About, Extent, Probe, Session, Sets, Shared, Unavailable};
use crate::tracker::online_cpus;
use counters::{Counters, Reading};

#[derive(Debug)]
pub(crate) struct Pmu;

impl Probe for Pmu {
    fn name(&self) -> &'static str {
        "pmu"
    }

    fn about(&self) -> About {
        About {
            tells: "cycles, those in the kernel, instructions, misses of cache and of branch \
                    prediction, as the hardware counts them; cycles per KByte then are of these",
            needs: "counters of the CPU, and root, CAP_PERFMON or kernel.perf_event_paranoid <= 0; \
                    of a virtual machine they are read only where `pmu` is named",
            costs: "on hardware not measured yet; on the one virtual machine it was tried on, half of \
                    the throughput of a stream between two hosts",
            blind: "tried on one guest with an AMD EPYC, not yet run on other hardware; events that \
                    take turns on few counters are scaled up (see counted)",
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
                "left out on a virtual machine, where counters may cost more than half of the \
                 throughput: name the probe `pmu` to have them"
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
    fn begin(&mut self, _shared: &Shared, _at: Nanos) {
        self.missing.clear();
        if let Err(error) = self.counters.start() {
            self.missing.push(format!("the counters were not started: {error}"));
        }
        self.begin = self.counters.read();
    }

    fn end(&mut self, _shared: &Shared, _at: Nanos) {
        if let Err(error) = self.counters.stop() {
            self.missing.push(format!("the counters were not stopped: {error}"));
        }
        self.end = self.counters.read();
    }

    fn fill(&mut self, _shared: &Shared, part: &Part, into: &mut Observed) {
        let wanted = |cpu: u32| part.cpus.as_ref().is_none_or(|cpus| cpus.contains(&cpu));
        into.pmu = counters::counts(&self.begin, &self.end, wanted);
    }

    fn missing(&self) -> Vec<String> {
        self.missing.clone()
    }
}
