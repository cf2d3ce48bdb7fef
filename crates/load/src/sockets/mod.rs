//! The real network: what a strand asks of [`Net`], done with sockets.

mod files;
mod pipes;
mod ways;

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, epoll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketFlags};
use wirecost_linux::clock::{Monotonic, timespec};
use wirecost_linux::tcp_info::TcpInfo;
use wirecost_linux::{datagrams, sockopt};
use wirecost_model::clock::{Clock, MILLISECOND, Nanos, nanos};
use wirecost_model::measure::IoCounts;
use wirecost_model::plan::{Address, Endpoints, Identity};
use wirecost_model::program::Service;
use wirecost_profile::flowops;
use wirecost_program::calls::{Granted, Unseen};
use wirecost_program::hello::{self, Hello};
use wirecost_program::net::{Interest, Net, Opening, Owner};
use wirecost_program::payload::DatagramBatch;
use wirecost_program::step::{Open, ReceiveCall, SendCall};

use crate::tls::{Credentials, Security, Session};
use crate::transports::{self, Transport};
use files::OpenFiles;
pub(crate) use files::{SourceFiles, open_source};
use pipes::{Pipe, Sink};
use ways::{Brought, Ways};

/// How long an unanswered hello datagram is waited for before it is repeated.
const HELLO_REPEAT: Nanos = 200 * MILLISECOND;
/// A blocking call of the threads engine returns after this long at the latest, so that the thread
/// can look whether the run goes on.
const BLOCKED: Duration = Duration::from_millis(250);

/// How many connections of a worker may be on their way at once. More would overflow the queue of a
/// listener (net.core.somaxconn, 4096 by default), and a lost SYN costs a second.
const OPENING: u32 = 256;

/// Read of a file at a time, where it is not the kernel that sends it.
const FILE_PIECE: usize = 64 << 10;

/// What an event is about, packed into its 64 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Token {
    Connection {
        local: u32,
        slot: u32,
    },
    /// `number`: among the listeners of its worker.
    Listener {
        local: u32,
        number: u32,
    },
    Inbox,
    Wake,
}

/// From here on the lower half is no slot, but the number of a listener.
const LISTENER: u32 = 1 << 31;
const SPECIAL: u32 = u32::MAX;

impl Token {
    pub(crate) fn pack(self) -> epoll::EventData {
        epoll::EventData::new_u64(self.number())
    }

    pub(crate) fn number(self) -> u64 {
        let (high, low) = match self {
            Token::Connection { local, slot } => (local, slot),
            Token::Listener { local, number } => (local, LISTENER | number),
            Token::Inbox => (SPECIAL, 0),
            Token::Wake => (SPECIAL, 1),
        };
        u64::from(high) << 32 | u64::from(low)
    }

    pub(crate) fn unpack(data: epoll::EventData) -> Self {
        Self::of(data.u64())
    }

    pub(crate) fn of(data: u64) -> Self {
        match ((data >> 32) as u32, data as u32) {
            (SPECIAL, 0) => Token::Inbox,
            (SPECIAL, _) => Token::Wake,
            (local, low) if low < LISTENER => Token::Connection { local, slot: low },
            (local, low) => Token::Listener { local, number: low & !LISTENER },
        }
    }
}

/// A connection that the doorman has let in, on its way to its strand.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) hello: Hello,
    pub(crate) socket: OwnedFd,
}

/// Where the doorman leaves connections for threads that share its descriptor table.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    boxes: Mutex<HashMap<(u32, u32), Pigeonhole>>,
}

/// Of one strand, by group and number. Each has a bell of its own: thousands of threads that all woke
/// for every arrival would have time for nothing else.
#[derive(Debug, Default)]
struct Pigeonhole {
    arrivals: VecDeque<Arrival>,
    arrived: Arc<Condvar>,
}

impl Mailbox {
    pub(crate) fn put(&self, arrival: Arrival) {
        let key = (arrival.hello.group, arrival.hello.strand);
        let Ok(mut boxes) = self.boxes.lock() else { return };
        let of_strand = boxes.entry(key).or_default();
        of_strand.arrivals.push_back(arrival);
        let arrived = of_strand.arrived.clone();
        drop(boxes);
        arrived.notify_all();
    }

    fn take(&self, owner: Owner) -> Option<Arrival> {
        let mut boxes = self.boxes.lock().ok()?;
        take(&mut boxes.get_mut(&(owner.group, owner.strand))?.arrivals, owner.id)
    }

