//! The probe `locks`: locks that are held for as long as a test wants, because their holder waits for a page of
//! memory, against the clock of the test.
#![cfg(test)]

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use rustix::fs::{MemfdFlags, memfd_create};
use wirecost_linux::absent_page::AbsentPage;
use wirecost_linux::clock::Monotonic;
use wirecost_linux::privilege::skip_without_tracing;
use wirecost_model::clock::Clock;
use wirecost_model::observe::{
    HostObservation, LockKind, LockSite, LocksSection, ObserveRequest, ObserverReport, Part,
    ProbeStatus, WaitContext,
};
use wirecost_observe::Observer;

/// Each test has the waits of the process for itself.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

const HELD: Duration = Duration::from_millis(20);

/// What a wait was by the test's clock: nanoseconds at least and at most.
#[derive(Debug, Clone, Copy, Default)]
struct Bounds {
    least: u64,
    most: u64,
}

impl Bounds {
    fn contain(self, seconds: f64) -> bool {
        (self.least as f64 / 1e9..=self.most as f64 / 1e9).contains(&seconds)
    }
}

/// Whether a thread sleeps in a function, uninterruptibly, as who waits for a lock does.
fn sleeps_in(thread: i32, function: &str) -> bool {
    let read = |file: &str| fs::read_to_string(format!("/proc/self/task/{thread}/{file}"));
    let (Ok(stat), Ok(stack)) = (read("stat"), read("stack")) else { return false };
    let state = stat.rsplit_once(") ").map(|(_, rest)| rest.starts_with('D'));
    state == Some(true) && stack.contains(function)
}

/// One thread calls `hold` with a page that is not there, and another `want`, which waits in `function`, until
/// `meanwhile` has returned. Returns how long it waited.
fn contend(
    hold: impl FnOnce(&[u8]) + Send,
    want: impl FnOnce() + Send,
    function: &str,
    meanwhile: impl FnOnce(),
) -> Bounds {
    let page = AbsentPage::new().expect("userfaultfd");
    thread::scope(|scope| {
        scope.spawn(|| hold(page.bytes()));
        page.is_wanted().expect("a fault");
        let (tell, told) = mpsc::channel();
        let waiter = scope.spawn(move || {
            let thread = rustix::thread::gettid().as_raw_nonzero().get();
            tell.send(thread).expect("somebody listens");
            let before = Monotonic.now();
            want();
            Monotonic.now() - before
        });
        let thread = told.recv().expect("its number");
        while !sleeps_in(thread, function) {
            assert!(!waiter.is_finished(), "it did not wait");
            thread::sleep(Duration::from_millis(1));
        }
        let waits = Monotonic.now();
        meanwhile();
        let least = Monotonic.now() - waits;
        page.give().expect("a page");
        Bounds { least, most: waiter.join().expect("it ends") }
    })
}

fn observer() -> Observer {
    let parts = vec![
        Part { pid: Some(std::process::id()), ..Part::default() },
        // Of another process, which waits for none of this.
        Part { pid: Some(1), ..Part::default() },
    ];
    Observer::open(ObserveRequest { probes: vec!["locks".to_owned()], parts })
}

fn observe(load: impl FnOnce()) -> ObserverReport {
    let mut observer = observer();
    observer.attach();
    observer.begin();
    load();
    observer.end();
    observer.detach();
    observer.take()
}

fn section(observed: &HostObservation) -> &LocksSection {
    observed.locks.as_ref().expect("a section")
}

/// The rows of waits that functions of these names wanted, and of nobody else.
fn sites<'a>(report: &'a ObserverReport, functions: &[&str]) -> Vec<&'a LockSite> {
    let probe = &report.probes[0];
    assert_eq!(probe.status, ProbeStatus::Ready, "{:?}", probe.reason);
    let of = |observed: &'a HostObservation| -> Vec<&'a LockSite> {
        let wanted = |site: &&LockSite| {
            let name = site.function.as_deref().unwrap_or_default();
            functions.contains(&name.split('.').next().unwrap_or_default())
        };
        section(observed).sites.iter().filter(wanted).collect()
    };
    assert_eq!(of(&report.parts[1]), Vec::<&LockSite>::new());
    of(&report.parts[0])
}

/// Checks that it is the only row, and all of it but times.
#[track_caller]
fn only<'a>(sites: &[&'a LockSite], kind: LockKind, class: &str, owned: bool) -> &'a LockSite {
    let [site] = sites else { panic!("one row: {sites:#?}") };
    assert_eq!((site.kind, site.class.as_deref()), (kind, Some(class)), "{site:#?}");
    assert_eq!(site.context, WaitContext::Task, "{site:#?}");
    let this = Some(std::process::id());
    assert_eq!(site.waiter.as_ref().map(|task| task.pid), this, "{site:#?}");
    let own_name = fs::read_to_string("/proc/self/comm").expect("a name");
    assert_eq!(site.waiter.as_ref().map(|task| task.name.as_str()), Some(own_name.trim_end()));
    let owner = site.owner.as_ref().map(|task| task.pid);
    assert_eq!(owner, this.filter(|_| owned), "{site:#?}");
    assert!(site.stack.iter().any(|name| name.contains("do_syscall") || name.contains("el0_svc")));
    site
}

