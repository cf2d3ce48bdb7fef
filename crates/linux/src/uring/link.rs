//! What a ring knows of one connection.

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd};

use io_uring::types::Fd;
use rustix::io::Errno;

use super::Kind;

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

/// What has been received and not been read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Piece {
    /// None where there are no bytes.
    pub(super) buffer: Option<u16>,
    pub(super) from: usize,
    pub(super) length: usize,
}

#[derive(Debug)]
pub(super) struct Link<S> {
    pub(super) socket: S,
    pub(super) token: u64,
    pub(super) datagrams: bool,
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
    pub(super) spilled: VecDeque<Box<[u8]>>,
    read: usize,
    /// The first of them has been read to its end.
    spent: bool,
    pub(super) received: VecDeque<Piece>,
    /// Behind all that nothing more will come, or this error.
    pub(super) ended: Option<Result<(), Errno>>,
    pub(super) sending: Sending,
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
            received: VecDeque::new(),
            ended: None,
            sending: Sending::Idle,
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

    /// Whether it has buffers of the ring.
    pub(super) fn holds(&self) -> bool {
        !self.received.is_empty()
    }

    pub(super) fn has_something(&self) -> bool {
        self.holds() || self.spilled.len() > usize::from(self.spent) || self.ended.is_some()
    }

    /// Where the next bytes are: in which buffer, from where, how many. None: a datagram of no bytes.
    /// The buffer is `lent` when this was the last of it.
    pub(super) fn take(
        &mut self,
        size: usize,
        lent: &mut Option<u16>,
    ) -> Option<(u16, usize, usize)> {
        let piece = self.received.front_mut()?;
        let length = piece.length.min(size);
        let taken = piece.buffer.map(|buffer| (buffer, piece.from, length));
        piece.from += length;
        piece.length -= length;
        if piece.length == 0 || self.datagrams {
            *lent = piece.buffer;
            self.received.pop_front();
        }
        taken
    }

    /// Lets go of what has been lent to its end.
    pub(super) fn forget_spent(&mut self) {
        if std::mem::take(&mut self.spent) {
            self.spilled.pop_front();
            self.read = 0;
        }
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
    /// numbers in front.
    pub(super) fn is_another_datagram(&self, bytes: &[u8]) -> bool {
        const FRONT: usize = 8;
        let front = |bytes: &[u8]| bytes.len().min(FRONT);
        self.datagrams && bytes[..front(bytes)] != self.copy[..front(&self.copy)]
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
