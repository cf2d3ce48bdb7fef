//! The network of a worker whose datagrams are frames.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;
use wirecost_linux::xdp::{self, Device, FrameSocket, Mode, Path, Received};
use wirecost_model::clock::Nanos;
use wirecost_model::measure::IoCounts;
use wirecost_model::plan::Endpoints;
use wirecost_program::calls::KernelReceive;
use wirecost_program::files::StreamPart;
use wirecost_program::hello;
use wirecost_program::net::{FromClient, Net, Opening, Owner};
use wirecost_program::payload::DatagramBatch;
use wirecost_program::step::{Group, Open, ReceiveCall, SendCall};

use super::packet::{Flow, Headers};
use super::program::{Attached, WorkerProgram};
use super::{check, check_address, check_queues, longest_frame};
use crate::sockets::{Socket, Sockets, Token, Trigger, late_greeting, register};
use crate::worker::SocketNet;

/// Frames that are gathered for one call, which sends as many at most:
/// <https://elixir.bootlin.com/linux/v6.12/source/net/xdp/xsk.c#L35> (`TX_BATCH_SIZE`).
const BATCH: u32 = 32;

/// Frames that wait for a connection without further memory, and connections that wait to be told.
const WAITING: usize = 128;
const ARRIVED: usize = 2048;

/// Frames that may wait for all connections before each has to do with its share: half of the places, so that a connection
/// that does not read leaves places to the others.
const SHARED: usize = FrameSocket::PLACES as usize / 2;

/// Times that a busy device is asked to take a connection's last frames.
const LAST_ATTEMPTS: usize = 100;

/// A connection: its kernel socket, and the number of its flow of frames.
#[derive(Debug)]
pub(crate) struct FrameConnection {
    socket: Socket,
    owner: Owner,
    flow: Option<usize>,
}

/// A socket for the frames of one queue.
#[derive(Debug)]
struct Port {
    socket: FrameSocket,
    attached: Attached,
    waiting: Waiting,
    /// Frames in the transmit ring of which the kernel has not been told.
    gathered: u32,
    /// The device has not taken all that it was told of.
    busy: bool,
}

/// What a connection sends by, and what came for it.
#[derive(Debug)]
struct FlowState {
    flow: Flow,
    headers: Headers,
    /// That it sends by.
    port: usize,
    /// Where its frames come.
    receives_at: usize,
    owner: (u32, u32),
    /// Frames that came while another connection received, and where.
    waiting: VecDeque<(usize, Received, Range<usize>)>,
    /// The kernel's socket may have datagrams of it.
    in_kernel: bool,
}

/// What is the same for all frames.
#[derive(Debug)]
pub(crate) struct Carrier {
    pub(crate) mode: Mode,
    pub(crate) program: WorkerProgram,
    /// The longest datagram of the program, bytes.
    pub(crate) longest: u64,
}

/// The sockets of one worker, and those of its frames.
#[derive(Debug)]
pub(crate) struct FrameNet {
    sockets: Sockets,
    carrier: Carrier,
    /// By own address and the other host's.
    paths: HashMap<(IpAddr, IpAddr), Path>,
    frames: Frames,
    sent: u64,
    received: u64,
    received_by_kernel: u64,
}

/// The frames of one worker's connections.
#[derive(Debug)]
struct Frames {
    ports: Vec<Port>,
    flows: Vec<Option<FlowState>>,
    by_flow: HashMap<Flow, usize, BuildHasherDefault<WordHasher>>,
    /// Whose frame came last.
    last: Option<(Flow, usize)>,
    /// The frame whose bytes a strand looks at, until it receives the next one.
    lent: Option<(usize, Received)>,
    /// Connections for which frames came while another received: strand and slot.
    arrived: Vec<(u32, u32)>,
}

/// Frames in the memory of a socket that wait for their connections.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// Of all connections.
    pub(super) frames: usize,
    /// Frames that connections left unread for too long.
    pub(super) dropped: u64,
}

impl Waiting {
    /// Whether another frame may wait for one of so many connections, for which some wait already.
    pub(super) fn admits(&mut self, of_connection: usize, connections: usize) -> bool {
        let share = (SHARED / connections.max(1)).max(1);
        let admits = self.frames < SHARED || of_connection < share;
        match admits {
            true => self.frames += 1,
            false => self.dropped += 1,
        }
        admits
    }
}

/// Mixes words by multiplication: keys are addresses of the run's own connections.
#[derive(Debug, Default)]
struct WordHasher(u64);

