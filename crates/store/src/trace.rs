//! Traces of CPUs in a file of their own, `trace.json`, as trace viewers take them: the Trace Event Format of Chrome
//! (<https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU>), which Perfetto also opens
//! (<https://perfetto.dev/docs/getting-started/other-formats>).
//!
//! Each host has a process of the viewer for its CPUs, with a track for what runs on each CPU, one for its softirqs
//! and one for its interrupts; and each process of the host has a track for each thread.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::{Map, Value, json};
use wirecost_model::clock::Nanos;
use wirecost_model::observe::{HostObservation, TraceEventKind, TraceSection, TracedTask};

/// An event of the format. Times are microseconds.
#[derive(Debug, Serialize)]
struct ViewerEvent<'a> {
    name: Cow<'a, str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    cat: &'static str,
    ph: &'static str,
    ts: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    /// Scope of an instant: the thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    s: Option<&'static str>,
    pid: u32,
    tid: u32,
    #[serde(skip_serializing_if = "Map::is_empty")]
    args: Map<String, Value>,
}

/// Tracks of a CPU, by their place below each other.
const RUNS: u32 = 0;
const SOFTIRQS: u32 = 1;
const INTERRUPTS: u32 = 2;
const TRACKS: u32 = 3;

/// Takes the events out of what was observed; `None` where nothing was traced.
pub(crate) fn take(hosts: &mut [HostObservation]) -> Option<String> {
    let mut written = Writer::default();
    let mut traced = false;
    for host in hosts {
        let Some(trace) = &mut host.trace else { continue };
        traced = true;
        written.host(&host.host, trace);
        trace.events = Vec::new();
    }
    traced.then(|| written.finish())
}

/// A thread as far as the events tell.
#[derive(Debug, Clone, Copy)]
enum State {
    Running {
        since: Nanos,
        cpu: u32,
    },
    /// Of a thread that was woken: who ran then.
    Ready {
        since: Nanos,
        woken_by: Option<u32>,
    },
    Sleeping,
}

#[derive(Debug, Default)]
struct Writer {
    lines: Vec<String>,
    /// Processes of the viewer so far.
    processes: u32,
}

/// The host whose events are written.
struct Host<'a> {
    name: &'a str,
    tasks: BTreeMap<u32, &'a TracedTask>,
    cpus: u32,
    /// Processes of the viewer by the number of the process; threads of the kernel share 0.
    processes: BTreeMap<u32, u32>,
    threads: BTreeMap<u32, State>,
    /// Threads whose track has a name.
    named: BTreeSet<u32>,
    end: Nanos,
}

impl Host<'_> {
    fn label(&self, task: u32) -> String {
        match self.tasks.get(&task) {
            _ if task == 0 => "idle".to_owned(),
            Some(task) => format!("{} ({})", task.name, task.task),
            None => format!("task {task}"),
        }
    }
}

impl Writer {
    fn finish(self) -> String {
        format!(
            "{{\"displayTimeUnit\":\"ns\",\"otherData\":{{\"program\":\"wirecost\",\"times\":\"of each host since its \
             trace began; hosts on different machines began at different instants\"}},\"traceEvents\":[\n{}\n]}}\n",
            self.lines.join(",\n")
        )
    }

    fn write(&mut self, event: &ViewerEvent<'_>) {
        // Serializing to text fails only for keys that are not text.
        if let Ok(line) = serde_json::to_string(event) {
            self.lines.push(line);
        }
    }

    /// A name of a process or a thread, or their place.
    fn metadata(&mut self, name: &'static str, (pid, tid): (u32, u32), args: Value) {
        let Value::Object(args) = args else { return };
        let name = Cow::Borrowed(name);
        self.write(&ViewerEvent {
            name,
            cat: "",
            ph: "M",
            ts: 0.0,
            dur: None,
            s: None,
            pid,
            tid,
            args,
        });
    }

