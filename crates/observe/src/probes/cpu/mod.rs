//! Where the time of every CPU went, to the nanosecond, and who used it.

use std::collections::BTreeMap;

use wirecost_linux::tsc::{self, TscReading};
use wirecost_linux::{proc_stat, process_time};
use wirecost_model::clock::{Nanos, seconds};
use wirecost_model::host::{CpuSnapshot, CpuTicks};
use wirecost_model::observe::{
    CONTROLLER, CpuSamples, CpuSection, CpuTime, EndedProgram, EndedPrograms, HostObservation,
    Part, ProcessTime, SOFTIRQS, SampledCpu, SoftirqTime, TickError, UsrSys,
};

use crate::probe::{Description, Edge, Extent, Probe, Session, Sets, Shared, Unavailable};
use crate::sampler::{Blocks, ByBlock, Context, Profile, Sampler, add_blocks};
use crate::tracker::{Counts, Cpu as Counted, EndedProcess, Samples, Times, TrackerNeeds, slot};

/// Source of a split of which every system call was timed.
const SPANS: &str = "spans";
/// Processes that are listed; the others are in the sum.
const LISTED: usize = 20;
/// A host runs several of these at once, which do different things.
const PROGRAM: &str = "wirecost";

/// Name of a process that ended before it could be read.
const ENDED: &str = "[ended]";

#[derive(Debug)]
pub(crate) struct Cpu;

impl Probe for Cpu {
    fn name(&self) -> &'static str {
        "cpu"
    }

    fn about(&self) -> Description {
        Description {
            tells: "time of every CPU in nanoseconds: idle, tasks, interrupts, each softirq; the \
                    parts add up to wall time; time by process; cycles",
            needs: "BPF with BTF (root, or CAP_BPF and CAP_PERFMON); without it, the ticks of \
                    /proc/stat. Perf events for user and system time. A PMU for counted cycles \
                    (tried on a guest with an AMD EPYC; not yet run on other hardware)",
            costs: "one program at each context switch, interrupt, softirq and halt; the samples \
                    of `functions`",
            limitations: "interrupt entry before the handler counts to the interrupted context; time \
                    that the hypervisor took counts to the running task (see steal)",
        }
    }

    fn sets(&self) -> Sets {
        Sets { standard: Some(Extent::Whole), full: Some(Extent::Whole) }
    }

    fn ask_tracker(&self, wants: &mut TrackerNeeds) {
        wants.samples = true;
    }

    fn open(&self, shared: &mut Shared) -> Result<Box<dyn Session>, Unavailable> {
        // Without the tracker the ticks are left.
        let _ = shared.need_tracker();
        // And without the sampler, how they divide task time.
        let _ = shared.need_sampler();
        Ok(Box::new(Watch { missing: missing(shared), tsc: tsc::read(), ..Watch::default() }))
    }
}

#[derive(Debug, Default)]
struct Watch {
    begin: Reading,
    end: Reading,
    /// All that used time in the window and had not ended with it, those that used most first.
    processes: Vec<ProcessTime>,
    /// Of the window, where it was traced.
    times: Option<Times>,
    missing: Vec<String>,
    /// The counter as it was when the probe was made: the rate is of all the time since, which is
    /// longer than any window.
    tsc: Option<TscReading>,
    tsc_hz: Option<f64>,
}

/// What is read at an edge of the window.
#[derive(Debug, Default)]
struct Reading {
    at: Nanos,
    ticks: Option<CpuSnapshot>,
    processes: BTreeMap<u32, Nanos>,
}

impl Session for Watch {
    fn edge(&mut self, _shared: &Shared, at: Nanos, edge: Edge) {
        // An error shows as counts that are not there.
        let ticks = proc_stat::cpu_snapshot().ok();
        let reading = Reading { at, ticks, processes: BTreeMap::new() };
        match edge {
            Edge::Begin => self.begin = reading,
            Edge::End => self.end = reading,
        }
    }

    fn begin(&mut self, _shared: &Shared, _at: Nanos) {
        self.begin.processes = process_time::cpu_times();
    }

