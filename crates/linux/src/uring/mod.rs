//! Rings of the kernel (io_uring) for sockets: many operations handed over, and many completions
//! taken, by one system call. See io_uring(7) and
//! <https://elixir.bootlin.com/linux/v6.12/source/include/uapi/linux/io_uring.h>.
//!
//! What makes this safe: the kernel reads and writes memory long after the call that asked for it,
//! so all such memory belongs to the [`Ring`], which hands it to nobody before the completion.
//!
//! - It receives into the ring's own buffers (see `pool`), which are lent out between a completion and
//!   the next call.
//! - It sends from memory that the ring shares and nobody can change ([`Ring::hold`]), or from a copy
//!   that stays in the connection's `Link`. Where one operation sends a message several times, what names
//!   the pieces to the kernel belongs to the ring and the link too (see `repeat`), as do the departure time of a datagram
//!   (`departure`) and its receiver (`addressed`). Without a copy in the kernel it sends from shared memory only:
//!   of such a send the kernel lets go after its completion, and shared memory stays as long as the ring.
//! - A socket that is given to the ring stays open until the kernel owes no completion for it: only
//!   then its link, with the descriptor and the copy, is let go.
//! - When the ring is dropped it cancels all operations and waits. If some still do not complete, the
//!   memory is leaked rather than freed.
//!
//! A ring belongs to the thread that made it (IORING_SETUP_SINGLE_ISSUER), and is not `Send`.

mod addressed;
mod departure;
pub mod files;
mod link;
mod napi;
mod pool;
mod repeat;
mod support;

use std::collections::VecDeque;
use std::io;
use std::mem::ManuallyDrop;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use io_uring::types::{CancelBuilder, Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};
use rustix::io::Errno;
use wirecost_model::clock::Nanos;

pub use addressed::IN_FRONT;
use link::{Link, Pieces, Receiving, Sending};
use pool::Pool;
pub use support::{Unavailable, available};

use crate::zerocopy::within;

/// What a connection may hold that nobody reads, in buffers. Beyond it the ring stops receiving for
/// it, so that the window of the connection closes as it would without a ring.
const HELD: usize = 4;
/// Completions taken out at a time.
const BATCH: usize = 256;
/// Receives after which a connection's descriptor is registered, so that operations need not look it up
/// and count its users. That takes a system call, and another one at the end.
const LASTING: u32 = 32;

/// Time that a [`Poller`] is given to take what a socket was asked for, before it counts as not taken.
const HAND_OVER: Duration = Duration::from_millis(100);

/// Flag of a zero-copy send: report whether the kernel still copied the bytes; and the bit that reports a
/// copy (Linux 6.2,
/// <https://elixir.bootlin.com/linux/v6.12/source/include/uapi/linux/io_uring.h#L380>).
const REPORT_USAGE: u16 = 1 << 3;
const USAGE_COPIED: i32 = i32::MIN;

#[derive(Debug, Clone, Copy)]
pub struct Setup {
    /// Operations that can wait to be submitted; more are submitted early.
    pub entries: u32,
    pub buffers: Buffers,
    /// Connections whose descriptors can be registered.
    pub files: u32,
    /// Without one, operations are handed over by system calls.
    pub poller: Option<Poller>,
}

/// A thread of the kernel that looks for operations and executes them (IORING_SETUP_SQPOLL), so that
/// handing them over takes no system call. It belongs to the process, and its CPU time too.
#[derive(Debug, Clone, Copy)]
pub struct Poller {
    /// The CPU to which it is pinned. Without one it runs on any of the machine's.
    pub cpu: Option<u32>,
    /// After this time without operations it sleeps, in milliseconds. The next operation takes a system call, which wakes it.
    pub idle: u32,
}

/// What a ring receives into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Buffers {
    pub count: u16,
    /// Length of each: no piece of a stream is longer, and of a longer datagram the rest is lost.
    pub bytes: u32,
}

/// Zero-copy sends whose memory the kernel has let go of, and of those the ones it copied after all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ZeroCopy {
    pub completed: u64,
    pub copied: u64,
}

/// A connection of a ring.
#[derive(Debug)]
pub struct Key(u32);

/// A listener of a ring.
#[derive(Debug, Clone, Copy)]
pub struct ListenerKey(u32);

/// What has happened to what a token was given for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// [`Ring::receive`] has something new to say, or [`Ring::poll`] found the socket readable.
    Readable(u64),
    /// [`Ring::send`] has something new to say, or [`Ring::poll`] found an error.
    Writable(u64),
    /// [`Ring::poll`] found that the socket can send, and no error.
    CanSend(u64),
    /// [`Ring::accepted`] has a connection, or a watched descriptor is readable.
    Arrival(u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    Read,
    Write,
}

/// How bytes are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    Copied,
    /// With a copy, and more of the message follows.
    First,
    ZeroCopy,
    /// So many times over.
    Repeated(usize),
    /// With the time at which it is to leave the host.
    At(Nanos),
    To(SocketAddr),
}

impl How {
    fn receiver(self) -> Option<SocketAddr> {
        match self {
            Self::To(to) => Some(to),
            _ => None,
        }
    }
}

