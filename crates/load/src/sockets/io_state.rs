//! What sockets with I/O options keep beside the rest, and what these options do.

use std::cell::{Cell, OnceCell};
use std::io;
use std::net::SocketAddr;
use std::ops::Range;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use wirecost_linux::clock::Monotonic;
use wirecost_linux::datagrams::{self, Message};
use wirecost_linux::receive_stamps::Stamp;
use wirecost_linux::{sockopt, zerocopy};
use wirecost_model::clock::{Clock, Nanos};
use wirecost_program::calls::EffectiveSetting;
use wirecost_program::calls::Receives;
use wirecost_program::hello;
use wirecost_program::net::FromClient;
use wirecost_program::payload::DatagramBatch;

use super::Socket;
use super::data::{DataPath, late_greeting};
use super::served::{Served, welcome_again};
use super::settings::SettingsLog;
use super::stamps::ReadAt;
use super::stream::Streams;

/// Notices are read when so many may have come. Each takes memory of net.core.optmem_max until
/// then.
const NOTICES: u64 = 32;

/// What one socket's I/O options keep. Made when the socket first needs it: most never do.
#[derive(Debug, Default)]
pub(super) struct IoState(OnceCell<Box<Used>>);

#[derive(Debug, Default)]
struct Used {
    /// Whether the kernel agreed to zero-copy; none before it was asked.
    zerocopy: Cell<Option<bool>>,
    /// Zero-copy calls whose pages the kernel may still hold.
    pending: Cell<u64>,
    /// In [`RecvBatches`].
    place: Cell<Option<usize>>,
    /// Whether its messages may have departure times.
    departs: Cell<bool>,
    /// In [`DataPath::served`].
    served: Cell<Option<usize>>,
    streams: Streams,
}

/// The datagrams that one call received, for each socket that receives several at a time.
#[derive(Debug, Default)]
pub(super) struct RecvBatches {
    places: Vec<RecvBatch>,
    free: Vec<usize>,
}

impl RecvBatches {
    fn add(&mut self, receives: Receives) -> usize {
        let buffer = vec![0; receives.place as usize * usize::from(receives.messages)];
        let batch = RecvBatch { buffer, ..RecvBatch::default() };
        match self.free.pop() {
            Some(place) => {
                self.places[place] = batch;
                place
            }
            None => {
                self.places.push(batch);
                self.places.len() - 1
            }
        }
    }
}

/// Datagrams of one socket that have been received and not been taken.
#[derive(Debug, Default)]
struct RecvBatch {
    buffer: Vec<u8>,
    messages: Vec<Message>,
    /// Of each message, where several clients send to the socket.
    senders: Vec<Option<SocketAddr>>,
    /// Of each message, where the kernel stamps them, and when all were read.
    stamps: Vec<Stamp>,
    read_at: ReadAt,
    /// The message under way, and what has been taken of it.
    next: usize,
    taken: usize,
    /// Where the datagram is that was taken last, and of which message it was.
    datagram: Range<usize>,
    of: usize,
    /// Whether it was the first one of its message.
    is_first: bool,
}

impl RecvBatch {
    /// Goes on to the next datagram, if there is one.
    fn take(&mut self) -> bool {
        let Some(message) = self.messages.get(self.next) else { return false };
        let length = message.segment.min(message.length - self.taken);
        let start = message.start + self.taken;
        self.is_first = self.taken == 0;
        (self.datagram, self.of) = (start..start + length, self.next);
        self.taken += length;
        // A datagram may be empty, but none of several in one message is.
        if self.taken >= message.length {
            self.next += 1;
            self.taken = 0;
        }
        true
    }

    fn datagram(&self) -> &[u8] {
        &self.buffer[self.datagram.clone()]
    }

    /// The stamp of the message whose first datagram was taken last, where there are stamps.
    fn stamp(&self) -> Option<(Stamp, ReadAt)> {
        let stamp = self.stamps.get(self.of).filter(|_| self.is_first)?;
        Some((*stamp, self.read_at))
    }

    fn sender(&self) -> Option<SocketAddr> {
        self.senders.get(self.of).copied().flatten()
    }
}

impl IoState {
    #[inline]
    pub(super) fn used(&self) -> bool {
        self.0.get().is_some()
    }

    fn get(&self) -> &Used {
        self.0.get_or_init(Box::default)
    }

