//! TCP sockets of a network namespace and what the kernel knows of each, by sock_diag(7).

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
    sockopt,
};

use crate::tcp_info::{self, TcpDetail};

/// States of a connection that carries data, as a mask of `1 << state`: established, and closed by
/// one side only: <https://elixir.bootlin.com/linux/v6.12/source/include/net/tcp_states.h#L12>.
pub const OPEN: u32 = 1 << 1 | 1 << 4 | 1 << 5 | 1 << 8;

// <https://elixir.bootlin.com/linux/v6.12/source/include/uapi/linux/inet_diag.h>
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const INET_DIAG_INFO: u16 = 2;
const INET_DIAG_CONG: u16 = 4;
const EXTENSIONS: u8 = 1 << (INET_DIAG_INFO - 1) | 1 << (INET_DIAG_CONG - 1);
/// Of `struct nlmsghdr`, `struct inet_diag_req_v2`, `struct inet_diag_sockid`, `struct inet_diag_msg`.
const HEADER: usize = 16;
const REQUEST: usize = 56;
const ID: usize = 48;
const MESSAGE: usize = 72;
/// Place of the identity in a message.
const ID_IN_MESSAGE: usize = 4;

const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_DUMP: u16 = 0x300;

/// Which socket: addresses, device, and a number that no other socket gets.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SocketId {
    family: u8,
    bytes: [u8; ID],
}

impl fmt::Debug for SocketId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {} ({:x})", self.local(), self.remote(), self.cookie())
    }
}

impl SocketId {
    /// A number that no other socket gets while the machine is up.
    #[must_use]
    pub fn cookie(&self) -> u64 {
        u64::from(u32_at(&self.bytes, 44)) << 32 | u64::from(u32_at(&self.bytes, 40))
    }

    #[must_use]
    pub fn local(&self) -> SocketAddr {
        self.address(0, 4)
    }

    #[must_use]
    pub fn remote(&self) -> SocketAddr {
        self.address(2, 20)
    }

    fn address(&self, port: usize, address: usize) -> SocketAddr {
        let mut octets = [0; 16];
        octets.copy_from_slice(&self.bytes[address..address + 16]);
        let ip: IpAddr = if i32::from(self.family) == libc::AF_INET {
            Ipv4Addr::new(octets[0], octets[1], octets[2], octets[3]).into()
        } else {
            Ipv6Addr::from(octets).to_canonical()
        };
        SocketAddr::new(ip, u16::from_be_bytes([self.bytes[port], self.bytes[port + 1]]))
    }
}

/// One TCP socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TcpSocket {
    pub id: SocketId,
    /// Of its file; 0 for one that its process has closed.
    pub inode: u32,
    /// Bytes that wait for the process, and bytes not acknowledged yet.
    pub receive_queue: u32,
    pub send_queue: u32,
    /// Name of its congestion control.
    pub congestion: Option<String>,
    pub info: TcpDetail,
}

/// Asks about sockets of the namespace of the thread that opened it; any thread may ask.
#[derive(Debug)]
pub struct SockDiag {
    socket: OwnedFd,
    buffer: Vec<u8>,
    sequence: u32,
}

impl SockDiag {
    /// # Errors
    /// When no netlink socket can be had.
    pub fn open() -> io::Result<Self> {
        let socket = socket_with(
            AddressFamily::NETLINK,
            SocketType::DGRAM,
            SocketFlags::CLOEXEC,
            Some(netlink::SOCK_DIAG),
        )?;
        // A kernel that does not answer must not hold who asks.
        let patience = Some(std::time::Duration::from_secs(2));
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, patience)?;
        Ok(Self { socket, buffer: vec![0; 1 << 18], sequence: 0 })
    }

    /// Hands over all TCP sockets in these states, both of IPv4 and of IPv6.
    ///
    /// # Errors
    /// Those of the kernel: a kernel without tcp_diag has no such sockets (`NotFound`).
    pub fn tcp(&mut self, states: u32, mut each: impl FnMut(TcpSocket)) -> io::Result<()> {
        for family in [libc::AF_INET, libc::AF_INET6] {
            let request = request(family as u8, states, &[0; ID]);
            self.ask(&request, NLM_F_REQUEST | NLM_F_DUMP)?;
            self.answers(true, &mut each)?;
        }
        Ok(())
    }

    /// One socket as it is now; none when it is gone.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn one(&mut self, id: &SocketId) -> io::Result<Option<TcpSocket>> {
        self.ask(&request(id.family, u32::MAX, &id.bytes), NLM_F_REQUEST)?;
        let mut found = None;
        match self.answers(false, &mut |socket| found = Some(socket)) {
            // The cookie is another's (ESTALE): the addresses have a new socket.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESTALE)) => {
                Ok(None)
            }
            other => other.map(|()| found),
        }
    }

    fn ask(&mut self, request: &[u8; REQUEST], flags: u16) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut message = Vec::with_capacity(HEADER + REQUEST);
        message.extend(((HEADER + REQUEST) as u32).to_ne_bytes());
        message.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
        message.extend(flags.to_ne_bytes());
        message.extend(self.sequence.to_ne_bytes());
        message.extend(0u32.to_ne_bytes());
        message.extend(request);
        send(&self.socket, &message, SendFlags::empty())?;
        Ok(())
    }

    /// Reads answers to the last question, up to the end of all of them or up to the only one.
    fn answers(&mut self, all: bool, each: &mut impl FnMut(TcpSocket)) -> io::Result<()> {
        loop {
            let (length, _) = recv(&self.socket, self.buffer.as_mut_slice(), RecvFlags::empty())?;
            let mut rest = &self.buffer[..length];
            while rest.len() >= HEADER {
                let size = u32_at(rest, 0) as usize;
                if size < HEADER || size > rest.len() {
                    return Err(io::ErrorKind::InvalidData.into());
                }
                let (kind, sequence) = (u16_at(rest, 4), u32_at(rest, 8));
                let body = &rest[HEADER..size];
                rest = &rest[size.next_multiple_of(4).min(rest.len())..];
                // Of a question that was given up.
                if sequence != self.sequence {
                    continue;
                }
                match kind {
                    NLMSG_DONE => return Ok(()),
                    NLMSG_ERROR => {
                        let number = u32_at(body, 0) as i32;
                        return match number {
                            0 => Ok(()),
                            _ => Err(io::Error::from_raw_os_error(number.wrapping_neg())),
                        };
                    }
                    SOCK_DIAG_BY_FAMILY => {
                        if let Some(socket) = parse(body) {
                            each(socket);
                        }
                        if !all {
                            return Ok(());
                        }
                    }
                    _ => {}
                }
            }
        }
    }
}

