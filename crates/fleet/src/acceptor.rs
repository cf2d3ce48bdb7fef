//! Connections to an agent until they have sent a hello. The listener's thread holds all of them: a
//! silent connection costs a descriptor for a few seconds, no thread and no process.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use socket2::SockRef;

use crate::watchdog::enable_keepalive;
use crate::wire::{self, LONGEST_HELLO, Order};

/// How long a connection may take to send its hello. A controller sends it at once.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);

/// Connections without a hello. When there are more, the oldest is closed: silent connections keep
/// others out for a few round trips at most.
const MAX_PENDING: usize = 256;

/// How long the agent waits after it could not accept, for lack of descriptors or memory.
pub(crate) const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);

/// The listening socket of an agent, and the connections without a hello.
#[derive(Debug)]
pub(crate) struct Acceptor {
    listener: TcpListener,
    pending: VecDeque<Pending>,
    hello_timeout: Duration,
    /// After a lack of descriptors: when to accept again.
    retry_at: Option<Instant>,
}

#[derive(Debug)]
struct Pending {
    stream: TcpStream,
    from: SocketAddr,
    until: Instant,
    /// The message so far: its length, and the bytes received.
    length: [u8; 4],
    received: usize,
    body: Vec<u8>,
}

/// A connection that has sent its hello. Nothing after the hello has been read.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    pub(crate) from: SocketAddr,
    /// Version of the protocol.
    pub(crate) version: u32,
}

/// What a connection has sent.
enum Received {
    Hello(u32),
    /// The beginning of a message.
    Partial,
    /// The connection has ended, or the message is not a hello.
    NotHello,
}

impl Acceptor {
    /// # Errors
    /// When the socket cannot be made non-blocking.
    pub(crate) fn new(listener: TcpListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        Ok(Self {
            listener,
            pending: VecDeque::new(),
            hello_timeout: HELLO_TIMEOUT,
            retry_at: None,
        })
    }

    /// The descriptors to poll: the listening socket first, then the pending connections.
    pub(crate) fn poll_fds(&self) -> impl Iterator<Item = PollFd<'_>> {
        let accepts = match self.retry_at {
            None => PollFlags::IN,
            Some(_) => PollFlags::empty(),
        };
        let pending = self.pending.iter().map(|w| PollFd::new(&w.stream, PollFlags::IN));
        std::iter::once(PollFd::new(&self.listener, accepts)).chain(pending)
    }

    /// When the next time limit is reached.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.pending.front().map(|oldest| oldest.until).into_iter().chain(self.retry_at).min()
    }

    /// Handles the events of the descriptors that [`poll_fds`](Self::poll_fds) returned, in their order.
    /// Returns the connections that have sent their hello.
    pub(crate) fn process_events(&mut self, ready: &[PollFlags], now: Instant) -> Vec<Client> {
        let Some((listener_events, ready)) = ready.split_first() else { return Vec::new() };
        let mut clients = Vec::new();
        // From the last, so that removing one does not move those still to be looked at.
        for (place, _) in ready.iter().enumerate().rev().filter(|(_, events)| !events.is_empty()) {
            match self.pending[place].receive() {
                Received::Partial => {}
                Received::NotHello => drop(self.pending.remove(place)),
                Received::Hello(version) => {
                    let Some(Pending { stream, from, .. }) = self.pending.remove(place) else {
                        continue;
                    };
                    if stream.set_nonblocking(false).is_ok() {
                        clients.push(Client { stream, from, version });
                    }
                }
            }
        }
        clients.reverse();
        self.pending.retain(|pending| pending.until > now);
        let retry_due = self.retry_at.is_some_and(|until| now >= until);
        if retry_due {
            self.retry_at = None;
        }
        if retry_due || !listener_events.is_empty() {
            self.accept(now);
        }
        clients
    }

    fn accept(&mut self, now: Instant) {
        match self.listener.accept() {
            Ok((stream, from)) => {
                let _ = stream.set_nodelay(true);
                let _ = enable_keepalive(SockRef::from(&stream));
                if stream.set_nonblocking(true).is_err() {
                    return;
                }
                if self.pending.len() >= MAX_PENDING {
                    self.pending.pop_front();
                }
                let until = now + self.hello_timeout;
                let (length, received, body) = ([0; 4], 0, Vec::new());
                self.pending.push_back(Pending { stream, from, until, length, received, body });
            }
            // The client has given up.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // Out of descriptors: closing the oldest connection frees one.
            Err(_) => {
                if self.pending.pop_front().is_none() {
                    self.retry_at = Some(now + ACCEPT_RETRY_DELAY);
                }
            }
        }
    }
}

