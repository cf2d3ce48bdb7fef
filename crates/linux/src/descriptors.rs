//! Descriptor tables: one process may hold only so many descriptors, but each thread can have a
//! table of its own.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

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

/// Gives the calling thread a descriptor table of its own that holds only standard streams and
/// `keep`.
///
/// A table that one thread alone uses also makes each look-up cheaper: the kernel then takes no
/// reference (`__fget_light`, <https://elixir.bootlin.com/linux/v6.12/source/fs/file.c#L1171>).
/// Every other descriptor of the process is closed in this thread only. What is returned owns this
/// thread's copies of `keep`, in order; the process' own stay as they are.
///
/// # Errors
/// Those of unshare(2) and close_range(2).
pub fn own_table(keep: &[RawFd]) -> io::Result<Vec<OwnedFd>> {
    // SAFETY: unshare takes a flag word and changes only this thread's table.
    if unsafe { libc::unshare(libc::CLONE_FILES) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut numbers: Vec<u32> = keep.iter().filter_map(|&fd| u32::try_from(fd).ok()).collect();
    numbers.sort_unstable();
    let mut first = 3u32;
    for fd in numbers {
        if fd > first {
            close_range(first, fd - 1)?;
        }
        first = first.max(fd + 1);
    }
    close_range(first, u32::MAX)?;
    // SAFETY: the numbers are open in this table, which is a moment old: nothing here owns them.
    Ok(keep.iter().map(|&fd| unsafe { OwnedFd::from_raw_fd(fd) }).collect())
}

fn close_range(first: u32, last: u32) -> io::Result<()> {
    // SAFETY: the descriptors belong to this thread's private copy of the table, where no owner
    // object refers to them.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0u32) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn a_private_table_leaves_the_process_alone() {
        let mut kept = File::open("/proc/self/stat").unwrap();
        let mut dropped = File::open("/proc/self/status").unwrap();
        let (keep, drop_) = (kept.as_raw_fd(), dropped.as_raw_fd());
        std::thread::spawn(move || {
            let owned = own_table(&[keep]).unwrap();
            // SAFETY: only asks whether the number is open.
            let open = |fd| unsafe { libc::fcntl(fd, libc::F_GETFD) } >= 0;
            assert!(open(keep));
            assert!(!open(drop_));
            let mut byte = [0u8; 1];
            assert_eq!(rustix::io::read(&owned[0], &mut byte).unwrap(), 1);
        })
        .join()
        .unwrap();
        let mut text = String::new();
        dropped.read_to_string(&mut text).unwrap();
        assert!(text.contains("Name:"));
        kept.read_to_string(&mut text).unwrap();
    }
}
