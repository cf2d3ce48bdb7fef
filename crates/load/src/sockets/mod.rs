//! The real network: what a strand asks of [`Net`], done with sockets. Each part of [`Sockets`] has
//! one file and owns what it works with.

mod by_step;
mod data;
mod file_requests;
mod files;
pub mod flows_by_cpu;
mod io_state;
mod mailbox;
mod observed;
mod opening;
mod pipes;
mod probe;
mod served;
mod settings;
mod sink;
mod source_ports;
mod stamps;
mod stream;
mod token;
mod worker_listeners;

use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};

use rustix::net::Shutdown;
use wirecost_linux::clock::Monotonic;
use wirecost_linux::sockopt;
use wirecost_linux::tcp_info::TcpInfo;
use wirecost_model::clock::{Clock, Nanos};
use wirecost_model::plan::Endpoints;
use wirecost_model::receive_stamps::StampCounts;
use wirecost_program::calls::KernelReceive;
use wirecost_program::files::StreamPart;
use wirecost_program::net::{FromClient, Net, Opening, Owner};
use wirecost_program::payload::DatagramBatch;
use wirecost_program::step::{Group, Open, ReceiveCall, SendCall};

use self::data::DataPath;
use self::files::OpenFiles;
use self::io_state::IoState;
use self::opening::{Greeting, KnownBy, Opener, State};
use self::settings::SettingsLog;
use self::stamps::{Sampling, Stamps};
use crate::clients::Clients;
use crate::permissions::Permissions;
use crate::stream_files::StreamFiles;
use crate::tls::{Credentials, Session};
use crate::transports::Transport;

pub(crate) use self::data::late_greeting;
pub(crate) use self::file_requests::check as check_file_rings;
pub(crate) use self::files::SourceFiles;
pub(crate) use self::io_state::allow_departures;
pub(crate) use self::mailbox::{Arrival, Mailbox};
pub(crate) use self::observed::ObservedFlows;
pub(crate) use self::opening::{OwnService, transport};
pub(crate) use self::sink::bytes_of_worker as sink_bytes;
pub(crate) use self::source_ports::{finds_flows, has_placement, observe_flows};
pub(crate) use self::token::{Token, Trigger, register};

/// An open or opening connection.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
    transport: &'static dyn Transport,
    /// Whether all that is sent arrives, in order.
    reliable: bool,
    /// Whether read(2) receives from it, as from a stream without stamps.
    reads_plainly: bool,
    /// Whether the kernel stamps what comes to it.
    sampling: Sampling,
    /// Whether it carries a TLS session, of this program or of the kernel.
    secure: bool,
    /// Whether a wait for bytes can be for many of them.
    has_low_water: bool,
    /// Where sendto sends datagrams to.
    peer: Option<Box<SocketAddr>>,
    /// Who sends to it, where it is not connected: it receives from any of them.
    clients: Option<Arc<Clients>>,
    /// Whether what the kernel dropped at the socket is counted here.
    counts_drops: bool,
    state: State,
    /// The hello, until the connection is open.
    greeting: Option<Box<Greeting>>,
    /// Encrypts and decrypts, where the kernel does not.
    session: Option<Box<RefCell<Session>>>,
    /// Bytes that one call may at most be given to send.
    longest_send: usize,
    /// Whether it counts among those that are connecting.
    connecting: bool,
    /// Whether the worker's epoll tells of it, as it does once it has been waited for.
    watched: Cell<bool>,
    /// This host's number, the group and the strand, where the other end chose where its packets arrive here.
    placed: Option<(u32, u32, u32)>,
    /// Whether a repeated hello has been answered. Its sender may have had the first answer, and closed the
    /// connection.
    greeted_again: Cell<bool>,
    io: IoState,
}

impl Socket {
    pub(crate) fn tcp_info(&self) -> Option<TcpInfo> {
        self.transport.tcp_info(&self.fd)
    }

    pub(crate) fn receive_drops(&self) -> u32 {
        if self.reliable || !self.counts_drops {
            0
        } else {
            sockopt::receive_drops(&self.fd).unwrap_or(0)
        }
    }

    pub(crate) fn buffer_bytes(&self) -> u64 {
        sockopt::buffer_bytes(&self.fd).unwrap_or(0)
    }

