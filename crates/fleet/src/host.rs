//! A host as the controller sees it: it takes orders and gives notices.

use std::io::{self, BufReader};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::serial;
use crate::wire::{self, Notice, Order};

/// Longest time that connecting to an agent may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The same in a virtual machine whose CPUs are emulated, where the session before may still be ending.
const GUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest time that an order may wait to be taken.
const ORDER_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest time that the end of a session may take.
const END_OF_SESSION: Duration = Duration::from_secs(5);
/// Longest time between the end of a process' stream and its own.
const END_OF_PROCESS: Duration = Duration::from_secs(1);

/// Why a host cannot be used (any more).
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    #[error("{name}: cannot start an agent: {source}")]
    Start {
        name: String,
        #[source]
        source: io::Error,
    },
    #[error("{name}: {address} does not resolve: {reason}")]
    Address { name: String, address: String, reason: String },
    #[error("{name}: no agent answers at {address}: {source}; has its virtual machine ended?")]
    NoGuest {
        name: String,
        address: String,
        #[source]
        source: io::Error,
    },
    #[error(
        "{name}: no agent answers at {address}: {source}; start one there with `wirecost agent --listen {address}`, or for `wirecost uperf` with `wirecost uperf -s`"
    )]
    Unreachable {
        name: String,
        address: String,
        #[source]
        source: io::Error,
    },
    #[error("{name}: the process of the session ended or was killed during the run ({status})")]
    Ended { name: String, status: ExitStatus },
    #[error("{name}: lost the agent: {source}")]
    Lost {
        name: String,
        #[source]
        source: io::Error,
    },
}

/// Where a host puts its notices, each with the number the host was attached under.
pub type Notices = Sender<(usize, Result<Notice, HostError>)>;

/// The line between deciding and doing.
pub trait Host: Send {
    /// As the user calls it.
    fn name(&self) -> &str;

    /// Gives an order. It returns before the order is carried out.
    ///
    /// # Errors
    /// When the host is gone.
    fn order(&mut self, order: Order) -> Result<(), HostError>;

    /// From now on puts every notice of the host into `notices`, under this number; at last the
    /// error that ended it.
    fn attach(&mut self, number: usize, notices: Notices);

    /// The ends of the connection by which orders go, where they go over a network.
    fn connection(&self) -> Option<(SocketAddr, SocketAddr)> {
        None
    }
}

/// An agent at the other end of a stream: a child process, or a daemon elsewhere.
#[derive(Debug)]
pub struct AgentHost {
    name: String,
    stream: Stream,
    child: Option<Arc<Mutex<Child>>>,
    /// Disconnected when the agent has ended the session; none before notices are read.
    ended: Option<Receiver<()>>,
}

#[derive(Debug)]
enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Stream {
    fn try_clone(&self) -> io::Result<Stream> {
        Ok(match self {
            Stream::Unix(stream) => Stream::Unix(stream.try_clone()?),
            Stream::Tcp(stream) => Stream::Tcp(stream.try_clone()?),
        })
    }
}

impl io::Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => stream.read(buffer),
            Stream::Tcp(stream) => stream.read(buffer),
        }
    }
}

