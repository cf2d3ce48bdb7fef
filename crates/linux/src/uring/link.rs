//! What a ring knows of one connection.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};

use io_uring::types::Fd;
use rustix::io::Errno;

use super::Kind;
use super::addressed::Destination;
use super::departure::Departing;
use super::repeat::Header;

/// How the kernel is asked to receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Receiving {
    Idle,
    Once,
    /// As often as something comes (IORING_RECV_MULTISHOT).
    Again,
    /// It has been told to stop.
    Stopping,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sending {
    Idle,
    Underway,
    /// With this result, which nobody has asked for yet.
    Done(i32),
}

/// What has been received into each buffer of the ring and not been read. A buffer is in the queue of
/// one link at most, so one entry for each is memory enough for the queues of all links.
#[derive(Debug)]
pub(super) struct Pieces(Vec<Piece>);

#[derive(Debug, Clone, Copy, Default)]
struct Piece {
    from: u32,
    length: u32,
    /// Datagrams of no bytes that came before it. These have no buffer.
    empty: u32,
    /// The buffer that follows in the same queue.
    next: Option<u16>,
}

/// The pieces of one link, in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Queue {
    first: Option<u16>,
    last: u16,
    /// Datagrams of no bytes behind the last buffer.
    empty: u32,
    length: usize,
}

impl Queue {
    pub(super) fn len(&self) -> usize {
        self.length
    }

    pub(super) fn push_empty(&mut self) {
        self.empty += 1;
        self.length += 1;
    }
}

/// A piece that has left its queue: buffer, beginning and length; none of a datagram of no bytes.
pub(super) type Popped = Option<(u16, usize, usize)>;

impl Pieces {
    pub(super) fn new(buffers: u16) -> Self {
        Self(vec![Piece::default(); usize::from(buffers)])
    }

    pub(super) fn push(&mut self, queue: &mut Queue, buffer: u16, length: usize) {
        let empty = std::mem::take(&mut queue.empty);
        self.0[usize::from(buffer)] = Piece { from: 0, length: length as u32, empty, next: None };
        match queue.first {
            None => queue.first = Some(buffer),
            Some(_) => self.0[usize::from(queue.last)].next = Some(buffer),
        }
        queue.last = buffer;
        queue.length += 1;
    }

    /// The oldest piece of a queue; none where the queue is empty.
    pub(super) fn pop(&mut self, queue: &mut Queue) -> Option<Popped> {
        queue.length = queue.length.checked_sub(1)?;
        let Some(buffer) = queue.first else {
            queue.empty = queue.empty.saturating_sub(1);
            return Some(None);
        };
        let piece = &mut self.0[usize::from(buffer)];
        if piece.empty > 0 {
            piece.empty -= 1;
            return Some(None);
        }
        queue.first = piece.next;
        Some(Some((buffer, piece.from as usize, piece.length as usize)))
    }

    /// At most so many bytes of the oldest piece, which keeps the rest; none where the oldest has no bytes.
    fn split(&mut self, queue: &Queue, size: usize) -> Popped {
        let buffer = queue.first?;
        let piece = &mut self.0[usize::from(buffer)];
        let (from, length) = (piece.from as usize, piece.length as usize);
        if piece.empty > 0 || length <= size {
            return None;
        }
        piece.from += size as u32;
        piece.length -= size as u32;
        Some((buffer, from, size))
    }
}

#[derive(Debug)]
pub(super) struct Link<S> {
    pub(super) socket: S,
    pub(super) token: u64,
    pub(super) datagrams: bool,
    /// Several others send to it: each datagram comes with its sender.
    pub(super) addressed: bool,
    /// Operations that the kernel has not completed.
    pub(super) outstanding: u32,
    /// The ring's round in which the last one was asked for; 0 before the first.
    pub(super) asked: u64,
    pub(super) closing: bool,
    pub(super) receiving: Receiving,
    /// It has been received from before, so it probably will be again.
    pub(super) again: bool,
    pub(super) receives: u32,
    /// The ring's table of files has it at the link's place.
    pub(super) registered: bool,
    /// Somebody has asked for more than there was.
    pub(super) wanted: bool,
    /// It waits for a buffer, to be asked for again.
    pub(super) hungry: bool,
    /// Older than `received`: what had to leave the ring's buffers, and how much of the first is read.
    pub(super) spilled: VecDeque<Vec<u8>>,
    read: usize,
    /// The first of them has been read to its end.
    spent: bool,
    pub(super) received: Queue,
    /// Behind all that nothing more will come, or this error.
    pub(super) ended: Option<Result<(), Errno>>,
    pub(super) sending: Sending,
    /// Of the last send of several messages. Its address must not change while `sending` is underway.
    pub(super) header: Option<Box<Header>>,
    /// The same of the last datagram with a departure time.
    pub(super) departing: Option<Box<Departing>>,
    /// The same of the last datagram with an address.
    pub(super) destination: Option<Box<Destination>>,
    /// What is being sent, where it is not shared. It must not change while `sending` is underway; when
    /// such a send is completed, the kernel has let go of it.
    pub(super) copy: Vec<u8>,
    /// By direction: the kernel will tell when the socket is ready.
    pub(super) polled: [bool; 2],
}

