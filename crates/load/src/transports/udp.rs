use std::io;
use std::os::fd::OwnedFd;

use socket2::{SockRef, Type};
use wirecost_model::plan::Address;
use wirecost_model::profile::Options;
use wirecost_profile::protocols::{self, Protocol};

use super::{Granted, Transport};
use crate::inet;

pub(super) struct Udp;

impl Transport for Udp {
    fn protocol(&self) -> &'static dyn Protocol {
        &protocols::udp::Udp
    }

    fn listen(&self, address: &Address, options: &Options) -> io::Result<(OwnedFd, Address)> {
        let address = inet::socket_address(address)?;
        let socket = inet::socket(address, Type::DGRAM, None, options)?;
        socket.set_reuse_address(true)?;
        socket.set_reuse_port(true)?;
        socket.bind(&address.into())?;
        let bound = socket.local_addr()?.as_socket().unwrap_or(address);
        Ok((socket.into(), Address::Inet(bound)))
    }

    fn connect(&self, address: &Address, options: &Options) -> io::Result<OwnedFd> {
        let address = inet::socket_address(address)?;
        let socket = inet::socket(address, Type::DGRAM, None, options)?;
        inet::bind(&socket, options)?;
        socket.connect(&address.into())?;
        Ok(socket.into())
    }

    fn accepted(&self, socket: &OwnedFd, options: &Options) -> io::Result<()> {
        inet::set_busy_poll(socket, options);
        Ok(())
    }

    fn granted(&self, socket: &OwnedFd, options: &Options) -> Vec<Granted> {
        inet::granted(&SockRef::from(socket), options)
    }
}
