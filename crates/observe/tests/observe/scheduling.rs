//! The probe `scheduling` against threads whose wake-ups, waits and migrations are known, and against what the kernel
//! counts itself.

use std::fs;
use std::io::{PipeWriter, Read, Write};
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use wirecost_linux::thread::{self, RealtimePriority};
use wirecost_linux::{clock, privilege};
use wirecost_model::observe::{
    CpuHolder, ObserveRequest, ObserverReport, Part, ProbeStatus, SchedulingSection,
    ThreadScheduling,
};
use wirecost_observe::Observer;

use crate::attempts::undisturbed_machine;

fn observer() -> Observer {
    let part = Part {
        host: "here".to_owned(),
        pid: Some(std::process::id()),
        netns_of: Some(std::process::id()),
        ..Part::default()
    };
    Observer::open(ObserveRequest { probes: vec!["scheduling".to_owned()], parts: vec![part] })
}

fn watch(load: impl FnOnce()) -> ObserverReport {
    watch_by(&mut observer(), load)
}

fn watch_by(observer: &mut Observer, load: impl FnOnce()) -> ObserverReport {
    observer.attach();
    observer.begin();
    load();
    observer.end();
    observer.detach();
    let report = observer.take();
    let probe = &report.probes[0];
    assert_eq!(probe.status, ProbeStatus::Ready, "{:?}", probe.reason);
    assert_eq!(probe.cost.recursion_misses, 0);
    report
}

fn section(report: &ObserverReport) -> &SchedulingSection {
    report.parts[0].scheduling.as_ref().expect("a section")
}

fn of<'a>(report: &'a ObserverReport, thread: &Worker) -> &'a ThreadScheduling {
    let threads = &section(report).threads;
    let found = threads.iter().find(|of| of.thread == thread.id).expect("it is watched");
    assert_eq!((found.process, found.name.as_str()), (std::process::id(), thread.name));
    found
}

/// What the kernel counts of a thread itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Counted {
    /// Nanoseconds.
    waited: u64,
    came: u64,
}

/// A thread that does a piece of work each time that it is told to.
struct Worker {
    id: u32,
    name: &'static str,
    orders: PipeWriter,
    handle: JoinHandle<()>,
}

