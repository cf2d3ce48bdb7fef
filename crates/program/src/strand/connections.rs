//! The connections of a strand, and the one that it is opening.
//!
//! A strand may hold several connections of one id: each that it opens is put on top of those before
//! it, and flowops use the one on top (uperf's `strand_get_connection`). Connections are in slots, of
//! which a closed one is used again; an id has a place, which knows the slot on top.

use std::io;

use super::low_water::LowWater;
use crate::arrivals::Arrivals;
use crate::record::ArrivalCounters;

/// No connection.
const NONE: u32 = u32::MAX;

/// One open connection.
#[derive(Debug)]
pub(super) struct Conn<S> {
    pub(super) socket: S,
    /// The place of its id.
    pub(super) place: u32,
    /// Slot of the one below, or [`NONE`].
    below: u32,
    pub(super) connector: bool,
    pub(super) low_water: LowWater,
    /// Numbered messages sent and received, or the numbers that they would have had.
    pub(super) sent: u64,
    pub(super) received: u64,
    /// Datagrams that should have been received so far, whether or not they came.
    pub(super) expected: u64,
    /// Of a connection that has received datagrams.
    arrivals: Option<Box<Arrivals>>,
    /// Bytes still to come of messages that a time-out has given up, and the row they belong to.
    abandoned: u64,
    abandoned_row: u32,
}

impl<S> Conn<S> {
    pub(super) fn arrivals(&mut self) -> &mut Arrivals {
        self.arrivals.get_or_insert_with(|| Box::new(Arrivals::new()))
    }

    /// Awaits no more the datagrams below this one.
    pub(super) fn pass_over(&mut self, until: u64, counters: &ArrivalCounters) {
        let passed = self.received..until.max(self.received);
        self.received = passed.end;
        self.arrivals().passed_over(passed, counters);
    }

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
    slots: Vec<Option<Conn<S>>>,
    /// Slots without a connection.
    free: Vec<u32>,
    places: Box<[Place]>,
    /// Boxed, because most of the time there is none.
    opening: Option<Box<S>>,
    attempts: u64,
    /// Abandoned bytes of all connections.
    abandoned: u64,
}

/// The connections of one id.
#[derive(Debug, Clone, Copy)]
struct Place {
    /// Slot of the newest, or [`NONE`].
    top: u32,
    open: u32,
    /// How many both ends have opened so far, see [`crate::net::Owner::ordinal`].
    ordinal: u32,
}

impl<S> Connections<S> {
    pub(super) fn new(places: usize) -> Self {
        let places: Box<[Place]> =
            std::iter::repeat_n(Place { top: NONE, open: 0, ordinal: 0 }, places).collect();
        // Mostly each id has one connection.
        let slots = Vec::with_capacity(places.len());
        // Takes no memory before the first connection is closed.
        let free = Vec::new();
        Self { slots, free, places, opening: None, attempts: 0, abandoned: 0 }
    }

    /// The slot of the newest connection of a place.
    #[inline]
    pub(super) fn top(&self, place: u32) -> u32 {
        self.places.get(place as usize).map_or(NONE, |place| place.top)
    }

    /// The slot that the next connection will have.
    pub(super) fn next_slot(&self) -> u32 {
        self.free.last().copied().unwrap_or(self.slots.len() as u32)
    }

    /// How many connections of a place have been opened so far.
    pub(super) fn ordinal(&self, place: u32) -> u32 {
        self.places.get(place as usize).map_or(0, |place| place.ordinal)
    }

    /// A connection has been taken that the other end has opened, so the next one is awaited.
    pub(super) fn begin_accepting(&mut self, socket: S, place: u32, ordinal: u32) {
        self.begin_opening(socket);
        if let Some(place) = self.places.get_mut(place as usize) {
            place.ordinal = ordinal.wrapping_add(1);
        }
    }

