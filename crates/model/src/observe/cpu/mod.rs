//! Where the time of CPUs went.

mod document;
mod samples;

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Observation;
use crate::document::Section;
use crate::sample::{Rows, SampleName};
use crate::units::count;
pub use samples::{CpuSamples, SampledCpu, SampledPart};

/// Names of the kernel's softirq vectors, in their order:
/// <https://elixir.bootlin.com/linux/v6.12/source/include/linux/interrupt.h#L547>.
pub const SOFTIRQS: [&str; 10] =
    ["hi", "timer", "net_tx", "net_rx", "block", "irq_poll", "tasklet", "sched", "hrtimer", "rcu"];

/// Seconds of one softirq vector.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SoftirqTime {
    pub vector: String,
    pub seconds: f64,
}

/// Where the time of one CPU went, or of several: the parts add up to `wall`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct CpuTime {
    /// None for a sum.
    pub cpu: Option<u32>,
    pub wall: f64,
    /// Halted.
    pub idle: f64,
    /// In the idle loop on the way into or out of the halt: work, though no task runs. Null where the
    /// kernel does not tell, and then in `idle`.
    pub idle_loop: Option<f64>,
    /// Tasks, kernel threads included, without what interrupts them.
    pub task: f64,
    /// Interrupts, without softirqs.
    pub irq: f64,
    pub softirq: f64,
    pub softirqs: Vec<SoftirqTime>,
    /// Part of `softirq` that ksoftirqd ran rather than the end of an interrupt or of a system call.
    pub in_ksoftirqd: Option<f64>,
    /// Part of `irq` and `softirq` that came while the CPU was idle, and took no task's time.
    pub in_idle: Option<f64>,
    /// The same of `irq` alone; null in older records.
    #[serde(default)]
    pub irq_in_idle: Option<f64>,
    /// From one task to another. Null where it is not counted by CPU.
    pub switches: Option<u64>,
    /// Part of all of the above that the hypervisor gave to others, as /proc/stat counts it.
    pub steal: Option<f64>,
}

/// How the time of tasks divides.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UsrSys {
    /// `sampled`, `spans` (every system call timed: exact) or `proc-stat`.
    pub source: String,
    /// Share of task time in user space, 0 to 1.
    pub usr: f64,
    /// 95% interval of `usr`.
    pub interval: Option<(f64, f64)>,
    /// Number of samples that this rests on; 0 where it is exact.
    pub samples: u64,
}

/// CPU time of one process or kernel thread, by the kernel's own clock of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessTime {
    pub pid: u32,
    pub name: String,
    pub kernel_thread: bool,
    /// What a process of wirecost does: its command (`run`, `agent`, `observe`), `agent of HOST`, or
    /// `controller` of this run, where that started the agent. Null for others, and in older records.
    #[serde(default)]
    pub role: Option<String>,
    pub seconds: f64,
}

/// CPU time of programs that ended in the window.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct EndedPrograms {
    /// Of all, also of those not listed.
    pub seconds: f64,
    /// Those that used most, most first.
    pub programs: Vec<EndedProgram>,
}

/// CPU time of the processes of one name, or threads of the kernel, that ended in the window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EndedProgram {
    pub name: String,
    pub kernel_thread: bool,
    /// How many of them ended.
    pub processes: u64,
    pub seconds: f64,
}

/// Who used CPU time: a process, or the programs of one name that ended.
#[derive(Debug, Clone, PartialEq)]
pub struct CpuUser<'a> {
    pub name: &'a str,
    /// `None` of programs that ended.
    pub pid: Option<u32>,
    pub kernel_thread: bool,
    /// What a process of wirecost does, or how many ended: `agent of h1`, `12 ended`.
    pub remark: Option<Cow<'a, str>>,
    pub seconds: f64,
}

/// How far the kernel's tick-sampled figures were off, percent of the wall.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TickError {
    pub busy: f64,
    pub softirq: f64,
    pub irq: f64,
    pub idle: f64,
    /// Time that /proc/stat shows nowhere.
    pub unaccounted: f64,
}

/// What the probe `cpu` says.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct CpuSection {
    /// `bpf` (every transition timed) or `proc-stat` (sampled by ticks).
    pub source: String,
    pub total: CpuTime,
    pub per_cpu: Vec<CpuTime>,
    /// Where `usr_sys` comes from: `sampled`, `spans` or `proc-stat`.
    pub usr_sys_source: Option<String>,
    /// Null where neither samples nor ticks tell.
    pub usr_sys: Option<UsrSys>,
    /// The same by CPU, in the order of `per_cpu`; null without samples there.
    pub usr_sys_per_cpu: Vec<Option<UsrSys>>,
    /// Those that used most, most first.
    pub processes: Vec<ProcessTime>,
    /// Seconds of all processes together, also of those not listed.
    pub processes_total: f64,
    /// Programs that ended in the window. Null where tasks were not traced, in another PID namespace
    /// than the first, where only one process was observed, and in older records.
    #[serde(default)]
    pub ended: Option<EndedPrograms>,
    /// Seconds of programs that are in neither list because others used more: no kernel threads, and no
    /// processes of wirecost. Null in older records.
    #[serde(default)]
    pub unlisted_programs: Option<f64>,
    /// Seconds of tasks that are none of these: of processes in other PID namespaces, and of programs
    /// that ended without a trace (in older records, all that ended). Null where tasks were not traced,
    /// or only one process was observed, and in older records.
    #[serde(default)]
    pub unseen_processes: Option<f64>,
    /// Counts a second of the time-stamp counter, measured over the window.
    pub tsc_hz: Option<f64>,
    /// /proc/stat minus what was traced; null where nothing was traced.
    pub tick_error: Option<TickError>,
    /// Null where nothing was traced: /proc/stat does not tell such short times. A record has them in `cpu_parts.json`.
    /// Null in older records.
    #[serde(default)]
    pub samples: Option<CpuSamples>,
}