impl Worker {
    fn start(name: &'static str, mut work: impl FnMut() + Send + 'static) -> Self {
        let (mut orders, to_worker) = std::io::pipe().expect("a pipe");
        let (id_to, id) = std::sync::mpsc::channel();
        let handle = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                id_to.send(rustix::thread::gettid()).expect("somebody waits");
                while orders.read_exact(&mut [0]).is_ok() {
                    work();
                }
            })
            .expect("a thread");
        let id = id.recv().expect("it runs").as_raw_nonzero().get() as u32;
        let worker = Self { id, name, orders: to_worker, handle };
        worker.until_it_sleeps();
        worker
    }

    fn tell(&mut self) {
        self.orders.write_all(&[1]).expect("it reads");
    }

    fn read(&self, file: &str) -> String {
        fs::read_to_string(format!("/proc/self/task/{}/{file}", self.id)).expect("it is there")
    }

    /// Waits until it has left its CPU to wait, which its own count of switches tells.
    fn until_it_sleeps(&self) {
        let slept = || {
            let stat = self.read("stat");
            let (_, fields) = stat.rsplit_once(')').expect("a name");
            // Nothing is under way and nothing runs: the call it is in.
            let read = if cfg!(target_arch = "x86_64") { "0 " } else { "63 " };
            fields.trim_start().starts_with('S') && self.read("syscall").starts_with(read)
        };
        while !slept() {
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    /// Switches of its own will.
    fn sleeps(&self) -> u64 {
        let status = self.read("status");
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.expect("a count").trim().parse().expect("a number")
    }

    fn counted(&self) -> Counted {
        let text = self.read("schedstat");
        let mut numbers = text.split_ascii_whitespace().map(|n| n.parse().expect("a number"));
        let mut next = || numbers.next().expect("three");
        next();
        Counted { waited: next(), came: next() }
    }

    fn end(self) {
        drop(self.orders);
        self.handle.join().expect("it ends");
    }
}

fn ns(seconds: f64) -> u64 {
    (seconds * 1e9).round() as u64
}

fn cpus() -> Vec<u32> {
    thread::allowed_cpus().expect("CPUs")
}

fn burn(milliseconds: u64) {
    let end = clock::thread_cpu_time() + milliseconds * 1_000_000;
    while clock::thread_cpu_time() < end {
        std::hint::spin_loop();
    }
}

/// What all of its parts say together.
fn check_sums(of: &ThreadScheduling) {
    let held: f64 = of.waited_for.iter().map(CpuHolder::seconds).sum();
    let all = held + of.waited_for_no_task.seconds + of.unlisted_seconds;
    let waited = of.waited_seconds().expect("the kernel counts");
    assert!((all - waited).abs() < 1e-8, "{all} of {waited}: {of:#?}");
    let run_queue = of.run_queue.as_ref().expect("the kernel counts");
    assert_eq!(run_queue.histogram.count(), run_queue.count);
    let by = &of.wakeups;
    assert_eq!(by.total, by.by_task + by.by_softirq + by.by_interrupt + by.by_idle);
}

#[test]
fn a_thread_is_woken_as_often_as_somebody_writes_to_its_pipe() {
    const TIMES: u64 = 203;
    if privilege::skip_without_tracing("a_thread_is_woken_as_often_as_somebody_writes_to_its_pipe")
    {
        return;
    }
    undisturbed_machine(|| {
        let mut worker = Worker::start("woken", || {});
        let before = (worker.counted(), worker.sleeps());
        let report = watch(|| {
            for _ in 0..TIMES {
                let slept = worker.sleeps();
                worker.tell();
                while worker.sleeps() == slept {
                    std::thread::yield_now();
                }
                worker.until_it_sleeps();
            }
        });
        let after = (worker.counted(), worker.sleeps());
        worker.end_after(&report, |of| {
            assert_eq!((of.wakeups.total, of.wakeups.by_task), (TIMES, TIMES));
            assert_eq!(of.sleeps, after.1 - before.1);
            let run_queue = of.run_queue.as_ref().expect("the kernel counts");
            assert_eq!(run_queue.count, after.0.came - before.0.came);
            assert_eq!(ns(run_queue.seconds), after.0.waited - before.0.waited);
            assert_eq!(run_queue.count, TIMES + of.preemptions);
            assert_eq!(of.wakeup_latency.count, TIMES);
            // From the waker on it is never shorter than from the queue on.
            assert!(of.wakeup_latency.seconds > 0.0);
            assert_eq!((of.ended, of.open_at_end.count), (false, 0));
        });
    });
}

impl Worker {
    /// Checks what was seen of it, and ends it.
    fn end_after(self, report: &ObserverReport, check: impl FnOnce(&ThreadScheduling)) {
        let of = of(report, &self);
        check_sums(of);
        check(of);
        self.end();
    }
}

#[test]
fn a_thread_that_shares_its_cpu_is_preempted_by_the_other_as_long_as_the_kernel_counts() {
    const NAME: &str =
        "a_thread_that_shares_its_cpu_is_preempted_by_the_other_as_long_as_the_kernel_counts";
    if privilege::skip_without_tracing(NAME) {
        return;
    }
    undisturbed_machine(|| {
        let cpu = cpus()[0];
        let on_cpu = move || {
            thread::pin(cpu).expect("it is there");
            burn(150);
        };
        let mut both = [Worker::start("victim", on_cpu), Worker::start("hog", on_cpu)];
        let before = [both[0].counted(), both[1].counted()];
        let report = watch(|| {
            both.iter_mut().for_each(Worker::tell);
            for (worker, before) in both.iter().zip(before) {
                while worker.counted().came == before.came {
                    std::thread::yield_now();
                }
                worker.until_it_sleeps();
            }
        });
        let mut waited = 0.0;
        for (worker, before) in both.into_iter().zip(before) {
            let other = if worker.name == "hog" { "victim" } else { "hog" };
            let after = worker.counted();
            worker.end_after(&report, |of| {
                let run_queue = of.run_queue.as_ref().expect("the kernel counts");
                assert_eq!(ns(run_queue.seconds), after.waited - before.waited, "{of:#?}");
                assert_eq!(run_queue.count, after.came - before.came);
                assert_eq!(of.cpu, Some(cpu));
                waited += run_queue.seconds;
                let holder = of.waited_for.iter().find(|holder| holder.name == other);
                let holder = holder.unwrap_or_else(|| panic!("{of:#?}"));
                assert_eq!(
                    (holder.process, holder.kernel_thread),
                    (Some(std::process::id()), false)
                );
                assert!(of.preemptions >= holder.preemptions);
                assert!(run_queue.max_us.expect("waits") * 1e-6 <= run_queue.seconds);
                let preempted = of.preempted_seconds.expect("the kernel counts");
                assert!(preempted > 0.0 && preempted <= run_queue.seconds, "{of:#?}");
            });
        }
        // Whichever ended last has waited for all that the other one used.
        assert!(waited >= 0.149, "{waited}");
    });
}

#[test]
fn every_migration_by_affinity_is_counted() {
    const TIMES: u64 = 57;
    if privilege::skip_without_tracing("every_migration_by_affinity_is_counted") {
        return;
    }
    let cpus = cpus();
    let [first, second, ..] = cpus[..] else {
        return privilege::skip("every_migration_by_affinity_is_counted", "needs two CPUs");
    };
    undisturbed_machine(|| {
        let mut number = 0;
        let mut worker = Worker::start("wanderer", move || {
            // The first time only finds the place.
            let times = if number == 0 { 1 } else { TIMES };
            for _ in 0..times {
                thread::pin(if number % 2 == 0 { first } else { second }).expect("it is there");
                number += 1;
            }
        });
        let once = |worker: &mut Worker| {
            let slept = worker.sleeps();
            worker.tell();
            while worker.sleeps() == slept {
                std::thread::yield_now();
            }
            worker.until_it_sleeps();
        };
        once(&mut worker);
        let report = watch(|| once(&mut worker));
        worker.end_after(&report, |of| {
            assert_eq!(of.migrations, TIMES);
            assert_eq!(of.cpu, Some(second), "an odd number of times");
        });
    });
}

#[test]
fn nothing_outside_of_the_window_counts() {
    if privilege::skip_without_tracing("nothing_outside_of_the_window_counts") {
        return;
    }
    undisturbed_machine(|| {
        let mut worker = Worker::start("outside", || burn(1));
        let work = |worker: &mut Worker| {
            for _ in 0..20 {
                let slept = worker.sleeps();
                worker.tell();
                while worker.sleeps() == slept {
                    std::thread::yield_now();
                }
                worker.until_it_sleeps();
            }
        };
        let mut observer = observer();
        for _ in 0..2 {
            observer.attach();
            work(&mut worker);
            observer.begin();
            std::thread::sleep(Duration::from_millis(5));
            observer.end();
            work(&mut worker);
            observer.detach();
            let report = observer.take();
            let of = of(&report, &worker);
            assert_eq!(of.wakeups.total + of.sleeps + of.preemptions + of.migrations, 0, "{of:#?}");
            assert_eq!((of.waited_seconds(), of.wakeup_latency.count), (Some(0.0), 0), "{of:#?}");
            assert_eq!((of.began_before.count, of.open_at_end.count), (0, 0));
            assert!(of.waited_for.is_empty(), "{of:#?}");
            // This test itself, at least.
            assert!(section(&report).seconds >= 0.005);
        }
        worker.end();
    });
}

#[test]
fn softirqs_and_timers_wake_otherwise_than_tasks_do() {
    const TIMES: u64 = 40;
    if privilege::skip_without_tracing("softirqs_and_timers_wake_otherwise_than_tasks_do") {
        return;
    }
    undisturbed_machine(|| {
        let mut timed = Worker::start("timed", || {
            for _ in 0..TIMES {
                std::thread::sleep(Duration::from_micros(300));
            }
        });
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        sender.connect(socket.local_addr().expect("bound")).expect("loopback");
        let mut receiver = Worker::start("receiver", move || {
            for _ in 0..TIMES {
                socket.recv(&mut [0]).expect("a datagram");
            }
        });
        let waits_in = |worker: &Worker, call: &str| worker.read("syscall").starts_with(call);
        let report = watch(|| {
            timed.tell();
            receiver.tell();
            for _ in 0..TIMES {
                // recvfrom: https://man7.org/linux/man-pages/man2/syscalls.2.html
                let number = format!("{} ", libc_recvfrom());
                while !waits_in(&receiver, &number) {
                    std::thread::yield_now();
                }
                let slept = receiver.sleeps();
                sender.send(&[7]).expect("loopback");
                while receiver.sleeps() == slept {
                    std::thread::yield_now();
                }
            }
            receiver.until_it_sleeps();
            timed.until_it_sleeps();
        });
        timed.end_after(&report, |of| {
            // The order by the pipe is the one by a task.
            assert_eq!((of.wakeups.by_interrupt, of.wakeups.by_task), (TIMES, 1), "{of:#?}");
        });
        receiver.end_after(&report, |of| {
            assert_eq!((of.wakeups.by_softirq, of.wakeups.by_task), (TIMES, 1), "{of:#?}");
        });
    });
}

/// Number of the system call.
fn libc_recvfrom() -> i64 {
    if cfg!(target_arch = "x86_64") { 45 } else { 207 }
}

/// Ends what a failed test would leave: threads that spin, and the CPU of the test.
struct Undo {
    stop: Arc<AtomicBool>,
    cpus: Vec<u32>,
}

impl Drop for Undo {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        thread::restrict(&self.cpus).expect("they are there");
    }
}

