//! The probe `syscalls` against calls that were counted, and time against the clock of the thread. Calls are counted of
//! a whole process: each test runs in one of its own under scripts/test.

use std::fs::File;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use wirecost_linux::{clock, privilege, thread};
use wirecost_model::clock::seconds;
use wirecost_model::observe::{
    HostObservation, ObserveRequest, ObserverReport, Part, ProbeStatus, SyscallRow, SyscallsSection,
};
use wirecost_observe::Observer;

use crate::attempts::undisturbed_machine;

fn watch(parts: Vec<Part>, load: impl FnOnce()) -> ObserverReport {
    let probes = ["cpu", "syscalls"].map(str::to_owned).to_vec();
    let mut observer = Observer::open(ObserveRequest { probes, parts });
    observer.attach();
    observer.begin();
    load();
    observer.end();
    observer.detach();
    let observation = observer.take();
    for report in &observation.probes {
        assert_eq!(report.status, ProbeStatus::Ready, "{report:?}");
        assert_eq!(report.cost.recursion_misses, 0);
    }
    observation
}

fn of_this_process() -> Part {
    Part { host: "here".to_owned(), pid: Some(std::process::id()), ..Part::default() }
}

fn section(observed: &HostObservation) -> &SyscallsSection {
    observed.syscalls.as_ref().expect("a section")
}

fn call<'a>(observed: &'a HostObservation, name: &str) -> &'a SyscallRow {
    let calls = &section(observed).calls;
    calls.iter().find(|call| call.name == name).unwrap_or_else(|| panic!("{name} in {calls:?}"))
}

#[test]
fn every_call_is_counted_and_every_byte() {
    if privilege::skip_without_tracing("every_call_is_counted_and_every_byte") {
        return;
    }
    let zero = File::open("/dev/zero").expect("/dev/zero");
    let (pipe, _other_end) = std::io::pipe().expect("a pipe");
    let pipe = File::from(std::os::fd::OwnedFd::from(pipe));
    let others = Part { host: "all".to_owned(), ..Part::default() };
    let nobody = Part { pid: Some(1 << 23), ..others.clone() };
    // Of one process; of all; of two, which are told apart.
    for parts in [
        vec![of_this_process()],
        vec![others.clone()],
        vec![of_this_process(), nobody.clone()],
        vec![of_this_process(), others],
    ] {
        let of_all = parts[0].pid.is_none();
        let observation = watch(parts.clone(), || {
            let mut buffer = [0; 997];
            // Its loader reads its libraries by pread64.
            let other = Command::new("true").status().expect("a program");
            assert!(other.success());
            for _ in 0..1009 {
                std::hint::black_box(rustix::process::getppid());
            }
            for _ in 0..499 {
                assert_eq!(zero.read_at(&mut buffer, 0).expect("zeros"), 997);
            }
            // Of a pipe nothing can be read at a place.
            for _ in 0..101 {
                assert!(pipe.read_at(&mut buffer, 0).is_err());
            }
        });
        let observed = &observation.parts[0];
        let (getppid, pread) = (call(observed, "getppid"), call(observed, "pread64"));
        if of_all {
            assert!(getppid.count >= 1009 && pread.bytes >= Some(499 * 997));
            continue;
        }
        assert_eq!((getppid.count, getppid.failed, getppid.bytes), (1009, 0, None));
        assert_eq!((pread.count, pread.failed, pread.bytes), (600, 101, Some(499 * 997)));
        for row in [getppid, pread] {
            assert_eq!(row.histogram_ns.iter().sum::<u64>(), row.count);
            assert!(row.average_us > 0.0 && row.average_us <= row.max_us, "{row:?}");
            // By powers of two, so the longest is in the last that has any.
            let longest = (row.max_us * 1e3).round() as u64;
            assert_eq!(row.histogram_ns.len(), longest.max(1).ilog2() as usize + 1, "{row:?}");
        }
        // A part of another process has its own table, one of all has more.
        if let Some(second) = observation.parts.get(1) {
            match parts[1].pid {
                Some(_) => assert_eq!(section(second).count, 0),
                None => {
                    let (one, all) = (call(observed, "pread64"), call(second, "pread64"));
                    assert!(all.count > one.count, "{all:?}");
                }
            }
        }
    }
}

/// Runs work on a CPU until the thread has used so much time. Returns what it used.
fn work_on(cpu: u32, milliseconds: u64, mut work: impl FnMut() + Send + 'static) -> f64 {
    std::thread::spawn(move || {
        thread::pin(cpu).expect("the CPU is there");
        let begin = clock::thread_cpu_time();
        loop {
            work();
            let used = clock::thread_cpu_time() - begin;
            if used >= milliseconds * 1_000_000 {
                return seconds(used);
            }
        }
    })
    .join()
    .expect("the thread ends")
}

