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
