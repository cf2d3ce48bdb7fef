//! What took the CPUs, or left too few of them.

use serde::{Deserialize, Serialize};

use super::Problem;
use crate::units;

/// A worker's thread used (nearly) all of its CPU time: the load generator may be the limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SaturatedWorker {
    pub host: String,
    pub worker: u32,
    pub cpu: Option<u32>,
    pub busy: f64,
}

impl Problem for SaturatedWorker {
    fn code(&self) -> &'static str {
        "saturated-worker"
    }

    fn host(&mut self) -> Option<&mut String> {
        Some(&mut self.host)
    }

    fn message(&self) -> String {
        let Self { host, worker, cpu, busy } = self;
        let on = cpu.map_or_else(String::new, |cpu| format!(" (CPU {cpu})"));
        format!(
            "worker {worker} of {host}{on} was busy {:.0}% of the window: the load generator may be \
             the bottleneck instead of the path; try more strands and workers (--connections, \
             --workers)",
            busy * 100.0
        )
    }

    fn brief(&self) -> String {
        let Self { host, worker, cpu, busy } = self;
        let on = cpu.map_or_else(String::new, |cpu| format!(" (CPU {cpu})"));
        format!("worker {worker} of {host}{on} was busy {:.0}% of the window", busy * 100.0)
    }
}

/// A program translates the instructions of a host's CPUs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EmulatedCpu {
    pub host: String,
}

impl Problem for EmulatedCpu {
    fn code(&self) -> &'static str {
        "emulated-cpu"
    }

    fn host(&mut self) -> Option<&mut String> {
        Some(&mut self.host)
    }

    fn message(&self) -> String {
        let Self { host } = self;
        format!(
            "software emulates the CPUs of {host}: its rates, CPU times and latencies say nothing about \
             hardware, and findings do not use them"
        )
    }

    fn brief(&self) -> String {
        format!("software emulates the CPUs of {}", self.host)
    }
}

/// The hypervisor took CPU time away.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Steal {
    pub host: String,
    pub percent: f64,
}

impl Problem for Steal {
    fn code(&self) -> &'static str {
        "steal"
    }

    fn host(&mut self) -> Option<&mut String> {
        Some(&mut self.host)
    }

    fn message(&self) -> String {
        let Self { host, percent } = self;
        format!(
            "the hypervisor took {percent:.1}% of {host}'s CPU time: other guests affect this result; \
             repeat it on an idle machine"
        )
    }

    fn brief(&self) -> String {
        let Self { host, percent } = self;
        format!("the hypervisor took {percent:.1}% of {host}'s CPU time")
    }
}

/// CPU time that /proc/stat shows nowhere; below 0, what it shows too much.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UnaccountedCpu {
    pub host: String,
    pub percent: f64,
}

impl Problem for UnaccountedCpu {
    fn code(&self) -> &'static str {
        "unaccounted-cpu"
    }

    fn host(&mut self) -> Option<&mut String> {
        Some(&mut self.host)
    }

    fn message(&self) -> String {
        let Self { host, percent } = self;
        let coarse = "its ticks are too coarse for this load; use a longer --duration";
        if *percent < 0.0 {
            let more = -percent;
            format!("/proc/stat shows {more:.1}% more CPU time of {host} than elapsed: {coarse}")
        } else {
            format!("/proc/stat does not account for {percent:.1}% of {host}'s CPU time: {coarse}")
        }
    }

    fn brief(&self) -> String {
        let Self { host, percent } = self;
        match *percent < 0.0 {
            true => format!("/proc/stat overstates the CPU time of {host} by {:.1}%", -percent),
            false => format!("/proc/stat lacks {percent:.1}% of the CPU time of {host}"),
        }
    }
}

/// Programs that are not part of the run used CPU time, which is in its cost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ForeignCpu {
    pub host: String,
    pub percent: f64,
    pub programs: Vec<String>,
}

impl Problem for ForeignCpu {
    fn code(&self) -> &'static str {
        "foreign-cpu"
    }

    fn host(&mut self) -> Option<&mut String> {
        Some(&mut self.host)
    }

    fn message(&self) -> String {
        let Self { host, percent, programs } = self;
        format!(
            "other programs used {percent:.1}% of the busy CPU time of {host} ({}), and the cost \
             includes it: end them, or give the run CPUs of its own",
            programs.join(", ")
        )
    }

    fn brief(&self) -> String {
        let Self { host, percent, programs } = self;
        let first = programs.first().map_or_else(String::new, |name| format!(" ({name})"));
        format!("other programs used {percent:.1}% of the busy CPU time of {host}{first}")
    }
}

/// A worker was ready to run and had no CPU, of the workers of a host the one that waited longest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkerWaited {
    pub host: String,
    pub worker: u32,
    pub cpu: Option<u32>,
    /// Of the window.
    pub percent: f64,
    /// Part of it after another task took the CPU.
    pub preempted_percent: f64,
    /// For whom, those of most time first.
    pub waited_for: Vec<String>,
    /// Other workers of the host to which the same happened.
    pub further: u32,
}

impl Problem for WorkerWaited {
    fn code(&self) -> &'static str {
        "worker-waited"
    }

    fn host(&mut self) -> Option<&mut String> {
        Some(&mut self.host)
    }

    fn message(&self) -> String {
        let (brief, preempted) = (self.brief(), self.preempted_percent);
        let further = match self.further {
            0 => String::new(),
            further => {
                format!(
                    "; so did {}",
                    units::counted(further.into(), "other worker", "other workers")
                )
            }
        };
        format!(
            "{brief} (by cause: {}), of which {preempted:.1}% after preemptions{further}: latencies include these waits; \
             use dedicated CPUs for the run, or fewer workers",
            self.waited_for.join(", ")
        )
    }

    fn brief(&self) -> String {
        let Self { host, worker, cpu, percent, .. } = self;
        let on = cpu.map_or_else(String::new, |cpu| format!(" (CPU {cpu})"));
        format!("worker {worker} of {host}{on} waited {percent:.1}% of the window for a CPU")
    }
}