    /// Waits until this connection of a strand is there, or a while.
    pub(crate) fn wait(&self, (group, strand): (u32, u32), id: u32, at_most: Duration) {
        let key = (group, strand);
        let Ok(mut boxes) = self.boxes.lock() else { return };
        let arrived = boxes.entry(key).or_default().arrived.clone();
        let missing = |boxes: &mut HashMap<(u32, u32), Pigeonhole>| {
            let queue = boxes.get(&key).map(|of_strand| &of_strand.arrivals);
            !queue.into_iter().flatten().any(|arrival| arrival.hello.id == id)
        };
        drop(arrived.wait_timeout_while(boxes, at_most, missing));
    }
}

fn take(queue: &mut VecDeque<Arrival>, id: u32) -> Option<Arrival> {
    let place = queue.iter().position(|arrival| arrival.hello.id == id)?;
    queue.remove(place)
}

/// An open or opening connection.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
    transport: &'static dyn Transport,
    /// Where sendto sends to.
    peer: Option<SocketAddr>,
    state: State,
    /// Who encrypts and decrypts, where the kernel does not.
    session: Option<Box<RefCell<Session>>>,
    /// Bytes that one call may at most be given to send.
    longest_send: usize,
    /// Whether it counts among those on their way.
    connecting: bool,
    ways: Ways,
}

#[derive(Debug, Clone, Copy)]
enum State {
    /// The kernel is at it.
    Connecting {
        hello: Option<Hello>,
    },
    /// A hello datagram has been sent and not been answered.
    Greeting {
        hello: Hello,
        repeat: Nanos,
    },
    /// The TLS handshake is under way.
    Securing,
    Open,
}

impl Socket {
    pub(crate) fn tcp_info(&self) -> Option<TcpInfo> {
        self.transport.tcp_info(&self.fd)
    }

    pub(crate) fn receive_drops(&self) -> u32 {
        if self.is_reliable() { 0 } else { sockopt::receive_drops(&self.fd).unwrap_or(0) }
    }

    pub(crate) fn buffer_bytes(&self) -> u64 {
        sockopt::buffer_bytes(&self.fd).unwrap_or(0)
    }

    pub(crate) fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// Whether all that is sent arrives, in order.
    pub(crate) fn is_reliable(&self) -> bool {
        self.transport.protocol().delivery().is_reliable()
    }

    pub(crate) fn is_open(&self) -> bool {
        matches!(self.state, State::Open)
    }

    /// See [`Protocol::by_calls`].
    pub(crate) fn by_calls(&self) -> bool {
        self.transport.by_calls()
    }
}

/// Connections of a flowop whose settings a worker reads: five calls each, as many as connecting takes.
const SETTINGS_READ: u32 = 256;

/// The listeners of one strand for a service, which have numbers one after the other.
#[derive(Debug)]
struct Listeners {
    fds: Vec<OwnedFd>,
    first: u32,
}

/// The sockets of one worker.
#[derive(Debug)]
pub struct Sockets {
    /// Connections say "would block", or block for a while.
    blocking: bool,
    epoll: Option<OwnedFd>,
    run: u32,
    host: u32,
    services: Arc<[Service]>,
    endpoints: Arc<Endpoints>,
    /// Listeners of strands that have addresses of their own, by service and strand; several where
    /// connections are spread over addresses.
    listeners: HashMap<(u32, u32), Listeners>,
    /// By number of the listener: somebody may stand there.
    called: Vec<bool>,
    arrivals: HashMap<(u32, u32), VecDeque<Arrival>>,
    mailbox: Arc<Mailbox>,
    /// What is received, until the next call.
    buffer: Vec<u8>,
    files: OpenFiles,
    /// What is read of them, where the kernel cannot send it by itself.
    scratch: Vec<u8>,
    security: Security,
    pub(crate) settings: BTreeSet<Granted>,
    /// Connections of each row of the phase whose settings have been read.
    settings_read: HashMap<u32, u32>,
    /// Headers of calls that move several datagrams.
    calls: datagrams::Calls,
    brought: Brought,
    pipe: Option<Pipe>,
    sinks: Vec<Sink>,
    /// The longest `busy_poll` of a connection, microseconds, which an event loop's waits keep to.
    busy_poll: u32,
    /// What I/O options did.
    pub(crate) io: IoCounts,
    /// Of connections that are closed.
    pub(crate) closed_retransmits: u64,
    pub(crate) closed_drops: u64,
    pub(crate) strangers: u64,
    pub(crate) failed_connections: u64,
    /// Connections on their way.
    pub(crate) opening: u32,
}

/// What the sockets of all workers of an agent have in common.
#[derive(Debug, Clone)]
pub(crate) struct Common {
    pub(crate) blocking: bool,
    pub(crate) run: u32,
    pub(crate) host: u32,
    pub(crate) services: Arc<[Service]>,
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) files: Arc<[SourceFiles]>,
    /// Of the host, where it has TLS services.
    pub(crate) credentials: Option<Arc<Credentials>>,
}

