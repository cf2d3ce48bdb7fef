//! What only sockets with I/O options keep, and what those options did.

use std::cell::{Cell, OnceCell};
use std::io;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use wirecost_linux::datagrams::{self, Message};
use wirecost_linux::{sockopt, zerocopy};
use wirecost_program::calls::Granted;
use wirecost_program::calls::Receives;
use wirecost_program::hello;
use wirecost_program::payload::DatagramBatch;

use super::{Socket, Sockets, late_greeting};

/// Notices are read when so many may have come. Each takes memory of net.core.optmem_max until then.
const NOTICES: u64 = 32;

/// Made when a socket first needs it: most never do.
#[derive(Debug, Default)]
pub(super) struct Ways(OnceCell<Box<Way>>);

#[derive(Debug, Default)]
struct Way {
    /// Whether the kernel agreed to zero-copy; none before it was asked.
    zerocopy: Cell<Option<bool>>,
    /// Zero-copy calls whose pages the kernel may still hold.
    pending: Cell<u64>,
    /// In [`Brought`].
    place: Cell<Option<usize>>,
}

/// What calls have brought several datagrams of, for each socket that receives so.
#[derive(Debug, Default)]
pub(super) struct Brought {
    places: Vec<Received>,
    free: Vec<usize>,
}

impl Brought {
    fn add(&mut self, receives: Receives) -> usize {
        let buffer = vec![0; receives.place as usize * usize::from(receives.messages)];
        let received = Received { buffer, ..Received::default() };
        match self.free.pop() {
            Some(place) => {
                self.places[place] = received;
                place
            }
            None => {
                self.places.push(received);
                self.places.len() - 1
            }
        }
    }
}

/// Datagrams that have been received and not been taken.
#[derive(Debug, Default)]
struct Received {
    buffer: Vec<u8>,
    messages: Vec<Message>,
    /// The message under way, and what has been taken of it.
    next: usize,
    taken: usize,
}

impl Received {
    /// The next datagram's place in the buffer.
    fn take(&mut self) -> Option<(usize, usize)> {
        let message = *self.messages.get(self.next)?;
        let length = message.segment.min(message.length - self.taken);
        let start = message.start + self.taken;
        self.taken += length;
        // A datagram may be empty; a message of several has none that is.
        if self.taken >= message.length {
            self.next += 1;
            self.taken = 0;
        }
        Some((start, length))
    }
}

impl Ways {
    #[inline]
    pub(super) fn used(&self) -> bool {
        self.0.get().is_some()
    }

    fn get(&self) -> &Way {
        self.0.get_or_init(Box::default)
    }
}

impl Sockets {
    pub(super) fn send_zero_copy(
        &mut self,
        socket: &Socket,
        bytes: &[u8],
        copied: usize,
    ) -> io::Result<usize> {
        let (head, rest) = bytes.split_at(copied);
        if !head.is_empty() {
            let more = if rest.is_empty() { SendFlags::empty() } else { SendFlags::MORE };
            let sent = rustix::net::send(&socket.fd, head, more | SendFlags::NOSIGNAL)?;
            if sent < head.len() || rest.is_empty() {
                return Ok(sent);
            }
        }
        match self.send_rest(socket, rest) {
            Ok(sent) => Ok(head.len() + sent),
            Err(error) if !head.is_empty() && error.kind() == io::ErrorKind::WouldBlock => {
                Ok(head.len())
            }
            Err(error) => Err(error),
        }
    }

    fn send_rest(&mut self, socket: &Socket, bytes: &[u8]) -> io::Result<usize> {
        let way = socket.ways.get();
        let allowed = match way.zerocopy.get() {
            Some(allowed) => allowed,
            None => {
                let allowed = zerocopy::allow(&socket.fd).is_ok();
                if !allowed {
                    let (asked, granted) = ("on".to_owned(), "off".to_owned());
                    self.settings.insert(Granted { name: "zerocopy", asked, granted });
                }
                way.zerocopy.set(Some(allowed));
                allowed
            }
        };
        let mut sent =
            if allowed { zerocopy::send(&socket.fd, bytes) } else { Err(Errno::NOBUFS.into()) };
        if is_no_room(&sent) && way.pending.get() > 0 {
            self.read_notices(socket);
            sent = zerocopy::send(&socket.fd, bytes);
        }
        if is_no_room(&sent) {
            let sent = rustix::net::send(&socket.fd, bytes, SendFlags::NOSIGNAL)?;
            self.io.zerocopy_refused += 1;
            return Ok(sent);
        }
        match &sent {
            Ok(_) => {
                self.io.zerocopy_calls += 1;
                way.pending.set(way.pending.get() + 1);
                if way.pending.get().is_multiple_of(NOTICES) {
                    self.read_notices(socket);
                }
            }
            Err(_) => self.read_notices(socket),
        }
        sent
    }

