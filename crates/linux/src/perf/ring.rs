//! The ring that the kernel writes and we read.

use std::ffi::c_void;
use std::io;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use perf_event_open_sys::bindings::perf_event_mmap_page;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// A page of numbers, and behind it 2^n pages of records.
#[derive(Debug)]
pub(super) struct Ring {
    base: NonNull<c_void>,
    page: usize,
    /// Bytes of records; a power of two.
    size: usize,
}

// SAFETY: the mapping is the ring's alone. Of what the kernel writes at the same time only the head
// is read, atomically, and records that the kernel does not touch until the tail has passed them.
unsafe impl Send for Ring {}

impl Ring {
    /// Maps the ring of an event.
    ///
    /// # Errors
    /// EPERM where a user may lock no more memory (sysctl kernel.perf_event_mlock_kb).
    pub(super) fn map(event: impl AsFd, pages: usize) -> io::Result<Self> {
        let page = rustix::param::page_size();
        let size = pages.next_power_of_two() * page;
        // Writable, so that the kernel respects our tail and does not overwrite unread records:
        // https://elixir.bootlin.com/linux/v6.12/source/kernel/events/ring_buffer.c#L163
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses where; nothing else is mapped there.
        let base =
            unsafe { mmap(std::ptr::null_mut(), page + size, access, MapFlags::SHARED, event, 0)? };
        let base = NonNull::new(base).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, page, size })
    }

    fn head(&self) -> &AtomicU64 {
        // SAFETY: the first page is a perf_event_mmap_page for as long as the ring is mapped, and
        // its fields are aligned.
        unsafe {
            let page = self.base.cast::<perf_event_mmap_page>().as_ptr();
            AtomicU64::from_ptr(&raw mut (*page).data_head)
        }
    }

    fn tail(&self) -> &AtomicU64 {
        // SAFETY: as for the head.
        unsafe {
            let page = self.base.cast::<perf_event_mmap_page>().as_ptr();
            AtomicU64::from_ptr(&raw mut (*page).data_tail)
        }
    }

    /// Takes out all that is there now, appending it to `into`. Never waits.
    ///
    /// The order of memory is that of the kernel's comment: the head is read before the records, the
    /// tail written after them:
    /// <https://elixir.bootlin.com/linux/v6.12/source/kernel/events/ring_buffer.c#L59>.
    pub(super) fn take(&mut self, into: &mut Vec<u8>) {
        let head = self.head().load(Ordering::Acquire);
        // Only we write it.
        let tail = self.tail().load(Ordering::Relaxed);
        let length = (head.wrapping_sub(tail) as usize).min(self.size);
        let begin = tail as usize & (self.size - 1);
        let first = length.min(self.size - begin);
        // SAFETY: both parts are within the records of the ring, and between tail and head the
        // kernel does not write.
        let (before, after) = unsafe {
            let records = self.base.cast::<u8>().as_ptr().add(self.page);
            (
                std::slice::from_raw_parts(records.add(begin), first),
                std::slice::from_raw_parts(records, length - first),
            )
        };
        into.extend_from_slice(before);
        into.extend_from_slice(after);
        self.tail().store(head, Ordering::Release);
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `map` with this length, and nothing refers to it now.
        let _ = unsafe { munmap(self.base.as_ptr(), self.page + self.size) };
    }
}