/// What a completion is about: upper half of its 64 bits; the lower is the place of link or watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
enum Kind {
    Receive,
    Send,
    PollRead,
    PollWrite,
    Accept,
    Watch,
    Cancel,
}

impl Kind {
    const ALL: [Kind; 7] = [
        Kind::Receive,
        Kind::Send,
        Kind::PollRead,
        Kind::PollWrite,
        Kind::Accept,
        Kind::Watch,
        Kind::Cancel,
    ];

    fn pack(self, place: u32) -> u64 {
        u64::from(self as u32) << 32 | u64::from(place)
    }

    fn unpack(data: u64) -> Option<(Kind, u32)> {
        Some((*Kind::ALL.get((data >> 32) as usize)?, data as u32))
    }
}

/// Connections of one listener that are accepted before anybody takes them. The others stay in the
/// listener's queue, whose length the kernel limits (net.core.somaxconn).
const MAX_ACCEPTED: usize = 128;

/// Something that is not a connection: listeners, and descriptors that only wake.
#[derive(Debug)]
struct Watch {
    fd: OwnedFd,
    token: u64,
    accepted: VecDeque<io::Result<OwnedFd>>,
    /// Accepts again and again.
    all: bool,
    armed: bool,
    /// Its cancellation is under way.
    pausing: bool,
}

#[derive(Clone, Copy)]
struct Completion {
    data: u64,
    result: i32,
    flags: u32,
}

/// A ring and the sockets it works for.
pub struct Ring<S: AsFd> {
    uring: IoUring,
    pool: ManuallyDrop<Pool>,
    pieces: Pieces,
    links: Vec<Option<Link<S>>>,
    free: Vec<u32>,
    watches: Vec<Watch>,
    shared: Vec<Arc<[u8]>>,
    messages: repeat::Messages,
    /// What receives with senders are asked for by.
    form: addressed::Form,
    /// What found no room among the entries.
    backlog: VecDeque<squeue::Entry>,
    /// Completions that the kernel owes.
    outstanding: usize,
    /// Grows whenever all that was asked for has been handed over.
    round: u64,
    /// Tokens of connections whose sockets could not be changed.
    untaken: Vec<u64>,
    /// The buffer whose bytes the caller has.
    lent: Option<u16>,
    /// Links that hold what nobody has read yet.
    holders: Vec<u32>,
    /// Links for which there was no buffer.
    hungry: VecDeque<u32>,
    /// Places of links below this number can be registered.
    files: u32,
    /// A [`Poller`] takes the operations.
    polled: bool,
    zero_copy: ZeroCopy,
    reaped: Vec<Completion>,
    /// Memory that links have spilled to and no longer need.
    spare: Vec<Vec<u8>>,
}

impl<S: AsFd> std::fmt::Debug for Ring<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let open = self.links.len() - self.free.len();
        f.debug_struct("Ring").field("links", &open).finish_non_exhaustive()
    }
}

impl<S: AsFd> Ring<S> {
    /// # Errors
    /// Why this process may not have a ring.
    pub fn new(setup: &Setup) -> Result<Self, Unavailable> {
        let mut builder = IoUring::builder();
        builder
            .setup_single_issuer()
            .setup_submit_all()
            .setup_clamp()
            .setup_cqsize(setup.entries.saturating_mul(4));
        match setup.poller {
            None => {
                builder.setup_defer_taskrun().setup_taskrun_flag();
            }
            Some(Poller { cpu, idle }) => {
                builder.setup_sqpoll(idle);
                cpu.map(|cpu| builder.setup_sqpoll_cpu(cpu));
            }
        }
        let uring = builder.build(setup.entries).map_err(|error| Unavailable::of(&error))?;
        if !uring.params().is_feature_ext_arg() || !uring.params().is_feature_nodrop() {
            return Err(Unavailable::Missing("waiting with a time-out"));
        }
        let pool = Pool::new(&uring, 0, setup.buffers.count, setup.buffers.bytes)
            .map_err(|error| Unavailable::of(&error))?;
        // Without a table of files the ring works as well.
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let most = limit.and_then(|limit| u32::try_from(limit).ok()).unwrap_or(u32::MAX);
        let files = setup.files.min(most);
        let files = uring.submitter().register_files_sparse(files).map_or(0, |()| files);
        Ok(Self {
            uring,
            files,
            polled: setup.poller.is_some(),
            zero_copy: ZeroCopy::default(),
            pieces: Pieces::new(pool.count()),
            pool: ManuallyDrop::new(pool),
            links: Vec::new(),
            free: Vec::new(),
            watches: Vec::new(),
            shared: Vec::new(),
            messages: repeat::Messages::default(),
            form: addressed::Form::default(),
            backlog: VecDeque::new(),
            outstanding: 0,
            round: 1,
            untaken: Vec::new(),
            lent: None,
            holders: Vec::new(),
            hungry: VecDeque::new(),
            reaped: Vec::with_capacity(BATCH),
            spare: Vec::new(),
        })
    }

