//! Options of SCTP sockets (RFC 6458, section 8), of those of one-to-one style.

use std::io;
use std::os::fd::AsFd;

use zerocopy::{Immutable, IntoBytes};

use crate::raw_option::SocketOption;

/// What can be set before an association is there; `None` leaves the kernel's setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Parameters {
    /// Small messages are sent at once (SCTP_NODELAY).
    pub nodelay: bool,
    /// Streams asked for, out of and into this end (SCTP_INITMSG).
    pub out_streams: Option<u16>,
    pub in_streams: Option<u16>,
    /// Retransmission time-outs, milliseconds (SCTP_RTOINFO).
    pub rto_initial: Option<u32>,
    pub rto_min: Option<u32>,
    pub rto_max: Option<u32>,
    /// How long an acknowledgement may wait, milliseconds, and for how many packets
    /// (SCTP_DELAYED_SACK).
    pub sack_delay: Option<u32>,
    pub sack_frequency: Option<u32>,
    /// Between heartbeats, milliseconds (SCTP_PEER_ADDR_PARAMS).
    pub heartbeat: Option<u32>,
    /// Bytes; path MTU discovery is off then (SCTP_PEER_ADDR_PARAMS).
    pub path_mtu: Option<u32>,
    /// Packets sent at once (SCTP_MAX_BURST).
    pub max_burst: Option<u32>,
    /// Bytes of a message in one packet (SCTP_MAXSEG).
    pub max_fragment: Option<u32>,
}

/// Of <https://elixir.bootlin.com/linux/v6.12/source/include/uapi/linux/sctp.h#L98>.
mod option {
    use super::{
        AssociationValue, InitMessage, PeerAddressParameters, RtoInfo, SackInfo, SocketOption,
        StatusBytes,
    };

    const LEVEL: libc::c_int = libc::IPPROTO_SCTP;

    // SAFETY: as all of SCTP, numbers whose length the kernel takes in bytes (RFC 6458, section 8).
    pub(super) const RTOINFO: SocketOption<RtoInfo> = unsafe { SocketOption::new(LEVEL, 0) };
    // SAFETY: as above.
    pub(super) const INITMSG: SocketOption<InitMessage> = unsafe { SocketOption::new(LEVEL, 2) };
    // SAFETY: as above.
    pub(super) const NODELAY: SocketOption<i32> = unsafe { SocketOption::new(LEVEL, 3) };
    // SAFETY: as above.
    pub(super) const PEER_ADDR_PARAMS: SocketOption<PeerAddressParameters> =
        unsafe { SocketOption::new(LEVEL, 9) };
    // SAFETY: as above.
    pub(super) const MAXSEG: SocketOption<AssociationValue> =
        unsafe { SocketOption::new(LEVEL, 13) };
    // SAFETY: as above.
    pub(super) const STATUS: SocketOption<StatusBytes> = unsafe { SocketOption::new(LEVEL, 14) };
    // SAFETY: as above.
    pub(super) const DELAYED_SACK: SocketOption<SackInfo> = unsafe { SocketOption::new(LEVEL, 16) };
    // SAFETY: as above.
    pub(super) const MAX_BURST: SocketOption<AssociationValue> =
        unsafe { SocketOption::new(LEVEL, 20) };
}

/// `struct sctp_status`, with its packed `struct sctp_paddrinfo`.
type StatusBytes = [u8; 176];

/// Every structure begins with the association, which is 0: of this socket's own and only one.
#[derive(Clone, Copy, IntoBytes, Immutable)]
#[repr(C)]
struct RtoInfo {
    association: i32,
    initial: u32,
    max: u32,
    min: u32,
}

#[derive(Clone, Copy, IntoBytes, Immutable)]
#[repr(C)]
struct InitMessage {
    out_streams: u16,
    max_in_streams: u16,
    max_attempts: u16,
    max_timeout: u16,
}

#[derive(Clone, Copy, IntoBytes, Immutable)]
#[repr(C)]
struct SackInfo {
    association: i32,
    delay: u32,
    frequency: u32,
}

#[derive(Clone, Copy, IntoBytes, Immutable)]
#[repr(C)]
struct AssociationValue {
    association: i32,
    value: u32,
}

