//! Descriptor tables: the number of descriptors of a process is limited, but each thread can have its
//! own table.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;

use rustix::fs::{Dir, Mode, OFlags, open};
use rustix::thread::{UnshareFlags, unshare_unsafe};

/// Hard limit of descriptors of this process' tables; the soft one is raised to it.
///
/// # Errors
/// When the kernel refuses to raise the soft limit.
pub fn raise_limit() -> io::Result<u64> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?;
    Ok(limit.maximum.unwrap_or(u64::MAX))
}

static STDOUT_WAS_CLOSED: AtomicBool = AtomicBool::new(false);

extern "C" fn look_at_stdout() {
    // SAFETY: asks for flags of a number, open or not.
    if unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) } == -1 {
        STDOUT_WAS_CLOSED.store(true, Relaxed);
    }
}

/// Called before `main`, and so before Rust's runtime opens /dev/null in place of standard streams that
/// are closed.
// SAFETY: the section holds functions of this type, and this one needs nothing that `main` prepares.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK_AT_STDOUT: extern "C" fn() = look_at_stdout;

/// Whether this process was started without a standard output.
#[must_use]
pub fn stdout_was_closed() -> bool {
    // Names the function's entry, so that no linker leaves it out.
    std::hint::black_box(&LOOK_AT_STDOUT);
    STDOUT_WAS_CLOSED.load(Relaxed)
}

