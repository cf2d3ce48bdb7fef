//! Ends a session whose controller has gone, also while the session carries out an order and reads no
//! others.

use std::io;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::{SockRef, Socket, TcpKeepalive};
use wirecost_linux::confine;

use crate::agent::LEASE;

/// A silent connection is probed after this time, and then as often.
const PROBE: Duration = Duration::from_secs(5);

/// Makes the kernel notice when the host at the other end of a connection over TCP has gone without
/// closing it. The application sees only the silence of a controller that it reads from.
pub(crate) fn enable_keepalive(stream: SockRef<'_>) -> io::Result<()> {
    let keepalive = TcpKeepalive::new().with_time(PROBE).with_interval(PROBE);
    stream.set_tcp_keepalive(&keepalive)?;
    // Also of data that nobody acknowledges, which no probe follows (tcp(7), `TCP_USER_TIMEOUT`).
    stream.set_tcp_user_timeout(Some(LEASE))
}

/// Whether the other side has hung up; waits for it as long as `patience`, for ever without.
pub(crate) fn is_gone(stream: &Socket, patience: Option<Timespec>) -> bool {
    match poll(&mut [PollFd::new(stream, PollFlags::RDHUP)], patience.as_ref()) {
        Ok(events) => events > 0,
        Err(rustix::io::Errno::INTR) => false,
        Err(_) => true,
    }
}

/// Watches a session until this is dropped, which must happen no earlier than the session's end.
#[derive(Debug)]
pub(crate) struct Watchdog {
    _running: Sender<()>,
}

impl Watchdog {
    /// Calls `hangs` when the session has not ended `grace` after its controller has gone.
    pub(crate) fn start(
        stream: Socket,
        grace: Duration,
        hangs: impl FnOnce() + Send + 'static,
    ) -> io::Result<Self> {
        let (running, ended) = channel::<()>();
        std::thread::Builder::new().name("wirecost-gone".to_owned()).spawn(move || {
            // It waits, and needs no rights for that.
            let _ = confine::keep_only(&[]);
            while !is_gone(&stream, None) {}
            if ended.recv_timeout(grace) == Err(RecvTimeoutError::Timeout) {
                hangs();
            }
        })?;
        Ok(Self { _running: running })
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;

    use super::*;

    /// What a session has, and the other end of its stream.
    fn watched(grace: Duration) -> (Watchdog, Socket, UnixStream, std::sync::mpsc::Receiver<()>) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let stream = Socket::from(std::os::fd::OwnedFd::from(ours));
        let (sender, hangs) = channel();
        let hung = move || sender.send(()).unwrap();
        let watchdog = Watchdog::start(stream.try_clone().unwrap(), grace, hung).unwrap();
        (watchdog, stream, theirs, hangs)
    }

    #[test]
    fn a_session_that_outlives_its_controller_hangs() {
        let (_watchdog, _stream, controller, hangs) = watched(Duration::from_millis(1));
        drop(controller);
        hangs.recv().unwrap();
    }

    #[test]
    fn a_session_that_has_ended_does_not_hang() {
        let (watchdog, stream, _controller, hangs) = watched(Duration::MAX);
        stream.shutdown(std::net::Shutdown::Both).unwrap();
        drop(watchdog);
        // Its thread has ended without a word.
        hangs.recv().unwrap_err();
    }

    #[test]
    fn a_silent_host_is_probed() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _controller = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        enable_keepalive(SockRef::from(&stream)).unwrap();
        let stream = SockRef::from(&stream);
        assert!(stream.keepalive().unwrap());
        assert_eq!(stream.tcp_keepalive_time().unwrap(), PROBE);
        assert_eq!(stream.tcp_user_timeout().unwrap(), Some(LEASE));
    }
}
