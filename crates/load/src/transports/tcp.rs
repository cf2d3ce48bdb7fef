use std::io;
use std::os::fd::OwnedFd;

use socket2::{Protocol as IpProtocol, SockRef, Socket, Type};
use wirecost_linux::tcp_info::{self, TcpInfo};
use wirecost_model::plan::Address;
use wirecost_model::profile::Options;
use wirecost_profile::protocols::{self, Protocol};

use super::{Granted, Transport};
use crate::inet;

pub(super) struct Tcp;

/// Largest backlog; the kernel takes what net.core.somaxconn allows.
const BACKLOG: i32 = 65_535;

fn set(socket: &Socket, options: &Options) -> io::Result<()> {
    if let Some(mss) = options.mss {
        socket.set_tcp_mss(mss)?;
    }
    if let Some(cc) = &options.cc {
        socket.set_tcp_congestion(cc.as_bytes()).map_err(|error| {
            io::Error::new(error.kind(), format!("congestion control {cc}: {error}"))
        })?;
    }
    if options.tcp_nodelay {
        socket.set_tcp_nodelay(true)?;
    }
    set_lowat(&SockRef::from(socket), options)
}

fn set_lowat(socket: &SockRef<'_>, options: &Options) -> io::Result<()> {
    options.notsent_lowat.map_or(Ok(()), |bytes| socket.set_tcp_notsent_lowat(bytes))
}

/// What makes and sets sockets of TCP, or of what is built on it.
pub(super) fn listen(
    address: &Address,
    kind: Option<IpProtocol>,
    options: &Options,
) -> io::Result<(OwnedFd, Address)> {
    let address = inet::socket_address(address)?;
    let socket = inet::socket(address, Type::STREAM, kind, options)?;
    socket.set_reuse_address(true)?;
    set(&socket, options)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    let bound = socket.local_addr()?.as_socket().unwrap_or(address);
    Ok((socket.into(), Address::Inet(bound)))
}

pub(super) fn connect(
    address: &Address,
    kind: Option<IpProtocol>,
    options: &Options,
) -> io::Result<OwnedFd> {
    let address = inet::socket_address(address)?;
    let socket = inet::socket(address, Type::STREAM, kind, options)?;
    set(&socket, options)?;
    inet::bind(&socket, options)?;
    inet::connect(socket, &address.into())
}

impl Transport for Tcp {
    fn protocol(&self) -> &'static dyn Protocol {
        &protocols::tcp::Tcp
    }

    fn has_low_water(&self) -> bool {
        true
    }

    fn tcp_info(&self, socket: &OwnedFd) -> Option<TcpInfo> {
        tcp_info::read(socket).ok()
    }

    fn listen(&self, address: &Address, options: &Options) -> io::Result<(OwnedFd, Address)> {
        listen(address, None, options)
    }

    fn connect(&self, address: &Address, options: &Options) -> io::Result<OwnedFd> {
        connect(address, None, options)
    }

    fn accepted(&self, socket: &OwnedFd, options: &Options) -> io::Result<()> {
        if options.tcp_nodelay {
            SockRef::from(socket).set_tcp_nodelay(true)?;
        }
        set_lowat(&SockRef::from(socket), options)?;
        inet::set_busy_poll(socket, options);
        Ok(())
    }

    fn granted(&self, socket: &OwnedFd, options: &Options) -> Vec<Granted> {
        let socket = SockRef::from(socket);
        let mut settings = inet::granted(&socket, options);
        if let (Some(asked), Ok(mss)) = (options.mss, socket.tcp_mss()) {
            settings.push(Granted {
                name: "mss",
                asked: asked.to_string(),
                granted: mss.to_string(),
            });
        }
        if let (Some(asked), Ok(bytes)) = (options.notsent_lowat, socket.tcp_notsent_lowat()) {
            settings.push(Granted {
                name: "notsent_lowat",
                asked: asked.to_string(),
                granted: bytes.to_string(),
            });
        }
        if let (Some(asked), Ok(name)) = (&options.cc, socket.tcp_congestion()) {
            let granted = String::from_utf8_lossy(&name);
            settings.push(Granted {
                name: "cc",
                asked: asked.clone(),
                granted: granted.trim_end_matches('\0').to_owned(),
            });
        }
        settings
    }
}

#[cfg(test)]
mod tests {
    use wirecost_linux::tcp_info;

    use super::*;

    /// Bytes that a connection to somebody who does not read takes and has not sent.
    fn not_sent(options: &Options) -> u64 {
        let local = Address::Inet("127.0.0.1:0".parse().unwrap());
        let (listener, address) = Tcp.listen(&local, options).unwrap();
        let socket = Tcp.connect(&address, options).unwrap();
        let mut ready = [rustix::event::PollFd::new(&listener, rustix::event::PollFlags::IN)];
        rustix::event::poll(&mut ready, None).unwrap();
        let accepted = rustix::net::accept(&listener).unwrap();
        Tcp.accepted(&accepted, options).unwrap();
        let mut ready = [rustix::event::PollFd::new(&socket, rustix::event::PollFlags::OUT)];
        rustix::event::poll(&mut ready, None).unwrap();
        while rustix::io::write(&socket, &[0; 4096]).is_ok() {}
        tcp_info::read(&socket).unwrap().not_sent.unwrap().into()
    }

    #[test]
    fn a_low_water_mark_keeps_the_queue_short() {
        let mut options = Options { wndsz: Some(4 << 20), ..Options::default() };
        let long = not_sent(&options);
        options.notsent_lowat = Some(16 << 10);
        let short = not_sent(&options);
        // Up to the mark, and what the last buffer (64 KiB at most) has room for behind it.
        assert!(short <= 80 << 10, "{short}");
        assert!(long > 4 * short, "{long}, {short} with a mark");
    }
}
