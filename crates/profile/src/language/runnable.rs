//! Reasons not to run a profile that is a good profile otherwise: what is not supported yet, and what
//! uperf accepts when it reads the file and fails on when it runs.

use wirecost_model::profile::{Conns, Flowop, Group, Position, Profile, Size, Until};

use super::error::{LanguageError, LanguageErrorKind};
use super::io;
use super::source::Span;
use crate::protocols::{Delivery, Protocol};
use crate::{flowops, protocols};

/// What the profile uses that nothing executes yet. Errors point at the flowop's tag.
pub fn unsupported(profile: &Profile) -> Vec<LanguageError> {
    each_flowop(profile, |flowop, found| {
        let kind = flowop.kind.as_str();
        if !kind.is_empty() && flowops::find(kind).is_none() {
            let name = kind.to_owned();
            found.push(LanguageErrorKind::FlowopNotSupported { name });
        }
        if let Some(protocol) = &flowop.options.protocol
            && protocols::find(protocol).is_none()
        {
            let name = protocol.clone();
            found.push(LanguageErrorKind::ProtocolNotSupported { name });
        }
        for name in flowop.options.unsupported.keys() {
            let name = name.clone();
            found.push(LanguageErrorKind::OptionNotSupported { name });
        }
    })
}

/// What the profile lacks or contradicts, so that running it would fail or do nothing. Errors point
/// at the flowop's tag.
pub fn runnable(profile: &Profile) -> Vec<LanguageError> {
    let mut errors = each_flowop(profile, incomplete);
    for group in &profile.groups {
        errors.extend(unconnected(group));
        errors.extend(unmovable(group));
    }
    let does_something = |group: &Group| {
        group.strands > 0 && group.transactions.iter().any(|t| !t.flowops.is_empty())
    };
    if !profile.groups.iter().any(does_something) {
        errors.push(located(LanguageErrorKind::NothingToRun, Position::default()));
    }
    errors
}

/// Both, for [`super::Parsed::refusals`].
pub(super) fn refusals(profile: &Profile) -> impl Iterator<Item = LanguageError> {
    unsupported(profile).into_iter().chain(runnable(profile))
}

fn located(kind: LanguageErrorKind, at: Position) -> LanguageError {
    LanguageError { kind, at, span: Span::default() }
}

fn each_flowop(
    profile: &Profile,
    look: impl Fn(&Flowop, &mut Vec<LanguageErrorKind>),
) -> Vec<LanguageError> {
    let flowops = profile
        .groups
        .iter()
        .flat_map(|group| &group.transactions)
        .flat_map(|transaction| &transaction.flowops);
    let mut errors = Vec::new();
    for flowop in flowops {
        let mut found = Vec::new();
        look(flowop, &mut found);
        errors.extend(found.into_iter().map(|kind| located(kind, flowop.at)));
    }
    errors
}

fn incomplete(flowop: &Flowop, found: &mut Vec<LanguageErrorKind>) {
    let options = &flowop.options;
    let mut needs = |option: &'static str, there: bool| {
        if !there {
            let flowop = flowop.kind.clone();
            found.push(LanguageErrorKind::MissingOption { flowop, option });
        }
    };
    match flowop.kind.as_str() {
        "" => found.push(LanguageErrorKind::NoType),
        "connect" | "accept" => {
            needs("protocol", options.protocol.is_some());
            needs("remotehost", options.remotehost.is_some());
        }
        "read" | "write" | "send" | "recv" | "sendto" | "recvfrom" => {
            needs("size", options.size.is_some());
        }
        "sendfile" | "sendfilev" => needs("dir", options.dir.is_some()),
        _ => {}
    }
    if let Some(Size::Random { min, max }) = options.size
        && max < min
    {
        found.push(LanguageErrorKind::RandomBackwards { min, max });
    }
}

