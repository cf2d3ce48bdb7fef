//! How connections come about and end: listeners, arrivals, hellos and TLS handshakes.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketFlags};
use wirecost_linux::clock::{Monotonic, timespec};
use wirecost_linux::receive_stamps;
use wirecost_linux::route::source_address;
use wirecost_model::clock::{Clock, MILLISECOND, Nanos, nanos};
use wirecost_model::measure::IoCounts;
use wirecost_model::plan::{Address, Endpoints, Identity};
use wirecost_model::program::Service;
use wirecost_model::server_sockets::ServerSockets as Policy;
use wirecost_profile::io_options::IoOption as _;
use wirecost_profile::io_options::server_sockets::ServerSockets;
use wirecost_program::calls::EffectiveSetting;
use wirecost_program::hello::{self, Hello};
use wirecost_program::net::{Interest, Opening, Owner};
use wirecost_program::socket_setup::SocketSetup;
use wirecost_program::step::{Action, Group, Open};

use super::by_step::ByStep;
use super::io_state::IoState;
use super::mailbox::{self, Arrival, Mailbox};
use super::observed::{ObservedFlows, Search};
use super::probe::Heard;
use super::settings::SettingsLog;
use super::source_ports::{self, Placed};
use super::stamps::Sampling;
use super::token::{Token, Trigger, make_edge_triggered, register};
use super::worker_listeners::WorkerListeners;
use super::{Common, Socket};
use crate::clients::Clients;
use crate::permissions::Partners;
use crate::tls::Security;
use crate::transports::{self, Transport};
use crate::worker::SegmentCounts;

/// How long an unanswered hello datagram is waited for before it is repeated.
const HELLO_REPEAT: Nanos = 200 * MILLISECOND;
/// After so many hellos that were not answered, though the far end has answered the first with a challenge, it is taken
/// to have the connection: its answer was lost, and it may say nothing before data comes.
const UNANSWERED: u32 = 10;
/// A blocking call of the threads engine returns after this long at the latest, so that the thread
/// can look whether the run goes on.
const BLOCKED: Duration = Duration::from_millis(250);

/// Clients of a service that share sockets. Each takes 2 KiB.
const CLIENTS: usize = 1 << 16;

/// How many connections of a worker may be connecting at once. More would overflow the queue of a
/// listener (net.core.somaxconn, 4096 by default), and a lost SYN costs a second.
const CONNECTING: u32 = 256;

/// The stages of a connection on its way to carrying data.
#[derive(Debug, Clone, Copy)]
pub(super) enum State {
    /// The kernel is connecting it.
    Connecting(KnownBy),
    /// It has asked which CPU of the other end handles its packets.
    Probing,
    /// A hello datagram has been sent and not been answered.
    Greeting,
    /// The TLS handshake is under way.
    Securing,
    Open,
}

/// The hello that a socket sends as soon as it is connected.
#[derive(Debug)]
pub(super) struct Greeting {
    hello: Hello,
    /// Where data goes to once it has been answered, if not to where the hello goes.
    data: Option<SocketAddr>,
    /// When a datagram that has it is sent again.
    repeat: Nanos,
    /// How often it has been sent again since it was challenged.
    repeated: u32,
    /// Where the connection is to be one of those that a certain CPU of the other end handles.
    search: Option<Box<Search>>,
}

impl Greeting {
    /// Sends it as a datagram, and returns when to send it again.
    fn send(&mut self, fd: &OwnedFd, now: Nanos) -> io::Result<Nanos> {
        rustix::net::send(fd, &self.hello.bytes(), SendFlags::empty())?;
        self.repeat = now + HELLO_REPEAT;
        Ok(self.repeat)
    }
}

/// What tells that the kernel has connected a socket.
#[derive(Debug, Clone, Copy)]
pub(super) enum KnownBy {
    /// An event that has not come.
    AwaitedEvent,
    /// An event that has come.
    Event,
    /// A call.
    Call,
}

/// A listener of one strand.
#[derive(Debug)]
pub(crate) struct Listener {
    service: u32,
    pub(crate) fd: OwnedFd,
    /// Somebody may be waiting there.
    pub(crate) ready: bool,
    /// Where it is told of for as long as somebody waits there: how often in a row no strand wanted to
    /// know. Then nothing has to be asked that finds nobody: of a transaction that opens a connection that
    /// would be one system call in eleven.
    unheeded: Option<u32>,
}

/// A listener whose strand does not accept is told of so often, then only when somebody comes: the loop
/// would not sleep any more.
const UNHEEDED: u32 = 16;

/// Opens and closes the connections of one worker.
#[derive(Debug)]
pub(crate) struct Opener {
    /// Calls on connections block for a while, instead of returning "would block".
    blocking: bool,
    epoll: Option<OwnedFd>,
    /// Events tell when a socket that is being connected can send.
    has_events: bool,
    run: u32,
    host: u32,
    services: Arc<[OwnService]>,
    endpoints: Arc<Endpoints>,
    /// Known once the endpoints are.
    observed: Arc<OnceLock<ObservedFlows>>,
    partners: Partners,
    /// Where the clients of each service connect from; none where they have not said.
    allowed: Vec<Option<Vec<IpAddr>>>,
    /// By which transport each step connects or accepts.
    transports: ByStep<&'static dyn Transport>,
    /// The listeners of each strand that has addresses of its own, by its place among its worker's;
    /// several of a service where connections are spread over addresses.
    listeners: Vec<Vec<Listener>>,
    /// Those at which any strand accepts.
    pub(crate) worker_listeners: WorkerListeners,
    /// The CPU that the worker is pinned to.
    cpu: Option<u32>,
    /// Connections that it accepted at those listeners, by whether this CPU had handled their packets.
    on_own_cpu: u64,
    on_other_cpu: u64,
    /// The engine tells of listeners at which somebody waits, and the others are not asked.
    only_ready: bool,
    /// Connections that have come by the inbox, by group and strand.
    arrivals: HashMap<(u32, u32), VecDeque<Arrival>>,
    /// Whether the newest attempt to accept was for a connection that the broker accepts.
    pub(crate) awaits_broker: bool,
    mailbox: Arc<Mailbox>,
    security: Security,
    /// Connections that the kernel is connecting.
    connecting: u32,
    pub(crate) rejected_connections: u64,
    pub(crate) failed_connections: u64,
    /// Of connections that are closed.
    pub(crate) closed_segments: SegmentCounts,
    /// Whether connections that close are asked for their segments. Not inside a window: it would be a
    /// system call of each transaction that opens a connection.
    pub(crate) reads_closing: bool,
    /// Those that were not asked.
    pub(crate) closed_unread: u64,
    pub(crate) closed_drops: u64,
}

