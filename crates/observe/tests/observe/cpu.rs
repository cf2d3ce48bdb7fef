//! The probe `cpu` against loads that are known, on the kernel that there is.

use std::fs;
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::Duration;

use wirecost_linux::{clock, privilege, process_time, thread};
use wirecost_model::clock::{Clock, seconds};
use wirecost_model::observe::{CpuSection, ObserveRequest, ObserverReport, Part, ProbeStatus};
use wirecost_model::proportion;
use wirecost_observe::Observer;

use crate::attempts::undisturbed_machine;
use crate::known;

fn watch(part: Part, load: impl FnOnce()) -> ObserverReport {
    let mut observer =
        Observer::open(ObserveRequest { probes: vec!["cpu".to_owned()], parts: vec![part] });
    observer.attach();
    observer.begin();
    load();
    observer.end();
    observer.detach();
    observer.take()
}

fn section(observation: &ObserverReport) -> &CpuSection {
    observation.parts[0].cpu.as_ref().expect("a section")
}

fn of_machine() -> Part {
    Part { host: "here".to_owned(), ..Part::default() }
}

/// Uses the CPU for so long, by the clock of the thread itself.
fn burn(cpu: u32, milliseconds: u64) {
    std::thread::spawn(move || {
        thread::pin(cpu).expect("the CPU is there");
        let end = clock::thread_cpu_time() + milliseconds * 1_000_000;
        while clock::thread_cpu_time() < end {
            std::hint::spin_loop();
        }
    })
    .join()
    .expect("the thread ends");
}

fn first_cpu() -> u32 {
    thread::allowed_cpus().expect("CPUs")[0]
}

#[test]
fn the_parts_of_time_add_up_to_the_wall() {
    if privilege::skip_without_tracing("the_parts_of_time_add_up_to_the_wall") {
        return;
    }
    // Each CPU begins and ends on its own, and on a busy machine some time after the others: its wall lies between
    // the load's and that of the whole.
    let mut inner = 0.0;
    let before = clock::Monotonic.now();
    let observation = watch(of_machine(), || {
        let began = clock::Monotonic.now();
        burn(first_cpu(), 300);
        inner = seconds(clock::Monotonic.now() - began);
    });
    let outer = seconds(clock::Monotonic.now() - before);
    let report = &observation.probes[0];
    assert_eq!(report.status, ProbeStatus::Ready, "{:?}", report.reason);
    assert!(report.cost.hooks >= 10, "{:?}", report.cost);
    assert_eq!(report.cost.recursion_misses, 0);
    let section = section(&observation);
    assert_eq!(section.source, "bpf");
    let wall = observation.parts[0].seconds;
    let may_be = inner..outer;
    assert!(may_be.contains(&wall), "{wall} of {may_be:?}");
    for time in &section.per_cpu {
        let parts = time.idle + time.idle_loop.unwrap() + time.task + time.irq + time.softirq;
        assert!((parts - time.wall).abs() < 1e-6, "{time:?}");
        assert!(may_be.contains(&time.wall), "{} of {may_be:?}", time.wall);
        let softirqs: f64 = time.softirqs.iter().map(|softirq| softirq.seconds).sum();
        assert!((softirqs - time.softirq).abs() < 1e-6);
    }
}

#[test]
fn a_known_load_is_found_on_its_cpu_and_with_its_process() {
    if privilege::skip_without_tracing("a_known_load_is_found_on_its_cpu_and_with_its_process") {
        return;
    }
    let cpu = *thread::allowed_cpus().expect("CPUs").last().expect("a CPU");
    let part = Part { cpus: Some(vec![cpu]), pid: Some(std::process::id()), ..of_machine() };
    let observation = watch(part, || burn(cpu, 401));
    let section = section(&observation);
    assert_eq!(section.per_cpu.len(), 1);
    let time = &section.per_cpu[0];
    assert_eq!(time.cpu, Some(cpu));
    // Others may have run there too, and interrupts are counted apart from the task.
    assert!(time.task + time.irq + time.softirq >= 0.400, "{time:?}");
    // All threads of this process, of which other tests have some.
    assert_eq!(section.processes.len(), 1);
    assert!(section.processes[0].seconds >= 0.401, "{:?}", section.processes);
    assert!(!section.processes[0].kernel_thread);
}

