use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use socket2::{Domain, SockAddr, Socket, Type};
use wirecost_model::plan::Address;
use wirecost_profile::protocols::{self, Protocol};
use wirecost_program::socket_setup::SocketSetup;

use super::Transport;
use crate::socket_options;

pub(super) struct Unix;

const BACKLOG: i32 = 65_535;

fn path(address: &Address) -> io::Result<&Path> {
    match address {
        Address::Unix(path) => Ok(path),
        other => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{other} is not a path of a Unix socket"),
        )),
    }
}

fn socket(setup: &SocketSetup) -> io::Result<Socket> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None)?;
    socket_options::set(&socket, Domain::UNIX, setup)?;
    Ok(socket)
}

impl Transport for Unix {
    fn protocol(&self) -> &'static dyn Protocol {
        &protocols::unix::Unix
    }

    fn listen(&self, address: &Address, setup: &SocketSetup) -> io::Result<(OwnedFd, Address)> {
        let socket = socket(setup)?;
        socket.bind(&SockAddr::unix(path(address)?)?)?;
        socket.listen(BACKLOG)?;
        Ok((socket.into(), address.clone()))
    }

    fn connect(&self, address: &Address, setup: &SocketSetup) -> io::Result<OwnedFd> {
        let socket = socket(setup)?;
        socket.connect(&SockAddr::unix(path(address)?)?)?;
        Ok(socket.into())
    }
}