/// A service of this host, with what its sockets are made by.
#[derive(Debug)]
pub(crate) struct OwnService {
    pub(crate) described: Service,
    pub(crate) transport: &'static dyn Transport,
    pub(crate) setup: Arc<SocketSetup>,
    /// Where its clients share sockets.
    pub(crate) clients: Option<Arc<Clients>>,
    /// Where they share listeners.
    pub(crate) listeners: Option<Policy>,
}

impl OwnService {
    /// # Errors
    /// A protocol that this version does not have.
    pub(crate) fn all(services: &[Service]) -> io::Result<Arc<[Self]>> {
        let resolve = |service: &Service| {
            let transport = transport(&service.protocol)?;
            let setup = SocketSetup::new(&service.options, transport.protocol());
            let shared = ServerSockets
                .shared(&service.options)
                .filter(|_| ServerSockets.fits(Some(transport.protocol())));
            let is_stream = transport.protocol().delivery().is_reliable();
            let (described, setup) = (service.clone(), Arc::new(setup));
            let clients = shared.filter(|_| !is_stream).map(|_| Arc::new(Clients::new(CLIENTS)));
            let listeners = shared.filter(|_| is_stream);
            Ok(Self { described, transport, setup, clients, listeners })
        };
        services.iter().map(resolve).collect()
    }
}

impl Opener {
    pub(super) fn new(common: &Common) -> Self {
        Self {
            blocking: common.blocking,
            epoll: None,
            has_events: false,
            run: common.run,
            host: common.host,
            services: common.services.clone(),
            endpoints: Arc::default(),
            observed: common.observed.clone(),
            partners: common.permissions.partners,
            allowed: Vec::new(),
            transports: ByStep::default(),
            listeners: Vec::new(),
            worker_listeners: WorkerListeners::default(),
            cpu: None,
            on_own_cpu: 0,
            on_other_cpu: 0,
            only_ready: false,
            arrivals: HashMap::new(),
            awaits_broker: false,
            mailbox: common.mailbox.clone(),
            security: Security::new(common.credentials.clone()),
            connecting: 0,
            rejected_connections: 0,
            failed_connections: 0,
            closed_segments: SegmentCounts::default(),
            reads_closing: true,
            closed_unread: 0,
            closed_drops: 0,
        }
    }

    /// Has this epoll tell of listeners and connections from now on.
    pub(crate) fn set_epoll(&mut self, epoll: OwnedFd) {
        self.epoll = Some(epoll);
        self.awaits_events();
    }

    /// Asks whether a socket is connected only where no event has told it.
    pub(crate) fn awaits_events(&mut self) {
        self.has_events = true;
    }

    /// Asks only those listeners from now on that [`Opener::mark_ready`] has named.
    pub(crate) fn accept_only_when_ready(&mut self) {
        self.only_ready = true;
    }

    pub(crate) fn epoll(&self) -> Option<&OwnedFd> {
        self.epoll.as_ref()
    }

    /// Learns where others listen, and what will be run.
    pub(super) fn set_endpoints(&mut self, endpoints: Arc<Endpoints>, groups: &[Group]) {
        self.endpoints = endpoints;
        self.allowed = self
            .services
            .iter()
            .map(|service| allowed(&service.described, &self.endpoints))
            .collect();
        self.transports = ByStep::resolve(groups, |step| match &step.action {
            Action::Connect(open) | Action::Accept(open) => transports::find(open.protocol.name()),
            _ => None,
        });
    }

    /// A phase begins. Returns how many rows it has.
    pub(super) fn begin(&mut self, phase: u32) -> usize {
        self.transports.begin(phase);
        self.transports.rows()
    }

    /// The clients of a group's service, where they share sockets.
    pub(crate) fn clients(&self, group: u32) -> Option<&Clients> {
        let mut services = self.services.iter().filter(|service| service.described.group == group);
        services.find_map(|service| service.clients.as_deref())
    }

    /// Number of the run, as hellos have it.
    pub(crate) fn run(&self) -> u32 {
        self.run
    }

    pub(crate) fn mailbox(&self) -> &Mailbox {
        &self.mailbox
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
        let OwnService { transport, setup, described, .. } = &self.services[service as usize];
        let local = owner.local as usize;
        if self.listeners.len() <= local {
            self.listeners.resize_with(local + 1, Vec::new);
        }
        let mut bound = Vec::new();
        for address in at {
            let (fd, address) = transport.listen(address, setup)?;
            let mut unheeded = None;
            if let Some(epoll) = &self.epoll {
                let number = self.listeners[local].len() as u32;
                // Many connections at once are accepted one after the other.
                let trigger = if described.reconnects { Trigger::Level } else { Trigger::Edge };
                register(epoll, &fd, Token::Listener { local: owner.local, number }, trigger)?;
                unheeded = described.reconnects.then_some(0);
            } else if self.blocking && at.len() == 1 && !transport.polls_before_accept() {
                block(&fd)?;
            }
            bound.push(address);
            self.listeners[local].push(Listener { service, fd, ready: true, unheeded });
        }
        Ok(bound)
    }

