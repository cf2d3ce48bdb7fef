//! The listener of an agent: starts a process for each session, so that what ends one session ends
//! no other, and the listener goes on. One thread waits for connections, hellos and ends of
//! processes alike.

use std::io::{self, Read};
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use socket2::{Domain, Socket, Type};
use wirecost_linux::confine::{Confinement, confine_on_spawn};
use wirecost_linux::privilege::Capability;

use crate::acceptor::{ACCEPT_RETRY_DELAY, Acceptor, Client};
use crate::wire::{self, Notice};

/// A session whose controller has gone, and that cannot put an end to its work in this time, ends
/// its process.
pub(crate) const GRACE: Duration = Duration::from_secs(3);
/// A process that does not even do that is killed.
pub(crate) const KILL_AFTER: Duration = Duration::from_secs(6);
/// Controllers that wait for a session to end that is ending.
const MAX_WAITING: usize = 16;
/// How long a connection is read that was told why there is no session, and how many there are of
/// them.
const FAREWELL: Duration = Duration::from_secs(5);
const MAX_CLOSING: usize = 256;
/// The kernel ends a session rather than another process where memory runs out (proc(5),
/// `oom_score_adj`).
const ENDS_FIRST: &str = "500";

/// What sessions may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionLimits {
    /// Sessions at a time. A run has one for each of its hosts that this agent plays.
    pub sessions: usize,
    /// Whether the kernel ends them rather than others where memory runs out. What they start to restore
    /// settings would end first too.
    pub ends_first: bool,
    /// Bytes of memory of the process of each.
    pub memory: u64,
    pub descriptors: u64,
    /// Capabilities that it keeps, if the agent has them.
    pub capabilities: Vec<Capability>,
}

/// Why an agent cannot listen.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen at {address}: {source}")]
pub struct ListenError {
    address: String,
    #[source]
    source: io::Error,
}

/// What an agent has to tell whoever started it.
#[derive(Debug)]
pub enum AgentEvent {
    Listening(SocketAddr),
    /// A session ended otherwise than by itself; the agent goes on.
    SessionEnded {
        from: SocketAddr,
        reason: SessionEnd,
    },
}

/// How a session ended that did not end by itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SessionEnd {
    #[error("the process of the session could not be started: {0}")]
    NotStarted(String),
    #[error(
        "the process of the session (pid {pid}) ended by itself or was killed ({status}); it may use {} MiB of memory",
        memory >> 20
    )]
    Died { pid: u32, status: ExitStatus, memory: u64 },
    #[error(
        "the process of the session (pid {pid}) was killed: it did not end after its controller had gone"
    )]
    Hung { pid: u32 },
    #[error("it serves one run at a time, and another one is under way")]
    Busy,
    #[error("this agent has {limit} sessions already, its limit")]
    TooMany { limit: usize },
}

/// Listens at an address and serves sessions, until the process is ended.
pub struct Listener<'a> {
    address: SocketAddr,
    acceptor: Acceptor,
    /// Makes a command that serves the one session whose stream is its standard input and whose
    /// controller has said hello with this version.
    session: &'a dyn Fn(u32) -> Command,
    limits: SessionLimits,
    report: &'a mut dyn FnMut(AgentEvent),
    sessions: Vec<Running>,
    /// Controllers that came while a session was ending whose place they can have.
    waiting: Vec<Client>,
    /// Connections that were told why there is no session, until they have been read to their end:
    /// closing one before would take back what was told (RFC 1122, 4.2.2.13).
    closing: Vec<Closing>,
}

impl std::fmt::Debug for Listener<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listener").field("address", &self.address).finish_non_exhaustive()
    }
}

struct Closing {
    stream: TcpStream,
    due: Instant,
}

/// A session that has a process.
struct Running {
    from: SocketAddr,
    child: Child,
    process: OwnedFd,
    /// The session's own, to tell its controller what became of it.
    stream: TcpStream,
    /// When the controller was seen to be gone.
    gone: Option<Instant>,
    killed: bool,
}

