//! The line between a strand and the world: real sockets when it runs, a simulated network when it
//! is tested.

use std::io;
use std::net::SocketAddr;

use wirecost_model::clock::Nanos;

use crate::calls::KernelReceive;
use crate::clients::Client;
use crate::files::StreamPart;
use crate::payload::DatagramBatch;
use crate::step::{Open, ReceiveCall, SendCall};

/// Whose connection it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Owner {
    /// Number of the group in the profile.
    pub group: u32,
    pub strand: u32,
    /// Place of the strand among its worker's, and slot of the connection in the strand.
    pub local: u32,
    pub slot: u32,
    /// Connection id as the profile numbers it.
    pub id: u32,
    /// How many connections of this id the strand has opened before. Both ends of a strand open them
    /// in the same order, also where they arrive in another.
    pub ordinal: u32,
}

impl Owner {
    /// Whether a connection that has arrived is the next one of this owner's, or one that was given up
    /// at the other end and has been opened anew there.
    pub fn takes(&self, id: u32, ordinal: u32) -> bool {
        // Ordinals wrap around.
        id == self.id && ordinal.wrapping_sub(self.ordinal).cast_signed() <= 0
    }
}

/// What a strand waits for on one of its connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interest {
    Readable,
    Writable,
    /// A connection to be accepted.
    Arrival,
    /// Only for the time.
    Nothing,
}

/// How far a connection is that is being opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opening {
    Done,
    /// Ask again when this is so, or at the latest then.
    Wait(Interest, Option<Nanos>),
}

/// A datagram that came to a socket of several clients, from whom and when.
#[derive(Debug, Clone, Copy)]
pub struct FromClient<'a> {
    pub datagram: &'a [u8],
    pub client: &'a Client,
    /// The address that it sends from.
    pub from: SocketAddr,
    pub at: Nanos,
}

/// Sockets and time. Calls that would block return [`io::ErrorKind::WouldBlock`].
pub trait Net {
    type Socket;

    /// Whether a send that would block is under way all the same, so that it will be done even if
    /// the strand never asks again.
    const DEFERS: bool = false;

    /// Whether a send on this connection that would block has been sent in part all the same, as
    /// the first records of a piece that is encrypted.
    fn has_begun_to_send(&self, _: &Self::Socket) -> bool {
        Self::DEFERS
    }

    fn now(&mut self) -> Nanos;

    /// Begins to open a connection; `attempt` numbers the openings of this strand, so that they can
    /// be spread over the addresses of the service.
    ///
    /// # Errors
    /// Those of the system calls.
    fn connect(&mut self, open: &Open, owner: Owner, attempt: u64) -> io::Result<Self::Socket>;

    /// How far [`Net::connect`] is.
    ///
    /// # Errors
    /// Why the connection could not be opened.
    fn opening(&mut self, socket: &mut Self::Socket) -> io::Result<Opening>;

    /// A connection that has arrived for this owner, and its ordinal: the one that is expected where it
    /// does not say.
    ///
    /// # Errors
    /// Those of the system calls; `WouldBlock` where none has arrived.
    fn accept(&mut self, open: &Open, owner: Owner) -> io::Result<(Self::Socket, u32)>;

    /// Sends a piece of a message, or a datagram.
    ///
    /// # Errors
    /// Those of the system call.
    fn send(&mut self, socket: &Self::Socket, bytes: &[u8], call: SendCall) -> io::Result<usize>;

    /// Messages that one call of [`Net::send_times`] sends at most on this connection. Where it is 1, each
    /// takes a call of its own.
    fn most_times(&self, _: &Self::Socket) -> u64 {
        1
    }

    /// Sends a message of a stream so many times, one behind the other, and returns how many bytes of all
    /// this were sent. After `WouldBlock`, where sends are under way all the same, it is called again with
    /// the same message.
    ///
    /// # Errors
    /// Those of the system call.
    fn send_times(
        &mut self,
        socket: &Self::Socket,
        bytes: &[u8],
        call: SendCall,
        _times: u64,
    ) -> io::Result<u64> {
        self.send(socket, bytes, call).map(|sent| sent as u64)
    }

