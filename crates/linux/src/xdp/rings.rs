//! The rings that a process and the kernel share: one of them writes entries, the other reads them.
//! <https://elixir.bootlin.com/linux/v6.12/source/net/xdp/xsk_queue.h>

use std::ffi::c_void;
use std::io;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

/// `struct xdp_ring_offset`: where the parts of a ring are in its mapping.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, zerocopy::FromBytes, zerocopy::IntoBytes)]
pub(super) struct Offsets {
    producer: u64,
    consumer: u64,
    entries: u64,
    flags: u64,
}

/// `struct xdp_desc`: a frame in the memory of a socket.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Descriptor {
    pub(super) address: u64,
    pub(super) length: u32,
    pub(super) options: u32,
}

/// Memory that is unmapped with its owner.
#[derive(Debug)]
pub(super) struct Mapping {
    base: NonNull<c_void>,
    length: usize,
}

// SAFETY: nothing else refers to the mapping.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Memory of this process, all of it present.
    pub(super) fn anonymous(length: usize) -> io::Result<Self> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::POPULATE;
        // SAFETY: the kernel chooses where; nothing else is mapped there.
        let base = unsafe { mmap_anonymous(std::ptr::null_mut(), length, access, flags)? };
        let base = NonNull::new(base).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, length })
    }

    pub(super) fn address(&self) -> u64 {
        self.base.as_ptr() as u64
    }

    pub(super) fn length(&self) -> usize {
        self.length
    }

    /// A part of the mapping; `None` beyond its end.
    pub(super) fn get(&self, start: usize, length: usize) -> Option<&[u8]> {
        if start.checked_add(length)? > self.length {
            return None;
        }
        // SAFETY: within the mapping. The caller has a frame that the kernel has handed over, which it does not touch
        // until it gets it back.
        Some(unsafe {
            std::slice::from_raw_parts(self.base.as_ptr().cast::<u8>().add(start), length)
        })
    }

    pub(super) fn get_mut(&mut self, start: usize, length: usize) -> Option<&mut [u8]> {
        if start.checked_add(length)? > self.length {
            return None;
        }
        // SAFETY: as for `get`, and `self` is borrowed alone.
        Some(unsafe {
            std::slice::from_raw_parts_mut(self.base.as_ptr().cast::<u8>().add(start), length)
        })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and nothing refers to it now.
        let _ = unsafe { munmap(self.base.as_ptr(), self.length) };
    }
}

/// A ring of entries of type `T`, of which the kernel has the other end.
#[derive(Debug)]
pub(super) struct Ring<T> {
    mapping: Mapping,
    offsets: Offsets,
    size: u32,
    /// This process's end, which is published by a store.
    own: u32,
    /// The kernel's end as it was read last.
    other: u32,
    entry: std::marker::PhantomData<T>,
}

impl<T: Copy> Ring<T> {
    /// # Errors
    /// Those of mmap(2).
    pub(super) fn map(
        socket: impl AsFd,
        page_offset: u64,
        offsets: Offsets,
        size: u32,
    ) -> io::Result<Self> {
        let length = offsets.entries as usize + size as usize * size_of::<T>();
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: the kernel chooses where; nothing else is mapped there.
        let base =
            unsafe { mmap(std::ptr::null_mut(), length, access, flags, socket, page_offset)? };
        let base = NonNull::new(base).ok_or(io::ErrorKind::OutOfMemory)?;
        let mapping = Mapping { base, length };
        let (own, other) = (0, 0);
        Ok(Self { mapping, offsets, size, own, other, entry: std::marker::PhantomData })
    }

    fn word(&self, offset: u64) -> &AtomicU32 {
        // SAFETY: the kernel has told this offset of an aligned 32-bit word in the mapping, which both ends access
        // atomically.
        unsafe {
            let word = self.mapping.base.as_ptr().cast::<u8>().add(offset as usize);
            AtomicU32::from_ptr(word.cast())
        }
    }

    fn entry(&self, number: u32) -> *mut T {
        let place = (number & (self.size - 1)) as usize;
        // SAFETY: `map` maps `size` entries behind this offset, and `size` is a power of two.
        unsafe {
            let entries =
                self.mapping.base.as_ptr().cast::<u8>().add(self.offsets.entries as usize);
            entries.cast::<T>().add(place)
        }
    }

    /// Entries that this process may still write.
    pub(super) fn room(&mut self) -> u32 {
        self.other = self.word(self.offsets.consumer).load(Ordering::Acquire);
        self.size - self.own.wrapping_sub(self.other)
    }

    /// Entries that the kernel has not taken.
    pub(super) fn waiting(&self) -> u32 {
        self.own.wrapping_sub(self.word(self.offsets.consumer).load(Ordering::Acquire))
    }

    /// Writes an entry; whether there was room. The kernel sees it after [`Ring::publish`].
    #[inline]
    pub(super) fn push(&mut self, value: T) -> bool {
        if self.own.wrapping_sub(self.other) == self.size && self.room() == 0 {
            return false;
        }
        // SAFETY: between the kernel's end and this one the kernel does not read, and the place is in the mapping.
        unsafe { self.entry(self.own).write(value) };
        self.own = self.own.wrapping_add(1);
        true
    }

    #[inline]
    pub(super) fn publish(&self) {
        self.word(self.offsets.producer).store(self.own, Ordering::Release);
    }

    /// Takes an entry that the kernel has written.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<T> {
        if self.own == self.other {
            self.other = self.word(self.offsets.producer).load(Ordering::Acquire);
            if self.own == self.other {
                return None;
            }
        }
        // SAFETY: the kernel has published this entry, and does not write it again until the place is released.
        let value = unsafe { self.entry(self.own).read() };
        self.own = self.own.wrapping_add(1);
        Some(value)
    }

    /// Gives the places of all entries that were taken back to the kernel.
    #[inline]
    pub(super) fn release(&self) {
        self.word(self.offsets.consumer).store(self.own, Ordering::Release);
    }

    /// Whether the kernel wants a system call to go on (`XDP_RING_NEED_WAKEUP`).
    pub(super) fn needs_wakeup(&self) -> bool {
        self.word(self.offsets.flags).load(Ordering::Relaxed) & 1 != 0
    }
}
