//! What spoils a run, said on the result itself: each with data, a stable code and what to do next.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "code", rename_all = "kebab-case")]
pub enum Warning {
    /// A worker's thread used (nearly) all of its CPU time: the load generator may be the limit.
    SaturatedWorker { host: String, worker: u32, cpu: Option<u32>, busy: f64 },
    /// The kernel granted another value than the profile asked for.
    ClippedSetting { host: String, name: String, asked: String, granted: String, remedy: String },
    /// Intervals whose cut was late by more than half an interval.
    LostIntervals { host: String, lost: u64, of: u64 },
    /// The hypervisor took CPU time away.
    Steal { host: String, percent: f64 },
    /// CPU time that /proc/stat shows nowhere.
    UnaccountedCpu { host: String, percent: f64 },
    /// Programs that are not part of the run used CPU time, which is in its cost.
    ForeignCpu { host: String, percent: f64, programs: Vec<String> },
    /// Datagrams were lost; where, as far as the hosts can tell. Where datagrams came `joined`, a drop
    /// may be of several.
    DatagramsLost { lost: u64, sent: u64, receive_buffer_drops: u64, joined: bool },
    /// Operations failed and `canfail` let the strand go on.
    FailedOperations { failed: u64, timeouts: u64 },
    /// Strands had to be cut off at the end of a phase.
    UnfinishedStrands { host: String, phase: u32, strands: u64 },
    /// The window of a host began or ended at another instant than planned.
    WindowSkew { host: String, milliseconds: f64 },
    /// Clocks of two machines could only be matched this well.
    ClockOffset { host: String, error_us: f64 },
    /// The file says something whose effect on a number a reader may not expect.
    Profile { line: u32, column: u32, text: String },
    /// An engine or option could not be used and another was.
    Fallback { host: String, wanted: String, used: String, reason: String },
    /// Hosts play on one machine that has fewer CPUs than hosts, so cost per host is not known.
    SharedCpus { machine: String, hosts: u32, cpus: u32 },
    /// Zero-copy that the kernel made copies for all the same.
    ZeroCopyCopied { percent: f64 },
    /// Sends that were to be without a copy and for which the kernel had no means left.
    ZeroCopyRefused { host: String, refused: u64, of: u64 },
    /// Received bytes never came to the program.
    Discarded,
    /// An option that was set changed nothing.
    NoEffect { host: String, option: String, reason: String },
    /// Nothing moved in the window.
    NothingMoved,
    /// Connections that did not belong to the run were turned away.
    StrangersRefused { host: String, connections: u64 },
    /// Workers beyond the CPUs were needed for descriptors.
    MoreWorkersThanCpus { host: String, workers: u32, cpus: u32 },
}

impl Warning {
    /// Stable, for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Warning::SaturatedWorker { .. } => "saturated-worker",
            Warning::ClippedSetting { .. } => "clipped-setting",
            Warning::LostIntervals { .. } => "lost-intervals",
            Warning::Steal { .. } => "steal",
            Warning::UnaccountedCpu { .. } => "unaccounted-cpu",
            Warning::ForeignCpu { .. } => "foreign-cpu",
            Warning::DatagramsLost { .. } => "datagrams-lost",
            Warning::FailedOperations { .. } => "failed-operations",
            Warning::UnfinishedStrands { .. } => "unfinished-strands",
            Warning::WindowSkew { .. } => "window-skew",
            Warning::ClockOffset { .. } => "clock-offset",
            Warning::Profile { .. } => "profile",
            Warning::Fallback { .. } => "fallback",
            Warning::SharedCpus { .. } => "shared-cpus",
            Warning::ZeroCopyCopied { .. } => "zerocopy-copied",
            Warning::ZeroCopyRefused { .. } => "zerocopy-refused",
            Warning::Discarded => "discarded",
            Warning::NoEffect { .. } => "no-effect",
            Warning::NothingMoved => "nothing-moved",
            Warning::StrangersRefused { .. } => "strangers-refused",
            Warning::MoreWorkersThanCpus { .. } => "more-workers-than-cpus",
        }
    }
}

impl Warning {
    /// The same warning, said of this host where it was left open.
    pub fn of_host(mut self, name: &str) -> Self {
        match &mut self {
            Warning::SaturatedWorker { host, .. }
            | Warning::ClippedSetting { host, .. }
            | Warning::LostIntervals { host, .. }
            | Warning::Steal { host, .. }
            | Warning::UnaccountedCpu { host, .. }
            | Warning::ForeignCpu { host, .. }
            | Warning::UnfinishedStrands { host, .. }
            | Warning::WindowSkew { host, .. }
            | Warning::ClockOffset { host, .. }
            | Warning::Fallback { host, .. }
            | Warning::ZeroCopyRefused { host, .. }
            | Warning::NoEffect { host, .. }
            | Warning::StrangersRefused { host, .. }
            | Warning::MoreWorkersThanCpus { host, .. } => name.clone_into(host),
            Warning::DatagramsLost { .. }
            | Warning::FailedOperations { .. }
            | Warning::Profile { .. }
            | Warning::SharedCpus { .. }
            | Warning::ZeroCopyCopied { .. }
            | Warning::Discarded
            | Warning::NothingMoved => {}
        }
        self
    }
}