    pub(crate) fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    pub(crate) fn is_reliable(&self) -> bool {
        self.reliable
    }

    /// An event has told that bytes can be sent on it.
    pub(crate) fn note_writable(&mut self) {
        if let State::Connecting(known_by) = &mut self.state {
            *known_by = KnownBy::Event;
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        matches!(self.state, State::Open)
    }

    /// See [`Net::take_hello_refusal`].
    pub(crate) fn take_hello_refusal(&self, error: &io::Error) -> bool {
        error.kind() == io::ErrorKind::ConnectionRefused && self.greeted_again.take()
    }

    fn is_stamped(&self) -> bool {
        self.sampling == Sampling::On
    }

    /// See [`Transport::bypasses_ring`].
    pub(crate) fn bypasses_ring(&self) -> bool {
        self.is_stamped() || self.transport.bypasses_ring()
    }

    /// Whether several clients send to it.
    pub(crate) fn is_served(&self) -> bool {
        self.clients.is_some()
    }
}

/// The sockets of one worker.
#[derive(Debug)]
pub struct Sockets {
    pub(crate) opener: Opener,
    pub(crate) data: DataPath,
    files: OpenFiles,
    pub(crate) settings: SettingsLog,
}

/// What the sockets of all workers of an agent have in common.
#[derive(Debug, Clone)]
pub(crate) struct Common {
    /// Calls on connections block for a while, instead of returning "would block".
    pub(crate) blocking: bool,
    pub(crate) run: u32,
    pub(crate) host: u32,
    pub(crate) services: Arc<[OwnService]>,
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) files: Arc<[SourceFiles]>,
    pub(crate) streams: Arc<[StreamFiles]>,
    pub(crate) permissions: Permissions,
    /// Of the host, where it has TLS services.
    pub(crate) credentials: Option<Arc<Credentials>>,
    /// Services of peers whose CPUs are observed; set before workers connect.
    pub(crate) observed: Arc<OnceLock<ObservedFlows>>,
}

impl Sockets {
    /// `buffer`: bytes of the largest read.
    pub(crate) fn new(common: &Common, buffer: usize) -> Self {
        Self {
            opener: Opener::new(common),
            data: DataPath::new(common.blocking, common.run, buffer),
            files: OpenFiles::new(common),
            settings: SettingsLog::default(),
        }
    }

    /// Learns where others listen and what will be run, and resolves all that steps name.
    pub(crate) fn set_endpoints(&mut self, endpoints: Arc<Endpoints>, groups: &[Group]) {
        self.opener.set_endpoints(endpoints, groups);
    }

    /// A phase with this window begins.
    pub(crate) fn begin(&mut self, phase: u32, window: Range<Nanos>) {
        let rows = self.opener.begin(phase);
        self.opener.worker_listeners.begin();
        self.settings.begin(rows);
        self.data.begin_stamps(window);
    }

    /// Has the kernel stamp what comes to sockets of some of the worker's strands. `mine`: group and number of each,
    /// ascending; `has_own_threads`: whether each strand has a thread of its own.
    ///
    /// # Errors
    /// This kernel has no receive stamps.
    pub(crate) fn stamp(&mut self, mine: &[(u32, u32)], has_own_threads: bool) -> io::Result<()> {
        self.data.stamps = Some(Box::new(Stamps::new(mine, has_own_threads)?));
        Ok(())
    }

    /// What stamped sockets have read in the window so far; none where no stamps were asked for.
    pub(crate) fn stamp_counts(&self) -> Option<StampCounts> {
        self.data.stamp_counts()
    }

    /// Makes a connection that has been accepted one of a strand's.
    pub(crate) fn accepted(
        &mut self,
        open: &Open,
        fd: OwnedFd,
        hello: Option<wirecost_program::hello::Hello>,
        owner: Owner,
    ) -> io::Result<Socket> {
        let mut socket = self.opener.accepted(open, fd, hello, &mut self.settings)?;
        self.data.sample(&mut socket, owner.local);
        Ok(socket)
    }

    /// Counts what is only known at the end of a connection.
    pub(crate) fn note_closed(&mut self, socket: &mut Socket) {
        self.data.look_back(socket, self.settings.busy_poll() > 0);
        self.data.forget(socket);
        self.data.end_sampling(socket);
        self.opener.closed(socket, &mut self.settings);
    }

