use std::io;
use std::os::fd::OwnedFd;

use wirecost_linux::ktls;
use wirecost_linux::tcp_info::TcpInfo;
use wirecost_model::plan::Address;
use wirecost_model::profile::Options;

use super::{Granted, Protocol, tcp};

/// TLS 1.3 over TCP. The handshake is part of opening a connection; how a connection ends is TCP's
/// affair (no close_notify), as both ends know what is to come.
pub(super) struct Tls;

impl Protocol for Tls {
    fn name(&self) -> &'static str {
        "tls"
    }

    fn help(&self) -> &'static str {
        "TLS 1.3 over TCP, with a certificate for each run; with ktls: kernel module tls"
    }

    fn has_tcp_info(&self) -> bool {
        true
    }

    fn stream(&self) -> bool {
        true
    }

    fn is_secure(&self) -> bool {
        true
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