/// A thread that is always preempted, by one of real-time priority, while `work` is done on another CPU. That is
/// short, as the kernel leaves other threads some time of each second. The test must have made sure that it may have
/// real-time priority.
fn while_preempted(work: impl FnOnce(&Worker, &mut Observer, &dyn Fn())) {
    let cpus = cpus();
    let (cpu, other) = (cpus[0], cpus[1]);
    let stop = Arc::new(AtomicBool::new(false));
    let undo = Undo { stop: Arc::clone(&stop), cpus };
    let there = Arc::new(AtomicBool::new(false));
    let (is_there, until) = (Arc::clone(&there), Arc::clone(&stop));
    let mut victim = Worker::start("victim", move || {
        thread::pin(cpu).expect("it is there");
        is_there.store(true, Ordering::Release);
        while !until.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
    });
    let spins = Arc::new(AtomicBool::new(false));
    let refused = Arc::new(AtomicBool::new(false));
    let (spinning, until) = (Arc::clone(&spins), Arc::clone(&stop));
    let refuses = Arc::clone(&refused);
    let mut hog = Worker::start("hog", move || {
        thread::pin(cpu).expect("it is there");
        // Without, both would share the CPU, and the test would wait for an end that it does not see.
        if !thread::set_realtime(RealtimePriority::Watch) {
            refuses.store(true, Ordering::Release);
            return;
        }
        spinning.store(true, Ordering::Release);
        while !until.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
        thread::clear_realtime();
    });
    let mut observer = observer();
    thread::pin(other).expect("it is there");
    victim.tell();
    while !there.load(Ordering::Acquire) {
        std::thread::yield_now();
    }
    hog.tell();
    while !spins.load(Ordering::Acquire) {
        assert!(
            !refused.load(Ordering::Acquire),
            "no real-time priority for a thread of this process"
        );
        std::thread::yield_now();
    }
    work(&victim, &mut observer, &|| {
        stop.store(true, Ordering::Relaxed);
        hog.until_it_sleeps();
        victim.until_it_sleeps();
    });
    drop(undo);
    victim.end();
    hog.end();
}

