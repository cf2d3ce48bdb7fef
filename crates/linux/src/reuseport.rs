//! Which of the sockets of one port receives a datagram or a new connection (SO_REUSEPORT, socket(7)).

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Loads from here on are of the packet's metadata, and this one is the CPU.
/// <https://elixir.bootlin.com/linux/v6.12/source/include/uapi/linux/filter.h#L60> (`SKF_AD_CPU`)
const CPU: u32 = 0xffff_f000 + 36;

/// No socket's number: the kernel chooses by the hash of the addresses.
/// <https://elixir.bootlin.com/linux/v6.12/source/net/core/sock_reuseport.c#L577> (`reuseport_select_sock`)
const BY_HASH: u32 = u32::MAX;

/// Most instructions of a program (BPF_MAXINSNS).
const MOST: usize = 4096;

const fn instruction(code: u32, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

fn program(cpus: &[u32]) -> Vec<libc::sock_filter> {
    let mut program = vec![instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, CPU)];
    for (number, &cpu) in (0..).zip(cpus) {
        let compare = instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, cpu);
        program.push(libc::sock_filter { jf: 1, ..compare });
        program.push(instruction(libc::BPF_RET | libc::BPF_K, number));
    }
    program.push(instruction(libc::BPF_RET | libc::BPF_K, BY_HASH));
    program
}

/// Has a packet (of listeners: the one that opens a connection) that is handled on `cpus[n]` go to the `n`-th socket that was bound to the port of `socket`, and any
/// other to the one that the hash of its addresses chooses. The CPU is that which looks for the socket: the one that
/// the device's receive queue interrupts, or the one that RPS chose.
///
/// # Errors
/// Those of setsockopt(2); `InvalidInput` for more CPUs than a program has room for.
pub fn select_by_cpu(socket: impl AsFd, cpus: &[u32]) -> io::Result<()> {
    let mut program = program(cpus);
    let length = u16::try_from(program.len()).ok().filter(|&length| usize::from(length) <= MOST);
    let Some(len) = length else { return Err(io::ErrorKind::InvalidInput.into()) };
    let value = libc::sock_fprog { len, filter: program.as_mut_ptr() };
    // SAFETY: the kernel reads a `sock_fprog` and the `len` instructions that it points to; both outlive the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};

    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    use super::*;

    fn bound(at: SocketAddr) -> UdpSocket {
        let socket =
            socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None).unwrap();
        socket.set_reuse_port(true).unwrap();
        socket.bind(&at.into()).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket.into()
    }

    /// Over `lo` a packet is handled on the CPU that sends it.
    #[test]
    fn a_datagram_goes_to_the_socket_of_its_cpu() {
        let allowed = sched_getaffinity(None).unwrap();
        let cpus: Vec<u32> = (0..1024).filter(|&cpu| allowed.is_set(cpu as usize)).collect();
        let first = bound("127.0.0.1:0".parse().unwrap());
        let address = first.local_addr().unwrap();
        let sockets: Vec<UdpSocket> =
            std::iter::once(first).chain(cpus[1..].iter().map(|_| bound(address))).collect();
        select_by_cpu(&sockets[0], &cpus).unwrap();
        for (number, &cpu) in cpus.iter().enumerate() {
            let mut only = CpuSet::new();
            only.set(cpu as usize);
            sched_setaffinity(None, &only).unwrap();
            // From ports that the hash would spread.
            for _ in 0..20 {
                let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
                sender.send_to(&[7], address).unwrap();
            }
            let received =
                |socket: &UdpSocket| std::iter::from_fn(|| socket.recv(&mut [0; 8]).ok()).count();
            let mut each = vec![0; sockets.len()];
            // A busy kernel may deliver them later.
            while each.iter().sum::<usize>() < 20 {
                each.iter_mut().zip(&sockets).for_each(|(sum, socket)| *sum += received(socket));
            }
            assert_eq!(each[number], 20, "{each:?}");
        }
        assert!(select_by_cpu(&sockets[0], &[0; 3000]).is_err());
    }

    /// Over `lo` the handshake is handled on the CPU that connects.
    #[test]
    fn a_connection_goes_to_the_listener_of_its_cpu() {
        let allowed = sched_getaffinity(None).unwrap();
        let cpus: Vec<u32> = (0..1024).filter(|&cpu| allowed.is_set(cpu as usize)).collect();
        for any in ["127.0.0.1:0", "[::1]:0"] {
            let listen = |at: SocketAddr| {
                let domain = socket2::Domain::for_address(at);
                let socket = socket2::Socket::new(domain, socket2::Type::STREAM, None).unwrap();
                socket.set_reuse_port(true).unwrap();
                socket.bind(&at.into()).unwrap();
                socket.listen(64).unwrap();
                TcpListener::from(socket)
            };
            let first = listen(any.parse().unwrap());
            let address = first.local_addr().unwrap();
            let listeners: Vec<TcpListener> =
                std::iter::once(first).chain(cpus[1..].iter().map(|_| listen(address))).collect();
            select_by_cpu(&listeners[0], &cpus).unwrap();
            for (number, &cpu) in cpus.iter().enumerate() {
                let mut only = CpuSet::new();
                only.set(cpu as usize);
                sched_setaffinity(None, &only).unwrap();
                for _ in 0..20 {
                    let client = TcpStream::connect(address).unwrap();
                    // Waits for ever where it went to another listener.
                    let (accepted, from) = listeners[number].accept().unwrap();
                    assert_eq!(from, client.local_addr().unwrap());
                    let seen = socket2::SockRef::from(&accepted).cpu_affinity().unwrap();
                    assert_eq!(seen, cpu as usize, "{any}");
                }
            }
        }
    }
}