/// Hosts play on one machine that has fewer CPUs than hosts, so cost per host is not known.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SharedCpus {
    pub machine: String,
    pub hosts: u32,
    pub cpus: u32,
}

impl Problem for SharedCpus {
    fn code(&self) -> &'static str {
        "shared-cpus"
    }

    fn message(&self) -> String {
        let Self { machine, hosts, cpus } = self;
        format!(
            "{hosts} hosts share the {cpus} CPUs of {machine}: the cost is known for the machine, not \
             for each host"
        )
    }

    fn brief(&self) -> String {
        let Self { machine, hosts, cpus } = self;
        format!(
            "{hosts} hosts share the {cpus} CPUs of {machine}: the cost of each host is unknown"
        )
    }
}

/// Workers beyond the CPUs were needed for descriptors.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MoreWorkersThanCpus {
    pub host: String,
    pub workers: u32,
    pub cpus: u32,
}

impl Problem for MoreWorkersThanCpus {
    fn code(&self) -> &'static str {
        "more-workers-than-cpus"
    }

    fn host(&mut self) -> Option<&mut String> {
        Some(&mut self.host)
    }

    fn message(&self) -> String {
        let Self { host, workers, cpus } = self;
        format!(
            "{host} runs {workers} workers on {cpus} CPUs because of the descriptor limit of a process \
             (ulimit -n)"
        )
    }

    fn brief(&self) -> String {
        let Self { host, workers, cpus } = self;
        format!("{host} runs {workers} workers on {cpus} CPUs")
    }
}

/// Threads of the kernel that spin for an engine's operations share CPUs with the workers that they serve, or
/// with another host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PollersShareCpus {
    pub host: String,
    pub engine: String,
}

impl Problem for PollersShareCpus {
    fn code(&self) -> &'static str {
        "pollers-share-cpus"
    }

    fn host(&mut self) -> Option<&mut String> {
        Some(&mut self.host)
    }

    fn message(&self) -> String {
        let Self { host, engine } = self;
        format!(
            "the kernel threads of engine {engine} on {host} spin on CPUs that workers need, so the result \
             shows how the scheduler divides them: use at least 2 CPUs for each worker, which no other \
             host uses, or engine io_uring"
        )
    }

    fn brief(&self) -> String {
        let Self { host, engine } = self;
        format!("kernel threads of engine {engine} on {host} spin on CPUs that workers need")
    }
}

/// Emulated links released frames late, or lost some.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LinkLate {
    /// Share of frames with an error of more than a millisecond.
    pub late: f64,
    /// 99th percentile of the errors, microseconds.
    pub p99: f64,
    /// Frames that hosts did not take, or dropped before the emulator read them.
    pub lost: u64,
}

impl Problem for LinkLate {
    fn code(&self) -> &'static str {
        "link-late"
    }

    fn message(&self) -> String {
        format!(
            "{}: what the links did to the traffic is not what was asked; lower the rate, give the \
             machine more CPUs, or stop other programs",
            self.brief()
        )
    }

    fn brief(&self) -> String {
        let Self { late, p99, lost } = self;
        let lost = match lost {
            0 => String::new(),
            frames => {
                format!(", {} lost", units::counted(*frames, "frame", "frames"))
            }
        };
        format!(
            "the emulated links fell behind: {:.1}% of the frames had an error of more than 1 ms (p99 {}){lost}",
            late * 100.0,
            units::latency(*p99)
        )
    }
}

/// The emulator of the links did not answer, so what it did is not known.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LinkUnmeasured {}

impl Problem for LinkUnmeasured {
    fn code(&self) -> &'static str {
        "link-unmeasured"
    }

    fn message(&self) -> String {
        format!(
            "{}: its CPU time is in the costs of hosts and machines, and frames that it lost or released late \
             are not known; give the machine more CPUs, or stop other programs",
            self.brief()
        )
    }

    fn brief(&self) -> String {
        "the emulator of the links did not answer twice during the window".to_owned()
    }
}

/// The queueing disciplines that make the links were not found twice, so it is not known what the links were.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LinkQdiscsUnread {}

impl Problem for LinkQdiscsUnread {
    fn code(&self) -> &'static str {
        "link-qdiscs-unread"
    }

    fn message(&self) -> String {
        format!(
            "{}: the links may have been others than those of the lab; `wirecost lab down`, then create the lab \
             again, and leave the devices of its switch alone",
            self.brief()
        )
    }

    fn brief(&self) -> String {
        "the queueing disciplines of the links could not be read twice during the window".to_owned()
    }
}

/// Other measuring runs used the same CPUs at the same time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SharedMachine {
    pub host: String,
    pub others: Vec<String>,
}

impl Problem for SharedMachine {
    fn code(&self) -> &'static str {
        "shared-machine"
    }

    fn host(&mut self) -> Option<&mut String> {
        Some(&mut self.host)
    }

    fn message(&self) -> String {
        let Self { host, others } = self;
        format!(
            "other measuring runs used CPUs of {host} at the same time, and the figures include \
             their effect: {}; run one at a time, or give each CPUs of its own",
            others.join("; ")
        )
    }

    fn brief(&self) -> String {
        let Self { host, .. } = self;
        format!("other measuring runs used CPUs of {host} at the same time")
    }
}