#[track_caller]
fn waited(site: &LockSite, all: &[Bounds]) {
    assert_eq!((site.waits, site.still_waiting), (all.len() as u64, 0), "{site:#?}");
    let sum = Bounds {
        least: all.iter().map(|one| one.least).sum(),
        most: all.iter().map(|one| one.most).sum(),
    };
    assert!(sum.contain(site.seconds), "{sum:?}: {site:#?}");
    let longest = Bounds {
        least: all.iter().map(|one| one.least).max().unwrap_or(0),
        most: all.iter().map(|one| one.most).max().unwrap_or(0),
    };
    assert!(longest.contain(site.longest_seconds), "{longest:?}: {site:#?}");
    assert!(site.spin_seconds <= site.seconds, "{site:#?}");
}

const PIPE: &[&str] = &["anon_pipe_write", "pipe_write"];

#[test]
fn a_mutex_is_waited_for_as_long_as_it_is_held() {
    if skip_without_tracing("a_mutex_is_waited_for_as_long_as_it_is_held") {
        return;
    }
    let _alone = alone();
    let mut all = Vec::new();
    let report = observe(|| {
        let (_reader, writer) = std::io::pipe().unwrap();
        for round in 1..=5 {
            let write = |bytes: &[u8]| (&writer).write_all(&bytes[..100]).unwrap();
            let hold = || thread::sleep(HELD * round);
            all.push(contend(write, || write(&[7; 100]), "pipe_write", hold));
        }
    });
    let site = only(&sites(&report, PIPE), LockKind::Mutex, "pipe", true);
    waited(site, &all);
    assert!(site.lock.as_ref().is_some_and(|lock| lock.starts_with("0x")), "{site:#?}");
}

#[test]
fn a_semaphore_is_waited_for_as_long_as_it_is_held() {
    if skip_without_tracing("a_semaphore_is_waited_for_as_long_as_it_is_held") {
        return;
    }
    let _alone = alone();
    let mut all = Vec::new();
    let report = observe(|| {
        let file = memfd_create("locks", MemfdFlags::CLOEXEC).unwrap();
        for round in 1..=3 {
            // At a place of its own, which needs no lock of the file's position.
            let write = |bytes: &[u8]| {
                rustix::io::pwrite(file.as_fd(), &bytes[..100], 0).unwrap();
            };
            let hold = || thread::sleep(HELD * round);
            all.push(contend(write, || write(&[7; 100]), "shmem_file_write_iter", hold));
        }
    });
    let sites = sites(&report, &["shmem_file_write_iter"]);
    waited(only(&sites, LockKind::RwsemWrite, "inode (i_rwsem)", true), &all);
}

#[test]
fn the_owner_of_a_socket_is_waited_for_as_long_as_it_has_the_socket() {
    if skip_without_tracing("the_owner_of_a_socket_is_waited_for_as_long_as_it_has_the_socket") {
        return;
    }
    let _alone = alone();
    let mut all = Vec::new();
    let report = observe(|| {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut server = listener.accept().unwrap().0;
        for round in 1..=3 {
            let write = |bytes: &[u8]| (&client).write_all(&bytes[..100]).unwrap();
            let hold = || thread::sleep(HELD * round);
            all.push(contend(write, || write(&[7; 100]), "__lock_sock", hold));
            server.read_exact(&mut [0; 200]).unwrap();
        }
    });
    let sites: Vec<&LockSite> = sites(&report, &["tcp_sendmsg"])
        .into_iter()
        .filter(|site| site.kind == LockKind::SocketOwner)
        .collect();
    let site = only(&sites, LockKind::SocketOwner, "socket owner (sk_lock.owned)", false);
    waited(site, &all);
    assert_eq!(site.lock, None);
}

/// Each wait is counted once, with its part inside the window.
#[test]
fn only_the_part_inside_the_window_counts() {
    if skip_without_tracing("only_the_part_inside_the_window_counts") {
        return;
    }
    let _alone = alone();
    let mut observer = observer();
    observer.attach();
    let (_reader, writer) = std::io::pipe().unwrap();
    let write = |bytes: &[u8]| (&writer).write_all(&bytes[..100]).unwrap();
    let want = || write(&[7; 100]);
    // All of it is before the window.
    contend(write, want, "pipe_write", || thread::sleep(HELD));
    let mut begun = Bounds::default();
    contend(write, want, "pipe_write", || {
        thread::sleep(3 * HELD);
        begun.most = Monotonic.now();
        observer.begin();
        begun.least = Monotonic.now();
        thread::sleep(HELD);
        begun.least = Monotonic.now() - begun.least;
    });
    begun.most = Monotonic.now() - begun.most;
    let mut going_on = Bounds::default();
    let before = Monotonic.now();
    contend(write, want, "pipe_write", || {
        let waits = Monotonic.now();
        thread::sleep(2 * HELD);
        going_on.least = Monotonic.now() - waits;
        observer.end();
        going_on.most = Monotonic.now() - before;
        thread::sleep(HELD);
    });
    // And this is after it.
    contend(write, want, "pipe_write", || thread::sleep(HELD));
    observer.detach();
    let report = observer.take();
    let site = only(&sites(&report, PIPE), LockKind::Mutex, "pipe", true);
    assert_eq!((site.waits, site.still_waiting), (1, 1), "{site:#?}");
    assert!(begun.contain(site.seconds), "{begun:?}: {site:#?}");
    assert!(begun.contain(site.longest_seconds), "{begun:?}: {site:#?}");
    assert!(going_on.contain(site.still_waiting_seconds), "{going_on:?}: {site:#?}");
    // The next window knows nothing of this one.
    let mut observer = self::observer();
    for _ in 0..2 {
        observer.attach();
        observer.begin();
        let bounds = contend(write, want, "pipe_write", || thread::sleep(HELD));
        observer.end();
        observer.detach();
        let report = observer.take();
        waited(only(&sites(&report, PIPE), LockKind::Mutex, "pipe", true), &[bounds]);
    }
}
