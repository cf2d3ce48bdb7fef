//! Observations: what probes read of a host while traffic runs, as `observe` of `wirecost.run/1`
//! and
//! `wirecost.observe/1` has it.
//!
//! A new one is a file of this folder with its section and [`Observation`] for it, and two lines
//! here. A key is never absent; what was not measured is `null`, and the probe's report says why.

mod cpu;
mod drops;
mod functions;
mod hardware;
mod interrupts;
mod locks;
mod memory;
mod nic;
mod pmu;
mod scheduling;
mod segments;
mod syscalls;
mod tcp;
mod trace;

use std::fmt::Debug;
use std::marker::PhantomData;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::document::{Block, Section};
use crate::metric::{Better, Metric, Unit};
pub use crate::probe::{
    ObserveRequest, ObserveTimes, ObserverReport, Part, ProbeCost, ProbeReport, ProbeStatus,
};
use crate::sample::{Rows, SampleName};
use crate::units::{counted as number_of, percent, seconds};
pub use crate::watched::{Basis, DeviceTraffic, ObserveDocument, SCHEMA};

/// What a probe read of one part of a machine in one window.
pub trait Observation: Member {
    /// Its figures that can be asked for by name.
    const METRICS: &'static [MetricDef<Self>] = &[];

    /// Takes over what a later pass of the same run read, where that says more. All figures of a
    /// section are read at the same instants, so it is never put together from two passes.
    fn merge(&mut self, _later: Self) {}

    /// What [`Observation::samples`] may write, in that order.
    fn sample_names() -> Vec<SampleName> {
        Vec::new()
    }

    /// What it holds over time, and by parts.
    fn samples(&self, _rows: &mut Rows<'_>) {}

    /// What a person reads of it.
    fn document(&self) -> Vec<Section> {
        Vec::new()
    }

    /// Divides the busy cycles of the host by the payload among the rows that have a share of them.
    fn divide_cost(&mut self, _cycles_per_kbyte_of_host: Option<f64>) {}
}

/// A section's place in [`HostObservation`].
pub trait Member:
    Debug + Clone + PartialEq + Serialize + DeserializeOwned + Sync + Sized + 'static
{
    /// Its key in the document.
    const KEY: &'static str;
    /// The name of its probe, which is mostly the same.
    const NAME: &'static str;

    fn of(observed: &HostObservation) -> Option<&Self>;

    fn place(observed: &mut HostObservation) -> &mut Option<Self>;
}

/// The name of the probe of a key.
macro_rules! probe_name {
    ($key:ident) => {
        stringify!($key)
    };
    ($key:ident, $probe:literal) => {
        $probe
    };
}

/// The list of observations: makes the fields of [`HostObservation`] and [`ALL`] of it.
macro_rules! observations {
    ($($name:ident $(of $probe:literal)?: $section:ident,)+) => {
        $(pub use $name::*;)+

        /// What was observed of one part of a machine in one window.
        #[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
        pub struct HostObservation {
            /// Host of the run, or of several that share CPUs the first.
            pub host: String,
            /// All hosts of the run whose work is in these figures.
            pub covers: Vec<String>,
            /// Length of the window as the probes timed it.
            pub seconds: f64,
            $(pub $name: Option<$section>,)+
        }

        $(impl Member for $section {
            const KEY: &'static str = stringify!($name);
            const NAME: &'static str = probe_name!($name $(, $probe)?);

            fn of(observed: &HostObservation) -> Option<&Self> {
                observed.$name.as_ref()
            }

            fn place(observed: &mut HostObservation) -> &mut Option<Self> {
                &mut observed.$name
            }
        })+

        /// Every observation, in the order of their keys.
        pub static ALL: [&dyn Kind; [$(stringify!($name)),+].len()] =
            [$(&PhantomData::<$section>),+];
    };
}

observations! {
    cpu: CpuSection,
    pmu: PmuCounts,
    interrupts: InterruptsSection,
    segments: SegmentsSection,
    tcp: TcpSection,
    drops: DropsSection,
    scheduling: SchedulingSection,
    locks: LocksSection,
    syscalls: SyscallsSection,
    functions: FunctionsSection,
    memory: MemorySection,
    nic: NicSection,
    // The key `host` is the name of the host.
    hardware of "host": HardwareSection,
    trace: TraceSection,
}

/// An [`Observation`] whose type is not known where it is used.
pub trait Kind: Sync {
    /// Key in the document.
    fn key(&self) -> &'static str;