    /// Has all strands of the worker accept at these listeners of a service.
    ///
    /// # Errors
    /// Those of epoll_ctl(2).
    pub(crate) fn share_listeners(&mut self, service: u32, fds: Vec<OwnedFd>) -> io::Result<()> {
        let policy = self.services.get(service as usize).and_then(|of| of.listeners);
        let policy = policy.ok_or(io::ErrorKind::InvalidInput)?;
        self.worker_listeners.add((service, policy), fds, self.epoll.as_ref())
    }

    /// Has it know the CPU that its worker is pinned to.
    pub(crate) fn set_cpu(&mut self, cpu: Option<u32>) {
        self.cpu = cpu;
    }

    /// An event loop has been told of somebody at a listener of the worker.
    pub(crate) fn mark_worker_listener(&mut self, number: u32) {
        self.worker_listeners.mark(number, self.epoll.as_ref());
    }

    /// Tells strands, by their place among the worker's, of those who wait at its listeners.
    pub(crate) fn wake_acceptors(&mut self, strand: impl FnMut(u32)) {
        self.worker_listeners.wake(strand);
    }

    /// The next connection at the worker's listeners.
    fn accept_shared(&mut self, service: u32, owner: Owner) -> io::Result<OwnedFd> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let allowed = self.allowed.get(service as usize).and_then(Option::as_deref);
        while let Some(number) = self.worker_listeners.look(service, owner.local) {
            let fd = self.worker_listeners.fd(number).ok_or(io::ErrorKind::NotFound)?;
            match rustix::net::acceptfrom_with(fd, flags) {
                Ok((fd, from)) => {
                    let from = from.and_then(|from| SocketAddr::try_from(from).ok());
                    if self.partners.accepts(from) && is_expected(from, allowed) {
                        self.worker_listeners.accepted(number);
                        return Ok(fd);
                    }
                    self.rejected_connections += 1;
                }
                // Another worker may have been first.
                Err(Errno::AGAIN) => self.worker_listeners.exhausted(number),
                Err(Errno::CONNABORTED | Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.worker_listeners.wait(service, owner.local);
        Err(io::ErrorKind::WouldBlock.into())
    }

    /// An event loop has been told of somebody at a listener of a strand. `heeded`: the strand was waiting
    /// for that.
    pub(crate) fn mark_ready(&mut self, local: u32, number: u32, heeded: bool) {
        let own = self.listeners.get_mut(local as usize);
        let Some(listener) = own.and_then(|own| own.get_mut(number as usize)) else { return };
        listener.ready = true;
        let Some(unheeded) = &mut listener.unheeded else { return };
        *unheeded = if heeded { 0 } else { *unheeded + 1 };
        if *unheeded > UNHEEDED
            && let Some(epoll) = &self.epoll
        {
            let token = Token::Listener { local, number };
            // A failure leaves it as it was: a loop that does not sleep, but works.
            if make_edge_triggered(epoll, &listener.fd, token).is_ok() {
                listener.unheeded = None;
            }
        }
    }

    /// Takes in a connection that came by the inbox.
    pub(crate) fn arrived(&mut self, arrival: Arrival) {
        let key = (arrival.hello.group, arrival.hello.strand);
        self.arrivals.entry(key).or_default().push_back(arrival);
    }

    /// The connection that the broker has accepted for this owner.
    pub(crate) fn take_arrival(&mut self, owner: Owner) -> io::Result<Arrival> {
        let arrival = match self.blocking {
            true => self.mailbox.take(owner),
            false => self
                .arrivals
                .get_mut(&(owner.group, owner.strand))
                .and_then(|queue| mailbox::take(queue, owner)),
        };
        arrival.ok_or_else(|| io::ErrorKind::WouldBlock.into())
    }

    /// The listeners of a strand, by number.
    pub(crate) fn listeners_of(&self, local: u32) -> impl Iterator<Item = (u32, &Listener)> {
        (0u32..).zip(self.listeners.get(local as usize).into_iter().flatten())
    }

    /// The listeners of a strand for a service.
    pub(crate) fn listeners(&self, service: u32, local: u32) -> impl Iterator<Item = &OwnedFd> {
        let own = self.listeners.get(local as usize).into_iter().flatten();
        own.filter(move |listener| listener.service == service).map(|listener| &listener.fd)
    }

    /// Takes the listeners of a strand for a service, for an engine that accepts there by other
    /// means.
    pub(crate) fn take_listeners(&mut self, service: u32, local: u32) -> Vec<OwnedFd> {
        let Some(own) = self.listeners.get_mut(local as usize) else { return Vec::new() };
        let taken = own.extract_if(.., |listener| listener.service == service);
        taken.map(|listener| listener.fd).collect()
    }

    /// Whether a listener of a service may only be asked to accept when poll(2) finds it ready.
    pub(crate) fn polls_before_accept(&self, service: u32) -> bool {
        self.services[service as usize].transport.polls_before_accept()
    }

    /// Whether clients of a service connect more than once.
    pub(crate) fn reconnects(&self, service: u32) -> bool {
        self.services[service as usize].described.reconnects
    }

    /// Whether a step's connections come to listeners of the strand's own.
    pub(crate) fn accepts_itself(&self, open: &Open) -> bool {
        let here = self.endpoints.hosts.get(self.host as usize);
        let service = here.and_then(|host| host.services.get(open.service.service as usize));
        service.is_some_and(|service| service.identity == Identity::Address)
    }

    /// Whether a connection that a strand's own listener has accepted may be one of the run's. One
    /// that may not is counted.
    pub(crate) fn check_peer(&mut self, service: u32, fd: &OwnedFd) -> bool {
        let allowed = self.allowed.get(service as usize).and_then(Option::as_deref);
        if self.partners == Partners::OfRun && allowed.is_none() {
            return true;
        }
        let from = socket2::SockRef::from(fd).peer_addr().ok().and_then(|from| from.as_socket());
        let expected = self.partners.accepts(from) && is_expected(from, allowed);
        self.rejected_connections += u64::from(!expected);
        expected
    }

    /// The next connection at the strand's own listeners.
    pub(crate) fn accept_own(&mut self, service: u32, owner: Owner) -> io::Result<OwnedFd> {
        if self.worker_listeners.has(service) {
            return self.accept_shared(service, owner);
        }
        let flags = if self.blocking {
            SocketFlags::CLOEXEC
        } else {
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK
        };
        let polls = self.polls_before_accept(service);
        let allowed = self.allowed.get(service as usize).and_then(Option::as_deref);
        // One listener blocks in accept(2) itself.
        let single = !polls && self.listeners(service, owner.local).nth(1).is_none();
        if self.blocking && !single {
            wait_for_any(self.listeners(service, owner.local))?;
        }
        let own = self.listeners.get_mut(owner.local as usize).into_iter().flatten();
        for listener in own.filter(|listener| listener.service == service) {
            // Of several addresses somebody waits at one, and asking the others takes a call each.
            if self.only_ready && !listener.ready {
                continue;
            }
            // Until it is empty: the event that told of a stranger tells of those behind it too.
            while !polls || is_ready(&listener.fd)? {
                match rustix::net::acceptfrom_with(&listener.fd, flags) {
                    Ok((fd, from)) => {
                        let from = from.and_then(|from| SocketAddr::try_from(from).ok());
                        if self.partners.accepts(from) && is_expected(from, allowed) {
                            // Of who else waits there the next event tells.
                            listener.ready = listener.unheeded.is_none();
                            return Ok(fd);
                        }
                        self.rejected_connections += 1;
                    }
                    Err(Errno::AGAIN) => break,
                    Err(Errno::CONNABORTED | Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            listener.ready = false;
        }
        Err(io::ErrorKind::WouldBlock.into())
    }

    /// Begins to connect.
    pub(super) fn connect(
        &mut self,
        (open, owner): (&Open, Owner),
        attempt: u64,
        settings: &mut SettingsLog,
    ) -> io::Result<Socket> {
        if self.connecting >= CONNECTING {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let reference = open.service;
        let peer = self.endpoints.hosts.get(reference.host as usize);
        let service = peer
            .and_then(|host| host.services.get(reference.service as usize))
            .ok_or_else(|| io::Error::other("the peer has not said where it listens"))?;
        let first = service.of_strand.get(owner.strand as usize).copied().unwrap_or(0);
        let place = u64::from(first) + attempt % u64::from(service.per_strand.max(1));
        let address = service
            .addresses
            .get(place as usize)
            .ok_or_else(|| io::Error::other("the peer listens at no address for this strand"))?;
        let data = service.data_address();
        let transport = self.transport(open)?;
        let hello = (service.identity == Identity::Hello).then_some(Hello {
            run: self.run,
            group: owner.group,
            strand: owner.strand,
            id: owner.id,
            ordinal: owner.ordinal,
            cookie: 0,
        });
        let destination = data.as_ref().unwrap_or(address);
        let placed = self.destination(open, (owner.strand, attempt), destination)?;
        let mut search = None;
        let connected = match placed {
            None => transport.connect(address, &open.setup),
            Some((Placed::ByTable(by_table), from, to)) => {
                let sources = by_table.ports(from.to_canonical(), to);
                let greeted = if data.is_some() { address } else { &Address::Inet(to) };
                let connected = from_one_of(sources, transport, greeted, &open.setup);
                settings.placed((owner, reference.host), Some(by_table.queue()), None);
                connected
            }
            Some((Placed::ByObservation(wanted), from, to)) => {
                let greeted = if data.is_some() { address.clone() } else { Address::Inet(to) };
                let mut found =
                    Search::new(wanted, (owner, attempt), greeted, from.to_canonical(), open);
                let connected = found.next_connection(transport);
                search = Some(Box::new(found));
                connected
            }
        };
        let fd = connected.map_err(|error| {
            self.failed_connections += 1;
            at_address(error, address)
        })?;
        let inet = |address: &Address| match address {
            Address::Inet(address) => Some(*address),
            Address::Unix(_) | Address::Vsock { .. } => None,
        };
        let (peer_address, data) = (inet(destination), data.as_ref().and_then(inet));
        let known_by = match self.has_events && transport.tells_connected() {
            true => KnownBy::AwaitedEvent,
            false => KnownBy::Call,
        };
        let mut socket = admit(fd, transport, State::Connecting(known_by));
        socket.greeting =
            hello.map(|hello| Box::new(Greeting { hello, data, repeat: 0, repeated: 0, search }));
        if !socket.reliable {
            socket.peer = peer_address.map(Box::new);
        }
        if socket.secure {
            let certificate = peer.and_then(|host| host.certificate.as_deref());
            let session =
                self.security.connect(reference.host, certificate, &open.setup.options)?;
            socket.session = Some(Box::new(RefCell::new(session)));
        }
        settings.read(&socket, open, self.epoll.as_ref());
        socket.connecting = true;
        self.connecting += 1;
        Ok(socket)
    }

    /// Where the profile places a connection: to which queue, and from and to which addresses.
    fn destination(
        &self,
        open: &Open,
        of: (u32, u64),
        address: &Address,
    ) -> io::Result<Option<(Placed, IpAddr, SocketAddr)>> {
        let Address::Inet(mut to) = *address else { return Ok(None) };
        // IPv4 in IPv6 goes as IPv4.
        to.set_ip(to.ip().to_canonical());
        let observed = self.observed.get();
        let Some(destination) =
            Placed::of(open, &self.endpoints, observed, of, to).map_err(io::Error::other)?
        else {
            return Ok(None);
        };
        let bound = open.setup.options.bind.as_ref().and_then(|bind| bind.parse().ok());
        let from: IpAddr = bound.map_or_else(|| source_address(to.ip()), Ok)?;
        Ok(Some((destination, from, to)))
    }

    fn transport(&self, open: &Open) -> io::Result<&'static dyn Transport> {
        match self.transports.of(open.row) {
            Some(transport) => Ok(*transport),
            None => Err(not_built(open.protocol.name())),
        }
    }

    /// Takes the next connection for this owner, wherever it arrives.
    pub(super) fn accept(
        &mut self,
        open: &Open,
        owner: Owner,
        settings: &mut SettingsLog,
    ) -> io::Result<(Socket, u32)> {
        let service = open.service.service;
        self.awaits_broker = !self.accepts_itself(open);
        let (fd, hello) = if !self.awaits_broker {
            (self.accept_own(service, owner)?, None)
        } else {
            let arrival = self.take_arrival(owner)?;
            (arrival.socket, Some(arrival.hello))
        };
        let ordinal = hello.map_or(owner.ordinal, |hello| hello.ordinal);
        Ok((self.accepted(open, fd, hello, settings)?, ordinal))
    }

    /// Makes a connection that has been accepted one of a strand's.
    pub(crate) fn accepted(
        &mut self,
        open: &Open,
        fd: OwnedFd,
        hello: Option<Hello>,
        settings: &mut SettingsLog,
    ) -> io::Result<Socket> {
        let transport = self.transport(open)?;
        transport.accepted(&fd, &open.setup)?;
        if self.worker_listeners.has(open.service.service) {
            self.note_cpu(&fd);
        }
        let mut socket = admit(fd, transport, State::Securing);
        let clients = self.services.get(open.service.service as usize);
        socket.clients = clients.and_then(|service| service.clients.clone());
        // What all workers read from is one socket.
        socket.counts_drops = ServerSockets.shared(&open.setup.options) != Some(Policy::Shared)
            || hello.is_none_or(|hello| hello.strand == 0);
        if !socket.reliable {
            let peer = socket2::SockRef::from(&socket.fd).peer_addr();
            socket.peer = peer.ok().and_then(|address| address.as_socket()).map(Box::new);
        }
        if socket.secure {
            if self.blocking {
                block(&socket.fd)?;
            }
            let session = self.security.accept(&open.setup.options)?;
            socket.session = Some(Box::new(RefCell::new(session)));
        } else {
            self.open(&mut socket, settings)?;
        }
        if let (false, Some(hello), None) = (socket.reliable, hello, &socket.clients) {
            rustix::net::send(&socket.fd, &hello.welcome(), SendFlags::empty())?;
        }
        if source_ports::has_placement(&open.setup.options) {
            socket.placed = hello.map(|hello| (self.host, hello.group, hello.strand));
        }
        settings.read(&socket, open, self.epoll.as_ref());
        Ok(socket)
    }

    /// Adds the connections that were accepted at listeners of the worker.
    pub(crate) fn add_accepted(&self, io: &mut IoCounts) {
        io.accepted_on_own_cpu += self.on_own_cpu;
        io.accepted_on_other_cpu += self.on_other_cpu;
    }

    /// Counts whether the CPU of the worker has handled the packets of a new connection. The kernel notes the CPU when
    /// it makes the socket: <https://elixir.bootlin.com/linux/v6.12/source/net/core/sock.c#L2338> (`sk_clone_lock`)
    fn note_cpu(&mut self, fd: &OwnedFd) {
        let Some(own) = self.cpu else { return };
        if let Ok(cpu) = socket2::SockRef::from(fd).cpu_affinity() {
            let counted = match cpu == own as usize {
                true => &mut self.on_own_cpu,
                false => &mut self.on_other_cpu,
            };
            *counted += 1;
        }
    }

    /// Has the epoll, where there is one, tell of a connection from now on. What does not have to wait for
    /// anything in all its life takes no call for this.
    pub(crate) fn watch(&self, socket: &Socket, token: Token) -> io::Result<()> {
        if let Some(epoll) = &self.epoll
            && !socket.watched.replace(true)
        {
            register(epoll, &socket.fd, token, Trigger::Edge)?;
        }
        Ok(())
    }

    /// How far a connection is.
    pub(super) fn opening(
        &mut self,
        socket: &mut Socket,
        settings: &mut SettingsLog,
    ) -> io::Result<Opening> {
        let result = self.progress(socket, settings);
        match &result {
            Ok(Opening::Done) => self.connected(socket),
            Ok(Opening::Wait(..)) => {}
            Err(_) => self.failed_connections += 1,
        }
        result
    }

    fn progress(&mut self, socket: &mut Socket, settings: &mut SettingsLog) -> io::Result<Opening> {
        loop {
            // A connection that the wrong CPU handles is given up for another one.
            if let Some(opening) = self.step(socket, settings)? {
                return Ok(opening);
            }
        }
    }

    /// The next step of opening a connection; `None` where another one follows at once.
    fn step(
        &mut self,
        socket: &mut Socket,
        settings: &mut SettingsLog,
    ) -> io::Result<Option<Opening>> {
        let now = Monotonic.now();
        let opening = match socket.state {
            State::Open => Opening::Done,
            State::Connecting(known_by) => {
                match known_by {
                    KnownBy::Event => {}
                    KnownBy::AwaitedEvent => {
                        // If it does not come in time, or tells of an error.
                        socket.state = State::Connecting(KnownBy::Call);
                        return Ok(Some(Opening::Wait(Interest::Writable, None)));
                    }
                    KnownBy::Call if rustix::net::getpeername(&socket.fd).is_ok() => {}
                    KnownBy::Call => match rustix::net::sockopt::socket_error(&socket.fd)? {
                        Ok(()) => return Ok(Some(Opening::Wait(Interest::Writable, None))),
                        Err(error) => return Err(error.into()),
                    },
                }
                let greeting = socket.greeting.as_mut();
                if let Some(Greeting { hello, data, search: Some(search), .. }) =
                    greeting.map(|g| &mut **g)
                {
                    let repeat = search.ask(&socket.fd, (*hello, socket.reliable, *data), now)?;
                    socket.state = State::Probing;
                    return Ok(Some(Opening::Wait(Interest::Readable, Some(repeat))));
                }
                return self.greet(socket, settings, now).map(Some);
            }
            State::Probing => {
                let greeting = socket.greeting.as_mut().ok_or(io::ErrorKind::NotConnected)?;
                let search = greeting.search.as_mut().ok_or(io::ErrorKind::NotConnected)?;
                match search.progress(&socket.fd, now)? {
                    Heard::Nothing(until) => Opening::Wait(Interest::Readable, Some(until)),
                    Heard::Cpu(cpu) if cpu == search.wanted() => {
                        greeting.hello = search.hello().unwrap_or(greeting.hello);
                        // The socket is connected to where data goes.
                        greeting.data = None;
                        settings.placed(search.of(), None, Some((cpu, search.tried())));
                        greeting.search = None;
                        self.greet(socket, settings, now)?
                    }
                    Heard::Cpu(cpu) => {
                        search.abandon(&socket.fd, cpu)?;
                        socket.fd = search.next_connection(socket.transport)?;
                        if socket.is_stamped() {
                            receive_stamps::enable(&socket.fd)?;
                        }
                        socket.watched.set(false);
                        socket.state = State::Connecting(KnownBy::Call);
                        return Ok(None);
                    }
                }
            }
            State::Securing => self.secure(socket, settings)?,
            State::Greeting => {
                let greeting = socket.greeting.as_mut().ok_or(io::ErrorKind::NotConnected)?;
                let mut buffer = [0u8; hello::LENGTH + 1];
                match rustix::net::recv(&socket.fd, &mut buffer, RecvFlags::DONTWAIT) {
                    Ok((got, _)) if buffer[..got] == greeting.hello.welcome() => {
                        self.open(socket, settings)?;
                        return Ok(Some(Opening::Done));
                    }
                    Ok((got, _)) => {
                        if let Some(hello) = greeting.hello.challenged(&buffer[..got]) {
                            greeting.hello = hello;
                            let repeat = greeting.send(&socket.fd, now)?;
                            return Ok(Some(Opening::Wait(Interest::Readable, Some(repeat))));
                        }
                        // A late answer to a probe; another datagram may be behind it.
                        return Ok(None);
                    }
                    Err(Errno::AGAIN | Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
                let mut repeat = greeting.repeat;
                if now >= repeat {
                    greeting.repeated += u32::from(greeting.hello.cookie != 0);
                    if greeting.repeated > UNANSWERED {
                        self.open(socket, settings)?;
                        return Ok(Some(Opening::Done));
                    }
                    repeat = greeting.send(&socket.fd, now)?;
                }
                Opening::Wait(Interest::Readable, Some(repeat))
            }
        };
        Ok(Some(opening))
    }

    /// Says on a connected socket whose connection it is, where that is to be said.
    fn greet(
        &self,
        socket: &mut Socket,
        settings: &mut SettingsLog,
        now: Nanos,
    ) -> io::Result<Opening> {
        if let Some(greeting) = &mut socket.greeting {
            if !socket.reliable {
                let repeat = greeting.send(&socket.fd, now)?;
                socket.state = State::Greeting;
                return Ok(Opening::Wait(Interest::Readable, Some(repeat)));
            }
            // Fits the empty send buffer of a new connection whole.
            rustix::net::send(&socket.fd, &greeting.hello.bytes(), SendFlags::NOSIGNAL)?;
        }
        self.secure(socket, settings)
    }

    /// Continues the TLS handshake, where there is to be one, and opens.
    fn secure(&self, socket: &mut Socket, settings: &mut SettingsLog) -> io::Result<Opening> {
        if let Some(mut session) = socket.session.take() {
            let waits = session.get_mut().handshake(&socket.fd)?;
            socket.state = State::Securing;
            if let Some(on) = waits {
                socket.session = Some(session);
                return Ok(Opening::Wait(on, None));
            }
            let session = session.into_inner();
            settings.add([session.effective()]);
            if session.is_for_kernel() {
                session.hand_over(&socket.fd)?;
                settings.add([EffectiveSetting {
                    name: "ktls",
                    requested: "send, receive".to_owned(),
                    effective: "send, receive".to_owned(),
                }]);
            } else {
                socket.session = Some(Box::new(RefCell::new(session)));
            }
        }
        self.open(socket, settings)?;
        Ok(Opening::Done)
    }

    fn open(&self, socket: &mut Socket, settings: &mut SettingsLog) -> io::Result<()> {
        settings.add(socket.transport.opened(&socket.fd)?);
        socket.state = State::Open;
        if let Some(Greeting { data: Some(data), .. }) = socket.greeting.take().as_deref() {
            socket2::SockRef::from(&socket.fd).connect(&(*data).into())?;
        }
        if self.blocking {
            block(&socket.fd)?;
        }
        Ok(())
    }

    /// A connection no longer counts among those that are connecting.
    fn connected(&mut self, socket: &mut Socket) {
        if std::mem::take(&mut socket.connecting) {
            self.connecting = self.connecting.saturating_sub(1);
        }
    }

    /// Counts what is only known at the end of a connection.
    pub(super) fn closed(&mut self, socket: &mut Socket, settings: &mut SettingsLog) {
        self.connected(socket);
        settings.arrived(socket);
        settings.add(socket.transport.closing(&socket.fd));
        if !self.reads_closing && socket.transport.protocol().has_tcp_info() {
            self.closed_unread += 1;
        } else if let Some(info) = socket.tcp_info() {
            self.closed_segments.add(&info);
        }
        self.closed_drops += u64::from(socket.receive_drops());
    }
}

/// Ports that are tried for a connection. Each that somebody has takes four system calls.
const PORTS_TRIED: usize = 256;

/// Connects from the first of these ports that nobody has.
fn from_one_of(
    sources: impl Iterator<Item = SocketAddr>,
    transport: &'static dyn Transport,
    address: &Address,
    setup: &SocketSetup,
) -> io::Result<OwnedFd> {
    let attempt = |from| match transport.connect_from(from, address, setup) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => None,
        // The last connection between the two ports has closed less than a minute ago.
        Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => None,
        done => Some(done),
    };
    let mut tried = sources.take(PORTS_TRIED);
    tried.find_map(attempt).unwrap_or_else(|| Err(Errno::ADDRINUSE.into()))
}

fn admit(fd: OwnedFd, transport: &'static dyn Transport, state: State) -> Socket {
    let longest_send = transport.longest_send(&fd);
    let protocol = transport.protocol();
    Socket {
        fd,
        transport,
        reliable: protocol.delivery().is_reliable(),
        reads_plainly: protocol.delivery().is_reliable(),
        sampling: Sampling::Off,
        secure: protocol.is_secure(),
        has_low_water: transport.has_low_water(),
        peer: None,
        clients: None,
        counts_drops: true,
        greeting: None,
        state,
        session: None,
        longest_send,
        connecting: false,
        watched: Cell::new(false),
        placed: None,
        greeted_again: Cell::new(false),
        io: IoState::default(),
    }
}

/// Internet addresses that the clients of a service connect from; none where no client has said.
fn allowed(service: &Service, endpoints: &Endpoints) -> Option<Vec<IpAddr>> {
    let hosts = service.clients.iter().filter_map(|&client| endpoints.hosts.get(client as usize));
    let mut addresses = hosts.flat_map(|host| &host.connects_from).peekable();
    addresses.peek()?;
    let inet = addresses.filter_map(|address| match address {
        Address::Inet(address) => Some(address.ip().to_canonical()),
        Address::Unix(_) | Address::Vsock { .. } => None,
    });
    Some(inet.collect())
}

/// Whether a connection from there may be one of the run's: all that is known are the addresses its
/// hosts have said they connect from (none said: anything goes).
fn is_expected(from: Option<SocketAddr>, allowed: Option<&[IpAddr]>) -> bool {
    let (Some(from), Some(allowed)) = (from, allowed) else { return true };
    let from = from.ip().to_canonical();
    from.is_loopback() || allowed.contains(&from)
}

/// The transport of this name.
///
/// # Errors
/// When this version has none.
pub(crate) fn transport(name: &str) -> io::Result<&'static dyn Transport> {
    transports::find(name).ok_or_else(|| not_built(name))
}

fn not_built(name: &str) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, format!("protocol {name} is not built"))
}

fn is_ready(listener: &OwnedFd) -> io::Result<bool> {
    let mut fds = [PollFd::new(listener, PollFlags::IN)];
    Ok(rustix::event::poll(&mut fds, Some(&timespec(0)))? > 0)
}

/// Waits for a while until somebody is at one of these listeners.
fn wait_for_any<'a>(listeners: impl Iterator<Item = &'a OwnedFd>) -> io::Result<()> {
    let mut fds: Vec<PollFd<'_>> =
        listeners.map(|listener| PollFd::new(listener, PollFlags::IN)).collect();
    rustix::event::poll(&mut fds, Some(&timespec(nanos(BLOCKED))))?;
    Ok(())
}

/// Makes a socket block, but not for ever.
fn block(fd: &OwnedFd) -> io::Result<()> {
    let socket = socket2::SockRef::from(fd);
    socket.set_nonblocking(false)?;
    socket.set_read_timeout(Some(BLOCKED))?;
    socket.set_write_timeout(Some(BLOCKED))
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
        Some(Errno::ADDRINUSE) => {
            ": no port that `placement` allows is free; open fewer connections, or use placement=random"
        }
        Some(Errno::ACCESS | Errno::PERM) => ": a firewall or a policy of this host forbids it",
        _ => "",
    };
    io::Error::new(error.kind(), format!("{address}: {error}{remedy}"))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpStream, UdpSocket};

