//! What a program opens connections by, and whether this host can.

use std::collections::BTreeMap;

use wirecost_model::profile::{Options, Size};
use wirecost_model::program::{GroupProgram, Program};
use wirecost_profile::protocols::Delivery;
use wirecost_program::payload::MAX_PIECE;
use wirecost_program::socket_setup::SocketSetup;
use wirecost_program::step;

use super::LoadError;
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
