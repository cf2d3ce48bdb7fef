//! Datagrams of a socket that several others send to: a receive that tells the sender of each (IORING_OP_RECVMSG as multishot,
//! since Linux 6.0), and a send to an address.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::ptr;

use socket2::SockAddr;

/// What the kernel writes before the address, and before the datagram: `struct io_uring_recvmsg_out`,
/// <https://elixir.bootlin.com/linux/v6.12/source/include/uapi/linux/io_uring.h#L826>, of four numbers.
const HEADER: usize = 4 * size_of::<u32>();
/// Room for an address of IP.
const NAME: usize = size_of::<libc::sockaddr_in6>();

/// Bytes of a buffer in front of the datagram, rounded up to a cache line.
pub const IN_FRONT: u32 = (HEADER + NAME).next_multiple_of(64) as u32;

/// What each receive is to tell.
pub(super) struct Form(Box<libc::msghdr>);

impl Default for Form {
    fn default() -> Self {
        Self(Box::new(libc::msghdr { msg_namelen: NAME as libc::socklen_t, ..empty() }))
    }
}

impl Form {
    /// The kernel reads it when the operation is handed over.
    pub(super) fn address(&self) -> *const libc::msghdr {
        ptr::from_ref(&*self.0)
    }
}

/// A datagram and its sender, where that has an address of IP, from what the kernel has written into a buffer.
pub(super) fn datagram(buffer: &[u8]) -> Option<(Option<SocketAddr>, &[u8])> {
    let (header, rest) = buffer.split_at_checked(HEADER)?;
    let (name, datagram) = rest.split_at_checked(NAME)?;
    let number = |at: usize| {
        let bytes = header.get(at..)?.first_chunk()?;
        usize::try_from(u32::from_ne_bytes(*bytes)).ok()
    };
    // What had no room in the buffer is lost.
    let (named, length) = (number(0)?.min(NAME), number(8)?.min(datagram.len()));
    Some((name.get(..named).and_then(sender), datagram.get(..length)?))
}

/// <https://man7.org/linux/man-pages/man3/sockaddr.3type.html>
fn sender(name: &[u8]) -> Option<SocketAddr> {
    let family = u16::from_ne_bytes(*name.first_chunk()?);
    let port = u16::from_be_bytes(*name.get(2..)?.first_chunk()?);
    match i32::from(family) {
        libc::AF_INET => {
            let ip: [u8; 4] = *name.get(4..)?.first_chunk()?;
            Some(SocketAddrV4::new(Ipv4Addr::from(ip), port).into())
        }
        libc::AF_INET6 => {
            let flow = u32::from_ne_bytes(*name.get(4..)?.first_chunk()?);
            let ip: [u8; 16] = *name.get(8..)?.first_chunk()?;
            let scope = u32::from_ne_bytes(*name.get(24..)?.first_chunk()?);
            Some(SocketAddrV6::new(Ipv6Addr::from(ip), port, flow, scope).into())
        }
        _ => None,
    }
}

/// What names a datagram and its receiver to the kernel. Belongs to a link, and does not change before the operation is
/// completed.
pub(super) struct Destination {
    header: libc::msghdr,
    piece: libc::iovec,
    to: SockAddr,
}

impl std::fmt::Debug for Destination {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Destination").field("to", &self.to).finish_non_exhaustive()
    }
}

impl Default for Destination {
    fn default() -> Self {
        Self {
            header: empty(),
            piece: libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 },
            to: SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0).into(),
        }
    }
}

impl Destination {
    pub(super) fn is(&self, to: SocketAddr) -> bool {
        self.to.as_socket() == Some(to)
    }

    /// Names bytes that are to go to an address, and returns where the header is.
    pub(super) fn name(
        &mut self,
        from: *const u8,
        length: usize,
        to: SocketAddr,
    ) -> *const libc::msghdr {
        self.piece = libc::iovec { iov_base: from.cast_mut().cast(), iov_len: length };
        self.to = to.into();
        self.header.msg_iov = &raw mut self.piece;
        self.header.msg_iovlen = 1;
        self.header.msg_name = self.to.as_ptr().cast_mut().cast();
        self.header.msg_namelen = self.to.len();
        ptr::from_ref(&self.header)
    }
}

fn empty() -> libc::msghdr {
    // SAFETY: all-zero is a valid msghdr: no name, no pieces, no control.
    unsafe { std::mem::zeroed() }
}
