use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
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
        let socket = match Socket::new(Domain::VSOCK, Type::STREAM.nonblocking(), None) {
            Ok(socket) => socket,
            Err(error) => {
                let takes = "it takes the kernel module vsock (modprobe vsock)";
                return Some(format!("no vsock socket: {error}; {takes}"));
            }
        };
        // Other machines are reached by other transports; without any of theirs there is loopback only.
        if vsock::local_cid() != vsock::LOCAL {
            return None;
        }
        // Nobody listens at port 0, and without a transport the kernel does not even ask:
        // https://elixir.bootlin.com/linux/v6.12/source/net/vmw_vsock/af_vsock.c#L466
        let error = socket.connect(&SockAddr::vsock(vsock::LOCAL, 0)).err()?;
        (Errno::from_io_error(&error) == Some(Errno::NODEV)).then(|| {
            "no vsock within this machine: it takes the kernel module vsock_loopback (modprobe \
             vsock_loopback)"
                .to_owned()
        })
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