    fn slice(
        &mut self,
        cat: &'static str,
        name: &str,
        (pid, tid): (u32, u32),
        (begin, end): (Nanos, Nanos),
        args: Value,
    ) {
        let args = if let Value::Object(args) = args { args } else { Map::new() };
        self.write(&ViewerEvent {
            name: name.into(),
            cat,
            ph: "X",
            ts: us(begin),
            dur: Some(us(end.saturating_sub(begin))),
            s: None,
            pid,
            tid,
            args,
        });
    }

    fn instant(&mut self, name: &str, (pid, tid): (u32, u32), at: Nanos, args: Value) {
        let args = if let Value::Object(args) = args { args } else { Map::new() };
        self.write(&ViewerEvent {
            name: name.into(),
            cat: "scheduler",
            ph: "i",
            ts: us(at),
            dur: None,
            s: Some("t"),
            pid,
            tid,
            args,
        });
    }

    fn process(&mut self, name: &str) -> u32 {
        self.processes += 1;
        let pid = self.processes;
        self.metadata("process_name", (pid, 0), json!({ "name": name }));
        self.metadata("process_sort_index", (pid, 0), json!({ "sort_index": pid }));
        pid
    }

    fn host(&mut self, name: &str, trace: &TraceSection) {
        let cpus = self.process(&format!("CPUs of {name}"));
        for &cpu in &trace.cpus {
            for (track, title) in
                [(RUNS, ""), (SOFTIRQS, ": softirqs"), (INTERRUPTS, ": interrupts")]
            {
                let at = (cpus, cpu * TRACKS + track + 1);
                self.metadata("thread_name", at, json!({ "name": format!("CPU {cpu}{title}") }));
                self.metadata("thread_sort_index", at, json!({ "sort_index": at.1 }));
            }
        }
        let mut host = Host {
            name,
            tasks: trace.tasks.iter().map(|task| (task.task, task)).collect(),
            cpus,
            processes: BTreeMap::new(),
            threads: BTreeMap::new(),
            named: BTreeSet::new(),
            end: (trace.seconds * 1e9).round() as Nanos,
        };
        // What is under way on each track of a CPU: since when, and what.
        let mut running: BTreeMap<u32, (Nanos, u32)> = BTreeMap::new();
        let mut begun: BTreeMap<(u32, u32), (Nanos, &str)> = BTreeMap::new();
        for event in &trace.events {
            let (at, cpu) = (event.at, event.cpu);
            host.end = host.end.max(at);
            match &event.what {
                TraceEventKind::Switch { from, to, ready } => {
                    match running.insert(cpu, (at, *to)) {
                        // It left unseen, and nobody knows when.
                        Some((since, task)) if task != *from => {
                            self.left_unseen(&mut host, task, cpu, (since, at));
                            host.threads.insert(*from, State::Sleeping);
                        }
                        ran => {
                            let since = ran.map_or(0, |(since, _)| since);
                            self.ran(&host, cpu, *from, (since, at));
                        }
                    }
                    self.leaves(&mut host, *from, (at, cpu), *ready);
                    self.comes(&mut host, *to, (at, cpu));
                }
                TraceEventKind::Wake { task, by } => self.woken(&mut host, *task, *by, (at, cpu)),
                TraceEventKind::Migrate { task, to } => {
                    let track = self.track(&mut host, *task);
                    self.instant(
                        &format!("moved to CPU {to}"),
                        track,
                        at,
                        json!({ "by_cpu": cpu }),
                    );
                }
                TraceEventKind::SoftirqBegins { softirq } => {
                    begun.insert((cpu, SOFTIRQS), (at, softirq));
                }
                TraceEventKind::InterruptBegins { interrupt } => {
                    begun.insert((cpu, INTERRUPTS), (at, interrupt));
                }
                TraceEventKind::SoftirqEnds { softirq: what } => {
                    let since = begun.remove(&(cpu, SOFTIRQS)).map_or(0, |(since, _)| since);
                    self.interrupted(&host, (cpu, SOFTIRQS), what, (since, at));
                }
                TraceEventKind::InterruptEnds { interrupt: what } => {
                    let since = begun.remove(&(cpu, INTERRUPTS)).map_or(0, |(since, _)| since);
                    self.interrupted(&host, (cpu, INTERRUPTS), what, (since, at));
                }
            }
        }
        // What had not ended with the trace.
        let end = host.end;
        for (cpu, (since, task)) in running {
            self.ran(&host, cpu, task, (since, end));
        }
        for (track, (since, what)) in begun {
            self.interrupted(&host, track, what, (since, end));
        }
        for (task, state) in host.threads.clone() {
            let track = self.track(&mut host, task);
            self.lasted(&host, track, state, end);
        }
    }

