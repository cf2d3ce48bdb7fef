//! Notes that need the whole profile: where what wirecost does is not what uperf does, or not what
//! the words suggest.

use std::collections::BTreeSet;
use std::time::Duration;

use wirecost_model::profile::{Conns, Flowop, Profile, Size};

use super::note::NoteKind;
use super::parse::{FlowopSpans, Reader};
use super::{io, options};
use crate::open_connections::OpenConnections;

pub(super) fn note(profile: &Profile, spans: &FlowopSpans, reader: &mut Reader<'_>) {
    for group in &profile.groups {
        let flowops = || group.transactions.iter().flat_map(|t| &t.flowops);
        let opened: Vec<_> = flowops().filter_map(opens).collect();
        let open = OpenConnections::of(group);
        for flowop in flowops() {
            if opens(flowop).is_some() && open.is_open_ended(flowop) {
                let most = open.most(flowop, group.strands);
                let kind = NoteKind::OpenEnded { flowop: flowop.kind.clone(), most };
                reader.note(kind, spans.tag(flowop.at));
            }
            // All of the group's transactions share connections, so where one opens it does not matter.
            let conn = flowop.options.conn.first;
            let protocol = opened.iter().rfind(|(conns, _)| conns.contains(conn));
            for (option, kind) in of_flowop(flowop, protocol.map(|(_, name)| *name)) {
                reader.note(kind, spans.option(flowop.at, option));
            }
            let protocol = protocol.map(|(_, name)| *name);
            for (option, kind) in io::idle(flowop, protocol) {
                reader.note(kind, spans.option(flowop.at, option));
            }
        }
        let hosts: BTreeSet<_> =
            flowops().filter_map(|flowop| flowop.options.remotehost.as_deref()).collect();
        let follower = flowops().find(|flowop| {
            flowop.options.remotehost.is_none() && !matches!(flowop.kind.as_str(), "nop" | "think")
        });
        if let Some(follower) = follower
            && hosts.len() > 1
        {
            reader.note(NoteKind::FollowsConnection, spans.tag(follower.at));
        }
    }
}

/// The connections that a flowop opens, and by which protocol.
fn opens(flowop: &Flowop) -> Option<(Conns, &str)> {
    let opens = matches!(flowop.kind.as_str(), "connect" | "accept");
    let protocol = flowop.options.protocol.as_deref();
    protocol.filter(|_| opens).map(|protocol| (flowop.options.conn, protocol))
}

/// Each note with the option that it is about.
fn of_flowop(flowop: &Flowop, protocol: Option<&str>) -> Vec<(&'static str, NoteKind)> {
    let kind = flowop.kind.as_str();
    let options = &flowop.options;
    let mut notes = Vec::new();
    if options.canfail {
        notes.push(("canfail", NoteKind::CanFail));
    }
    let reads = matches!(kind, "read" | "recv" | "recvfrom");
    let moves = reads || matches!(kind, "write" | "send" | "sendto");
    if !moves {
        return notes;
    }
    if let (Some(size), Some(rsize)) = (&options.size, options.rsize) {
        notes.extend(rsize_note(size, rsize, options.count).map(|kind| ("rsize", kind)));
    }
    if reads && matches!(options.size, Some(Size::Random { .. })) {
        notes.push(("size", NoteKind::RandomRead));
    }
    if protocol == Some("udp") {
        match options.timeout {
            None if reads => notes.push(("", NoteKind::DatagramTimeout)),
            Some(timeout) if timeout < Duration::from_millis(1) => {
                notes.push(("timeout", NoteKind::UperfTimeoutShort));
            }
            Some(timeout) if timeout.as_nanos() > i32::MAX.unsigned_abs().into() => {
                let value = options::time(timeout);
                notes.push(("timeout", NoteKind::UperfTimeoutWraps { value }));
            }
            _ => {}
        }
    }
    notes
}

fn rsize_note(size: &Size, rsize: u64, count: u64) -> Option<NoteKind> {
    let Size::Fixed(size) = *size else {
        return Some(NoteKind::RsizeRandom);
    };
    let total = size.saturating_mul(count);
    if rsize == size {
        None
    } else if rsize < size {
        Some(NoteKind::RsizeSmaller { rsize, size })
    } else if rsize > total {
        let clipped = total;
        Some(NoteKind::RsizeClipped { rsize, clipped })
    } else {
        Some(NoteKind::RsizeLarger { rsize, size })
    }
}
