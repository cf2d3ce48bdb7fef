//! Socket options that socket2 and rustix lack, and options whose reading needs interpretation.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use crate::raw_option::SocketOption;

type Int = SocketOption<libc::c_int>;

// SAFETY: each of these is an int (ip(7), socket(7)).
const BIND_ADDRESS_NO_PORT: Int =
    unsafe { Int::new(libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT) };
// SAFETY: as above.
const LOW_WATER: Int = unsafe { Int::new(libc::SOL_SOCKET, libc::SO_RCVLOWAT) };
// SAFETY: as above.
const INCOMING_NAPI_ID: Int = unsafe { Int::new(libc::SOL_SOCKET, libc::SO_INCOMING_NAPI_ID) };
// SAFETY: as above.
const INCOMING_CPU: Int = unsafe { Int::new(libc::SOL_SOCKET, libc::SO_INCOMING_CPU) };

/// Leaves the choice of the local port to connect(2), which needs it to be unique only together
/// with the other three parts of the connection's name (IP_BIND_ADDRESS_NO_PORT, ip(7)). Without it
/// a bound source address runs out of ports after 28,000 connections.
///
/// # Errors
/// Those of setsockopt(2).
pub fn bind_address_without_port(socket: impl AsFd) -> io::Result<()> {
    BIND_ADDRESS_NO_PORT.set(socket, &1)
}

/// Makes a stream readable only when this number of bytes has arrived, when it has ended, or when the
/// kernel needs the memory (SO_RCVLOWAT). TCP takes at most half of the receive buffer:
/// <https://elixir.bootlin.com/linux/v6.12/source/net/ipv4/tcp.c#L1758>.
///
/// # Errors
/// Those of setsockopt(2).
pub fn set_low_water(socket: impl AsFd, bytes: u64) -> io::Result<()> {
    let value = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    LOW_WATER.set(socket, &value)
}

/// `struct epoll_params`, <https://elixir.bootlin.com/linux/v6.12/source/include/uapi/linux/eventpoll.h#L88>.
#[repr(C)]
struct EpollParams {
    busy_poll_microseconds: u32,
    busy_poll_budget: u16,
    prefer_busy_poll: u8,
    pad: u8,
}

/// Lets waits on an epoll instance poll the device for packets for this number of microseconds
/// (EPIOCSPARAMS, since Linux 6.9). They ignore SO_BUSY_POLL of its sockets.
///
/// # Errors
/// Those of ioctl(2): `ENOTTY` before 6.9.
pub fn set_epoll_busy_poll(epoll: impl AsFd, microseconds: u32) -> io::Result<()> {
    let params = EpollParams {
        busy_poll_microseconds: microseconds.min(i32::MAX as u32),
        // A larger budget needs CAP_NET_ADMIN (NAPI_POLL_WEIGHT).
        busy_poll_budget: 64,
        prefer_busy_poll: 1,
        pad: 0,
    };
    let fd = epoll.as_fd().as_raw_fd();
    // SAFETY: the kernel only reads the structure that the request is defined with.
    let result = unsafe { libc::ioctl(fd, libc::EPIOCSPARAMS as _, &raw const params) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The NAPI instance that delivered the socket's last packet (SO_INCOMING_NAPI_ID); `None` when it
/// cannot be polled, as on loopback.
///
/// # Errors
/// Those of getsockopt(2).
pub fn napi_id(socket: impl AsFd) -> io::Result<Option<u32>> {
    let id = INCOMING_NAPI_ID.get(socket)?;
    Ok(u32::try_from(id).ok().filter(|&id| id > 0))
}

/// The CPU that handled the socket's last packet (SO_INCOMING_CPU); `None` before the first. The kernel notes it for
/// TCP connections and for UDP sockets that are connected:
/// <https://elixir.bootlin.com/linux/v6.12/source/net/ipv4/udp.c#L2076> (`__udp_queue_rcv_skb`),
/// <https://elixir.bootlin.com/linux/v6.12/source/net/ipv4/tcp_ipv4.c#L2353> (`tcp_v4_rcv`).
///
/// # Errors
/// Those of getsockopt(2).
pub fn incoming_cpu(socket: impl AsFd) -> io::Result<Option<u32>> {
    Ok(u32::try_from(INCOMING_CPU.get(socket)?).ok())
}

/// Total size of the socket's two buffers, as the kernel counts it.
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
    const DROPS: usize = 8;
    // SAFETY: an array of numbers.
    const MEMORY: SocketOption<[u32; 9]> = unsafe { SocketOption::new(libc::SOL_SOCKET, 55) };
    Ok(MEMORY.get(socket)?[DROPS])
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn a_connected_socket_tells_the_cpu_of_its_last_packet() {
        let [receiver, sender] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        receiver.connect(sender.local_addr().unwrap()).unwrap();
        assert_eq!(incoming_cpu(&receiver).unwrap(), None);
        let cpus = crate::thread::allowed_cpus().unwrap();
        // Loopback without RPS handles a packet on the CPU that sends it.
        if std::fs::read_to_string("/sys/class/net/lo/queues/rx-0/rps_cpus")
            .is_ok_and(|rps| rps.trim().chars().any(|digit| !matches!(digit, '0' | ',')))
        {
            return;
        }
        for cpu in cpus {
            crate::thread::pin(cpu).unwrap();
            sender.send_to(b"datagram", receiver.local_addr().unwrap()).unwrap();
            receiver.recv(&mut [0; 8]).unwrap();
            assert_eq!(incoming_cpu(&receiver).unwrap(), Some(cpu));
        }
    }

    #[test]
    fn drops_are_counted() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket2::SockRef::from(&receiver).set_recv_buffer_size(4096).unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..100 {
            sender.send_to(&[0; 1000], receiver.local_addr().unwrap()).unwrap();
        }
        let dropped = receive_drops(&receiver).unwrap();
        assert!(dropped > 50 && dropped < 100, "{dropped}");
    }
}
