//! Sends the content of files as streams, and sums what streams carry.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use wirecost_linux::aligned::{ALIGNED, AlignedBuffer};
use wirecost_linux::clock::Monotonic;
use wirecost_linux::page_cache::cached_bytes;
use wirecost_model::clock::Clock;
use wirecost_model::measure::{FileChecks, IoCounts, stream_sum};
use wirecost_profile::io_options::page_cache::CacheState;
use wirecost_profile::io_options::source_io::SourceCalls;
use wirecost_program::files::{READ_AT_ONCE, SUMMED_AT_ONCE, StreamPart, StreamSource};

use super::Socket;
use super::data::DataPath;
use super::file_requests::{Piece, ReadAhead, WorkerRing};
use crate::files::Files;
use crate::stream_files::{Slice, StreamFiles, drop_cached};

/// What one connection sends of files, and sums of what it has sent and received.
#[derive(Debug, Default)]
pub(super) struct Streams {
    open: RefCell<Vec<FileStream>>,
    sent: RefCell<Sum>,
    received: RefCell<Sum>,
}

/// Bytes since the phase began, and their CRC-32.
#[derive(Debug, Default)]
struct Sum {
    bytes: u64,
    crc: crc32fast::Hasher,
}

impl Sum {
    fn add(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        self.crc.update(bytes);
    }

    /// The bytes and their sum, if there are any; it begins anew.
    fn take(&mut self) -> Option<(u64, u64)> {
        let Self { bytes, crc } = std::mem::take(self);
        (bytes > 0).then(|| (bytes, stream_sum(bytes, crc.finalize())))
    }
}

impl Streams {
    pub(super) fn add_received(&self, bytes: &[u8]) {
        self.received.borrow_mut().add(bytes);
    }

    /// Gives up what is being read of files: the connection is closed.
    pub(super) fn give_up(&self, ring: &mut WorkerRing) {
        for stream in self.open.borrow_mut().iter_mut() {
            ring.abandon(stream.ahead.give_up());
        }
    }

    /// Adds what has been summed since the last time, and what the page cache has of a piece that is being read past it.
    pub(super) fn fold(&self, checks: &mut FileChecks, io: &mut IoCounts) {
        for stream in self.open.borrow().iter().filter(|stream| stream.direct && stream.begun) {
            stream.count_cached(stream.at, io);
        }
        if let Some((bytes, sum)) = self.sent.borrow_mut().take() {
            checks.sent_bytes += bytes;
            checks.sent = checks.sent.wrapping_add(sum);
        }
        if let Some((bytes, sum)) = self.received.borrow_mut().take() {
            checks.received_bytes += bytes;
            checks.received = checks.received.wrapping_add(sum);
        }
    }
}

/// A connection's way through its piece of a file.
#[derive(Debug)]
struct FileStream {
    source: u16,
    direct: bool,
    file: OwnedFd,
    slice: Slice,
    /// The next byte to send.
    at: u64,
    /// Whether the piece's first byte has been sent since its last one was.
    begun: bool,
    /// What has been read and is not sent yet: bytes of the file from `base` on.
    buffer: AlignedBuffer,
    base: u64,
    filled: usize,
    /// What follows, where io_uring reads.
    ahead: ReadAhead,
}

impl FileStream {
    fn open(files: &StreamFiles, allowed: &Files, part: StreamPart) -> io::Result<Self> {
        let slice = files.slice(part);
        Ok(Self {
            source: part.source,
            direct: files.source.direct,
            file: files.open(allowed, slice.file)?,
            slice,
            at: slice.start,
            begun: false,
            buffer: AlignedBuffer::default(),
            base: 0,
            filled: 0,
            ahead: ReadAhead::default(),
        })
    }

    /// At the beginning of the piece: drops it from the page cache where it is to be read from the device, and looks
    /// what is there.
    fn begin_pass(&mut self, source: &StreamSource, io: &mut IoCounts) -> io::Result<()> {
        let Slice { start, end, .. } = self.slice;
        self.begun = true;
        // A small file is read again, too.
        self.filled = 0;
        // With O_DIRECT, too: what is there afterwards has been read by way of the page cache all the same.
        if source.cache == CacheState::Cold || source.direct {
            drop_cached(self.file.as_fd(), start, end - start)?;
        }
        if !source.direct {
            self.count_cached(end, io);
        }
        Ok(())
    }

    /// Counts what is in the page cache of the piece up to this place. Of files of others the kernel does not tell: then
    /// nothing is counted.
    fn count_cached(&self, end: u64, io: &mut IoCounts) {
        let length = end - self.slice.start;
        if let Ok(cached) = cached_bytes(&self.file, self.slice.start, length) {
            io.source_pass_bytes += length;
            io.source_cached_bytes += cached;
        }
    }

