//! How this host reaches another.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// The address from which the calling thread's namespace sends there. Nothing is sent.
///
/// # Errors
/// The kernel's own, as where no route leads there.
pub fn source_address(to: IpAddr) -> io::Result<IpAddr> {
    // A datagram socket is connected without a packet.
    const DISCARD: u16 = 9;
    let any: IpAddr = match to {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind(SocketAddr::new(any, 0))?;
    socket.connect(SocketAddr::new(to, DISCARD))?;
    Ok(socket.local_addr()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_reached_from_loopback() {
        for address in [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()] {
            assert_eq!(source_address(address).unwrap(), address);
        }
    }
}
