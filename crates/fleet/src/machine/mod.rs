//! One measuring run at a time on each machine, unless their CPUs are disjoint or the user shares.
//!
//! A run has a socket in the runtime directory for as long as it measures. All processes of one run
//! have its identity, so a run never stands in its own way. Runs start one at a time, under a lock
//! that is held for the time it takes to look around.

mod holder;
mod status_socket;

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, Dir, FlockOperation, Mode, OFlags, flock, openat, unlinkat};
use wirecost_linux::clock::unix_ms;
use wirecost_model::holder::{Holder, RunIdentity};
use wirecost_model::warning::{SharedMachine, Warning};

pub use holder::{describe, list, this_run};
use status_socket::{Found, OtherRuns, StatusSocket, ask};

use crate::runtime_dir::{self, Directory, RuntimeDirError};

/// Name of the directory in the runtime directory.
const RUNS: &str = "runs";
const LOCK: &str = "lock";
const SOCKET: &str = ".sock";
/// How often one who waits looks whether the user has had enough.
const LOOK: Duration = Duration::from_millis(100);
/// How long one who waits for a holder that takes no connection waits before it asks again.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// Why a run may not measure on this machine now.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    #[error(transparent)]
    Directory(#[from] RuntimeDirError),
    #[error("cannot {act} {path}: {source}")]
    File {
        act: &'static str,
        path: String,
        #[source]
        source: io::Error,
    },
    #[error("another run measures on this machine: {}", list(holders))]
    Busy { holders: Vec<Holder> },
    #[error("interrupted")]
    Interrupted,
}

/// What to do where another run measures on the same CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ConflictPolicy {
    /// How long to wait for it to end.
    pub wait: Duration,
    /// Run beside it; both results say so.
    pub share: bool,
}

/// What a claim needs to know while it waits.
pub trait ClaimWaiter {
    /// Whether nobody wants the claim any more.
    fn is_cancelled(&self) -> bool;

    /// Hears once which runs are waited for.
    fn on_conflict(&mut self, holders: &[Holder]);
}

/// Holds CPUs of this machine for a run. The kernel releases them when the process ends.
#[derive(Debug)]
pub struct Claim {
    socket: Option<StatusSocket>,
    directory: Directory,
    name: String,
    neighbours: OtherRuns,
}

type Present = (Holder, Option<UnixStream>);

impl Claim {
    /// Claims `cpus` of this machine, all where there are none, for a run.
    ///
    /// # Errors
    /// [`ClaimError::Busy`] when others hold them, after waiting where that was asked for.
    pub fn take(
        run: &RunIdentity,
        cpus: &[u32],
        conflict: ConflictPolicy,
        waiting: &mut dyn ClaimWaiter,
    ) -> Result<Self, ClaimError> {
        let (own, of_root) = (runtime_dir::own(RUNS)?, runtime_dir::of_root(RUNS));
        Self::take_in(own, of_root.as_ref(), run, cpus, conflict, waiting)
    }

    fn take_in(
        directory: Directory,
        of_root: Option<&Directory>,
        run: &RunIdentity,
        cpus: &[u32],
        conflict: ConflictPolicy,
        waiting: &mut dyn ClaimWaiter,
    ) -> Result<Self, ClaimError> {
        let due = Instant::now().checked_add(conflict.wait);
        let mut told = false;
        loop {
            let lock = lock(&directory)?;
            let mut present = look(&directory, true)?;
            if let Some(of_root) = of_root {
                present.extend(look(of_root, false)?);
            }
            // Whoever shares with this run has joined it, and does not keep its next part from starting.
            let is_held =
                present.iter().any(|(holder, _)| holder.run.id == run.id && holder.covers(cpus));
            present.retain(|(holder, _)| holder.run.id != run.id && holder.overlaps(cpus));
            if present.is_empty() || conflict.share || is_held {
                return Self::open(directory, run, cpus, present);
            }
            drop(lock);
            let mut holders: Vec<Holder> =
                present.iter().map(|(holder, _)| holder.clone()).collect();
            once_each(&mut holders);
            if due.is_some_and(|due| Instant::now() >= due) {
                return Err(ClaimError::Busy { holders });
            }
            if !told {
                told = true;
                waiting.on_conflict(&holders);
            }
            until_one_ends(&present, due, waiting)?;
        }
    }

    fn open(
        directory: Directory,
        run: &RunIdentity,
        cpus: &[u32],
        present: Vec<Present>,
    ) -> Result<Self, ClaimError> {
        let holder =
            Holder { run: run.clone(), since_unix_ms: unix_ms() as u64, cpus: cpus.to_vec() };
        let random: u32 = fastrand::u32(..);
        let name = format!("{}-{random:08x}{SOCKET}", std::process::id());
        let neighbours = OtherRuns::default();
        let socket = StatusSocket::open(&directory, &name, &holder, present, &neighbours)
            .map_err(failed("open the status socket", &directory.path().join(&name)))?;
        Ok(Self { socket: Some(socket), directory, name, neighbours })
    }