#[test]
fn a_window_is_of_its_own_time_only() {
    if privilege::skip_without_tracing("a_window_is_of_its_own_time_only") {
        return;
    }
    let mut observer = Observer::open(ObserveRequest {
        probes: vec!["cpu".to_owned()],
        parts: vec![of_machine()],
    });
    for _ in 0..2 {
        observer.attach();
        burn(first_cpu(), 50);
        let before = clock::Monotonic.now();
        observer.begin();
        let began = clock::Monotonic.now();
        std::thread::sleep(Duration::from_millis(60));
        let ended = clock::Monotonic.now();
        observer.end();
        let may_be = seconds(ended - began)..seconds(clock::Monotonic.now() - before);
        burn(first_cpu(), 50);
        observer.detach();
        let observation = observer.take();
        let wall = observation.parts[0].seconds;
        let time = &section(&observation).per_cpu[0];
        assert!(may_be.contains(&wall), "{wall} of {may_be:?}");
        assert!(may_be.contains(&time.wall), "{} of {may_be:?}", time.wall);
    }
}

const TURN: u64 = 50_000_000;

/// A window in which a thread runs on a CPU for 50 ms and sleeps for 50 ms in turn, for longer than the kernel keeps
/// what nobody reads.
fn watch_turns(cpu: u32) -> ObserverReport {
    const WINDOW: u64 = 3_500_000_000;
    let request = ObserveRequest { probes: vec!["cpu".to_owned()], parts: vec![of_machine()] };
    let mut observer = Observer::open(request);
    observer.attach();
    let over = clock::Monotonic.now() + WINDOW + TURN;
    let load = std::thread::spawn(move || {
        thread::pin(cpu).expect("the CPU is there");
        while clock::Monotonic.now() < over {
            // Begins and ends where parts do.
            while (clock::Monotonic.now() / TURN).is_multiple_of(2) {
                std::hint::spin_loop();
            }
            clock::sleep(TURN - clock::Monotonic.now() % TURN);
        }
    });
    observer.begin();
    let start = clock::Monotonic.now();
    observer.watch(start, start + WINDOW, WINDOW, |until| {
        clock::sleep(until.saturating_sub(clock::Monotonic.now()));
        true
    });
    observer.end();
    observer.detach();
    load.join().expect("the thread ends");
    observer.take()
}

#[test]
fn parts_of_10_ms_add_up_to_the_window() {
    if privilege::skip_without_tracing("parts_of_10_ms_add_up_to_the_window") {
        return;
    }
    let observation = watch_turns(first_cpu());
    let section = section(&observation);
    let samples = section.samples.as_ref().expect("samples");
    assert_eq!(samples.seconds, 0.01);
    assert_eq!(samples.cpus.len(), section.per_cpu.len());
    for (sampled, time) in samples.cpus.iter().zip(&section.per_cpu) {
        assert_eq!((Some(sampled.cpu), sampled.lost()), (time.cpu, 0));
        let sum =
            |of: &[Option<u32>]| of.iter().flatten().map(|&us| f64::from(us)).sum::<f64>() / 1e6;
        // All but the ends of the window, which are no whole parts.
        for (sum, whole) in [
            (sum(&sampled.busy_us), time.wall - time.idle),
            (sum(&sampled.softirq_us), time.softirq),
            (sum(&sampled.irq_us), time.irq),
        ] {
            assert!(sum <= whole + 0.001 && sum >= whole - 0.021, "{sum} of {whole}");
        }
        let left = time.wall - sampled.busy_us.len() as f64 * samples.seconds;
        assert!((0.0..0.0201).contains(&left), "{left} s are in no part");
        assert!(sampled.interrupts.iter().flatten().sum::<u32>() > 10);
    }
}

/// Another program that keeps the CPU busy changes whether it halts.
mod alone {
    use super::*;

    #[test]
    fn the_way_into_and_out_of_a_halt_is_no_idle_time() {
        if privilege::skip_without_tracing("the_way_into_and_out_of_a_halt_is_no_idle_time") {
            return;
        }
        let cpu = first_cpu();
        let part = Part { cpus: Some(vec![cpu]), ..of_machine() };
        let observation = watch(part, || {
            let sleeper = std::thread::spawn(move || {
                thread::pin(cpu).expect("the CPU is there");
                (0..100).for_each(|_| std::thread::sleep(Duration::from_micros(500)));
            });
            sleeper.join().expect("the thread ends");
        });
        let time = &section(&observation).per_cpu[0];
        // Where others keep it busy it does not halt.
        assert_eq!(time.idle > 0.0, time.idle_loop.expect("told") > 0.0, "{time:?}");
        // The thread has come and gone each time, and somebody else in between.
        assert!(time.switches >= Some(200), "{time:?}");
    }
}

