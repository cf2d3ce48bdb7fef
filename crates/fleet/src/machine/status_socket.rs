//! The status socket of a run: says who holds the machine to whoever connects, hears who joins, and
//! is closed by the kernel when the process ends, which is how the others notice that.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::net::sockopt::socket_peercred;
use socket2::{Domain, SockAddr, Socket, Type};
use wirecost_linux::process::user_name;
use wirecost_model::holder::{Holder, RunIdentity};

use crate::runtime_dir::Directory;

/// A holder is not longer than this as JSON.
const LONGEST: u64 = 64 << 10;
/// A process that is not stopped answers sooner.
const ANSWER: Duration = Duration::from_secs(1);
/// Connections that are kept open at a time; others wait until there is room.
const MAX_VISITORS: usize = 64;

/// Another run on this machine, while it was there.
#[derive(Debug, Clone)]
pub(super) struct OtherRun {
    pub(super) holder: Holder,
    pub(super) until: Option<Instant>,
}

/// Those that a run has had.
pub(super) type OtherRuns = Arc<Mutex<Vec<OtherRun>>>;

/// What is found behind the path of a status socket.
pub(super) enum Found {
    /// A holder, and the connection to it, which ends when it does.
    Holder(Holder, Option<UnixStream>),
    /// Its process has ended.
    Stale,
}

/// Asks whoever listens at a path who they are.
pub(super) fn ask(directory: &Directory, name: &str) -> io::Result<Found> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // Where the queue of connections is full, connecting would wait for room.
    socket.set_nonblocking(true)?;
    match socket.connect(&SockAddr::unix(directory.short_path(name))?) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            return Ok(Found::Holder(silent(None), None));
        }
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound
            ) =>
        {
            return Ok(Found::Stale);
        }
        Err(error) => return Err(error),
    }
    socket.set_nonblocking(false)?;
    socket.set_read_timeout(Some(ANSWER))?;
    socket.set_write_timeout(Some(ANSWER))?;
    let stream = UnixStream::from(OwnedFd::from(socket));
    let mut line = String::new();
    let read = BufReader::new((&stream).take(LONGEST)).read_line(&mut line);
    let holder = match (read, serde_json::from_str::<Holder>(&line)) {
        // It has ended while it was asked.
        (Ok(0), _) => return Ok(Found::Stale),
        (Ok(_), Ok(holder)) => Holder { run: holder.run.printable(), ..holder },
        _ => silent(Some(&stream)),
    };
    Ok(Found::Holder(holder, Some(stream)))
}

/// What the kernel knows of a holder that does not say who it is.
fn silent(stream: Option<&UnixStream>) -> Holder {
    let process = stream.and_then(|stream| socket_peercred(stream).ok());
    let pid = process.as_ref().map_or(0, |process| process.pid.as_raw_nonzero().get() as u32);
    let user = process.map_or_else(|| "?".to_owned(), |process| user_name(process.uid.as_raw()));
    let run = RunIdentity {
        id: format!("silent-{pid}"),
        user,
        host: wirecost_linux::facts::hostname(),
        pid,
        command: "wirecost, which does not answer".to_owned(),
    };
    Holder { run, since_unix_ms: 0, cpus: Vec::new() }
}

/// A status socket that is open.
#[derive(Debug)]
pub(super) struct StatusSocket {
    wake: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl StatusSocket {
    /// Opens it under this name, and tells each of `others`, whose connections are given, that this
    /// run joins them.
    pub(super) fn open(
        directory: &Directory,
        name: &str,
        holder: &Holder,
        others: Vec<(Holder, Option<UnixStream>)>,
        neighbours: &OtherRuns,
    ) -> io::Result<Self> {
        let path = directory.short_path(name);
        let listener = UnixListener::bind(&path)?;
        listener.set_nonblocking(true)?;
        // Who may look into the directory may ask.
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666))?;
        let mut status = serde_json::to_vec(holder)?;
        status.push(b'\n');
        let mut server =
            Server { listener, status, peers: Vec::new(), neighbours: neighbours.clone() };
        for (holder, stream) in others {
            server.join(holder, stream);
        }
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let woken = wake.clone();
        let thread = std::thread::Builder::new()
            .name("wirecost-status".to_owned())
            .spawn(move || server.serve(woken.as_fd()))?;
        Ok(Self { wake, thread: Some(thread) })
    }
}

