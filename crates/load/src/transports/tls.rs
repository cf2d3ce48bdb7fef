use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use wirecost_linux::ktls;
use wirecost_linux::tcp_info::TcpInfo;
use wirecost_model::plan::Address;
use wirecost_model::profile::Options;
use wirecost_profile::protocols::{self, Protocol};
use wirecost_program::socket_setup::SocketSetup;

use super::{Transport, tcp};

pub(super) struct Tls;

impl Transport for Tls {
    fn protocol(&self) -> &'static dyn Protocol {
        &protocols::tls::Tls
    }

    fn tcp_info(&self, socket: &OwnedFd) -> Option<TcpInfo> {
        tcp::Tcp.tcp_info(socket)
    }

    fn missing(&self, options: &Options) -> Option<String> {
        (options.ktls && !ktls::available()).then(|| {
            "ktls: this kernel has no TLS; it needs CONFIG_TLS (modprobe tls), and without ktls the \
             program itself encrypts"
                .to_owned()
        })
    }

    fn listen(&self, address: &Address, setup: &SocketSetup) -> io::Result<(OwnedFd, Address)> {
        tcp::Tcp.listen(address, setup)
    }

    fn connect(&self, address: &Address, setup: &SocketSetup) -> io::Result<OwnedFd> {
        tcp::Tcp.connect(address, setup)
    }

    fn connect_from(
        &self,
        from: SocketAddr,
        address: &Address,
        setup: &SocketSetup,
    ) -> io::Result<OwnedFd> {
        tcp::Tcp.connect_from(from, address, setup)
    }
}