impl Pending {
    fn receive(&mut self) -> Received {
        loop {
            let read = if self.received < 4 {
                self.stream.read(&mut self.length[self.received..])
            } else {
                let length = u32::from_le_bytes(self.length);
                if length > LONGEST_HELLO {
                    return Received::NotHello;
                }
                if self.body.is_empty() {
                    self.body.resize(length as usize, 0);
                }
                let said = self.received - 4;
                if said == self.body.len() {
                    return self.hello();
                }
                self.stream.read(&mut self.body[said..])
            };
            match read {
                Ok(0) => return Received::NotHello,
                Ok(received) => self.received += received,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Received::Partial;
                }
                Err(_) => return Received::NotHello,
            }
        }
    }

    fn hello(&self) -> Received {
        let mut message = self.length.as_slice().chain(self.body.as_slice());
        match wire::read_within(&mut message, LONGEST_HELLO) {
            Ok(Order::Hello { version }) => Received::Hello(version),
            _ => Received::NotHello,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::mpsc::{Receiver, channel};

    use rustix::event::{Timespec, poll};

    use super::*;

    fn wait(acceptor: &Acceptor) -> Vec<PollFlags> {
        let mut wanted: Vec<PollFd<'_>> = acceptor.poll_fds().collect();
        let left = acceptor.deadline().map(|due| due.saturating_duration_since(Instant::now()));
        let left = left.map(|left| Timespec::try_from(left + Duration::from_millis(1)).unwrap());
        poll(&mut wanted, left.as_ref()).unwrap();
        wanted.iter().map(PollFd::revents).collect()
    }

    /// An acceptor in a thread of its own, which tells of each hello by its version.
    fn acceptor(hello_timeout: Duration) -> (SocketAddr, Receiver<(TcpStream, u32)>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let mut acceptor = Acceptor::new(listener).unwrap();
        acceptor.hello_timeout = hello_timeout;
        let (sender, hellos) = channel();
        std::thread::spawn(move || {
            loop {
                let ready = wait(&acceptor);
                for Client { stream, version, .. } in
                    acceptor.process_events(&ready, Instant::now())
                {
                    if sender.send((stream, version)).is_err() {
                        return;
                    }
                }
            }
        });
        (at, hellos)
    }

    fn hello(version: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        wire::write(&mut bytes, &Order::Hello { version }).unwrap();
        bytes
    }

    /// Whether the other side has closed.
    fn is_closed(mut stream: &TcpStream) -> bool {
        matches!(stream.read(&mut [0; 1]), Ok(0) | Err(_))
    }

    #[test]
    fn silent_connections_cost_no_thread_and_keep_nobody_out() {
        let (at, hellos) = acceptor(Duration::from_secs(3600));
        let silent: Vec<TcpStream> = (0..3000).map(|_| TcpStream::connect(at).unwrap()).collect();
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let threads = status.lines().find_map(|line| line.strip_prefix("Threads:")).unwrap();
        assert!(threads.trim().parse::<u32>().unwrap() < 100, "{threads}");
        let mut controller = TcpStream::connect(at).unwrap();
        controller.write_all(&hello(7)).unwrap();
        assert_eq!(hellos.recv().unwrap().1, 7);
        // The oldest have been closed, and not the newest.
        assert!(is_closed(&silent[0]) && is_closed(&silent[3000 - MAX_PENDING - 2]));
        silent[2999].set_nonblocking(true).unwrap();
        let error = (&silent[2999]).read(&mut [0; 1]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn who_does_not_say_hello_in_time_is_closed() {
        let (at, hellos) = acceptor(Duration::from_millis(20));
        let silent = TcpStream::connect(at).unwrap();
        assert!(is_closed(&silent));
        let mut slow = TcpStream::connect(at).unwrap();
        slow.write_all(&hello(1)[..5]).unwrap();
        assert!(is_closed(&slow));
        assert!(hellos.try_recv().is_err());
    }

    #[test]
    fn a_hello_may_come_in_parts_and_what_follows_is_left() {
        let (at, hellos) = acceptor(Duration::from_secs(3600));
        let mut stream = TcpStream::connect(at).unwrap();
        stream.set_nodelay(true).unwrap();
        let mut bytes = hello(7);
        bytes.extend(b"rest");
        bytes.iter().for_each(|&byte| stream.write_all(&[byte]).unwrap());
        let (mut stream, version) = hellos.recv().unwrap();
        assert_eq!(version, 7);
        let mut rest = [0; 4];
        stream.read_exact(&mut rest).unwrap();
        assert_eq!(&rest, b"rest");
    }

    #[test]
    fn what_is_no_hello_is_closed() {
        let (at, hellos) = acceptor(Duration::from_secs(3600));
        let mut other = Vec::new();
        wire::write(&mut other, &Order::Environment).unwrap();
        let long = (LONGEST_HELLO + 1).to_le_bytes().to_vec();
        for said in [b"GET / HTTP/1.1\r\n\r\n".to_vec(), long, vec![0; 4], other] {
            let mut stream = TcpStream::connect(at).unwrap();
            stream.write_all(&said).unwrap();
            assert!(is_closed(&stream), "{said:?}");
        }
        assert!(hellos.try_recv().is_err());
    }
}