/// `struct sctp_paddrparams`. The kernel packs it (to 4 bytes), so that the numbers behind the address
/// stand where they are not aligned, and are bytes here.
#[derive(Clone, Copy, IntoBytes, Immutable)]
#[repr(C)]
struct PeerAddressParameters {
    association: i32,
    /// A `sockaddr_storage`: any address of IPv4 stands for all paths.
    family: u16,
    rest_of_address: [u8; 126],
    heartbeat: u32,
    max_retransmissions: [u8; 2],
    path_mtu: [u8; 4],
    sack_delay: [u8; 4],
    flags: [u8; 4],
    flow_label: [u8; 4],
    dscp: u8,
    pad: u8,
}

/// The kernel compares lengths: <https://elixir.bootlin.com/linux/v6.12/source/net/sctp/socket.c#L2618>.
const _: () = assert!(size_of::<PeerAddressParameters>() == 156);

/// Sets the parameters that are there.
///
/// # Errors
/// Those of setsockopt(2): most often a value out of range.
pub fn set(socket: impl AsFd, parameters: &Parameters) -> io::Result<()> {
    let socket = socket.as_fd();
    if parameters.nodelay {
        option::NODELAY.set(socket, &1i32)?;
    }
    if parameters.out_streams.or(parameters.in_streams).is_some() {
        let message = InitMessage {
            out_streams: parameters.out_streams.unwrap_or(0),
            max_in_streams: parameters.in_streams.unwrap_or(0),
            max_attempts: 0,
            max_timeout: 0,
        };
        option::INITMSG.set(socket, &message)?;
    }
    let rto = [parameters.rto_initial, parameters.rto_max, parameters.rto_min];
    if rto.iter().any(Option::is_some) {
        let [initial, max, min] = rto.map(Option::unwrap_or_default);
        let info = RtoInfo { association: 0, initial, max, min };
        option::RTOINFO.set(socket, &info)?;
    }
    if parameters.sack_delay.or(parameters.sack_frequency).is_some() {
        let info = SackInfo {
            association: 0,
            delay: parameters.sack_delay.unwrap_or(0),
            frequency: parameters.sack_frequency.unwrap_or(0),
        };
        option::DELAYED_SACK.set(socket, &info)?;
    }
    if parameters.heartbeat.or(parameters.path_mtu).is_some() {
        option::PEER_ADDR_PARAMS.set(socket, &paths(parameters))?;
    }
    for (option, value) in
        [(option::MAX_BURST, parameters.max_burst), (option::MAXSEG, parameters.max_fragment)]
    {
        if let Some(value) = value {
            option.set(socket, &AssociationValue { association: 0, value })?;
        }
    }
    Ok(())
}

/// Of an association.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    /// Bytes that the other end has room for, as far as it has said.
    pub window: u32,
    /// Bytes of a packet on the primary path.
    pub path_mtu: u32,
}

/// Reads SCTP_STATUS.
///
/// # Errors
/// Those of getsockopt(2): no association is there.
pub fn status(socket: impl AsFd) -> io::Result<Status> {
    const WINDOW: usize = 8;
    const PATH_MTU: usize = 172;
    let bytes = option::STATUS.get(socket)?;
    let u32_at = |at: usize| {
        bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_ne_bytes)
    };
    Ok(Status { window: u32_at(WINDOW), path_mtu: u32_at(PATH_MTU) })
}

fn paths(parameters: &Parameters) -> PeerAddressParameters {
    const HEARTBEAT_ENABLE: u32 = 1;
    const MTU_DISCOVERY_DISABLE: u32 = 16;
    let mut flags = 0;
    if parameters.heartbeat.is_some() {
        flags |= HEARTBEAT_ENABLE;
    }
    if parameters.path_mtu.is_some() {
        flags |= MTU_DISCOVERY_DISABLE;
    }
    PeerAddressParameters {
        association: 0,
        family: libc::AF_INET as u16,
        rest_of_address: [0; 126],
        heartbeat: parameters.heartbeat.unwrap_or(0),
        max_retransmissions: [0; 2],
        path_mtu: parameters.path_mtu.unwrap_or(0).to_ne_bytes(),
        sack_delay: [0; 4],
        flags: flags.to_ne_bytes(),
        flow_label: [0; 4],
        dscp: 0,
        pad: 0,
    }
}