    fn end(&mut self, shared: &Shared, _at: Nanos) {
        self.end.processes = process_time::cpu_times();
        self.times = shared.tracker().and_then(|tracker| tracker.times().ok());
        // Now, because the next may end at any time.
        self.processes = used_by(&self.begin, &self.end);
        self.tsc_hz = tsc::read().zip(self.tsc).and_then(|(now, first)| now.rate_since(&first));
        self.missing = missing(shared);
    }

    fn fill(&mut self, shared: &Shared, part: &Part, into: &mut HostObservation) {
        let read = (&self.begin, &self.end);
        let of_part = |process: &&ProcessTime| part.pid.is_none_or(|only| only == process.pid);
        let users = Users {
            processes: self.processes.iter().filter(of_part).cloned().collect(),
            // As late as can be: the kernel adds up the time of a process some milliseconds after its
            // end.
            ended: match part.pid {
                None => shared.ended().map(|processes| ended(read, processes)),
                Some(_) => None,
            },
        };
        let traced = self.times.as_ref();
        let Some(mut section) = section(read, traced, users, part, self.tsc_hz) else { return };
        // Where system calls were timed, the split is exact already. Without names of kernel
        // functions a task is not told from what interrupts it.
        let exact = section.usr_sys.as_ref().is_some_and(|split| split.source == SPANS);
        let profile = shared.sampler().and_then(Sampler::profile);
        if let Some(profile) = profile.filter(|profile| !exact && profile.nameless.is_none()) {
            let cpus: Vec<u32> = section.per_cpu.iter().filter_map(|time| time.cpu).collect();
            section.usr_sys = sampled(profile, |cpu| cpus.contains(&cpu));
            section.usr_sys_per_cpu =
                cpus.iter().map(|&only| sampled(profile, |cpu| cpu == only)).collect();
        }
        let samples = shared.tracker().and_then(|tracker| tracker.samples());
        section.samples = samples.filter(|_| traced.is_some()).map(|samples| {
            let cpus: Vec<u32> = section.per_cpu.iter().filter_map(|time| time.cpu).collect();
            over_time(samples, self.begin.at, &cpus)
        });
        section.usr_sys_source = section.usr_sys.as_ref().map(|split| split.source.clone());
        into.cpu = Some(section);
    }

    fn missing(&self) -> Vec<String> {
        self.missing.clone()
    }
}

/// What the tracker and the sampler do not tell.
fn missing(shared: &Shared) -> Vec<String> {
    let mut missing = Vec::new();
    if let Some(error) = shared.tracker_error() {
        missing.push(format!(
            "CPU time is sampled by ticks (/proc/stat), which is coarse and often wrong: {error}"
        ));
    } else if let Some(tracker) = shared.tracker() {
        let lacks: Vec<&str> = tracker.missing().iter().map(String::as_str).collect();
        if !lacks.is_empty() {
            missing.push(format!("this kernel has no tracepoint {}", lacks.join(", ")));
        }
    }
    if let Some(error) = shared.sampler_error() {
        missing.push(format!("user and system time are divided by ticks: {error}"));
    }
    missing
}

/// Who used time, those that used most first.
struct Users {
    processes: Vec<ProcessTime>,
    ended: Option<EndedPrograms>,
}