impl Sockets {
    /// `buffer`: bytes of the largest read.
    pub(crate) fn new(common: &Common, epoll: Option<OwnedFd>, buffer: usize) -> Self {
        Self {
            blocking: common.blocking,
            epoll,
            run: common.run,
            host: common.host,
            services: common.services.clone(),
            endpoints: Arc::default(),
            listeners: HashMap::new(),
            called: Vec::new(),
            arrivals: HashMap::new(),
            mailbox: common.mailbox.clone(),
            buffer: vec![0; buffer],
            files: OpenFiles::new(common.files.clone()),
            scratch: Vec::new(),
            security: Security::new(common.credentials.clone()),
            settings: BTreeSet::new(),
            settings_read: HashMap::new(),
            calls: datagrams::Calls::default(),
            brought: Brought::default(),
            pipe: None,
            sinks: Vec::new(),
            busy_poll: 0,
            io: IoCounts::default(),
            closed_retransmits: 0,
            closed_drops: 0,
            strangers: 0,
            failed_connections: 0,
            opening: 0,
        }
    }

    pub(crate) fn set_endpoints(&mut self, endpoints: Arc<Endpoints>) {
        self.endpoints = endpoints;
    }

    pub(crate) fn epoll(&self) -> Option<&OwnedFd> {
        self.epoll.as_ref()
    }

    /// Listens at addresses of the strand's own.
    ///
    /// # Errors
    /// Those of the system calls.
    pub(crate) fn listen(
        &mut self,
        service: u32,
        owner: Owner,
        at: &[Address],
    ) -> io::Result<Vec<Address>> {
        let described = &self.services[service as usize];
        let transport = transport(&described.protocol)?;
        let first = self.called.len() as u32;
        let mut bound = Vec::new();
        let mut fds = Vec::new();
        for address in at {
            let (fd, address) = transport.listen(address, &described.options)?;
            if let Some(epoll) = &self.epoll {
                let number = self.called.len() as u32;
                register(epoll, &fd, Token::Listener { local: owner.local, number })?;
            } else if self.blocking && at.len() == 1 && !transport.polls_before_accept() {
                block(&fd)?;
            }
            bound.push(address);
            fds.push(fd);
            self.called.push(true);
        }
        self.listeners.insert((service, owner.strand), Listeners { fds, first });
        Ok(bound)
    }

    /// The event loop has heard of somebody at a listener. It hears of each once.
    pub(crate) fn called(&mut self, number: u32) {
        if let Some(called) = self.called.get_mut(number as usize) {
            *called = true;
        }
    }

    /// Takes in a connection that came by the inbox.
    pub(crate) fn arrived(&mut self, arrival: Arrival) {
        let key = (arrival.hello.group, arrival.hello.strand);
        self.arrivals.entry(key).or_default().push_back(arrival);
    }

    /// Number of the run, as hellos have it.
    pub(crate) fn run(&self) -> u32 {
        self.run
    }

    /// Takes the connection out that the doorman has let in for this owner.
    pub(crate) fn take_arrival(&mut self, owner: Owner) -> io::Result<Arrival> {
        let arrival = match self.blocking {
            true => self.mailbox.take(owner),
            false => self
                .arrivals
                .get_mut(&(owner.group, owner.strand))
                .and_then(|queue| take(queue, owner.id)),
        };
        arrival.ok_or_else(|| io::ErrorKind::WouldBlock.into())
    }

    pub(crate) fn mailbox(&self) -> &Mailbox {
        &self.mailbox
    }

    /// Whether this strand accepts at addresses of its own.
    pub(crate) fn has_listener(&self, strand: u32) -> bool {
        self.listeners.keys().any(|&(_, owner)| owner == strand)
    }

    fn admit(
        &mut self,
        fd: OwnedFd,
        transport: &'static dyn Transport,
        owner: Owner,
        state: State,
    ) -> io::Result<Socket> {
        if let Some(epoll) = &self.epoll {
            register(epoll, &fd, Token::Connection { local: owner.local, slot: owner.slot })?;
        }
        let peer = match transport.protocol().delivery().is_reliable() {
            true => None,
            false => socket2::SockRef::from(&fd).peer_addr().ok().and_then(|a| a.as_socket()),
        };
        let longest_send = transport.longest_send(&fd);
        Ok(Socket {
            fd,
            transport,
            peer,
            state,
            session: None,
            longest_send,
            connecting: false,
            ways: Ways::default(),
        })
    }

