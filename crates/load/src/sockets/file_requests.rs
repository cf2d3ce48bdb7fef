//! Files by io_uring: sources are read ahead, and sinks are written behind, with several requests in flight. A worker waits
//! only for the request that it needs next (ADR 0084).

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;

use wirecost_linux::aligned::{ALIGNED, AlignedBuffer};
use wirecost_linux::clock::Monotonic;
use wirecost_linux::uring::files::{Completed, FileRing, Request};
use wirecost_model::clock::Clock;
use wirecost_model::measure::IoCounts;
use wirecost_model::program::Program;
use wirecost_profile::io_options::source_io::SourceCalls;
use wirecost_program::calls;
use wirecost_program::files::{READ_AHEAD, stream_sources};

use super::stream::shorter;
use crate::load::LoadError;

/// Whether this host lets files be read and written by io_uring, where a program asks for it.
///
/// # Errors
/// Why not, and what else can be asked for.
pub(crate) fn check(program: &Program) -> Result<(), LoadError> {
    let reads =
        stream_sources(program).iter().any(|(source, _)| source.calls == SourceCalls::IoUring);
    let writes = calls::sinks(program).iter().any(|sink| sink.depth.is_some());
    let (act, other) = match (reads, writes) {
        (true, _) => ("source_io=io_uring", "source_io=read"),
        (_, true) => ("sink_io=io_uring", "sink_io=write"),
        _ => return Ok(()),
    };
    let unavailable = |reason| io::Error::other(format!("{reason}; or use {other}"));
    FileRing::new().map(drop).map_err(unavailable).map_err(LoadError::system(act))
}

/// The ring of a worker, made when a file first needs it: by the worker's own thread.
#[derive(Debug, Default)]
pub(super) struct WorkerRing(Option<FileRing>);

impl WorkerRing {
    fn get(&mut self) -> io::Result<&mut FileRing> {
        if self.0.is_none() {
            self.0 = Some(FileRing::new().map_err(io::Error::other)?);
        }
        self.0.as_mut().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    pub(super) fn abandon(&mut self, requests: impl IntoIterator<Item = Request>) {
        if let Some(ring) = &mut self.0 {
            requests.into_iter().for_each(|request| ring.abandon(request));
        }
    }
}

/// Of a queue's requests those that the kernel has not completed.
fn in_flight<T>(ring: &mut FileRing, requests: &VecDeque<(Request, T)>) -> u64 {
    // Takes completions that are there.
    ring.in_flight();
    requests.iter().filter(|(request, _)| ring.is_in_flight(request)).count() as u64
}

/// What is read of a file before it is sent.
#[derive(Debug, Default)]
pub(super) struct ReadAhead {
    /// In the order of the file, with the place and the bytes that each is to bring.
    requests: VecDeque<(Request, (u64, usize))>,
    /// The first byte that is not asked for yet.
    next: u64,
}

/// Bytes of a file from `base` on.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) buffer: AlignedBuffer,
    pub(super) base: u64,
    pub(super) filled: usize,
}

impl ReadAhead {
    /// The piece that begins at `at`, where the last one ended, of a part of the file that ends at `end`. `spare`: a buffer
    /// that is no longer needed.
    pub(super) fn next_piece(
        &mut self,
        (file, direct): (impl AsFd, bool),
        (at, end): (u64, u64),
        (depth, spare): (u16, AlignedBuffer),
        ring: &mut WorkerRing,
        io: &mut IoCounts,
    ) -> io::Result<Piece> {
        let before = Monotonic.now();
        let ring = ring.get()?;
        if self.requests.is_empty() {
            self.next = at;
        }
        let mut spare = Some(spare).filter(|spare| spare.len() == READ_AHEAD);
        self.ask((&file, direct), end, (depth, &mut spare), ring, io)?;
        let (request, (base, wanted)) =
            self.requests.pop_front().ok_or(io::ErrorKind::UnexpectedEof)?;
        let Completed { mut buffer, moved } = ring.take(request)?;
        let mut filled = moved?;
        // A request may bring less than is there.
        while filled < wanted {
            match rustix::io::pread(&file, &mut buffer.bytes_mut()[filled..], base + filled as u64)?
            {
                0 => break,
                more => filled += more,
            }
        }
        if filled < wanted {
            return Err(shorter());
        }
        // As many stay in flight while this piece is sent.
        self.ask((&file, direct), end, (depth, &mut spare), ring, io)?;
        io.source_read_ns += Monotonic.now() - before;
        io.source_read_bytes += filled as u64;
        Ok(Piece { buffer, base, filled })
    }