    /// Whether one more connection may be opened.
    ///
    /// # Errors
    /// Where as many are open as may be.
    pub(super) fn may_open(&self, place: u32, most: u32) -> io::Result<()> {
        let open = self.places.get(place as usize).map_or(0, |place| place.open);
        if open < most {
            return Ok(());
        }
        Err(io::Error::new(
            io::ErrorKind::QuotaExceeded,
            format!(
                "the strand holds {open} connections, the most that it may: close them by \
                 disconnect, or connect a known number of times (iterations=)"
            ),
        ))
    }

    /// Messages are numbered anew in each phase.
    pub(super) fn begin_phase(&mut self) {
        for conn in self.slots.iter_mut().flatten() {
            (conn.sent, conn.received, conn.expected) = (0, 0, 0);
            if let Some(arrivals) = &mut conn.arrivals {
                arrivals.begin_phase();
            }
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

    /// Open connections.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Conn<S>> {
        self.slots.iter_mut().flatten()
    }

    /// The newest connection of each place.
    pub(super) fn tops_mut(&mut self) -> impl Iterator<Item = &mut Conn<S>> {
        let places = &self.places;
        let slots = (0..).zip(&mut self.slots);
        slots.filter_map(|(slot, conn)| {
            let conn = conn.as_mut()?;
            (places[conn.place as usize].top == slot).then_some(conn)
        })
    }

    pub(super) fn sockets(&self) -> impl Iterator<Item = &S> {
        self.slots.iter().flatten().map(|conn| &conn.socket)
    }

    /// The connection that is being opened, or else the one in the slot.
    pub(super) fn socket(&self, slot: u32) -> Option<&S> {
        let open = self.get(slot).map(|conn| &conn.socket);
        self.opening.as_deref().or(open)
    }

    pub(super) fn opening(&mut self) -> Option<&mut S> {
        self.opening.as_deref_mut()
    }

    /// How many openings came before this one.
    pub(super) fn attempts(&self) -> u64 {
        self.attempts
    }

    pub(super) fn begin_opening(&mut self, socket: S) {
        self.opening = Some(Box::new(socket));
        self.attempts += 1;
    }

    pub(super) fn cancel_opening(&mut self) -> Option<S> {
        self.opening.take().map(|socket| *socket)
    }

    /// The connection that was being opened is open: the newest of its place, in the slot that was the
    /// next one.
    pub(super) fn opened(&mut self, place: u32, connector: bool, datagrams: bool) {
        let (Some(socket), Some(of_place)) =
            (self.opening.take(), self.places.get_mut(place as usize))
        else {
            return;
        };
        let conn = Conn {
            socket: *socket,
            place,
            below: of_place.top,
            connector,
            low_water: LowWater::new(),
            sent: 0,
            received: 0,
            expected: 0,
            arrivals: datagrams.then(|| Box::new(Arrivals::new())),
            abandoned: 0,
            abandoned_row: 0,
        };
        of_place.top = match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = Some(conn);
                slot
            }
            None => {
                self.slots.push(Some(conn));
                self.slots.len() as u32 - 1
            }
        };
        of_place.open += 1;
        if connector {
            of_place.ordinal = of_place.ordinal.wrapping_add(1);
        }
    }

    /// Takes out the newest connection of a place; the one below is the newest then.
    pub(super) fn take(&mut self, place: u32) -> Option<S> {
        let of_place = self.places.get_mut(place as usize)?;
        let slot = of_place.top;
        let conn = self.slots.get_mut(slot as usize)?.take()?;
        of_place.top = conn.below;
        of_place.open -= 1;
        self.free.push(slot);
        self.abandoned -= conn.abandoned;
        Some(conn.socket)
    }

    /// Takes out all connections, each with its slot.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = (u32, S)> {
        self.places.iter_mut().for_each(|place| (place.top, place.open) = (NONE, 0));
        self.free.clear();
        self.abandoned = 0;
        let slots = std::mem::take(&mut self.slots);
        (0..).zip(slots).filter_map(|(slot, conn)| Some((slot, conn?.socket)))
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