impl<S> Link<S> {
    pub(super) fn new(socket: S, token: u64, datagrams: bool) -> Self {
        Self {
            socket,
            token,
            datagrams,
            addressed: false,
            outstanding: 0,
            asked: 0,
            closing: false,
            receiving: Receiving::Idle,
            again: false,
            receives: 0,
            registered: false,
            wanted: false,
            hungry: false,
            spilled: VecDeque::new(),
            read: 0,
            spent: false,
            received: Queue::default(),
            ended: None,
            sending: Sending::Idle,
            header: None,
            departing: None,
            destination: None,
            copy: Vec::new(),
            polled: [false; 2],
        }
    }

    /// What operations of the link at this place name: its descriptor, or where it is registered.
    pub(super) fn target(&self, place: u32) -> Fd
    where
        S: AsFd,
    {
        Fd(if self.registered { place as i32 } else { self.socket.as_fd().as_raw_fd() })
    }

    /// Keeps what the next send is named by, and returns where it is.
    pub(super) fn set_header(&mut self, header: Header) -> *const libc::msghdr {
        match &mut self.header {
            Some(place) => {
                **place = header;
                place.address()
            }
            None => self.header.insert(Box::new(header)).address(),
        }
    }

    /// Whether it has buffers of the ring.
    pub(super) fn holds(&self) -> bool {
        self.received.len() > 0
    }

    pub(super) fn has_something(&self) -> bool {
        self.holds() || self.spilled.len() > usize::from(self.spent) || self.ended.is_some()
    }

    /// Where the next bytes are: in which buffer, from where, how many. None: a datagram of no bytes.
    /// The buffer is `lent` when this was the last of it.
    pub(super) fn take(
        &mut self,
        size: usize,
        pieces: &mut Pieces,
        lent: &mut Option<u16>,
    ) -> Popped {
        if !self.datagrams
            && let Some(part) = pieces.split(&self.received, size)
        {
            return Some(part);
        }
        let (buffer, from, length) = pieces.pop(&mut self.received)??;
        *lent = Some(buffer);
        Some((buffer, from, length.min(size)))
    }

    /// Lets go of what has been lent to its end. Its memory can be used again.
    pub(super) fn forget_spent(&mut self) -> Option<Vec<u8>> {
        if !std::mem::take(&mut self.spent) {
            return None;
        }
        self.read = 0;
        self.spilled.pop_front()
    }

    pub(super) fn take_spilled(&mut self, size: usize) -> (&S, &[u8]) {
        let Some(first) = self.spilled.front() else { return (&self.socket, &[]) };
        let from = self.read;
        let to = first.len().min(from.saturating_add(size));
        self.read = to;
        self.spent = self.datagrams || to == first.len();
        (&self.socket, &first[from..to])
    }

    /// Whether `bytes` are another datagram than the one that was sent last: datagrams have their
    /// numbers in front. Those of several receivers (`to`) may have the same ones.
    pub(super) fn is_another_datagram(&self, bytes: &[u8], to: Option<SocketAddr>) -> bool {
        const FRONT: usize = 8;
        let front = |bytes: &[u8]| bytes.len().min(FRONT);
        let is_to = |to| self.destination.as_ref().is_some_and(|last| last.is(to));
        self.datagrams
            && (bytes[..front(bytes)] != self.copy[..front(&self.copy)]
                || to.is_some_and(|to| !is_to(to)))
    }

    /// What the kernel is at and has not been told to stop.
    pub(super) fn under_way(&self) -> [Option<Kind>; 4] {
        let receives = matches!(self.receiving, Receiving::Once | Receiving::Again);
        [
            receives.then_some(Kind::Receive),
            (self.sending == Sending::Underway).then_some(Kind::Send),
            self.polled[0].then_some(Kind::PollRead),
            self.polled[1].then_some(Kind::PollWrite),
        ]
    }
}
