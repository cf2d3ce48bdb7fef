//! How the scheduler treated the threads of interest: how long they waited for a CPU, who woke them, and who took
//! their CPU.

mod document;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{MetricDef, MetricScope, Observation, Value, reading};
use crate::document::Section;
use crate::histogram::Histogram;
use crate::metric::Better::Lower;
use crate::metric::Unit::{Microseconds, PerSecond, Percent};

/// What the probe `scheduling` says.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct SchedulingSection {
    /// Length of the window.
    pub seconds: f64,
    /// The workers of a run, or the threads of the process that was asked for; none where neither is known.
    pub threads: Vec<ThreadScheduling>,
    /// All other tasks on these CPUs together.
    pub others: OtherTasks,
}

/// One thread.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct ThreadScheduling {
    /// Host of the run that it is a worker of; null where it is none.
    pub host: Option<String>,
    /// Number of the worker; null where it is none.
    pub worker: Option<u32>,
    pub name: String,
    pub process: u32,
    pub thread: u32,
    /// Where it last came to run; null where it did not.
    pub cpu: Option<u32>,
    /// Whether it ended in the window.
    pub ended: bool,
    pub wakeups: WakeupCounts,
    /// Waits for a CPU, from the wake-up on the CPU where it runs, or the preemption, until it ran. Null where the
    /// kernel does not count them (`CONFIG_SCHED_INFO`), as everything that is made of them.
    pub run_queue: Option<WaitTimes>,
    /// From each wake-up until it ran: the way to the other CPU and its return from idle included.
    pub wakeup_latency: WaitTimes,
    /// Waits that began before the window and ended in it, and those that had not ended with it. Only the part in the
    /// window counts; they are not in `run_queue`.
    pub began_before: PartialWaits,
    pub open_at_end: PartialWaits,
    /// Times that it left its CPU to another task though it was ready to run. Yields are among them (sched_yield(2)).
    pub preemptions: u64,
    /// Until it ran again.
    pub preempted_seconds: Option<f64>,
    /// Times that it left its CPU to wait for something else.
    pub sleeps: u64,
    /// Times that it was moved to another CPU.
    pub migrations: u64,
    /// Tasks that had the CPU meanwhile, those of most time first: of a preemption, which took the CPU; after a
    /// wake-up, which had it last.
    pub waited_for: Vec<CpuHolder>,
    /// Waits after wake-ups on a CPU that ran no other task: for interrupts, softirqs and the return from idle.
    pub waited_for_no_task: PartialWaits,
    /// Waits for tasks that are unknown, or not in `waited_for` as there were too many.
    pub unlisted_seconds: f64,
}

/// Wake-ups, by what the CPU did that woke.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct WakeupCounts {
    pub total: u64,
    /// A task: in a system call, or a thread of the kernel.
    pub by_task: u64,
    /// A softirq, also where a task's system call runs it.
    pub by_softirq: u64,
    pub by_interrupt: u64,
    /// The idle loop itself.
    pub by_idle: u64,
}

/// Completed waits.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct WaitTimes {
    pub count: u64,
    /// All of them together, exact.
    pub seconds: f64,
    /// Within 7%. Null where there was none, as `p99_us` and `max_us`.
    pub p50_us: Option<f64>,
    pub p99_us: Option<f64>,
    /// Exact.
    pub max_us: Option<f64>,
    /// Nanoseconds, each within 7%, as HdrHistogram's V2 format in base64. Those of several threads can be added.
    #[schemars(with = "String")]
    pub histogram: Histogram,
}

impl WaitTimes {
    /// Of waits of so many nanoseconds in all, the longest of `max`.
    #[must_use]
    pub fn new(histogram: Histogram, ns: u64, max: u64) -> Self {
        let us = |ns: u64| ns as f64 / 1e3;
        Self {
            count: histogram.count(),
            seconds: ns as f64 / 1e9,
            p50_us: histogram.quantile(0.5).map(|ns| us(ns.min(max))),
            p99_us: histogram.quantile(0.99).map(|ns| us(ns.min(max))),
            max_us: (!histogram.is_empty()).then(|| us(max)),
            histogram,
        }
    }
}

/// Waits of which only the time in the window is known to be in it.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct PartialWaits {
    pub count: u64,
    pub seconds: f64,
}