    /// The listeners of a strand.
    pub(crate) fn listeners(&self, service: u32, strand: u32) -> &[OwnedFd] {
        self.listeners.get(&(service, strand)).map_or(&[], |listeners| &listeners.fds)
    }

    /// Whether only those listeners of a service may be asked to accept at which somebody stands.
    pub(crate) fn polls_before_accept(&self, service: u32) -> bool {
        let name = &self.services[service as usize].protocol;
        transports::find(name).is_some_and(|transport| transport.polls_before_accept())
    }

    /// Takes the listeners of a strand, for who accepts there by other means.
    pub(crate) fn take_listeners(&mut self, service: u32, strand: u32) -> Vec<OwnedFd> {
        self.listeners.remove(&(service, strand)).map(|listeners| listeners.fds).unwrap_or_default()
    }

    fn open(&mut self, socket: &mut Socket) -> io::Result<()> {
        self.settings.extend(socket.transport.opened(&socket.fd)?);
        socket.state = State::Open;
        if self.blocking {
            block(&socket.fd)?;
        }
        Ok(())
    }

    /// A phase begins, whose rows are others.
    pub(crate) fn begin(&mut self) {
        self.settings_read.clear();
    }

    /// Reads what was granted of what a step asks for. Connections of one step are alike, so not of all.
    fn note_settings(&mut self, socket: &Socket, open: &Open) {
        let read = self.settings_read.entry(open.row).or_default();
        if *read >= SETTINGS_READ {
            return;
        }
        *read += 1;
        let options = &open.options;
        if let Some(microseconds) = options.busy_poll.filter(|&longer| longer > self.busy_poll) {
            self.busy_poll = microseconds;
            if let Some(epoll) = &self.epoll {
                let set = sockopt::set_epoll_busy_poll(epoll, microseconds).is_ok();
                self.note_waits(set);
            }
        }
        for setting in socket.transport.granted(&socket.fd, options) {
            self.settings.insert(setting);
        }
    }

    /// The longest `busy_poll` so far, microseconds; 0 without.
    pub(crate) fn busy_poll(&self) -> u32 {
        self.busy_poll
    }

    /// Whether an event loop's waits keep to the longest `busy_poll`.
    pub(crate) fn note_waits(&mut self, set: bool) {
        let asked = self.busy_poll.to_string();
        let granted = if set { asked.clone() } else { "0".to_owned() };
        self.settings.insert(Granted { name: "busy_poll.waits", asked, granted });
    }

