use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use socket2::{Domain, SockAddr, SockRef, Socket, Type};
use wirecost_linux::sockopt;
use wirecost_model::plan::Address;
use wirecost_model::profile::Options;
use wirecost_profile::protocols::{self, Protocol};

use super::{Granted, Transport};

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

fn socket(options: &Options) -> io::Result<Socket> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None)?;
    if let Some(bytes) = options.wndsz {
        sockopt::set_buffers(&SockRef::from(&socket), bytes)?;
    }
    Ok(socket)
}

impl Transport for Unix {
    fn protocol(&self) -> &'static dyn Protocol {
        &protocols::unix::Unix
    }

    fn listen(&self, address: &Address, options: &Options) -> io::Result<(OwnedFd, Address)> {
        let socket = socket(options)?;
        socket.bind(&SockAddr::unix(path(address)?)?)?;
        socket.listen(BACKLOG)?;
        Ok((socket.into(), address.clone()))
    }

    fn connect(&self, address: &Address, options: &Options) -> io::Result<OwnedFd> {
        let socket = socket(options)?;
        socket.connect(&SockAddr::unix(path(address)?)?)?;
        Ok(socket.into())
    }

    fn accepted(&self, socket: &OwnedFd, options: &Options) -> io::Result<()> {
        // Unlike TCP's, an accepted Unix socket does not have its listener's buffers.
        if let Some(bytes) = options.wndsz {
            sockopt::set_buffers(&SockRef::from(socket), bytes)?;
        }
        Ok(())
    }

    fn granted(&self, socket: &OwnedFd, options: &Options) -> Vec<Granted> {
        crate::inet::granted(&SockRef::from(socket), options)
    }
}