impl Hasher for WordHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for word in bytes.chunks(8) {
            let mut padded = [0; 8];
            padded[..word.len()].copy_from_slice(word);
            let mixed = (self.0 ^ u64::from_ne_bytes(padded)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            self.0 = mixed ^ mixed >> 29;
        }
    }
}

impl FrameNet {
    pub(crate) fn new(sockets: Sockets, carrier: Carrier) -> Self {
        Self {
            sockets,
            carrier,
            paths: HashMap::new(),
            frames: Frames {
                ports: Vec::new(),
                flows: Vec::new(),
                by_flow: HashMap::default(),
                last: None,
                lent: None,
                arrived: Vec::with_capacity(ARRIVED),
            },
            sent: 0,
            received: 0,
            received_by_kernel: 0,
        }
    }

    /// An open connection: from now on its datagrams are frames.
    fn carry(&mut self, connection: &mut FrameConnection) -> io::Result<()> {
        if connection.flow.is_some() {
            return Ok(());
        }
        let (local, remote) = ends(&connection.socket)?;
        let path = self.path(local.ip(), remote.ip())?;
        let port = self.port(&path.device, local)?;
        // Frames come from now on; what came before is in the kernel's socket.
        let flow = Flow::new(local, remote);
        let own = path.device.ethernet.ok_or(io::ErrorKind::Unsupported)?;
        self.carrier.program.add_flow(&self.frames.ports[port].attached, &flow)?;
        let state = FlowState {
            flow,
            headers: Headers::new((own, path.neighbour), local, remote),
            port,
            receives_at: port,
            owner: (connection.owner.local, connection.owner.slot),
            waiting: VecDeque::with_capacity(WAITING),
            in_kernel: true,
        };
        let number = match self.frames.flows.iter().position(Option::is_none) {
            Some(free) => {
                self.frames.flows[free] = Some(state);
                free
            }
            None => {
                self.frames.flows.push(Some(state));
                self.frames.flows.len() - 1
            }
        };
        self.frames.by_flow.insert(flow, number);
        connection.flow = Some(number);
        // What the program passes to the kernel is told of from now on.
        let token =
            Token::Connection { local: connection.owner.local, slot: connection.owner.slot };
        let watched = self.sockets.opener.watch(&connection.socket, token);
        if watched.is_err() {
            self.forget(connection);
            connection.flow = None;
        }
        watched
    }

    /// The way to a host, which is looked up once.
    fn path(&mut self, from: IpAddr, to: IpAddr) -> io::Result<Path> {
        if let Some(known) = self.paths.get(&(from, to)) {
            return Ok(known.clone());
        }
        check_address(from).map_err(invalid)?;
        let path = xdp::path(from, to)?;
        self.paths.insert((from, to), path.clone());
        Ok(path)
    }

    /// The socket by which frames are sent to a device. It is opened when it is first needed, with those for further receive
    /// queues of this worker.
    fn port(&mut self, device: &Device, local: SocketAddr) -> io::Result<usize> {
        let known =
            self.frames.ports.iter().position(|port| port.attached.device.index == device.index);
        if let Some(known) = known {
            return Ok(known);
        }
        let Carrier { program, mode, longest } = &self.carrier;
        // What program it has is seen when it is to be attached: it may be that of this host.
        let unattached = Device { has_program: false, ..device.clone() };
        check(&unattached, local.ip(), *longest).map_err(invalid)?;
        let queues = check_queues(device, program.workers(), u64::MAX).map_err(invalid)?;
        let attached = program.attach(device, queues.receive)?;
        let first = self.frames.ports.len();
        let mut ports = Vec::new();
        for queue in program.queues(queues.receive) {
            let setup = xdp::Setup {
                device: device.index,
                queue,
                mode: *mode,
                longest: longest_frame(device),
                sends: ports.is_empty(),
            };
            let socket =
                FrameSocket::open(&setup).map_err(|error| explain(device, queue, error))?;
            program.add_socket(&attached, queue, &socket)?;
            if let Some(epoll) = self.sockets.opener.epoll() {
                let token = Token::Frames { port: (first + ports.len()) as u32 };
                register(epoll, &socket, token, Trigger::Level)?;
            }
            let (attached, waiting) = (attached.clone(), Waiting::default());
            ports.push(Port { socket, attached, waiting, gathered: 0, busy: false });
        }
        self.frames.ports.extend(ports);
        Ok(first)
    }

