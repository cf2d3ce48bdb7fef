//! Who connects to an agent, until it has said hello. The thread of the listener holds all of them: a
//! connection that says nothing costs a descriptor for a few seconds, no thread and no process.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use socket2::SockRef;

use crate::watchdog::notice_vanished_host;
use crate::wire::{self, LONGEST_HELLO, Order};

/// How long a connection may take to say hello. A controller does so at once.
const PATIENCE: Duration = Duration::from_secs(5);

/// Connections that have not said hello. When there are more the oldest is closed, so that nobody is
/// kept out by silent ones for longer than a few round trips.
const WAITING: usize = 256;

/// How long the agent waits when it can take no connection, for want of descriptors or memory.
pub(crate) const EXHAUSTED: Duration = Duration::from_millis(50);

/// The listening socket of an agent, and those who have not said hello.
#[derive(Debug)]
pub(crate) struct Acceptor {
    listener: TcpListener,
    waiting: VecDeque<Waiting>,
    patience: Duration,
    /// Out of descriptors until then.
    rests_until: Option<Instant>,
}

#[derive(Debug)]
struct Waiting {
    stream: TcpStream,
    from: SocketAddr,
    until: Instant,
    /// The message so far: its length, and what has come of it.
    length: [u8; 4],
    got: usize,
    body: Vec<u8>,
}

/// Somebody who has said hello. Nothing behind that has been read.
#[derive(Debug)]
pub(crate) struct Caller {
    pub(crate) stream: TcpStream,
    pub(crate) from: SocketAddr,
    /// Of the protocol.
    pub(crate) version: u32,
}

/// What has become of a connection.
enum Heard {
    Hello(u32),
    /// There is more to come.
    Part,
    /// It has ended, or what it said is no hello.
    Stranger,
}

impl Acceptor {
    /// # Errors
    /// When the socket cannot be made non-blocking.
    pub(crate) fn new(listener: TcpListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        Ok(Self { listener, waiting: VecDeque::new(), patience: PATIENCE, rests_until: None })
    }

    /// What is waited for: the listening socket first, then those who have not said hello.
    pub(crate) fn wanted(&self) -> impl Iterator<Item = PollFd<'_>> {
        let accepts = match self.rests_until {
            None => PollFlags::IN,
            Some(_) => PollFlags::empty(),
        };
        let waiting = self.waiting.iter().map(|w| PollFd::new(&w.stream, PollFlags::IN));
        std::iter::once(PollFd::new(&self.listener, accepts)).chain(waiting)
    }

    /// When somebody's time is up.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.waiting.front().map(|oldest| oldest.until).into_iter().chain(self.rests_until).min()
    }

    /// Goes on after a wait; `ready`: events of what was [wanted](Self::wanted). Returns who has said
    /// hello.
    pub(crate) fn go_on(&mut self, ready: &[PollFlags], now: Instant) -> Vec<Caller> {
        let Some((called, ready)) = ready.split_first() else { return Vec::new() };
        let mut callers = Vec::new();
        // The last first, so that places before it stay what they are.
        for (place, _) in ready.iter().enumerate().rev().filter(|(_, events)| !events.is_empty()) {
            match self.waiting[place].hear() {
                Heard::Part => {}
                Heard::Stranger => drop(self.waiting.remove(place)),
                Heard::Hello(version) => {
                    let Some(Waiting { stream, from, .. }) = self.waiting.remove(place) else {
                        continue;
                    };
                    if stream.set_nonblocking(false).is_ok() {
                        callers.push(Caller { stream, from, version });
                    }
                }
            }
        }
        callers.reverse();
        self.waiting.retain(|waiting| waiting.until > now);
        let rested = self.rests_until.is_some_and(|until| now >= until);
        if rested {
            self.rests_until = None;
        }
        if rested || !called.is_empty() {
            self.accept(now);
        }
        callers
    }

    fn accept(&mut self, now: Instant) {
        match self.listener.accept() {
            Ok((stream, from)) => {
                let _ = stream.set_nodelay(true);
                let _ = notice_vanished_host(SockRef::from(&stream));
                if stream.set_nonblocking(true).is_err() {
                    return;
                }
                if self.waiting.len() >= WAITING {
                    self.waiting.pop_front();
                }
                let until = now + self.patience;
                let (length, got, body) = ([0; 4], 0, Vec::new());
                self.waiting.push_back(Waiting { stream, from, until, length, got, body });
            }
            // Somebody who has given up.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // Out of descriptors, of which the oldest has one to give.
            Err(_) => {
                if self.waiting.pop_front().is_none() {
                    self.rests_until = Some(now + EXHAUSTED);
                }
            }
        }
    }
}

impl Waiting {
    fn hear(&mut self) -> Heard {
        loop {
            let read = if self.got < 4 {
                self.stream.read(&mut self.length[self.got..])
            } else {
                let length = u32::from_le_bytes(self.length);
                if length > LONGEST_HELLO {
                    return Heard::Stranger;
                }
                if self.body.is_empty() {
                    self.body.resize(length as usize, 0);
                }
                let said = self.got - 4;
                if said == self.body.len() {
                    return self.hello();
                }
                self.stream.read(&mut self.body[said..])
            };
            match read {
                Ok(0) => return Heard::Stranger,
                Ok(got) => self.got += got,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Heard::Part,
                Err(_) => return Heard::Stranger,
            }
        }
    }

    fn hello(&self) -> Heard {
        let mut message = self.length.as_slice().chain(self.body.as_slice());
        match wire::read_within(&mut message, LONGEST_HELLO) {
            Ok(Order::Hello { version }) => Heard::Hello(version),
            _ => Heard::Stranger,
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
        let mut wanted: Vec<PollFd<'_>> = acceptor.wanted().collect();
        let left = acceptor.due().map(|due| due.saturating_duration_since(Instant::now()));
        let left = left.map(|left| Timespec::try_from(left + Duration::from_millis(1)).unwrap());
        poll(&mut wanted, left.as_ref()).unwrap();
        wanted.iter().map(PollFd::revents).collect()
    }

    /// An acceptor in a thread of its own, which tells of each hello by its version.
    fn acceptor(patience: Duration) -> (SocketAddr, Receiver<(TcpStream, u32)>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let mut acceptor = Acceptor::new(listener).unwrap();
        acceptor.patience = patience;
        let (sender, hellos) = channel();
        std::thread::spawn(move || {
            loop {
                let ready = wait(&acceptor);
                for Caller { stream, version, .. } in acceptor.go_on(&ready, Instant::now()) {
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
        assert!(is_closed(&silent[0]) && is_closed(&silent[3000 - WAITING - 2]));
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