    /// Name of the probe.
    fn name(&self) -> &'static str;

    fn metrics(&self) -> Vec<&'static dyn ObservedMetric>;

    fn sample_names(&self) -> Vec<SampleName>;

    fn merge(&self, into: &mut HostObservation, other: &mut HostObservation);

    fn samples(&self, observed: &HostObservation, rows: &mut Rows<'_>);

    fn document(&self, observed: &HostObservation) -> Vec<Section>;

    fn divide_cost(&self, observed: &mut HostObservation, cycles_per_kbyte_of_host: Option<f64>);
}

impl<T: Observation> Kind for PhantomData<T> {
    fn key(&self) -> &'static str {
        T::KEY
    }

    fn name(&self) -> &'static str {
        T::NAME
    }

    fn metrics(&self) -> Vec<&'static dyn ObservedMetric> {
        T::METRICS.iter().map(|reading| reading as &dyn ObservedMetric).collect()
    }

    fn sample_names(&self) -> Vec<SampleName> {
        T::sample_names()
    }

    fn merge(&self, into: &mut HostObservation, other: &mut HostObservation) {
        let Some(other) = T::place(other).take() else { return };
        match T::place(into) {
            Some(known) => known.merge(other),
            empty => *empty = Some(other),
        }
    }

    fn samples(&self, observed: &HostObservation, rows: &mut Rows<'_>) {
        if let Some(section) = T::of(observed) {
            section.samples(rows);
        }
    }

    fn document(&self, observed: &HostObservation) -> Vec<Section> {
        T::of(observed).map(T::document).unwrap_or_default()
    }

    fn divide_cost(&self, observed: &mut HostObservation, cycles_per_kbyte_of_host: Option<f64>) {
        if let Some(section) = T::place(observed) {
            section.divide_cost(cycles_per_kbyte_of_host);
        }
    }
}

impl HostObservation {
    /// Takes over what another pass saw and this one did not.
    pub fn complete_with(&mut self, mut other: HostObservation) {
        for kind in ALL {
            kind.merge(self, &mut other);
        }
    }

    /// Divides the cost of the host that was observed, or of the hosts that share CPUs.
    pub fn divide_cost(&mut self, cycles_per_kbyte: Option<f64>) {
        for kind in ALL {
            kind.divide_cost(self, cycles_per_kbyte);
        }
    }
}

/// What of a host a figure is of. Of hosts that share CPUs only the first's namespace is observed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricScope {
    Cpus,
    /// Everything that runs on the kernel, in all namespaces.
    Kernel,
    /// Devices and connections of its network namespace.
    Namespace,
}

/// A figure of an observation that can be asked for by name.
#[derive(Debug)]
pub struct MetricDef<T: 'static> {
    metric: Metric,
    of: MetricScope,
    value: Value<T>,
}

/// How a figure is read of a section, or why there is none.
#[derive(Debug)]
pub enum Value<T: 'static> {
    One(fn(&T) -> Result<f64, String>),
    /// Of a thing with a name, which stands in place of `*` in the metric's.
    Named(fn(&T, &str) -> Result<f64, String>),
}

const fn reading<T>(
    name: &'static str,
    unit: Unit,
    better: Better,
    of: MetricScope,
    help: &'static str,
    value: Value<T>,
) -> MetricDef<T> {
    MetricDef { metric: Metric { name, help, unit, better }, of, value }
}

/// A [`MetricDef`] of an observation whose type is not known where it is used.
pub trait ObservedMetric: Debug + Sync {
    fn metric(&self) -> &Metric;

    /// The probe that reads it.
    fn probe(&self) -> &'static str;

    fn of(&self) -> MetricScope;

    /// `None` where the probe read nothing; `thing` stands in place of `*`.
    fn value(&self, observed: &HostObservation, thing: &str) -> Option<Result<f64, String>>;
}