#[cfg(target_arch = "x86_64")]
#[test]
fn a_call_that_was_under_way_is_in_no_row() {
    if privilege::skip_without_tracing("a_call_that_was_under_way_is_in_no_row") {
        return;
    }
    let receiver = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    // One that is lost is a failure, not a wait without an end.
    receiver.set_read_timeout(Some(Duration::from_secs(10))).expect("set");
    let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    let to = receiver.local_addr().expect("an address");
    let (tell, told) = std::sync::mpsc::channel();
    let waiting = std::thread::spawn(move || {
        tell.send(rustix::thread::gettid().as_raw_nonzero().get()).expect("heard");
        receiver.recv(&mut [0; 8]).expect("received")
    });
    let thread = told.recv().expect("told");
    let recvfrom = 45;
    // It sleeps in the call where the kernel can say which one it is.
    let state = || std::fs::read_to_string(format!("/proc/self/task/{thread}/syscall"));
    while state().is_ok_and(|state| !state.starts_with(&format!("{recvfrom} "))) {
        std::thread::yield_now();
    }
    let observation = watch(vec![of_this_process()], || {
        sender.send_to(&[7; 8], to).expect("sent");
        assert_eq!(waiting.join().expect("it ends"), 8);
    });
    let observed = &observation.parts[0];
    assert_eq!(call(observed, "sendto").count, 1);
    let received = section(observed).calls.iter().find(|call| call.name == "recvfrom");
    assert_eq!(received, None);
}

/// Other programs on the CPUs change what these compare.
mod measured {
    use super::*;

    #[test]
    fn sleep_is_waiting_and_not_work() {
        if privilege::skip_without_tracing("sleep_is_waiting_and_not_work") {
            return;
        }
        // Time in which the hypervisor runs others is time on the CPU to the kernel.
        undisturbed_machine(|| {
            let observation = watch(vec![of_this_process()], || {
                for _ in 0..7 {
                    std::thread::sleep(Duration::from_millis(20));
                }
            });
            let sleep = call(&observation.parts[0], "clock_nanosleep");
            assert_eq!(sleep.count, 7);
            let all = sleep.waited_seconds + sleep.seconds + sleep.interrupted_seconds;
            assert!(all >= 0.140, "{sleep:?}");
            // False failures: 1e-6, computed: calls take 0.1 ms; the hypervisor would have to take 70 ms of 140 and not report it.
            assert!(sleep.seconds < 0.07, "{sleep:?}");
        });
    }

    #[test]
    fn user_and_system_are_told_apart_to_the_clock_of_the_thread() {
        if privilege::skip_without_tracing(
            "user_and_system_are_told_apart_to_the_clock_of_the_thread",
        ) {
            return;
        }
        undisturbed_machine(compare_with_the_clock_of_a_thread);
    }

    /// Where other programs run, a few calls of hundreds are not counted.
    fn compare_with_the_clock_of_a_thread() {
        let cpu = *thread::allowed_cpus().expect("CPUs").last().expect("a CPU");
        let part = Part { cpus: Some(vec![cpu]), ..of_this_process() };
        let split = |observation: &ObserverReport| {
            let cpu = observation.parts[0].cpu.as_ref().expect("cpu");
            let split = cpu.usr_sys.as_ref().expect("a split");
            assert_eq!((split.source.as_str(), split.samples), ("spans", 0));
            let time = &cpu.total;
            (
                split.usr * time.task,
                (1.0 - split.usr) * time.task,
                time.irq + time.softirq,
                time.wall,
            )
        };

        // In the kernel: a large read of zeros, which the kernel writes byte by byte.
        let zero = File::open("/dev/zero").expect("/dev/zero");
        let mut used = 0.0;
        let reads = Arc::new(AtomicU64::new(0));
        let observation = watch(vec![part.clone()], || {
            let reads = reads.clone();
            // So large that the call is nearly all of the thread's time; its pages are there before.
            let mut buffer = vec![1; 8 << 20];
            used = work_on(cpu, 211, move || {
                zero.read_at(&mut buffer, 0).expect("zeros");
                reads.fetch_add(1, Ordering::Relaxed);
            });
        });
        let (usr, sys, interrupts, wall) = split(&observation);
        let of_call = call(&observation.parts[0], "pread64");
        assert_eq!(of_call.count, reads.load(Ordering::Relaxed), "{usr} user, {sys} kernel");
        // The thread's clock has what interrupted it, too, and not what a hypervisor took, which
        // /proc/stat tells in steps of 10 ms.
        let spans = of_call.seconds + of_call.interrupted_seconds;
        let cpu_section = observation.parts[0].cpu.as_ref().expect("cpu");
        let stolen = cpu_section.total.steal.expect("/proc/stat") + 0.010;
        // False failures: 1e-6, computed: outside of the call is 1 us of each ms, and what is stolen is allowed for.
        assert!(
            spans >= 0.97 * used && spans <= 1.01 * used + stolen,
            "{spans} of {used}: {of_call:?}"
        );
        // False failures: 1e-6, computed: as that of the call, which is in it.
        assert!(sys + interrupts >= 0.97 * used, "{sys} + {interrupts} of {used}");
        // Others may have used what is left of the wall.
        // False failures: 1e-6, computed: the other part of the same sum.
        assert!(usr <= wall - 0.97 * used, "{usr} of {wall}");

        // In user mode: the clock of the machine is read without a call.
        let observation = watch(vec![part], || {
            used = work_on(cpu, 211, || {
                let begin = Instant::now();
                while begin.elapsed() < Duration::from_millis(5) {
                    std::hint::spin_loop();
                }
            });
        });
        let (usr, sys, interrupts, wall) = split(&observation);
        // False failures: 1e-6, computed: a call of 1 us each 5 ms is 0.02%, and ticks are in interrupts.
        assert!(usr + interrupts >= 0.97 * used, "{usr} + {interrupts} of {used}");
        // False failures: 1e-6, computed: the other part of the same sum.
        assert!(sys <= wall - 0.97 * used, "{sys} of {wall}");
        // False failures: 1e-6, computed: a pause of 21 ms would have to fall into calls, 0.02% of the time, and not be reported.
        assert!(section(&observation.parts[0]).seconds < 0.1 * used);
    }
}
