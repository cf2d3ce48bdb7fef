use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use socket2::{Protocol as IpProtocol, Type};
use wirecost_linux::tcp_info::{self, TcpInfo};
use wirecost_model::plan::Address;
use wirecost_profile::protocols::{self, Protocol};
use wirecost_program::socket_setup::SocketSetup;

use super::Transport;
use crate::inet;

pub(super) struct Tcp;

/// Largest backlog; the kernel takes what net.core.somaxconn allows.
const BACKLOG: i32 = 65_535;

/// What makes and sets sockets of TCP, or of what is built on it.
pub(super) fn listen(
    address: &Address,
    kind: Option<IpProtocol>,
    setup: &SocketSetup,
) -> io::Result<(OwnedFd, Address)> {
    bind_and_listen(address, kind, setup, false)
}

/// Listens at an address where other sockets of this user, made in the same way, may listen as well (SO_REUSEPORT).
pub(crate) fn listen_with_others(
    address: &Address,
    setup: &SocketSetup,
) -> io::Result<(OwnedFd, Address)> {
    bind_and_listen(address, None, setup, true)
}

fn bind_and_listen(
    address: &Address,
    kind: Option<IpProtocol>,
    setup: &SocketSetup,
    with_others: bool,
) -> io::Result<(OwnedFd, Address)> {
    let address = inet::socket_address(address)?;
    let socket = inet::socket(address, Type::STREAM, kind, setup)?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(with_others)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    let bound = socket.local_addr()?.as_socket().unwrap_or(address);
    Ok((socket.into(), Address::Inet(bound)))
}

pub(super) fn connect(
    from: Option<SocketAddr>,
    address: &Address,
    kind: Option<IpProtocol>,
    setup: &SocketSetup,
) -> io::Result<OwnedFd> {
    let address = inet::socket_address(address)?;
    let socket = inet::socket(address, Type::STREAM, kind, setup)?;
    if from.is_some() {
        // So that a port can be used again, towards another port of the peer, whose last connection closed a moment ago.
        socket.set_reuse_address(true)?;
    }
    inet::bind(&socket, from, setup)?;
    inet::connect(socket, &address.into())
}

impl Transport for Tcp {
    fn protocol(&self) -> &'static dyn Protocol {
        &protocols::tcp::Tcp
    }

    // https://github.com/torvalds/linux/blob/v6.12/net/ipv4/tcp.c#L544
    fn tells_connected(&self) -> bool {
        true
    }

    fn has_low_water(&self) -> bool {
        true
    }

    fn tcp_info(&self, socket: &OwnedFd) -> Option<TcpInfo> {
        tcp_info::read(socket).ok()
    }

    fn listen(&self, address: &Address, setup: &SocketSetup) -> io::Result<(OwnedFd, Address)> {
        listen(address, None, setup)
    }

    fn connect(&self, address: &Address, setup: &SocketSetup) -> io::Result<OwnedFd> {
        connect(None, address, None, setup)
    }

    fn connect_from(
        &self,
        from: SocketAddr,
        address: &Address,
        setup: &SocketSetup,
    ) -> io::Result<OwnedFd> {
        connect(Some(from), address, None, setup)
    }
}

#[cfg(test)]
mod tests {
    use wirecost_linux::tcp_info;
    use wirecost_model::profile::{IoValue, Options};

    use super::*;

    /// Bytes that a connection to somebody who does not read takes and has not sent.
    fn not_sent(options: &Options) -> u64 {
        let setup = &SocketSetup::new(options, &protocols::tcp::Tcp);
        let local = Address::Inet("127.0.0.1:0".parse().unwrap());
        let (listener, address) = Tcp.listen(&local, setup).unwrap();
        let socket = Tcp.connect(&address, setup).unwrap();
        let mut ready = [rustix::event::PollFd::new(&listener, rustix::event::PollFlags::IN)];
        rustix::event::poll(&mut ready, None).unwrap();
        let accepted = rustix::net::accept(&listener).unwrap();
        Tcp.accepted(&accepted, setup).unwrap();
        let mut ready = [rustix::event::PollFd::new(&socket, rustix::event::PollFlags::OUT)];
        rustix::event::poll(&mut ready, None).unwrap();
        while rustix::io::write(&socket, &[0; 4096]).is_ok() {}
        tcp_info::read(&socket).unwrap().not_sent.unwrap().into()
    }

    /// Which saves a system call of each connection.
    #[test]
    fn accepted_connections_have_nodelay_from_their_listener() {
        for asked in [true, false] {
            let mut options = Options::default();
            if asked {
                options.io.set("tcp_nodelay", IoValue::On);
            }
            let setup = &SocketSetup::new(&options, &protocols::tcp::Tcp);
            let local = Address::Inet("127.0.0.1:0".parse().unwrap());
            let (listener, address) = Tcp.listen(&local, setup).unwrap();
            let _socket = Tcp.connect(&address, setup).unwrap();
            let mut ready = [rustix::event::PollFd::new(&listener, rustix::event::PollFlags::IN)];
            rustix::event::poll(&mut ready, None).unwrap();
            let accepted = rustix::net::accept(&listener).unwrap();
            assert_eq!(rustix::net::sockopt::tcp_nodelay(&accepted).unwrap(), asked);
        }
    }

    #[test]
    fn a_low_water_mark_keeps_the_queue_short() {
        let mut options = Options::default();
        options.io.set("wndsz", IoValue::Number(4 << 20));
        let long = not_sent(&options);
        options.io.set("notsent_lowat", IoValue::Number(16 << 10));
        let short = not_sent(&options);
        // Up to the mark, and what the last buffer (64 KiB at most) has room for behind it.
        assert!(short <= 80 << 10, "{short}");
        assert!(long > 4 * short, "{long}, {short} with a mark");
    }
}