    /// Lets waits of the ring poll the devices of its sockets for packets, for this number of
    /// microseconds (IORING_REGISTER_NAPI, since Linux 6.9); the options of a socket are ignored. Returns
    /// the number that was set before.
    ///
    /// # Errors
    /// Those of io_uring_register(2): `EINVAL` before 6.9.
    pub fn busy_poll(&self, microseconds: u32) -> io::Result<u32> {
        napi::register(&self.uring, microseconds)
    }

    /// Receives into other buffers from now on. Where something has been received, or the kernel is asked
    /// to receive, they stay those that they are.
    ///
    /// # Errors
    /// Those of mmap and of io_uring_register. The ring stays usable.
    pub fn set_buffers(&mut self, buffers: Buffers) -> io::Result<()> {
        self.give_back();
        let in_use = |link: &Link<S>| link.has_something() || link.receiving != Receiving::Idle;
        if self.links.iter().flatten().any(in_use) {
            return Ok(());
        }
        let group = self.pool.group ^ 1;
        let pool = Pool::new(&self.uring, group, buffers.count, buffers.bytes)?;
        self.pieces = Pieces::new(pool.count());
        let former = std::mem::replace(&mut self.pool, ManuallyDrop::new(pool));
        // Where the kernel does not let go of the former ones, they are not unmapped.
        self.uring.submitter().unregister_buf_ring(former.group)?;
        drop(ManuallyDrop::into_inner(former));
        Ok(())
    }

    /// What it receives into.
    pub fn buffers(&self) -> Buffers {
        Buffers { count: self.pool.count(), bytes: self.pool.size() as u32 }
    }

    /// Bytes that a connection may hold that nobody reads, before the ring stops receiving for it.
    pub fn room(&self) -> usize {
        HELD * self.pool.size()
    }

    /// Lets the ring send from these bytes without copying them.
    pub fn hold(&mut self, bytes: Arc<[u8]>) {
        self.shared.push(bytes);
    }

    /// Takes in a connection. Its socket must block: of one that does not the kernel says at once that
    /// an operation would. What happens to it is told with `token`.
    pub fn insert(&mut self, socket: S, token: u64, datagrams: bool) -> Key {
        let link = Some(Link::new(socket, token, datagrams));
        let place = match self.free.pop() {
            Some(place) => {
                self.links[place as usize] = link;
                place
            }
            None => {
                self.links.push(link);
                // Each of them at most once.
                self.holders.reserve(self.links.len() - self.holders.len());
                self.hungry.reserve(self.links.len().saturating_sub(self.hungry.len()));
                self.links.len() as u32 - 1
            }
        };
        Key(place)
    }

    /// The same of a socket of datagrams to which several others send: see [`Ring::receive_from`] and [`Ring::send_to`].
    /// Its buffers need [`IN_FRONT`] bytes more than the longest datagram has.
    pub fn insert_addressed(&mut self, socket: S, token: u64) -> Key {
        let key = self.insert(socket, token, true);
        self.link_mut(key.0).addressed = true;
        key
    }

    #[allow(clippy::expect_used)]
    fn link(&self, place: u32) -> &Link<S> {
        // A key is made by `insert` and used up by `close`.
        self.links[place as usize].as_ref().expect("a key is of a link")
    }

    #[allow(clippy::expect_used)]
    fn link_mut(&mut self, place: u32) -> &mut Link<S> {
        self.links[place as usize].as_mut().expect("a key is of a link")
    }

    pub fn get(&self, key: &Key) -> &S {
        &self.link(key.0).socket
    }

    /// The socket of a connection, to change. Operations name its descriptor, which may be another one
    /// afterwards, so what was asked for of this connection is handed over before: from then on the kernel
    /// knows the file itself.
    ///
    /// # Errors
    /// Those of io_uring_enter; `WouldBlock` where the kernel does not take all before completions are
    /// taken out ([`Ring::submit`], which then tells that the connection is ready).
    pub fn get_mut(&mut self, key: &Key) -> io::Result<&mut S> {
        if self.link(key.0).asked == self.round {
            self.hand_over()?;
            if self.link(key.0).asked == self.round {
                self.untaken.push(self.link(key.0).token);
                return Err(io::ErrorKind::WouldBlock.into());
            }
        }
        Ok(&mut self.link_mut(key.0).socket)
    }

    /// Whether something has been received, or the kernel is asked to receive.
    pub fn receives(&self, key: &Key) -> bool {
        let link = self.link(key.0);
        link.has_something() || link.receiving != Receiving::Idle
    }

    /// Takes at most `size` bytes of a stream, or a datagram, and lends them until the next call. No
    /// bytes: the other end has closed, or the datagram has none.
    ///
    /// # Errors
    /// `WouldBlock`: nothing is there, and [`Event::Readable`] will tell. Else what the kernel says
    /// of the connection. `Unsupported` on a socket to which several others send ([`Ring::insert_addressed`]).
    pub fn receive(&mut self, key: &Key, size: usize) -> io::Result<(&S, &[u8])> {
        match self.link(key.0).addressed {
            true => Err(io::ErrorKind::Unsupported.into()),
            false => self.take_received(key, size),
        }
    }

