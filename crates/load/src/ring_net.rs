//! The real network by way of a ring: what a strand sends and receives on a connection is asked of
//! the kernel now and done when its completion comes. What is rare goes by plain calls of
//! [`Sockets`], and the ring only tells when to make them.

use std::cell::Cell;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use wirecost_linux::uring::{self, Buffers, Direction, Event, Key, ListenerKey, Ring};
use wirecost_model::clock::Nanos;
use wirecost_model::measure::IoCounts;
use wirecost_model::plan::Endpoints;
use wirecost_program::calls::KernelReceive;
use wirecost_program::files::StreamPart;
use wirecost_program::hello;
use wirecost_program::net::{FromClient, Interest, Net, Opening, Owner};
use wirecost_program::payload::DatagramBatch;
use wirecost_program::step::{Group, Open, ReceiveCall, SendCall};
use wirecost_program::strand::TURN_BYTES;

use crate::engines::io_uring::GATHERING;
use crate::sockets::{Socket, Sockets, Token, allow_departures, late_greeting};
use crate::worker::SocketNet;

/// What a datagram takes of a receive buffer, at most: its memory is rounded up to a power of two.
/// <https://elixir.bootlin.com/linux/v6.12/source/include/linux/skbuff.h#L281> (`SKB_TRUESIZE`)
fn size_in_buffer(datagram: u64) -> u64 {
    2 * datagram + 1_024
}

/// A connection in the ring.
#[derive(Debug)]
pub(crate) struct RingSocket {
    socket: Socket,
    /// Its bytes go by plain calls, which do not block. A call that sends a file cannot be told not
    /// to block but by the socket, and with such a socket a ring does not wait.
    plain: bool,
    /// The kernel has refused to send the piece under way without a copy.
    refused: Cell<bool>,
}

impl AsFd for RingSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.fd().as_fd()
    }
}

/// The sockets of one worker and their ring.
#[derive(Debug)]
pub(crate) struct RingNet {
    sockets: Sockets,
    ring: Ring<RingSocket>,
    /// By service and strand. None where the ring only tells that somebody stands there.
    listeners: HashMap<(u32, u32), Vec<ListenerKey>>,
    /// Those of the worker itself, by their number.
    worker_listeners: Vec<Option<ListenerKey>>,
    /// The longest `busy_poll` that the ring has been told of, microseconds.
    busy_poll: u32,
    /// Bytes that it was given to send since it last handed over.
    given: u64,
    /// The same since the worker yielded; of datagrams what they take of the receive buffer, which by default
    /// has room for less than a turn (`net.core.rmem_default`).
    unyielded: u64,
    /// Whether a strand of the worker receives in some phase.
    receives: bool,
    /// Whether sockets that several clients send to are the ring's: its buffers have room for senders.
    takes_senders: bool,
}

impl RingNet {
    pub(crate) fn new(mut sockets: Sockets, ring: Ring<RingSocket>) -> Self {
        sockets.opener.awaits_events();
        Self {
            sockets,
            ring,
            listeners: HashMap::new(),
            worker_listeners: Vec::new(),
            busy_poll: 0,
            given: 0,
            unyielded: 0,
            receives: true,
            takes_senders: false,
        }
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
        self.given = 0;
        self.ring.submit(wait.map(std::time::Duration::from_nanos), events)
    }

    /// Whether it was given so many bytes to send since [`RingNet::submit`] that they should be handed over,
    /// which are those of one turn: the kernel sends all that it is given before anybody receives, and
    /// more would have left the caches by then (ADR 0038). Where strands of this worker receive, they would
    /// have their turn too seldom.
    pub(crate) fn has_much(&self) -> bool {
        !self.receives && self.given >= TURN_BYTES as u64
    }

    /// Whether it was given so much since this was last true that a receiver on the same CPU should have it
    /// (ADR 0040), at once or little by little.
    pub(crate) fn should_yield(&mut self) -> bool {
        let is_due = !self.receives && self.unyielded >= TURN_BYTES as u64;
        if is_due {
            self.unyielded = 0;
        }
        is_due
    }

