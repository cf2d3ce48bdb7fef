//! The real network by way of a ring: what a strand sends and receives on a connection is asked of
//! the kernel now and done when its completion comes. What is rare goes by plain calls of
//! [`Sockets`], and the ring only tells when to make them.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use wirecost_linux::uring::{Direction, Event, Key, ListenerKey, Ring};
use wirecost_model::clock::Nanos;

use crate::hello;
use crate::net::{Interest, Net, Opening, Owner};
use crate::sockets::{Socket, Sockets, Token, late_greeting};
use crate::step::{ReceiveCall, SendCall, Step};
use crate::worker::Real;

/// A connection in the ring.
#[derive(Debug)]
pub(crate) struct Rung {
    socket: Socket,
    /// Its bytes go by plain calls, which do not block. A call that sends a file cannot be told not
    /// to block but by the socket, and with such a socket a ring does not wait.
    plain: bool,
}

impl AsFd for Rung {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.fd().as_fd()
    }
}

/// The sockets of one worker and their ring.
#[derive(Debug)]
pub(crate) struct RingNet {
    sockets: Sockets,
    ring: Ring<Rung>,
    /// By service and strand.
    listeners: HashMap<(u32, u32), Vec<ListenerKey>>,
}

impl RingNet {
    pub(crate) fn new(sockets: Sockets, ring: Ring<Rung>) -> Self {
        Self { sockets, ring, listeners: HashMap::new() }
    }

    /// See [`Ring::submit`].
    ///
    /// # Errors
    /// Those of io_uring_enter.
    pub(crate) fn submit(
        &mut self,
        wait: Option<Nanos>,
        events: &mut Vec<Event>,
    ) -> io::Result<()> {
        self.ring.submit(wait.map(std::time::Duration::from_nanos), events)
    }

    /// Sees to it that a strand hears when it can go on. What the ring is asked for already it tells
    /// by itself.
    ///
    /// # Errors
    /// Those of io_uring_enter.
    pub(crate) fn await_ready(&mut self, key: &Key, on: Interest) -> io::Result<()> {
        let Rung { socket, plain } = self.ring.get(key);
        let direction = match on {
            Interest::Readable => Direction::Read,
            Interest::Writable => Direction::Write,
            Interest::Arrival | Interest::Nothing => return Ok(()),
        };
        let by_ring = socket.is_open() && !plain;
        if by_ring || (*plain && direction == Direction::Read && self.ring.receives(key)) {
            return Ok(());
        }
        self.ring.poll(key, direction)
    }

    fn insert(&mut self, socket: Socket, owner: Owner) -> Key {
        let token = Token::Connection { local: owner.local, slot: owner.slot };
        let datagrams = !socket.stream();
        self.ring.insert(Rung { socket, plain: false }, token.number(), datagrams)
    }

    /// From now on the bytes of this connection go by plain calls.
    fn make_plain(&mut self, key: &Key) -> io::Result<()> {
        let rung = self.ring.get_mut(key);
        if !rung.plain {
            rustix::io::ioctl_fionbio(rung.socket.fd(), true)?;
            rung.plain = true;
        }
        Ok(())
    }

    /// The next connection at the strand's own listeners.
    fn accept_own(&mut self, service: u32, owner: Owner) -> io::Result<OwnedFd> {
        let place = (service, owner.strand);
        if !self.listeners.contains_key(&place) {
            let mut keys = Vec::new();
            // Clients that come again and again may run ahead of who accepts them.
            let all = !self.sockets.reconnects(service);
            for listener in self.sockets.take_listeners(service, owner.strand) {
                rustix::io::ioctl_fionbio(&listener, false)?;
                let token = Token::Listener { local: owner.local };
                keys.push(self.ring.listen(listener, token.number(), all)?);
            }
            self.listeners.insert(place, keys);
        }
        for &listener in &self.listeners[&place] {
            loop {
                match self.ring.accepted(listener) {
                    Ok(fd) if self.sockets.welcomes(service, &fd) => return Ok(fd),
                    Ok(_) => {}
                    Err(error) => match error.kind() {
                        io::ErrorKind::WouldBlock => break,
                        io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted => {}
                        _ => return Err(error),
                    },
                }
            }
        }
        Err(io::ErrorKind::WouldBlock.into())
    }
}

impl Real for RingNet {
    fn sockets(&self) -> &Sockets {
        &self.sockets
    }

    fn sockets_mut(&mut self) -> &mut Sockets {
        &mut self.sockets
    }

    fn look<'a>(&'a self, key: &'a Key) -> &'a Socket {
        &self.ring.get(key).socket
    }
}

impl Net for RingNet {
    type Socket = Key;

    const DEFERS: bool = true;

    #[inline]
    fn now(&mut self) -> Nanos {
        self.sockets.now()
    }

    fn connect(&mut self, step: &Step, owner: Owner, attempt: u64) -> io::Result<Key> {
        let socket = self.sockets.connect(step, owner, attempt)?;
        Ok(self.insert(socket, owner))
    }

    fn opening(&mut self, key: &mut Key) -> io::Result<Opening> {
        let socket = &mut self.ring.get_mut(key).socket;
        let opening = self.sockets.opening(socket)?;
        if opening == Opening::Done {
            rustix::io::ioctl_fionbio(socket.fd(), false)?;
        }
        Ok(opening)
    }

    fn accept(&mut self, step: &Step, owner: Owner) -> io::Result<Key> {
        let (fd, hello) = if self.sockets.accepts_itself(step) {
            let service = step.service.ok_or(io::ErrorKind::InvalidInput)?.service;
            (self.accept_own(service, owner)?, None)
        } else {
            let arrival = self.sockets.take_arrival(owner)?;
            rustix::io::ioctl_fionbio(&arrival.socket, false)?;
            (arrival.socket, Some(arrival.hello))
        };
        let socket = self.sockets.accepted(step, owner, fd, hello)?;
        Ok(self.insert(socket, owner))
    }

    #[inline]
    fn send(&mut self, key: &Key, bytes: &[u8], call: SendCall) -> io::Result<usize> {
        let rung = self.ring.get(key);
        if rung.plain {
            return self.sockets.send(&rung.socket, bytes, call);
        }
        self.ring.send(key, bytes)
    }

    #[inline]
    fn receive(
        &mut self,
        key: &Key,
        size: usize,
        call: ReceiveCall,
        timed: bool,
    ) -> io::Result<&[u8]> {
        let rung = self.ring.get(key);
        if rung.plain && !self.ring.receives(key) {
            return self.sockets.receive(&rung.socket, size, call, timed);
        }
        let (rung, bytes) = self.ring.receive(key, size)?;
        if !rung.socket.stream() && hello::is_greeting(bytes) {
            return Err(late_greeting(&rung.socket, bytes, self.sockets.run())?);
        }
        Ok(bytes)
    }

    fn send_file(
        &mut self,
        key: &Key,
        step: &Step,
        file: usize,
        offset: u64,
        length: u64,
    ) -> io::Result<usize> {
        self.make_plain(key)?;
        self.sockets.send_file(&self.ring.get(key).socket, step, file, offset, length)
    }

    fn close(&mut self, key: Key, _: Owner) {
        self.sockets.note_closed(&self.ring.get(&key).socket);
        self.ring.close(key);
    }
}
