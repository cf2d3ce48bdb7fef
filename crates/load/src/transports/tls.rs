use std::io;
use std::os::fd::OwnedFd;

use wirecost_linux::ktls;
use wirecost_linux::tcp_info::TcpInfo;
use wirecost_model::plan::Address;
use wirecost_model::profile::Options;
use wirecost_profile::protocols::{self, Protocol};

use super::{Granted, Transport, tcp};

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
            "ktls: this kernel has no TLS; it takes CONFIG_TLS (modprobe tls), and without ktls the \
             program itself encrypts"
                .to_owned()
        })
    }

    fn listen(&self, address: &Address, options: &Options) -> io::Result<(OwnedFd, Address)> {
        tcp::Tcp.listen(address, options)
    }

    fn connect(&self, address: &Address, options: &Options) -> io::Result<OwnedFd> {
        tcp::Tcp.connect(address, options)
    }

    fn accepted(&self, socket: &OwnedFd, options: &Options) -> io::Result<()> {
        tcp::Tcp.accepted(socket, options)
    }

    fn granted(&self, socket: &OwnedFd, options: &Options) -> Vec<Granted> {
        tcp::Tcp.granted(socket, options)
    }
}