    /// What the connection sends of files, and sums.
    pub(super) fn streams(&self) -> &Streams {
        &self.get().streams
    }
}

impl DataPath {
    pub(super) fn send_zero_copy(
        &mut self,
        socket: &Socket,
        bytes: &[u8],
        copied: usize,
        settings: &mut SettingsLog,
    ) -> io::Result<usize> {
        // What changes goes by a call of its own; the rest of the message follows it.
        if copied > 0 {
            let more = match copied < bytes.len() {
                true => SendFlags::MORE,
                false => SendFlags::empty(),
            };
            let flags = more | SendFlags::NOSIGNAL;
            return Ok(rustix::net::send(&socket.fd, &bytes[..copied], flags)?);
        }
        let used = socket.io.get();
        let allowed = match used.zerocopy.get() {
            Some(allowed) => allowed,
            None => {
                let allowed = zerocopy::allow(&socket.fd).is_ok();
                if !allowed {
                    let (requested, effective) = ("on".to_owned(), "off".to_owned());
                    settings.add([EffectiveSetting { name: "zerocopy", requested, effective }]);
                }
                used.zerocopy.set(Some(allowed));
                allowed
            }
        };
        let mut sent =
            if allowed { self.held.send(&socket.fd, bytes) } else { Err(Errno::NOBUFS.into()) };
        if is_no_room(&sent) && used.pending.get() > 0 {
            self.read_notices(socket);
            sent = self.held.send(&socket.fd, bytes);
        }
        if is_no_room(&sent) {
            let sent = rustix::net::send(&socket.fd, bytes, SendFlags::NOSIGNAL)?;
            self.io.zerocopy_refused += 1;
            return Ok(sent);
        }
        match &sent {
            Ok(_) => {
                self.io.zerocopy_calls += 1;
                used.pending.set(used.pending.get() + 1);
                if used.pending.get().is_multiple_of(NOTICES) {
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
        let Some(used) = socket.io.0.get() else { return };
        while used.pending.get() > 0
            && let Ok(Some(done)) = zerocopy::completion(&socket.fd)
        {
            let calls = u64::from(done.calls);
            self.io.zerocopy_completed += calls;
            self.io.zerocopy_copied += if done.copied { calls } else { 0 };
            used.pending.set(used.pending.get().saturating_sub(calls));
        }
    }

    /// Counts what is known of a socket's I/O options only afterwards. `polls`: whether waits poll
    /// devices.
    pub(super) fn look_back(&mut self, socket: &Socket, polls: bool) {
        if socket.io.used() {
            self.read_notices(socket);
            socket.io.streams().fold(&mut self.checks, &mut self.io);
        }
        if polls {
            self.io.polling += 1;
            let by_device = matches!(sockopt::napi_id(&socket.fd), Ok(Some(_)));
            self.io.polled += u64::from(by_device);
        }
    }

    pub(super) fn send_datagrams(
        &mut self,
        socket: &Socket,
        datagrams: &DatagramBatch<'_>,
    ) -> io::Result<usize> {
        let first = datagrams.lengths.first().copied().unwrap_or(0);
        let segment = (datagrams.segments > 1).then_some(first as u16);
        let messages = datagrams.messages();
        let departures = datagrams.departures;
        if departures.is_some() {
            allow_departures(socket)?;
        }
        let at = departures.map(|departures| move |message| departures.at(message));
        let at = at.as_ref().map(|at| at as &dyn Fn(usize) -> Nanos);
        let sent = match datagrams.addressed {
            [] => self.calls.send_at(&socket.fd, datagrams.bytes, messages, segment, at)?,
            addressed => {
                let to = addressed.iter().map(|message| message.to);
                // Of workers that share a socket one may have it in a ring, for which it must block.
                let wait = self.blocking;
                self.calls.send_to(&socket.fd, datagrams.bytes, messages, segment, to, wait)?
            }
        };
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
        let place = self.take_datagram(socket, receives, wait)?;
        let batch = &self.batches.places[place];
        let datagram = batch.datagram();
        let length = datagram.len();
        if hello::is_greeting(datagram) {
            return Err(late_greeting(socket, &datagram[..hello::LENGTH], self.run)?);
        }
        self.io.received_datagrams += 1;
        if let Some((stamp, at)) = batch.stamp() {
            self.note_stamp(stamp, at);
        }
        Ok(&self.batches.places[place].datagram()[..length.min(size)])
    }

    /// The same on a socket of several clients.
    pub(super) fn receive_batched_from_client(
        &mut self,
        socket: &Socket,
        receives: Receives,
        wait: bool,
    ) -> io::Result<FromClient<'_>> {
        let place = self.take_datagram(socket, receives, wait)?;
        let served = self.served_place(socket);
        let batch = &self.batches.places[place];
        // Those of strangers are not counted.
        self.served[served].client(batch.sender())?;
        if hello::is_greeting(batch.datagram()) {
            return Err(welcome_again(socket, batch.datagram(), batch.sender(), self.run));
        }
        if let Some((stamp, at)) = batch.stamp() {
            self.note_stamp(stamp, at);
        }
        let batch = &self.batches.places[place];
        let (client, from) = self.served[served].client(batch.sender())?;
        self.io.received_datagrams += 1;
        Ok(FromClient { datagram: batch.datagram(), client, from, at: Monotonic.now() })
    }

    /// See [`wirecost_program::net::Net::has_received`].
    pub(super) fn has_received(&self, socket: &Socket) -> bool {
        let place = socket.io.0.get().and_then(|used| used.place.get());
        let batch = place.and_then(|place| self.batches.places.get(place));
        batch.is_some_and(|batch| batch.next < batch.messages.len())
    }

    /// Where the state of a socket of several clients is.
    pub(super) fn served_place(&mut self, socket: &Socket) -> usize {
        let used = socket.io.get();
        used.served.get().unwrap_or_else(|| {
            let place = self.served.len();
            self.served.push(Served::new(socket.clients.clone()));
            used.served.set(Some(place));
            place
        })
    }

    /// Takes the next datagram of a batch, and has the kernel fill the batch where it is empty. Returns its place.
    fn take_datagram(
        &mut self,
        socket: &Socket,
        receives: Receives,
        wait: bool,
    ) -> io::Result<usize> {
        let used = socket.io.get();
        let place = match used.place.get() {
            Some(place) => place,
            None => {
                if receives.joined {
                    datagrams::enable_gro(&socket.fd)?;
                }
                let place = self.batches.add(receives);
                used.place.set(Some(place));
                place
            }
        };
        let batch = &mut self.batches.places[place];
        if !batch.take() {
            batch.messages.clear();
            batch.senders.clear();
            batch.stamps.clear();
            batch.next = 0;
            let (buffer, messages) = (&mut batch.buffer[..], &mut batch.messages);
            let each = receives.place as usize;
            if socket.is_stamped() {
                let senders = socket.clients.is_some().then_some(&mut batch.senders);
                let (place, stamps) = ((buffer, each), (&mut batch.stamps, senders));
                self.calls.receive_stamped(&socket.fd, place, wait, messages, stamps)?;
                batch.read_at = ReadAt::now();
            } else if socket.clients.is_some() {
                let place = (buffer, each);
                self.calls.receive_from(&socket.fd, place, wait, messages, &mut batch.senders)?;
            } else {
                self.calls.receive(&socket.fd, buffer, each, wait, messages)?;
            }
            self.io.receive_calls += 1;
            self.io.received_messages += batch.messages.len() as u64;
            if !batch.take() {
                return Err(io::ErrorKind::WouldBlock.into());
            }
        }
        Ok(place)
    }

    /// Lets go of what is kept for a socket that is closed.
    pub(super) fn forget(&mut self, socket: &Socket) {
        if socket.io.used() {
            socket.io.streams().give_up(&mut self.ring);
        }
        if let Some(place) = socket.io.0.get().and_then(|used| used.place.take()) {
            self.batches.places[place] = RecvBatch::default();
            self.batches.free.push(place);
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

/// Lets messages of a socket have departure times.
///
/// # Errors
/// Those of setsockopt(2).
pub(crate) fn allow_departures(socket: &Socket) -> io::Result<()> {
    let used = socket.io.get();
    if !used.departs.get() {
        datagrams::enable_departure_times(&socket.fd)
            .map_err(|error| io::Error::new(error.kind(), format!("txtime: {error}")))?;
        used.departs.set(true);
    }
    Ok(())
}

fn is_no_room(result: &io::Result<usize>) -> bool {
    result.as_ref().is_err_and(|e| e.raw_os_error() == Some(Errno::NOBUFS.raw_os_error()))
}