    fn forget(&mut self, connection: &FrameConnection) {
        if let Some(flow) = self.frames.forget(connection) {
            self.carrier.program.remove_flow(&flow);
        }
    }

    /// Has the kernel send the frames that have been gathered. Returns whether it has taken all.
    ///
    /// # Errors
    /// Those of sendto(2), as where a device is down.
    pub(crate) fn hand_over(&mut self) -> io::Result<bool> {
        let mut all = true;
        for port in self.frames.ports.iter_mut().filter(|port| port.gathered > 0 || port.busy) {
            all &= port.hand_over()?;
        }
        Ok(all)
    }

    /// Whether a connection can send a frame.
    pub(crate) fn has_room(&mut self, connection: &FrameConnection) -> bool {
        let flow = connection.flow.and_then(|flow| self.frames.flows[flow].as_ref());
        flow.is_none_or(|flow| self.frames.ports[flow.port].socket.has_room())
    }

    pub(crate) fn epoll(&self) -> Option<&OwnedFd> {
        self.sockets.opener.epoll()
    }

    /// A listener has been called.
    pub(crate) fn mark_ready(&mut self, local: u32, number: u32, heeded: bool) {
        self.sockets.opener.mark_ready(local, number, heeded);
    }

    /// Connections for which frames came while another received.
    pub(crate) fn take_arrived(&mut self) -> Option<(u32, u32)> {
        self.frames.arrived.pop()
    }

    /// Frames are in a receive ring: whose the first is hears of it, and finds the others there.
    pub(crate) fn frames_came(&mut self, port: usize) {
        self.frames.receive(port, None);
    }

    /// The kernel's socket of a connection has something.
    pub(crate) fn kernel_has(&mut self, connection: &FrameConnection) {
        if let Some(flow) = connection.flow.and_then(|flow| self.frames.flows[flow].as_mut()) {
            flow.in_kernel = true;
        }
    }
}

impl Frames {
    /// The next frame of a flow. Those of others that come before it wait for them. Without a flow, one frame waits.
    #[inline]
    fn receive(&mut self, port: usize, wanted: Option<usize>) -> Option<(Received, Range<usize>)> {
        loop {
            let at = self.ports.get_mut(port)?;
            let socket = &mut at.socket;
            let frame = socket.receive()?;
            let Some((flow, payload)) = Flow::of_frame(socket.bytes(&frame)) else {
                socket.give_back(frame);
                continue;
            };
            let number = match self.last {
                Some((last, number)) if last == flow => number,
                _ => {
                    let Some(&number) = self.by_flow.get(&flow) else {
                        // Its connection has been closed meanwhile.
                        socket.give_back(frame);
                        continue;
                    };
                    self.last = Some((flow, number));
                    number
                }
            };
            if wanted == Some(number) {
                return Some((frame, payload));
            }
            if let Some(state) = &mut self.flows[number] {
                if !at.waiting.admits(state.waiting.len(), self.by_flow.len()) {
                    socket.give_back(frame);
                    continue;
                }
                if state.waiting.is_empty() {
                    self.arrived.push(state.owner);
                }
                state.receives_at = port;
                state.waiting.push_back((port, frame, payload));
            }
            wanted?;
        }
    }

    /// By the kernel, and of those that waited too long.
    fn dropped(&self) -> u64 {
        let of_port = |port: &Port| {
            let lost = port.socket.statistics().map_or(0, |statistics| statistics.lost());
            port.waiting.dropped + lost
        };
        self.ports.iter().map(of_port).sum()
    }

    /// Returns the flow that the connection had.
    fn forget(&mut self, connection: &FrameConnection) -> Option<Flow> {
        let state = self.flows[connection.flow?].take()?;
        self.by_flow.remove(&state.flow);
        self.last = None;
        for (port, frame, _) in state.waiting {
            let port = &mut self.ports[port];
            port.waiting.frames -= 1;
            port.socket.give_back(frame);
        }
        Some(state.flow)
    }
}

impl Port {
    fn hand_over(&mut self) -> io::Result<bool> {
        // Frames that a busy device has not taken are asked for again by `FrameNet::hand_over`; further ones are
        // gathered anew, so that they do not need a call each.
        self.gathered = 0;
        self.busy = !self.socket.hand_over()?;
        Ok(!self.busy)
    }
}