    /// Other runs that have used the same CPUs at any time since then.
    #[must_use]
    pub fn others_since(&self, instant: Instant) -> Vec<Holder> {
        let neighbours = self.neighbours.lock().unwrap_or_else(PoisonError::into_inner);
        let there = neighbours.iter().filter(|one| one.until.is_none_or(|until| until >= instant));
        let mut holders: Vec<Holder> = there.map(|one| one.holder.clone()).collect();
        once_each(&mut holders);
        holders
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // One that is killed leaves its name behind, which the next run removes.
        let _ = unlinkat(self.directory.handle(), &self.name, AtFlags::empty());
        self.socket = None;
    }
}

/// What to say on a result of a run that was not alone on `host`.
#[must_use]
pub fn shared(host: &str, others: &[Holder]) -> Option<Warning> {
    let others: Vec<String> = others.iter().map(describe).collect();
    let host = host.to_owned();
    (!others.is_empty()).then(|| Warning::from(SharedMachine { host, others }))
}

/// A run on several processes is one run.
fn once_each(holders: &mut Vec<Holder>) {
    let mut known: Vec<String> = Vec::new();
    holders.retain(|holder| {
        let is_new = !known.contains(&holder.run.id);
        known.push(holder.run.id.clone());
        is_new
    });
}

fn failed(act: &'static str, path: &Path) -> impl Fn(io::Error) -> ClaimError + use<> {
    let path = path.display().to_string();
    move |source| ClaimError::File { act, path: path.clone(), source }
}

/// Lets one process at a time look around and start. Closing the descriptor unlocks.
fn lock(directory: &Directory) -> Result<OwnedFd, ClaimError> {
    let failed = failed("lock", &directory.path().join(LOCK));
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    // Nobody else may open it: a lock on it would keep all runs of this user from starting.
    let file = openat(directory.handle(), LOCK, flags, Mode::RUSR | Mode::WUSR)
        .map_err(|error| failed(error.into()))?;
    loop {
        match flock(&file, FlockOperation::LockExclusive) {
            Ok(()) => return Ok(file),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(failed(error.into())),
        }
    }
}

/// All runs that have a socket in the directory; removes sockets whose process has ended.
fn look(directory: &Directory, remove: bool) -> Result<Vec<Present>, ClaimError> {
    let failed = failed("read", directory.path());
    let entries = Dir::read_from(directory.handle()).map_err(|error| failed(error.into()))?;
    let mut present = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| failed(error.into()))?;
        let name = OsString::from_vec(entry.file_name().to_bytes().to_vec());
        let Some(name) = name.to_str().filter(|name| name.ends_with(SOCKET)) else { continue };
        match ask(directory, name) {
            Ok(Found::Holder(holder, stream)) => present.push((holder, stream)),
            Ok(Found::Stale) if remove => {
                let _ = unlinkat(directory.handle(), name, AtFlags::empty());
            }
            Ok(Found::Stale) => {}
            Err(error) => return Err(failed(error)),
        }
    }
    Ok(present)
}