    /// The track of a thread, which is named when it is first needed.
    fn track(&mut self, host: &mut Host<'_>, task: u32) -> (u32, u32) {
        let known = host.tasks.get(&task).copied();
        let process = known.map_or(task, |task| if task.kernel_thread { 0 } else { task.process });
        let pid = match host.processes.get(&process) {
            Some(&pid) => pid,
            None => {
                let name = match known {
                    Some(task) if task.kernel_thread => format!("kernel threads of {}", host.name),
                    Some(task) => {
                        format!("{} ({process}) of {}", task.process_name, host.name)
                    }
                    None => format!("process of task {task} of {}", host.name),
                };
                let pid = self.process(&name);
                host.processes.insert(process, pid);
                pid
            }
        };
        if host.named.insert(task) {
            let name = known.map_or_else(|| format!("task {task}"), |task| task.name.clone());
            self.metadata("thread_name", (pid, task), json!({ "name": name }));
        }
        (pid, task)
    }

    fn ran(&mut self, host: &Host<'_>, cpu: u32, task: u32, times: (Nanos, Nanos)) {
        if task != 0 {
            let track = (host.cpus, cpu * TRACKS + RUNS + 1);
            self.slice("cpu", &host.label(task), track, times, Value::Null);
        }
    }

    fn left_unseen(&mut self, host: &mut Host<'_>, task: u32, cpu: u32, times: (Nanos, Nanos)) {
        if task != 0 {
            let name = format!("{}, then unknown", host.label(task));
            self.slice("cpu", &name, (host.cpus, cpu * TRACKS + RUNS + 1), times, Value::Null);
        }
        if let Some(State::Running { cpu: on, .. }) = host.threads.get(&task)
            && *on == cpu
        {
            host.threads.insert(task, State::Sleeping);
        }
    }

    fn interrupted(
        &mut self,
        host: &Host<'_>,
        (cpu, track): (u32, u32),
        what: &str,
        times: (Nanos, Nanos),
    ) {
        let cat = if track == SOFTIRQS { "softirq" } else { "interrupt" };
        self.slice(cat, what, (host.cpus, cpu * TRACKS + track + 1), times, Value::Null);
    }

    fn leaves(&mut self, host: &mut Host<'_>, task: u32, (at, cpu): (Nanos, u32), ready: bool) {
        if task == 0 {
            return;
        }
        let track = self.track(host, task);
        // The first that is seen of it: it has run since the trace began.
        let was = host.threads.get(&task).copied().unwrap_or(State::Running { since: 0, cpu });
        self.lasted(host, track, was, at);
        let next = match ready {
            true => State::Ready { since: at, woken_by: None },
            false => State::Sleeping,
        };
        host.threads.insert(task, next);
    }

    fn comes(&mut self, host: &mut Host<'_>, task: u32, (at, cpu): (Nanos, u32)) {
        if task == 0 {
            return;
        }
        let track = self.track(host, task);
        if let Some(was) = host.threads.insert(task, State::Running { since: at, cpu }) {
            self.lasted(host, track, was, at);
        }
    }

