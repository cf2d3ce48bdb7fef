//! The server of a run: its CPUs, or those of the machine where hosts share them.

use wirecost_model::observe::HostObservation;
use wirecost_model::run::{Cpu, HostRow, Run};

use crate::findings::limits::has_own_cpus;
use crate::metrics::Scope;

/// An end of a run, and the CPUs that it uses.
pub(super) struct End<'a> {
    pub(super) host: &'a HostRow,
    /// No other host of the run uses its CPUs.
    pub(super) own_cpus: bool,
    pub(super) cpu: Option<&'a Cpu>,
}

pub(super) fn server(run: &Run) -> Result<End<'_>, String> {
    end(run, "peer")
}

pub(super) fn end<'a>(run: &'a Run, role: &str) -> Result<End<'a>, String> {
    let Scope::Host { host, .. } = Scope::find(run, Some(role))? else {
        return Err(format!("the run has no {role}"));
    };
    let own_cpus = has_own_cpus(run, host);
    let machine = run.machines.iter().find(|machine| machine.hosts.contains(&host.name));
    let cpu = match own_cpus {
        true => host.cpu.as_ref(),
        false => machine.and_then(|machine| machine.cpu.as_ref()),
    };
    Ok(End { host, own_cpus, cpu })
}

impl<'a> End<'a> {
    /// `the server`, or whose the CPUs are.
    pub(super) fn whose_cpus(&self, name: &str) -> String {
        if self.own_cpus { name.to_owned() } else { "the machine".to_owned() }
    }

    /// What probes saw of its CPUs.
    pub(super) fn observed(&self, run: &'a Run) -> Result<&'a HostObservation, String> {
        let observe = run.observe.as_ref().ok_or("nothing observed (--observe none)")?;
        let covers = |of: &&HostObservation| of.covers.contains(&self.host.name);
        observe.hosts.iter().find(covers).ok_or_else(|| "nothing observed there".to_owned())
    }
}

/// A probe's section of the server; why it is missing.
pub(super) fn section<'a, T>(
    run: &'a Run,
    probe: &str,
    of: impl Fn(&'a HostObservation) -> Option<&'a T>,
) -> Result<&'a T, String> {
    of(server(run)?.observed(run)?).ok_or_else(|| {
        let reports = run.observe.iter().flat_map(|observe| &observe.probes);
        let reason = reports.filter(|of| of.name == probe).find_map(|of| of.reason.clone());
        match reason {
            Some(reason) => format!("probe {probe}: {reason}"),
            None => format!("probe {probe} did not run"),
        }
    })
}