/// Returns when a run has ended, or there is another reason to look again.
fn until_one_ends(
    present: &[Present],
    due: Option<Instant>,
    waiting: &dyn ClaimWaiter,
) -> Result<(), ClaimError> {
    let streams: Vec<&UnixStream> =
        present.iter().filter_map(|(_, stream)| stream.as_ref()).collect();
    let again = (streams.len() < present.len()).then(|| Instant::now() + ASK_AGAIN);
    let due = [due, again].into_iter().flatten().min();
    loop {
        if waiting.is_cancelled() {
            return Err(ClaimError::Interrupted);
        }
        let left = due.map_or(LOOK, |due| due.saturating_duration_since(Instant::now()));
        if left.is_zero() {
            return Ok(());
        }
        let mut ended: Vec<PollFd<'_>> =
            streams.iter().map(|stream| PollFd::new(*stream, PollFlags::IN)).collect();
        let patience = Timespec::try_from(left.min(LOOK)).ok();
        match poll(&mut ended, patience.as_ref()) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(error) => return Err(failed("poll", Path::new(SOCKET))(error.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::net::UnixListener;
    use std::sync::mpsc::channel;

    use tempfile::TempDir;

    use super::*;

    /// A machine of its own.
    struct Machine(TempDir);

    /// Waits for ever, and tells a channel that it does.
    struct Patient(std::sync::mpsc::Sender<Vec<Holder>>);

    impl ClaimWaiter for Patient {
        fn is_cancelled(&self) -> bool {
            false
        }

        fn on_conflict(&mut self, holders: &[Holder]) {
            self.0.send(holders.to_vec()).unwrap();
        }
    }

    struct Over;

    impl ClaimWaiter for Over {
        fn is_cancelled(&self) -> bool {
            true
        }

        fn on_conflict(&mut self, _: &[Holder]) {}
    }

    const NOW: ConflictPolicy = ConflictPolicy { wait: Duration::ZERO, share: false };
    const SHARE: ConflictPolicy = ConflictPolicy { wait: Duration::ZERO, share: true };
    const WAIT: ConflictPolicy = ConflictPolicy { wait: Duration::MAX, share: false };

    fn run(command: &str) -> RunIdentity {
        this_run(command.to_owned()).unwrap()
    }

    impl Machine {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn take(
            &self,
            run: &RunIdentity,
            cpus: &[u32],
            conflict: ConflictPolicy,
            waiting: &mut dyn ClaimWaiter,
        ) -> Result<Claim, ClaimError> {
            let directory = runtime_dir::make(&self.0.path().join("runtime"), RUNS, 0o700)?;
            Claim::take_in(directory, None, run, cpus, conflict, waiting)
        }

        fn sockets(&self) -> Vec<String> {
            let entries = fs::read_dir(self.0.path().join("runtime").join(RUNS)).unwrap();
            let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
            names.filter(|name| name.ends_with(SOCKET)).collect()
        }
    }

    #[track_caller]
    fn busy(result: Result<Claim, ClaimError>) -> Vec<Holder> {
        match result {
            Err(ClaimError::Busy { holders }) => holders,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn one_run_at_a_time_on_each_cpu() {
        let machine = Machine::new();
        let (first, second) = (run("first"), run("second"));
        let claim = machine.take(&first, &[0, 1], NOW, &mut Over).unwrap();
        let holders = busy(machine.take(&second, &[1, 2], NOW, &mut Over));
        assert_eq!((holders.len(), &holders[0].run), (1, &first));
        assert_eq!(holders[0].cpus, [0, 1]);
        busy(machine.take(&second, &[], NOW, &mut Over));
        // Its own processes and runs on other CPUs do not stand in its way, nor does either tell of them.
        let of_same = machine.take(&first, &[0, 1], NOW, &mut Over).unwrap();
        let beside = machine.take(&second, &[2, 3], NOW, &mut Over).unwrap();
        assert_eq!(machine.sockets().len(), 3);
        let began = Instant::now();
        assert!([&claim, &of_same, &beside].iter().all(|one| one.others_since(began).is_empty()));
        drop((of_same, claim));
        assert_eq!(machine.sockets().len(), 1);
        machine.take(&run("third"), &[1], NOW, &mut Over).unwrap();
    }

    #[test]
    fn who_waits_starts_when_the_other_ends() {
        let machine = Machine::new();
        let first = run("first");
        let claim = machine.take(&first, &[], NOW, &mut Over).unwrap();
        let (sender, told) = channel();
        std::thread::scope(|scope| {
            let waits = scope
                .spawn(|| machine.take(&run("second"), &[], WAIT, &mut Patient(sender)).unwrap());
            assert_eq!(told.recv().unwrap()[0].run, first);
            assert!(!waits.is_finished());
            drop(claim);
            let second = waits.join().unwrap();
            assert!(second.others_since(Instant::now()).is_empty());
        });
        let _claim = machine.take(&first, &[], NOW, &mut Over).unwrap();
        let interrupted = machine.take(&run("third"), &[], WAIT, &mut Over);
        assert!(matches!(interrupted, Err(ClaimError::Interrupted)), "{interrupted:?}");
    }

    /// What another thread is to do without being waited for.
    fn until(holds: impl Fn() -> bool) {
        while !holds() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn who_shares_is_known_to_both_for_as_long_as_both_are_there() {
        let machine = Machine::new();
        let (first, second) = (run("first"), run("second"));
        let began = Instant::now();
        let one = machine.take(&first, &[0], NOW, &mut Over).unwrap();
        let two = machine.take(&second, &[0], SHARE, &mut Over).unwrap();
        until(|| one.others_since(began).iter().any(|holder| holder.run == second));
        assert_eq!(two.others_since(began)[0].run, first);
        assert!(two.others_since(Instant::now())[0].run == first);
        // The next part of the first run starts all the same; others do not.
        let next = machine.take(&first, &[0], NOW, &mut Over).unwrap();
        assert_eq!(next.others_since(began)[0].run, second);
        busy(machine.take(&first, &[0, 1], NOW, &mut Over));
        busy(machine.take(&run("third"), &[0], NOW, &mut Over));
        drop((next, two));
        until(|| one.others_since(Instant::now()).is_empty());
        assert_eq!(one.others_since(began)[0].run, second);
        assert!(shared("here", &one.others_since(began)).is_some());
        assert!(shared("here", &[]).is_none());
    }

    #[test]
    fn a_name_without_a_process_is_removed_and_a_stranger_is_in_the_way() {
        let machine = Machine::new();
        drop(machine.take(&run("first"), &[], NOW, &mut Over).unwrap());
        let runs = machine.0.path().join("runtime").join(RUNS);
        drop(UnixListener::bind(runs.join("1-stale.sock")).unwrap());
        let _claim = machine.take(&run("second"), &[7], NOW, &mut Over).unwrap();
        assert_eq!(machine.sockets().len(), 1);
        // Somebody listens and says nothing: nobody knows on which CPUs.
        let _silent = UnixListener::bind(runs.join("1-silent.sock")).unwrap();
        let holders = busy(machine.take(&run("third"), &[8], NOW, &mut Over));
        assert_eq!((holders.len(), holders[0].run.pid), (1, std::process::id()));
    }
}
