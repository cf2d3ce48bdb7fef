//! The connections of a strand, and the one that it is opening.

use std::io;

use super::low_water::LowWater;

/// One open connection.
#[derive(Debug)]
pub(super) struct Conn<S> {
    pub(super) socket: S,
    pub(super) connector: bool,
    pub(super) low_water: LowWater,
    /// Numbered messages sent and received, or the numbers that they would have had.
    pub(super) sent: u64,
    pub(super) received: u64,
    /// Datagrams that should have been received so far, whether or not they came.
    pub(super) expected: u64,
    /// Bytes still to come of messages that a time-out has given up, and the row they belong to.
    abandoned: u64,
    abandoned_row: u32,
}

impl<S> Conn<S> {
    /// Bytes still to come of messages that a time-out has given up.
    pub(super) fn abandoned(&self) -> u64 {
        self.abandoned
    }

    pub(super) fn abandoned_row(&self) -> u32 {
        self.abandoned_row
    }
}

#[derive(Debug)]
pub(super) struct Connections<S> {
    slots: Box<[Option<Conn<S>>]>,
    opening: Option<S>,
    attempts: u64,
    /// Abandoned bytes of all connections.
    abandoned: u64,
}

impl<S> Connections<S> {
    pub(super) fn new(slots: usize) -> Self {
        let slots = (0..slots).map(|_| None).collect();
        Self { slots, opening: None, attempts: 0, abandoned: 0 }
    }

    /// Messages are numbered anew in each phase.
    pub(super) fn begin_phase(&mut self) {
        for conn in self.slots.iter_mut().flatten() {
            (conn.sent, conn.received, conn.expected) = (0, 0, 0);
        }
    }

    #[inline]
    pub(super) fn get(&self, slot: u32) -> Option<&Conn<S>> {
        self.slots.get(slot as usize)?.as_ref()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, slot: u32) -> Option<&mut Conn<S>> {
        self.slots.get_mut(slot as usize)?.as_mut()
    }

    /// The open connection in a slot.
    ///
    /// # Errors
    /// Where there is none.
    #[inline]
    pub(super) fn require(&mut self, slot: u32) -> io::Result<&mut Conn<S>> {
        self.get_mut(slot).ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotConnected, "the strand has no such connection open")
        })
    }

    /// Open connections, each with its slot.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut Conn<S>)> {
        (0..).zip(&mut self.slots).filter_map(|(slot, conn)| Some((slot, conn.as_mut()?)))
    }

    pub(super) fn sockets(&self) -> impl Iterator<Item = &S> {
        self.slots.iter().flatten().map(|conn| &conn.socket)
    }

    /// The connection that is being opened, or else the one in the slot.
    pub(super) fn socket(&self, slot: u32) -> Option<&S> {
        let open = self.get(slot).map(|conn| &conn.socket);
        self.opening.as_ref().or(open)
    }

    pub(super) fn opening(&mut self) -> Option<&mut S> {
        self.opening.as_mut()
    }

    /// How many openings came before this one.
    pub(super) fn attempts(&self) -> u64 {
        self.attempts
    }

    pub(super) fn begin_opening(&mut self, socket: S) {
        self.opening = Some(socket);
        self.attempts += 1;
    }

    pub(super) fn cancel_opening(&mut self) -> Option<S> {
        self.opening.take()
    }

    /// The connection that was being opened is open.
    pub(super) fn opened(&mut self, slot: u32, connector: bool) {
        if let (Some(socket), Some(place)) =
            (self.opening.take(), self.slots.get_mut(slot as usize))
        {
            *place = Some(Conn {
                socket,
                connector,
                low_water: LowWater::new(),
                sent: 0,
                received: 0,
                expected: 0,
                abandoned: 0,
                abandoned_row: 0,
            });
        }
    }

    /// Takes the open connection out of a slot.
    pub(super) fn take(&mut self, slot: u32) -> Option<S> {
        let conn = self.slots.get_mut(slot as usize)?.take()?;
        self.abandoned -= conn.abandoned;
        Some(conn.socket)
    }

    pub(super) fn len(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Bytes of all connections that have yet to come of messages that were given up.
    pub(super) fn abandoned(&self) -> u64 {
        self.abandoned
    }

    /// A message was given up of which `bytes` are still to come.
    pub(super) fn abandon(&mut self, slot: u32, row: u32, bytes: u64) {
        if let Some(conn) = self.slots.get_mut(slot as usize).and_then(Option::as_mut) {
            conn.abandoned += bytes;
            conn.abandoned_row = row;
            self.abandoned += bytes;
        }
    }

    /// Abandoned bytes have come, or never will.
    pub(super) fn settle(&mut self, slot: u32, bytes: u64) {
        if let Some(conn) = self.slots.get_mut(slot as usize).and_then(Option::as_mut) {
            conn.abandoned -= bytes;
            self.abandoned -= bytes;
        }
    }
}
