//! The inputs of the model: work per second of a run, and its cycles.

use wirecost_model::cost::Input;
use wirecost_model::observe::HostObservation;
use wirecost_model::run::Run;

use crate::metrics;
use crate::metrics::host::Scope;

/// One run.
#[derive(Debug, Clone)]
pub(crate) struct Sample {
    /// Busy cycles per second: those of other programs among them, if they are to be.
    pub(crate) cycles: f64,
    /// The same with those of other programs.
    pub(crate) all_cycles: f64,
    /// Payload per second, as the cost per byte counts it.
    pub(crate) bytes: f64,
    /// Mean number of busy CPUs.
    pub(crate) busy_cpus: Option<f64>,
    /// In the order of [`Input::ALL`]; the reason if it was not measured.
    values: Vec<Result<f64, String>>,
}

impl Sample {
    pub(crate) fn value(&self, input: Input) -> Result<f64, &str> {
        let place = Input::ALL.iter().position(|other| *other == input).unwrap_or_default();
        self.values[place].as_ref().copied().map_err(String::as_str)
    }

    /// Of a run, of one host or of all machines.
    ///
    /// # Errors
    /// Why the run's cycles are unknown.
    pub(crate) fn of(
        run: &Run,
        host: Option<&str>,
        packets: Packets,
        foreign: Foreign,
    ) -> Result<Self, String> {
        let figure = |name: &str| {
            let name = match host {
                Some(host) => format!("hosts.{host}.{name}"),
                None => name.to_owned(),
            };
            metrics::find(&name).map_err(|error| error.to_string())?.of(run)
        };
        let per_kbyte = figure("cycles_per_kbyte")?;
        let bytes = match host {
            Some(name) => bytes_of_host(run, name)?,
            None => metrics::find("throughput").map_err(|e| e.to_string())?.of(run)? / 8.0,
        };
        let all_cycles = per_kbyte * bytes / 1024.0;
        let cycles = match foreign {
            Foreign::Included => all_cycles,
            Foreign::Subtracted => {
                let foreign = foreign_cycles_per_kbyte(run, host)
                    .ok_or("the cycles of other programs were not measured")?;
                all_cycles - foreign * bytes / 1024.0
            }
        };
        if bytes <= 0.0 || cycles <= 0.0 {
            return Err("no bytes moved".to_owned());
        }
        let of_run = |name: &str| metrics::find(name).map_err(|e| e.to_string())?.of(run);
        let seen = || observed(run, host);
        let values = Input::ALL
            .into_iter()
            .map(|input| match input {
                Input::Bytes => Ok(bytes),
                Input::Operations => of_run("operations"),
                Input::Packets => sum(&seen()?, |observed| packets.of(observed)),
                Input::Connections => of_run("connections"),
                Input::Interrupts => sum(&seen()?, interrupts),
                Input::Constant => Ok(1.0),
            })
            .collect();
        let busy_cpus = figure("cpu.busy").ok().map(|busy| busy / 100.0 * cpus(run, host));
        Ok(Self { cycles, all_cycles, bytes, busy_cpus, values })
    }
}

/// Whether cycles of other programs count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Foreign {
    /// Because nobody knows how many they are.
    Included,
    Subtracted,
}

/// The part of the cost that other programs had, where it is known.
pub(crate) fn foreign_cycles_per_kbyte(run: &Run, host: Option<&str>) -> Option<f64> {
    Scope::find(run, host).ok()?.foreign_cycles_per_kbyte()
}

/// The host's row, whatever name of [`metrics`] it goes by.
fn row<'a>(run: &'a Run, host: &str) -> Result<Option<&'a wirecost_model::run::HostRow>, String> {
    match Scope::find(run, Some(host))? {
        Scope::Host { host, .. } => Ok(Some(host)),
        _ => Ok(None),
    }
}

/// Bytes that it sent and received, the base of its cost per byte.
fn bytes_of_host(run: &Run, name: &str) -> Result<f64, String> {
    let Some(row) = row(run, name)? else {
        return Ok(metrics::find("throughput").map_err(|e| e.to_string())?.of(run)? / 8.0);
    };
    let seconds = run.window.as_ref().map_or(0.0, |window| window.seconds);
    match &row.bytes {
        Some(bytes) if seconds > 0.0 => Ok(bytes.total() as f64 / seconds),
        _ => Err("the run has no complete window".to_owned()),
    }
}

fn cpus(run: &Run, host: Option<&str>) -> f64 {
    match host.map(|host| row(run, host)) {
        Some(Ok(Some(row))) => row.cpus.len() as f64,
        _ => run.machines.iter().map(|machine| f64::from(machine.cpus)).sum(),
    }
}

/// What was observed of the hosts that are meant.
fn observed<'a>(run: &'a Run, host: Option<&str>) -> Result<Vec<&'a HostObservation>, String> {
    let observe = run.observe.as_ref().ok_or("nothing was observed (--observe none)")?;
    let of_host = match host {
        Some(host) => row(run, host)?,
        None => None,
    };
    let meant =
        |observed: &&HostObservation| of_host.is_none_or(|r| observed.covers.contains(&r.name));
    let found: Vec<&HostObservation> = observe.hosts.iter().filter(meant).collect();
    if found.is_empty() { Err("nothing was observed there".to_owned()) } else { Ok(found) }
}

fn sum(
    observed: &[&HostObservation],
    of: impl Fn(&HostObservation) -> Result<f64, String>,
) -> Result<f64, String> {
    observed.iter().map(|observed| of(observed)).sum()
}

fn interrupts(observed: &HostObservation) -> Result<f64, String> {
    let section = observed.interrupts.as_ref().ok_or("probe interrupts did not run")?;
    Ok(section.interrupts_per_second + section.softirqs_per_second)
}

/// What is counted as a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Packets {
    Segments,
    Tcp,
    Devices,
}

impl Packets {
    /// The one that says most of what the stack did first.
    pub(crate) const ALL: [Packets; 3] = [Packets::Segments, Packets::Tcp, Packets::Devices];

    pub(crate) fn source(self) -> &'static str {
        match self {
            Packets::Segments => "what the stack passes to a device at once (probe segments)",
            Packets::Tcp => "a segment that TCP sent (probe tcp)",
            Packets::Devices => "what a device counts as sent (probe interrupts)",
        }
    }

    fn of(self, observed: &HostObservation) -> Result<f64, String> {
        let (count, seconds) = match self {
            Packets::Segments => {
                let section = observed.segments.as_ref().ok_or("probe segments did not run")?;
                let packets: u64 = section.devices.iter().map(|device| device.sent.packets).sum();
                (packets, section.slices.as_ref().map_or(observed.seconds, |s| s.seconds))
            }
            Packets::Tcp => {
                let section = observed.tcp.as_ref().ok_or("probe tcp did not run")?;
                let sent = section.segments_sent.ok_or("segments sent were not counted")?;
                (sent, observed.seconds)
            }
            Packets::Devices => {
                let section = observed.interrupts.as_ref().ok_or("probe interrupts did not run")?;
                let sent = section.devices.iter().map(|device| device.tx_packets).sum();
                (sent, section.seconds)
            }
        };
        match seconds > 0.0 {
            true => Ok(count as f64 / seconds),
            false => Err("the window of the probe has no length".to_owned()),
        }
    }
}
