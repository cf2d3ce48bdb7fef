//! The connection broker: one thread of an agent that accepts the connections of strands that have no
//! address of their own, and answers whether this host has agreed to receive.
//!
//! Connections of strangers, who do not know the run, are rejected.

use std::collections::{BTreeMap, HashSet};
use std::io::{self, IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use wirecost_linux::clock::Monotonic;
use wirecost_linux::sockopt::incoming_cpu;
use wirecost_model::clock::{Clock, Nanos, SECOND};
use wirecost_model::plan::Address;
use wirecost_program::hello::{self, Hello, Said};
use wirecost_program::socket_setup::SocketSetup;

use crate::clients::Clients;
use crate::consent::{ConsentResponder, Cookies, Question};
use crate::permissions::Partners;
use crate::sockets::{Arrival, Mailbox};
use crate::transports::{Transport, udp};

/// Bytes of the longest answer: it names an address for each strand.
const LONGEST_ANSWER: usize = 16 << 20;

/// How long a new connection may take to say whose it is.
const TIMEOUT: Nanos = 10 * SECOND;

/// Pending connections, in runs that have no more of their own: fewer than the descriptors that a worker
/// leaves free.
const PENDING: usize = 1024;

/// A listener whose connections are of several strands, or ask for consent.
#[derive(Debug)]
pub(crate) struct SharedListener {
    pub(crate) listener: OwnedFd,
    pub(crate) kind: ListenerKind,
}

#[derive(Debug, Clone)]
pub(crate) enum ListenerKind {
    /// Data connections of this protocol; datagram sockets are made with these options.
    Data { transport: &'static dyn Transport, setup: Arc<SocketSetup> },
    /// Hellos of UDP clients that send to sockets which several of them share, at the address `data`.
    Clients {
        clients: Arc<Clients>,
        data: Address,
        /// One of these sockets.
        shared: Arc<OwnedFd>,
        setup: Arc<SocketSetup>,
    },
    /// Questions whether this host has agreed to receive; answered by this.
    Consent { agreement: Option<Arc<ConsentResponder>> },
}

/// Where connections go once it is known whose they are.
#[derive(Debug)]
pub(crate) enum Route {
    /// To threads that share this one's descriptors.
    Mailbox(Arc<Mailbox>),
    /// To workers that have descriptors of their own; by the number that `worker` gives.
    Inboxes { inboxes: Vec<OwnedFd>, worker: WorkerOf },
}

/// Which worker runs a strand.
#[derive(Debug, Clone)]
pub(crate) struct WorkerOf {
    /// By number of the group: the strands of all groups before it.
    pub(crate) before: Arc<[u32]>,
    pub(crate) workers: u32,
    /// Each further round of strands begins one worker later: so of n * n strands between n workers
    /// and n that turn, each worker of the one side has one with each of the other.
    pub(crate) turns: bool,
}

impl WorkerOf {
    pub(crate) fn strand(&self, group: u32, strand: u32) -> u32 {
        let (place, workers) = (self.before(group).wrapping_add(strand), self.workers.max(1));
        let turn = if self.turns { place / workers } else { 0 };
        (place % workers + turn % workers) % workers
    }

    /// The strands of a worker among so many of a group, ascending.
    pub(crate) fn strands(&self, group: u32, count: u32, worker: u32) -> impl Iterator<Item = u32> {
        let (before, workers) = (self.before(group), self.workers.max(1));
        let turns = self.turns;
        // One place in each round, of which the first and the last may be of other groups.
        let places =
            (before / workers..=before.saturating_add(count) / workers).map(move |round| {
                let turn = if turns { round % workers } else { 0 };
                round * workers + (worker + workers - turn) % workers
            });
        let strands = places.filter_map(move |place| place.checked_sub(before));
        strands.filter(move |strand| *strand < count && worker < workers)
    }

    fn before(&self, group: u32) -> u32 {
        self.before.get(group as usize).copied().unwrap_or(0)
    }
}

/// The running thread. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Broker {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
    rejected_connections: Arc<AtomicU64>,
}

impl Broker {
    /// `connections`: how many this host has in the run.
    ///
    /// # Errors
    /// Those of epoll and of starting a thread.
    pub(crate) fn start(
        run: u32,
        partners: Partners,
        listeners: Vec<SharedListener>,
        route: Route,
        connections: u64,
    ) -> io::Result<Self> {
        // All of the run's own could be pending at once.
        let most = usize::try_from(connections).unwrap_or(usize::MAX).max(PENDING);
        Self::with_pending(run, partners, listeners, route, most)
    }

    fn with_pending(
        run: u32,
        partners: Partners,
        listeners: Vec<SharedListener>,
        route: Route,
        most: usize,
    ) -> io::Result<Self> {
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&poll, &*stop, epoll::EventData::new_u64(STOP), epoll::EventFlags::IN)?;
        for (number, shared) in listeners.iter().enumerate() {
            let data = epoll::EventData::new_u64(number as u64);
            epoll::add(&poll, &shared.listener, data, epoll::EventFlags::IN)?;
        }
        let rejected_connections = Arc::new(AtomicU64::new(0));
        let mut service = Service {
            run,
            partners,
            poll,
            listeners,
            route,
            pending: BTreeMap::new(),
            most,
            next: FIRST_PENDING,
            rejected_connections: rejected_connections.clone(),
            cookies: Cookies::new()?,
        };
        let thread = std::thread::Builder::new()
            .name("wirecost-broker".to_owned())
            .spawn(move || service.serve())?;
        Ok(Self { stop, thread: Some(thread), rejected_connections })
    }

    /// Connections turned away so far.
    pub(crate) fn rejected_connections(&self) -> u64 {
        self.rejected_connections.load(Ordering::Relaxed)
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = rustix::io::write(&*self.stop, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

const STOP: u64 = u64::MAX;
const FIRST_PENDING: u64 = 1 << 32;

/// A pending connection: it has not said yet whose it is.
#[derive(Debug)]
struct Pending {
    socket: OwnedFd,
    kind: ListenerKind,
    said: [u8; hello::LENGTH],
    length: usize,
    until: Nanos,
    /// It has asked for the CPU of its packets, and may end without a hello.
    probed: bool,
    /// Who sends, of a datagram socket that has been made to find the CPU of the packets.
    from: Option<SocketAddr>,
}

struct Service {
    run: u32,
    partners: Partners,
    poll: OwnedFd,
    listeners: Vec<SharedListener>,
    route: Route,
    /// The oldest first: numbers grow.
    pending: BTreeMap<u64, Pending>,
    /// How many there may be.
    most: usize,
    next: u64,
    rejected_connections: Arc<AtomicU64>,
    /// A run's controller does not know what makes them.
    cookies: Cookies,
}

impl Service {
    fn serve(&mut self) {
        let mut events = Vec::with_capacity(256);
        loop {
            let timeout = rustix::time::Timespec { tv_sec: 1, tv_nsec: 0 };
            let spare = rustix::buffer::spare_capacity(&mut events);
            match epoll::wait(&self.poll, spare, Some(&timeout)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return,
            }
            for event in events.drain(..) {
                match event.data.u64() {
                    STOP => return,
                    number if number < FIRST_PENDING => self.accept_all(number as usize),
                    connection => self.read_hello(connection),
                }
            }
            let now = Monotonic.now();
            while self.pending.first_key_value().is_some_and(|(_, oldest)| oldest.until <= now) {
                self.drop_oldest();
            }
        }
    }

    /// Rejects the connection that has been pending longest. Returns whether there was one.
    fn drop_oldest(&mut self) -> bool {
        let oldest = self.pending.pop_first();
        let rejected = oldest.as_ref().is_some_and(|(_, pending)| !pending.probed);
        // Counted before it is closed, so who sees the end of the connection finds it counted.
        self.rejected_connections.fetch_add(u64::from(rejected), Ordering::Relaxed);
        oldest.is_some()
    }

    fn accepts(&self, from: Option<&rustix::net::SocketAddrAny>) -> bool {
        self.partners.accepts(from.and_then(|from| SocketAddr::try_from(from.clone()).ok()))
    }

    fn reject(&self) {
        self.rejected_connections.fetch_add(1, Ordering::Relaxed);
    }

    /// Accepts all connections that wait at a listener.
    fn accept_all(&mut self, number: usize) {
        let mut greeted = HashSet::new();
        loop {
            let Some(shared) = self.listeners.get(number) else {
                return;
            };
            let kind = shared.kind.clone();
            if let ListenerKind::Data { transport, setup } = &kind
                && !transport.protocol().delivery().is_reliable()
            {
                if !self.greet_datagram(number, *transport, setup, &mut greeted) {
                    return;
                }
                continue;
            }
            if matches!(kind, ListenerKind::Clients { .. }) {
                if !self.greet_client(number, &kind) {
                    return;
                }
                continue;
            }
            let polls = matches!(&kind, ListenerKind::Data { transport, .. } if transport.polls_before_accept());
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            match rustix::net::acceptfrom_with(&shared.listener, flags) {
                Ok((_, from)) if !self.accepts(from.as_ref()) => self.reject(),
                Ok((socket, _)) => {
                    if let Some(id) = self.add_pending(socket, kind, None) {
                        // Mostly the hello is there already.
                        self.read_hello(id);
                    }
                    if polls {
                        // The next call of epoll tells whether there is another.
                        return;
                    }
                }
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                // The oldest that says nothing has a descriptor to give.
                Err(Errno::MFILE | Errno::NFILE) => {
                    if !self.drop_oldest() {
                        std::thread::sleep(Duration::from_millis(10));
                        return;
                    }
                }
                Err(_) => return,
            }
        }
    }

    /// Takes in a connection that has not said whose it is. Returns its number.
    fn add_pending(
        &mut self,
        socket: OwnedFd,
        kind: ListenerKind,
        from: Option<SocketAddr>,
    ) -> Option<u64> {
        let id = self.next;
        self.next += 1;
        let data = epoll::EventData::new_u64(id);
        epoll::add(&self.poll, &socket, data, epoll::EventFlags::IN).ok()?;
        if self.pending.len() >= self.most {
            self.drop_oldest();
        }
        let (said, until) = ([0; hello::LENGTH], Monotonic.now() + TIMEOUT);
        let probed = from.is_some();
        self.pending.insert(id, Pending { socket, kind, said, length: 0, until, probed, from });
        Some(id)
    }

    /// Reads more of what a pending connection says.
    fn read_hello(&mut self, id: u64) {
        let Some(connection) = self.pending.get_mut(&id) else {
            return;
        };
        if let Some(from) = connection.from {
            self.read_datagram(id, from);
            return;
        }
        let place = &mut connection.said[connection.length..];
        match rustix::net::recv(&connection.socket, &mut *place, RecvFlags::DONTWAIT) {
            Ok((got, _)) if got > 0 => connection.length += got,
            Err(Errno::AGAIN | Errno::INTR) => return,
            _ => {
                let probed = connection.probed;
                self.pending.remove(&id);
                if !probed {
                    self.reject();
                }
                return;
            }
        }
        if connection.length < hello::LENGTH {
            return;
        }
        if let (ListenerKind::Data { .. }, Partners::OfRun, Ok((Said::Probe, probe))) =
            (&connection.kind, self.partners, Hello::read_either(&connection.said, self.run))
        {
            // What it says next tells whose it is, or is a probe again.
            (connection.length, connection.probed) = (0, true);
            answer_probe(&connection.socket, probe);
            return;
        }
        let Some(connection) = self.pending.remove(&id) else {
            return;
        };
        let Ok(hello) = Hello::read(&connection.said, self.run) else {
            self.reject();
            return;
        };
        let _ = epoll::delete(&self.poll, &connection.socket);
        match connection.kind {
            ListenerKind::Data { .. } => self.deliver(Arrival { hello, socket: connection.socket }),
            ListenerKind::Clients { .. } => {}
            ListenerKind::Consent { agreement: None } => {}
            ListenerKind::Consent { agreement: Some(agreement) } => {
                let answer = agreement.answer(&hello);
                let socket = socket2::Socket::from(connection.socket);
                let _ = socket.set_nonblocking(false);
                let _ = socket.set_write_timeout(Some(Duration::from_secs(5)));
                let _ = (&socket).write_all(&answer);
            }
        }
    }

    /// Takes a datagram of a socket that has been made to find the CPU of its client's packets.
    fn read_datagram(&mut self, id: u64, from: SocketAddr) {
        let Some(pending) = self.pending.get(&id) else { return };
        let mut said = [0u8; hello::LENGTH + 1];
        // An error is that of an earlier answer: its client has closed the socket.
        let Ok((got, _)) = rustix::net::recv(&pending.socket, &mut said, RecvFlags::DONTWAIT)
        else {
            return;
        };
        match (Hello::read_either(&said[..got], self.run), &pending.kind) {
            (Err(_), _) => self.reject(),
            // It is kept: once its client is answered, what it sends next comes here.
            (Ok((Said::Probe, probe)), _) => answer_probe(&pending.socket, probe),
            (Ok((Said::Done, _)), _) => drop(self.pending.remove(&id)),
            (Ok((Said::Hello, hello)), ListenerKind::Clients { clients, shared, .. }) => {
                let (added, shared) = (clients.add(from, hello.strand), shared.clone());
                // From here on the shared sockets receive: closed before the client is answered, as it sends then.
                self.pending.remove(&id);
                if added {
                    let welcome = hello.welcome();
                    let _ = rustix::net::sendto(&*shared, &welcome, SendFlags::DONTWAIT, &from);
                } else {
                    self.reject();
                }
            }
            (Ok((Said::Hello, hello)), _) => {
                if let Some(pending) = self.pending.remove(&id) {
                    // A worker with descriptors of its own has another one of the same socket.
                    let _ = epoll::delete(&self.poll, &pending.socket);
                    self.deliver(Arrival { hello, socket: pending.socket });
                }
            }
        }
    }

    /// Has a connected socket receive the next probe of a client, which says more of its packets than a socket that
    /// is not connected: the kernel notes the CPU only there.
    fn await_probe(&mut self, socket: OwnedFd, kind: ListenerKind, from: SocketAddr) -> bool {
        // Of two the kernel would give all to one, and the other would be left over.
        self.pending.retain(|_, pending| pending.from != Some(from));
        self.add_pending(socket, kind, Some(from)).is_some()
    }

    /// The next hello or probe at a datagram listener, and who sent it: `Err` where there is none, `Ok(None)` where it is
    /// none of this run's.
    fn hello_datagram(&self, number: usize) -> io::Result<Option<(Said, Hello, SocketAddr)>> {
        let listener = &self.listeners[number].listener;
        let mut said = [0u8; hello::LENGTH + 1];
        let (got, _, from) = match rustix::net::recvfrom(listener, &mut said, RecvFlags::DONTWAIT) {
            Err(Errno::INTR) => return Ok(None),
            received => received?,
        };
        let from = from.and_then(|from| SocketAddr::try_from(from).ok());
        let said = self.read(&said[..got], from);
        if said.is_none() {
            self.reject();
        }
        Ok(said)
    }

    /// What a datagram says, if it is of this run.
    fn read(&self, bytes: &[u8], from: Option<SocketAddr>) -> Option<(Said, Hello, SocketAddr)> {
        let from = from.filter(|from| self.partners.accepts(Some(*from)))?;
        let (said, hello) = Hello::read_either(bytes, self.run).ok()?;
        // Who may be anyone learns nothing of this host but its traffic.
        let answers = said == Said::Hello || self.partners == Partners::OfRun;
        answers.then_some((said, hello, from))
    }

    /// Challenges who has sent a hello without its cookie. Returns whether it had it.
    fn challenge(&self, listener: &OwnedFd, hello: Hello, from: SocketAddr) -> bool {
        let cookie = self.cookies.of(from);
        if hello.cookie != cookie {
            let challenge = Hello { cookie, ..hello }.challenge();
            let _ = rustix::net::sendto(listener, &challenge, SendFlags::DONTWAIT, &from);
        }
        hello.cookie == cookie
    }

    /// Takes in one client of sockets that are shared. Returns whether there may be more.
    fn greet_client(&mut self, number: usize, kind: &ListenerKind) -> bool {
        let ListenerKind::Clients { clients, data, setup, .. } = kind else {
            return false;
        };
        let (said, hello, from) = match self.hello_datagram(number) {
            Ok(Some(said)) => said,
            Ok(None) => return true,
            Err(_) => return false,
        };
        let listener = &self.listeners[number].listener;
        if !self.challenge(listener, hello, from) {
            return true;
        }
        match said {
            Said::Hello if clients.add(from, hello.strand) => {
                let _ = rustix::net::sendto(listener, &hello.welcome(), SendFlags::DONTWAIT, &from);
            }
            Said::Hello => self.reject(),
            Said::Probe => {
                // Packets to another port may be handled on another CPU: the probe goes where data goes.
                let Ok(socket) = udp::connected_beside(data, setup, from) else { return true };
                if self.await_probe(socket, kind.clone(), from) {
                    let listener = &self.listeners[number].listener;
                    let again = hello.again();
                    let _ = rustix::net::sendto(listener, &again, SendFlags::DONTWAIT, &from);
                }
            }
            Said::Done => {}
        }
        true
    }

    /// Takes one hello datagram. Returns whether there may be more. One who is among `greeted` has
    /// only repeated a hello that had waited long.
    fn greet_datagram(
        &mut self,
        number: usize,
        transport: &'static dyn Transport,
        setup: &Arc<SocketSetup>,
        greeted: &mut HashSet<SocketAddr>,
    ) -> bool {
        let first = match self.hello_datagram(number) {
            Ok(Some(said)) => said,
            Ok(None) => return true,
            Err(_) => return false,
        };
        let listener = &self.listeners[number].listener;
        let mut bytes = [0u8; hello::LENGTH + 1];
        let here = socket2::SockRef::from(listener).local_addr().ok().and_then(|a| a.as_socket());
        let Some(here) = here.map(Address::Inet) else { return true };
        let mut waiting = vec![first];
        while let Some((said, hello, from)) = waiting.pop() {
            let listener = &self.listeners[number].listener;
            if said == Said::Done || !self.challenge(listener, hello, from) || !greeted.insert(from)
            {
                continue;
            }
            let Ok(socket) = connected(transport, &here, setup, from) else { continue };
            // Between bind and connect the kernel gives the new socket what others send to the shared one.
            // Its own client says nothing more before it is answered, but for a repeated hello.
            while let Ok((got, _, other)) =
                rustix::net::recvfrom(&socket, &mut bytes, RecvFlags::DONTWAIT)
            {
                let other = other.and_then(|other| SocketAddr::try_from(other).ok());
                match self.read(&bytes[..got], other) {
                    Some((.., other)) if other == from => {}
                    Some(said) => waiting.push(said),
                    None => self.reject(),
                }
            }
            match said {
                Said::Hello => self.deliver(Arrival { hello, socket }),
                Said::Probe => {
                    let again = rustix::net::send(&socket, &hello.again(), SendFlags::DONTWAIT);
                    let kind = ListenerKind::Data { transport, setup: setup.clone() };
                    if again.is_ok() {
                        self.await_probe(socket, kind, from);
                    }
                }
                Said::Done => {}
            }
        }
        true
    }

    fn deliver(&self, arrival: Arrival) {
        if self.route.deliver(arrival).is_err() {
            self.reject();
        }
    }
}

/// A datagram socket of this host at an address, which receives from one client only.
fn connected(
    transport: &'static dyn Transport,
    here: &Address,
    setup: &SocketSetup,
    from: SocketAddr,
) -> io::Result<OwnedFd> {
    let (socket, _) = transport.listen(here, setup)?;
    socket2::SockRef::from(&socket).connect(&from.into())?;
    Ok(socket)
}

/// Tells who has sent a probe on which CPU it arrived. Where that is not known it is sent again.
fn answer_probe(socket: &OwnedFd, probe: Hello) {
    if let Ok(Some(cpu)) = incoming_cpu(socket) {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let _ = rustix::net::send(socket, &probe.arrived(cpu), flags);
    }
}

impl Route {
    /// Passes a connection on to its strand's worker.
    ///
    /// # Errors
    /// Those of sendmsg, when the worker's inbox is full or gone.
    pub(crate) fn deliver(&self, arrival: Arrival) -> io::Result<()> {
        match self {
            Route::Mailbox(mailbox) => mailbox.put(arrival),
            Route::Inboxes { inboxes, worker } => {
                let number = worker.strand(arrival.hello.group, arrival.hello.strand);
                let inbox = inboxes.get(number as usize).ok_or(Errno::INVAL)?;
                send_arrival(inbox, &arrival)?;
            }
        }
        Ok(())
    }
}

/// The two ends of a worker's inbox: for the broker, and for the worker.
///
/// # Errors
/// Those of socketpair.
pub(crate) fn inbox() -> io::Result<(OwnedFd, OwnedFd)> {
    let (broker, worker) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?;
    socket2::SockRef::from(&broker).set_write_timeout(Some(Duration::from_secs(5)))?;
    socket2::SockRef::from(&worker).set_nonblocking(true)?;
    Ok((broker, worker))
}

fn send_arrival(inbox: &OwnedFd, arrival: &Arrival) -> rustix::io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = [arrival.socket.as_fd()];
    control.push(SendAncillaryMessage::ScmRights(&fds));
    let bytes = arrival.hello.bytes();
    let flags = SendFlags::NOSIGNAL;
    rustix::net::sendmsg(inbox, &[IoSlice::new(&bytes)], &mut control, flags).map(drop)
}

/// Takes the next connection out of a worker's inbox.
///
/// # Errors
/// `WouldBlock` when it is empty.
pub(crate) fn receive_arrival(inbox: &OwnedFd, run: u32) -> io::Result<Arrival> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut said = [0u8; hello::LENGTH];
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let mut parts = [IoSliceMut::new(&mut said)];
    let got = rustix::net::recvmsg(inbox, &mut parts, &mut control, flags)?;
    let socket = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    let hello = Hello::read(&said[..got.bytes.min(said.len())], run)?;
    // The connection is lost when this worker's table is full (MSG_CTRUNC).
    let socket = socket.ok_or_else(|| io::Error::from(Errno::MFILE))?;
    Ok(Arrival { hello, socket })
}

fn no_way(error: io::Error) -> io::Error {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NODEV) => io::Error::new(
            error.kind(),
            "no vsock leads there: hosts on one machine need the kernel module vsock_loopback",
        ),
        _ => error,
    }
}