    /// The next bytes of the file, at least one and at most `most`, read if they are not in memory yet.
    fn ready(&mut self, most: u64, direct: bool, io: &mut IoCounts) -> io::Result<&[u8]> {
        if self.has_none() {
            self.filled = 0;
            self.base = if direct { self.at / ALIGNED * ALIGNED } else { self.at };
            let wanted = (most.min(READ_AT_ONCE as u64) + self.at - self.base) as usize;
            let wanted = if direct { wanted.next_multiple_of(ALIGNED as usize) } else { wanted };
            if self.buffer.len() < wanted {
                self.buffer = AlignedBuffer::new(wanted);
            }
            let before = Monotonic.now();
            let got =
                rustix::io::pread(&self.file, &mut self.buffer.bytes_mut()[..wanted], self.base)?;
            io.source_read_ns += Monotonic.now() - before;
            io.source_read_bytes += got as u64;
            self.filled = got;
        }
        self.in_memory(most)
    }

    /// The same by requests that were made before: `depth` of them are in flight.
    fn ready_ahead(
        &mut self,
        most: u64,
        (direct, depth): (bool, u16),
        ring: &mut WorkerRing,
        io: &mut IoCounts,
    ) -> io::Result<&[u8]> {
        if self.has_none() {
            self.filled = 0;
            let spare = std::mem::take(&mut self.buffer);
            let part = (self.at, self.slice.end);
            let file = (&self.file, direct);
            let piece = self.ahead.next_piece(file, part, (depth, spare), ring, io)?;
            Piece { buffer: self.buffer, base: self.base, filled: self.filled } = piece;
        }
        self.in_memory(most)
    }

    /// Whether the next byte has not been read.
    fn has_none(&self) -> bool {
        let read_to = self.base + self.filled as u64;
        self.filled == 0 || !(self.base..read_to).contains(&self.at)
    }

    fn in_memory(&self, most: u64) -> io::Result<&[u8]> {
        let first = (self.at - self.base) as usize;
        if first >= self.filled {
            return Err(shorter());
        }
        let length = (self.filled - first).min(usize::try_from(most).unwrap_or(usize::MAX));
        Ok(&self.buffer.bytes()[first..first + length])
    }

    /// Sums bytes that have been sent by the kernel, which means reading them once more.
    fn sum_again(&mut self, bytes: u64, sum: &mut Sum) -> io::Result<()> {
        if self.buffer.is_empty() {
            self.buffer = AlignedBuffer::new(SUMMED_AT_ONCE);
        }
        self.filled = 0;
        let (mut at, end) = (self.at, self.at + bytes);
        while at < end {
            let length = usize::try_from(end - at).unwrap_or(usize::MAX).min(self.buffer.len());
            let piece = &mut self.buffer.bytes_mut()[..length];
            let read = rustix::io::pread(&self.file, &mut *piece, at)?;
            if read == 0 {
                return Err(shorter());
            }
            sum.add(&piece[..read]);
            at += read as u64;
        }
        Ok(())
    }
}

pub(super) fn shorter() -> io::Error {
    let message = "a file is shorter than it was when the run began";
    io::Error::new(io::ErrorKind::UnexpectedEof, message)
}

/// See [`wirecost_program::net::Net::send_from_file`].
pub(super) fn send(
    (sources, allowed): (&[StreamFiles], &Files),
    (socket, data): (&Socket, &mut DataPath),
    part: StreamPart,
    length: u64,
) -> io::Result<usize> {
    let files = sources.get(usize::from(part.source)).ok_or(io::ErrorKind::InvalidInput)?;
    let StreamSource { calls, depth, direct, verify, .. } = files.source;
    let streams = socket.io.streams();
    let mut open = streams.open.borrow_mut();
    let place = match open.iter().position(|stream| stream.source == part.source) {
        Some(place) => place,
        None => {
            open.push(FileStream::open(files, allowed, part)?);
            open.len() - 1
        }
    };
    let stream = &mut open[place];
    if !stream.begun {
        stream.begin_pass(&files.source, &mut data.io)?;
    }
    let most = length.min(stream.slice.end - stream.at);
    let mut sum = streams.sent.borrow_mut();
    let sent = match calls {
        SourceCalls::Read | SourceCalls::IoUring => {
            let bytes = match calls {
                SourceCalls::IoUring => {
                    stream.ready_ahead(most, (direct, depth), &mut data.ring, &mut data.io)?
                }
                _ => stream.ready(most, direct, &mut data.io)?,
            };
            let sent = rustix::io::write(&socket.fd, bytes)?;
            if verify {
                sum.add(&bytes[..sent]);
            }
            sent
        }
        SourceCalls::SendFile => {
            let mut at = stream.at;
            let most = usize::try_from(most).unwrap_or(usize::MAX).min(1 << 30);
            rustix::fs::sendfile(&socket.fd, &stream.file, Some(&mut at), most)?
        }
        SourceCalls::Splice => data.splice_file(socket, &stream.file, stream.at, most, direct)?,
    };
    if sent == 0 {
        return Err(shorter());
    }
    if verify && matches!(calls, SourceCalls::SendFile | SourceCalls::Splice) {
        stream.sum_again(sent as u64, &mut sum)?;
    }
    data.io.source_bytes += sent as u64;
    stream.at += sent as u64;
    if stream.at == stream.slice.end {
        if direct {
            stream.count_cached(stream.at, &mut data.io);
        }
        stream.at = stream.slice.start;
        stream.begun = false;
    }
    Ok(sent)
}
