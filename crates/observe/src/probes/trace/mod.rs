//! What each CPU did for a short time, event by event, for a trace viewer.

use std::collections::{BTreeMap, BTreeSet};

use wirecost_linux::clock::Monotonic;
use wirecost_model::clock::{Clock, MILLISECOND, Nanos, seconds};
use wirecost_model::observe::{
    HostObservation, Part, ProbeCost, SOFTIRQS, TraceCounts, TraceEvent, TraceEventKind,
    TraceSection, TracedTask,
};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::bpf::{BpfError, LoadedObject, Options, compiled, possible_cpus};
use crate::probe::{Description, Edge, Probe, Session, Sets, Shared, Unavailable};
use crate::tracker::{VECTORS, online_cpus};

const NAME: &str = "trace";
/// A trace is at most so long.
const LONGEST: Nanos = 200 * MILLISECOND;
/// Events and tasks that the maps of probe.bpf.c have room for.
const ROOM: u64 = 131_072;
/// The program without which there is nothing.
const SWITCH: &str = "sched_switch";

#[derive(Debug)]
pub(crate) struct Trace;

impl Probe for Trace {
    fn name(&self) -> &'static str {
        NAME
    }

    fn about(&self) -> Description {
        Description {
            tells: "every context switch, wake-up, migration, softirq and interrupt of the first 200 ms of \
                    the window, as a file for a trace viewer (`--out DIR`: trace.json)",
            needs: "BPF with BTF (root, or CAP_BPF and CAP_PERFMON)",
            costs: "about 0.15 us at each event; 3 MiB of the kernel's memory. Always a pass of its own",
            limitations: "131,072 events; later ones are counted and lost. Interrupts without a tracepoint \
                    (NMI, and most vectors of CPUs other than x86) are part of what they interrupted",
        }
    }

    fn sets(&self) -> Sets {
        Sets { standard: None, full: None }
    }

    fn on_request(&self) -> bool {
        true
    }

    fn open(&self, _shared: &mut Shared) -> Result<Box<dyn Session>, Unavailable> {
        let loaded =
            LoadedObject::load(compiled!("trace", "probes_trace_probe"), &Options::default())?;
        let lacks = |name: &str| loaded.missing.iter().any(|hook| hook == name);
        if lacks(SWITCH) {
            return Err(Unavailable::Other(format!("this kernel has no tracepoint {SWITCH}")));
        }
        // Which vectors there are depends on the kind of CPU.
        let missing = ["sched_waking", "sched_migrate_task", "softirq_entry", "irq_handler_entry"]
            .into_iter()
            .filter(|hook| lacks(hook))
            .map(|hook| format!("this kernel has no tracepoint {hook}"))
            .collect();
        Ok(Box::new(Watch {
            loaded,
            control: Control::default(),
            trace: Ok(Read::default()),
            missing,
        }))
    }
}

/// `struct event` of probe.bpf.c.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Event {
    at: u64,
    cpu: u32,
    kind: u32,
    task: u32,
    other: u32,
}

/// `struct control` of probe.bpf.c.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Control {
    begin: u64,
    end: u64,
    events: u64,
    full: u64,
    unnamed: u64,
}

/// `struct task` of probe.bpf.c.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Task {
    process: u32,
    kernel: u32,
    comm: [u8; 16],
    process_comm: [u8; 16],
}

/// What was read when the window was over.
#[derive(Debug, Default)]
struct Read {
    /// By time.
    events: Vec<Event>,
    tasks: BTreeMap<u32, Task>,
    control: Control,
}

#[derive(Debug)]
struct Watch {
    loaded: LoadedObject,
    control: Control,
    trace: Result<Read, String>,
    missing: Vec<String>,
}

impl Watch {
    fn set_control(&self, control: Control) -> Result<(), BpfError> {
        self.loaded.set("controls", &0u32, &control)
    }

    fn read(&self) -> Result<Read, BpfError> {
        let controls = self.loaded.values::<u32, Control>("controls")?;
        let control = controls.first().and_then(|(_, values)| values.first().copied());
        let mut control = control.unwrap_or_default();
        control.end = self.control.end;
        let kept = usize::try_from(control.events.min(ROOM)).unwrap_or(0);
        let mut events: Vec<Event> = self.loaded.first("events", kept)?;
        events.retain(|event| (control.begin..control.end).contains(&event.at));
        // An interrupt may find its place before what it interrupted does.
        events.sort_by_key(|event| event.at);
        let tasks = self.loaded.values::<u32, Task>("tasks")?;
        let tasks = tasks.into_iter().filter_map(|(id, values)| Some((id, *values.first()?)));
        Ok(Read { events, tasks: tasks.collect(), control })
    }
}