fn request(family: u8, states: u32, id: &[u8; ID]) -> [u8; REQUEST] {
    let mut request = [0; REQUEST];
    request[0] = family;
    request[1] = libc::IPPROTO_TCP as u8;
    request[2] = EXTENSIONS;
    request[4..8].copy_from_slice(&states.to_ne_bytes());
    request[8..].copy_from_slice(id);
    request
}

pub(crate) fn parse(body: &[u8]) -> Option<TcpSocket> {
    let message = body.get(..MESSAGE)?;
    let mut bytes = [0; ID];
    bytes.copy_from_slice(&message[ID_IN_MESSAGE..ID_IN_MESSAGE + ID]);
    let mut socket = TcpSocket {
        id: SocketId { family: message[0], bytes },
        receive_queue: u32_at(message, 56),
        send_queue: u32_at(message, 60),
        inode: u32_at(message, 68),
        congestion: None,
        info: TcpDetail::default(),
    };
    let mut attributes = &body[MESSAGE..];
    while attributes.len() >= 4 {
        let (size, kind) = (usize::from(u16_at(attributes, 0)), u16_at(attributes, 2));
        let value = attributes.get(4..size)?;
        match kind {
            INET_DIAG_INFO => socket.info = tcp_info::detail(value),
            INET_DIAG_CONG => {
                let end = value.iter().position(|&byte| byte == 0).unwrap_or(value.len());
                socket.congestion = Some(String::from_utf8_lossy(&value[..end]).into_owned());
            }
            _ => {}
        }
        attributes = &attributes[size.next_multiple_of(4).min(attributes.len())..];
    }
    Some(socket)
}

/// 0 where there is no such place.
fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).and_then(|b| b.try_into().ok()).map_or(0, u16::from_ne_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn both_ends_of_a_connection_are_found() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(address).unwrap();
            let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (mut server, _) = listener.accept().unwrap();
            client.write_all(&[7; 5003]).unwrap();
            server.read_exact(&mut [0; 5003]).unwrap();
            let mut diag = SockDiag::open().unwrap();
            let mut found = Vec::new();
            diag.tcp(OPEN, |socket| found.push(socket)).unwrap();
            let of = |stream: &TcpStream| {
                let local = stream.local_addr().unwrap();
                found.iter().find(|socket| socket.id.local() == local).unwrap()
            };
            let (sent, got) = (of(&client), of(&server));
            assert_eq!(sent.id.remote(), got.id.local());
            assert_ne!(sent.id.cookie(), got.id.cookie());
            assert_eq!(got.info.basic.bytes_received, Some(5003));
            assert!(sent.info.basic.data_segments_out.unwrap() >= 1);
            assert!(sent.congestion.is_some() && sent.inode != 0);
            let again = diag.one(&sent.id).unwrap().unwrap();
            assert_eq!((again.id, again.inode), (sent.id, sent.inode));
            let (gone, other) = (sent.id, got.id);
            drop((client, server));
            // What is in TIME_WAIT afterwards is another socket.
            assert_eq!(diag.one(&gone).unwrap().filter(|s| s.inode != 0), None);
            assert_eq!(diag.one(&other).unwrap().filter(|s| s.inode != 0), None);
        }
    }
}
