use std::io;
use std::os::fd::OwnedFd;

use socket2::{Domain, Protocol as IpProtocol, Socket, Type};
use wirecost_linux::mptcp;
use wirecost_linux::tcp_info::TcpInfo;
use wirecost_model::plan::Address;
use wirecost_model::profile::Options;
use wirecost_profile::protocols::{self, Protocol};
use wirecost_program::socket_setup::SocketSetup;

use super::{EffectiveSetting, Transport, tcp};

pub(super) struct Mptcp;

const FELL_BACK: &str = "the connection fell back to TCP: the other end, or something on the path, \
                         does not let MPTCP's options through; use protocol=tcp to measure that";

impl Transport for Mptcp {
    fn protocol(&self) -> &'static dyn Protocol {
        &protocols::mptcp::Mptcp
    }

    /// Of the first subflow; segments of all.
    fn tcp_info(&self, socket: &OwnedFd) -> Option<TcpInfo> {
        let subflows = mptcp::subflows(socket).ok()?;
        let retransmits = subflows.iter().map(|subflow| subflow.retransmits).sum();
        let sum = |of: fn(&TcpInfo) -> Option<u32>| subflows.iter().map(of).sum();
        let data_segments_out = sum(|subflow| subflow.data_segments_out);
        let out_of_order = sum(|subflow| subflow.out_of_order);
        let all =
            |first: &TcpInfo| TcpInfo { retransmits, data_segments_out, out_of_order, ..*first };
        subflows.first().map(all)
    }

    fn missing(&self, _: &Options) -> Option<String> {
        let error = Socket::new(Domain::IPV4, Type::STREAM, Some(IpProtocol::MPTCP)).err()?;
        Some(format!("no MPTCP socket: {error}; it needs CONFIG_MPTCP and net.mptcp.enabled=1"))
    }

    fn listen(&self, address: &Address, setup: &SocketSetup) -> io::Result<(OwnedFd, Address)> {
        tcp::listen(address, Some(IpProtocol::MPTCP), setup)
    }

    fn connect(&self, address: &Address, setup: &SocketSetup) -> io::Result<OwnedFd> {
        tcp::connect(None, address, Some(IpProtocol::MPTCP), setup)
    }

    /// A time-out of the listener does not end an accept: the kernel waits on the subflow that
    /// listens, which has not been told of it.
    /// <https://elixir.bootlin.com/linux/v6.12/source/net/mptcp/sockopt.c#L294>
    fn polls_before_accept(&self) -> bool {
        true
    }

    fn opened(&self, socket: &OwnedFd) -> io::Result<Option<EffectiveSetting>> {
        match mptcp::fell_back(socket)? {
            true => Err(io::Error::new(io::ErrorKind::Unsupported, FELL_BACK)),
            false => Ok(None),
        }
    }

    fn closing(&self, socket: &OwnedFd) -> Option<EffectiveSetting> {
        mptcp::fell_back(socket).is_ok_and(|fell_back| fell_back).then(|| EffectiveSetting {
            name: "protocol",
            requested: self.protocol().name().to_owned(),
            effective: "tcp".to_owned(),
        })
    }
}
