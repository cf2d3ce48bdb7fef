//! Sending from a program's own pages (MSG_ZEROCOPY), and the notifications that they are free again:
//! <https://docs.kernel.org/networking/msg_zerocopy.html>.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use rustix::io::Errno;

use crate::raw_option::SocketOption;

/// `struct sock_extended_err`, <https://elixir.bootlin.com/linux/v6.12/source/include/uapi/linux/errqueue.h#L10>.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct ExtendedError {
    errno: u32,
    origin: u8,
    kind: u8,
    code: u8,
    pad: u8,
    info: u32,
    data: u32,
}

const ORIGIN_ZEROCOPY: u8 = 5;
const CODE_COPIED: u8 = 1;

/// A control message with room for an entry of the error queue and the address behind it.
#[repr(C)]
#[derive(Default)]
struct Control {
    length: usize,
    level: libc::c_int,
    kind: libc::c_int,
    error: ExtendedError,
    address: [u64; 4],
}

/// Calls whose pages are free again. The calls of a socket are numbered from 0; those that sent
/// nothing are not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    pub calls: u32,
    /// The kernel still copied the bytes of these calls.
    pub copied: bool,
}

/// Allows MSG_ZEROCOPY on a socket.
///
/// # Errors
/// Those of setsockopt(2): `EOPNOTSUPP` where the protocol has no such way of sending.
pub fn allow(socket: impl AsFd) -> io::Result<()> {
    // SAFETY: an int.
    const ZEROCOPY: SocketOption<libc::c_int> =
        unsafe { SocketOption::new(libc::SOL_SOCKET, libc::SO_ZEROCOPY) };
    ZEROCOPY.set(socket, &1)
}

/// Memory that can be sent without a copy. The kernel reads it after a call has returned, for as long as
/// it may have to send it again, also when the socket has been closed. Therefore the bytes never change,
/// and memory that was sent from is never freed.
#[derive(Debug, Default)]
pub struct HeldMemory {
    all: Vec<Arc<[u8]>>,
    sent: bool,
}

impl HeldMemory {
    /// Allows these bytes to be sent without a copy.
    pub fn hold(&mut self, bytes: Arc<[u8]>) {
        self.all.push(bytes);
    }

    /// Sends without a copy. A [`Completion`] says when the kernel has let go of the bytes.
    ///
    /// # Errors
    /// Those of send(2); `ENOBUFS` for bytes that are not held, when net.core.optmem_max allows no more
    /// pending notifications, or when RLIMIT_MEMLOCK allows no more pinned pages.
    pub fn send(&mut self, socket: impl AsFd, bytes: &[u8]) -> io::Result<usize> {
        let from = self.all.iter().find_map(|all| within(all, bytes));
        let from = from.ok_or(Errno::NOBUFS)?;
        self.sent = true;
        let flags = libc::MSG_ZEROCOPY | libc::MSG_NOSIGNAL;
        // SAFETY: `bytes.len()` bytes from there are held. They stay as they are as long as the kernel may
        // read them: nobody can change what an `Arc` shares, and its memory is not freed.
        let sent =
            unsafe { libc::send(socket.as_fd().as_raw_fd(), from.cast(), bytes.len(), flags) };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }
}

impl Drop for HeldMemory {
    fn drop(&mut self) {
        if self.sent {
            std::mem::forget(std::mem::take(&mut self.all));
        }
    }
}

/// Where `bytes` are, if they are a part of `all`.
pub(crate) fn within(all: &Arc<[u8]>, bytes: &[u8]) -> Option<*const u8> {
    let offset = (bytes.as_ptr() as usize).checked_sub(all.as_ptr() as usize)?;
    let end = offset.checked_add(bytes.len())?;
    Some(all.get(offset..end)?.as_ptr())
}

/// The next notification in the socket's error queue; `None` when the queue is empty.
///
/// # Errors
/// Those of recvmsg(2).
pub fn completion(socket: impl AsFd) -> io::Result<Option<Completion>> {
    loop {
        let mut control = Control::default();
        // SAFETY: all-zero is a valid msghdr: no name, no pieces, no control.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_control = (&raw mut control).cast();
        message.msg_controllen = size_of::<Control>();
        let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
        // SAFETY: `message` points to nothing but `control`, which is writable for its length.
        let got = unsafe { libc::recvmsg(socket.as_fd().as_raw_fd(), &mut message, flags) };
        if got < 0 {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::WouldBlock => Ok(None),
                io::ErrorKind::Interrupted => continue,
                _ => Err(error),
            };
        }
        let ExtendedError { errno, origin, code, info, data, .. } = control.error;
        if message.msg_controllen > 0 && errno == 0 && origin == ORIGIN_ZEROCOPY {
            // The numbers are 32 bits wide and may wrap between the two.
            let calls = data.wrapping_sub(info).wrapping_add(1);
            return Ok(Some(Completion { calls, copied: code & CODE_COPIED != 0 }));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};

    use super::*;

    /// Loopback delivers to this kernel, which copies what it hands to a program.
    #[test]
    fn loopback_copies_and_says_so() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut receiver, _) = listener.accept().unwrap();
        allow(&sender).unwrap();
        assert_eq!(completion(&sender).unwrap(), None);
        let bytes: Arc<[u8]> = vec![7; 30_000].into();
        let mut held = HeldMemory::default();
        held.hold(bytes.clone());
        let mut sent = 0;
        for _ in 0..3 {
            sent += held.send(&sender, &bytes[1..]).unwrap();
        }
        let mut received = vec![0; sent];
        receiver.read_exact(&mut received).unwrap();
        assert!(received.iter().all(|&byte| byte == 7));
        let mut calls = 0;
        while calls < 3 {
            if let Some(done) = completion(&sender).unwrap() {
                assert!(done.copied);
                calls += done.calls;
            }
        }
        assert_eq!(completion(&sender).unwrap(), None);
    }

    #[test]
    fn a_socket_without_zerocopy_copies_and_sends_no_notification() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let bytes: Arc<[u8]> = vec![1; 100].into();
        let mut held = HeldMemory::default();
        held.hold(bytes.clone());
        assert_eq!(held.send(&sender, &bytes).unwrap(), 100);
        assert_eq!(completion(&sender).unwrap(), None);
    }

    #[test]
    fn memory_that_is_not_held_is_not_sent() {
        let (sender, _receiver) = std::os::unix::net::UnixStream::pair().unwrap();
        let bytes: Arc<[u8]> = vec![1; 100].into();
        let mut held = HeldMemory::default();
        held.hold(bytes.clone());
        let same: Arc<[u8]> = vec![1; 100].into();
        for foreign in [&same[..], &[1; 100]] {
            let error = held.send(&sender, foreign).unwrap_err();
            assert_eq!(Errno::from_io_error(&error), Some(Errno::NOBUFS));
        }
    }

    #[test]
    fn memory_that_was_sent_from_is_not_freed() {
        let (sender, _receiver) = std::os::unix::net::UnixStream::pair().unwrap();
        let bytes: Arc<[u8]> = vec![1; 100].into();
        let holds = |held: HeldMemory| {
            drop(held);
            Arc::strong_count(&bytes) > 1
        };
        let mut held = HeldMemory::default();
        held.hold(bytes.clone());
        assert!(!holds(held));
        let mut held = HeldMemory::default();
        held.hold(bytes.clone());
        let _ = held.send(&sender, &bytes);
        assert!(holds(held));
    }
}
