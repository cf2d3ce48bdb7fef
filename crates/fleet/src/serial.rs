//! Sessions through a serial port of a virtual machine: virtio-serial in the guest, a socket of the domain
//! Unix on the machine that runs it. The guest needs no network to that machine.
//!
//! A port is one stream of bytes for all controllers, one after the other. The guest writes a line when a
//! controller has connected and the session before has ended. The controller discards what comes before
//! that line, which is of a session whose controller has gone.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::listener::KILL_AFTER;
use crate::wire::{self, Notice};

/// Before the path of a socket, where an address is expected.
pub const SCHEME: &str = "unix:";

/// What the guest writes before a session. No message contains it: the text of one has no line feed.
const READY: &[u8] = b"\nwirecost agent ready\n";

/// How long a controller waits for [`READY`] before it connects anew: the guest sees the end of a
/// connection that is followed at once by another only if it looks in between.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(500);
/// How often the guest looks whether a controller has connected: `poll` of a port without one returns at
/// once (`port_fops_poll` in
/// [virtio_console.c](https://github.com/torvalds/linux/blob/v6.1/drivers/char/virtio_console.c)).
const LOOK: Duration = Duration::from_millis(100);

/// Connects to the socket of a port, and waits until the guest is ready for a session.
///
/// # Errors
/// Those of the socket; `TimedOut` if the guest is not ready within `timeout`.
pub(crate) fn connect(socket: &Path, timeout: Duration) -> io::Result<UnixStream> {
    let due = Instant::now() + timeout;
    loop {
        let stream = UnixStream::connect(socket)?;
        let left = due.saturating_duration_since(Instant::now());
        stream.set_read_timeout(Some(left.min(PATIENCE).max(PAUSE)))?;
        match until_ready(&stream) {
            Ok(()) => {
                stream.set_read_timeout(None)?;
                return Ok(stream);
            }
            Err(_) if Instant::now() + PAUSE < due => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let message = "the agent is not ready, or has another session";
                return Err(io::Error::new(io::ErrorKind::TimedOut, message));
            }
            Err(error) => return Err(error),
        }
        drop(stream);
        std::thread::sleep(PAUSE);
    }
}

/// Reads up to the end of [`READY`], and nothing beyond.
fn until_ready(mut stream: impl Read) -> io::Result<()> {
    let mut last = [0; READY.len()];
    while last != READY {
        last.rotate_left(1);
        stream.read_exact(&mut last[READY.len() - 1..])?;
    }
    Ok(())
}

/// Why a port cannot be served.
#[derive(Debug, thiserror::Error)]
#[error("cannot serve the port {device}: {source}")]
pub struct PortError {
    device: String,
    #[source]
    source: io::Error,
}

/// Serves sessions at a port, one at a time, until the process is ended. `session` makes a command that
/// serves the one session whose stream is its standard input.
///
/// # Errors
/// When the port cannot be opened, or fails.
pub fn serve(device: &Path, session: &dyn Fn() -> Command) -> Result<(), PortError> {
    let failed = |source| PortError { device: device.display().to_string(), source };
    let mut port = File::options().read(true).write(true).open(device).map_err(failed)?;
    loop {
        while !has_controller(&port).map_err(failed)? {
            std::thread::sleep(LOOK);
        }
        serve_one(&mut port, session()).map_err(failed)?;
    }
}

fn has_controller(port: &File) -> io::Result<bool> {
    let mut polled = [PollFd::new(port, PollFlags::IN)];
    poll(&mut polled, Some(&Timespec::default()))?;
    Ok(!polled[0].revents().contains(PollFlags::HUP))
}

/// Serves a session until it has ended and its controller has gone.
fn serve_one(port: &mut File, mut command: Command) -> io::Result<()> {
    port.write_all(READY)?;
    let (ours, theirs) = UnixStream::pair()?;
    let spawned = command.stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::null()).spawn();
    // It holds the session's end of the stream.
    drop(command);
    let (child, mut failure) = match spawned {
        Ok(child) => (Some(child), None),
        Err(error) => (None, Some(format!("the process of the session did not start: {error}"))),
    };
    let process = child.as_ref().map(handle).transpose()?;
    let (from_port, to_session) = (port.try_clone()?, ours.try_clone()?);
    let orders =
        std::thread::Builder::new().name("wirecost-orders".to_owned()).spawn(move || {
            pass_on(&from_port, &to_session);
            let _ = to_session.shutdown(Shutdown::Both);
            if let Some(process) = process {
                end(&process);
            }
        })?;
    // To a port without a controller this blocks until the next one comes, who discards it.
    copy(&ours, &*port)?;
    let _ = ours.shutdown(Shutdown::Both);
    if let Some(mut child) = child {
        let status = child.wait()?;
        if !status.success() {
            failure = Some(format!("the process of the session ended or was killed ({status})"));
        }
    }
    if let (Some(reason), true) = (failure, has_controller(port)?) {
        wire::write(port, &Notice::SessionEnded { reason })?;
    }
    orders.join().map_err(|_| io::Error::other("the thread that passes on orders panicked"))
}

