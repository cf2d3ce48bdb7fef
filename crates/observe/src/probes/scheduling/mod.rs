//! How long threads wait for a CPU, who wakes them, and who takes their CPU. The hooks are the tracker's.

mod threads;

use std::collections::{BTreeMap, BTreeSet};

use wirecost_linux::process_time;
use wirecost_linux::thread::SchedStat;
use wirecost_model::clock::{Nanos, seconds};
use wirecost_model::observe::{
    CpuHolder, HostObservation, OtherTasks, Part, PartialWaits, SchedulingSection,
    ThreadScheduling, WaitTimes, WakeupCounts,
};

use crate::probe::{Description, Edge, Extent, Probe, Session, Sets, Shared, Unavailable};
use crate::tracker::{
    Held, Holding, Queue, Thread, ThreadState, Tracker, TrackerNeeds, Waits, Waker,
};
use threads::Watched;

/// `ended` of a thread that has left its CPU for the last time, as scheduling.h has it.
const GONE: u32 = 2;
/// Threads that the kernel's table holds.
const MOST_THREADS: usize = 4_096;
/// Tasks that are listed of each thread.
const LISTED: usize = 16;

#[derive(Debug)]
pub(crate) struct Scheduling;

impl Probe for Scheduling {
    fn name(&self) -> &'static str {
        "scheduling"
    }

    fn about(&self) -> Description {
        Description {
            tells: "of each worker of a run, or each thread of the process that is observed: how long it \
                    waited for a CPU after wake-ups and preemptions (histogram), for whom, what woke \
                    it, migrations; the same of all other tasks together",
            needs: "BPF with BTF (root, or CAP_BPF and CAP_PERFMON); waits need a kernel with \
                    CONFIG_SCHED_INFO",
            costs: "in addition to the hooks of `cpu`, 0.1 us at each context switch and 0.1 us at \
                    each wake-up",
            limitations: "threads that begin in the window, and those of other PID namespaces, are other \
                    tasks; a yield counts as a preemption; a thread that takes the CPU when it is woken \
                    has a wait of 0 in the kernel's count: see its time from wake-up to run",
        }
    }

    fn sets(&self) -> Sets {
        Sets { standard: None, full: Some(Extent::Whole) }
    }

    fn ask_tracker(&self, wants: &mut TrackerNeeds) {
        wants.scheduling = true;
    }

    fn open(&self, shared: &mut Shared) -> Result<Box<dyn Session>, Unavailable> {
        let tracker = shared.need_tracker()?;
        match tracker.follows_scheduling() {
            Ok(_) => Ok(Box::new(Watch {
                counts_waits: SchedStat::own().now().is_some(),
                ..Watch::default()
            })),
            Err(reason) => Err(Unavailable::Other(reason.to_owned())),
        }
    }
}

#[derive(Debug, Default)]
struct Watch {
    /// Whether the kernel counts waits.
    counts_waits: bool,
    watched: BTreeMap<u32, Watched>,
    begin: Nanos,
    end: Nanos,
    counted: Option<Counted>,
    missing: Vec<String>,
}

/// What the tracker counted in the window.
#[derive(Debug)]
struct Counted {
    threads: BTreeMap<u32, Thread>,
    holders: BTreeMap<Holding, Held>,
    others: BTreeMap<u32, Queue>,
    /// Threads that nothing was seen of and that are ready to run: they waited all the time.
    starved: BTreeSet<u32>,
}

impl Counted {
    fn read(tracker: &Tracker) -> Result<Self, String> {
        let read = || {
            let threads = tracker.threads()?;
            let unseen = threads.iter().filter(|(_, of)| of.state() == ThreadState::Unseen);
            let starved = unseen.filter(|(id, of)| of.waking == 0 && threads::is_ready(**id));
            Ok(Self {
                starved: starved.map(|(id, _)| *id).collect(),
                threads,
                holders: tracker.holders()?,
                others: tracker.other_tasks()?,
            })
        };
        read().map_err(|error: crate::bpf::BpfError| error.to_string())
    }
}