/// Starts a thread with a descriptor table of its own, in which standard streams and `keep` are open. The
/// thread runs `work` with its own copies of `keep`, in order; the caller's stay as they are. Returns once
/// the two tables are separate.
///
/// A table that one thread alone uses also makes each look-up cheaper: the kernel then takes no
/// reference (`__fget_light`, <https://elixir.bootlin.com/linux/v6.12/source/fs/file.c#L1171>).
///
/// Every other number of the process is taken by a placeholder in the new table, so that connections of
/// other threads are not kept open by this one. It is never free: should `work` hold a descriptor that is
/// not of `keep`, it is told EBADF where it uses it, and closes the placeholder where it drops it.
/// It cannot reach, or close, what the thread opens by itself.
///
/// From then on descriptors cannot go from one of the two threads to the other as numbers, which is all that
/// [`OwnedFd`] is: send them with SCM_RIGHTS (unix(7)).
///
/// # Errors
/// Those of starting a thread; `InvalidInput` for one descriptor given twice. What the kernel refuses
/// of the table (unshare(2), dup3(2)) is told to `work`.
pub fn spawn_with_own_table<T: Send + 'static>(
    thread: std::thread::Builder,
    keep: &[BorrowedFd<'_>],
    work: impl FnOnce(io::Result<Vec<OwnedFd>>) -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let numbers: Vec<RawFd> = keep.iter().map(AsRawFd::as_raw_fd).collect();
    if numbers.iter().enumerate().any(|(place, number)| numbers[..place].contains(number)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let (separate, separated) = sync_channel::<()>(1);
    let handle = thread.spawn(move || {
        let kept = own_table(&numbers);
        let _ = separate.send(());
        drop(separate);
        work(kept)
    })?;
    // Until then the new thread counts on the caller's descriptors being open. It drops its end of the
    // channel in any case.
    let _ = separated.recv();
    Ok(handle)
}

/// For a thread that has just begun, whose caller keeps `keep` open: nothing but standard streams and these
/// is open in its table afterwards.
fn own_table(keep: &[RawFd]) -> io::Result<Vec<OwnedFd>> {
    // SAFETY: only this thread's table changes, from which every number still leads to the same file.
    unsafe { unshare_unsafe(UnshareFlags::FILES) }?;
    let placeholder = open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let list = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let list = open("/proc/thread-self/fd", list, Mode::empty())?;
    let own = [placeholder.as_raw_fd(), list.as_raw_fd()];
    let mut others = Vec::new();
    for entry in Dir::new(list)? {
        let number = entry?.file_name().to_str().ok().and_then(|name| name.parse().ok());
        let is_other =
            |&number: &RawFd| number > 2 && !own.contains(&number) && !keep.contains(&number);
        others.extend(number.filter(is_other));
    }
    for number in others {
        // SAFETY: in this table, which nobody else uses, the number leads to a copy of what others have.
        // That copy goes, and the number leads to the placeholder from now on; it does not get free.
        let result = unsafe { libc::dup3(own[0], number, libc::O_CLOEXEC) };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    // SAFETY: the caller's descriptors were open when the table was copied, each once; the copies in this
    // table have no other owner.
    Ok(keep.iter().map(|&fd| unsafe { OwnedFd::from_raw_fd(fd) }).collect())
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;
    use std::thread::Builder;

    use super::*;

    #[test]
    fn a_table_of_its_own_leaves_the_process_alone() {
        let mut kept = File::open("/proc/self/stat").unwrap();
        let mut other = File::open("/proc/self/status").unwrap();
        let number = kept.as_raw_fd();
        let work = move |owned: io::Result<Vec<OwnedFd>>| {
            let owned = owned.unwrap();
            assert_eq!(owned[0].as_raw_fd(), number);
            let mut byte = [0u8; 1];
            assert_eq!(rustix::io::read(&owned[0], &mut byte).unwrap(), 1);
        };
        spawn_with_own_table(Builder::new(), &[kept.as_fd()], work).unwrap().join().unwrap();
        let mut text = String::new();
        other.read_to_string(&mut text).unwrap();
        assert!(text.contains("Name:"));
        kept.read_to_string(&mut text).unwrap();
    }

    #[test]
    fn what_is_not_kept_is_not_kept_open() {
        let (kept, _other) = UnixStream::pair().unwrap();
        let (gone, mut reader) = UnixStream::pair().unwrap();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let work = move |owned: io::Result<Vec<OwnedFd>>| {
            assert_eq!(owned.unwrap().len(), 1);
            let _ = ended.recv();
        };
        let thread = spawn_with_own_table(Builder::new(), &[kept.as_fd()], work).unwrap();
        // The thread is there and has no copy of it, so the other end hears that it is closed.
        drop(gone);
        assert_eq!(reader.read(&mut [0; 1]).unwrap(), 0);
        drop(end);
        thread.join().unwrap();
    }

    /// What the thread has by mistake it can neither use nor take from another.
    #[test]
    fn a_descriptor_that_was_not_kept_reaches_nothing_of_the_thread() {
        let (stray, mut other) = UnixStream::pair().unwrap();
        let in_process = stray.try_clone().unwrap();
        let work = move |owned: io::Result<Vec<OwnedFd>>| {
            assert!(owned.unwrap().is_empty());
            let number = stray.as_raw_fd();
            // All that it opens gets another number.
            let own: Vec<_> = (0..20).map(|_| UnixStream::pair().unwrap()).collect();
            assert!(own.iter().all(|(a, b)| a.as_raw_fd() != number && b.as_raw_fd() != number));
            let error = (&stray).write(b"x").unwrap_err();
            assert!(matches!(error.raw_os_error(), Some(libc::EBADF | libc::ENOTSOCK)), "{error}");
            drop(stray);
            for (mut a, mut b) in own {
                a.write_all(b"y").unwrap();
                b.read_exact(&mut [0; 1]).unwrap();
            }
        };
        spawn_with_own_table(Builder::new(), &[], work).unwrap().join().unwrap();
        // The process' own is as it was.
        (&in_process).write_all(b"z").unwrap();
        other.read_exact(&mut [0; 1]).unwrap();
    }

    #[test]
    fn one_descriptor_has_one_owner() {
        let file = File::open("/proc/self/stat").unwrap();
        let twice = [file.as_fd(), file.as_fd()];
        let error = spawn_with_own_table(Builder::new(), &twice, |_| ()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}
