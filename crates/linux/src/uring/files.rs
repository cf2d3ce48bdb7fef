//! Reads and writes of files with many requests in flight.
//!
//! What makes this safe: the ring owns the buffer of a request from its submission to its completion. If the ring is dropped and
//! the kernel does not complete all requests in time, the buffers are leaked rather than freed. The kernel takes its own
//! reference to the file while the request is submitted, so the caller may close it afterwards. If the kernel refuses a
//! submission, the ring is not used any more: the request would otherwise be submitted later, with a descriptor that may be
//! another file's by then.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode, squeue};
use rustix::io::Errno;

use super::Unavailable;
use crate::aligned::AlignedBuffer;

/// A request is submitted at once, so few entries wait.
const ENTRIES: u32 = 8;
/// Beyond it, the kernel keeps completions in a list of its own (`IORING_FEAT_NODROP`).
const COMPLETIONS: u32 = 1024;
/// How long a ring that is dropped waits for requests.
const DROP_WAIT: Duration = Duration::from_secs(10);

/// A request in flight. It is given back by [`FileRing::take`] or [`FileRing::abandon`].
#[derive(Debug)]
#[must_use]
pub struct Request(u32);

/// A request that has completed.
#[derive(Debug)]
pub struct Completed {
    pub buffer: AlignedBuffer,
    /// Bytes that were read or written, which may be fewer than were asked for.
    pub moved: io::Result<usize>,
}

#[derive(Debug)]
struct Slot {
    buffer: AlignedBuffer,
    state: State,
}

#[derive(Debug)]
enum State {
    InFlight,
    /// In flight, and nobody asks for it any more.
    Abandoned,
    Done(io::Result<usize>),
}

/// A ring for files. It belongs to one thread.
pub struct FileRing {
    uring: IoUring,
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
    in_flight: usize,
    /// A submission failed.
    is_broken: bool,
}

impl std::fmt::Debug for FileRing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileRing").field("in_flight", &self.in_flight).finish_non_exhaustive()
    }
}

impl FileRing {
    /// # Errors
    /// Why this process may not have a ring.
    pub fn new() -> Result<Self, Unavailable> {
        // Completions of the thread's requests are handled whenever it enters the kernel, also by other system calls
        // (IORING_SETUP_COOP_TASKRUN, Linux 5.19).
        let uring = IoUring::builder()
            .setup_coop_taskrun()
            .setup_cqsize(COMPLETIONS)
            .build(ENTRIES)
            .map_err(|error| Unavailable::of(&error))?;
        if !uring.params().is_feature_ext_arg() || !uring.params().is_feature_nodrop() {
            return Err(Unavailable::Missing("waiting with a time-out"));
        }
        Ok(Self { uring, slots: Vec::new(), free: Vec::new(), in_flight: 0, is_broken: false })
    }

    /// Has the kernel read into the first `length` bytes of the buffer (at most all of them), from `offset` of the file.
    ///
    /// # Errors
    /// Those of io_uring_enter(2).
    pub fn read(
        &mut self,
        file: impl AsFd,
        buffer: AlignedBuffer,
        length: usize,
        offset: u64,
    ) -> io::Result<Request> {
        let fd = Fd(file.as_fd().as_raw_fd());
        self.submit(buffer, |buffer| {
            let bytes = buffer.bytes_mut();
            let length = length.min(bytes.len()) as u32;
            opcode::Read::new(fd, bytes.as_mut_ptr(), length).offset(offset).build()
        })
    }

    /// Has the kernel write the first `length` bytes of the buffer (at most all of them) at `offset` of the file.
    ///
    /// # Errors
    /// Those of io_uring_enter(2).
    pub fn write(
        &mut self,
        file: impl AsFd,
        buffer: AlignedBuffer,
        length: usize,
        offset: u64,
    ) -> io::Result<Request> {
        let fd = Fd(file.as_fd().as_raw_fd());
        self.submit(buffer, |buffer| {
            let bytes = buffer.bytes();
            let length = length.min(bytes.len()) as u32;
            opcode::Write::new(fd, bytes.as_ptr(), length).offset(offset).build()
        })
    }