impl Session for Watch {
    fn attach(&mut self, shared: &Shared) -> Result<(), Unavailable> {
        self.missing.clear();
        self.counted = None;
        let tracker = shared.tracker().ok_or_else(|| {
            Unavailable::Other(shared.tracker_error().unwrap_or("nothing is traced").to_owned())
        })?;
        // The kernel knows threads by their numbers in the first PID namespace.
        self.watched = match process_time::in_first_pid_namespace() {
            true => threads::of(shared.parts()),
            false => {
                self.missing.push(
                    "single threads: this process is in a PID namespace of its own, and the kernel \
                     numbers threads otherwise"
                        .to_owned(),
                );
                BTreeMap::new()
            }
        };
        if self.watched.len() > MOST_THREADS {
            let more = self.watched.len() - MOST_THREADS;
            self.missing.push(format!("{more} threads by themselves: more than {MOST_THREADS}"));
            self.watched =
                std::mem::take(&mut self.watched).into_iter().take(MOST_THREADS).collect();
        }
        if !self.counts_waits {
            self.missing.push("waits for a CPU: this kernel lacks CONFIG_SCHED_INFO".to_owned());
        }
        let numbers: Vec<u32> = self.watched.keys().copied().collect();
        Ok(tracker.watch_threads(&numbers)?)
    }

    fn edge(&mut self, _shared: &Shared, at: Nanos, edge: Edge) {
        match edge {
            Edge::Begin => self.begin = at,
            Edge::End => self.end = at,
        }
    }

    fn end(&mut self, shared: &Shared, _at: Nanos) {
        let counted = match shared.tracker() {
            Some(tracker) => Counted::read(tracker),
            None => Err(shared.tracker_error().unwrap_or("nothing was traced").to_owned()),
        };
        match counted {
            Ok(counted) => self.counted = Some(counted),
            Err(error) => self.missing.push(error),
        }
    }

    fn fill(&mut self, _shared: &Shared, part: &Part, into: &mut HostObservation) {
        let Some(counted) = &self.counted else { return };
        let wanted = |cpu: u32| part.cpus.as_ref().is_none_or(|cpus| cpus.contains(&cpu));
        let of_part = self.watched.iter().filter(|(_, watched)| watched.is_of(part));
        let mut threads: Vec<ThreadScheduling> = of_part
            .filter_map(|(id, watched)| {
                Some(self.thread(*id, watched, counted.threads.get(id)?, counted))
            })
            .collect();
        threads.sort_by(|a, b| {
            (&a.host, a.worker, a.process, a.thread).cmp(&(&b.host, b.worker, b.process, b.thread))
        });
        let others = counted.others.iter().filter(|(cpu, _)| wanted(**cpu));
        into.scheduling = Some(SchedulingSection {
            seconds: seconds(self.end.saturating_sub(self.begin)),
            threads,
            others: self.others(others.map(|(_, queue)| queue)),
        });
    }

    fn missing(&self) -> Vec<String> {
        self.missing.clone()
    }
}

impl Watch {
    fn thread(
        &self,
        id: u32,
        watched: &Watched,
        of: &Thread,
        counted: &Counted,
    ) -> ThreadScheduling {
        let open = self.open(of, counted.starved.contains(&id));
        let open_ns = open.unwrap_or(0);
        let of_thread = counted.holders.iter().filter(|(holding, _)| holding.waiting == id);
        let still_preempted = of.state() == ThreadState::Preempted;
        let is_named = counted.holders.contains_key(&Holding { waiting: id, holder: of.holder });
        let open_for = (still_preempted && is_named).then_some((of.holder, open_ns));
        let unlisted = of.unlisted_ns + if open_for.is_none() { open_ns } else { 0 };
        ThreadScheduling {
            host: watched.worker.as_ref().map(|(host, _)| host.clone()),
            worker: watched.worker.as_ref().map(|(_, number)| *number),
            name: watched.name.clone(),
            process: watched.process,
            thread: id,
            cpu: (of.state() != ThreadState::Unseen).then_some(of.cpu),
            ended: of.ended != 0,
            wakeups: wakeups(&of.wakeups),
            run_queue: self.counts_waits.then(|| wait_times(&of.queue)),
            wakeup_latency: wait_times(&of.wake),
            began_before: PartialWaits { count: of.early, seconds: seconds(of.early_ns) },
            open_at_end: PartialWaits { count: open.is_some().into(), seconds: seconds(open_ns) },
            preemptions: of.preemptions,
            preempted_seconds: self
                .counts_waits
                .then(|| seconds(of.preempted + if still_preempted { open_ns } else { 0 })),
            sleeps: of.slept,
            migrations: of.migrations,
            waited_for: holders(
                of_thread.map(|(holding, held)| (holding.holder, held)),
                &self.watched.values().map(|watched| watched.process).collect(),
                open_for,
            ),
            waited_for_no_task: PartialWaits { count: of.alone, seconds: seconds(of.alone_ns) },
            unlisted_seconds: seconds(unlisted),
        }
    }