/// Passes on what the controller sends until it has gone. When the session has ended before that, nobody
/// wants it.
fn pass_on(from: &File, to: &UnixStream) {
    if copy(from, to).is_err() {
        let _ = copy(from, io::sink());
    }
}

/// Until the end of `from`, which of a port is that no controller is connected.
fn copy(mut from: impl Read, mut to: impl Write) -> io::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(length) => to.write_all(&buffer[..length])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn handle(child: &Child) -> io::Result<OwnedFd> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| io::Error::other("a process without a number"))?;
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}

/// A session ends with its stream; one that does not is killed.
fn end(process: &OwnedFd) {
    let patience = Timespec::try_from(KILL_AFTER).ok();
    if let Ok(0) = poll(&mut [PollFd::new(process, PollFlags::IN)], patience.as_ref()) {
        let _ = pidfd_send_signal(process, Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    /// What a session of before has left in the port is not of this one.
    #[test]
    fn what_comes_before_ready_is_discarded_and_what_comes_after_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("port");
        let listener = UnixListener::bind(&path).unwrap();
        let guest = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(b"{\"left\":1}\nwirecost agent read").unwrap();
            stream.write_all(READY).unwrap();
            stream.write_all(b"answer").unwrap();
        });
        let mut stream = connect(&path, Duration::from_secs(600)).unwrap();
        guest.join().unwrap();
        let mut rest = String::new();
        stream.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "answer");
    }

    /// The guest has not seen that the controller before has gone.
    #[test]
    fn a_controller_that_is_not_greeted_connects_anew() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("port");
        let listener = UnixListener::bind(&path).unwrap();
        let guest = std::thread::spawn(move || {
            drop(listener.accept().unwrap());
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(READY).unwrap();
        });
        connect(&path, Duration::from_secs(600)).unwrap();
        guest.join().unwrap();
    }

    #[test]
    fn a_port_that_never_greets_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("port");
        let _listener = UnixListener::bind(&path).unwrap();
        let error = connect(&path, Duration::ZERO).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(connect(&directory.path().join("none"), Duration::ZERO).is_err());
    }

    /// A port's file and its controller: a socket ends like one when the controller has gone.
    fn port() -> (File, UnixStream) {
        let (port, controller) = UnixStream::pair().unwrap();
        (File::from(OwnedFd::from(port)), controller)
    }

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_session_talks_with_its_controller_until_that_has_gone() {
        let (mut port, mut controller) = port();
        let served = std::thread::spawn(move || {
            // Standard output of a session is nobody's: it answers by its standard input.
            serve_one(&mut port, shell("read order; echo \"done $order\" >&0; cat >&2")).unwrap();
        });
        until_ready(&controller).unwrap();
        controller.write_all(b"this\n").unwrap();
        let mut answer = [0; 10];
        controller.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"done this\n");
        drop(controller);
        served.join().unwrap();
    }

    #[test]
    fn who_waits_for_a_session_that_failed_is_told() {
        let (mut port, mut controller) = port();
        let served = std::thread::spawn(move || serve_one(&mut port, shell("exit 7")).unwrap());
        until_ready(&controller).unwrap();
        let notice: Notice = wire::read(&mut controller).unwrap();
        let Notice::SessionEnded { reason } = notice else { panic!("{notice:?}") };
        assert!(reason.contains("exit status: 7"), "{reason}");
        drop(controller);
        served.join().unwrap();
        let missing = Command::new("/nonexistent/program");
        let (mut port, mut controller) = self::port();
        let served = std::thread::spawn(move || serve_one(&mut port, missing).unwrap());
        until_ready(&controller).unwrap();
        assert!(matches!(wire::read(&mut controller), Ok(Notice::SessionEnded { .. })));
        drop(controller);
        served.join().unwrap();
    }
}
