//! What of a file is in the page cache.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::mm::{MapFlags, ProtFlags};
use rustix::param::page_size;

/// Of `cachestat_range` in `include/uapi/linux/mman.h`.
#[repr(C)]
struct Range {
    offset: u64,
    length: u64,
}

/// Pages, of `struct cachestat` there.
#[repr(C)]
#[derive(Default)]
struct CacheStat {
    cached: u64,
    dirty: u64,
    in_writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// Bytes of a part of a file that are in the page cache, in whole pages: at most `length`. Linux 6.5 has
/// cachestat(2) for it
/// (<https://elixir.bootlin.com/linux/v6.12/source/mm/filemap.c#L4475>); before, mincore(2) says it.
///
/// # Errors
/// Those of these calls. `PermissionDenied` where the file is neither the caller's nor writable by it: what
/// others read is not told to everyone.
pub fn cached_bytes(file: impl AsFd, start: u64, length: u64) -> io::Result<u64> {
    if length == 0 {
        return Ok(0);
    }
    let file = file.as_fd();
    let pages = match by_cachestat(file, start, length) {
        Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => {
            by_mincore(file, start, length)?
        }
        told => told?,
    };
    Ok((pages * page_size() as u64).min(length))
}

fn by_cachestat(file: BorrowedFd<'_>, offset: u64, length: u64) -> io::Result<u64> {
    let range = Range { offset, length };
    let mut told = CacheStat::default();
    let (from, to): (*const Range, *mut CacheStat) = (&raw const range, &raw mut told);
    // SAFETY: the kernel reads one structure and writes the other, and both outlive the call.
    let result = unsafe { libc::syscall(CACHESTAT, file.as_raw_fd(), from, to, 0u32) };
    match result {
        0 => Ok(told.cached),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The same number on every architecture (`scripts/syscall.tbl`).
const CACHESTAT: libc::c_long = 451;

fn by_mincore(file: BorrowedFd<'_>, start: u64, length: u64) -> io::Result<u64> {
    let page = page_size() as u64;
    let first = start / page * page;
    let too_long = |_| io::Error::from(io::ErrorKind::InvalidInput);
    let length = usize::try_from(start - first + length).map_err(too_long)?;
    let mut pages = vec![0u8; length.div_ceil(page_size())];
    // SAFETY: a new mapping at a place of the kernel's choice, which nobody reads, so that the file may
    // change meanwhile.
    let mapped = unsafe {
        rustix::mm::mmap(
            std::ptr::null_mut(),
            length,
            ProtFlags::READ,
            MapFlags::SHARED,
            file,
            first,
        )?
    };
    // SAFETY: the mapping is as long as this says, and there is a byte for each of its pages.
    let told = unsafe { libc::mincore(mapped, length, pages.as_mut_ptr()) };
    let error = io::Error::last_os_error();
    // SAFETY: the mapping of before, which nothing refers to.
    unsafe { rustix::mm::munmap(mapped, length)? };
    match told {
        0 => Ok(pages.iter().filter(|page| **page & 1 == 1).count() as u64),
        _ => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use rustix::fs::Advice;

    use super::*;

    #[test]
    fn both_calls_tell_what_is_cached_and_what_was_dropped() {
        let pages = 1024;
        let bytes = pages * page_size() as u64;
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&vec![7; bytes as usize]).unwrap();
        file.as_file().sync_all().unwrap();
        let mut file = file.as_file();
        let told = |file: &std::fs::File| {
            let by_mincore = by_mincore(file.as_fd(), 0, bytes).unwrap();
            let by_cachestat = match by_cachestat(file.as_fd(), 0, bytes) {
                Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => by_mincore,
                told => told.unwrap(),
            };
            (by_mincore, by_cachestat)
        };
        // The kernel may drop pages at any time, and look at some a little longer.
        let mut all = || {
            io::copy(&mut file, &mut io::sink()).unwrap();
            io::Seek::rewind(&mut file).unwrap();
            told(file) == (pages, pages) && cached_bytes(file, 0, bytes).unwrap() == bytes
        };
        assert!((0..20).any(|_| all()), "{:?}", told(file));
        assert!(cached_bytes(file, 0, 10).unwrap() <= 10);
        assert_eq!(cached_bytes(file, 0, 0).unwrap(), 0);
        // A file system in memory has it nowhere else.
        let in_memory = rustix::fs::fstatfs(file).unwrap().f_type == 0x0102_1994;
        let left = if in_memory { pages } else { 0 };
        let dropped = || {
            rustix::fs::fadvise(file, 0, None, Advice::DontNeed).unwrap();
            told(file) == (left, left)
        };
        assert!((0..20).any(|_| dropped()), "{:?}", told(file));
    }
}