/// Flowops that use a connection that is not open in the first pass through the group.
fn unconnected(group: &Group) -> Vec<LanguageError> {
    let mut open: Vec<Conns> = Vec::new();
    let mut errors = Vec::new();
    let executed = group
        .transactions
        .iter()
        .filter(|transaction| transaction.until != Until::Iterations(0))
        .flat_map(|transaction| &transaction.flowops)
        .filter(|flowop| flowop.options.count > 0);
    for flowop in executed {
        let conn = flowop.options.conn;
        let kind = flowop.kind.as_str();
        match kind {
            // Executed several times it opens several; two are enough to have one left over.
            "connect" | "accept" => {
                open.push(conn);
                open.extend((flowop.options.count > 1).then_some(conn));
                continue;
            }
            "nop" | "think" | "" => continue,
            _ => {}
        }
        if let Some(conn) = first_missing(conn, &open)
            && !flowop.options.canfail
        {
            let flowop_name = kind.to_owned();
            let kind = LanguageErrorKind::NotConnected { flowop: flowop_name, conn };
            errors.push(located(kind, flowop.at));
        }
        if kind == "disconnect"
            && let Some(index) = open.iter().rposition(|range| *range == conn)
        {
            open.remove(index);
        }
    }
    errors
}

/// Flowops whose message is longer than the protocol of its connection can carry, or whose I/O
/// options it cannot be moved with.
fn unmovable(group: &Group) -> Vec<LanguageError> {
    let mut opened: Vec<(Conns, &str)> = Vec::new();
    let mut errors = Vec::new();
    for flowop in group.transactions.iter().flat_map(|transaction| &transaction.flowops) {
        let options = &flowop.options;
        if let Some(protocol) = &options.protocol {
            opened.push((options.conn, protocol));
            continue;
        }
        let id = options.conn.first;
        let used = opened.iter().rfind(|(range, _)| range.contains(id)).map(|(_, name)| *name);
        let mut found = Vec::new();
        io::refused(flowop, used, &mut found);
        found.extend(used.and_then(|used| no_half_close(flowop, used)));
        if let Some(protocol) = used.and_then(protocols::find) {
            beyond_messages(flowop, protocol, &mut found);
        }
        errors.extend(found.into_iter().map(|kind| located(kind, flowop.at)));
    }
    errors
}

/// What the messages of a protocol cannot be.
fn beyond_messages(flowop: &Flowop, protocol: &dyn Protocol, found: &mut Vec<LanguageErrorKind>) {
    let options = &flowop.options;
    let name = || protocol.name().to_owned();
    if let Some(longest) = protocol.longest_message()
        && let Some(size) = options.size.as_ref().map(Size::max).filter(|&size| size > longest)
    {
        found.push(LanguageErrorKind::MessageTooLong { size, longest, protocol: name() });
    }
    if protocol.delivery() != Delivery::Messages {
        return;
    }
    for (option, used) in [("rsize", options.rsize.is_some()), ("dir", options.dir.is_some())] {
        if used {
            found.push(LanguageErrorKind::CutsMessages { option, protocol: name() });
        }
    }
}

/// Of a flowop that ends one way of a stream: why it cannot. TLS ends both ways at once.
fn no_half_close(flowop: &Flowop, protocol: &str) -> Option<LanguageErrorKind> {
    let ends = flowops::find(&flowop.kind).is_some_and(|f| f.action().is_half_close());
    let can = protocols::find(protocol)
        .is_none_or(|protocol| protocol.delivery() == Delivery::Stream && !protocol.is_secure());
    (ends && !can).then(|| LanguageErrorKind::NoHalfClose {
        flowop: flowop.kind.clone(),
        protocol: protocol.to_owned(),
    })
}

/// The first id that no range holds.
fn first_missing(conn: Conns, open: &[Conns]) -> Option<u32> {
    let mut id = conn.first;
    while let Some(range) = open.iter().find(|range| range.contains(id)) {
        if range.last >= conn.last {
            return None;
        }
        id = range.last + 1;
    }
    Some(id)
}