impl<T: Observation> ObservedMetric for MetricDef<T> {
    fn metric(&self) -> &Metric {
        &self.metric
    }

    fn probe(&self) -> &'static str {
        T::NAME
    }

    fn of(&self) -> MetricScope {
        self.of
    }

    fn value(&self, observed: &HostObservation, thing: &str) -> Option<Result<f64, String>> {
        let section = T::of(observed)?;
        Some(match self.value {
            Value::One(read) => read(section),
            Value::Named(read) => read(section, thing),
        })
    }
}

/// A count, or why there is none.
fn counted(count: Option<u64>, reason: &str) -> Result<f64, String> {
    count.map(|count| count as f64).ok_or_else(|| reason.to_owned())
}

/// Slices of a window in which hooks of hot paths were in place. What they counted is of them.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Slices {
    pub count: u32,
    /// All of them together.
    pub seconds: f64,
    /// Of the window.
    pub percent: f64,
}

/// Says which parts of the window a table is of, if not of all.
fn slices(of: Option<Slices>) -> Option<Block> {
    let slices = of?;
    let number = number_of(slices.count.into(), "slice", "slices");
    let (all, share) = (seconds(slices.seconds), percent(slices.percent));
    Some(Block::Note(format!("counted in {number} of the window, {all} together ({share}%)")))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;

    #[test]
    fn every_file_is_in_the_list_once() {
        let stem = |entry: std::io::Result<std::fs::DirEntry>| {
            entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned()
        };
        let mut files: BTreeSet<String> =
            std::fs::read_dir("src/observe").unwrap().map(stem).collect();
        assert!(files.remove("mod"));
        let listed: BTreeSet<String> = ALL.iter().map(|kind| kind.key().to_owned()).collect();
        assert_eq!(listed, files);
        assert_eq!(listed.len(), ALL.len());
    }

    /// The keys of a document are those of the list, and null where nothing was read.
    #[test]
    fn every_observation_has_its_key() {
        let Value::Object(document) = serde_json::to_value(HostObservation::default()).unwrap()
        else {
            unreachable!("a struct is an object");
        };
        let names: BTreeSet<&str> = ALL.iter().map(|kind| kind.key()).collect();
        let null: BTreeSet<&str> = document
            .iter()
            .filter(|(_, value)| value.is_null())
            .map(|(key, _)| key.as_str())
            .collect();
        assert_eq!(null, names);
    }

    #[test]
    fn a_document_from_before_an_observation_was_there_is_read() {
        for kind in ALL {
            let mut document = serde_json::to_value(HostObservation::default()).unwrap();
            document.as_object_mut().unwrap().remove(kind.key());
            let read: HostObservation = serde_json::from_value(document).unwrap();
            assert_eq!(read, HostObservation::default(), "without {}", kind.key());
        }
    }

    #[test]
    fn a_pass_adds_what_the_others_did_not_read() {
        let counts = |source: &str| {
            let section = InterruptsSection { source: source.to_owned(), ..Default::default() };
            HostObservation { interrupts: Some(section), ..HostObservation::default() }
        };
        let source =
            |observed: &HostObservation| observed.interrupts.as_ref().unwrap().source.clone();
        let mut all = HostObservation::default();
        all.complete_with(counts("proc"));
        assert_eq!(source(&all), "proc");
        // One pass may have counted what another timed.
        all.complete_with(counts("bpf"));
        assert_eq!(source(&all), "bpf");
        all.complete_with(counts("proc"));
        assert_eq!(source(&all), "bpf");
        let tcp = |segments_sent| {
            let tcp = TcpSection { segments_sent, ..TcpSection::default() };
            HostObservation { tcp: Some(tcp), ..HostObservation::default() }
        };
        all.complete_with(tcp(Some(1)));
        all.complete_with(tcp(Some(2)));
        all.complete_with(HostObservation::default());
        assert_eq!(all.tcp.unwrap().segments_sent, Some(1), "the first pass is the headline");
        assert_eq!(all.interrupts.unwrap().source, "bpf");
    }
}