/// Other programs on the CPUs change what these compare.
mod measured {
    use super::*;

    /// Begins before the window and ends in it: only its time in the window counts, under its name.
    #[test]
    fn a_program_that_ended_has_a_name() {
        if privilege::skip_without_tracing("a_program_that_ended_has_a_name") {
            return;
        }
        // As long as the kernel keeps names, and of no other program here.
        const NAME: &str = "ended-in-window";
        let directory = tempfile::tempdir().expect("a directory");
        let program = directory.path().join(NAME);
        fs::copy("/bin/sh", &program).expect("a shell");
        let burn = "i=0; while [ $i -lt 200000 ]; do i=$((i + 1)); done";
        let mut child = Command::new(&program)
            .args(["-c", &format!("{burn}; echo; read line; {burn}; exit 0")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the shell starts");
        child.stdout.as_mut().expect("its output").read_exact(&mut [0]).expect("it has run");
        let stat = format!("/proc/{}/stat", child.id());
        let state = |wanted: &str| {
            let text = fs::read_to_string(&stat).expect("it is not reaped");
            text.contains(&format!("({NAME}) {wanted} "))
        };
        while !state("S") {
            std::thread::sleep(Duration::from_millis(1));
        }
        let time = |pid| seconds(process_time::cpu_time(pid).expect("its clock"));
        let before = time(child.id());
        let mut used = 0.0;
        let observation = watch(of_machine(), || {
            drop(child.stdin.take());
            while !state("Z") {
                std::thread::sleep(Duration::from_millis(1));
            }
            used = time(child.id()) - before;
            child.wait().expect("it ended");
        });
        assert!(before > 0.0 && used > 0.0);
        let section = section(&observation);
        let all = section.ended.as_ref().expect("they are traced");
        let ended = all.programs.iter().find(|program| program.name == NAME).expect("its name");
        assert_eq!((ended.processes, ended.kernel_thread), (1, false));
        // A tick, where the kernel has not yet added up its time.
        // False failures: 1e-6, computed: both are the kernel's sum of its time, which it brings up to date at each tick.
        assert!((ended.seconds - used).abs() < 0.01 + used / 10.0, "{} of {used}", ended.seconds);
        assert!(all.seconds >= ended.seconds);
        assert!(!section.processes.iter().any(|process| process.name == NAME));
    }

    /// Others may use the CPU as well, and nobody knows how their time divides: so what is right is a
    /// range.
    #[test]
    fn task_time_is_divided_as_it_was_used() {
        if privilege::skip_without_tracing("task_time_is_divided_as_it_was_used") {
            return;
        }
        let cpu = *thread::allowed_cpus().expect("CPUs").last().expect("a CPU");
        let part = Part { cpus: Some(vec![cpu]), ..of_machine() };
        let mut observer = Observer::open_at(
            ObserveRequest { probes: vec!["cpu".to_owned()], parts: vec![part] },
            997,
        );
        observer.attach();
        observer.begin();
        let (user, kernel) = std::thread::spawn(move || {
            thread::pin(cpu).expect("the CPU is there");
            known::use_both(1_500)
        })
        .join()
        .expect("the thread ends");
        observer.end();
        observer.detach();
        let observation = observer.take();
        let section = section(&observation);
        let split = section.usr_sys.as_ref().expect("samples");
        assert_eq!(split.source, "sampled");
        assert_eq!(section.usr_sys_per_cpu[0].as_ref(), Some(split));
        let (low, high) = split.interval.expect("an interval");
        assert!(low < split.usr && split.usr < high);
        let (user, kernel) = (seconds(user), seconds(kernel));
        let others = (section.total.task - user - kernel).max(0.0);
        let range = (user / section.total.task, (user + others) / section.total.task);
        let found = (split.usr * split.samples as f64).round() as u64;
        let (low, high) = proportion::wilson(found, split.samples, 4.5);
        // The clock of the thread leaves out what a hypervisor took; a sampler cannot tell. What was not sampled
        // may have been of either.
        let known = (split.samples as f64 / (997.0 * section.total.task)).min(1.0);
        let (low, high) = (low * known - 0.01, high * known + 1.0 - known + 0.01);
        // False failures: 7e-6, computed: a share of samples is 4.5 standard deviations off.
        assert!(low <= range.1 && range.0 <= high, "{low}..{high}, and is {range:?}");
    }

    #[test]
    fn two_observers_do_not_disturb_each_other() {
        if privilege::skip_without_tracing("two_observers_do_not_disturb_each_other") {
            return;
        }
        undisturbed_machine(compare_two_observers);
    }

    fn compare_two_observers() {
        let open = || {
            let request =
                ObserveRequest { probes: vec!["cpu".to_owned()], parts: vec![of_machine()] };
            Observer::open(request)
        };
        let (mut outer, mut inner) = (open(), open());
        outer.attach();
        outer.begin();
        inner.attach();
        inner.begin();
        burn(first_cpu(), 200);
        inner.end();
        inner.detach();
        outer.end();
        outer.detach();
        let (outer, inner) = (outer.take(), inner.take());
        for (seen, other) in [(&outer, &inner), (&inner, &outer)] {
            assert_eq!(seen.probes[0].status, ProbeStatus::Ready);
            assert_eq!(seen.probes[0].cost.hooks, other.probes[0].cost.hooks);
            for time in &section(seen).per_cpu {
                let parts =
                    time.idle + time.idle_loop.unwrap() + time.task + time.irq + time.softirq;
                assert!((parts - time.wall).abs() < 1e-6, "{time:?}");
            }
        }
        // The one window is within the other. Both read the clock at each transition, one after the other, so
        // that each transition gives or takes some nanoseconds.
        for (whole, part) in section(&outer).per_cpu.iter().zip(&section(&inner).per_cpu) {
            assert!(part.wall < whole.wall, "{part:?} of {whole:?}");
            let apart = 0.05 * whole.wall;
            // False failures: 1e-5, computed: a pause of 10 ms would have to fall between two readings, 0.04% of the time.
            assert!(part.task <= whole.task + apart, "{part:?} of {whole:?}");
            // False failures: 1e-5, computed: as that of tasks.
            assert!(part.softirq <= whole.softirq + apart, "{part:?} of {whole:?}");
            assert!(part.switches <= whole.switches);
        }
    }

    #[test]
    fn parts_of_10_ms_show_when_a_cpu_was_busy() {
        if privilege::skip_without_tracing("parts_of_10_ms_show_when_a_cpu_was_busy") {
            return;
        }
        let cpu = first_cpu();
        undisturbed_machine(|| {
            let observation = watch_turns(cpu);
            let samples = section(&observation).samples.as_ref().expect("samples");
            let sampled =
                samples.cpus.iter().find(|sampled| sampled.cpu == cpu).expect("it is there");
            let busy: Vec<f64> = sampled.parts(samples.seconds).map(|part| part.busy).collect();
            let median = |mut values: Vec<f64>| {
                values.sort_by(f64::total_cmp);
                values[values.len() / 2]
            };
            // Five parts and five parts in turn, wherever in a turn the window began.
            let seen: Vec<(f64, f64)> = (0..10)
                .map(|shift| {
                    let (on, off): (Vec<_>, Vec<_>) =
                        busy.iter().enumerate().partition(|(place, _)| (place + shift) % 10 < 5);
                    let values =
                        |parts: Vec<(usize, &f64)>| parts.iter().map(|(_, v)| **v).collect();
                    (median(values(on)), median(values(off)))
                })
                .collect();
            let clear = seen.iter().filter(|(on, off)| *on > 95.0 && *off < 30.0).count();
            // With one that is two parts off, three of five are still right.
            // False failures: 1e-6, computed: half of 175 parts would have to be wrong, and the machine to report nothing.
            assert!((1..=5).contains(&clear), "{seen:?}");
            // In the opposite turn, all is the other way round.
            // False failures: 1e-6, computed: half of 175 parts would have to be wrong, and the machine to report nothing.
            assert!(seen.iter().any(|(on, off)| *on < 30.0 && *off > 95.0), "{seen:?}");
        });
    }
}
