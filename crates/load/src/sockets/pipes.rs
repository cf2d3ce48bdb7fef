//! Bytes that go on from a socket to a file, or come from one through a pipe (splice(2)).

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use rustix::event::{PollFd, PollFlags};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::net::RecvFlags;
use rustix::pipe::{PipeFlags, SpliceFlags};

use wirecost_program::calls::SinkPlace;

use super::Socket;
use super::data::DataPath;
use crate::files::Files;

/// What a pipe is to hold; an ordinary user may have as much (fs.pipe-max-size).
const PIPE: usize = 1 << 20;
/// What is written past the page cache at a time.
const BLOCK: usize = 256 << 10;
/// O_DIRECT wants memory, places and lengths in multiples of a device's block: 4 KiB do for all.
const ALIGNED: usize = 4096;

/// A pipe that is empty between two calls, and what swallows bytes.
#[derive(Debug)]
pub(super) struct Pipe {
    out: OwnedFd,
    into: OwnedFd,
    null: File,
    holds: usize,
}

impl Pipe {
    fn new() -> io::Result<Self> {
        let (out, into) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        let holds = match rustix::pipe::fcntl_setpipe_size(&into, PIPE) {
            Ok(holds) => holds,
            Err(_) => rustix::pipe::fcntl_getpipe_size(&into)?,
        };
        let null = File::options().write(true).open("/dev/null")?;
        Ok(Self { out, into, null, holds })
    }

    fn drop_bytes(&self, mut bytes: usize) -> io::Result<()> {
        while bytes > 0 {
            bytes -= give(&self.out, &self.null, None, bytes)?;
        }
        Ok(())
    }
}

/// Moves bytes that are in a pipe, at least one, to this place of a file.
fn give(pipe: &OwnedFd, to: impl AsFd, at: Option<u64>, bytes: usize) -> io::Result<usize> {
    loop {
        let mut at = at;
        match rustix::pipe::splice(pipe, None, &to, at.as_mut(), bytes, SpliceFlags::MOVE) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(given) => return Ok(given),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// A file that is written round and round.
#[derive(Debug)]
pub(super) struct Sink {
    file: File,
    path: PathBuf,
    at: u64,
    size: u64,
    /// What waits until it is a block, where the file is written past the page cache.
    block: Option<Block>,
}

#[derive(Debug)]
struct Block {
    bytes: Vec<u8>,
    /// Where in `bytes` the aligned part begins, and how much of it is filled.
    start: usize,
    filled: usize,
}

impl Sink {
    /// Makes the file of this worker; one of this name can only be of an earlier run.
    fn open(files: &Files, place: &SinkPlace, name: &str, workers: u32) -> io::Result<Self> {
        let path = PathBuf::from(&place.directory).join(name);
        let explain = |error: io::Error| {
            let remedy = match error.raw_os_error().map(Errno::from_raw_os_error) {
                Some(Errno::INVAL) if place.direct => {
                    ": this file system does not take O_DIRECT; leave out o_direct, or name a \
                     directory of another one"
                }
                Some(Errno::NOENT | Errno::NOTDIR) => ": sink= names a directory that is there",
                _ => "",
            };
            io::Error::new(error.kind(), format!("sink {}: {error}{remedy}", path.display()))
        };
        let file = files.sink(&path, place.direct).map_err(explain)?;
        let block = BLOCK as u64;
        let size = (place.bytes / u64::from(workers.max(1)) / block).max(1) * block;
        let block = place.direct.then(|| {
            let bytes = vec![0; BLOCK + ALIGNED];
            Block { start: bytes.as_ptr().align_offset(ALIGNED), filled: 0, bytes }
        });
        Ok(Self { file, path, at: 0, size, block })
    }

    pub(super) fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let room = match &self.block {
                Some(block) => BLOCK - block.filled,
                None => usize::try_from(self.size - self.at).unwrap_or(usize::MAX),
            };
            let (head, rest) = bytes.split_at(bytes.len().min(room));
            match &mut self.block {
                Some(block) => {
                    let start = block.start + block.filled;
                    block.bytes[start..start + head.len()].copy_from_slice(head);
                    block.filled += head.len();
                    if block.filled == BLOCK {
                        let full = &block.bytes[block.start..block.start + BLOCK];
                        self.file.write_all_at(full, self.at).map_err(|e| named(&self.path, &e))?;
                        block.filled = 0;
                        self.pass(BLOCK as u64);
                    }
                }
                None => {
                    self.file.write_all_at(head, self.at).map_err(|e| named(&self.path, &e))?;
                    self.pass(head.len() as u64);
                }
            }
            bytes = rest;
        }
        Ok(())
    }

    /// Writes so many bytes of a pipe.
    fn take_in(&mut self, pipe: &Pipe, mut bytes: usize) -> io::Result<()> {
        while bytes > 0 {
            let room = usize::try_from(self.size - self.at).unwrap_or(usize::MAX);
            let given = give(&pipe.out, &self.file, Some(self.at), bytes.min(room))
                .map_err(|e| named(&self.path, &e))?;
            self.pass(given as u64);
            bytes -= given;
        }
        Ok(())
    }

    fn pass(&mut self, bytes: u64) {
        self.at += bytes;
        if self.at >= self.size {
            self.at = 0;
        }
    }

    /// Writes what is no whole block yet, by way of the page cache.
    fn flush(&mut self) -> io::Result<()> {
        let Some(block) = self.block.as_ref().filter(|block| block.filled > 0) else {
            return Ok(());
        };
        let flags = rustix::fs::fcntl_getfl(&self.file)?;
        rustix::fs::fcntl_setfl(&self.file, flags - OFlags::DIRECT)?;
        let part = &block.bytes[block.start..block.start + block.filled];
        self.file.write_all_at(part, self.at).map_err(|e| named(&self.path, &e))?;
        rustix::fs::fcntl_setfl(&self.file, flags)?;
        Ok(())
    }
}