/// The section of a part of the machine, between two readings.
fn section(
    (begin, end): (&Reading, &Reading),
    times: Option<&Times>,
    users: Users,
    part: &Part,
    tsc_hz: Option<f64>,
) -> Option<CpuSection> {
    let wanted = |cpu: u32| part.cpus.as_ref().is_none_or(|cpus| cpus.contains(&cpu));
    let ticks = match (&begin.ticks, &end.ticks) {
        (Some(begin), Some(end)) => tick_times(begin, end, &wanted),
        _ => Vec::new(),
    };
    let traced = times.map(|times| traced_times(times, &wanted)).unwrap_or_default();
    // To the nanosecond, where system calls are followed.
    let spans = times.is_some_and(|times| times.calls);
    let of_spans: Vec<Option<UsrSys>> =
        traced.iter().map(|(_, spent)| exact_split([*spent])).collect();
    let usr_sys_of_all = match spans {
        true => exact_split(traced.iter().map(|(_, spent)| *spent)),
        false => usr_sys(&ticks),
    };
    let traced: Vec<CpuTime> = traced.into_iter().map(|(time, _)| time).collect();
    let wall = seconds(end.at.saturating_sub(begin.at));
    let sampled: Vec<CpuTime> = ticks.iter().map(|ticks| ticks.time(wall)).collect();
    let steal = |time: &mut CpuTime| {
        let ticks = sampled.iter().find(|ticks| ticks.cpu == time.cpu);
        time.steal = ticks.and_then(|ticks| ticks.steal);
    };
    let (source, mut per_cpu) = match traced.is_empty() {
        false => ("bpf", traced),
        true => ("proc-stat", sampled.clone()),
    };
    per_cpu.iter_mut().for_each(steal);
    if per_cpu.is_empty() {
        return None;
    }
    let total = sum(&per_cpu);
    let Users { mut processes, mut ended } = users;
    let processes_total = processes.iter().fold(0.0, |sum, process| sum + process.seconds);
    let unlisted_programs = Some(unlisted(&mut processes, ended.as_mut()));
    let of_ended = ended.as_ref().map_or(0.0, |ended| ended.seconds);
    // The clock of a process has in it what interrupted it, so it is the larger where all are seen.
    let all_tasks = times.filter(|_| part.pid.is_none()).map(|times| {
        let whole = |spent: &Counted| {
            let parts = [slot::TASK, slot::KSOFTIRQD, slot::IN_KERNEL];
            parts.into_iter().map(|slot| spent.ns[slot]).sum::<u64>()
        };
        seconds(times.cpus.values().map(whole).sum())
    });
    Some(CpuSection {
        source: source.to_owned(),
        tick_error: (source == "bpf" && !sampled.is_empty())
            .then(|| tick_error(&sum(&sampled), &total)),
        usr_sys_source: None,
        usr_sys: usr_sys_of_all,
        usr_sys_per_cpu: if spans { of_spans } else { ticks_of_each(&per_cpu, &ticks) },
        processes_total,
        unlisted_programs,
        unseen_processes: all_tasks.map(|tasks| (tasks - processes_total - of_ended).max(0.0)),
        processes,
        ended,
        tsc_hz,
        total,
        per_cpu,
        samples: None,
    })
}

/// What these CPUs did over time, from the beginning of the window on.
fn over_time(samples: &Samples, begin: Nanos, cpus: &[u32]) -> CpuSamples {
    let part = samples.part();
    let parts = samples.parts().into_iter().filter(|parts| cpus.contains(&parts.cpu));
    let sampled = parts.map(|parts| {
        let each = |of: fn(&Counts, Nanos) -> u64| {
            let value = |counts: &Option<Counts>| {
                counts.as_ref().map(|counts| u32::try_from(of(counts, part)).unwrap_or(u32::MAX))
            };
            parts.counts.iter().map(value).collect()
        };
        SampledCpu {
            cpu: parts.cpu,
            start: seconds(parts.start.saturating_sub(begin)),
            busy_us: each(|counts, part| (part.saturating_sub(counts.idle) + 500) / 1_000),
            irq_us: each(|counts, _| (counts.irq + 500) / 1_000),
            softirq_us: each(|counts, _| (counts.softirq + 500) / 1_000),
            interrupts: each(|counts, _| counts.interrupts),
        }
    });
    CpuSamples { seconds: seconds(part), cpus: sampled.collect() }
}

/// Shortens both lists, and returns the seconds of programs that are in none of them then. What the run
/// and the kernel used is not of other programs, however little it was.
fn unlisted(processes: &mut Vec<ProcessTime>, ended: Option<&mut EndedPrograms>) -> f64 {
    let rest = processes.split_off(processes.len().min(LISTED));
    let others = rest.iter().filter(|process| !process.kernel_thread && process.role.is_none());
    let alive = others.fold(0.0, |sum, process| sum + process.seconds);
    let Some(ended) = ended else { return alive };
    let rest = ended.programs.split_off(ended.programs.len().min(LISTED));
    let others = rest.iter().filter(|program| !program.kernel_thread && program.name != PROGRAM);
    others.fold(alive, |sum, program| sum + program.seconds)
}

fn traced_times<'a>(
    times: &'a Times,
    wanted: &impl Fn(u32) -> bool,
) -> Vec<(CpuTime, &'a Counted)> {
    let cpus = times.cpus.iter().filter(|(cpu, _)| wanted(**cpu));
    cpus.map(|(cpu, spent)| (traced(*cpu, spent, times.halts), spent)).collect()
}