    /// Where the answer comes later, the ring has been given these bytes.
    fn note_given(&mut self, key: &Key, sent: &io::Result<usize>, bytes: u64) {
        if sent.is_err() {
            self.given += bytes;
            let is_reliable = self.ring.get(key).socket.is_reliable();
            self.unyielded += if is_reliable { bytes } else { size_in_buffer(bytes) };
        }
    }

    /// Sees to it that a strand hears when it can go on. What the ring is asked for already it
    /// tells by itself.
    ///
    /// # Errors
    /// Those of io_uring_enter.
    pub(crate) fn await_ready(&mut self, key: &Key, on: Interest) -> io::Result<()> {
        let RingSocket { socket, plain, .. } = self.ring.get(key);
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

    fn insert(&mut self, socket: Socket, owner: Owner, plain: bool) -> Key {
        let token = Token::Connection { local: owner.local, slot: owner.slot };
        let datagrams = !socket.is_reliable();
        if self.busy_poll < self.sockets.settings.busy_poll() {
            self.busy_poll = self.sockets.settings.busy_poll();
            let set = self.ring.busy_poll(self.busy_poll).is_ok();
            self.sockets.settings.note_waits(set);
        }
        let is_served = socket.is_served() && !plain;
        let socket = RingSocket { socket, plain, refused: Cell::new(false) };
        match is_served {
            true => self.ring.insert_addressed(socket, token.number()),
            false => self.ring.insert(socket, token.number(), datagrams),
        }
    }

    /// From now on the bytes of this connection go by plain calls.
    fn make_plain(&mut self, key: &Key) -> io::Result<()> {
        if !self.ring.get(key).plain {
            let socket = self.ring.get_mut(key)?;
            rustix::io::ioctl_fionbio(socket.socket.fd(), true)?;
            socket.plain = true;
        }
        Ok(())
    }

    /// The next connection at the strand's own listeners.
    fn accept_own(&mut self, service: u32, owner: Owner) -> io::Result<OwnedFd> {
        if self.sockets.opener.worker_listeners.has(service) {
            return self.accept_shared(service, owner);
        }
        let place = (service, owner.strand);
        if !self.listeners.contains_key(&place) {
            let mut keys = Vec::new();
            // Clients that come again and again may run ahead of who accepts them.
            let all = !self.sockets.opener.reconnects(service);
            for listener in self.sockets.opener.take_listeners(service, owner.local) {
                rustix::io::ioctl_fionbio(&listener, false)?;
                let token = Token::Listener { local: owner.local, number: 0 };
                keys.push(self.ring.listen(listener, token.number(), all)?);
            }
            self.listeners.insert(place, keys);
        }
        for &listener in &self.listeners[&place] {
            loop {
                match self.ring.accepted(listener) {
                    Ok(fd) if self.sockets.opener.check_peer(service, &fd) => return Ok(fd),
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

impl RingNet {
    /// The next connection at the worker's listeners.
    fn accept_shared(&mut self, service: u32, owner: Owner) -> io::Result<OwnedFd> {
        for (number, listener) in self.sockets.opener.worker_listeners.take(service) {
            rustix::io::ioctl_fionbio(&listener, false)?;
            let token = Token::WorkerListener { number };
            // There are no more clients than strands that accept.
            let key = self.ring.listen(listener, token.number(), true)?;
            let place = number as usize;
            if self.worker_listeners.len() <= place {
                self.worker_listeners.resize(place + 1, None);
            }
            self.worker_listeners[place] = Some(key);
        }
        while let Some(number) = self.sockets.opener.worker_listeners.look(service, owner.local) {
            let key = self.worker_listeners.get(number as usize).copied().flatten();
            let key = key.ok_or(io::ErrorKind::NotFound)?;
            match self.ring.accepted(key) {
                Ok(fd) if self.sockets.opener.check_peer(service, &fd) => {
                    if !self.ring.has_accepted(key) {
                        self.sockets.opener.worker_listeners.exhausted(number);
                    }
                    return Ok(fd);
                }
                Ok(_) => {}
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => {
                        self.sockets.opener.worker_listeners.exhausted(number);
                    }
                    io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted => {}
                    _ => return Err(error),
                },
            }
        }
        self.sockets.opener.worker_listeners.wait(service, owner.local);
        Err(io::ErrorKind::WouldBlock.into())
    }

    /// The same where a listener wants to be asked only when somebody stands there.
    fn accept_polled(&mut self, service: u32, owner: Owner) -> io::Result<OwnedFd> {
        let place = (service, owner.strand);
        if !self.listeners.contains_key(&place) {
            let token = Token::Listener { local: owner.local, number: 0 };
            for listener in self.sockets.opener.listeners(service, owner.local) {
                self.ring.watch(listener, token.number())?;
            }
            self.listeners.insert(place, Vec::new());
        }
        self.sockets.opener.accept_own(service, owner)
    }
}

impl SocketNet for RingNet {
    fn sockets(&self) -> &Sockets {
        &self.sockets
    }

    fn sockets_mut(&mut self) -> &mut Sockets {
        &mut self.sockets
    }

    fn note_writable(&mut self, key: &mut Key) {
        // Where the ring does not let go of it now, a system call asks whether it is connected.
        if let Ok(RingSocket { socket, .. }) = self.ring.get_mut(key) {
            socket.note_writable();
        }
    }

    fn socket<'a>(&'a self, key: &'a Key) -> &'a Socket {
        &self.ring.get(key).socket
    }

    fn set_endpoints(&mut self, endpoints: Arc<Endpoints>, groups: &[Group]) {
        self.sockets.set_endpoints(endpoints, groups);
        let phases = groups.iter().flat_map(|group| &group.phases).flatten();
        self.receives = phases.clone().any(|phase| phase.receives());
        let mut receive = phases.filter(|phase| phase.receives()).peekable();
        if receive.peek().is_some() && receive.all(|phase| phase.receive_only) {
            // Without more memory it goes with what there is.
            let _ = self.ring.set_buffers(GATHERING);
        }
        if groups.iter().flat_map(|group| &group.phases).flatten().any(|phase| phase.serves) {
            let Buffers { count, bytes } = self.ring.buffers();
            let wider = Buffers { count, bytes: bytes + uring::IN_FRONT };
            // Stamps take calls of their own.
            self.takes_senders = self.sockets.stamp_counts().is_none()
                && self.ring.set_buffers(wider).is_ok()
                && self.ring.buffers() == wider;
        }
    }

    fn io(&self) -> IoCounts {
        let mut io = self.sockets.data.io;
        let by_ring = self.ring.zero_copy();
        io.zerocopy_completed += by_ring.completed;
        io.zerocopy_copied += by_ring.copied;
        self.sockets.opener.add_accepted(&mut io);
        io
    }

    fn settle<'a>(&mut self, keys: impl Iterator<Item = &'a Key>) -> io::Result<()> {
        let ring = &self.ring;
        self.sockets.settle(keys.map(|key| &ring.get(key).socket))
    }
}

impl Net for RingNet {
    type Socket = Key;

    const DEFERS: bool = true;

    fn has_begun_to_send(&self, key: &Key) -> bool {
        // Of plain ones, a session of TLS may hold records that are encrypted and not yet sent.
        let RingSocket { socket, plain, .. } = self.ring.get(key);
        !plain || self.sockets.has_begun_to_send(socket)
    }

    #[inline]
    fn now(&mut self) -> Nanos {
        self.sockets.now()
    }

    fn connect(&mut self, open: &Open, owner: Owner, attempt: u64) -> io::Result<Key> {
        let socket = self.sockets.connect(open, owner, attempt)?;
        let plain = !open.plain_receives || socket.bypasses_ring();
        Ok(self.insert(socket, owner, plain))
    }

    fn opening(&mut self, key: &mut Key) -> io::Result<Opening> {
        let RingSocket { socket, plain, .. } = self.ring.get_mut(key)?;
        let was_open = socket.is_open();
        let opening = self.sockets.opening(socket)?;
        if opening == Opening::Done && !was_open && !*plain {
            rustix::io::ioctl_fionbio(socket.fd(), false)?;
        }
        Ok(opening)
    }

    fn accept(&mut self, open: &Open, owner: Owner) -> io::Result<(Key, u32)> {
        let (fd, hello, blocks) = if self.sockets.opener.accepts_itself(open) {
            let service = open.service.service;
            match self.sockets.opener.polls_before_accept(service) {
                true => (self.accept_polled(service, owner)?, None, false),
                false => (self.accept_own(service, owner)?, None, true),
            }
        } else {
            let arrival = self.sockets.opener.take_arrival(owner)?;
            (arrival.socket, Some(arrival.hello), false)
        };
        let ordinal = hello.map_or(owner.ordinal, |hello| hello.ordinal);
        let socket = self.sockets.accepted(open, fd, hello, owner)?;
        let plain = !open.plain_receives
            || socket.bypasses_ring()
            || (socket.is_served() && !self.takes_senders);
        if blocks == plain {
            rustix::io::ioctl_fionbio(socket.fd(), plain)?;
        }
        Ok((self.insert(socket, owner, plain), ordinal))
    }

    #[inline]
    fn send(&mut self, key: &Key, bytes: &[u8], call: SendCall) -> io::Result<usize> {
        let socket = self.ring.get(key);
        if socket.plain {
            return self.sockets.send(&socket.socket, bytes, call);
        }
        let sent = if socket.socket.is_served() {
            let to = self.sockets.data.answered(&socket.socket)?;
            self.ring.send_to(key, bytes, to)
        } else {
            self.ring.send(key, bytes)
        };
        self.note_given(key, &sent, bytes.len() as u64);
        sent
    }

    fn receive_from_client(
        &mut self,
        key: &Key,
        call: ReceiveCall,
        timed: bool,
    ) -> io::Result<FromClient<'_>> {
        let socket = self.ring.get(key);
        if socket.plain {
            return self.sockets.receive_from_client(&socket.socket, call, timed);
        }
        let (socket, sender, datagram) = self.ring.receive_from(key)?;
        self.sockets.data.sent_by_client(&socket.socket, (datagram, sender))
    }

    fn has_received(&self, key: &Key) -> bool {
        self.sockets.has_received(&self.ring.get(key).socket)
    }

    fn will_answer(&mut self, key: &Key) {
        self.sockets.will_answer(&self.ring.get(key).socket);
    }

    fn most_times(&self, key: &Key) -> u64 {
        // Where others of the worker receive, so much at once would fill all buffers before they read.
        let single = self.receives || self.ring.get(key).plain;
        if single { 1 } else { Ring::<RingSocket>::TIMES as u64 }
    }

    fn send_times(
        &mut self,
        key: &Key,
        bytes: &[u8],
        call: SendCall,
        times: u64,
    ) -> io::Result<u64> {
        let socket = self.ring.get(key);
        let sent = match socket.plain {
            true => self.sockets.send(&socket.socket, bytes, call),
            false => {
                let sent = self.ring.send_times(key, bytes, times as usize);
                self.note_given(key, &sent, bytes.len() as u64 * times);
                sent
            }
        };
        sent.map(|sent| sent as u64)
    }

    fn send_zerocopy(&mut self, key: &Key, bytes: &[u8], copied: usize) -> io::Result<usize> {
        let RingSocket { socket, plain, refused } = self.ring.get(key);
        if *plain {
            return self.sockets.send_zerocopy(socket, bytes, copied);
        }
        // What changes goes alone; the ring would copy the rest with it.
        if copied == bytes.len() {
            return self.ring.send(key, bytes);
        }
        if copied > 0 {
            return self.ring.send_first(key, &bytes[..copied]);
        }
        if refused.get() {
            let sent = self.ring.send(key, bytes)?;
            self.ring.get(key).refused.set(false);
            self.sockets.data.io.zerocopy_refused += 1;
            return Ok(sent);
        }
        match self.ring.send_zero_copy(key, bytes) {
            Ok(sent) => {
                self.sockets.data.io.zerocopy_calls += 1;
                Ok(sent)
            }
            // The first where the ring does not hold the bytes, the second where the limit of
            // locked memory is reached.
            Err(error)
                if matches!(Errno::from_io_error(&error), Some(Errno::NOBUFS | Errno::NOMEM)) =>
            {
                self.ring.get(key).refused.set(true);
                self.ring.send(key, bytes)
            }
            Err(error) => Err(error),
        }
    }

    fn cork(&mut self, key: &Key, on: bool) -> io::Result<()> {
        self.sockets.cork(&self.ring.get(key).socket, on)
    }

    fn send_batch(&mut self, key: &Key, datagrams: &DatagramBatch<'_>) -> io::Result<usize> {
        let RingSocket { socket, plain, .. } = self.ring.get(key);
        if let ([_], Some(departures), false) = (datagrams.lengths, datagrams.departures, *plain) {
            allow_departures(socket)?;
            let sent = self.ring.send_at(key, datagrams.bytes, departures.at(0));
            self.note_given(key, &sent, datagrams.bytes.len() as u64);
            sent?;
            self.sockets.data.io.send_calls += 1;
            self.sockets.data.io.sent_datagrams += 1;
            return Ok(1);
        }
        self.make_plain(key)?;
        self.sockets.send_batch(&self.ring.get(key).socket, datagrams)
    }

    #[inline]
    fn receive(
        &mut self,
        key: &Key,
        size: usize,
        call: ReceiveCall,
        timed: bool,
    ) -> io::Result<&[u8]> {
        if !call.is_plain() {
            self.make_plain(key)?;
        }
        let socket = self.ring.get(key);
        if socket.plain && !self.ring.receives(key) {
            return self.sockets.receive(&socket.socket, size, call, timed);
        }
        let (socket, bytes) = self.ring.receive(key, size)?;
        if !socket.socket.is_reliable() && hello::is_greeting(bytes) {
            return Err(late_greeting(&socket.socket, bytes, self.sockets.opener.run())?);
        }
        Ok(bytes)
    }

    fn take_hello_refusal(&self, key: &Key, error: &io::Error) -> bool {
        self.ring.get(key).socket.take_hello_refusal(error)
    }

    fn low_water(&mut self, key: &Key, bytes: u64) -> io::Result<u64> {
        let most = self.ring.room() as u64;
        self.sockets.low_water(&self.ring.get(key).socket, bytes.min(most))
    }

    fn receive_in_kernel(
        &mut self,
        key: &Key,
        size: usize,
        call: KernelReceive,
        timed: bool,
    ) -> io::Result<usize> {
        self.make_plain(key)?;
        self.sockets.receive_in_kernel(&self.ring.get(key).socket, size, call, timed)
    }

    fn send_file(
        &mut self,
        key: &Key,
        source: u32,
        file: usize,
        offset: u64,
        length: u64,
    ) -> io::Result<usize> {
        self.make_plain(key)?;
        self.sockets.send_file(&self.ring.get(key).socket, source, file, offset, length)
    }

    fn send_from_file(&mut self, key: &Key, part: StreamPart, length: u64) -> io::Result<usize> {
        self.make_plain(key)?;
        self.sockets.send_from_file(&self.ring.get(key).socket, part, length)
    }

    fn shut_down(&mut self, key: &Key) -> io::Result<()> {
        self.sockets.shut_down(&self.ring.get(key).socket)
    }

    fn close(&mut self, key: Key, _: Owner) {
        // A ring that takes nothing any more fails the worker's next wait, too.
        if let Ok(rung) = self.ring.get_mut(&key) {
            self.sockets.note_closed(&mut rung.socket);
        }
        self.ring.close(key);
    }
}
