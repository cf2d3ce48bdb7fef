//! Socket options whose value is a number or a short text, by level and number.

use std::io;
use std::os::fd::AsFd;

use crate::raw_option::SocketOption;

/// The second argument of setsockopt(2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    Socket,
    Ip,
    Ipv6,
    Tcp,
    Udp,
    Sctp,
    Vsock,
}

impl Level {
    fn number(self) -> libc::c_int {
        match self {
            Level::Socket => libc::SOL_SOCKET,
            Level::Ip => libc::IPPROTO_IP,
            Level::Ipv6 => libc::IPPROTO_IPV6,
            Level::Tcp => libc::IPPROTO_TCP,
            Level::Udp => libc::IPPROTO_UDP,
            Level::Sctp => libc::IPPROTO_SCTP,
            Level::Vsock => libc::AF_VSOCK,
        }
    }
}

/// Bytes of the longest value. Longer ones hold addresses: `struct sock_fprog` of SO_ATTACH_FILTER has 16
/// bytes.
pub const LONGEST: usize = 15;

/// An option, unless it has a value of another kind.
fn option(level: Level, number: i32) -> io::Result<SocketOption<[u8]>> {
    // Its length counts instructions of 8 bytes each.
    if (level, number) == (Level::Socket, libc::SO_GET_FILTER) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: all other options of these levels have lengths in bytes. None has an address in a value of
    // at most [`LONGEST`] bytes, and where reading expects an address (TCP_ZEROCOPY_RECEIVE) it finds 0.
    Ok(unsafe { SocketOption::new(level.number(), number) })
}

/// Sets an option.
///
/// # Errors
/// Those of setsockopt(2), and a value that is longer than [`LONGEST`].
pub fn set(socket: impl AsFd, level: Level, number: i32, value: &[u8]) -> io::Result<()> {
    if value.len() > LONGEST {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    option(level, number)?.set(socket, value)
}

/// What the kernel has for an option: as many bytes as it has, at most 16.
///
/// # Errors
/// Those of getsockopt(2).
pub fn get(socket: impl AsFd, level: Level, number: i32) -> io::Result<Vec<u8>> {
    let mut value = [0; 16];
    let length = option(level, number)?.read(socket, value.as_mut_slice())?;
    Ok(value[..length].to_vec())
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};

    use super::*;

    #[test]
    fn numbers_and_texts_are_read_as_they_were_set() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        set(&socket, Level::Tcp, libc::TCP_MAXSEG, &1000i32.to_ne_bytes()).unwrap();
        set(&socket, Level::Tcp, libc::TCP_CONGESTION, b"reno").unwrap();
        let name = get(&socket, Level::Tcp, libc::TCP_CONGESTION).unwrap();
        assert!(name.starts_with(b"reno\0"), "{name:?}");
        set(&socket, Level::Ip, libc::IP_TOS, &184i32.to_ne_bytes()).unwrap();
        assert_eq!(get(&socket, Level::Ip, libc::IP_TOS).unwrap(), 184i32.to_ne_bytes());
    }

    #[test]
    fn what_the_kernel_refuses_is_an_error() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(set(&socket, Level::Tcp, libc::TCP_MAXSEG, &1000i32.to_ne_bytes()).is_err());
        assert!(get(&socket, Level::Tcp, libc::TCP_MAXSEG).is_err());
        assert!(set(&socket, Level::Socket, libc::SO_SNDBUF, &[0; 16]).is_err());
    }

    #[test]
    fn an_option_whose_length_counts_other_things_is_refused() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let error = get(&socket, Level::Socket, libc::SO_GET_FILTER).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}