impl Session for Watch {
    fn attach(&mut self, shared: &Shared) -> Result<(), Unavailable> {
        self.control = Control::default();
        self.trace = Ok(Read::default());
        self.set_control(self.control)?;
        self.loaded.clear::<Task>("tasks")?;
        let of_parts = |cpu: u32| {
            let mut parts = shared.parts().iter().map(|part| part.cpus.as_ref());
            parts.any(|cpus| cpus.is_none_or(|cpus| cpus.contains(&cpu)))
        };
        let all = (0..possible_cpus()).map(|cpu| u64::from(of_parts(cpu as u32)));
        self.loaded.set_percpu("chosen", 0, &all.collect::<Vec<u64>>())?;
        Ok(self.loaded.attach()?)
    }

    fn edge(&mut self, _shared: &Shared, _at: Nanos, edge: Edge) {
        let now = Monotonic.now();
        let told = match edge {
            Edge::Begin => {
                self.control.begin = now;
                self.control.end = now + LONGEST;
                self.set_control(self.control)
            }
            // The programs are over by themselves, or nothing is read of what comes now.
            Edge::End => {
                self.control.end = self.control.end.min(now);
                Ok(())
            }
        };
        if let Err(error) = told {
            self.trace = Err(error.to_string());
        }
    }

    /// The rest of the window costs nothing.
    fn interval(&mut self, _shared: &Shared, at: Nanos) {
        if at > self.control.end {
            self.loaded.detach();
        }
    }

    fn end(&mut self, _shared: &Shared, _at: Nanos) {
        self.loaded.detach();
        if self.trace.is_ok() {
            self.trace = self.read().map_err(|error| error.to_string());
        }
        if let Err(error) = &self.trace {
            self.missing.push(format!("the trace: {error}"));
        }
    }

    fn detach(&mut self) {
        self.loaded.detach();
    }

    fn fill(&mut self, _shared: &Shared, part: &Part, into: &mut HostObservation) {
        if let Ok(read) = &self.trace {
            let wanted = |cpu: u32| part.cpus.as_ref().is_none_or(|cpus| cpus.contains(&cpu));
            let cpus = online_cpus().into_iter().filter(|cpu| wanted(*cpu)).collect();
            into.trace = Some(section(read, cpus));
        }
    }

    fn missing(&self) -> Vec<String> {
        let lost = self.trace.as_ref().map_or(0, |read| read.control.events.saturating_sub(ROOM));
        let lost = (lost > 0).then(|| format!("the last {lost} events: the buffer was full"));
        self.missing.iter().cloned().chain(lost).collect()
    }

    fn cost(&self) -> ProbeCost {
        self.loaded.cost()
    }
}

/// What happened on these CPUs.
fn section(read: &Read, cpus: Vec<u32>) -> TraceSection {
    let control = &read.control;
    let of_cpus = read.events.iter().filter(|event| cpus.contains(&event.cpu));
    let events: Vec<TraceEvent> =
        of_cpus.filter_map(|event| described(event, control.begin)).collect();
    let mut counts = TraceCounts::default();
    let mut named = BTreeSet::new();
    let mut unobserved = 0;
    let mut runs: BTreeMap<u32, u32> = BTreeMap::new();
    for event in &events {
        match &event.what {
            TraceEventKind::Switch { from, to, .. } => {
                counts.switches += 1;
                unobserved +=
                    u64::from(runs.insert(event.cpu, *to).is_some_and(|ran| ran != *from));
                named.extend([*from, *to]);
            }
            TraceEventKind::Wake { task, by } => {
                counts.wakeups += 1;
                named.extend([*task, *by]);
            }
            TraceEventKind::Migrate { task, .. } => {
                counts.migrations += 1;
                named.insert(*task);
            }
            TraceEventKind::SoftirqBegins { .. } => counts.softirqs += 1,
            TraceEventKind::InterruptBegins { .. } => counts.interrupts += 1,
            TraceEventKind::SoftirqEnds { .. } | TraceEventKind::InterruptEnds { .. } => {}
        }
    }
    let tasks = read.tasks.iter().filter(|(id, _)| named.contains(id));
    // Nothing is known of what came when the buffer was full.
    let until = if control.full > 0 { control.full } else { control.end };
    TraceSection {
        seconds: seconds(until.saturating_sub(control.begin)),
        cpus,
        room: ROOM,
        full_after_seconds: (control.full > 0)
            .then(|| seconds(control.full.saturating_sub(control.begin))),
        lost: control.events.saturating_sub(ROOM),
        unnamed: control.unnamed,
        unobserved,
        counts,
        tasks: tasks.map(|(id, task)| traced(*id, task)).collect(),
        events,
    }
}