fn explain(device: &Device, queue: u32, error: io::Error) -> io::Error {
    let name = &device.name;
    let said = match Errno::from_io_error(&error) {
        Some(Errno::INVAL) => format!("{name} has no queue {queue}"),
        Some(Errno::BUSY) => {
            format!("another AF_XDP socket has queue {queue} of {name}")
        }
        Some(Errno::NOBUFS) => {
            "AF_XDP sockets need more locked memory: raise the limit (ulimit -l)".to_owned()
        }
        _ => format!("AF_XDP socket on {name}, queue {queue}: {error}"),
    };
    io::Error::new(error.kind(), said)
}

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

/// Both addresses of a connected socket.
fn ends(socket: &Socket) -> io::Result<(SocketAddr, SocketAddr)> {
    let fd = socket2::SockRef::from(socket.fd());
    let plain = |address: socket2::SockAddr| {
        let address = address.as_socket().ok_or(io::ErrorKind::Unsupported)?;
        Ok::<_, io::Error>(SocketAddr::new(address.ip().to_canonical(), address.port()))
    };
    Ok((plain(fd.local_addr()?)?, plain(fd.peer_addr()?)?))
}

impl SocketNet for FrameNet {
    fn sockets(&self) -> &Sockets {
        &self.sockets
    }

    fn sockets_mut(&mut self) -> &mut Sockets {
        &mut self.sockets
    }

    fn watch(&self, connection: &FrameConnection, token: Token) -> io::Result<()> {
        self.sockets.opener.watch(&connection.socket, token)
    }

    fn note_writable(&mut self, connection: &mut FrameConnection) {
        connection.socket.note_writable();
    }

    fn socket<'a>(&'a self, connection: &'a FrameConnection) -> &'a Socket {
        &connection.socket
    }

    fn set_endpoints(&mut self, endpoints: Arc<Endpoints>, groups: &[Group]) {
        self.sockets.set_endpoints(endpoints, groups);
    }

    fn io(&self) -> IoCounts {
        IoCounts {
            frames_sent: self.sent,
            frame_calls: self.frames.ports.iter().map(|port| port.socket.calls()).sum(),
            frames_received: self.received,
            frames_dropped: self.frames.dropped(),
            received_beside_frames: self.received_by_kernel,
            ..self.sockets.data.io
        }
    }

    fn settle<'a>(
        &mut self,
        connections: impl Iterator<Item = &'a FrameConnection>,
    ) -> io::Result<()> {
        self.sockets.settle(connections.map(|connection| &connection.socket))
    }
}

impl Net for FrameNet {
    type Socket = FrameConnection;

    #[inline]
    fn now(&mut self) -> Nanos {
        self.sockets.now()
    }

    fn connect(&mut self, open: &Open, owner: Owner, attempt: u64) -> io::Result<FrameConnection> {
        let socket = self.sockets.connect(open, owner, attempt)?;
        let mut connection = FrameConnection { socket, owner, flow: None };
        if connection.socket.is_open() {
            self.carry(&mut connection)?;
        }
        Ok(connection)
    }

    fn opening(&mut self, connection: &mut FrameConnection) -> io::Result<Opening> {
        let opening = self.sockets.opening(&mut connection.socket)?;
        if opening == Opening::Done {
            self.carry(connection)?;
        }
        Ok(opening)
    }

    fn accept(&mut self, open: &Open, owner: Owner) -> io::Result<(FrameConnection, u32)> {
        let (socket, ordinal) = self.sockets.accept(open, owner)?;
        let mut connection = FrameConnection { socket, owner, flow: None };
        self.carry(&mut connection)?;
        Ok((connection, ordinal))
    }

    #[inline]
    fn send(
        &mut self,
        connection: &FrameConnection,
        bytes: &[u8],
        call: SendCall,
    ) -> io::Result<usize> {
        let state = connection.flow.and_then(|flow| self.frames.flows[flow].as_ref());
        let Some(state) = state else {
            return self.sockets.send(&connection.socket, bytes, call);
        };
        let port = &mut self.frames.ports[state.port];
        let length = state.headers.frame_length(bytes.len());
        let put = |port: &mut Port| {
            let write = |frame: &mut [u8]| state.headers.write(frame, bytes);
            port.socket.send(length, write).map_err(|error| match error.kind() {
                io::ErrorKind::InvalidInput => Errno::MSGSIZE.into(),
                _ => error,
            })
        };
        if put(port)?.is_none() {
            port.hand_over()?;
            if put(port)?.is_none() {
                return Err(io::ErrorKind::WouldBlock.into());
            }
        }
        self.sent += 1;
        port.gathered += 1;
        if port.gathered >= BATCH {
            port.hand_over()?;
        }
        Ok(bytes.len())
    }