fn traced(cpu: u32, spent: &Counted, halts: bool) -> CpuTime {
    let time = |slot: usize| seconds(spent.ns[slot]);
    let softirqs: Vec<SoftirqTime> = SOFTIRQS
        .iter()
        .enumerate()
        .map(|(vector, name)| SoftirqTime {
            vector: (*name).to_owned(),
            seconds: slot::softirq(vector).map(time).sum(),
        })
        .collect();
    CpuTime {
        cpu: Some(cpu),
        wall: seconds(spent.ns.iter().sum()),
        idle: time(slot::IDLE),
        idle_loop: halts.then(|| time(slot::IDLE_LOOP)),
        task: time(slot::TASK) + time(slot::KSOFTIRQD) + time(slot::IN_KERNEL),
        irq: slot::IRQ.map(time).sum(),
        softirq: slot::SOFTIRQS.map(time).sum(),
        softirqs,
        in_ksoftirqd: Some(slot::SOFTIRQS_IN_KSOFTIRQD.map(time).sum()),
        irq_in_idle: Some(time(slot::IRQ_IN_IDLE)),
        in_idle: Some(time(slot::IRQ_IN_IDLE) + slot::SOFTIRQS_IN_IDLE.map(time).sum::<f64>()),
        switches: Some(spent.switches),
        steal: None,
    }
}

/// Ticks of one CPU between two readings.
#[derive(Debug, Clone)]
struct Ticks {
    spent: CpuTicks,
    per_second: f64,
}

impl Ticks {
    fn time(&self, wall: f64) -> CpuTime {
        let time = |ticks: u64| ticks as f64 / self.per_second;
        CpuTime {
            cpu: Some(self.spent.cpu),
            wall,
            idle: time(self.spent.idle + self.spent.iowait),
            task: time(self.spent.user + self.spent.system),
            irq: time(self.spent.irq),
            softirq: time(self.spent.softirq),
            steal: Some(time(self.spent.steal)),
            ..CpuTime::default()
        }
    }
}

fn tick_times(begin: &CpuSnapshot, end: &CpuSnapshot, wanted: &impl Fn(u32) -> bool) -> Vec<Ticks> {
    let per_second = end.ticks_per_second as f64;
    end.ticks
        .iter()
        .filter(|after| wanted(after.cpu))
        .filter_map(|after| {
            let before = begin.ticks.iter().find(|before| before.cpu == after.cpu)?;
            Some(Ticks { spent: after.since(before), per_second })
        })
        .collect()
}

fn sum(all: &[CpuTime]) -> CpuTime {
    let mut total = CpuTime::default();
    let add = |sum: &mut Option<f64>, part: Option<f64>| {
        if let Some(part) = part {
            *sum = Some(sum.unwrap_or(0.0) + part);
        }
    };
    for time in all {
        total.wall += time.wall;
        total.idle += time.idle;
        total.task += time.task;
        total.irq += time.irq;
        total.softirq += time.softirq;
        if let Some(switches) = time.switches {
            *total.switches.get_or_insert(0) += switches;
        }
        add(&mut total.idle_loop, time.idle_loop);
        add(&mut total.in_ksoftirqd, time.in_ksoftirqd);
        add(&mut total.in_idle, time.in_idle);
        add(&mut total.irq_in_idle, time.irq_in_idle);
        add(&mut total.steal, time.steal);
        for softirq in &time.softirqs {
            match total.softirqs.iter_mut().find(|sum| sum.vector == softirq.vector) {
                Some(sum) => sum.seconds += softirq.seconds,
                None => total.softirqs.push(softirq.clone()),
            }
        }
    }
    total
}

/// How far the ticks were off, in percent of the wall.
fn tick_error(ticks: &CpuTime, traced: &CpuTime) -> TickError {
    let percent = |seconds: f64| seconds * 100.0 / traced.wall.max(f64::MIN_POSITIVE);
    let busy = |time: &CpuTime| time.task + time.irq + time.softirq;
    let shown = busy(ticks) + ticks.idle + ticks.steal.unwrap_or(0.0);
    TickError {
        busy: percent(busy(ticks) - busy(traced) - traced.idle_loop.unwrap_or(0.0)),
        softirq: percent(ticks.softirq - traced.softirq),
        irq: percent(ticks.irq - traced.irq),
        idle: percent(ticks.idle - traced.idle),
        unaccounted: percent(traced.wall - shown),
    }
}