fn named(path: &std::path::Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("sink {}: {error}", path.display()))
}

impl DataPath {
    /// Makes the files that this worker keeps in these places.
    ///
    /// # Errors
    /// Those of open(2), with what to do.
    pub(crate) fn open_sinks(
        &mut self,
        (places, files): (&[SinkPlace], &Files),
        host: u32,
        (worker, workers): (u32, u32),
    ) -> io::Result<()> {
        for (number, place) in places.iter().enumerate() {
            let name = format!("wirecost-sink-{host}-{worker}-{number}");
            self.sinks.push(Sink::open(files, place, &name, workers)?);
        }
        Ok(())
    }

    /// What is in memory yet goes to its file.
    ///
    /// # Errors
    /// Those of write(2).
    pub(crate) fn flush_sinks(&mut self) -> io::Result<()> {
        self.sinks.iter_mut().try_for_each(Sink::flush)
    }

    /// Has bytes go on to a file, or nowhere.
    #[inline(never)]
    pub(super) fn splice_on(
        &mut self,
        socket: &Socket,
        size: usize,
        sink: Option<usize>,
        flags: RecvFlags,
    ) -> io::Result<usize> {
        // splice() waits if the socket does, whatever its caller wants.
        if flags.contains(RecvFlags::DONTWAIT) && !is_readable(socket)? {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let pipe = match &self.pipe {
            Some(pipe) => pipe,
            None => self.pipe.insert(Pipe::new()?),
        };
        let wanted = size.min(pipe.holds);
        let got =
            rustix::pipe::splice(&socket.fd, None, &pipe.into, None, wanted, SpliceFlags::MOVE)?;
        self.io.spliced_bytes += got as u64;
        let given = match sink {
            None => pipe.drop_bytes(got),
            Some(sink) => self.sinks[sink].take_in(pipe, got),
        };
        if given.is_err() {
            // What is left in it is nobody's any more.
            self.pipe = None;
        }
        given?;
        self.io.sink_bytes += if sink.is_some() { got as u64 } else { 0 };
        Ok(got)
    }

    /// Sends a piece of a file through a pipe. A socket may take less than the pipe has got: what is
    /// left is read again, for the pipe serves all of the worker's sockets.
    pub(super) fn splice_file(
        &mut self,
        socket: &Socket,
        file: impl AsFd,
        offset: u64,
        length: u64,
        direct: bool,
    ) -> io::Result<usize> {
        let pipe = match &self.pipe {
            Some(pipe) => pipe,
            None => self.pipe.insert(Pipe::new()?),
        };
        let skipped = if direct { offset as usize % ALIGNED } else { 0 };
        let mut at = offset - skipped as u64;
        let wanted = usize::try_from(length).unwrap_or(usize::MAX).saturating_add(skipped);
        let wanted =
            if direct { wanted.checked_next_multiple_of(ALIGNED).unwrap_or(PIPE) } else { wanted };
        let wanted = wanted.min(pipe.holds);
        let got =
            rustix::pipe::splice(file, Some(&mut at), &pipe.into, None, wanted, SpliceFlags::MOVE)?;
        if got <= skipped {
            pipe.drop_bytes(got)?;
            return Ok(0);
        }
        pipe.drop_bytes(skipped)?;
        let ready = (got - skipped).min(usize::try_from(length).unwrap_or(usize::MAX));
        let sent =
            rustix::pipe::splice(&pipe.out, None, &socket.fd, None, ready, SpliceFlags::MOVE);
        pipe.drop_bytes(got - skipped - sent.unwrap_or(0))?;
        self.io.spliced_bytes += sent.unwrap_or(0) as u64;
        Ok(sent?)
    }
}

fn is_readable(socket: &Socket) -> io::Result<bool> {
    let mut fds = [PollFd::new(&socket.fd, PollFlags::IN)];
    Ok(rustix::event::poll(&mut fds, Some(&rustix::event::Timespec::default()))? > 0)
}