impl<'a> Listener<'a> {
    /// Listens at `address`; `report` is told where, and what happens from then on.
    ///
    /// # Errors
    /// When it cannot listen there.
    pub fn bind(
        address: &str,
        session: &'a dyn Fn(u32) -> Command,
        limits: SessionLimits,
        report: &'a mut dyn FnMut(AgentEvent),
    ) -> Result<Self, ListenError> {
        let failed = |source| ListenError { address: address.to_owned(), source };
        let listener = TcpListener::bind(address).map_err(failed)?;
        Self::on(listener, session, limits, report).map_err(failed)
    }

    /// Listens at every address of this host; where it has no IPv6, at those of IPv4.
    ///
    /// # Errors
    /// When it cannot listen at this port.
    pub fn everywhere(
        port: u16,
        session: &'a dyn Fn(u32) -> Command,
        limits: SessionLimits,
        report: &'a mut dyn FnMut(AgentEvent),
    ) -> Result<Self, ListenError> {
        let failed = |source| ListenError { address: format!("port {port}"), source };
        let listener = match listen_everywhere(port) {
            Err(error) if has_no_ipv6(&error) => TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)),
            listener => listener,
        };
        Self::on(listener.map_err(failed)?, session, limits, report).map_err(failed)
    }

    fn on(
        listener: TcpListener,
        session: &'a dyn Fn(u32) -> Command,
        limits: SessionLimits,
        report: &'a mut dyn FnMut(AgentEvent),
    ) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let acceptor = Acceptor::new(listener)?;
        report(AgentEvent::Listening(address));
        let (sessions, waiting, closing) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Self { address, acceptor, session, limits, report, sessions, waiting, closing })
    }

    /// Serves for ever.
    pub fn serve(&mut self) -> ! {
        loop {
            if self.wait().is_err() {
                // The kernel is out of memory, and may not be for long.
                std::thread::sleep(ACCEPT_RETRY_DELAY);
            }
        }
    }

    /// Waits for something to happen, and does what follows.
    fn wait(&mut self) -> io::Result<()> {
        let ready = self.poll()?;
        let (of_closing, others) = ready.split_at(self.closing.len());
        let (of_sessions, of_acceptor) = others.split_at(2 * self.sessions.len());
        let now = Instant::now();
        for (place, events) in of_closing.iter().enumerate().rev() {
            let closing = &mut self.closing[place];
            if now >= closing.due || (!events.is_empty() && has_ended(&mut closing.stream)) {
                self.closing.swap_remove(place);
            }
        }
        for (place, events) in of_sessions.chunks_exact(2).enumerate().rev() {
            self.look_after(place, events[0], events[1], now);
        }
        for client in self.acceptor.process_events(of_acceptor, now) {
            self.begin(client);
        }
        Ok(())
    }

    /// Events of each connection that is closing, of the process and the stream of each session,
    /// and of the acceptor.
    fn poll(&self) -> io::Result<Vec<PollFlags>> {
        let mut wanted: Vec<PollFd<'_>> =
            self.closing.iter().map(|one| PollFd::new(&one.stream, PollFlags::IN)).collect();
        for session in &self.sessions {
            wanted.push(PollFd::new(&session.process, PollFlags::IN));
            // One that is known to be gone is told of without end: its process is what counts then.
            match session.gone {
                None => wanted.push(PollFd::new(&session.stream, PollFlags::RDHUP)),
                Some(_) => wanted.push(PollFd::new(&session.process, PollFlags::empty())),
            }
        }
        wanted.extend(self.acceptor.poll_fds());
        let living = self.sessions.iter().filter(|session| !session.killed);
        let dues = living.filter_map(|session| Some(session.gone? + KILL_AFTER));
        let due =
            dues.chain(self.closing.iter().map(|one| one.due)).chain(self.acceptor.deadline());
        let left = due.min().map(|due| due.saturating_duration_since(Instant::now()));
        // Rounded up, so that what is due is due when the time is over.
        let left = left.map(|left| left + Duration::from_millis(1));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut wanted, left.as_ref()) {
            Ok(_) => Ok(wanted.iter().map(PollFd::revents).collect()),
            Err(Errno::INTR) => Ok(vec![PollFlags::empty(); wanted.len()]),
            Err(error) => Err(error.into()),
        }
    }

    /// Starts the process of a session.
    fn begin(&mut self, client: Client) {
        let limit = self.limits.sessions;
        if self.sessions.len() >= limit {
            let ending = self.sessions.iter().any(|session| session.gone.is_some());
            if ending && self.waiting.len() < MAX_WAITING {
                return self.waiting.push(client);
            }
            let reason = if limit == 1 { SessionEnd::Busy } else { SessionEnd::TooMany { limit } };
            return self.refuse(client.stream, client.from, reason);
        }
        let Client { stream, from, version } = client;
        if let Err(error) = self.start(&stream, from, version) {
            self.refuse(stream, from, SessionEnd::NotStarted(error.to_string()));
        }
    }

    fn start(&mut self, stream: &TcpStream, from: SocketAddr, version: u32) -> io::Result<()> {
        let (theirs, ours) = (stream.try_clone()?, stream.try_clone()?);
        let mut command = (self.session)(version);
        let SessionLimits { memory, descriptors, ref capabilities, .. } = self.limits;
        let capabilities = capabilities.clone();
        confine_on_spawn(&mut command, &Confinement { memory, descriptors, capabilities });
        let mut child =
            command.stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::null()).spawn()?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let opened = pid
            .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
            .and_then(|pid| Ok(pidfd_open(pid, PidfdFlags::empty())?));
        let process = match opened {
            Ok(process) => process,
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(error);
            }
        };
        // A host that does not let it be is no worse for it.
        if self.limits.ends_first {
            let _ = std::fs::write(format!("/proc/{}/oom_score_adj", child.id()), ENDS_FIRST);
        }
        self.sessions.push(Running {
            from,
            child,
            process,
            stream: ours,
            gone: None,
            killed: false,
        });
        Ok(())
    }

    /// Tells a controller why there is no session (any more). No other process writes to the
    /// stream.
    fn refuse(&mut self, mut stream: TcpStream, from: SocketAddr, reason: SessionEnd) {
        // A controller that reads nothing must not keep the agent from serving others.
        let _ = stream.set_nonblocking(true);
        let message = reason.to_string();
        let _ = wire::write(&mut stream, &Notice::SessionEnded { reason: message });
        let _ = stream.shutdown(Shutdown::Write);
        if self.closing.len() < MAX_CLOSING {
            self.closing.push(Closing { stream, due: Instant::now() + FAREWELL });
        }
        (self.report)(AgentEvent::SessionEnded { from, reason });
    }

    fn look_after(&mut self, place: usize, process: PollFlags, stream: PollFlags, now: Instant) {
        let session = &mut self.sessions[place];
        if session.gone.is_none() && !stream.is_empty() {
            session.gone = Some(now);
        }
        if process.is_empty() {
            if session.gone.is_some_and(|gone| now >= gone + KILL_AFTER) && !session.killed {
                session.killed = true;
                let _ = session.child.kill();
            }
            return;
        }
        let Ok(Some(status)) = session.child.try_wait() else { return };
        let session = self.sessions.swap_remove(place);
        let pid = session.child.id();
        let reason = match session.killed {
            true => Some(SessionEnd::Hung { pid }),
            // It has told its controller itself what was wrong.
            false if matches!(status.code(), Some(0 | FAILED)) => None,
            false => Some(SessionEnd::Died { pid, status, memory: self.limits.memory }),
        };
        if let Some(reason) = reason {
            self.refuse(session.stream, session.from, reason);
        }
        for client in std::mem::take(&mut self.waiting) {
            self.begin(client);
        }
    }
}

/// This host's kernel has no IPv6, or has it turned off.
fn has_no_ipv6(error: &io::Error) -> bool {
    let reasons = [Errno::AFNOSUPPORT, Errno::ADDRNOTAVAIL];
    Errno::from_io_error(error).is_some_and(|error| reasons.contains(&error))
}

fn listen_everywhere(port: u16) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::IPV6, Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.set_only_v6(false)?;
    socket.bind(&SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)).into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// As std::net::TcpListener has it.
const BACKLOG: i32 = 128;

/// How a session's process exits that could not go on.
const FAILED: i32 = 3;

/// Reads what there is to read. Returns whether the other side has closed the connection.
fn has_ended(stream: &mut TcpStream) -> bool {
    let mut bytes = [0u8; 4096];
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() != io::ErrorKind::WouldBlock,
        }
    }
}
