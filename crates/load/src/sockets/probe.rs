//! Asks the other end of a connection which of its CPUs handles the packets of this one.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use wirecost_model::clock::{MILLISECOND, Nanos, SECOND};
use wirecost_program::hello::{self, Hello};

/// How long an answer is waited for before the probe is sent again, where datagrams carry it.
const REPEAT: Nanos = 200 * MILLISECOND;
/// How long all answers may take. The other end keeps its socket for longer.
const PATIENCE: Nanos = 5 * SECOND;

/// The question of one connection.
#[derive(Debug)]
pub(crate) struct Probe {
    hello: Hello,
    reliable: bool,
    /// Where data goes, if not to where the probe goes first; none once the socket is connected to it.
    data: Option<SocketAddr>,
    repeat: Nanos,
    deadline: Nanos,
    said: [u8; hello::LENGTH],
    length: usize,
}

/// What has been heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Heard {
    Cpu(u32),
    /// Nothing yet; ask again then.
    Nothing(Nanos),
}

impl Probe {
    pub(crate) fn new(hello: Hello, reliable: bool, data: Option<SocketAddr>) -> Self {
        let (said, length) = ([0; hello::LENGTH], 0);
        Self { hello, reliable, data, repeat: 0, deadline: 0, said, length }
    }

    /// The hello, with the cookie that the other end has given.
    pub(crate) fn hello(&self) -> Hello {
        self.hello
    }

    /// Sends it on a socket that is connected. Returns when to ask [`Probe::progress`] at the latest.
    pub(crate) fn send(&mut self, fd: &OwnedFd, now: Nanos) -> io::Result<Nanos> {
        self.length = 0;
        self.deadline = now + PATIENCE;
        self.again(fd, now)
    }

    fn again(&mut self, fd: &OwnedFd, now: Nanos) -> io::Result<Nanos> {
        // Fits the empty send buffer of a new connection.
        rustix::net::send(fd, &self.hello.probe(), SendFlags::NOSIGNAL)?;
        // A stream repeats by itself.
        self.repeat = if self.reliable { self.deadline } else { now + REPEAT };
        Ok(self.repeat)
    }

    /// # Errors
    /// Those of the socket; `TimedOut` where nobody answers.
    pub(crate) fn progress(&mut self, fd: &OwnedFd, now: Nanos) -> io::Result<Heard> {
        let cpu = match self.reliable {
            true => self.read_stream(fd)?,
            false => self.read_datagrams(fd, now)?,
        };
        if let Some(cpu) = cpu {
            return Ok(Heard::Cpu(cpu));
        }
        if now >= self.deadline {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "the peer does not answer which CPU handles the packets of a connection",
            ));
        }
        if now >= self.repeat {
            self.again(fd, now)?;
        }
        Ok(Heard::Nothing(self.repeat))
    }

    fn read_stream(&mut self, fd: &OwnedFd) -> io::Result<Option<u32>> {
        while self.length < self.said.len() {
            let place = &mut self.said[self.length..];
            match rustix::net::recv(fd, place, RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Err(io::ErrorKind::ConnectionReset.into()),
                Ok((got, _)) => self.length += got,
                Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
        let cpu = self.hello.cpu_in(&self.said);
        cpu.map(Some).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    fn read_datagrams(&mut self, fd: &OwnedFd, now: Nanos) -> io::Result<Option<u32>> {
        let mut buffer = [0u8; hello::LENGTH + 1];
        loop {
            let said = match rustix::net::recv(fd, &mut buffer, RecvFlags::DONTWAIT) {
                Ok((got, _)) => &buffer[..got],
                Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
                Err(error) => return Err(error.into()),
            };
            if let Some(cpu) = self.hello.cpu_in(said) {
                return Ok(Some(cpu));
            }
            // A challenge that was sent twice is answered once.
            let challenged = self.hello.challenged(said);
            if let Some(hello) = challenged.filter(|hello| *hello != self.hello) {
                self.hello = hello;
                self.again(fd, now)?;
            } else if self.hello.cookie != 0 && said == self.hello.again() {
                if let Some(data) = self.data.take() {
                    socket2::SockRef::from(fd).connect(&data.into())?;
                }
                self.again(fd, now)?;
            }
        }
    }

    /// Lets the other end forget the connection, which is not used. A stream leaves no state behind that would keep
    /// others from its ports (TIME_WAIT).
    pub(crate) fn abandon(&self, fd: &OwnedFd) {
        if self.reliable {
            let _ = socket2::SockRef::from(fd).set_linger(Some(std::time::Duration::ZERO));
        } else {
            let _ = rustix::net::send(fd, &self.hello.done(), SendFlags::DONTWAIT);
        }
    }
}
