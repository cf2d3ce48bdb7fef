use std::io;
use std::os::fd::OwnedFd;

use socket2::{Domain, SockAddr, Socket, Type};
use wirecost_linux::vsock;
use wirecost_model::plan::Address;
use wirecost_model::profile::Options;
use wirecost_profile::protocols::{self, Protocol};

use super::{Granted, Transport};
use crate::inet;

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

fn socket(options: &Options) -> io::Result<Socket> {
    let socket = Socket::new(Domain::VSOCK, Type::STREAM.nonblocking(), None)?;
    if let Some(bytes) = options.wndsz {
        vsock::set_buffer(&socket, bytes)?;
    }
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

    fn listen(&self, address: &Address, options: &Options) -> io::Result<(OwnedFd, Address)> {
        let (cid, port) = place(address)?;
        let socket = socket(options)?;
        // Of any number: that by which others know this machine may not be one it can bind.
        socket.bind(&SockAddr::vsock(vsock::ANY, port))?;
        socket.listen(BACKLOG)?;
        let (_, port) = socket.local_addr()?.as_vsock_address().unwrap_or((cid, port));
        Ok((socket.into(), Address::Vsock { cid, port }))
    }

    fn connect(&self, address: &Address, options: &Options) -> io::Result<OwnedFd> {
        let (cid, port) = place(address)?;
        inet::connect(socket(options)?, &SockAddr::vsock(cid, port))
    }

    fn accepted(&self, _: &OwnedFd, _: &Options) -> io::Result<()> {
        Ok(())
    }

    fn granted(&self, socket: &OwnedFd, options: &Options) -> Vec<Granted> {
        let granted = options.wndsz.zip(vsock::buffer(socket).ok());
        let granted = granted.map(|(asked, granted)| Granted {
            name: "wndsz.receive",
            asked: asked.to_string(),
            granted: granted.to_string(),
        });
        granted.into_iter().collect()
    }
}
