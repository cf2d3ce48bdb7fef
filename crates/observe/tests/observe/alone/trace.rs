//! The probe `trace`: what it keeps of a thread, against what the kernel counts of that thread.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

use wirecost_linux::privilege::skip_without_tracing;
use wirecost_model::observe::{
    ObserveRequest, ObserverReport, Part, ProbeStatus, TraceEvent, TraceEventKind, TraceSection,
};
use wirecost_observe::Observer;

use crate::attempts::undisturbed_machine;

fn observe(cpus: Option<Vec<u32>>, load: impl FnOnce()) -> ObserverReport {
    let parts = vec![Part { host: "here".to_owned(), cpus, ..Part::default() }];
    let mut observer = Observer::open(ObserveRequest { probes: vec!["trace".to_owned()], parts });
    observer.attach();
    observer.begin();
    load();
    observer.end();
    observer.detach();
    let report = observer.take();
    assert_eq!(report.probes[0].status, ProbeStatus::Ready, "{:?}", report.probes[0].reason);
    report
}

fn section(report: &ObserverReport) -> &TraceSection {
    report.parts[0].trace.as_ref().expect("a section")
}

/// How often a thread came to a CPU, and how often it went to sleep.
fn counted(thread: u32) -> (usize, usize) {
    let read = |file| fs::read_to_string(format!("/proc/self/task/{thread}/{file}")).unwrap();
    let came = read("schedstat").split_ascii_whitespace().nth(2).unwrap().parse().unwrap();
    let status = read("status");
    let slept = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    (came, slept.unwrap().trim().parse().unwrap())
}

#[test]
fn every_wakeup_and_switch_of_a_thread_is_in_the_trace() {
    const TIMES: usize = 30;
    if skip_without_tracing("every_wakeup_and_switch_of_a_thread_is_in_the_trace") {
        return;
    }
    undisturbed_machine(|| {
        let (mut to_worker, mut orders) = std::io::pipe().unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        let worker = std::thread::Builder::new().name("traced".to_owned()).spawn(move || {
            tell.send(rustix::thread::gettid()).unwrap();
            while to_worker.read_exact(&mut [0]).is_ok() {}
        });
        let worker = worker.unwrap();
        let id = told.recv().unwrap().as_raw_nonzero().get() as u32;
        // It sleeps in read(2), or still has to.
        let asleep = || {
            let call = fs::read_to_string(format!("/proc/self/task/{id}/syscall")).unwrap();
            call.starts_with(if cfg!(target_arch = "x86_64") { "0 " } else { "63 " })
        };
        let until_asleep = || {
            while !asleep() {
                std::thread::yield_now();
            }
        };
        until_asleep();
        let before = counted(id);
        let report = observe(None, || {
            for _ in 0..TIMES {
                let slept = counted(id).1;
                orders.write_all(&[1]).unwrap();
                while counted(id).1 == slept {
                    std::thread::yield_now();
                }
                until_asleep();
            }
        });
        let after = counted(id);
        drop(orders);
        worker.join().unwrap();
        let trace = section(&report);
        assert!(trace.seconds < 0.2, "{}: too slow to be in the trace", trace.seconds);
        let of = |wanted: fn(&TraceEventKind, u32) -> bool| {
            trace.events.iter().filter(|event| wanted(&event.what, id)).count()
        };
        let woken = of(|what, id| matches!(what, TraceEventKind::Wake { task, .. } if *task == id));
        let came = of(|what, id| matches!(what, TraceEventKind::Switch { to, .. } if *to == id));
        let slept = of(
            |what, id| matches!(what, TraceEventKind::Switch { from, ready, .. } if *from == id && !ready),
        );
        assert_eq!(woken, TIMES);
        let came = came + unseen_arrivals(&trace.events, id);
        assert_eq!((came, slept), (after.0 - before.0, after.1 - before.1));
        let task = trace.tasks.iter().find(|task| task.task == id).expect("its name");
        assert_eq!((task.name.as_str(), task.process), ("traced", std::process::id()));
        assert_eq!((trace.lost, trace.full_after_seconds, trace.unnamed), (0, None, 0));
    });
}

/// How often a task left a CPU where no program saw it come: there are kernels for virtual machines that run no BPF
/// program in process 1 or in what interrupts it, and do not count that as missed.
fn unseen_arrivals(events: &[TraceEvent], id: u32) -> usize {
    let mut runs = BTreeMap::new();
    let unseen = |event: &&TraceEvent| match &event.what {
        TraceEventKind::Switch { from, to, .. } => {
            runs.insert(event.cpu, *to).is_none_or(|ran| ran != *from) && *from == id
        }
        _ => false,
    };
    events.iter().filter(unseen).count()
}

