//! Figures by name. Tables, stop rules, expectations, findings and comparisons ask for them so, and
//! are told why where there is none.
//!
//! A name is one of [`all`], with the host before it where it is of a host: `throughput`,
//! `latency.p99`, `hosts.server.cycles_per_kbyte`. In place of a host's name may stand
//! - `master`, the host that drives, and `peer`, where there is one, the other,
//! - `sender` and `receiver`, the one that sent more bytes than it received, and the other,
//! - `machine`, where all hosts share one.
//!
//! Without a host, what is of hosts is of `machine`, and `cycles_per_kbyte` of all machines
//! together. In `layers.NAME.share` and `functions.NAME.inclusive` a name of the profile of
//! functions stands in the middle.

pub(crate) mod host;
mod run;
#[cfg(test)]
mod tests;

pub use host::Scope;
use wirecost_model::metric::{Better, Metric, Unit};
use wirecost_model::observe::{self, FunctionsSection, ObservedMetric};
use wirecost_model::run::{HostRow, Run};

/// Where a figure is found, and how.
#[derive(Debug, Clone, Copy)]
enum Source {
    Run(fn(&Run) -> Result<f64, String>),
    /// Of one host, or of the machine.
    Host(fn(&Scope<'_>) -> Result<f64, String>),
    /// The same, of what a probe read there.
    Observed(&'static dyn ObservedMetric),
}

#[derive(Debug, Clone, Copy)]
struct Definition {
    metric: Metric,
    source: Source,
}

const fn define(
    name: &'static str,
    unit: Unit,
    better: Better,
    help: &'static str,
    source: Source,
) -> Definition {
    Definition { metric: Metric { name, help, unit, better }, source }
}

/// All of them, for a person to read.
pub fn all() -> impl Iterator<Item = Metric> {
    definitions().map(|definition| definition.metric)
}

fn definitions() -> impl Iterator<Item = Definition> {
    let observed = observe::ALL.iter().flat_map(|kind| kind.metrics());
    let observed = observed
        .map(|metric| Definition { metric: *metric.metric(), source: Source::Observed(metric) });
    run::ALL.iter().chain(host::ALL).copied().chain(observed)
}

/// There is no figure of that name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no metric {name}{}", nearest.map(|n| format!("; did you mean {n}?")).unwrap_or_default())]
pub struct UnknownMetric {
    pub name: String,
    pub nearest: Option<&'static str>,
}

/// A figure that was asked for.
#[derive(Debug, Clone)]
pub struct Selector {
    /// As it was asked for.
    pub name: String,
    definition: Definition,
    host: Option<String>,
    /// What stands for `*`.
    thing: Option<String>,
}

/// Names that metrics had before, which studies may still use, with those that they have.
const FORMER_NAMES: [(&str, &str); 3] = [
    ("drained.writer", "transmit_context.writer"),
    ("drained.worker", "transmit_context.worker"),
    ("drained.ack", "transmit_context.ack"),
];

/// The figure of this name.
///
/// # Errors
/// There is none; the error names the nearest.
pub fn find(name: &str) -> Result<Selector, UnknownMetric> {
    let (host, short) = match name.strip_prefix("hosts.") {
        Some(rest) => rest.split_once('.').map_or((None, name), |(host, s)| (Some(host), s)),
        None => (None, name),
    };
    let current = FORMER_NAMES.iter().find(|(former, _)| *former == short);
    let short = current.map_or(short, |(_, current)| current);
    for definition in definitions() {
        let thing = match_name(definition.metric.name, short);
        let of_run = matches!(definition.source, Source::Run(_));
        if let Some(thing) = thing
            && of_run <= host.is_none()
        {
            return Ok(Selector {
                name: name.to_owned(),
                definition,
                host: host.map(str::to_owned),
                thing: (!thing.is_empty()).then(|| thing.to_owned()),
            });
        }
    }
    let names = definitions().map(|definition| definition.metric.name);
    let distances = names.map(|name| (strsim::damerau_levenshtein(short, name), name));
    let near = distances.filter(|(distance, name)| *distance <= name.len().div_ceil(3)).min();
    Err(UnknownMetric { name: name.to_owned(), nearest: near.map(|(_, name)| name) })
}

/// The host that goes by a name: its own, or `sender`, `receiver`, `master`.
pub(crate) fn host_of<'a>(run: &'a Run, name: &str) -> Option<&'a HostRow> {
    match Scope::find(run, Some(name)) {
        Ok(Scope::Host { host, .. }) => Some(host),
        _ => None,
    }
}

/// What was sampled of a host, or of the `machine`.
pub(crate) fn functions_of<'a>(run: &'a Run, name: &str) -> Option<&'a FunctionsSection> {
    Scope::find(run, Some(name)).ok()?.functions().ok()
}

/// What stands for `*` where the pattern has one, else nothing; `None` where the name is another.
fn match_name<'a>(pattern: &str, name: &'a str) -> Option<&'a str> {
    match pattern.split_once('*') {
        None => (pattern == name).then_some(""),
        Some((before, after)) => {
            let thing = name.strip_prefix(before)?.strip_suffix(after)?;
            (!thing.is_empty()).then_some(thing)
        }
    }
}

impl Selector {
    #[must_use]
    pub fn metric(&self) -> Metric {
        self.definition.metric
    }

    /// How a run came by the figure, where there are several ways that give other numbers for the
    /// same.
    #[must_use]
    pub fn method<'a>(&self, run: &'a Run) -> Option<&'a str> {
        let scope = Scope::find(run, self.host.as_deref()).ok()?;
        match self.definition.metric.name {
            "cycles_per_kbyte" | "cycles_per_operation" => scope.cycles_source(),
            name if name.starts_with("cpu.") => scope.cpu_source(),
            _ => None,
        }
    }

    /// The figure of a run.
    ///
    /// # Errors
    /// Why it was not measured.
    pub fn of(&self, run: &Run) -> Result<f64, String> {
        let scope = || Scope::find(run, self.host.as_deref());
        let value = match self.definition.source {
            Source::Run(of) => of(run),
            Source::Host(of) => of(&scope()?),
            Source::Observed(metric) => {
                scope()?.observed_metric(metric, self.thing.as_deref().unwrap_or_default())
            }
        }?;
        if value.is_finite() { Ok(value) } else { Err("it is no number".to_owned()) }
    }
}
