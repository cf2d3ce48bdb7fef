//! What sockets of the Internet protocols share.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, Type};
use wirecost_linux::sockopt;
use wirecost_model::plan::Address;
use wirecost_model::profile::Options;
use wirecost_program::calls::Granted;

pub(crate) fn socket_address(address: &Address) -> io::Result<SocketAddr> {
    match address {
        Address::Inet(address) => Ok(*address),
        other => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{other} is not an Internet address"),
        )),
    }
}

/// A non-blocking socket with everything set that must be set before it connects or listens.
pub(crate) fn socket(
    address: SocketAddr,
    kind: Type,
    protocol: Option<Protocol>,
    options: &Options,
) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), kind.nonblocking(), protocol)?;
    if let Some(bytes) = options.wndsz {
        sockopt::set_buffers(&SockRef::from(&socket), bytes)?;
    }
    if let Some(dscp) = options.dscp {
        let class = u32::from(dscp) << 2;
        if address.is_ipv4() {
            socket.set_tos_v4(class)?;
        } else {
            socket.set_tclass_v6(class)?;
        }
    }
    set_busy_poll(&socket, options);
    Ok(socket)
}

/// Where it is refused, what was granted tells.
pub(crate) fn set_busy_poll(socket: impl AsFd, options: &Options) {
    if let Some(microseconds) = options.busy_poll {
        let _ = sockopt::set_busy_poll(socket, microseconds);
    }
}

/// Binds the connecting side where the profile says so.
pub(crate) fn bind(socket: &Socket, options: &Options) -> io::Result<()> {
    let Some(text) = &options.bind else {
        return Ok(());
    };
    let address: IpAddr = text.parse().map_err(|_| {
        io::Error::new(io::ErrorKind::InvalidInput, format!("bind={text} is not an IP address"))
    })?;
    sockopt::bind_address_without_port(socket)?;
    socket.bind(&SocketAddr::new(address, 0).into())
}

/// Begins to connect.
pub(crate) fn connect(socket: Socket, address: &SockAddr) -> io::Result<OwnedFd> {
    match socket.connect(address) {
        Err(error) if error.raw_os_error() != Some(Errno::INPROGRESS.raw_os_error()) => Err(error),
        _ => Ok(socket.into()),
    }
}

pub(crate) fn granted(socket: &SockRef<'_>, options: &Options) -> Vec<Granted> {
    let mut settings = Vec::new();
    if let Some(asked) = options.wndsz {
        let sizes = [
            ("wndsz.send", socket.send_buffer_size()),
            ("wndsz.receive", socket.recv_buffer_size()),
        ];
        for (name, size) in sizes {
            if let Ok(size) = size {
                settings.push(Granted {
                    name,
                    asked: asked.to_string(),
                    granted: (size / 2).to_string(),
                });
            }
        }
    }
    if let Some(dscp) = options.dscp {
        let v4 = socket.tos_v4();
        if let Ok(class) = v4.or_else(|_| socket.tclass_v6()) {
            settings.push(Granted {
                name: "dscp",
                asked: dscp.to_string(),
                granted: (class >> 2).to_string(),
            });
        }
    }
    if let (Some(asked), Ok((granted, prefers))) =
        (options.busy_poll, sockopt::busy_poll(&**socket))
    {
        settings.push(Granted {
            name: "busy_poll",
            asked: asked.to_string(),
            granted: granted.to_string(),
        });
        settings.push(Granted {
            name: "busy_poll.prefer",
            asked: "on".to_owned(),
            granted: if prefers { "on" } else { "off" }.to_owned(),
        });
    }
    settings
}