impl io::Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => stream.write(bytes),
            Stream::Tcp(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AgentHost {
    /// Starts `command` as an agent whose standard input is the session's stream
    /// (`wirecost agent --session`). The process ends with the session.
    ///
    /// # Errors
    /// Those of making the stream and starting the process.
    pub fn spawn(name: &str, mut command: Command) -> Result<Self, HostError> {
        let start = |source| HostError::Start { name: name.to_owned(), source };
        let (ours, theirs) = UnixStream::pair().map_err(start)?;
        ours.set_write_timeout(Some(ORDER_TIMEOUT)).map_err(start)?;
        let theirs: std::os::fd::OwnedFd = theirs.into();
        // A process group of its own: Ctrl-C in the terminal is for the controller, which then ends
        // the session.
        let child = command
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(start)?;
        Ok(Self {
            name: name.to_owned(),
            stream: Stream::Unix(ours),
            child: Some(Arc::new(Mutex::new(child))),
            ended: None,
        })
    }

    /// Connects to the agent at `address`: HOST:PORT where it listens, or `unix:PATH` of the socket of a
    /// serial port that it serves ([`crate::serial`]).
    ///
    /// # Errors
    /// When the name does not resolve or nobody answers.
    pub fn connect(name: &str, address: &str) -> Result<Self, HostError> {
        match address.strip_prefix(serial::SCHEME) {
            Some(path) => Self::through_port(name, address, Path::new(path)),
            None => Self::over_network(name, address),
        }
    }

    fn through_port(name: &str, address: &str, socket: &Path) -> Result<Self, HostError> {
        let stream = serial::connect(socket, GUEST_TIMEOUT)
            .and_then(|stream| stream.set_write_timeout(Some(ORDER_TIMEOUT)).map(|()| stream))
            .map_err(|source| {
                let (name, address) = (name.to_owned(), address.to_owned());
                HostError::NoGuest { name, address, source }
            })?;
        Ok(Self::on(name, Stream::Unix(stream)))
    }

    fn over_network(name: &str, address: &str) -> Result<Self, HostError> {
        let resolved: Vec<SocketAddr> = address
            .to_socket_addrs()
            .map_err(|error| HostError::Address {
                name: name.to_owned(),
                address: address.to_owned(),
                reason: error.to_string(),
            })?
            .collect();
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for candidate in resolved {
            match TcpStream::connect_timeout(&candidate, CONNECT_TIMEOUT) {
                Ok(stream) => {
                    let set = stream
                        .set_nodelay(true)
                        .and_then(|()| stream.set_write_timeout(Some(ORDER_TIMEOUT)));
                    if let Err(source) = set {
                        return Err(HostError::Lost { name: name.to_owned(), source });
                    }
                    return Ok(Self::on(name, Stream::Tcp(stream)));
                }
                Err(error) => last = error,
            }
        }
        Err(HostError::Unreachable {
            name: name.to_owned(),
            address: address.to_owned(),
            source: last,
        })
    }

    fn on(name: &str, stream: Stream) -> Self {
        Self { name: name.to_owned(), stream, child: None, ended: None }
    }
}

impl Host for AgentHost {
    fn name(&self) -> &str {
        &self.name
    }

    fn connection(&self) -> Option<(SocketAddr, SocketAddr)> {
        match &self.stream {
            Stream::Unix(_) => None,
            Stream::Tcp(stream) => stream.local_addr().ok().zip(stream.peer_addr().ok()),
        }
    }

    fn order(&mut self, order: Order) -> Result<(), HostError> {
        wire::write(&mut self.stream, &order)
            .map_err(|source| HostError::Lost { name: self.name.clone(), source })
    }

    fn attach(&mut self, number: usize, notices: Notices) {
        let (name, child) = (self.name.clone(), self.child.clone());
        let lost = move |source: io::Error| {
            let name = name.clone();
            let ended = source.kind() == io::ErrorKind::UnexpectedEof;
            match child.as_deref().filter(|_| ended).and_then(failure_of) {
                Some(status) => HostError::Ended { name, status },
                None => HostError::Lost { name, source },
            }
        };
        let stream = match self.stream.try_clone() {
            Ok(stream) => stream,
            Err(error) => {
                let _ = notices.send((number, Err(lost(error))));
                return;
            }
        };
        let reader = std::thread::Builder::new().name(format!("wirecost-{number}"));
        let (ended_to, ended) = channel();
        self.ended = Some(ended);
        // The thread ends with the stream, which the drop of this host ends.
        let _ = reader.spawn(move || {
            let _ended = ended_to;
            let mut stream = BufReader::new(stream);
            // Also when nobody wants them any more: the end of the stream is waited for.
            loop {
                match wire::read(&mut stream) {
                    Ok(notice) => drop(notices.send((number, Ok(notice)))),
                    Err(error) => {
                        let _ = notices.send((number, Err(lost(error))));
                        return;
                    }
                }
            }
        });
    }
}

impl Drop for AgentHost {
    fn drop(&mut self) {
        match &self.stream {
            Stream::Unix(stream) => {
                let _ = stream.shutdown(std::net::Shutdown::Both);
            }
            Stream::Tcp(stream) => {
                let _ = stream.shutdown(std::net::Shutdown::Write);
                // Until then the next run would find the agent's machine in use.
                if let Some(ended) = &self.ended {
                    let _ = ended.recv_timeout(END_OF_SESSION);
                }
                let _ = stream.shutdown(std::net::Shutdown::Both);
            }
        }
        // An agent ends with its session; one that hangs is ended.
        if let Some(child) = &self.child {
            let mut child = child.lock().unwrap_or_else(PoisonError::into_inner);
            let patience = Instant::now() + END_OF_SESSION;
            while Instant::now() < patience {
                match child.try_wait() {
                    Ok(None) => std::thread::sleep(Duration::from_millis(2)),
                    _ => return,
                }
            }
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// How the process of a session ended whose stream has ended, where it did not end well.
fn failure_of(child: &Mutex<Child>) -> Option<ExitStatus> {
    let mut child = child.lock().unwrap_or_else(PoisonError::into_inner);
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw)?;
    // Descriptors of a process are closed before it has ended.
    let process = pidfd_open(pid, PidfdFlags::empty()).ok()?;
    let patience = Timespec::try_from(END_OF_PROCESS).ok();
    poll(&mut [PollFd::new(&process, PollFlags::IN)], patience.as_ref()).ok()?;
    child.try_wait().ok()?.filter(|status| !status.success())
}
