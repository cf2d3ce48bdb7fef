//! Memory that a ring receives into: buffers of one length, of which the kernel takes the next one
//! whenever something has come for a connection (IORING_REGISTER_PBUF_RING).
//!
//! A buffer belongs either to the kernel (from [`Pool::provide`] until a completion names it) or to
//! this process (from then until it is provided again). All memory of the pool is one mapping that
//! lives until the ring owes no completion any more; nothing refers to a buffer but by its number.

use std::ffi::c_void;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::IoUring;
use io_uring::types::BufRingEntry;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

#[derive(Debug)]
pub(super) struct Pool {
    /// The number by which the kernel knows it.
    pub(super) group: u16,
    base: NonNull<c_void>,
    mapped: usize,
    /// Where the first buffer begins, behind the entries that name buffers to the kernel.
    first: usize,
    count: u16,
    size: usize,
    tail: u16,
    /// Buffers that the kernel has.
    pub(super) available: u16,
}

impl Pool {
    /// `count` buffers (rounded up to a power of two, 2^15 at most) of `size` bytes, all of them the
    /// kernel's.
    ///
    /// # Errors
    /// Those of mmap and of io_uring_register.
    pub(super) fn new(uring: &IoUring, group: u16, count: u16, size: u32) -> io::Result<Self> {
        let count = count.clamp(1, 1 << 15).next_power_of_two();
        let page = rustix::param::page_size();
        let first = (usize::from(count) * size_of::<BufRingEntry>()).next_multiple_of(page);
        let size = size as usize;
        let mapped = first + usize::from(count) * size;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses where; nothing else is mapped there.
        let base =
            unsafe { mmap_anonymous(std::ptr::null_mut(), mapped, access, MapFlags::PRIVATE)? };
        let base = NonNull::new(base).ok_or(io::ErrorKind::OutOfMemory)?;
        let mut pool = Self { group, base, mapped, first, count, size, tail: 0, available: 0 };
        // SAFETY: the entries are at the beginning of the mapping, which is page-aligned and stays
        // until the ring is closed or the group unregistered: `Ring` drops it after that.
        unsafe {
            let address = base.as_ptr() as u64;
            uring.submitter().register_buf_ring_with_flags(address, count, group, 0)?;
        }
        (0..count).for_each(|buffer| pool.provide(buffer));
        Ok(pool)
    }

    /// How many buffers there are.
    pub(super) fn count(&self) -> u16 {
        self.count
    }

    pub(super) fn size(&self) -> usize {
        self.size
    }

    fn offset(&self, buffer: u16) -> usize {
        assert!(buffer < self.count, "the kernel names a buffer that there is not");
        self.first + usize::from(buffer) * self.size
    }

    /// Gives a buffer to the kernel.
    pub(super) fn provide(&mut self, buffer: u16) {
        let offset = self.offset(buffer);
        let entries = self.base.cast::<BufRingEntry>().as_ptr();
        let place = usize::from(self.tail & (self.count - 1));
        self.tail = self.tail.wrapping_add(1);
        self.available += 1;
        // SAFETY: the place is one of `count` entries at the beginning of the mapping, and behind
        // the tail, where the kernel does not read. The last field of the first entry is the tail
        // itself, which these writes leave alone:
        // https://elixir.bootlin.com/linux/v6.12/source/include/uapi/linux/io_uring.h#L735
        unsafe {
            let entry = &mut *entries.add(place);
            entry.set_addr(self.base.as_ptr().byte_add(offset) as u64);
            entry.set_len(self.size as u32);
            entry.set_bid(buffer);
            let tail = BufRingEntry::tail(entries).cast_mut();
            AtomicU16::from_ptr(tail).store(self.tail, Ordering::Release);
        }
    }

    /// Notes that a completion has named a buffer, which is ours from now on.
    pub(super) fn taken(&mut self, buffer: u16) {
        assert!(buffer < self.count, "the kernel names a buffer that there is not");
        self.available -= 1;
    }

    /// Bytes of a buffer that is ours.
    pub(super) fn bytes(&self, buffer: u16, from: usize, length: usize) -> &[u8] {
        assert!(from + length <= self.size, "a buffer has no such bytes");
        // SAFETY: within the mapping, which was zeroed when it was made. The kernel does not write
        // to a buffer that has not been provided again, and `provide` needs the pool exclusively.
        unsafe {
            let at = self.base.as_ptr().byte_add(self.offset(buffer) + from);
            std::slice::from_raw_parts(at.cast::<u8>(), length)
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: made by `new` with this length. `Ring` drops a pool only when no operation is
        // under way that could write to it.
        let _ = unsafe { munmap(self.base.as_ptr(), self.mapped) };
    }
}