    /// The next connection at the strand's own listeners.
    pub(crate) fn accept_own(&mut self, service: u32, owner: Owner) -> io::Result<OwnedFd> {
        let flags = if self.blocking {
            SocketFlags::CLOEXEC
        } else {
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK
        };
        let allowed = allowed(&self.services[service as usize], &self.endpoints);
        let Some(Listeners { fds, first }) = self.listeners.get(&(service, owner.strand)) else {
            return Err(io::ErrorKind::WouldBlock.into());
        };
        let numbered = (*first as usize..).zip(fds);
        let mut listeners: Vec<(usize, &OwnedFd)> = match &self.epoll {
            // Of several addresses somebody stands at one, and asking the others takes a call each.
            Some(_) => numbered.filter(|(number, _)| self.called[*number]).collect(),
            None => numbered.collect(),
        };
        if transport(&self.services[service as usize].protocol)?.polls_before_accept() {
            keep_ready(&mut listeners, if self.blocking { nanos(BLOCKED) } else { 0 })?;
        }
        for (number, listener) in listeners {
            // Until it is empty: the event that told of a stranger tells of who came behind, too.
            loop {
                match rustix::net::acceptfrom_with(listener, flags) {
                    Ok((fd, from)) => {
                        let from = from.and_then(|from| SocketAddr::try_from(from).ok());
                        if is_expected(from, &allowed) {
                            return Ok(fd);
                        }
                        self.strangers += 1;
                    }
                    Err(Errno::AGAIN) => break,
                    Err(Errno::CONNABORTED | Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            self.called[number] = false;
        }
        Err(io::ErrorKind::WouldBlock.into())
    }

    /// Whether a connection that a strand's own listener has accepted may be one of the run's. One
    /// that may not is counted.
    pub(crate) fn welcomes(&mut self, service: u32, fd: &OwnedFd) -> bool {
        let allowed = allowed(&self.services[service as usize], &self.endpoints);
        if allowed.is_empty() {
            return true;
        }
        let from = socket2::SockRef::from(fd).peer_addr().ok().and_then(|from| from.as_socket());
        let expected = is_expected(from, &allowed);
        self.strangers += u64::from(!expected);
        expected
    }

    /// Whether clients of a service connect more than once.
    pub(crate) fn reconnects(&self, service: u32) -> bool {
        self.services[service as usize].reconnects
    }

    /// Whether a step's connections come to listeners of the strand's own.
    pub(crate) fn accepts_itself(&self, open: &Open) -> bool {
        let here = self.endpoints.hosts.get(self.host as usize);
        let service = here.and_then(|host| host.services.get(open.service.service as usize));
        service.is_some_and(|service| service.identity == Identity::Address)
    }

    /// Makes a connection that has been accepted one of a strand's.
    pub(crate) fn accepted(
        &mut self,
        open: &Open,
        owner: Owner,
        fd: OwnedFd,
        hello: Option<Hello>,
    ) -> io::Result<Socket> {
        let transport = transport(open.protocol.name())?;
        transport.accepted(&fd, &open.options)?;
        let mut socket = self.admit(fd, transport, owner, State::Securing)?;
        if transport.protocol().is_secure() {
            if self.blocking {
                block(&socket.fd)?;
            }
            let session = self.security.accept(&open.options)?;
            socket.session = Some(Box::new(RefCell::new(session)));
        } else {
            self.open(&mut socket)?;
        }
        if let (false, Some(hello)) = (transport.protocol().delivery().is_reliable(), hello) {
            rustix::net::send(&socket.fd, &hello.welcome(), SendFlags::empty())?;
        }
        self.note_settings(&socket, open);
        Ok(socket)
    }

    /// Counts what is only known at the end of a connection.
    pub(crate) fn note_closed(&mut self, socket: &mut Socket) {
        self.arrive(socket);
        self.look_back(socket);
        self.forget(socket);
        self.settings.extend(socket.transport.closing(&socket.fd));
        if let Some(info) = socket.tcp_info() {
            self.closed_retransmits += u64::from(info.retransmits);
        }
        self.closed_drops += u64::from(socket.receive_drops());
    }
}

/// Where the clients of a service connect from, as far as they have said.
fn allowed<'a>(service: &Service, endpoints: &'a Endpoints) -> Vec<&'a Address> {
    let clients = service.clients.iter();
    clients
        .filter_map(|&client| endpoints.hosts.get(client as usize))
        .flat_map(|host| &host.connects_from)
        .collect()
}

/// Whether a connection from there may be one of the run's: all that is known are the addresses its
/// hosts have said they connect from (none said: anything goes).
fn is_expected(from: Option<SocketAddr>, allowed: &[&Address]) -> bool {
    let Some(from) = from else { return true };
    let from = from.ip().to_canonical();
    allowed.is_empty()
        || from.is_loopback()
        || allowed.iter().any(|address| match address {
            Address::Inet(address) => address.ip().to_canonical() == from,
            Address::Unix(_) | Address::Vsock { .. } => false,
        })
}

pub(crate) fn transport(name: &str) -> io::Result<&'static dyn Transport> {
    transports::find(name).ok_or_else(|| {
        io::Error::new(io::ErrorKind::Unsupported, format!("protocol {name} is not built"))
    })
}

pub(crate) fn register(epoll: &OwnedFd, fd: impl AsFd, token: Token) -> io::Result<()> {
    // Edge-triggered and for both directions: one call for the life of the connection. A strand
    // always tries before it waits, so no edge is missed.
    let flags = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET;
    Ok(epoll::add(epoll, fd, token.pack(), flags)?)
}

/// Keeps the listeners at which somebody stands; waits so long for one.
fn keep_ready(listeners: &mut Vec<(usize, &OwnedFd)>, at_most: Nanos) -> io::Result<()> {
    let mut fds: Vec<PollFd<'_>> =
        listeners.iter().map(|(_, fd)| PollFd::new(*fd, PollFlags::IN)).collect();
    rustix::event::poll(&mut fds, Some(&timespec(at_most)))?;
    let mut ready = fds.iter().map(|fd| !fd.revents().is_empty());
    listeners.retain(|_| ready.next().unwrap_or_default());
    Ok(())
}

/// Makes a socket block, but not for ever.
fn block(fd: &OwnedFd) -> io::Result<()> {
    let socket = socket2::SockRef::from(fd);
    socket.set_nonblocking(false)?;
    socket.set_read_timeout(Some(BLOCKED))?;
    socket.set_write_timeout(Some(BLOCKED))
}

impl Net for Sockets {
    type Socket = Socket;

    fn has_begun_to_send(&self, socket: &Socket) -> bool {
        socket.session.as_ref().is_some_and(|session| session.borrow().holds_unsent())
    }

    #[inline]
    fn now(&mut self) -> Nanos {
        Monotonic.now()
    }

