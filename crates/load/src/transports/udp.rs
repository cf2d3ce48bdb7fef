use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use socket2::Type;
use wirecost_model::plan::Address;
use wirecost_profile::protocols::{self, Protocol};
use wirecost_program::socket_setup::SocketSetup;

use super::Transport;
use crate::inet;

pub(super) struct Udp;

impl Transport for Udp {
    fn protocol(&self) -> &'static dyn Protocol {
        &protocols::udp::Udp
    }

    fn listen(&self, address: &Address, setup: &SocketSetup) -> io::Result<(OwnedFd, Address)> {
        let address = inet::socket_address(address)?;
        let socket = inet::socket(address, Type::DGRAM, None, setup)?;
        socket.set_reuse_address(true)?;
        socket.set_reuse_port(true)?;
        socket.bind(&address.into())?;
        let bound = socket.local_addr()?.as_socket().unwrap_or(address);
        Ok((socket.into(), Address::Inet(bound)))
    }

    fn connect(&self, address: &Address, setup: &SocketSetup) -> io::Result<OwnedFd> {
        connect(None, address, setup)
    }

    fn connect_from(
        &self,
        from: SocketAddr,
        address: &Address,
        setup: &SocketSetup,
    ) -> io::Result<OwnedFd> {
        connect(Some(from), address, setup)
    }
}

/// A socket at the address of others that share it, which receives from one client only. It does not join their group:
/// one that is connected would slow down the look-up of all (`reuseport_has_conns` in
/// <https://elixir.bootlin.com/linux/v6.12/source/net/ipv4/udp.c>).
pub(crate) fn connected_beside(
    here: &Address,
    setup: &SocketSetup,
    client: SocketAddr,
) -> io::Result<OwnedFd> {
    let address = inet::socket_address(here)?;
    let socket = inet::socket(address, Type::DGRAM, None, setup)?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.connect(&client.into())?;
    Ok(socket.into())
}

fn connect(
    from: Option<SocketAddr>,
    address: &Address,
    setup: &SocketSetup,
) -> io::Result<OwnedFd> {
    let address = inet::socket_address(address)?;
    let socket = inet::socket(address, Type::DGRAM, None, setup)?;
    inet::bind(&socket, from, setup)?;
    socket.connect(&address.into())?;
    Ok(socket.into())
}