    /// Makes requests until so many are under way, or all of the part has been asked for.
    fn ask(
        &mut self,
        (file, direct): (impl AsFd, bool),
        end: u64,
        (depth, spare): (u16, &mut Option<AlignedBuffer>),
        ring: &mut FileRing,
        io: &mut IoCounts,
    ) -> io::Result<()> {
        while self.requests.len() < usize::from(depth) && self.next < end {
            let wanted = (end - self.next).min(READ_AHEAD as u64) as usize;
            let length = if direct { wanted.next_multiple_of(ALIGNED as usize) } else { wanted };
            let buffer = spare.take().unwrap_or_else(|| AlignedBuffer::new(READ_AHEAD));
            io.source_in_flight += in_flight(ring, &self.requests) + 1;
            io.source_requests += 1;
            let request = ring.read(&file, buffer, length, self.next)?;
            self.requests.push_back((request, (self.next, wanted)));
            self.next += wanted as u64;
        }
        Ok(())
    }

    /// The requests under way, of which nobody needs the bytes any more.
    pub(super) fn give_up(&mut self) -> impl Iterator<Item = Request> {
        self.requests.drain(..).map(|(request, _)| request)
    }
}

/// Blocks of a file that are being written.
#[derive(Debug)]
pub(super) struct WriteBehind {
    /// In the order in which they were filled, with the place and length of each.
    requests: VecDeque<(Request, (u64, usize))>,
    most: usize,
    spare: Vec<AlignedBuffer>,
}

impl WriteBehind {
    /// At most `depth` at a time, and never two of the same of the `blocks` of a file, which is overwritten from its start.
    pub(super) fn new(depth: u16, blocks: u64) -> Self {
        let most = usize::from(depth).min(usize::try_from(blocks).unwrap_or(usize::MAX)).max(1);
        Self { requests: VecDeque::new(), most, spare: Vec::new() }
    }

    /// Has a block written at this place, and returns a buffer of its length for the next one.
    pub(super) fn write(
        &mut self,
        file: impl AsFd,
        (block, at): (AlignedBuffer, u64),
        ring: &mut WorkerRing,
        io: &mut IoCounts,
    ) -> io::Result<AlignedBuffer> {
        let ring = ring.get()?;
        while self.requests.len() >= self.most {
            self.finish_oldest(&file, ring)?;
        }
        io.sink_in_flight += in_flight(ring, &self.requests) + 1;
        io.sink_requests += 1;
        let length = block.len();
        let request = ring.write(&file, block, length, at)?;
        self.requests.push_back((request, (at, length)));
        Ok(self.spare.pop().unwrap_or_else(|| AlignedBuffer::new(length)))
    }

    /// Waits until all has been written.
    pub(super) fn finish(&mut self, file: impl AsFd, ring: &mut WorkerRing) -> io::Result<()> {
        while !self.requests.is_empty() {
            self.finish_oldest(&file, ring.get()?)?;
        }
        Ok(())
    }

    fn finish_oldest(&mut self, file: impl AsFd, ring: &mut FileRing) -> io::Result<()> {
        let Some((request, (at, length))) = self.requests.pop_front() else { return Ok(()) };
        let Completed { buffer, moved } = ring.take(request)?;
        let mut written = moved?;
        // A request may write less than it was given.
        while written < length {
            match rustix::io::pwrite(&file, &buffer.bytes()[written..length], at + written as u64)?
            {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                more => written += more,
            }
        }
        self.spare.push(buffer);
        Ok(())
    }
}