/// A task that had the CPU while a thread waited for it; all tasks of one name together.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct CpuHolder {
    /// Of its process; of the thread where that is a worker or in the process that is watched.
    pub name: String,
    /// Number of the process; null where there were several of this name.
    pub process: Option<u32>,
    pub kernel_thread: bool,
    /// How often it took the CPU, and how long the thread then waited.
    pub preemptions: u64,
    pub preempted_seconds: f64,
    /// How often it had the CPU when the thread was awake, and how long the thread waited.
    pub waits: u64,
    pub waited_seconds: f64,
}

impl CpuHolder {
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.preempted_seconds + self.waited_seconds
    }
}

/// All tasks that are not listed.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct OtherTasks {
    /// By these CPUs, wherever the task runs then.
    pub wakeups: WakeupCounts,
    /// A wait counts from where the task was put on the queue of its CPU: what it waited before on another queue is
    /// not in it.
    pub run_queue: Option<WaitTimes>,
    pub began_before: PartialWaits,
    pub preemptions: u64,
    pub sleeps: u64,
    pub migrations: u64,
    /// Times that such a task came to a CPU and the kernel ran no program of ours; its wait is in no figure.
    pub unobserved: u64,
}

const NOT_COUNTED: &str = "the kernel does not count waits for a CPU (CONFIG_SCHED_INFO)";

impl ThreadScheduling {
    /// `worker 0 of h1`, or the name and number of the thread.
    #[must_use]
    pub fn title(&self) -> String {
        match (&self.host, self.worker) {
            (Some(host), Some(worker)) => format!("worker {worker} of {host}"),
            _ => format!("{} ({})", self.name, self.thread),
        }
    }

    /// What it waited for a CPU in the window.
    #[must_use]
    pub fn waited_seconds(&self) -> Option<f64> {
        let run_queue = self.run_queue.as_ref()?.seconds;
        Some(run_queue + self.began_before.seconds + self.open_at_end.seconds)
    }
}

impl SchedulingSection {
    /// Part of the window that a thread waited for a CPU, in percent.
    #[must_use]
    pub fn waited_percent(&self, thread: &ThreadScheduling) -> Option<f64> {
        (self.seconds > 0.0).then_some(())?;
        Some((thread.waited_seconds()? * 100.0 / self.seconds).clamp(0.0, 100.0))
    }

    /// The tasks that a thread waited for longest, as `rustc (4711) 3.2%` of the window.
    #[must_use]
    pub fn waited_for(&self, thread: &ThreadScheduling) -> Vec<String> {
        document::holders(thread, self.seconds.max(f64::MIN_POSITIVE))
    }

    fn watched(&self) -> Result<&[ThreadScheduling], String> {
        match self.threads.is_empty() {
            true => Err("no worker and no process was watched".to_owned()),
            false => Ok(&self.threads),
        }
    }

    fn per_second(&self, count: fn(&ThreadScheduling) -> u64) -> Result<f64, String> {
        let count: u64 = self.watched()?.iter().map(count).sum();
        match self.seconds > 0.0 {
            true => Ok(count as f64 / self.seconds),
            false => Err("the window has no length".to_owned()),
        }
    }

    /// Of the waits of all threads together.
    fn p99(&self, of: fn(&ThreadScheduling) -> Option<&WaitTimes>) -> Result<f64, String> {
        let mut all = Histogram::new();
        for thread in self.watched()? {
            all.merge(&of(thread).ok_or(NOT_COUNTED)?.histogram);
        }
        all.quantile(0.99)
            .map(|ns| ns as f64 / 1e3)
            .ok_or_else(|| "there was no such wait in the window".to_owned())
    }

    fn longest_share(&self) -> Result<f64, String> {
        let shares = self.watched()?.iter().map(|thread| self.waited_percent(thread));
        let longest = shares.collect::<Option<Vec<f64>>>().ok_or(NOT_COUNTED)?;
        Ok(longest.into_iter().fold(0.0, f64::max))
    }
}

