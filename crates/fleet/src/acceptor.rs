//! Who connects to an agent, until it has said hello. One thread holds all of them: a connection that
//! says nothing costs a descriptor for a few seconds, and no thread.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::wire::{self, LONGEST_HELLO, Order};

/// How long a connection may take to say hello. A controller does so at once.
const PATIENCE: Duration = Duration::from_secs(5);

/// Connections that have not said hello. When there are more the oldest is closed, so that nobody is
/// kept out by silent ones for longer than a few round trips.
const WAITING: usize = 256;

/// How long the agent waits when it can take no connection, for want of descriptors.
const EXHAUSTED: Duration = Duration::from_millis(50);

/// The listening socket of an agent, and those who have not said hello.
#[derive(Debug)]
pub(crate) struct Acceptor {
    listener: TcpListener,
    waiting: VecDeque<Waiting>,
    patience: Duration,
}

#[derive(Debug)]
struct Waiting {
    stream: TcpStream,
    until: Instant,
    /// The message so far: its length, and what has come of it.
    length: [u8; 4],
    got: usize,
    body: Vec<u8>,
}

/// What has become of a connection.
enum Heard {
    Hello(Order),
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
        Ok(Self { listener, waiting: VecDeque::new(), patience: PATIENCE })
    }

    /// Waits for the next connection that says hello. Nothing behind its hello has been read.
    ///
    /// # Errors
    /// Those of poll(2).
    pub(crate) fn next(&mut self) -> io::Result<(TcpStream, Order)> {
        loop {
            let (called, ready) = self.wait()?;
            // The last first, so that places before it stay what they are.
            for place in ready.into_iter().rev() {
                match self.waiting[place].hear() {
                    Heard::Part => {}
                    Heard::Stranger => drop(self.waiting.remove(place)),
                    Heard::Hello(hello) => {
                        let Some(waiting) = self.waiting.remove(place) else { continue };
                        if waiting.stream.set_nonblocking(false).is_ok() {
                            return Ok((waiting.stream, hello));
                        }
                    }
                }
            }
            let now = Instant::now();
            self.waiting.retain(|waiting| waiting.until > now);
            if called {
                self.accept();
            }
        }
    }

    /// Waits until something comes, or somebody's time is up. Returns whether somebody connects, and
    /// who has said something.
    fn wait(&self) -> io::Result<(bool, Vec<usize>)> {
        let mut fds = vec![PollFd::new(&self.listener, PollFlags::IN)];
        fds.extend(self.waiting.iter().map(|w| PollFd::new(&w.stream, PollFlags::IN)));
        let now = Instant::now();
        let left = self.waiting.front().map(|oldest| oldest.until.saturating_duration_since(now));
        // Not before the time is up: a millisecond more.
        let left = left.map(|left| left + Duration::from_millis(1));
        let timeout = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut ready = fds.iter().map(|fd| !fd.revents().is_empty());
        let called = ready.next().unwrap_or(false);
        Ok((
            called,
            ready.enumerate().filter_map(|(place, ready)| ready.then_some(place)).collect(),
        ))
    }

    fn accept(&mut self) {
        match self.listener.accept() {
            Ok((stream, _)) => {
                let _ = stream.set_nodelay(true);
                if stream.set_nonblocking(true).is_err() {
                    return;
                }
                if self.waiting.len() >= WAITING {
                    self.waiting.pop_front();
                }
                let until = Instant::now() + self.patience;
                let waiting = Waiting { stream, until, length: [0; 4], got: 0, body: Vec::new() };
                self.waiting.push_back(waiting);
            }
            // Somebody who has given up.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // Out of descriptors, of which the oldest has one to give.
            Err(_) => {
                if self.waiting.pop_front().is_none() {
                    std::thread::sleep(EXHAUSTED);
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
            Ok(hello @ Order::Hello { .. }) => Heard::Hello(hello),
            _ => Heard::Stranger,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::SocketAddr;

    use super::*;

    /// An acceptor in a thread of its own, which tells of each hello by its version.
    fn acceptor(patience: Duration) -> (SocketAddr, std::sync::mpsc::Receiver<(TcpStream, u32)>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let mut acceptor = Acceptor::new(listener).unwrap();
        acceptor.patience = patience;
        let (sender, hellos) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            while let Ok((stream, Order::Hello { version })) = acceptor.next() {
                if sender.send((stream, version)).is_err() {
                    return;
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
