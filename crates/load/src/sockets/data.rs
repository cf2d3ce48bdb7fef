//! How bytes are sent and received.

use std::io;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use wirecost_linux::zerocopy::HeldMemory;
use wirecost_linux::{datagrams, sockopt};
use wirecost_model::measure::{FileChecks, IoCounts};
use wirecost_profile::flowops;
use wirecost_program::calls::KernelReceive;
use wirecost_program::hello::{self, Hello};
use wirecost_program::step::{ReceiveCall, SendCall};

use super::Socket;
use super::file_requests::WorkerRing;
use super::io_state::RecvBatches;
use super::pipes::Pipe;
use super::served::Served;
use super::sink::Sink;
use super::stamps::Stamps;

/// The calls of nearly all traffic.
const WRITE: SendCall = SendCall::Plain(flowops::SendCall::Write);
const READ: ReceiveCall = ReceiveCall::Plain(flowops::ReceiveCall::Read);

/// What the calls of one worker move bytes with.
#[derive(Debug)]
pub(crate) struct DataPath {
    /// Calls on connections block for a while, instead of returning "would block".
    pub(super) blocking: bool,
    /// Number of the run, as hellos have it.
    pub(super) run: u32,
    /// What is received, until the next call.
    pub(super) buffer: Vec<u8>,
    /// Headers of calls that move several datagrams.
    pub(super) calls: datagrams::Calls,
    pub(super) batches: RecvBatches,
    /// What sockets of several clients keep.
    pub(super) served: Vec<Served>,
    pub(super) pipe: Option<Pipe>,
    pub(super) sinks: Vec<Sink>,
    /// Reads and writes files, where a profile asks for it.
    pub(super) ring: WorkerRing,
    /// What is sent without a copy.
    pub(crate) held: HeldMemory,
    /// What I/O options did.
    pub(crate) io: IoCounts,
    /// What has been summed and read back since the phase began.
    pub(crate) checks: FileChecks,
    /// Where the kernel stamps what comes to some sockets.
    pub(super) stamps: Option<Box<Stamps>>,
}

impl DataPath {
    /// `buffer`: bytes of the largest read.
    pub(super) fn new(blocking: bool, run: u32, buffer: usize) -> Self {
        Self {
            blocking,
            run,
            buffer: vec![0; buffer],
            calls: datagrams::Calls::default(),
            batches: RecvBatches::default(),
            served: Vec::new(),
            pipe: None,
            sinks: Vec::new(),
            ring: WorkerRing::default(),
            held: HeldMemory::default(),
            io: IoCounts::default(),
            checks: FileChecks::default(),
            stamps: None,
        }
    }

    #[inline]
    pub(super) fn send(
        &mut self,
        socket: &Socket,
        bytes: &[u8],
        call: SendCall,
    ) -> io::Result<usize> {
        let is_plain = socket.session.is_none() && socket.clients.is_none();
        if is_plain && call == WRITE && bytes.len() <= socket.longest_send {
            return Ok(rustix::io::write(&socket.fd, bytes)?);
        }
        self.send_otherwise(socket, bytes, call)
    }

    fn send_otherwise(
        &mut self,
        socket: &Socket,
        bytes: &[u8],
        call: SendCall,
    ) -> io::Result<usize> {
        if let Some(session) = &socket.session {
            return session.borrow_mut().send(&socket.fd, bytes);
        }
        let bytes = &bytes[..bytes.len().min(socket.longest_send)];
        if socket.clients.is_some() {
            return self.answer(socket, bytes);
        }
        let sent = match (call, socket.peer.as_deref()) {
            (SendCall::Plain(flowops::SendCall::Write), _) => rustix::io::write(&socket.fd, bytes),
            (SendCall::Plain(flowops::SendCall::SendTo), Some(peer)) if !socket.reliable => {
                rustix::net::sendto(&socket.fd, bytes, SendFlags::NOSIGNAL, peer)
            }
            _ => rustix::net::send(&socket.fd, bytes, SendFlags::NOSIGNAL),
        };
        Ok(sent?)
    }

    /// Flags of a receiving call; `timed`: it must not block even where others do.
    #[inline]
    pub(super) fn flags(&self, timed: bool) -> RecvFlags {
        if timed && self.blocking { RecvFlags::DONTWAIT } else { RecvFlags::empty() }
    }

    #[inline]
    pub(super) fn receive(
        &mut self,
        socket: &Socket,
        size: usize,
        call: ReceiveCall,
        timed: bool,
    ) -> io::Result<&[u8]> {
        if socket.session.is_none() && socket.reads_plainly && call == READ && !timed {
            let most = size.min(self.buffer.len());
            return match rustix::io::read(&socket.fd, &mut self.buffer[..most]) {
                Ok(got) => Ok(&self.buffer[..got.min(most)]),
                Err(error) => Err(self.not_received(socket, error.into())),
            };
        }
        self.receive_otherwise(socket, size, call, timed)
    }