impl Drop for StatusSocket {
    fn drop(&mut self) {
        let told = rustix::io::write(&self.wake, &1u64.to_ne_bytes()).is_ok();
        if let Some(thread) = self.thread.take().filter(|_| told) {
            let _ = thread.join();
        }
    }
}

struct Server {
    listener: UnixListener,
    status: Vec<u8>,
    peers: Vec<Peer>,
    neighbours: OtherRuns,
}

struct Peer {
    stream: UnixStream,
    /// What has come of its line.
    line: Vec<u8>,
    /// Number of the neighbour at the other end, where it is one.
    neighbour: Option<usize>,
}

impl Server {
    /// Says to a run that this one joins it.
    fn join(&mut self, holder: Holder, stream: Option<UnixStream>) {
        let neighbour = self.add(holder);
        let Some(mut stream) = stream else { return };
        // One that has ended meanwhile is noticed when its connection is looked at.
        let _ = stream.write_all(&self.status);
        if stream.set_nonblocking(true).is_ok() {
            self.peers.push(Peer { stream, line: Vec::new(), neighbour: Some(neighbour) });
        }
    }

    fn add(&self, holder: Holder) -> usize {
        let mut neighbours = self.neighbours.lock().unwrap_or_else(PoisonError::into_inner);
        neighbours.push(OtherRun { holder, until: None });
        neighbours.len() - 1
    }

    fn serve(mut self, woken: BorrowedFd<'_>) {
        loop {
            let room = self.peers.len() < MAX_VISITORS;
            let listens = if room { PollFlags::IN } else { PollFlags::empty() };
            let mut wanted = vec![
                PollFd::from_borrowed_fd(woken, PollFlags::IN),
                PollFd::new(&self.listener, listens),
            ];
            wanted.extend(self.peers.iter().map(|peer| PollFd::new(&peer.stream, PollFlags::IN)));
            match poll(&mut wanted, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(_) => return,
            }
            let ready: Vec<bool> = wanted.iter().map(|fd| !fd.revents().is_empty()).collect();
            drop(wanted);
            if ready[0] {
                return;
            }
            // Backwards: those that are gone are taken out.
            for place in (0..self.peers.len()).rev() {
                if ready[place + 2] && !self.receive(place) {
                    self.peers.swap_remove(place);
                }
            }
            if ready[1] {
                self.accept();
            }
        }
    }

    fn accept(&mut self) {
        let Ok((mut stream, _)) = self.listener.accept() else { return };
        // The answer fits the buffer of a new socket.
        if stream.set_nonblocking(true).is_ok() && stream.write_all(&self.status).is_ok() {
            self.peers.push(Peer { stream, line: Vec::new(), neighbour: None });
        }
    }

    /// Reads what a peer says. Returns whether it is still there.
    fn receive(&mut self, place: usize) -> bool {
        let peer = &mut self.peers[place];
        let mut bytes = [0u8; 4096];
        let said = match peer.stream.read(&mut bytes) {
            Ok(0) => None,
            Ok(got) => Some(&bytes[..got]),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) =>
            {
                return true;
            }
            Err(_) => None,
        };
        let Some(said) = said else {
            if let Some(number) = peer.neighbour {
                let mut all = self.neighbours.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(neighbour) = all.get_mut(number) {
                    neighbour.until = Some(Instant::now());
                }
            }
            return false;
        };
        if peer.neighbour.is_some() {
            return true;
        }
        peer.line.extend_from_slice(said);
        if peer.line.last() != Some(&b'\n') {
            return peer.line.len() as u64 <= LONGEST;
        }
        let Ok(holder) = serde_json::from_slice::<Holder>(&peer.line) else { return false };
        peer.line = Vec::new();
        let number = self.add(Holder { run: holder.run.printable(), ..holder });
        self.peers[place].neighbour = Some(number);
        true
    }
}