/// Whether a kernel thread of this name works for storage. A thread of a workqueue is named for its last work
/// (<https://elixir.bootlin.com/linux/v6.12/source/kernel/workqueue.c#L6328>): `kworker/u8:1-flush-254:0` writes the page cache back.
fn is_of_storage(name: &str) -> bool {
    let work = name
        .strip_prefix("kworker/")
        .map(|rest| rest.split_once(['-', '+']).map_or("", |(_, work)| work));
    match work {
        Some(work) => ["flush", "kblockd", "dio", "loop", "ext4", "xfs", "btrfs", "dm_", "kcryptd"]
            .iter()
            .any(|queue| work.starts_with(queue)),
        None => ["jbd2/", "xfsaild/", "loop", "btrfs-", "dmcrypt_write"]
            .iter()
            .any(|start| name.starts_with(start)),
    }
}

/// The role of the controller that started the agent which tells of it.
pub const CONTROLLER: &str = "controller";

impl CpuUser<'_> {
    /// Whether it is the controller of the run, which is part of it.
    #[must_use]
    pub fn is_controller(&self) -> bool {
        self.pid.is_some() && self.remark.as_deref() == Some(CONTROLLER)
    }

    /// `wirecost agent of h1`, `rustc (12 ended)`.
    #[must_use]
    pub fn title(&self) -> String {
        match (&self.remark, self.pid) {
            (None, _) => self.name.to_owned(),
            (Some(remark), Some(_)) => format!("{} {remark}", self.name),
            (Some(remark), None) => format!("{} ({remark})", self.name),
        }
    }
}

impl Observation for CpuSection {
    fn sample_names() -> Vec<SampleName> {
        samples::names()
    }

    fn samples(&self, rows: &mut Rows<'_>) {
        if let Some(samples) = &self.samples {
            samples.add_to(rows);
        }
    }

    fn document(&self) -> Vec<Section> {
        document::sections(self)
    }
}

impl CpuSection {
    /// Seconds of the listed kernel threads that write files back or serve block devices, and those of the CPUs.
    ///
    /// # Errors
    /// No thread is listed, so nothing is known.
    pub fn storage_threads_time(&self) -> Result<(f64, f64), String> {
        let users = self.users();
        if users.is_empty() {
            return Err("no threads are listed".to_owned());
        }
        let of_storage = users.iter().filter(|user| user.kernel_thread && is_of_storage(user.name));
        let seconds = of_storage.fold(0.0, |sum, user| sum + user.seconds);
        Ok((seconds, self.total.wall))
    }

    /// All that are listed, those that used most first.
    #[must_use]
    pub fn users(&self) -> Vec<CpuUser<'_>> {
        let alive = self.processes.iter().map(|process| CpuUser {
            name: &process.name,
            pid: Some(process.pid),
            kernel_thread: process.kernel_thread,
            remark: process.role.as_deref().map(Cow::Borrowed),
            seconds: process.seconds,
        });
        let ended = self.ended.iter().flat_map(|ended| &ended.programs);
        let ended = ended.map(|program| CpuUser {
            name: &program.name,
            pid: None,
            kernel_thread: program.kernel_thread,
            remark: Some(Cow::Owned(format!("{} ended", count(program.processes)))),
            seconds: program.seconds,
        });
        let mut users: Vec<_> = alive.chain(ended).collect();
        users.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        users
    }

    /// Those that used most, of the whole machine; none where none used much.
    #[must_use]
    pub fn processes_document(&self) -> Option<Section> {
        document::processes(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_storage_are_known_by_the_work_that_they_are_named_for() {
        for name in [
            "kworker/u8:1-flush-254:0",
            "kworker/1:1H-kblockd",
            "kworker/0:2+dio/vda",
            "jbd2/vda-8",
            "loop0",
        ] {
            assert!(is_of_storage(name), "{name}");
        }
        for name in [
            "kworker/u8:1-events_unbound",
            "kworker/0:0",
            "ksoftirqd/0",
            "kswapd0",
            "kworker/1:0-mm_percpu_wq",
        ] {
            assert!(!is_of_storage(name), "{name}");
        }
        let thread = |name: &str, kernel_thread, seconds| ProcessTime {
            pid: 1,
            name: name.to_owned(),
            kernel_thread,
            role: None,
            seconds,
        };
        let section = CpuSection {
            total: CpuTime { wall: 20.0, ..CpuTime::default() },
            processes: vec![
                thread("kworker/u8:1-flush-254:0", true, 1.5),
                thread("jbd2/vda-8", true, 0.5),
                thread("loop0", false, 4.0),
                thread("wirecost", false, 9.0),
            ],
            ..CpuSection::default()
        };
        assert_eq!(section.storage_threads_time(), Ok((2.0, 20.0)));
        assert!(CpuSection::default().storage_threads_time().is_err());
    }
}