/// Has TCP send a few bytes that are lost again after the same time six times, before that time doubles: on a link that loses
/// packets in bursts and carries nothing else, only these packets end a burst. Connections that are accepted inherit it.
/// Where the kernel does not know it, all is as usual.
pub(crate) fn persist(socket: impl AsFd) {
    let _ = rustix::net::sockopt::set_tcp_thin_linear_timeouts(socket, true);
}

/// Asks at `address` whether that host has agreed to receive in this run, and returns its answer.
///
/// # Errors
/// When nobody answers, or the answer is not there by `deadline`.
pub(crate) fn ask_consent(
    address: &Address,
    question: &Question,
    deadline: Instant,
) -> io::Result<Vec<u8>> {
    use std::io::Read;
    let left = || match deadline.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(io::Error::from(io::ErrorKind::TimedOut)),
        left => Ok(left),
    };
    let stream = |domain| socket2::Socket::new(domain, socket2::Type::STREAM, None);
    let socket = match address {
        Address::Inet(address) => {
            let socket = stream(socket2::Domain::for_address(*address))?;
            persist(&socket);
            socket.connect_timeout(&(*address).into(), left()?)?;
            socket
        }
        Address::Unix(path) => {
            let socket = stream(socket2::Domain::UNIX)?;
            // Where its queue is full connect(2) waits for as long as a write may.
            socket.set_write_timeout(Some(left()?))?;
            socket.connect(&socket2::SockAddr::unix(path)?)?;
            socket
        }
        Address::Vsock { cid, port } => {
            let socket = stream(socket2::Domain::VSOCK)?;
            socket.connect(&socket2::SockAddr::vsock(*cid, *port)).map_err(no_way)?;
            socket
        }
    };
    socket.set_write_timeout(Some(left()?))?;
    (&socket).write_all(&question.hello().bytes())?;
    let mut answer = Vec::new();
    let mut piece = vec![0; 64 << 10];
    loop {
        // However little comes at a time.
        socket.set_read_timeout(Some(left()?))?;
        match (&socket).read(&mut piece) {
            Ok(0) => return Ok(answer),
            Ok(got) => answer.extend_from_slice(&piece[..got]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // SO_RCVTIMEO has passed.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(io::ErrorKind::TimedOut.into());
            }
            Err(error) => return Err(error),
        }
        if answer.len() > LONGEST_ANSWER {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the answer does not end"));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};

    use proptest::prelude::*;
    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;

    fn workers(turns: bool) -> WorkerOf {
        // Of three groups with 5, 0 and 11 strands.
        WorkerOf { before: Arc::from([0, 5, 5]), workers: 4, turns }
    }

    #[test]
    fn each_strand_is_of_the_one_worker_that_lists_it() {
        for of in [workers(false), workers(true)] {
            for (group, count) in [(0, 5), (1, 0), (2, 11)] {
                let listed: Vec<(u32, u32)> = (0..6)
                    .flat_map(|worker| of.strands(group, count, worker).map(move |s| (s, worker)))
                    .collect();
                let told: BTreeSet<(u32, u32)> =
                    (0..count).map(|strand| (strand, of.strand(group, strand))).collect();
                assert_eq!(listed.len(), count as usize);
                assert_eq!(listed.iter().copied().collect::<BTreeSet<_>>(), told);
                assert!((0..6).all(|worker| of.strands(group, count, worker).is_sorted()));
            }
        }
    }

    proptest! {
        /// Which strands are of a worker, and of which worker a strand is, are one question: for any groups,
        /// workers and turns each strand is listed once, by the worker that is told for it.
        #[test]
        fn strands_of_workers_and_workers_of_strands_are_inverse(
            counts in prop::collection::vec(0u32..40, 1..5),
            number in 1u32..20,
            turns in any::<bool>(),
        ) {
            let mut sum = 0;
            let before: Vec<u32> =
                counts
                    .iter()
                    .map(|count| {
                        sum += count;
                        sum - count
                    })
                    .collect();
            let of = WorkerOf { before: Arc::from(before), workers: number, turns };
            let mut load = vec![0u32; number as usize];
            for (group, &count) in (0..).zip(&counts) {
                let mut listed = Vec::new();
                for worker in 0..number + 2 {
                    let own: Vec<u32> = of.strands(group, count, worker).collect();
                    prop_assert!(own.is_sorted());
                    for strand in own {
                        prop_assert_eq!(of.strand(group, strand), worker);
                        load[worker as usize] += 1;
                        listed.push(strand);
                    }
                }
                listed.sort_unstable();
                prop_assert_eq!(listed, (0..count).collect::<Vec<_>>());
            }
            // Evenly: no worker has more than one beyond another, and with turns one more of each round.
            let (least, most) = (load.iter().min().unwrap(), load.iter().max().unwrap());
            prop_assert!(turns || most - least <= 1, "{load:?}");
        }
    }

    #[test]
    fn of_n_times_n_strands_each_worker_has_one_with_each_of_the_other_side() {
        let side = |turns| WorkerOf { before: Arc::from([0]), workers: 4, turns };
        let (master, peer) = (side(false), side(true));
        let pairs = |strands: u32| -> BTreeSet<(u32, u32)> {
            (0..strands).map(|s| (master.strand(0, s), peer.strand(0, s))).collect()
        };
        assert_eq!(pairs(4), (0..4).map(|worker| (worker, worker)).collect());
        assert_eq!(pairs(16).len(), 16);
    }

    /// Who says nothing gives way to who comes later, before its time is up.
    #[test]
    fn pending_connections_are_bounded() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let at = listener.local_addr().unwrap();
        let transport = crate::transports::find("tcp").unwrap();
        let kind = ListenerKind::Data { transport, setup: Arc::default() };
        let (ours, inbox) = inbox().unwrap();
        let worker = WorkerOf { before: Arc::from([0]), workers: 1, turns: false };
        let route = Route::Inboxes { inboxes: vec![ours], worker };
        let shared = SharedListener { listener: listener.into(), kind };
        let broker = Broker::with_pending(7, Partners::OfRun, vec![shared], route, 2).unwrap();
        let mut silent: Vec<TcpStream> = (0..2).map(|_| TcpStream::connect(at).unwrap()).collect();
        let mut third = TcpStream::connect(at).unwrap();
        // Closed: nobody sends here.
        assert_eq!(silent[0].read(&mut [0]).unwrap(), 0);
        assert_eq!(broker.rejected_connections(), 1);
        // The others can still say whose they are.
        for (id, stream) in (0..).zip([&mut silent[1], &mut third]) {
            let hello = Hello { run: 7, group: 0, strand: 0, id, ordinal: 0, cookie: 0 };
            stream.write_all(&hello.bytes()).unwrap();
            poll(&mut [PollFd::new(&inbox, PollFlags::IN)], None).unwrap();
            assert_eq!(receive_arrival(&inbox, 7).unwrap().hello.id, id);
        }
        assert_eq!(broker.rejected_connections(), 1);
    }
}