/// Tried by a thread that ends.
fn may_be_realtime() -> bool {
    let tried = std::thread::spawn(|| thread::set_realtime(RealtimePriority::Watch));
    tried.join().expect("it ends")
}

#[test]
fn a_thread_that_ends_says_so() {
    if privilege::skip_without_tracing("a_thread_that_ends_says_so") {
        return;
    }
    undisturbed_machine(|| {
        let worker = Worker::start("mortal", || {});
        let (id, name) = (worker.id, worker.name);
        let mut worker = Some(worker);
        let report = watch(|| worker.take().expect("it lives").end());
        let threads = &section(&report).threads;
        let of = threads.iter().find(|of| of.thread == id).expect("it was watched");
        assert_eq!((of.name.as_str(), of.ended), (name, true));
        assert_eq!(of.wakeups.by_task, 1, "{of:#?}");
    });
}

/// Its last wait is known when it leaves its CPU for the last time.
#[test]
fn the_last_wait_of_a_thread_that_ends_is_its_own() {
    const NAME: &str = "the_last_wait_of_a_thread_that_ends_is_its_own";
    if privilege::skip_without_tracing(NAME) {
        return;
    }
    undisturbed_machine(|| {
        let cpu = cpus()[0];
        let mut mortal = Worker::start("mortal", move || {
            thread::pin(cpu).expect("it is there");
            burn(30);
        });
        let hog_works = Arc::new(AtomicBool::new(true));
        let works = Arc::clone(&hog_works);
        let mut hog = Worker::start("hog", move || {
            thread::pin(cpu).expect("it is there");
            while works.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        let before = mortal.counted();
        let (id, mut after) = (mortal.id, before);
        let report = watch(|| {
            hog.tell();
            mortal.tell();
            while mortal.counted().came < before.came + 2 {
                std::thread::sleep(Duration::from_micros(200));
            }
            // The other thread shares its CPU to the end: it waits whenever it comes back.
            let Worker { orders, handle, .. } = mortal;
            drop(orders);
            let counts = || fs::read_to_string(format!("/proc/self/task/{id}/schedstat"));
            while let Ok(text) = counts() {
                let mut numbers = text.split_ascii_whitespace().skip(1).flat_map(str::parse);
                let (Some(waited), Some(came)) = (numbers.next(), numbers.next()) else { break };
                after = Counted { waited, came };
                std::thread::sleep(Duration::from_micros(200));
            }
            handle.join().expect("it ends");
            hog_works.store(false, Ordering::Relaxed);
            hog.until_it_sleeps();
        });
        hog.end();
        let threads = &section(&report).threads;
        let of = threads.iter().find(|of| of.thread == id).expect("it was watched");
        check_sums(of);
        let run_queue = of.run_queue.as_ref().expect("the kernel counts");
        assert!(of.ended, "{of:#?}");
        // It came once for each wake-up and after each preemption, also the last time.
        assert_eq!(run_queue.count, of.wakeup_latency.count + of.preemptions, "{of:#?}");
        // At least what the kernel counted when it was last seen.
        assert!(run_queue.count >= after.came - before.came, "{after:?} {before:?} {of:#?}");
        assert!(ns(run_queue.seconds) >= after.waited - before.waited, "{after:?} {of:#?}");
        assert_eq!(of.open_at_end.count, 0, "{of:#?}");
    });
}

/// A second instrument: all tasks of the machine together, as the counters of each thread do not have them.
#[test]
fn other_tasks_are_counted_together() {
    if privilege::skip_without_tracing("other_tasks_are_counted_together") {
        return;
    }
    undisturbed_machine(|| {
        let part = Part { host: "here".to_owned(), ..Part::default() };
        let request = ObserveRequest { probes: vec!["scheduling".to_owned()], parts: vec![part] };
        let mut observer = Observer::open(request);
        let mut worker = Worker::start("other", || {});
        let before = (worker.counted(), worker.sleeps());
        observer.attach();
        observer.begin();
        for _ in 0..100 {
            let slept = worker.sleeps();
            worker.tell();
            while worker.sleeps() == slept {
                std::thread::yield_now();
            }
        }
        observer.end();
        observer.detach();
        let after = (worker.counted(), worker.sleeps());
        worker.end();
        let report = observer.take();
        let section = section(&report);
        assert!(section.threads.is_empty());
        let others = &section.others;
        let waits = others.run_queue.as_ref().expect("the kernel counts");
        assert!(others.wakeups.by_task >= 100, "{others:#?}");
        // The last of them may still be under way.
        assert!(waits.count + 1 >= after.0.came - before.0.came, "{others:#?}");
        assert!(others.sleeps + 1 >= after.1 - before.1, "{others:#?}");
        assert_eq!(waits.count, waits.histogram.count());
    });
}

/// A thread of real-time priority keeps all others from its CPU.
mod alone {
    use super::*;

    #[test]
    fn waits_across_the_edges_count_only_inside_of_the_window() {
        const NAME: &str = "waits_across_the_edges_count_only_inside_of_the_window";
        if privilege::skip_without_tracing(NAME) {
            return;
        }
        if cpus().len() < 2 {
            return privilege::skip(NAME, "needs two CPUs");
        }
        if !may_be_realtime() {
            return privilege::skip(NAME, "needs real-time priority (CAP_SYS_NICE)");
        }
        undisturbed_machine(|| {
            // It waits before, during and after.
            while_preempted(|victim, observer, _| {
                let report = watch_by(observer, || std::thread::sleep(Duration::from_millis(20)));
                let of = of(&report, victim);
                let window = section(&report).seconds;
                assert_eq!((of.open_at_end.count, of.open_at_end.seconds), (1, window), "{of:#?}");
                check_sums(of);
                assert_eq!(of.run_queue.as_ref().expect("the kernel counts").count, 0);
            });
            // It waits no longer when the window ends.
            while_preempted(|victim, observer, end| {
                let report = watch_by(observer, || {
                    std::thread::sleep(Duration::from_millis(20));
                    end();
                });
                let of = of(&report, victim);
                assert_eq!(of.began_before.count, 1, "{of:#?}");
                assert!(of.began_before.seconds >= 0.020, "{of:#?}");
                assert!(of.began_before.seconds <= section(&report).seconds);
                check_sums(of);
            });
        });
    }
}