    fn connect(&mut self, open: &Open, owner: Owner, attempt: u64) -> io::Result<Socket> {
        if self.opening >= OPENING {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let reference = open.service;
        let service = self
            .endpoints
            .hosts
            .get(reference.host as usize)
            .and_then(|host| host.services.get(reference.service as usize))
            .ok_or_else(|| io::Error::other("the peer has not said where it listens"))?;
        let first = service.of_strand.get(owner.strand as usize).copied().unwrap_or(0);
        let place = u64::from(first) + attempt % u64::from(service.per_strand.max(1));
        let address = service
            .addresses
            .get(place as usize)
            .ok_or_else(|| io::Error::other("the peer listens at no address for this strand"))?;
        let transport = transport(open.protocol.name())?;
        let hello = (service.identity == Identity::Hello).then_some(Hello {
            run: self.run,
            group: owner.group,
            strand: owner.strand,
            id: owner.id,
            cookie: 0,
        });
        let fd = transport.connect(address, &open.options).map_err(|error| {
            self.failed_connections += 1;
            at_address(error, address)
        })?;
        let mut socket = self.admit(fd, transport, owner, State::Connecting { hello })?;
        if transport.protocol().is_secure() {
            let endpoints = self.endpoints.clone();
            let peer = endpoints.hosts.get(reference.host as usize);
            let certificate = peer.and_then(|host| host.certificate.as_deref());
            let session = self.security.connect(reference.host, certificate, &open.options)?;
            socket.session = Some(Box::new(RefCell::new(session)));
        }
        self.note_settings(&socket, open);
        socket.connecting = true;
        self.opening += 1;
        Ok(socket)
    }

    fn opening(&mut self, socket: &mut Socket) -> io::Result<Opening> {
        let result = self.progress(socket);
        match &result {
            Ok(Opening::Done) => self.arrive(socket),
            Ok(Opening::Wait(..)) => {}
            Err(_) => self.failed_connections += 1,
        }
        result
    }

    fn accept(&mut self, open: &Open, owner: Owner) -> io::Result<Socket> {
        let service = open.service.service;
        let (fd, hello) = if self.accepts_itself(open) {
            (self.accept_own(service, owner)?, None)
        } else {
            let arrival = self.take_arrival(owner)?;
            (arrival.socket, Some(arrival.hello))
        };
        self.accepted(open, owner, fd, hello)
    }

    #[inline]
    fn send(&mut self, socket: &Socket, bytes: &[u8], call: SendCall) -> io::Result<usize> {
        if let Some(session) = &socket.session {
            return session.borrow_mut().send(&socket.fd, bytes);
        }
        let bytes = &bytes[..bytes.len().min(socket.longest_send)];
        let sent = match (call, socket.peer) {
            (SendCall::Plain(flowops::SendCall::Write), _) => rustix::io::write(&socket.fd, bytes),
            (SendCall::Plain(flowops::SendCall::SendTo), Some(peer)) => {
                rustix::net::sendto(&socket.fd, bytes, SendFlags::NOSIGNAL, &peer)
            }
            _ => rustix::net::send(&socket.fd, bytes, SendFlags::NOSIGNAL),
        };
        Ok(sent?)
    }

    fn send_zerocopy(&mut self, socket: &Socket, bytes: &[u8], copied: usize) -> io::Result<usize> {
        self.send_zero_copy(socket, bytes, copied)
    }

    fn cork(&mut self, socket: &Socket, on: bool) -> io::Result<()> {
        Ok(rustix::net::sockopt::set_tcp_cork(&socket.fd, on)?)
    }

    fn send_several(
        &mut self,
        socket: &Socket,
        datagrams: &DatagramBatch<'_>,
    ) -> io::Result<usize> {
        self.send_datagrams(socket, datagrams)
    }

    #[inline]
    fn receive(
        &mut self,
        socket: &Socket,
        size: usize,
        call: ReceiveCall,
        timed: bool,
    ) -> io::Result<&[u8]> {
        let most = size.min(self.buffer.len());
        let buffer = &mut self.buffer[..most];
        let flags = if timed && self.blocking { RecvFlags::DONTWAIT } else { RecvFlags::empty() };
        if let Some(session) = &socket.session {
            let got = session.borrow_mut().receive(&socket.fd, buffer, flags)?;
            return Ok(&self.buffer[..got]);
        }
        let got = match call {
            ReceiveCall::Plain(flowops::ReceiveCall::Read) if flags.is_empty() => {
                rustix::io::read(&socket.fd, &mut *buffer)
            }
            ReceiveCall::Plain(flowops::ReceiveCall::RecvFrom) => {
                rustix::net::recvfrom(&socket.fd, &mut *buffer, flags).map(|(got, ..)| got)
            }
            ReceiveCall::Several(receives) => {
                let wait = self.blocking && !timed;
                return self.receive_datagram(socket, size, receives, wait);
            }
            _ => rustix::net::recv(&socket.fd, &mut *buffer, flags).map(|(got, _)| got),
        };
        let got = match got {
            Ok(got) => got,
            Err(error) => {
                if socket.ways.used() {
                    self.read_notices(socket);
                }
                return Err(error.into());
            }
        };
        if let ReceiveCall::Kept(sink) = call {
            self.sinks[usize::from(sink)].write(&buffer[..got])?;
            self.io.sink_bytes += got as u64;
        }
        if !socket.is_reliable() && hello::is_greeting(&buffer[..got.min(buffer.len())]) {
            return Err(late_greeting(socket, &buffer[..hello::LENGTH], self.run)?);
        }
        Ok(&self.buffer[..got.min(most)])
    }

    fn tells_of_arrivals(&self, socket: &Socket) -> bool {
        // What has been decrypted arrived before.
        !self.blocking && socket.is_reliable() && !socket.transport.protocol().is_secure()
    }

    fn low_water(&mut self, socket: &Socket, bytes: u64) -> io::Result<u64> {
        // A call that blocks heeds the mark as well, and would go on when nobody may any more.
        if self.blocking || !socket.transport.has_low_water() {
            return Ok(1);
        }
        sockopt::set_low_water(&socket.fd, bytes)?;
        Ok(bytes)
    }

    fn pass_on(
        &mut self,
        socket: &Socket,
        size: usize,
        call: Unseen,
        timed: bool,
    ) -> io::Result<usize> {
        let flags = if timed && self.blocking { RecvFlags::DONTWAIT } else { RecvFlags::empty() };
        let passed = match call {
            Unseen::Discarded => self.discard(socket, size, flags),
            Unseen::Spliced(sink) => self.splice_on(socket, size, sink.map(usize::from), flags),
        };
        if passed.is_err() && socket.ways.used() {
            self.read_notices(socket);
        }
        passed
    }

    fn send_file(
        &mut self,
        socket: &Socket,
        source: u32,
        file: usize,
        offset: u64,
        length: u64,
    ) -> io::Result<usize> {
        // Out of its place while it is sent, as sending may need all else.
        let opened = match self.files.take(source, file) {
            Some(opened) => opened,
            None => self.files.open(source, file)?,
        };
        let sent = self.send_opened(socket, &opened, source, offset, length);
        self.files.put(source, file, opened);
        sent
    }

    fn close(&mut self, mut socket: Socket, _: Owner) {
        self.note_closed(&mut socket);
    }
}

impl Sockets {
    fn send_opened(
        &mut self,
        socket: &Socket,
        file: &OwnedFd,
        source: u32,
        offset: u64,
        length: u64,
    ) -> io::Result<usize> {
        if let Some(session) = &socket.session {
            let mut session = session.borrow_mut();
            if !session.holds_unsent() {
                let length = usize::try_from(length).unwrap_or(usize::MAX).min(FILE_PIECE);
                self.scratch.resize(length, 0);
                let got = rustix::io::pread(file, &mut self.scratch, offset)?;
                self.scratch.truncate(got);
            }
            return session.send(&socket.fd, &self.scratch);
        }
        let (direct, splice) = self.files.calls(source);
        if direct || splice {
            return self.splice_file(socket, file, offset, length, direct);
        }
        let mut at = offset;
        let length = usize::try_from(length).unwrap_or(usize::MAX).min(1 << 30);
        Ok(rustix::fs::sendfile(&socket.fd, file, Some(&mut at), length)?)
    }