    /// What is in the next buffer, or in a part of it.
    fn take_received(&mut self, key: &Key, size: usize) -> io::Result<(&S, &[u8])> {
        self.give_back();
        if size == 0 {
            return Ok((self.get(key), &[]));
        }
        let most = self.pool.size();
        if let Some(mut spent) = self.link_mut(key.0).forget_spent()
            && self.spare.len() < usize::from(self.pool.count())
        {
            spent.clear();
            self.spare.push(spent);
        }
        let link = self.link_mut(key.0);
        link.wanted = !link.holds() && link.spilled.is_empty();
        if link.wanted {
            match link.ended.take() {
                Some(Ok(())) => return Ok((self.get(key), &[])),
                Some(Err(error)) => return Err(error.into()),
                None => {}
            }
            if link.receiving == Receiving::Idle {
                self.ask(key.0, size.min(most))?;
            }
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let link = self.links[key.0 as usize].as_mut().ok_or(io::ErrorKind::NotConnected)?;
        if !link.spilled.is_empty() {
            return Ok(link.take_spilled(size));
        }
        let Some((buffer, from, length)) = link.take(size, &mut self.pieces, &mut self.lent) else {
            return Ok((&link.socket, &[]));
        };
        Ok((&link.socket, self.pool.bytes(buffer, from, length)))
    }

    /// The same on a socket to which several others send: who has sent the datagram, and the datagram. None of a sender without
    /// an address of IP.
    ///
    /// # Errors
    /// The same.
    pub fn receive_from(&mut self, key: &Key) -> io::Result<(&S, Option<SocketAddr>, &[u8])> {
        let (socket, buffer) = self.take_received(key, usize::MAX)?;
        let (sender, datagram) = addressed::datagram(buffer).ok_or(io::ErrorKind::InvalidData)?;
        Ok((socket, sender, datagram))
    }

    /// Asks the kernel to receive: once for the first time, which may be the only one; then again and
    /// again until it is stopped.
    fn ask(&mut self, place: u32, size: usize) -> io::Result<()> {
        let (group, form) = (self.pool.group, self.form.address());
        let link = self.link_mut(place);
        let fd = link.target(place);
        let entry = if link.addressed {
            link.receiving = Receiving::Again;
            opcode::RecvMsgMulti::new(fd, form, group).build()
        } else if link.again {
            link.receiving = Receiving::Again;
            opcode::RecvMulti::new(fd, group).build()
        } else {
            link.again = true;
            link.receiving = Receiving::Once;
            opcode::Recv::new(fd, std::ptr::null_mut(), size as u32)
                .buf_group(group)
                .build()
                .flags(squeue::Flags::BUFFER_SELECT)
        };
        link.outstanding += 1;
        self.push(entry, Kind::Receive, place)
    }

    /// Sends bytes, or says how it went: called again with the same bytes after
    /// [`Event::Writable`] it returns how many of them were sent.
    ///
    /// # Errors
    /// `WouldBlock`: the kernel has been asked. Else what it says of the connection.
    pub fn send(&mut self, key: &Key, bytes: &[u8]) -> io::Result<usize> {
        self.send_from(key, bytes, How::Copied)
    }

    /// As [`Ring::send`] of the beginning of a message, whose rest follows at once: the kernel waits
    /// for it before it fills a segment up (MSG_MORE).
    ///
    /// # Errors
    /// Those of [`Ring::send`].
    pub fn send_first(&mut self, key: &Key, bytes: &[u8]) -> io::Result<usize> {
        self.send_from(key, bytes, How::First)
    }

    /// As [`Ring::send`], but the kernel is asked to send from the memory itself
    /// (IORING_OP_SEND_ZC). What became of that is in [`Ring::zero_copy`] later.
    ///
    /// # Errors
    /// Those of [`Ring::send`]; ENOBUFS for bytes that are not of what the ring holds ([`Ring::hold`]), as
    /// they could change while the kernel sends them; EOPNOTSUPP where the protocol cannot; ENOMEM where
    /// more memory would be locked than RLIMIT_MEMLOCK allows.
    pub fn send_zero_copy(&mut self, key: &Key, bytes: &[u8]) -> io::Result<usize> {
        self.send_from(key, bytes, How::ZeroCopy)
    }

    /// As [`Ring::send`] of a datagram that is to leave the host at this instant, which its socket must allow
    /// ([`crate::datagrams::enable_departure_times`]).
    ///
    /// # Errors
    /// Those of [`Ring::send`].
    pub fn send_at(&mut self, key: &Key, bytes: &[u8], at: Nanos) -> io::Result<usize> {
        self.send_from(key, bytes, How::At(at))
    }

    /// As [`Ring::send`] of a datagram to this address.
    ///
    /// # Errors
    /// Those of [`Ring::send`].
    pub fn send_to(&mut self, key: &Key, bytes: &[u8], to: SocketAddr) -> io::Result<usize> {
        self.send_from(key, bytes, How::To(to))
    }

    /// Times that one [`Ring::send_times`] sends a message at most.
    pub const TIMES: usize = repeat::MOST;

    /// As [`Ring::send`], but the message is sent so many times, one behind the other: returns how many
    /// bytes were sent. Bytes that are not of what the ring holds ([`Ring::hold`]) are sent once.
    ///
    /// # Errors
    /// Those of [`Ring::send`].
    pub fn send_times(&mut self, key: &Key, bytes: &[u8], times: usize) -> io::Result<usize> {
        self.send_from(key, bytes, if times > 1 { How::Repeated(times) } else { How::Copied })
    }

    pub fn zero_copy(&self) -> ZeroCopy {
        self.zero_copy
    }

    fn send_from(&mut self, key: &Key, bytes: &[u8], how: How) -> io::Result<usize> {
        let place = key.0;
        let shared = self.shared.iter().find_map(|shared| within(shared, bytes));
        // Messages differ in length, and the longest must not have to wait for memory.
        let longest = self.pool.size();
        let link = self.link_mut(place);
        match std::mem::replace(&mut link.sending, Sending::Underway) {
            Sending::Underway => return Err(io::ErrorKind::WouldBlock.into()),
            // One that nobody has waited for is not this one.
            Sending::Done(_) if link.is_another_datagram(bytes, how.receiver()) => {}
            Sending::Done(result) => {
                link.sending = Sending::Idle;
                return match usize::try_from(result) {
                    Ok(sent) => Ok(sent),
                    Err(_) => Err(io::Error::from_raw_os_error(-result)),
                };
            }
            Sending::Idle => {}
        }
        let from = match shared {
            Some(from) => from,
            None if how == How::ZeroCopy => {
                link.sending = Sending::Idle;
                return Err(Errno::NOBUFS.into());
            }
            None => {
                link.copy.clear();
                link.copy.reserve(longest.max(bytes.len()));
                link.copy.extend_from_slice(bytes);
                link.copy.as_ptr()
            }
        };
        let header = match (how, shared) {
            (How::Repeated(times), Some(from)) => {
                Some(self.messages.header(from, bytes.len(), times))
            }
            _ => None,
        };
        let link = self.link_mut(place);
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let fd = link.target(place);
        link.outstanding += 1;
        let copied = |flags| opcode::Send::new(fd, from, length).flags(flags).build();
        let entry = match how {
            How::Copied | How::Repeated(_) => match header {
                Some(header) => {
                    let message = link.set_header(header);
                    opcode::SendMsg::new(fd, message).flags(libc::MSG_NOSIGNAL as u32).build()
                }
                None => copied(libc::MSG_NOSIGNAL),
            },
            How::First => copied(libc::MSG_NOSIGNAL | libc::MSG_MORE),
            How::At(at) => {
                let departing = link.departing.get_or_insert_default();
                let message = departing.name(from, bytes.len(), at);
                opcode::SendMsg::new(fd, message).flags(libc::MSG_NOSIGNAL as u32).build()
            }
            How::To(to) => {
                let destination = link.destination.get_or_insert_default();
                let message = destination.name(from, bytes.len(), to);
                opcode::SendMsg::new(fd, message).flags(libc::MSG_NOSIGNAL as u32).build()
            }
            How::ZeroCopy => opcode::SendZc::new(fd, from, length)
                .flags(libc::MSG_NOSIGNAL)
                .zc_flags(REPORT_USAGE)
                .build(),
        };
        self.push(entry, Kind::Send, place)?;
        Err(io::ErrorKind::WouldBlock.into())
    }

    /// Tells once when the socket is readable or writable, for calls that do not go through the ring.
    ///
    /// # Errors
    /// Those of io_uring_enter, where there are more operations than entries.
    pub fn poll(&mut self, key: &Key, direction: Direction) -> io::Result<()> {
        let (kind, flags) = match direction {
            Direction::Read => (Kind::PollRead, libc::POLLIN),
            Direction::Write => (Kind::PollWrite, libc::POLLOUT),
        };
        let link = self.link_mut(key.0);
        if std::mem::replace(&mut link.polled[direction as usize], true) {
            return Ok(());
        }
        link.outstanding += 1;
        let fd = link.target(key.0);
        let entry = opcode::PollAdd::new(fd, flags as u32).build();
        self.push(entry, kind, key.0)
    }

    /// Lets go of a connection, which is closed as soon as the kernel has nothing more to do for it.
    pub fn close(&mut self, key: Key) {
        let place = key.0;
        self.give_back();
        let link = self.link_mut(place);
        link.closing = true;
        let under_way = link.under_way();
        let mut received = std::mem::take(&mut link.received);
        while let Some(piece) = self.pieces.pop(&mut received) {
            piece.into_iter().for_each(|(buffer, ..)| self.pool.provide(buffer));
        }
        for kind in under_way.into_iter().flatten() {
            let _ = self.cancel(kind, place);
        }
        self.let_go(place);
    }

    fn let_go(&mut self, place: u32) {
        let link = self.link(place);
        if link.closing && link.outstanding == 0 {
            if link.registered {
                // The table would keep the connection open.
                let _ = self.uring.submitter().register_files_update(place, &[-1]);
            }
            self.links[place as usize] = None;
            self.free.push(place);
        }
    }

    fn cancel(&mut self, kind: Kind, place: u32) -> io::Result<()> {
        let which = CancelBuilder::user_data(kind.pack(place));
        self.push(opcode::AsyncCancel2::new(which).build(), Kind::Cancel, place)
    }

    /// Accepts at a listener from now on. The listener must block, and what it accepts does too. `all`:
    /// everybody at once, else the next one only when the one before has been taken. All at once take
    /// descriptors before anybody wants them, up to 128 and the queue of the listener.
    ///
    /// # Errors
    /// Those of io_uring_enter, where there are more operations than entries.
    pub fn listen(&mut self, listener: OwnedFd, token: u64, all: bool) -> io::Result<ListenerKey> {
        let accepted = VecDeque::new();
        self.watches.push(Watch {
            fd: listener,
            token,
            accepted,
            all,
            armed: false,
            pausing: false,
        });
        let place = self.watches.len() as u32 - 1;
        self.arm(place, Kind::Accept)?;
        Ok(ListenerKey(place))
    }

    /// The next connection that has arrived.
    ///
    /// # Errors
    /// `WouldBlock` when there is none. Else what accept4 says.
    pub fn accepted(&mut self, listener: ListenerKey) -> io::Result<OwnedFd> {
        let watch = self.watches.get_mut(listener.0 as usize).ok_or(io::ErrorKind::NotFound)?;
        let next = watch.accepted.pop_front();
        if next.is_none() && !watch.armed {
            self.arm(listener.0, Kind::Accept)?;
        }
        next.unwrap_or_else(|| Err(io::ErrorKind::WouldBlock.into()))
    }

    /// Whether [`Ring::accepted`] has more to say or do.
    pub fn has_accepted(&self, listener: ListenerKey) -> bool {
        let watch = self.watches.get(listener.0 as usize);
        watch.is_some_and(|watch| !watch.accepted.is_empty() || !watch.armed)
    }

    /// Tells by [`Event::Arrival`] whenever more can be read of a descriptor.
    ///
    /// # Errors
    /// Those of io_uring_enter, where there are more operations than entries; of dup.
    pub fn watch(&mut self, fd: impl AsFd, token: u64) -> io::Result<()> {
        let fd = fd.as_fd().try_clone_to_owned()?;
        let accepted = VecDeque::new();
        self.watches.push(Watch { fd, token, accepted, all: true, armed: false, pausing: false });
        self.arm(self.watches.len() as u32 - 1, Kind::Watch)
    }

    fn arm(&mut self, place: u32, kind: Kind) -> io::Result<()> {
        let watch = &mut self.watches[place as usize];
        watch.armed = true;
        let fd = Fd(watch.fd.as_raw_fd());
        let entry = match kind {
            Kind::Accept if watch.all => {
                opcode::AcceptMulti::new(fd).flags(libc::SOCK_CLOEXEC).build()
            }
            Kind::Accept => {
                let nowhere = std::ptr::null_mut();
                opcode::Accept::new(fd, nowhere, nowhere.cast()).flags(libc::SOCK_CLOEXEC).build()
            }
            _ => opcode::PollAdd::new(fd, libc::POLLIN as u32).multi(true).build(),
        };
        self.push(entry, kind, place)
    }

    fn push(&mut self, entry: squeue::Entry, kind: Kind, place: u32) -> io::Result<()> {
        self.outstanding += 1;
        let mut entry = entry.user_data(kind.pack(place));
        if matches!(kind, Kind::Receive | Kind::Send | Kind::PollRead | Kind::PollWrite) {
            let round = self.round;
            let link = self.link_mut(place);
            link.asked = round;
            if link.registered {
                entry = entry.flags(squeue::Flags::FIXED_FILE);
            }
        }
        if !self.backlog.is_empty() {
            self.backlog.push_back(entry);
            return Ok(());
        }
        // SAFETY: what the entry points to is memory of the pool or what
        // `send` has made sure of, and its descriptor is of a link or a watch; all stay until the
        // completion, as the module says.
        if unsafe { self.uring.submission().push(&entry) }.is_err() {
            self.backlog.push_back(entry);
            self.enter(0, Duration::ZERO)?;
            self.unload();
        }
        Ok(())
    }

    /// Moves what had no room to where the kernel sees it.
    fn unload(&mut self) {
        let mut submission = self.uring.submission();
        while let Some(entry) = self.backlog.pop_front() {
            // SAFETY: as in `push`.
            if unsafe { submission.push(&entry) }.is_err() {
                self.backlog.push_front(entry);
                return;
            }
        }
    }

    /// Lets the kernel take all that has been asked for, without waiting for completions. Some may be left
    /// where it takes no more before completions are taken out.
    fn hand_over(&mut self) -> io::Result<()> {
        self.unload();
        self.enter(0, Duration::ZERO)?;
        let begin = Instant::now();
        while self.polled && !self.next_round() && begin.elapsed() < HAND_OVER {
            std::thread::yield_now();
            self.unload();
            self.enter(0, Duration::ZERO)?;
        }
        Ok(())
    }

    /// Begins the next round if the kernel has taken all that was asked for.
    fn next_round(&mut self) -> bool {
        let all = self.backlog.is_empty() && self.uring.submission().is_empty();
        self.round += u64::from(all);
        all
    }

    fn enter(&mut self, want: usize, wait: Duration) -> io::Result<()> {
        let entered = self.enter_once(want, wait);
        self.next_round();
        entered
    }

    fn enter_once(&self, want: usize, wait: Duration) -> io::Result<()> {
        let time = Timespec::new().sec(wait.as_secs()).nsec(wait.subsec_nanos());
        let submitter = self.uring.submitter();
        let done = match want {
            0 => submitter.submit(),
            _ => submitter.submit_with_args(want, &SubmitArgs::new().timespec(&time)),
        };
        match done.map_err(|error| (Errno::from_io_error(&error), error)) {
            Ok(_) => Ok(()),
            // Busy: completions have to be taken out first.
            Err((Some(Errno::TIME | Errno::INTR | Errno::BUSY | Errno::AGAIN), _)) => Ok(()),
            Err((_, error)) => Err(error),
        }
    }

    /// Hands over all that has been asked for, waits for something to happen if there is a time to
    /// wait for, and appends what has. One system call, or none where there is nothing to hand over, or a
    /// [`Poller`] takes it, and nothing to wait for.
    ///
    /// # Errors
    /// Those of io_uring_enter.
    pub fn submit(&mut self, wait: Option<Duration>, events: &mut Vec<Event>) -> io::Result<()> {
        self.give_back();
        self.tend()?;
        self.unload();
        let submission = self.uring.submission();
        let idle = submission.is_empty() && !submission.taskrun() && !submission.cq_overflow();
        drop(submission);
        let more = !self.uring.completion().is_empty()
            || !self.backlog.is_empty()
            || !self.untaken.is_empty();
        match wait {
            Some(length) if !more => self.enter(1, length)?,
            _ if idle => {}
            _ => self.enter(0, Duration::ZERO)?,
        }
        self.reap(events);
        for token in self.untaken.drain(..) {
            events.extend([Event::Readable(token), Event::Writable(token)]);
        }
        Ok(())
    }

    fn give_back(&mut self) {
        if let Some(buffer) = self.lent.take() {
            self.pool.provide(buffer);
        }
    }

    /// Keeps buffers moving: who holds too much is stopped, and who found none asks again.
    fn tend(&mut self) -> io::Result<()> {
        let mut holders = std::mem::take(&mut self.holders);
        holders.retain(|&place| self.links[place as usize].as_ref().is_some_and(Link::holds));
        // All that comes for a worker comes to such a socket.
        let of_many = usize::from(self.pool.count()) / 2;
        for &place in &holders {
            let link = self.link_mut(place);
            let held = if link.addressed { of_many.max(HELD) } else { HELD };
            if link.received.len() > held && link.receiving == Receiving::Again {
                link.receiving = Receiving::Stopping;
                self.cancel(Kind::Receive, place)?;
            }
        }
        if self.pool.available == 0 {
            // Nobody would ever receive again if those who have all the buffers waited for others.
            for place in holders.drain(..) {
                self.spill(place)?;
            }
        }
        self.holders = holders;
        for _ in 0..self.hungry.len().min(usize::from(self.pool.available)) {
            let Some(place) = self.hungry.pop_front() else { break };
            let size = self.pool.size();
            let Some(link) = self.links[place as usize].as_mut() else { continue };
            // Another link may have the place by now.
            if std::mem::take(&mut link.hungry) && link.receiving == Receiving::Idle {
                self.ask(place, size)?;
            }
        }
        Ok(())
    }

    /// Copies what a link holds to memory of its own, and stops receiving for it.
    fn spill(&mut self, place: u32) -> io::Result<()> {
        let Some(link) = self.links[place as usize].as_mut() else { return Ok(()) };
        while let Some(piece) = self.pieces.pop(&mut link.received) {
            let mut bytes = self.spare.pop().unwrap_or_default();
            if let Some((buffer, from, length)) = piece {
                bytes.extend_from_slice(self.pool.bytes(buffer, from, length));
                self.pool.provide(buffer);
            }
            link.spilled.push_back(bytes);
        }
        if link.receiving == Receiving::Again {
            link.receiving = Receiving::Stopping;
            self.cancel(Kind::Receive, place)?;
        }
        Ok(())
    }

    fn reap(&mut self, events: &mut Vec<Event>) {
        loop {
            let mut reaped = std::mem::take(&mut self.reaped);
            reaped.extend(self.uring.completion().take(BATCH).map(|entry| Completion {
                data: entry.user_data(),
                result: entry.result(),
                flags: entry.flags(),
            }));
            let last = reaped.len() < BATCH;
            for completion in reaped.drain(..) {
                self.complete(completion, events);
            }
            self.reaped = reaped;
            if last {
                return;
            }
        }
    }

    fn complete(&mut self, completion: Completion, events: &mut Vec<Event>) {
        let over = !cqueue::more(completion.flags);
        self.outstanding -= usize::from(over);
        let Some((kind, place)) = Kind::unpack(completion.data) else { return };
        match kind {
            Kind::Cancel => return,
            Kind::Accept | Kind::Watch => return self.arrived(kind, place, completion, events),
            _ => {}
        }
        let link = self.link_mut(place);
        link.outstanding -= u32::from(over);
        let token = link.token;
        match kind {
            Kind::Receive => self.received(place, completion, events),
            Kind::Send => {
                // Of a zero-copy send there are two: its result, and later that the kernel has let go of the
                // memory. Between them the next send may begin, so the second says nothing of `sending`.
                if cqueue::notif(completion.flags) {
                    self.zero_copy.completed += 1;
                    self.zero_copy.copied += u64::from(completion.result & USAGE_COPIED != 0);
                } else {
                    link.sending = Sending::Done(completion.result);
                    events.push(Event::Writable(token));
                }
            }
            Kind::PollRead => {
                link.polled[Direction::Read as usize] = false;
                events.push(Event::Readable(token));
            }
            _ => {
                link.polled[Direction::Write as usize] = false;
                let broken = i32::from(libc::POLLERR | libc::POLLHUP);
                let can_send = completion.result >= 0 && completion.result & broken == 0;
                events.push(if can_send { Event::CanSend(token) } else { Event::Writable(token) });
            }
        }
        self.let_go(place);
    }

    fn received(&mut self, place: u32, completion: Completion, events: &mut Vec<Event>) {
        let Completion { result, flags, .. } = completion;
        let Some(link) = self.links[place as usize].as_mut() else { return };
        if !cqueue::more(flags) {
            link.receiving = Receiving::Idle;
        }
        let mut buffer = cqueue::buffer_select(flags);
        if let Some(taken) = buffer {
            self.pool.taken(taken);
            if link.closing || result <= 0 {
                self.pool.provide(taken);
                buffer = None;
            }
        }
        if link.closing {
            return;
        }
        link.receives = link.receives.saturating_add(1);
        if link.receives == LASTING && place < self.files {
            let fd = link.socket.as_fd().as_raw_fd();
            let registered = self.uring.submitter().register_files_update(place, &[fd]);
            link.registered = registered.is_ok();
        }
        match usize::try_from(result) {
            Ok(length) if length > 0 || link.datagrams => {
                if !link.holds() {
                    self.holders.push(place);
                }
                link.wanted = false;
                match buffer {
                    Some(buffer) => self.pieces.push(&mut link.received, buffer, length),
                    None => link.received.push_empty(),
                }
            }
            Ok(_) => link.ended = Some(Ok(())),
            Err(_) => match Errno::from_raw_os_error(-result) {
                // No buffer, or stopped: asked again where somebody waits for it.
                Errno::NOBUFS | Errno::CANCELED => {
                    if link.wanted && !std::mem::replace(&mut link.hungry, true) {
                        self.hungry.push_back(place);
                    }
                    return;
                }
                // Whoever waits tries again.
                Errno::INTR | Errno::AGAIN => {}
                error => link.ended = Some(Err(error)),
            },
        }
        events.push(Event::Readable(link.token));
    }

    fn arrived(&mut self, kind: Kind, place: u32, by: Completion, events: &mut Vec<Event>) {
        let watch = &mut self.watches[place as usize];
        watch.armed = cqueue::more(by.flags);
        if kind == Kind::Accept {
            match by.result {
                // SAFETY: the kernel has just opened it for us, and told nobody else.
                fd if fd >= 0 => watch.accepted.push_back(Ok(unsafe { OwnedFd::from_raw_fd(fd) })),
                // It goes on when what has been accepted is taken.
                error if watch.pausing && -error == libc::ECANCELED => {}
                error => watch.accepted.push_back(Err(io::Error::from_raw_os_error(-error))),
            }
            let full = watch.armed && watch.all && watch.accepted.len() >= MAX_ACCEPTED;
            let pause = full && !watch.pausing;
            watch.pausing = watch.armed && (watch.pausing || pause);
            if pause {
                // There is room: completions are being taken out.
                let _ = self.cancel(kind, place);
            }
        } else if !watch.armed && by.result >= 0 {
            // It must not fall silent. There is room: completions are being taken out.
            let _ = self.arm(place, kind);
        }
        events.push(Event::Arrival(self.watches[place as usize].token));
    }
}

impl<S: AsFd> Ring<S> {
    /// Cancels all and waits for the last completion.
    fn end(&mut self) {
        for link in self.links.iter_mut().flatten() {
            link.closing = true;
        }
        let second = Duration::from_secs(1);
        let mut events = Vec::new();
        for _ in 0..10 {
            // What has not been handed over cannot be cancelled.
            if self.outstanding == 0 || self.hand_over().is_err() {
                return;
            }
            let most = Some(Timespec::from(second));
            let _ = self.uring.submitter().register_sync_cancel(most, CancelBuilder::any());
            if self.enter(1, second).is_err() {
                return;
            }
            self.reap(&mut events);
        }
    }
}

impl<S: AsFd> Drop for Ring<S> {
    fn drop(&mut self) {
        self.end();
        if self.outstanding == 0 {
            // SAFETY: it is not used again, and the kernel has no operation that could write to it.
            unsafe { ManuallyDrop::drop(&mut self.pool) };
        } else {
            // The kernel may still use it.
            std::mem::forget(std::mem::take(&mut self.links));
            std::mem::forget(std::mem::take(&mut self.shared));
            std::mem::forget(std::mem::take(&mut self.messages));
            std::mem::forget(std::mem::take(&mut self.form));
        }
    }
}

#[cfg(test)]
mod tests;