    /// Of one that runs or is ready already, the wake-up changes nothing.
    fn woken(&mut self, host: &mut Host<'_>, task: u32, by: u32, (at, cpu): (Nanos, u32)) {
        let track = self.track(host, task);
        let name = format!("woken by {}", host.label(by));
        self.instant(&name, track, at, json!({ "by_cpu": cpu }));
        if let Some(State::Sleeping) | None = host.threads.get(&task) {
            host.threads.insert(task, State::Ready { since: at, woken_by: Some(by) });
        }
    }

    fn lasted(&mut self, host: &Host<'_>, track: (u32, u32), state: State, until: Nanos) {
        match state {
            State::Running { since, cpu } => {
                let name = format!("runs on CPU {cpu}");
                self.slice("thread", &name, track, (since, until), json!({ "cpu": cpu }));
            }
            State::Ready { since, woken_by } => {
                let why = match woken_by {
                    Some(by) => format!("woken by {}", host.label(by)),
                    None => "preempted, or yielded".to_owned(),
                };
                let args = json!({ "why": why });
                self.slice("thread", "waits for a CPU", track, (since, until), args);
            }
            State::Sleeping => {}
        }
    }
}

fn us(ns: Nanos) -> f64 {
    ns as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use wirecost_model::observe::TraceEvent;

    use super::*;

    fn trace() -> TraceSection {
        let task = |task: u32, name: &str, process: u32, kernel_thread: bool| TracedTask {
            task,
            name: name.to_owned(),
            process,
            process_name: if kernel_thread { name } else { "wirecost" }.to_owned(),
            kernel_thread,
        };
        let event = |at, cpu, what| TraceEvent { at, cpu, what };
        let switch = |from, to, ready| TraceEventKind::Switch { from, to, ready };
        let rx = || "NET_RX".to_owned();
        TraceSection {
            seconds: 100e-6,
            cpus: vec![0, 2],
            tasks: vec![
                task(11, "wirecost-0", 10, false),
                task(12, "wirecost-1", 10, false),
                task(3, "ksoftirqd/0", 3, true),
            ],
            events: vec![
                // The end of a softirq that began before.
                event(1_000, 2, TraceEventKind::SoftirqEnds { softirq: rx() }),
                event(10_000, 0, switch(11, 3, true)),
                event(12_000, 0, TraceEventKind::SoftirqBegins { softirq: rx() }),
                event(13_500, 0, TraceEventKind::Wake { task: 12, by: 3 }),
                event(14_000, 0, TraceEventKind::SoftirqEnds { softirq: rx() }),
                event(15_000, 0, TraceEventKind::Migrate { task: 12, to: 2 }),
                event(20_000, 0, switch(3, 11, false)),
                event(21_000, 2, switch(0, 12, false)),
                event(50_000, 2, switch(12, 0, false)),
                event(55_000, 2, switch(0, 1, false)),
                // Task 1 left unseen.
                event(57_000, 2, switch(12, 0, false)),
                event(60_000, 2, TraceEventKind::InterruptBegins { interrupt: "LOC".to_owned() }),
            ],
            ..TraceSection::default()
        }
    }

    fn written() -> Value {
        let host = |name: &str| HostObservation {
            host: name.to_owned(),
            trace: Some(trace()),
            ..HostObservation::default()
        };
        let mut hosts = [host("h1"), HostObservation::default(), host("h2")];
        let text = take(&mut hosts).unwrap();
        assert!(hosts.iter().flat_map(|host| &host.trace).all(|trace| trace.events.is_empty()));
        assert_eq!(take(&mut [HostObservation::default()]), None);
        serde_json::from_str(&text).unwrap()
    }

    /// The rules of the format's description; slices of one track must be nested or apart.
    fn check(viewer: &Value) {
        assert!(["ms", "ns"].contains(&viewer["displayTimeUnit"].as_str().unwrap()));
        let mut tracks: BTreeMap<(u64, u64), Vec<(f64, f64)>> = BTreeMap::new();
        let mut named = Vec::new();
        for event in viewer["traceEvents"].as_array().unwrap() {
            let track = (event["pid"].as_u64().unwrap(), event["tid"].as_u64().unwrap());
            let ts = event["ts"].as_f64().unwrap();
            assert!(ts >= 0.0 && !event["name"].as_str().unwrap().is_empty(), "{event}");
            match event["ph"].as_str().unwrap() {
                "X" => {
                    let dur = event["dur"].as_f64().unwrap();
                    assert!(dur >= 0.0, "{event}");
                    tracks.entry(track).or_default().push((ts, ts + dur));
                }
                "i" => assert_eq!(event["s"], "t", "{event}"),
                "M" => {
                    let (key, text) = match event["name"].as_str().unwrap() {
                        "process_name" | "thread_name" => ("name", true),
                        "process_sort_index" | "thread_sort_index" => ("sort_index", false),
                        other => panic!("{other}"),
                    };
                    assert_eq!(event["args"][key].is_string(), text, "{event}");
                    if event["name"] == "thread_name" {
                        named.push(track);
                    }
                    continue;
                }
                other => panic!("{other}: {event}"),
            }
            assert!(named.contains(&track), "a track without a name: {event}");
        }
        for (track, mut slices) in tracks {
            slices.sort_by(|a, b| a.0.total_cmp(&b.0));
            for pair in slices.windows(2) {
                assert!(pair[0].1 <= pair[1].0 + 1e-6, "{track:?}: {pair:?} overlap");
            }
        }
    }

    fn slices<'a>(viewer: &'a Value, cat: &str, pid: u64) -> Vec<(&'a str, u64, f64, f64)> {
        let all = viewer["traceEvents"].as_array().unwrap().iter();
        let of =
            all.filter(|event| event["ph"] == "X" && event["cat"] == cat && event["pid"] == pid);
        of.map(|event| {
            let number = |key: &str| event[key].as_f64().unwrap();
            let name = event["name"].as_str().unwrap();
            (name, event["tid"].as_u64().unwrap(), number("ts"), number("dur"))
        })
        .collect()
    }

    #[test]
    fn a_trace_keeps_the_rules_of_the_format() {
        check(&written());
    }

    #[test]
    fn each_cpu_shows_what_it_ran_and_each_thread_what_it_waited() {
        let viewer = written();
        let process = |name: &str| {
            let all = viewer["traceEvents"].as_array().unwrap();
            let found = all.iter().find(|event| event["args"]["name"] == name);
            found.unwrap_or_else(|| panic!("{name}: {viewer:#}"))["pid"].as_u64().unwrap()
        };
        let cpus = process("CPUs of h1");
        assert_eq!(
            slices(&viewer, "cpu", cpus),
            [
                ("wirecost-0 (11)", 1, 0.0, 10.0),
                ("ksoftirqd/0 (3)", 1, 10.0, 10.0),
                ("wirecost-1 (12)", 7, 21.0, 29.0),
                ("task 1, then unknown", 7, 55.0, 2.0),
                ("wirecost-0 (11)", 1, 20.0, 80.0),
            ]
        );
        assert_eq!(
            slices(&viewer, "softirq", cpus),
            [("NET_RX", 8, 0.0, 1.0), ("NET_RX", 2, 12.0, 2.0)]
        );
        assert_eq!(slices(&viewer, "interrupt", cpus), [("LOC", 9, 60.0, 40.0)]);
        let threads = process("wirecost (10) of h1");
        assert_eq!(
            slices(&viewer, "thread", threads),
            [
                ("runs on CPU 0", 11, 0.0, 10.0),
                ("waits for a CPU", 11, 10.0, 10.0),
                ("waits for a CPU", 12, 13.5, 7.5),
                ("runs on CPU 2", 12, 21.0, 29.0),
                ("runs on CPU 0", 11, 20.0, 80.0),
            ]
        );
        assert_ne!(process("wirecost (10) of h2"), threads);
        assert_ne!(process("kernel threads of h1"), threads);
    }
}