    /// A connection is no longer on its way.
    fn arrive(&mut self, socket: &mut Socket) {
        if std::mem::take(&mut socket.connecting) {
            self.opening = self.opening.saturating_sub(1);
        }
    }

    /// Goes on with the TLS handshake, where there is to be one, and opens.
    fn secure(&mut self, socket: &mut Socket) -> io::Result<Opening> {
        if let Some(mut session) = socket.session.take() {
            let waits = session.get_mut().handshake(&socket.fd)?;
            socket.state = State::Securing;
            if let Some(on) = waits {
                socket.session = Some(session);
                return Ok(Opening::Wait(on, None));
            }
            let session = session.into_inner();
            self.settings.insert(session.granted());
            if session.is_for_kernel() {
                session.hand_over(&socket.fd)?;
                self.settings.insert(Granted {
                    name: "ktls",
                    asked: "send, receive".to_owned(),
                    granted: "send, receive".to_owned(),
                });
            } else {
                socket.session = Some(Box::new(RefCell::new(session)));
            }
        }
        self.open(socket)?;
        Ok(Opening::Done)
    }

    fn progress(&mut self, socket: &mut Socket) -> io::Result<Opening> {
        let now = self.now();
        match socket.state {
            State::Open => Ok(Opening::Done),
            State::Connecting { hello } => {
                if rustix::net::getpeername(&socket.fd).is_err() {
                    match rustix::net::sockopt::socket_error(&socket.fd)? {
                        Ok(()) => return Ok(Opening::Wait(Interest::Writable, None)),
                        Err(error) => return Err(error.into()),
                    }
                }
                match hello {
                    Some(hello) if !socket.is_reliable() => {
                        rustix::net::send(&socket.fd, &hello.bytes(), SendFlags::empty())?;
                        let repeat = now + HELLO_REPEAT;
                        socket.state = State::Greeting { hello, repeat };
                        return Ok(Opening::Wait(Interest::Readable, Some(repeat)));
                    }
                    Some(hello) => {
                        // Fits the empty send buffer of a new connection whole.
                        rustix::net::send(&socket.fd, &hello.bytes(), SendFlags::NOSIGNAL)?;
                    }
                    None => {}
                }
                self.secure(socket)
            }
            State::Securing => self.secure(socket),
            State::Greeting { hello, repeat } => {
                let mut buffer = [0u8; hello::LENGTH + 1];
                match rustix::net::recv(&socket.fd, &mut buffer, RecvFlags::DONTWAIT) {
                    Ok((got, _)) if buffer[..got] == hello.welcome() => {
                        self.open(socket)?;
                        return Ok(Opening::Done);
                    }
                    Ok((got, _)) => {
                        if let Some(hello) = hello.challenged(&buffer[..got]) {
                            rustix::net::send(&socket.fd, &hello.bytes(), SendFlags::empty())?;
                            let repeat = now + HELLO_REPEAT;
                            socket.state = State::Greeting { hello, repeat };
                            return Ok(Opening::Wait(Interest::Readable, Some(repeat)));
                        }
                    }
                    Err(Errno::AGAIN | Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
                if now < repeat {
                    return Ok(Opening::Wait(Interest::Readable, Some(repeat)));
                }
                rustix::net::send(&socket.fd, &hello.bytes(), SendFlags::empty())?;
                let repeat = now + HELLO_REPEAT;
                socket.state = State::Greeting { hello, repeat };
                Ok(Opening::Wait(Interest::Readable, Some(repeat)))
            }
        }
    }
}

/// A hello that was repeated before its answer came: answers again. It is not traffic, so the reading
/// goes on as after an interruption.
pub(crate) fn late_greeting(socket: &Socket, bytes: &[u8], run: u32) -> io::Result<io::Error> {
    if let Ok(hello) = Hello::read(bytes, run) {
        rustix::net::send(&socket.fd, &hello.welcome(), SendFlags::empty())?;
    }
    Ok(io::ErrorKind::Interrupted.into())
}

fn at_address(error: io::Error, address: &Address) -> io::Error {
    let remedy = match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::ADDRNOTAVAIL) => {
            ": no local port is left; widen net.ipv4.ip_local_port_range, allow \
             net.ipv4.tcp_tw_reuse, or spread the load over more strands"
        }
        Some(Errno::MFILE | Errno::NFILE) => {
            ": no descriptor is left; raise the limit (ulimit -n) or use more --workers"
        }
        Some(Errno::ACCESS | Errno::PERM) => ": a firewall or a policy of this host forbids it",
        _ => "",
    };
    io::Error::new(error.kind(), format!("{address}: {error}{remedy}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrival(strand: u32) -> Arrival {
        let hello = Hello { run: 1, group: 0, strand, id: 7, cookie: 0 };
        Arrival { hello, socket: std::fs::File::open("/dev/null").unwrap().into() }
    }

    fn owner(strand: u32) -> Owner {
        Owner { group: 0, strand, local: 0, slot: 0, id: 7 }
    }

    /// How often the calling thread has gone to sleep.
    fn sleeps() -> u64 {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.unwrap().trim().parse().unwrap()
    }

    #[test]
    fn an_arrival_wakes_its_own_strand_only() {
        let mailbox = Arc::new(Mailbox::default());
        let of_thread = mailbox.clone();
        let waiting = std::thread::spawn(move || {
            let before = sleeps();
            of_thread.wait((0, 1), 7, Duration::from_secs(3600));
            sleeps() - before
        });
        for _ in 0..20_000 {
            mailbox.put(arrival(2));
            assert!(mailbox.take(owner(2)).is_some());
        }
        mailbox.put(arrival(1));
        let slept = waiting.join().unwrap();
        assert!(slept < 50, "{slept}");
        assert!(mailbox.take(owner(1)).is_some());
    }
}