    use rustix::event::epoll;
    use wirecost_model::profile::Options;

    use super::*;
    use crate::permissions::Permissions;

    const OWNER: Owner = Owner { group: 0, strand: 0, local: 0, slot: 0, id: 0, ordinal: 0 };

    /// Listens, with an epoll that tells; its clients connect once or `reconnects`.
    fn listening(reconnects: bool) -> (Opener, SocketAddr) {
        let service = Service {
            group: 0,
            protocol: "tcp".to_owned(),
            port: None,
            conns_per_strand: 1,
            reconnects,
            clients: Vec::new(),
            options: Options::default(),
        };
        let mut opener = Opener::new(&Common {
            blocking: false,
            run: 1,
            host: 0,
            services: OwnService::all(&[service]).unwrap(),
            mailbox: Arc::default(),
            files: Arc::new([]),
            streams: Arc::new([]),
            permissions: Permissions::default(),
            credentials: None,
            observed: Arc::default(),
        });
        opener.set_epoll(epoll::create(epoll::CreateFlags::CLOEXEC).unwrap());
        opener.accept_only_when_ready();
        let any = Address::Inet("127.0.0.1:0".parse().unwrap());
        let bound = opener.listen(0, OWNER, &[any]).unwrap();
        let [Address::Inet(address)] = bound[..] else { panic!("{bound:?}") };
        (opener, address)
    }