impl Observation for SchedulingSection {
    const METRICS: &'static [MetricDef<Self>] = &[
        reading(
            "scheduling.wakeups",
            PerSecond,
            Lower,
            MetricScope::Cpus,
            "wake-ups of the workers",
            Value::One(|s| s.per_second(|thread| thread.wakeups.total)),
        ),
        reading(
            "scheduling.preemptions",
            PerSecond,
            Lower,
            MetricScope::Cpus,
            "times that another task took the CPU of a worker that was ready to run",
            Value::One(|s| s.per_second(|thread| thread.preemptions)),
        ),
        reading(
            "scheduling.migrations",
            PerSecond,
            Lower,
            MetricScope::Cpus,
            "times that a worker was moved to another CPU",
            Value::One(|s| s.per_second(|thread| thread.migrations)),
        ),
        reading(
            "scheduling.run_queue_p99",
            Microseconds,
            Lower,
            MetricScope::Cpus,
            "run-queue latency: how long workers that are ready to run wait for a CPU, 99th percentile",
            Value::One(|s| s.p99(|thread| thread.run_queue.as_ref())),
        ),
        reading(
            "scheduling.wakeup_p99",
            Microseconds,
            Lower,
            MetricScope::Cpus,
            "time from a worker's wake-up until it runs, 99th percentile",
            Value::One(|s| s.p99(|thread| Some(&thread.wakeup_latency))),
        ),
        reading(
            "scheduling.waiting",
            Percent,
            Lower,
            MetricScope::Cpus,
            "part of the window that a worker waited for a CPU, of the worker that waited longest",
            Value::One(Self::longest_share),
        ),
    ];

    fn document(&self) -> Vec<Section> {
        document::sections(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metric(of: &SchedulingSection, name: &str) -> Result<f64, String> {
        let def = SchedulingSection::METRICS.iter().find(|def| def.metric.name == name);
        match def.expect(name).value {
            Value::One(read) => read(of),
            Value::Named(_) => unreachable!("none has a name"),
        }
    }

    fn waits(ns: u64, times: u64) -> WaitTimes {
        let mut histogram = Histogram::new();
        histogram.record_many(ns, times);
        WaitTimes::new(histogram, ns * times, ns)
    }

    fn worker(run_queue: WaitTimes, wakeups: u64) -> ThreadScheduling {
        ThreadScheduling {
            wakeups: WakeupCounts { total: wakeups, ..WakeupCounts::default() },
            run_queue: Some(run_queue),
            preemptions: 3,
            ..ThreadScheduling::default()
        }
    }

    #[test]
    fn figures_are_of_all_workers_together() {
        let open = PartialWaits { count: 1, seconds: 0.1 };
        let section = SchedulingSection {
            seconds: 2.0,
            threads: vec![
                worker(waits(1_000, 98), 100),
                ThreadScheduling { open_at_end: open, ..worker(waits(50_000, 2), 20) },
            ],
            ..SchedulingSection::default()
        };
        assert_eq!(metric(&section, "scheduling.wakeups"), Ok(60.0));
        assert_eq!(metric(&section, "scheduling.preemptions"), Ok(3.0));
        assert_eq!(metric(&section, "scheduling.migrations"), Ok(0.0));
        let p99 = metric(&section, "scheduling.run_queue_p99").unwrap();
        assert!((p99 - 50.0).abs() < 0.5, "two of a hundred are longer: {p99}");
        let waiting = metric(&section, "scheduling.waiting").unwrap();
        assert!((waiting - 5.005).abs() < 1e-9, "{waiting}");
        // None of them was woken.
        assert!(metric(&section, "scheduling.wakeup_p99").is_err());
    }

    #[test]
    fn what_the_kernel_does_not_count_is_not_nothing() {
        let thread = ThreadScheduling { run_queue: None, ..worker(waits(1, 1), 7) };
        let section = SchedulingSection {
            seconds: 1.0,
            threads: vec![worker(waits(1, 1), 7), thread],
            ..SchedulingSection::default()
        };
        for name in ["scheduling.run_queue_p99", "scheduling.waiting"] {
            assert_eq!(metric(&section, name), Err(NOT_COUNTED.to_owned()), "{name}");
        }
        assert_eq!(metric(&section, "scheduling.wakeups"), Ok(14.0));
        let none = SchedulingSection { seconds: 1.0, ..SchedulingSection::default() };
        for def in SchedulingSection::METRICS {
            assert!(metric(&none, def.metric.name).is_err(), "{}", def.metric.name);
        }
    }
}