    /// At the end of a phase: reads what there is to know of these sockets, and writes what is
    /// still in memory.
    ///
    /// # Errors
    /// Those of writing to files and reading them back.
    pub(crate) fn settle<'a>(
        &mut self,
        sockets: impl Iterator<Item = &'a Socket>,
    ) -> io::Result<()> {
        let polls = self.settings.busy_poll() > 0;
        for socket in sockets {
            self.data.look_back(socket, polls);
            self.settings.arrived(socket);
        }
        self.data.settle_sinks()
    }
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
        let mut socket = self.opener.connect((open, owner), attempt, &mut self.settings)?;
        self.data.sample(&mut socket, owner.local);
        Ok(socket)
    }

    fn opening(&mut self, socket: &mut Socket) -> io::Result<Opening> {
        self.opener.opening(socket, &mut self.settings)
    }

    fn accept(&mut self, open: &Open, owner: Owner) -> io::Result<(Socket, u32)> {
        let (mut socket, ordinal) = self.opener.accept(open, owner, &mut self.settings)?;
        self.data.sample(&mut socket, owner.local);
        Ok((socket, ordinal))
    }

    #[inline]
    fn send(&mut self, socket: &Socket, bytes: &[u8], call: SendCall) -> io::Result<usize> {
        self.data.send(socket, bytes, call)
    }

    fn send_zerocopy(&mut self, socket: &Socket, bytes: &[u8], copied: usize) -> io::Result<usize> {
        self.data.send_zero_copy(socket, bytes, copied, &mut self.settings)
    }

    fn cork(&mut self, socket: &Socket, on: bool) -> io::Result<()> {
        Ok(rustix::net::sockopt::set_tcp_cork(&socket.fd, on)?)
    }

    fn send_batch(&mut self, socket: &Socket, datagrams: &DatagramBatch<'_>) -> io::Result<usize> {
        self.data.send_datagrams(socket, datagrams)
    }

    #[inline]
    fn receive(
        &mut self,
        socket: &Socket,
        size: usize,
        call: ReceiveCall,
        timed: bool,
    ) -> io::Result<&[u8]> {
        self.data.receive(socket, size, call, timed)
    }

    fn receive_from_client(
        &mut self,
        socket: &Socket,
        call: ReceiveCall,
        timed: bool,
    ) -> io::Result<FromClient<'_>> {
        self.data.receive_from_client(socket, call, timed)
    }

    fn has_received(&self, socket: &Socket) -> bool {
        self.data.has_received(socket)
    }

    fn will_answer(&mut self, socket: &Socket) {
        self.data.will_answer(socket);
    }

    fn notifies_on_new_data(&self, socket: &Socket) -> bool {
        // What has been decrypted arrived before.
        !self.data.blocking && socket.reliable && !socket.secure
    }

    fn take_hello_refusal(&self, socket: &Socket, error: &io::Error) -> bool {
        socket.take_hello_refusal(error)
    }

    fn low_water(&mut self, socket: &Socket, bytes: u64) -> io::Result<u64> {
        self.data.low_water(socket, bytes)
    }

    fn receive_in_kernel(
        &mut self,
        socket: &Socket,
        size: usize,
        call: KernelReceive,
        timed: bool,
    ) -> io::Result<usize> {
        self.data.receive_in_kernel(socket, size, call, timed)
    }

    fn send_file(
        &mut self,
        socket: &Socket,
        source: u32,
        file: usize,
        offset: u64,
        length: u64,
    ) -> io::Result<usize> {
        self.files.send((socket, &mut self.data), (source, file), offset, length)
    }

    fn send_from_file(
        &mut self,
        socket: &Socket,
        part: StreamPart,
        length: u64,
    ) -> io::Result<usize> {
        self.files.send_stream((socket, &mut self.data), part, length)
    }

    fn shut_down(&mut self, socket: &Socket) -> io::Result<()> {
        Ok(rustix::net::shutdown(&socket.fd, Shutdown::Write)?)
    }

    fn close(&mut self, mut socket: Socket, _: Owner) {
        self.note_closed(&mut socket);
    }
}
