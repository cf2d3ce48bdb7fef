//! What sockets of the Internet protocols share.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use wirecost_linux::sockopt;
use wirecost_model::plan::Address;
use wirecost_program::socket_setup::SocketSetup;

use crate::socket_options;

pub(crate) fn socket_address(address: &Address) -> io::Result<SocketAddr> {
    match address {
        Address::Inet(address) => Ok(*address),
        other => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{other} is not an Internet address"),
        )),
    }
}

/// A non-blocking socket with everything set that must be set before it connects or listens.
pub(crate) fn socket(
    address: SocketAddr,
    kind: Type,
    protocol: Option<Protocol>,
    setup: &SocketSetup,
) -> io::Result<Socket> {
    let domain = Domain::for_address(address);
    let socket = Socket::new(domain, kind.nonblocking(), protocol)?;
    socket_options::set(&socket, domain, setup)?;
    Ok(socket)
}

/// Binds the connecting side, where it is to have this port of this address, or the profile names an address.
pub(crate) fn bind(
    socket: &Socket,
    from: Option<SocketAddr>,
    setup: &SocketSetup,
) -> io::Result<()> {
    if let Some(from) = from {
        return socket.bind(&from.into());
    }
    let Some(text) = &setup.options.bind else {
        return Ok(());
    };
    let address: IpAddr = text.parse().map_err(|_| {
        io::Error::new(io::ErrorKind::InvalidInput, format!("bind={text} is not an IP address"))
    })?;
    sockopt::bind_address_without_port(socket)?;
    socket.bind(&SocketAddr::new(address, 0).into())
}

/// Begins to connect.
pub(crate) fn connect(socket: Socket, address: &SockAddr) -> io::Result<OwnedFd> {
    match socket.connect(address) {
        Err(error) if error.raw_os_error() != Some(Errno::INPROGRESS.raw_os_error()) => Err(error),
        _ => Ok(socket.into()),
    }
}
