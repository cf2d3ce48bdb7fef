//! Bytes that go on from a socket to a file, or come from one through a pipe (splice(2)).

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use rustix::pipe::{PipeFlags, SpliceFlags};
use wirecost_linux::aligned::ALIGNED;
use wirecost_linux::clock::Monotonic;
use wirecost_model::clock::Clock;

use super::Socket;
use super::data::DataPath;

/// What a pipe is to hold; an ordinary user may have as much (fs.pipe-max-size).
const PIPE: usize = 1 << 20;

/// A pipe that is empty between two calls, and what swallows bytes.
#[derive(Debug)]
pub(super) struct Pipe {
    pub(super) out: OwnedFd,
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
pub(super) fn give(
    pipe: &OwnedFd,
    to: impl AsFd,
    at: Option<u64>,
    bytes: usize,
) -> io::Result<usize> {
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

impl DataPath {
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
            Some(sink) => self.sinks[sink].take_in(pipe, got, &mut self.io),
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
        let skipped = if direct { (offset % ALIGNED) as usize } else { 0 };
        let mut at = offset - skipped as u64;
        let wanted = usize::try_from(length).unwrap_or(usize::MAX).saturating_add(skipped);
        let wanted = match direct {
            true => wanted.checked_next_multiple_of(ALIGNED as usize).unwrap_or(PIPE),
            false => wanted,
        };
        let wanted = wanted.min(pipe.holds);
        let before = Monotonic.now();
        let got =
            rustix::pipe::splice(file, Some(&mut at), &pipe.into, None, wanted, SpliceFlags::MOVE)?;
        self.io.source_read_ns += Monotonic.now() - before;
        self.io.source_read_bytes += got as u64;
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