/// Sorted by time; each CPU goes on with the task that came last; what begins on a CPU ends before the next begins.
/// Where it does not, a thread of process 1 had the CPU, during which some kernels run no program. Returns how often.
fn check_order(events: &[TraceEvent]) -> u64 {
    let mut unobserved = 0;
    let (mut runs, mut softirqs, mut interrupts) = (Vec::new(), Vec::new(), Vec::new());
    for (a, b) in events.iter().zip(&events[1..]) {
        assert!(a.at <= b.at, "{a:?} {b:?}");
    }
    for event in events {
        let cpu = event.cpu as usize;
        let kept = |of: &mut Vec<Option<String>>| {
            of.resize(of.len().max(cpu + 1), None);
        };
        kept(&mut softirqs);
        kept(&mut interrupts);
        runs.resize(runs.len().max(cpu + 1), None);
        match &event.what {
            TraceEventKind::Switch { from, to, .. } => {
                let last: Option<u32> = runs[cpu].replace(*to);
                if let Some(last) = last.filter(|last| last != from) {
                    let of_first = fs::exists(format!("/proc/1/task/{last}")).unwrap();
                    assert!(of_first, "{last:?}: {event:?}");
                    unobserved += 1;
                }
            }
            TraceEventKind::SoftirqBegins { softirq } => {
                assert_eq!(softirqs[cpu].replace(softirq.clone()), None, "{event:?}");
            }
            TraceEventKind::SoftirqEnds { softirq } => {
                let begun = softirqs[cpu].take();
                assert!(begun.is_none_or(|begun| begun == *softirq), "{event:?}");
            }
            TraceEventKind::InterruptBegins { interrupt } => {
                assert_eq!(interrupts[cpu].replace(interrupt.clone()), None, "{event:?}");
            }
            TraceEventKind::InterruptEnds { interrupt } => {
                let begun = interrupts[cpu].take();
                assert!(begun.is_none_or(|begun| begun == *interrupt), "{event:?}");
            }
            TraceEventKind::Wake { .. } | TraceEventKind::Migrate { .. } => {}
        }
    }
    unobserved
}

#[test]
fn softirqs_and_timers_are_in_their_order_and_nothing_after_200_ms() {
    const DATAGRAMS: usize = 100;
    if skip_without_tracing("softirqs_and_timers_are_in_their_order_and_nothing_after_200_ms") {
        return;
    }
    undisturbed_machine(|| {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let report = observe(None, || {
            for _ in 0..DATAGRAMS {
                socket.send_to(&[1], socket.local_addr().unwrap()).unwrap();
                socket.recv(&mut [0]).unwrap();
            }
            std::thread::sleep(Duration::from_millis(250));
        });
        let trace = section(&report);
        assert!((trace.seconds - 0.2).abs() < 1e-6, "{}", trace.seconds);
        assert!(trace.events.iter().all(|event| event.at < 200_000_000));
        assert_eq!(check_order(&trace.events), trace.unobserved);
        // Loopback hands each datagram to the softirq of receive: at least one run of it was there, at
        // most one for each.
        let received = |what: &TraceEventKind| matches!(what, TraceEventKind::SoftirqBegins { softirq } if softirq == "NET_RX");
        let runs = trace.events.iter().filter(|event| received(&event.what)).count();
        assert!(runs >= DATAGRAMS, "{runs}");
        assert!(trace.counts.interrupts > 0 && trace.counts.switches > 0, "{:?}", trace.counts);
        let begun = trace.counts.softirqs + trace.counts.interrupts;
        let ended = trace.events.iter().filter(|event| {
            matches!(
                event.what,
                TraceEventKind::SoftirqEnds { .. } | TraceEventKind::InterruptEnds { .. }
            )
        });
        let open = 2 * trace.cpus.len() as u64;
        assert!(begun.abs_diff(ended.count() as u64) <= open);
    });
}

#[test]
fn other_cpus_are_left_out() {
    if skip_without_tracing("other_cpus_are_left_out") {
        return;
    }
    let cpus = wirecost_linux::thread::allowed_cpus().unwrap();
    let report = observe(Some(vec![cpus[0]]), || std::thread::sleep(Duration::from_millis(50)));
    let trace = section(&report);
    assert_eq!(trace.cpus, [cpus[0]]);
    assert!(!trace.events.is_empty());
    assert!(trace.events.iter().all(|event| event.cpu == cpus[0]));
}
