use std::io;
use std::os::fd::OwnedFd;

use socket2::{SockRef, Type};
use wirecost_model::plan::Address;
use wirecost_model::profile::Options;

use super::{Granted, Protocol};
use crate::inet;

/// Datagrams. An accepted "connection" is a socket of its own, bound to the port of its listener
/// and connected to the one peer: the kernel hands a datagram to the socket that matches it best.
pub(super) struct Udp;

impl Protocol for Udp {
    fn name(&self) -> &'static str {
        "udp"
    }

    fn help(&self) -> &'static str {
        "datagrams; what is lost is counted, not repeated"
    }

    fn stream(&self) -> bool {
        false
    }

    fn longest_message(&self) -> Option<u64> {
        // What an IPv4 packet of 65,535 bytes has room for after both headers.
        Some(65_507)
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