    /// Reads what the kernel has to say of earlier zero-copy calls. Unread notices would also wake
    /// who waits for the socket, again and again.
    #[cold]
    pub(super) fn read_notices(&mut self, socket: &Socket) {
        let Some(way) = socket.ways.0.get() else { return };
        while way.pending.get() > 0
            && let Ok(Some(done)) = zerocopy::completion(&socket.fd)
        {
            let calls = u64::from(done.calls);
            self.io.zerocopy_completed += calls;
            self.io.zerocopy_copied += if done.copied { calls } else { 0 };
            way.pending.set(way.pending.get().saturating_sub(calls));
        }
    }

    /// What is known of a socket's I/O options only afterwards.
    pub(super) fn look_back(&mut self, socket: &Socket) {
        if socket.ways.used() {
            self.read_notices(socket);
        }
        if self.busy_poll > 0 {
            self.io.polling += 1;
            let by_device = matches!(sockopt::napi_id(&socket.fd), Ok(Some(_)));
            self.io.polled += u64::from(by_device);
        }
    }

    /// At the end of a phase: reads what there is to know of these sockets, and writes what is in
    /// memory yet.
    pub(crate) fn settle<'a>(&mut self, sockets: impl Iterator<Item = &'a Socket>) {
        for socket in sockets {
            self.look_back(socket);
        }
        // What fails now has been written before, or failed before.
        let _ = self.flush_sinks();
    }

    pub(super) fn send_datagrams(
        &mut self,
        socket: &Socket,
        datagrams: &DatagramBatch<'_>,
    ) -> io::Result<usize> {
        let first = datagrams.lengths.first().copied().unwrap_or(0);
        let segment = (datagrams.segments > 1).then_some(first as u16);
        let messages = datagrams.messages();
        let sent = self.calls.send(&socket.fd, datagrams.bytes, messages, segment)?;
        let sent = datagrams.datagrams(sent);
        self.io.send_calls += 1;
        self.io.sent_datagrams += sent as u64;
        Ok(sent)
    }

    /// The next datagram: one that an earlier call has received, else what one more call brings.
    #[inline(never)]
    pub(super) fn receive_datagram(
        &mut self,
        socket: &Socket,
        size: usize,
        receives: Receives,
        wait: bool,
    ) -> io::Result<&[u8]> {
        let way = socket.ways.get();
        let place = match way.place.get() {
            Some(place) => place,
            None => {
                if receives.joined {
                    datagrams::allow_joining(&socket.fd)?;
                }
                let place = self.brought.add(receives);
                way.place.set(Some(place));
                place
            }
        };
        let received = &mut self.brought.places[place];
        let (start, length) = match received.take() {
            Some(taken) => taken,
            None => {
                received.messages.clear();
                received.next = 0;
                let (buffer, messages) = (&mut received.buffer, &mut received.messages);
                let each = receives.place as usize;
                self.calls.receive(&socket.fd, buffer, each, wait, messages)?;
                self.io.receive_calls += 1;
                self.io.received_messages += received.messages.len() as u64;
                received.take().ok_or(io::ErrorKind::WouldBlock)?
            }
        };
        let datagram = &received.buffer[start..start + length];
        if hello::is_greeting(datagram) {
            return Err(late_greeting(socket, &datagram[..hello::LENGTH], self.run)?);
        }
        self.io.received_datagrams += 1;
        Ok(&datagram[..length.min(size)])
    }

    /// Lets go of what is kept for a socket that is closed.
    pub(super) fn forget(&mut self, socket: &Socket) {
        if let Some(place) = socket.ways.0.get().and_then(|way| way.place.take()) {
            self.brought.places[place] = Received::default();
            self.brought.free.push(place);
        }
    }

    /// Has the kernel drop bytes of a stream.
    pub(super) fn discard(
        &mut self,
        socket: &Socket,
        size: usize,
        flags: RecvFlags,
    ) -> io::Result<usize> {
        let most = size.min(self.buffer.len());
        let flags = flags | RecvFlags::TRUNC;
        let (_, dropped) = rustix::net::recv(&socket.fd, &mut self.buffer[..most], flags)?;
        self.io.discarded_bytes += dropped as u64;
        Ok(dropped)
    }
}

fn is_no_room(result: &io::Result<usize>) -> bool {
    result.as_ref().is_err_and(|e| e.raw_os_error() == Some(Errno::NOBUFS.raw_os_error()))
}
