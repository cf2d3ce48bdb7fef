use std::io;
use std::os::fd::OwnedFd;

use socket2::{Domain, SockAddr, Socket, Type};
use wirecost_linux::vsock;
use wirecost_model::plan::Address;
use wirecost_model::profile::Options;
use wirecost_profile::protocols::{self, Protocol};
use wirecost_program::socket_setup::SocketSetup;

use super::Transport;
use crate::{inet, socket_options};

pub(super) struct Vsock;

const BACKLOG: i32 = 65_535;

fn place(address: &Address) -> io::Result<(u32, u32)> {
    match address {
        Address::Vsock { cid, port } => Ok((*cid, *port)),
        other => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{other} is not an address of vsock"),
        )),
    }
}

fn socket(setup: &SocketSetup) -> io::Result<Socket> {
    let socket = Socket::new(Domain::VSOCK, Type::STREAM.nonblocking(), None)?;
    socket_options::set(&socket, Domain::VSOCK, setup)?;
    Ok(socket)
}

impl Transport for Vsock {
    fn protocol(&self) -> &'static dyn Protocol {
        &protocols::vsock::Vsock
    }

    fn missing(&self, _: &Options) -> Option<String> {
        let error = Socket::new(Domain::VSOCK, Type::STREAM, None).err()?;
        Some(format!("no vsock socket: {error}; it takes the kernel module vsock (modprobe vsock)"))
    }

    fn listen(&self, address: &Address, setup: &SocketSetup) -> io::Result<(OwnedFd, Address)> {
        let (cid, port) = place(address)?;
        let socket = socket(setup)?;
        // Of any number: that by which others know this machine may not be one it can bind.
        socket.bind(&SockAddr::vsock(vsock::ANY, port))?;
        socket.listen(BACKLOG)?;
        let (_, port) = socket.local_addr()?.as_vsock_address().unwrap_or((cid, port));
        Ok((socket.into(), Address::Vsock { cid, port }))
    }

    fn connect(&self, address: &Address, setup: &SocketSetup) -> io::Result<OwnedFd> {
        let (cid, port) = place(address)?;
        inet::connect(socket(setup)?, &SockAddr::vsock(cid, port))
    }
}
