//! What a program opens connections by, and whether this host can.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use wirecost_linux::vsock;
use wirecost_model::plan::{Address, Plan};
use wirecost_model::profile::{Options, Size};
use wirecost_model::program::{GroupProgram, Program};
use wirecost_profile::protocols::{Delivery, Family};
use wirecost_program::payload::MAX_PIECE;
use wirecost_program::socket_setup::SocketSetup;
use wirecost_program::step;

use super::LoadError;
use crate::congestion;
use crate::transports::{self, Transport};

/// What this host opens connections by, and how.
pub(crate) fn transports_of(
    program: &Program,
) -> impl Iterator<Item = (&'static dyn Transport, &Options)> {
    step::acts(program).filter_map(|act| {
        let transport = transports::find(act.options.protocol.as_deref()?)?;
        Some((transport, &act.options))
    })
}

/// What this host's kernel lacks is said before anything is sent.
pub(super) fn check(program: &Program) -> Result<(), LoadError> {
    for (transport, options) in transports_of(program) {
        if let Some(reason) = transport.missing(options) {
            let protocol = transport.protocol().name().to_owned();
            return Err(LoadError::Protocol { protocol, reason });
        }
    }
    program.groups.iter().try_for_each(check_messages)
}

/// What this host's kernel refuses to set up is found by trying: a socket at a free port of loopback for
/// each kind of connection.
pub(super) fn check_sockets(plan: &Plan) -> Result<(), LoadError> {
    let mut tried: Vec<&Options> = Vec::new();
    for act in step::acts(&plan.program).filter(|act| act.service.is_some()) {
        let options = &act.options;
        let same = |other: &&Options| {
            (&other.protocol, &other.io, &other.bind)
                == (&options.protocol, &options.io, &options.bind)
                && other.port == options.port
        };
        let transport = options.protocol.as_deref().and_then(transports::find);
        let Some(transport) = transport.filter(|_| !tried.iter().any(same)) else { continue };
        tried.push(options);
        let failed = |act: String| LoadError::system(act);
        if let Some(from) = options.bind.as_deref().filter(|_| act.kind == "connect")
            && let Ok(address) = from.parse::<IpAddr>()
        {
            std::net::UdpSocket::bind((address, 0))
                .map_err(failed(format!("{}: bind={from}", act.at)))?;
        }
        // A fixed port is for who accepts there.
        let port = options.port.filter(|_| act.kind == "accept").unwrap_or(0);
        let at = match transport.protocol().family() {
            Family::Inet => Address::Inet(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)),
            Family::Vsock => Address::Vsock { cid: vsock::local_cid(), port: vsock::ANY },
            Family::Unix => continue,
        };
        let mut setup = SocketSetup::new(options, transport.protocol());
        setup.settings.retain(|setting| !congestion::is_loaded_by_run(setting, plan));
        let tried = transport.listen(&at, &setup);
        tried.map_err(failed(format!("{}: {} on {at}", act.at, act.kind)))?;
    }
    Ok(())
}

/// A message that its connection cannot carry whole is refused.
fn check_messages(group: &GroupProgram) -> Result<(), LoadError> {
    // Of each connection that is open, by its id: its protocol and the longest message.
    let mut longest: BTreeMap<u32, (&'static str, u64)> = BTreeMap::new();
    for act in group.phases.iter().flatten().flat_map(|phase| &phase.acts) {
        let (options, conns) = (&act.options, act.options.conn);
        if let Some(transport) = options.protocol.as_deref().and_then(transports::find) {
            let protocol = transport.protocol();
            for id in conns.first..=conns.last {
                longest.remove(&id);
            }
            if protocol.delivery() == Delivery::Messages {
                let name = protocol.name();
                let setup = SocketSetup::new(options, protocol);
                let limit = transport.longest_message(&setup).map_err(LoadError::system(name))?;
                let limit = limit.unwrap_or(u64::MAX).min(MAX_PIECE as u64);
                longest.extend((conns.first..=conns.last).map(|id| (id, (name, limit))));
            }
            continue;
        }
        let size = options.size.as_ref().map_or(0, Size::max);
        let used = longest.range(conns.first..=conns.last).map(|(_, limit)| *limit);
        if let Some((protocol, longest)) = used.min_by_key(|(_, longest)| *longest)
            && size > longest
        {
            let reason = format!(
                "{}: size={size} is more than the {longest} bytes that the socket's send buffer \
                 takes; use a smaller size, or a larger buffer with wndsz=... (up to \
                 net.core.wmem_max)",
                act.at
            );
            return Err(LoadError::Protocol { protocol: protocol.to_owned(), reason });
        }
    }
    Ok(())
}
