//! How this host reaches another.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use crate::netlink::{NLM_F_REQUEST, Netlink, attribute, message, u32_at, with_header};

const RTM_GETROUTE: u16 = 26;
/// Of `struct rtmsg`.
const ROUTE: usize = 12;

const RTA_DST: u16 = 1;
const RTA_SRC: u16 = 2;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_VIA: u16 = 18;

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

/// Index of the device by which the calling thread's namespace sends there.
///
/// # Errors
/// The kernel's own, as where no route leads there.
pub fn device(to: IpAddr) -> io::Result<u32> {
    next_hop(&Netlink::route()?, None, to).map(|(device, _)| device)
}

/// Index of the device of a route, and the address that its frames go to.
pub(crate) fn next_hop(
    netlink: &Netlink,
    from: Option<IpAddr>,
    to: IpAddr,
) -> io::Result<(u32, IpAddr)> {
    let (family, destination) = octets(to);
    let bits = destination.len() as u8 * 8;
    let mut body = vec![family, bits, bits, 0];
    body.resize(ROUTE, 0);
    body.extend(with_header(RTA_DST, &destination));
    if let Some(from) = from {
        body.extend(with_header(RTA_SRC, &octets(from).1));
    }
    let mut found = None;
    netlink.ask(&message(RTM_GETROUTE, NLM_F_REQUEST, &body), |body| {
        let attributes = body.get(ROUTE..).unwrap_or_default();
        // A gateway of the other family has its family in front (`struct rtvia`).
        let via = attribute(attributes, RTA_VIA).and_then(|via| ip(via.get(2..)?));
        let gateway = attribute(attributes, RTA_GATEWAY).and_then(ip).or(via);
        let device = attribute(attributes, RTA_OIF).and_then(|index| u32_at(index, 0));
        found = device.map(|device| (device, gateway.unwrap_or(to)));
    })?;
    found.ok_or_else(|| io::ErrorKind::NetworkUnreachable.into())
}

pub(crate) fn octets(address: IpAddr) -> (u8, Vec<u8>) {
    match address {
        IpAddr::V4(address) => (libc::AF_INET as u8, address.octets().to_vec()),
        IpAddr::V6(address) => (libc::AF_INET6 as u8, address.octets().to_vec()),
    }
}

pub(crate) fn ip(octets: &[u8]) -> Option<IpAddr> {
    if let Ok(octets) = <[u8; 4]>::try_from(octets) {
        return Some(Ipv4Addr::from(octets).into());
    }
    <[u8; 16]>::try_from(octets).ok().map(|octets| Ipv6Addr::from(octets).into())
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