/// The split of task time where every system call was timed; what a task faults in user mode counts
/// to the user.
pub(super) fn exact_split<'a>(spent: impl IntoIterator<Item = &'a Counted>) -> Option<UsrSys> {
    let (mut user, mut system) = (0, 0);
    for spent in spent {
        user += spent.ns[slot::TASK];
        system += spent.ns[slot::IN_KERNEL] + spent.ns[slot::KSOFTIRQD];
    }
    (user + system > 0).then(|| UsrSys {
        source: SPANS.to_owned(),
        usr: user as f64 / (user + system) as f64,
        interval: None,
        samples: 0,
    })
}

/// The kernel's own split on each of these CPUs.
fn ticks_of_each(per_cpu: &[CpuTime], ticks: &[Ticks]) -> Vec<Option<UsrSys>> {
    let of = |time: &CpuTime| {
        let of_cpu = ticks.iter().filter(|ticks| Some(ticks.spent.cpu) == time.cpu);
        usr_sys(&of_cpu.cloned().collect::<Vec<_>>())
    };
    per_cpu.iter().map(of).collect()
}

/// How task time divides, by samples of tasks: not of what interrupts them, nor of the idle task.
fn sampled(profile: &Profile, wanted: impl Fn(u32) -> bool) -> Option<UsrSys> {
    let tasks =
        profile.taken.iter().filter(|taken| taken.context == Context::Task && wanted(taken.cpu));
    let (mut user, mut all) = (ByBlock::new(), ByBlock::new());
    for taken in tasks {
        add_blocks(&mut all, &taken.blocks);
        if !taken.in_kernel {
            add_blocks(&mut user, &taken.blocks);
        }
    }
    let samples = all.values().sum();
    let share = Blocks::of(&all).proportion(&user);
    (samples > 0).then(|| UsrSys {
        source: "sampled".to_owned(),
        usr: share.share,
        interval: Some(share.interval),
        samples,
    })
}

/// The kernel's own split of task time, by ticks.
fn usr_sys(ticks: &[Ticks]) -> Option<UsrSys> {
    let user: u64 = ticks.iter().map(|ticks| ticks.spent.user).sum();
    let system: u64 = ticks.iter().map(|ticks| ticks.spent.system).sum();
    (user + system > 0).then(|| UsrSys {
        source: "proc-stat".to_owned(),
        usr: user as f64 / (user + system) as f64,
        interval: None,
        samples: user + system,
    })
}

/// Programs that ended in between, by name, those that used most first.
fn ended(
    (begin, end): (&Reading, &Reading),
    processes: BTreeMap<u32, EndedProcess>,
) -> EndedPrograms {
    let mut programs: BTreeMap<(String, bool), EndedProgram> = BTreeMap::new();
    for (pid, process) in processes {
        // Its threads went on, or nobody has waited for it: it is among the others.
        if end.processes.contains_key(&pid) {
            continue;
        }
        let before = *begin.processes.get(&pid).unwrap_or(&0);
        let key = (process.name.clone(), process.kernel_thread);
        let program = programs.entry(key).or_insert(EndedProgram {
            name: process.name,
            kernel_thread: process.kernel_thread,
            processes: 0,
            seconds: 0.0,
        });
        program.processes += 1;
        program.seconds += seconds(process.time.saturating_sub(before));
    }
    let mut programs: Vec<_> = programs.into_values().collect();
    let seconds = programs.iter().fold(0.0, |sum, program| sum + program.seconds);
    programs.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    EndedPrograms { seconds, programs }
}

/// Processes by the time they used, most first. One that ended in between is not among them.
fn used_by(begin: &Reading, end: &Reading) -> Vec<ProcessTime> {
    let mut used: Vec<(u32, Nanos)> = end
        .processes
        .iter()
        // One that has begun since has used all of its time since.
        .map(|(pid, after)| (*pid, after - begin.processes.get(pid).unwrap_or(&0).min(after)))
        .filter(|(_, used)| *used > 0)
        .collect();
    used.sort_by_key(|(pid, used)| (std::cmp::Reverse(*used), *pid));
    used.into_iter()
        .map(|(pid, used)| ProcessTime {
            pid,
            name: process_time::name(pid).unwrap_or_else(|| ENDED.to_owned()),
            kernel_thread: process_time::is_kernel_thread(pid).unwrap_or(false),
            role: role(pid),
            seconds: seconds(used),
        })
        .collect()
}