fn traced(id: u32, task: &Task) -> TracedTask {
    let text = |bytes: &[u8; 16]| {
        let name = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(name).into_owned()
    };
    TracedTask {
        task: id,
        name: text(&task.comm),
        process: task.process,
        process_name: text(&task.process_comm),
        kernel_thread: task.kernel != 0,
    }
}

/// As a document has it; kinds are numbered as in probe.bpf.c.
fn described(event: &Event, begin: u64) -> Option<TraceEvent> {
    let Event { at, cpu, kind, task, other } = *event;
    let softirq = || {
        // As in /proc/softirqs.
        SOFTIRQS.get(task as usize).map_or_else(|| task.to_string(), |name| name.to_uppercase())
    };
    let interrupt = || {
        let vector = VECTORS.get(task as usize).filter(|_| other != 0);
        vector.map_or_else(|| task.to_string(), |name| (*name).to_owned())
    };
    let what = match kind {
        0 | 1 => TraceEventKind::Switch { from: task, to: other, ready: kind == 1 && task != 0 },
        2 => TraceEventKind::Wake { task, by: other },
        3 => TraceEventKind::Migrate { task, to: other },
        4 => TraceEventKind::SoftirqBegins { softirq: softirq() },
        5 => TraceEventKind::SoftirqEnds { softirq: softirq() },
        6 => TraceEventKind::InterruptBegins { interrupt: interrupt() },
        7 => TraceEventKind::InterruptEnds { interrupt: interrupt() },
        _ => return None,
    };
    Some(TraceEvent { at: at.saturating_sub(begin), cpu, what })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(events: &[Event], all: u64, full: u64) -> Read {
        let task = |name: &[u8]| {
            let mut comm = [0; 16];
            comm[..name.len()].copy_from_slice(name);
            Task { process: 7, kernel: 0, comm, process_comm: comm }
        };
        Read {
            events: events.to_vec(),
            tasks: BTreeMap::from([(7, task(b"worker")), (9, task(b"elsewhere"))]),
            control: Control { begin: 1_000, end: 9_000, events: all, full, unnamed: 0 },
        }
    }

    #[test]
    fn a_host_has_the_events_and_tasks_of_its_cpus() {
        let event = |at, cpu, kind, task, other| Event { at, cpu, kind, task, other };
        let events = [
            event(1_000, 0, 2, 7, 0),
            event(2_000, 0, 0, 0, 7),
            event(2_500, 1, 1, 9, 0),
            event(3_000, 0, 4, 3, 0),
            event(3_100, 0, 5, 3, 0),
            event(3_200, 0, 6, 0, 1),
            event(3_300, 0, 7, 0, 1),
            event(3_400, 0, 6, 24, 0),
        ];
        let of = section(&read(&events, 8, 0), vec![0]);
        let counts =
            TraceCounts { switches: 1, wakeups: 1, migrations: 0, softirqs: 1, interrupts: 2 };
        assert_eq!((of.counts, of.events.len(), of.lost), (counts, 7, 0));
        assert_eq!(of.tasks.iter().map(|task| task.name.as_str()).collect::<Vec<_>>(), ["worker"]);
        assert_eq!((of.seconds, of.full_after_seconds), (8e-6, None));
        let what: Vec<&TraceEventKind> = of.events.iter().map(|event| &event.what).collect();
        assert_eq!(what[2], &TraceEventKind::SoftirqBegins { softirq: "NET_RX".to_owned() });
        assert_eq!(what[4], &TraceEventKind::InterruptBegins { interrupt: "LOC".to_owned() });
        assert_eq!(what[6], &TraceEventKind::InterruptBegins { interrupt: "24".to_owned() });
        assert_eq!((of.events[1].at, of.unobserved), (1_000, 0));
        // Task 7 runs, and then 9 leaves.
        let unseen = section(&read(&[events[1], event(2_600, 0, 0, 9, 7)], 2, 0), vec![0]);
        assert_eq!((unseen.counts.switches, unseen.unobserved), (2, 1));
    }

    #[test]
    fn a_full_buffer_is_told() {
        let of = section(&read(&[], ROOM + 5, 4_000), vec![0]);
        assert_eq!((of.lost, of.full_after_seconds, of.seconds), (5, Some(3e-6), 3e-6));
    }
}