    /// The wait that the window's end cut off: nanoseconds of it in the window.
    fn open(&self, of: &Thread, starved: bool) -> Option<Nanos> {
        let since = match of.state() {
            ThreadState::Preempted => of.left,
            ThreadState::Sleeps | ThreadState::Unseen if of.waking > of.left => of.waking,
            ThreadState::Unseen if starved => 0,
            _ => return None,
        };
        (of.ended != GONE).then(|| self.end.saturating_sub(since.max(self.begin)))
    }

    fn others<'a>(&self, queues: impl Iterator<Item = &'a Queue>) -> OtherTasks {
        let (mut others, mut waits) = (OtherTasks::default(), Waits::default());
        let mut by = [0; 4];
        for queue in queues {
            waits.add(&queue.others);
            for (sum, count) in by.iter_mut().zip(queue.wakeups) {
                *sum += count;
            }
            others.began_before.count += queue.early;
            others.began_before.seconds += seconds(queue.early_ns);
            others.preemptions += queue.preemptions;
            others.sleeps += queue.slept;
            others.migrations += queue.migrations;
            others.unobserved += queue.unmatched;
        }
        others.wakeups = wakeups(&by);
        others.run_queue = self.counts_waits.then(|| wait_times(&waits));
        others
    }
}

fn wakeups(by: &[u64; 4]) -> WakeupCounts {
    let of = |waker: Waker| by[waker as usize];
    WakeupCounts {
        total: by.iter().sum(),
        by_task: of(Waker::Task),
        by_softirq: of(Waker::Softirq),
        by_interrupt: of(Waker::Irq),
        by_idle: of(Waker::Idle),
    }
}

fn wait_times(waits: &Waits) -> WaitTimes {
    WaitTimes::new(waits.histogram(), waits.ns, waits.max)
}

/// Tasks by the name of their process, or of their thread in `own` processes; those of most time first. `open` is a wait for one of them that has not ended.
fn holders<'a>(
    all: impl Iterator<Item = (u32, &'a Held)>,
    own: &BTreeSet<u32>,
    open: Option<(u32, Nanos)>,
) -> Vec<CpuHolder> {
    let mut by_name: BTreeMap<(String, bool), CpuHolder> = BTreeMap::new();
    for (task, held) in all {
        // Threads of many programs have names that tell nobody what program it is.
        let name = match own.contains(&held.process) {
            true => held.name(),
            false => held.process_name(),
        };
        let kernel_thread = held.kernel != 0;
        let holder = by_name.entry((name.clone(), kernel_thread)).or_insert_with(|| CpuHolder {
            name,
            process: Some(held.process),
            kernel_thread,
            ..CpuHolder::default()
        });
        if holder.process != Some(held.process) {
            holder.process = None;
        }
        let open = open.filter(|(holder, _)| *holder == task).map_or(0, |(_, ns)| ns);
        holder.preemptions += held.preemptions;
        holder.preempted_seconds += seconds(held.preempted + open);
        holder.waits += held.waits;
        holder.waited_seconds += seconds(held.waited);
    }
    let mut all: Vec<CpuHolder> =
        by_name.into_values().filter(|holder| holder.seconds() > 0.0).collect();
    all.sort_by(|a, b| b.seconds().total_cmp(&a.seconds()));
    all.truncate(LISTED);
    all
}