/// What a process of this program does.
pub(super) fn role(pid: u32) -> Option<String> {
    let command = process_time::subcommand_of(pid, PROGRAM)?;
    // An agent starts another for each run.
    let started_this = pid == std::os::unix::process::parent_id() && command != "agent";
    Some(if started_this { CONTROLLER.to_owned() } else { command })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::AggregatedStack;

    /// Of 60 compilers all count, though 20 are named.
    #[test]
    fn programs_beyond_the_list_are_in_the_remainder() {
        let process = |pid: u32, kernel_thread, role: Option<&str>| ProcessTime {
            pid,
            name: "cc1".to_owned(),
            kernel_thread,
            role: role.map(str::to_owned),
            seconds: 1.0,
        };
        let mut processes: Vec<ProcessTime> =
            (0..60).map(|pid| process(pid, false, None)).collect();
        processes.push(process(61, true, None));
        processes.push(process(62, false, Some("agent of h2")));
        let program = |number: u32| EndedProgram {
            name: if number == 24 { PROGRAM.to_owned() } else { number.to_string() },
            kernel_thread: number == 23,
            processes: 1,
            seconds: 0.5,
        };
        let mut ended = EndedPrograms { seconds: 12.5, programs: (0..25).map(program).collect() };
        assert_eq!(unlisted(&mut processes, Some(&mut ended)), 40.0 + 3.0 * 0.5);
        assert_eq!((processes.len(), ended.programs.len()), (LISTED, LISTED));
        assert_eq!(unlisted(&mut processes, None), 0.0);
    }

    #[test]
    fn task_time_is_divided_by_samples_of_tasks() {
        let taken = |cpu, context, in_kernel, count| AggregatedStack {
            cpu,
            process: 7,
            context,
            in_kernel,
            own: false,
            blocks: BTreeMap::from([(0, count)]),
            count,
            frames: Vec::new(),
        };
        let profile = Profile {
            taken: vec![
                taken(0, Context::Task, false, 30),
                taken(0, Context::Task, true, 60),
                taken(1, Context::Task, true, 10),
                taken(0, Context::Other, true, 500),
                taken(1, Context::Idle, true, 800),
            ],
            ..Profile::default()
        };
        let all = sampled(&profile, |_| true).unwrap();
        assert_eq!((all.source.as_str(), all.usr, all.samples), ("sampled", 0.3, 100));
        let (low, high) = all.interval.unwrap();
        assert!(low < 0.3 && 0.3 < high);
        assert_eq!(sampled(&profile, |cpu| cpu == 1).unwrap().usr, 0.0);
        assert_eq!(sampled(&profile, |cpu| cpu == 2), None);
    }

    /// A thread that computes for a while is in user space in all samples of that time.
    #[test]
    fn bursts_of_user_time_widen_the_interval() {
        let split = |user: fn(u32) -> u64| {
            let taken = |in_kernel: bool, of: &dyn Fn(u32) -> u64| {
                let blocks: ByBlock = (0..20).map(|block| (block, of(block))).collect();
                AggregatedStack {
                    cpu: 0,
                    process: 7,
                    context: Context::Task,
                    in_kernel,
                    own: false,
                    count: blocks.values().sum(),
                    blocks,
                    frames: Vec::new(),
                }
            };
            let taken = vec![taken(false, &user), taken(true, &|block| 20 - user(block))];
            sampled(&Profile { taken, ..Profile::default() }, |_| true).unwrap()
        };
        let (steady, bursts) = (split(|_| 5), split(|block| if block % 4 == 0 { 20 } else { 0 }));
        assert_eq!((steady.usr, bursts.usr, bursts.samples), (0.25, 0.25, 400));
        let width = |split: &UsrSys| split.interval.map(|(low, high)| high - low).unwrap();
        assert!(width(&bursts) > 4.0 * width(&steady), "{bursts:?} {steady:?}");
    }
}