    fn receive_otherwise(
        &mut self,
        socket: &Socket,
        size: usize,
        call: ReceiveCall,
        timed: bool,
    ) -> io::Result<&[u8]> {
        let flags = self.flags(timed);
        let most = size.min(self.buffer.len());
        if socket.is_stamped() {
            return self.receive_stamped(socket, size, call, timed);
        }
        let buffer = &mut self.buffer[..most];
        if let Some(session) = &socket.session {
            let got = session.borrow_mut().receive(&socket.fd, buffer, flags)?;
            return Ok(&self.buffer[..got]);
        }
        let got = match call {
            ReceiveCall::Plain(flowops::ReceiveCall::Read) if flags.is_empty() => {
                rustix::io::read(&socket.fd, &mut *buffer)
            }
            ReceiveCall::Plain(flowops::ReceiveCall::RecvFrom) => {
                rustix::net::recvfrom(&socket.fd, &mut *buffer, flags).map(|(got, ..)| got)
            }
            ReceiveCall::Batched(receives) => {
                let wait = self.blocking && !timed;
                return self.receive_datagram(socket, size, receives, wait);
            }
            _ => rustix::net::recv(&socket.fd, &mut *buffer, flags).map(|(got, _)| got),
        };
        let got = match got {
            Ok(got) => got,
            Err(error) => return Err(self.not_received(socket, error.into())),
        };
        self.take(socket, call, got.min(most))?;
        Ok(&self.buffer[..got.min(most)])
    }

    /// The same on a socket whose messages the kernel stamps.
    #[inline(never)]
    fn receive_stamped(
        &mut self,
        socket: &Socket,
        size: usize,
        call: ReceiveCall,
        timed: bool,
    ) -> io::Result<&[u8]> {
        let wait = self.blocking && !timed;
        if let ReceiveCall::Batched(receives) = call {
            return self.receive_datagram(socket, size, receives, wait);
        }
        let (received, at) = match self.receive_with_stamp(socket, size, wait) {
            Ok(received) => received,
            Err(error) => return Err(self.not_received(socket, error)),
        };
        self.take(socket, call, received.length)?;
        // Of a stream, nothing is its end.
        if received.length > 0 || !socket.reliable {
            self.note_stamp(received.stamp, at);
        }
        Ok(&self.buffer[..received.length])
    }

    /// Does with what is at the beginning of the buffer what a call asks for, unless it is no traffic.
    #[inline]
    fn take(&mut self, socket: &Socket, call: ReceiveCall, got: usize) -> io::Result<()> {
        let received = &self.buffer[..got];
        if let ReceiveCall::Kept(keep) = call {
            if keep.sum {
                socket.io.streams().add_received(received);
            }
            if let Some(sink) = keep.sink {
                self.sinks[usize::from(sink)].write(received, &mut self.ring, &mut self.io)?;
                self.io.sink_bytes += got as u64;
            }
        }
        if !socket.reliable && hello::is_greeting(received) {
            return Err(late_greeting(socket, &received[..hello::LENGTH], self.run)?);
        }
        Ok(())
    }

    #[cold]
    fn not_received(&mut self, socket: &Socket, error: io::Error) -> io::Error {
        if socket.io.used() {
            self.read_notices(socket);
        }
        error
    }

    /// See [`wirecost_program::net::Net::low_water`].
    pub(super) fn low_water(&self, socket: &Socket, bytes: u64) -> io::Result<u64> {
        // A call that blocks heeds the mark as well, and would go on when nobody may any more.
        if self.blocking || !socket.has_low_water {
            return Ok(1);
        }
        sockopt::set_low_water(&socket.fd, bytes)?;
        Ok(bytes)
    }

    pub(super) fn receive_in_kernel(
        &mut self,
        socket: &Socket,
        size: usize,
        call: KernelReceive,
        timed: bool,
    ) -> io::Result<usize> {
        let flags = self.flags(timed);
        let passed = match call {
            KernelReceive::Discarded => self.discard(socket, size, flags),
            KernelReceive::Spliced(sink) => {
                self.splice_on(socket, size, sink.map(usize::from), flags)
            }
        };
        if passed.is_err() && socket.io.used() {
            self.read_notices(socket);
        }
        if socket.is_stamped() && matches!(passed, Ok(1..)) {
            self.note_unstamped_call();
        }
        passed
    }
}

/// Answers a hello again that was repeated before its answer came. It is not traffic, so the reader
/// continues as after an interruption.
pub(crate) fn late_greeting(socket: &Socket, bytes: &[u8], run: u32) -> io::Result<io::Error> {
    if let Ok(hello) = Hello::read(bytes, run) {
        socket.greeted_again.set(true);
        match rustix::net::send(&socket.fd, &hello.welcome(), SendFlags::empty()) {
            // ECONNREFUSED reports an earlier answer; this one has not been sent.
            Ok(_) | Err(Errno::CONNREFUSED) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(io::ErrorKind::Interrupted.into())
}
