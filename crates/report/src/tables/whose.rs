//! Of whom a table tells: hosts that have CPUs of their own each by itself, others together.

use wirecost_analyze::measured::Measurements;
use wirecost_model::run::Run;
use wirecost_model::study::Value;

/// Whose CPUs are meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CpuScope {
    /// A host, by its name or `sender` and `receiver`.
    Host(String),
    /// All CPUs there are.
    All,
}

impl CpuScope {
    /// As it is told of a table.
    pub(crate) fn value(&self) -> Value {
        match self {
            CpuScope::Host(host) => Value::new("host", host),
            CpuScope::All => Value::new("host", "all"),
        }
    }

    /// A metric of theirs.
    pub(crate) fn metric(&self, name: &str) -> String {
        match self {
            CpuScope::Host(host) => format!("hosts.{host}.{name}"),
            CpuScope::All => name.to_owned(),
        }
    }
}

/// Whether what each host costs can be told at all: no other host works on its CPUs.
pub(crate) fn own_cpus(measured: &Measurements) -> bool {
    let mut any = false;
    for run in runs(measured) {
        any = true;
        if run.hosts.iter().any(|host| run.shares_cpus(host)) {
            return false;
        }
    }
    any
}

/// The runs that count and know their hosts.
fn runs(measured: &Measurements) -> impl Iterator<Item = &Run> {
    let runs = measured.points.iter().flat_map(|point| &point.runs);
    runs.filter(|run| !run.hosts.is_empty())
}

/// Whether data goes one way: each run has a host that sends more than it receives.
pub(crate) fn one_way(measured: &Measurements) -> bool {
    let mut all = runs(measured).filter_map(|run| run.throughput.as_ref()).peekable();
    all.peek().is_some() && all.all(|moved| (moved.tx_bytes == 0) != (moved.rx_bytes == 0))
}

/// Names of the hosts, where they are the same in all runs.
pub(crate) fn hosts(measured: &Measurements) -> Vec<&str> {
    let names =
        |run: &'_ Run| -> Vec<String> { run.hosts.iter().map(|h| h.name.clone()).collect() };
    let mut all = runs(measured);
    let Some(first) = all.next() else { return Vec::new() };
    let known = names(first);
    if all.any(|run| names(run) != known) {
        return Vec::new();
    }
    first.hosts.iter().map(|host| host.name.as_str()).collect()
}

/// What a table says under it, where it is of all hosts together.
pub(crate) fn note(measured: &Measurements) -> Option<&'static str> {
    let shared = runs(measured).next().is_some() && !own_cpus(measured);
    shared.then_some("CPU time and cycles are of the whole machine, as its hosts share CPUs.")
}