    /// Its client has had the first answer, and closed the connection since.
    #[test]
    fn the_answer_to_a_repeated_hello_may_be_refused() {
        let [client, server] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        server.connect(client.local_addr().unwrap()).unwrap();
        let hello = Hello { run: 1, group: 0, strand: 0, id: 0, ordinal: 0, cookie: 0 };
        let socket = admit(server.into(), transport("udp").unwrap(), State::Open);
        drop(client);
        // The second one is told of the refusal of the first, and not sent.
        for _ in 0..3 {
            let again = crate::sockets::late_greeting(&socket, &hello.bytes(), 1).unwrap();
            assert_eq!(again.kind(), io::ErrorKind::Interrupted);
        }
        // For traffic this error would mean that the other end is gone.
        let refused = io::Error::from(rustix::io::read(&socket.fd, &mut [0; 64]).unwrap_err());
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        assert!(socket.take_hello_refusal(&refused));
        assert!(!socket.take_hello_refusal(&refused));
    }

    /// The far end has the connection, and its strand does not read: nobody answers a repeated hello.
    #[test]
    fn a_connection_whose_welcome_was_lost_opens() {
        let [client, server] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        client.connect(server.local_addr().unwrap()).unwrap();
        server.set_nonblocking(true).unwrap();
        let (mut opener, _) = listening(false);
        let mut settings = SettingsLog::default();
        let mut repeats_of = |cookie| {
            let hello = Hello { run: 1, group: 0, strand: 0, id: 0, ordinal: 0, cookie };
            let fd = client.try_clone().unwrap().into();
            let mut socket = admit(fd, transport("udp").unwrap(), State::Greeting);
            socket.greeting = Some(Box::new(Greeting {
                hello,
                data: None,
                repeat: 0,
                repeated: 0,
                search: None,
            }));
            let mut turns = 0;
            while turns < 50
                && opener.progress(&mut socket, &mut settings).unwrap() != Opening::Done
            {
                turns += 1;
                // Time passes.
                socket.greeting.as_mut().unwrap().repeat = 0;
            }
            let mut came = 0;
            while server.recv(&mut [0; 64]).is_ok() {
                came += 1;
            }
            (socket.is_open(), came)
        };
        assert_eq!(repeats_of(7), (true, UNANSWERED));
        // Without a challenge nobody is known to be there.
        assert_eq!(repeats_of(0), (false, 50));
    }