    /// Sends a piece of a message from where it stands: all but its first `copied` bytes must stay
    /// as they are.
    ///
    /// # Errors
    /// Those of the system call.
    fn send_zerocopy(
        &mut self,
        socket: &Self::Socket,
        bytes: &[u8],
        copied: usize,
    ) -> io::Result<usize>;

    /// Holds back part segments, or lets them go.
    ///
    /// # Errors
    /// Those of the system call.
    fn cork(&mut self, socket: &Self::Socket, on: bool) -> io::Result<()>;

    /// Sends datagrams by one call. Returns how many were sent, at least one.
    ///
    /// # Errors
    /// Those of the system call.
    fn send_batch(
        &mut self,
        socket: &Self::Socket,
        datagrams: &DatagramBatch<'_>,
    ) -> io::Result<usize>;

    /// Receives at most `size` bytes of a stream, or a datagram, of which no more than `size` bytes
    /// are kept. They are lent: where they were received to is used again by the next call. `timed`
    /// says that the caller will watch the time, so the call must not block even where others do.
    ///
    /// # Errors
    /// Those of the system call.
    fn receive(
        &mut self,
        socket: &Self::Socket,
        size: usize,
        call: ReceiveCall,
        timed: bool,
    ) -> io::Result<&[u8]>;

    /// Receives a datagram on a socket that several clients send to, see
    /// [`crate::step::Phase::serves`].
    ///
    /// # Errors
    /// Those of the system call; `Unsupported` where a network has no such sockets.
    fn receive_from_client(
        &mut self,
        _: &Self::Socket,
        _: ReceiveCall,
        _timed: bool,
    ) -> io::Result<FromClient<'_>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Whether an earlier call has received more datagrams on such a socket than have been taken.
    fn has_received(&self, _: &Self::Socket) -> bool {
        false
    }

    /// What is sent next on such a socket goes to the client from whom the last datagram came.
    fn will_answer(&mut self, _: &Self::Socket) {}

    /// Whether a wait for the connection to be readable, begun at once, ends with whatever arrives
    /// from now on: then nobody has to look first where nothing can have arrived yet.
    fn notifies_on_new_data(&self, _: &Self::Socket) -> bool {
        false
    }

    /// Whether a failure is that of an answer to a repeated hello, whose sender had gone on and closed the connection: it
    /// says nothing about the traffic. True at most once since the last such answer.
    fn take_hello_refusal(&self, _: &Self::Socket, _: &io::Error) -> bool {
        false
    }

    /// Has a wait for the connection to be readable go on until so many bytes are there or it has
    /// ended. Returns the mark that is set, which is 1 where waits heed none.
    ///
    /// # Errors
    /// Those of the system call.
    fn low_water(&mut self, _: &Self::Socket, _: u64) -> io::Result<u64> {
        Ok(1)
    }

    /// Has the kernel do with at most `size` bytes of a stream what `call` asks for: nobody here
    /// looks at them. Returns how many they were.
    ///
    /// # Errors
    /// Those of the system calls.
    fn receive_in_kernel(
        &mut self,
        socket: &Self::Socket,
        size: usize,
        call: KernelReceive,
        timed: bool,
    ) -> io::Result<usize>;

    /// Sends a piece of a file: `file` of those of a source, see [`crate::files::sources`].
    ///
    /// # Errors
    /// Those of open and sendfile.
    fn send_file(
        &mut self,
        socket: &Self::Socket,
        source: u32,
        file: usize,
        offset: u64,
        length: u64,
    ) -> io::Result<usize>;

    /// Sends at most `length` bytes of the strand's part of a source, at least one. They follow those that the
    /// connection has sent of it before; after the last byte of the part comes its first.
    ///
    /// # Errors
    /// Those of opening and reading the file, and of sending; `Unsupported` where a network has no files.
    fn send_from_file(
        &mut self,
        _: &Self::Socket,
        _part: StreamPart,
        _length: u64,
    ) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Sends the end of a stream, whose other way stays open.
    ///
    /// # Errors
    /// Those of shutdown(2).
    fn shut_down(&mut self, socket: &Self::Socket) -> io::Result<()>;

    fn close(&mut self, socket: Self::Socket, owner: Owner);
}