impl std::fmt::Display for Warning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Warning::SaturatedWorker { host, worker, cpu, busy } => {
                let on = cpu.map_or_else(String::new, |cpu| format!(" (CPU {cpu})"));
                write!(
                    f,
                    "worker {worker} of {host}{on} was busy {:.0}% of the window: one CPU of the \
                     load generator is the limit, not the path; spread the load over more strands \
                     and workers (--connections, --workers)",
                    busy * 100.0
                )
            }
            Warning::ClippedSetting { host, name, asked, granted, remedy } => {
                write!(f, "{host} granted {name}={granted} where {asked} was asked; {remedy}")
            }
            Warning::LostIntervals { host, lost, of } => write!(
                f,
                "{lost} of {of} intervals of {host} were cut late: use a longer --interval or \
                 leave the host a free CPU"
            ),
            Warning::Steal { host, percent } => write!(
                f,
                "the hypervisor took {percent:.1}% of {host}'s CPU time: other guests are part of \
                 this result; repeat it on a quiet machine"
            ),
            Warning::UnaccountedCpu { host, percent } if *percent < 0.0 => write!(
                f,
                "/proc/stat shows {:.1}% more of {host}'s CPU time than passed: its ticks are too \
                 coarse for this load; take a longer --duration",
                -percent
            ),
            Warning::UnaccountedCpu { host, percent } => write!(
                f,
                "{percent:.1}% of {host}'s CPU time is in no column of /proc/stat: its ticks are \
                 too coarse for this load; take a longer --duration"
            ),
            Warning::ForeignCpu { host, percent, programs } => write!(
                f,
                "other programs used {percent:.1}% of the busy CPU time of {host} ({}), and the cost \
                 includes it: end them, or give the run CPUs of its own",
                programs.join(", ")
            ),
            Warning::DatagramsLost { lost, sent, receive_buffer_drops, joined } => {
                let share = *lost as f64 * 100.0 / (*sent).max(1) as f64;
                write!(f, "{lost} of {sent} datagrams were lost ({share:.2}%)")?;
                if *receive_buffer_drops > 0 {
                    write!(
                        f,
                        ", {}{receive_buffer_drops} of them dropped by full receive buffers: raise \
                         wndsz or lower the rate",
                        if *joined { "at least " } else { "" }
                    )?;
                }
                Ok(())
            }
            Warning::FailedOperations { failed, timeouts } => write!(
                f,
                "{failed} operations failed ({timeouts} of them timed out) and were not counted as \
                 done"
            ),
            Warning::UnfinishedStrands { host, phase, strands } => write!(
                f,
                "{strands} strands of {host} did not finish phase {} in time and were cut off",
                phase + 1
            ),
            Warning::WindowSkew { host, milliseconds } => write!(
                f,
                "the window of {host} was off by {milliseconds:.1} ms: the host was too busy to \
                 cut its counters on time"
            ),
            Warning::ClockOffset { host, error_us } => write!(
                f,
                "the clock of {host} is known only to {error_us:.0} us: window edges differ by as \
                 much"
            ),
            Warning::Profile { line, column, text } => write!(f, "{line}:{column}: {text}"),
            Warning::Fallback { host, wanted, used, reason } => {
                write!(f, "{host} used {used} instead of {wanted}: {reason}")
            }
            Warning::SharedCpus { machine, hosts, cpus } => write!(
                f,
                "{hosts} hosts share the {cpus} CPUs of {machine}: the cost is known for the \
                 machine, not for each host"
            ),
            Warning::ZeroCopyCopied { percent } => write!(
                f,
                "the kernel copied {percent:.0}% of what zerocopy sent: it does so on loopback, and \
                 for devices without scatter-gather"
            ),
            Warning::ZeroCopyRefused { host, refused, of } => write!(
                f,
                "the kernel of {host} refused {refused} of {of} zerocopy sends, which were made with \
                 a copy: on {host} raise net.core.optmem_max, or as an ordinary user the limit of \
                 locked memory (ulimit -l)"
            ),
            Warning::Discarded => f.write_str(
                "discard: received bytes were dropped in the kernel and never copied to the \
                 receiver, as no program that uses its data can do",
            ),
            Warning::NoEffect { host, option, reason } => {
                write!(f, "{option} had no effect at {host}: {reason}")
            }
            Warning::NothingMoved => f.write_str("nothing moved in the window"),
            Warning::StrangersRefused { host, connections } => write!(
                f,
                "{host} turned away {connections} connections that are not part of this run"
            ),
            Warning::MoreWorkersThanCpus { host, workers, cpus } => write!(
                f,
                "{host} runs {workers} workers on {cpus} CPUs because a process may hold no more \
                 descriptors for each"
            ),
        }
    }
}

/// A warning as JSON documents carry it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Entry {
    pub code: String,
    pub message: String,
}

impl From<&Warning> for Entry {
    fn from(warning: &Warning) -> Self {
        Self { code: warning.code().to_owned(), message: warning.to_string() }
    }
}