    /// Looks once, and returns how often it was told of the listener; a strand waits for that or does not.
    fn looks(opener: &mut Opener, heeded: bool) -> usize {
        let mut events = Vec::with_capacity(8);
        let epoll = opener.epoll().unwrap();
        epoll::wait(epoll, rustix::buffer::spare_capacity(&mut events), Some(&timespec(0)))
            .unwrap();
        for event in &events {
            assert_eq!(Token::unpack(event.data), Token::Listener { local: 0, number: 0 });
            opener.mark_ready(0, 0, heeded);
        }
        events.len()
    }

    #[test]
    fn who_waits_behind_another_is_told_of_again() {
        for reconnects in [true, false] {
            let (mut opener, address) = listening(reconnects);
            let _clients = [(); 3].map(|()| TcpStream::connect(address).unwrap());
            for _ in 0..3 {
                looks(&mut opener, true);
                let accepted = opener.accept_own(0, OWNER);
                assert!(accepted.is_ok(), "{reconnects}: {accepted:?}");
                // Where it will be told of again nobody is asked until then.
                let asks = opener.listeners_of(0).any(|(_, listener)| listener.ready);
                assert_eq!(asks, !reconnects);
            }
            assert_eq!(looks(&mut opener, true), 0);
            let none = opener.accept_own(0, OWNER).map_err(|error| error.kind());
            assert_eq!(none.err(), Some(io::ErrorKind::WouldBlock));
        }
    }

    #[test]
    fn a_listener_whose_strand_does_not_accept_lets_the_loop_sleep() {
        for reconnects in [true, false] {
            let (mut opener, address) = listening(reconnects);
            let _first = TcpStream::connect(address).unwrap();
            let told: usize = (0..10 * UNHEEDED).map(|_| looks(&mut opener, false)).sum();
            assert!((1..=UNHEEDED as usize + 2).contains(&told), "{told}");
            // The next one is told of all the same, and nobody is forgotten.
            let _second = TcpStream::connect(address).unwrap();
            assert_eq!(looks(&mut opener, true), 1);
            assert!(opener.accept_own(0, OWNER).is_ok() && opener.accept_own(0, OWNER).is_ok());
        }
    }
}
