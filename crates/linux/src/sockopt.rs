//! Socket options that socket2 and rustix lack, and options whose reading needs interpretation.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Sets SO_SNDBUF and SO_RCVBUF and returns what the kernel granted (send, receive), in bytes as
/// asked: Linux doubles the number for its own book-keeping and reports the doubled one
/// (socket(7)), which is halved here.
///
/// # Errors
/// Those of setsockopt(2) and getsockopt(2).
pub fn set_buffers(socket: &socket2::SockRef<'_>, bytes: u64) -> io::Result<(u64, u64)> {
    // The kernel takes an int, and at most half of its range.
    let asked = usize::try_from(bytes).unwrap_or(usize::MAX).min(i32::MAX as usize / 2);
    socket.set_send_buffer_size(asked)?;
    socket.set_recv_buffer_size(asked)?;
    Ok(((socket.send_buffer_size()? / 2) as u64, (socket.recv_buffer_size()? / 2) as u64))
}

/// Leaves the choice of the local port to connect(2), which needs it to be unique only together
/// with the other three parts of the connection's name (IP_BIND_ADDRESS_NO_PORT, ip(7)). Without it
/// a bound source address runs out of ports after 28,000 connections.
///
/// # Errors
/// Those of setsockopt(2).
pub fn bind_address_without_port(socket: impl AsFd) -> io::Result<()> {
    let on: libc::c_int = 1;
    // SAFETY: passes a valid int that the kernel only reads.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_BIND_ADDRESS_NO_PORT,
            (&raw const on).cast(),
            size_of_val(&on) as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Bytes that the socket's two buffers may hold, as the kernel counts them.
///
/// # Errors
/// Those of getsockopt(2).
pub fn buffer_bytes(socket: impl AsFd) -> io::Result<u64> {
    let socket = socket2::SockRef::from(&socket);
    Ok((socket.send_buffer_size()? + socket.recv_buffer_size()?) as u64)
}

/// Datagrams dropped because the receive buffer was full (`SK_MEMINFO_DROPS` of SO_MEMINFO):
/// <https://elixir.bootlin.com/linux/v6.12/source/include/uapi/linux/sock_diag.h#L46>.
///
/// # Errors
/// Those of getsockopt(2); kernels before 4.12 do not have it.
pub fn receive_drops(socket: impl AsFd) -> io::Result<u32> {
    const SO_MEMINFO: libc::c_int = 55;
    const DROPS: usize = 8;
    let mut values = [0u32; 9];
    let mut length = size_of_val(&values) as libc::socklen_t;
    // SAFETY: the buffer is writable for `length` bytes and both outlive the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            SO_MEMINFO,
            values.as_mut_ptr().cast(),
            &mut length,
        )
    };
    if result == 0 { Ok(values[DROPS]) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn drops_are_counted() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        set_buffers(&socket2::SockRef::from(&receiver), 4096).unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..100 {
            sender.send_to(&[0; 1000], receiver.local_addr().unwrap()).unwrap();
        }
        let dropped = receive_drops(&receiver).unwrap();
        assert!(dropped > 50 && dropped < 100, "{dropped}");
    }

    #[test]
    fn granted_buffers_are_in_the_units_asked() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let granted = set_buffers(&socket2::SockRef::from(&socket), 65536).unwrap();
        assert_eq!(granted, (65536, 65536));
    }
}
