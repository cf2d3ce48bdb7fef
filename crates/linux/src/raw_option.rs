//! Socket options by level and number, for those that no library knows.

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd};

use zerocopy::{FromBytes, Immutable, IntoBytes};

/// An option whose value is a `T`; of one that has values of several lengths, `[u8]`.
///
/// Not every option may be one of these: the kernel takes the length of `SO_GET_FILTER` in instructions of 8
/// bytes, and writes to an address that stands in the value of `TCP_ZEROCOPY_RECEIVE`. So whoever
/// defines one vouches for it, and then it can be used by everybody.
pub(crate) struct SocketOption<T: ?Sized> {
    level: libc::c_int,
    name: libc::c_int,
    value: PhantomData<fn(&T)>,
}

impl<T: ?Sized> SocketOption<T> {
    /// # Safety
    /// The kernel takes the length of this option's value as a number of bytes, and does not follow
    /// addresses in the value.
    pub(crate) const unsafe fn new(level: libc::c_int, name: libc::c_int) -> Self {
        Self { level, name, value: PhantomData }
    }

    /// # Errors
    /// Those of setsockopt(2).
    pub(crate) fn set(&self, socket: impl AsFd, value: &T) -> io::Result<()>
    where
        T: IntoBytes + Immutable,
    {
        let value = value.as_bytes();
        // SAFETY: the slice is readable for its length and outlives the call. What else the kernel
        // may do with it was promised in `new`.
        let result = unsafe {
            libc::setsockopt(
                socket.as_fd().as_raw_fd(),
                self.level,
                self.name,
                value.as_ptr().cast(),
                value.len() as libc::socklen_t,
            )
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Reads the option into `value`, in which some options expect what is wanted. Returns how many
    /// bytes the kernel has written: an older one may know less of a structure.
    ///
    /// # Errors
    /// Those of getsockopt(2).
    pub(crate) fn read(&self, socket: impl AsFd, value: &mut T) -> io::Result<usize>
    where
        T: FromBytes + IntoBytes,
    {
        let value = value.as_mut_bytes();
        let mut length = value.len() as libc::socklen_t;
        // SAFETY: the slice is writable for `length` bytes and both outlive the call; any bytes are
        // a value of the type. What else the kernel may do was promised in `new`.
        let result = unsafe {
            libc::getsockopt(
                socket.as_fd().as_raw_fd(),
                self.level,
                self.name,
                value.as_mut_ptr().cast(),
                &mut length,
            )
        };
        if result == 0 {
            Ok((length as usize).min(value.len()))
        } else {
            Err(io::Error::last_os_error())
        }
    }
}

impl<T: FromBytes + IntoBytes> SocketOption<T> {
    /// The option's value. What the kernel does not write of it is zero.
    ///
    /// # Errors
    /// Those of getsockopt(2).
    pub(crate) fn get(&self, socket: impl AsFd) -> io::Result<T> {
        let mut value = T::new_zeroed();
        self.read(socket, &mut value)?;
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream, UdpSocket};

    use super::*;

    #[derive(FromBytes, IntoBytes, Immutable, Debug, PartialEq, Eq)]
    #[repr(C)]
    struct Linger {
        on: libc::c_int,
        seconds: libc::c_int,
    }

    // SAFETY: two ints (socket(7)).
    const LINGER: SocketOption<Linger> =
        unsafe { SocketOption::new(libc::SOL_SOCKET, libc::SO_LINGER) };

    #[test]
    fn a_structure_is_read_as_it_was_set() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        LINGER.set(&socket, &Linger { on: 1, seconds: 7 }).unwrap();
        assert_eq!(LINGER.get(&socket).unwrap(), Linger { on: 1, seconds: 7 });
    }

    #[test]
    fn what_the_kernel_does_not_write_stays() {
        // SAFETY: a number; what is behind it in the value is left alone.
        let kind: SocketOption<[u8; 8]> =
            unsafe { SocketOption::new(libc::SOL_SOCKET, libc::SO_TYPE) };
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut value = [7; 8];
        assert_eq!(kind.read(&socket, &mut value).unwrap(), 4);
        assert_eq!(value[..4], libc::SOCK_DGRAM.to_ne_bytes());
        assert_eq!(value[4..], [7; 4]);
    }

    #[test]
    fn an_option_that_the_protocol_has_not_is_an_error() {
        // SAFETY: a number.
        let cork: SocketOption<libc::c_int> =
            unsafe { SocketOption::new(libc::IPPROTO_TCP, libc::TCP_CORK) };
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(cork.set(&socket, &1).is_err() && cork.get(&socket).is_err());
    }
}