    fn send_zerocopy(
        &mut self,
        connection: &FrameConnection,
        bytes: &[u8],
        copied: usize,
    ) -> io::Result<usize> {
        self.sockets.send_zerocopy(&connection.socket, bytes, copied)
    }

    fn cork(&mut self, connection: &FrameConnection, on: bool) -> io::Result<()> {
        self.sockets.cork(&connection.socket, on)
    }

    fn send_batch(
        &mut self,
        connection: &FrameConnection,
        datagrams: &DatagramBatch<'_>,
    ) -> io::Result<usize> {
        self.sockets.send_batch(&connection.socket, datagrams)
    }

    #[inline]
    fn receive(
        &mut self,
        connection: &FrameConnection,
        size: usize,
        call: ReceiveCall,
        timed: bool,
    ) -> io::Result<&[u8]> {
        let run = self.sockets.opener.run();
        if let Some((port, frame)) = self.frames.lent.take() {
            self.frames.ports[port].socket.give_back(frame);
        }
        let state = connection.flow.and_then(|flow| self.frames.flows[flow].as_mut());
        let Some(state) = state else {
            return self.sockets.receive(&connection.socket, size, call, timed);
        };
        if state.in_kernel {
            match self.sockets.receive(&connection.socket, size, call, timed) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => state.in_kernel = false,
                received => {
                    self.received_by_kernel += u64::from(received.is_ok());
                    return received;
                }
            }
        }
        let (port, frame, payload) = match state.waiting.pop_front() {
            Some(waiting) => {
                self.frames.ports[waiting.0].waiting.frames -= 1;
                waiting
            }
            None => {
                // Should frames come elsewhere now, epoll tells (`frames_came`).
                let port = state.receives_at;
                let next = self.frames.receive(port, connection.flow);
                let (frame, payload) = next.ok_or(io::ErrorKind::WouldBlock)?;
                (port, frame, payload)
            }
        };
        let (_, frame) = self.frames.lent.insert((port, frame));
        let datagram = self.frames.ports[port].socket.bytes(frame).get(payload).unwrap_or_default();
        if hello::is_greeting(datagram) {
            return Err(late_greeting(&connection.socket, datagram, run)?);
        }
        self.received += 1;
        Ok(&datagram[..datagram.len().min(size)])
    }

    fn receive_from_client(
        &mut self,
        connection: &FrameConnection,
        call: ReceiveCall,
        timed: bool,
    ) -> io::Result<FromClient<'_>> {
        self.sockets.receive_from_client(&connection.socket, call, timed)
    }

    fn has_received(&self, connection: &FrameConnection) -> bool {
        self.sockets.has_received(&connection.socket)
    }

    fn will_answer(&mut self, connection: &FrameConnection) {
        self.sockets.will_answer(&connection.socket);
    }

    fn take_hello_refusal(&self, connection: &FrameConnection, error: &io::Error) -> bool {
        connection.socket.take_hello_refusal(error)
    }

    fn receive_in_kernel(
        &mut self,
        connection: &FrameConnection,
        size: usize,
        call: KernelReceive,
        timed: bool,
    ) -> io::Result<usize> {
        self.sockets.receive_in_kernel(&connection.socket, size, call, timed)
    }

    fn send_file(
        &mut self,
        connection: &FrameConnection,
        source: u32,
        file: usize,
        offset: u64,
        length: u64,
    ) -> io::Result<usize> {
        self.sockets.send_file(&connection.socket, source, file, offset, length)
    }

    fn send_from_file(
        &mut self,
        connection: &FrameConnection,
        part: StreamPart,
        length: u64,
    ) -> io::Result<usize> {
        self.sockets.send_from_file(&connection.socket, part, length)
    }

    fn shut_down(&mut self, connection: &FrameConnection) -> io::Result<()> {
        self.sockets.shut_down(&connection.socket)
    }

    fn close(&mut self, connection: FrameConnection, owner: Owner) {
        self.forget(&connection);
        // What the connection has sent goes before its kernel socket is closed.
        for _ in 0..LAST_ATTEMPTS {
            match self.hand_over() {
                Ok(false) => std::thread::yield_now(),
                Ok(true) | Err(_) => break,
            }
        }
        self.sockets.close(connection.socket, owner);
    }
}
