//! Sending from a program's own pages (MSG_ZEROCOPY), and the notifications that they are free again:
//! <https://docs.kernel.org/networking/msg_zerocopy.html>.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

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

/// Sends without a copy. The bytes must not change before a [`Completion`] says so: what the kernel
/// sends, and sends again, is what stands there by then.
///
/// # Errors
/// Those of send(2); `ENOBUFS` when net.core.optmem_max allows no more pending notifications, or
/// RLIMIT_MEMLOCK no more pinned pages.
pub fn send(socket: impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    let flags = libc::MSG_ZEROCOPY | libc::MSG_NOSIGNAL;
    // SAFETY: the kernel reads `bytes.len()` bytes from a valid slice. That it does so later as well
    // harms no memory: it holds the pages itself.
    let sent = unsafe {
        libc::send(socket.as_fd().as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), flags)
    };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
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
        let bytes = vec![7; 30_000];
        let mut sent = 0;
        for _ in 0..3 {
            sent += send(&sender, &bytes).unwrap();
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
        assert_eq!(send(&sender, &[1; 100]).unwrap(), 100);
        assert_eq!(completion(&sender).unwrap(), None);
    }
}