    fn submit(
        &mut self,
        buffer: AlignedBuffer,
        entry: impl FnOnce(&mut AlignedBuffer) -> squeue::Entry,
    ) -> io::Result<Request> {
        if self.is_broken {
            return Err(io::Error::other("an earlier request could not be submitted"));
        }
        let place = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            (self.slots.len() - 1) as u32
        });
        let slot = self.slots[place as usize].insert(Slot { buffer, state: State::InFlight });
        let entry = entry(&mut slot.buffer).user_data(place.into());
        // SAFETY: the buffer's memory is on the heap and in the slot, which nobody takes before the completion; see the head of
        // this module.
        let pushed = unsafe { self.uring.submission().push(&entry) };
        if pushed.is_err() {
            // Never handed to the kernel.
            self.slots[place as usize] = None;
            self.free.push(place);
            return Err(io::Error::other("the submission queue is full"));
        }
        self.in_flight += 1;
        let submitted = self.hand_over();
        self.is_broken = submitted.is_err();
        submitted.map(|()| Request(place))
    }

    fn hand_over(&mut self) -> io::Result<()> {
        while !self.uring.submission().is_empty() {
            let Err(error) = self.uring.submit() else { continue };
            match Errno::from_io_error(&error) {
                Some(Errno::INTR) => {}
                // Completions that found no room have to be taken first.
                Some(Errno::BUSY | Errno::AGAIN) if self.in_flight > 1 => {
                    self.wait(None)?;
                    self.reap();
                }
                _ => return Err(error),
            }
        }
        Ok(())
    }

    /// Requests that the kernel has not completed, as far as is known without a system call.
    pub fn in_flight(&mut self) -> usize {
        self.reap();
        self.in_flight
    }

    /// Whether the kernel has not completed the request, as far as is known without a system call.
    #[must_use]
    pub fn is_in_flight(&self, request: &Request) -> bool {
        let slot = self.slots.get(request.0 as usize).and_then(Option::as_ref);
        slot.is_some_and(|slot| matches!(slot.state, State::InFlight))
    }

    /// Waits until the request has completed.
    ///
    /// # Errors
    /// Those of io_uring_enter(2). An error of the request itself is in [`Completed::moved`].
    pub fn take(&mut self, request: Request) -> io::Result<Completed> {
        let place = request.0 as usize;
        loop {
            match self.slots.get_mut(place).and_then(Option::take) {
                Some(Slot { buffer, state: State::Done(moved) }) => {
                    self.free.push(request.0);
                    return Ok(Completed { buffer, moved });
                }
                Some(slot) => self.slots[place] = Some(slot),
                None => return Err(io::ErrorKind::InvalidInput.into()),
            }
            if self.reap() == 0 {
                self.wait(None)?;
                self.reap();
            }
        }
    }

    /// Gives up a request: its buffer is freed when the kernel has completed it.
    pub fn abandon(&mut self, request: Request) {
        let Some(place) = self.slots.get_mut(request.0 as usize) else { return };
        match place {
            Some(Slot { state: State::Done(_), .. }) => {
                *place = None;
                self.free.push(request.0);
            }
            Some(slot) => slot.state = State::Abandoned,
            None => {}
        }
    }

    /// Takes completions from the ring, without a system call. Returns their number.
    fn reap(&mut self) -> usize {
        let mut reaped = 0;
        for entry in self.uring.completion() {
            let place = entry.user_data() as u32;
            let Some(of) = self.slots.get_mut(place as usize) else { continue };
            reaped += 1;
            let Some(slot) = of else { continue };
            match slot.state {
                State::InFlight => {
                    slot.state = State::Done(match entry.result() {
                        error if error < 0 => Err(io::Error::from_raw_os_error(-error)),
                        moved => Ok(moved as usize),
                    });
                }
                State::Abandoned => {
                    *of = None;
                    self.free.push(place);
                }
                State::Done(_) => {}
            }
        }
        self.in_flight -= reaped;
        reaped
    }

    /// Waits for one completion, at most so long.
    fn wait(&self, most: Option<Duration>) -> io::Result<()> {
        let most = most.map(|most| Timespec::new().sec(most.as_secs()).nsec(most.subsec_nanos()));
        let args = match &most {
            Some(most) => SubmitArgs::new().timespec(most),
            None => SubmitArgs::new(),
        };
        match self.uring.submitter().submit_with_args(1, &args) {
            Ok(_) => Ok(()),
            Err(error) if Errno::from_io_error(&error) == Some(Errno::INTR) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

impl Drop for FileRing {
    fn drop(&mut self) {
        let until = Instant::now() + DROP_WAIT;
        self.reap();
        while self.in_flight > 0 && !self.is_broken {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || self.wait(Some(left)).is_err() {
                break;
            }
            self.reap();
        }
        if self.in_flight > 0 {
            // The kernel may still use the buffers.
            std::mem::forget(std::mem::take(&mut self.slots));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::aligned::ALIGNED;

    const BLOCK: usize = 64 << 10;

    fn content(block: u8) -> Vec<u8> {
        (0..BLOCK).map(|at| (at as u8).wrapping_mul(31) ^ block).collect()
    }

    #[test]
    fn many_requests_in_flight_complete_in_any_order_and_none_is_lost() {
        let file = tempfile::tempfile().unwrap();
        let mut ring = FileRing::new().unwrap();
        let blocks = 40u8;
        let write = |ring: &mut FileRing, block: u8| {
            let mut buffer = AlignedBuffer::new(BLOCK);
            buffer.bytes_mut().copy_from_slice(&content(block));
            ring.write(&file, buffer, BLOCK, u64::from(block) * BLOCK as u64).unwrap()
        };
        let requests: Vec<Request> = (0..blocks).map(|block| write(&mut ring, block)).collect();
        for request in requests.into_iter().rev() {
            assert_eq!(ring.take(request).unwrap().moved.unwrap(), BLOCK);
        }
        assert_eq!(ring.in_flight(), 0);
        assert_eq!(file.metadata().unwrap().len(), u64::from(blocks) * BLOCK as u64);
        let requests: Vec<(u8, Request)> = (0..blocks)
            .map(|block| {
                let buffer = AlignedBuffer::new(BLOCK);
                (block, ring.read(&file, buffer, BLOCK, u64::from(block) * BLOCK as u64).unwrap())
            })
            .collect();
        for (block, request) in requests {
            let Completed { buffer, moved } = ring.take(request).unwrap();
            assert_eq!(moved.unwrap(), BLOCK);
            assert!(buffer.bytes() == content(block), "block {block}");
        }
        assert_eq!(ring.free.len(), ring.slots.len());
    }

    #[test]
    fn the_end_of_a_file_and_errors_are_told_of_the_request() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        std::fs::write(&path, [7; 100]).unwrap();
        let file = File::open(&path).unwrap();
        let mut ring = FileRing::new().unwrap();
        let short = ring.read(&file, AlignedBuffer::new(BLOCK), BLOCK, 0).unwrap();
        let end = ring.read(&file, AlignedBuffer::new(BLOCK), BLOCK, 100).unwrap();
        let refused = ring.write(&file, AlignedBuffer::new(BLOCK), BLOCK, 0).unwrap();
        // What the kernel was asked for is of the file that it was asked for, also after it is closed.
        drop(file);
        let short = ring.take(short).unwrap();
        assert_eq!(short.moved.unwrap(), 100);
        assert_eq!(short.buffer.bytes()[..100], [7; 100]);
        assert_eq!(ring.take(end).unwrap().moved.unwrap(), 0);
        let error = ring.take(refused).unwrap().moved.unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::BADF.raw_os_error()));
    }

    #[test]
    fn what_is_abandoned_is_freed_and_a_dropped_ring_has_written_all() {
        let file = tempfile::tempfile().unwrap();
        let mut ring = FileRing::new().unwrap();
        for block in 0..20u64 {
            let request = ring.write(&file, AlignedBuffer::new(BLOCK), BLOCK, block * BLOCK as u64);
            ring.abandon(request.unwrap());
        }
        while ring.in_flight() > 0 {
            ring.wait(None).unwrap();
        }
        assert_eq!(ring.free.len(), ring.slots.len());
        let mut buffer = AlignedBuffer::new(BLOCK);
        assert_eq!(buffer.bytes().as_ptr().align_offset(ALIGNED as usize), 0);
        buffer.bytes_mut().fill(9);
        ring.write(&file, buffer, BLOCK, 20 * BLOCK as u64)
            .map(|request| ring.abandon(request))
            .unwrap();
        drop(ring);
        let mut last = vec![0; BLOCK];
        file.read_exact_at(&mut last, 20 * BLOCK as u64).unwrap();
        assert!(last.iter().all(|byte| *byte == 9));
    }
}
