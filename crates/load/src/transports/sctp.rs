use std::io;
use std::os::fd::OwnedFd;

use socket2::{Domain, Protocol as IpProtocol, SockRef, Socket, Type};
use wirecost_linux::sctp::{self, Parameters};
use wirecost_model::plan::Address;
use wirecost_model::profile::Options;
use wirecost_profile::protocols::{self, Protocol};
use wirecost_program::socket_setup::SocketSetup;

use super::{EffectiveSetting, Transport};
use crate::inet;

pub(super) struct Sctp;

const BACKLOG: i32 = 65_535;

fn socket(address: &Address, setup: &SocketSetup) -> io::Result<(Socket, socket2::SockAddr)> {
    let address = inet::socket_address(address)?;
    let socket = inet::socket(address, Type::STREAM, Some(IpProtocol::SCTP), setup)?;
    let options = &setup.options.sctp;
    let parameters = Parameters {
        nodelay: options.nodelay,
        out_streams: options.out_streams,
        in_streams: options.in_streams,
        rto_initial: options.rto_initial,
        rto_min: options.rto_min,
        rto_max: options.rto_max,
        sack_delay: options.sack_delay,
        sack_frequency: options.sack_frequency,
        heartbeat: options.hb_interval,
        path_mtu: options.path_mtu,
        max_burst: options.max_burst_size,
        max_fragment: options.max_fragment_size,
    };
    sctp::set(&socket, &parameters)
        .map_err(|error| io::Error::new(error.kind(), format!("sctp options: {error}")))?;
    Ok((socket, address.into()))
}

impl Transport for Sctp {
    fn protocol(&self) -> &'static dyn Protocol {
        &protocols::sctp::Sctp
    }

    fn longest_send(&self, socket: &OwnedFd) -> usize {
        // A message larger than the buffer would be refused. The kernel doubles the size that it
        // was asked for, so this is as much as was asked for.
        SockRef::from(socket).send_buffer_size().map_or(usize::MAX, |size| (size / 2).max(1))
    }

    fn missing(&self, _: &Options) -> Option<String> {
        let error = Socket::new(Domain::IPV4, Type::STREAM, Some(IpProtocol::SCTP)).err()?;
        Some(format!("no SCTP socket: {error}; it takes the kernel module sctp (modprobe sctp)"))
    }

    fn listen(&self, address: &Address, setup: &SocketSetup) -> io::Result<(OwnedFd, Address)> {
        let (socket, address) = socket(address, setup)?;
        socket.bind(&address)?;
        socket.listen(BACKLOG)?;
        let bound = socket.local_addr()?.as_socket();
        let bound = bound.ok_or_else(|| io::Error::other("SCTP is bound to no address"))?;
        Ok((socket.into(), Address::Inet(bound)))
    }

    fn connect(&self, address: &Address, setup: &SocketSetup) -> io::Result<OwnedFd> {
        let (socket, address) = socket(address, setup)?;
        inet::bind(&socket, None, setup)?;
        inet::connect(socket, &address)
    }

    /// A non-blocking accept that finds nobody sleeps for a tick all the same.
    /// <https://elixir.bootlin.com/linux/v6.12/source/net/sctp/socket.c#L9192>
    fn polls_before_accept(&self) -> bool {
        true
    }

    /// The other end tells of room only when a whole packet fits; a window of less than two, as the
    /// default one is on loopback with its packets of 64 KiB, makes every one wait for a timer.
    /// <https://elixir.bootlin.com/linux/v6.12/source/net/sctp/associola.c#L1461>
    fn opened(&self, socket: &OwnedFd) -> io::Result<Option<EffectiveSetting>> {
        let status = sctp::status(socket)?;
        let least = 2 * u64::from(status.path_mtu);
        Ok((u64::from(status.window) < least).then(|| EffectiveSetting {
            name: "sctp.window",
            requested: least.to_string(),
            effective: status.window.to_string(),
        }))
    }
}
