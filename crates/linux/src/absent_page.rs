//! A page of memory that is not there yet (userfaultfd(2)). Whoever touches it waits until it is given, also the
//! kernel inside a system call, with all locks that it holds there: so a test decides how long a lock is held.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

use rustix::param::page_size;

/// <https://elixir.bootlin.com/linux/v6.12/source/include/uapi/linux/userfaultfd.h>
const UFFD_API: u64 = 0xAA;
const UFFDIO_API: libc::c_ulong = 0xc018_aa3f;
const UFFDIO_REGISTER: libc::c_ulong = 0xc020_aa00;
const UFFDIO_ZEROPAGE: libc::c_ulong = 0xc020_aa04;
const UFFDIO_REGISTER_MODE_MISSING: u64 = 1;

#[repr(C)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
struct Register {
    start: u64,
    len: u64,
    mode: u64,
    ioctls: u64,
}

#[repr(C)]
struct ZeroPage {
    start: u64,
    len: u64,
    mode: u64,
    zeroed: i64,
}

/// The page. It is filled with zeros at the latest when it is dropped.
#[derive(Debug)]
pub struct AbsentPage {
    memory: NonNull<u8>,
    length: usize,
    faults: OwnedFd,
}

// SAFETY: the memory is the value's own, and nothing writes to it but the kernel, which fills it once with the zeros
// that a reader would have seen.
unsafe impl Send for AbsentPage {}
// SAFETY: as above: all that is done through a shared reference is reading, and filling by the kernel.
unsafe impl Sync for AbsentPage {}

impl AbsentPage {
    /// # Errors
    /// Those of userfaultfd(2): a kernel without it, or a user without CAP_SYS_PTRACE.
    pub fn new() -> io::Result<Self> {
        let length = page_size();
        // SAFETY: the call takes flags and returns a descriptor or an error.
        let descriptor = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC) };
        let descriptor = i32::try_from(descriptor).map_err(io::Error::other)?;
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and nobody else's.
        let faults = unsafe { OwnedFd::from_raw_fd(descriptor) };
        let mut api = Api { api: UFFD_API, features: 0, ioctls: 0 };
        control(&faults, UFFDIO_API, &mut api)?;
        // SAFETY: a new private mapping at an address of the kernel's choice takes nobody's memory.
        let memory = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let memory = NonNull::new(memory.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let page = Self { memory, length, faults };
        let mut register = Register {
            start: page.start(),
            len: length as u64,
            mode: UFFDIO_REGISTER_MODE_MISSING,
            ioctls: 0,
        };
        control(&page.faults, UFFDIO_REGISTER, &mut register)?;
        Ok(page)
    }

    fn start(&self) -> u64 {
        self.memory.as_ptr() as u64
    }

    /// Its zeros. Reading them waits until the page is there.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping is of this length, lives as long as `self`, and only the kernel writes to it: the zeros
        // that it has always been read as.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr(), self.length) }
    }

    /// Waits until somebody waits for the page.
    ///
    /// # Errors
    /// Those of read(2).
    pub fn is_wanted(&self) -> io::Result<()> {
        // struct uffd_msg
        let mut message = [0; 32];
        rustix::io::retry_on_intr(|| rustix::io::read(&self.faults, &mut message))?;
        Ok(())
    }

    /// Gives the page, and wakes who waits for it. Once there it stays.
    ///
    /// # Errors
    /// Those of ioctl_userfaultfd(2).
    pub fn give(&self) -> io::Result<()> {
        let mut zeros =
            ZeroPage { start: self.start(), len: self.length as u64, mode: 0, zeroed: 0 };
        match control(&self.faults, UFFDIO_ZEROPAGE, &mut zeros) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            done => done,
        }
    }
}

impl Drop for AbsentPage {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and nothing borrows it any more. It is no longer registered then.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.length) };
    }
}

fn control<T>(faults: &OwnedFd, request: libc::c_ulong, argument: &mut T) -> io::Result<()> {
    // SAFETY: each request is called with the structure that it reads and writes.
    let result =
        unsafe { libc::ioctl(faults.as_raw_fd(), request as _, std::ptr::from_mut(argument)) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::*;
    use crate::privilege;

    #[test]
    fn a_call_that_reads_the_page_waits_until_it_is_given() {
        const NAME: &str = "a_call_that_reads_the_page_waits_until_it_is_given";
        if privilege::skip_without_tracing(NAME) {
            return;
        }
        let page = AbsentPage::new().unwrap();
        let given = AtomicBool::new(false);
        thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let (_reader, mut writer) = io::pipe().unwrap();
                writer.write_all(&page.bytes()[..100]).unwrap();
                given.load(Ordering::SeqCst)
            });
            page.is_wanted().unwrap();
            given.store(true, Ordering::SeqCst);
            page.give().unwrap();
            assert!(writer.join().unwrap(), "it did not wait");
        });
        page.give().unwrap();
        assert!(page.bytes().iter().all(|&byte| byte == 0));
    }
}
