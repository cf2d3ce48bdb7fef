//! Reasons not to run a profile that is a good profile otherwise: what is not supported yet, and what
//! uperf accepts when it reads the file and fails on when it runs.

use std::collections::BTreeMap;

use wirecost_model::profile::{Conns, Flowop, Group, Position, Profile, Size, Transaction, Until};

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

/// Flowops that use a connection that is not open in the first pass through the group, or that close more
/// than are open in a known number of passes.
fn unconnected(group: &Group) -> Vec<LanguageError> {
    let mut open = OpenRanges::default();
    let mut errors = Vec::new();
    for transaction in &group.transactions {
        if transaction.until == Until::Iterations(0) {
            continue;
        }
        open.before.clear();
        for flowop in transaction.flowops.iter().filter(|flowop| flowop.options.count > 0) {
            errors.extend(open.pass(flowop));
        }
        errors.extend(open.further_passes(transaction));
    }
    errors
}

/// Connections that are open.
#[derive(Debug, Default)]
struct OpenRanges {
    /// How often each range is open, by its first and last connection.
    open: BTreeMap<(u32, u32), u64>,
    /// The same before the first pass through a transaction, of those ranges that it opens or closes.
    before: BTreeMap<(u32, u32), u64>,
}

impl OpenRanges {
    fn set(&mut self, range: (u32, u32), open: u64) {
        match open {
            0 => drop(self.open.remove(&range)),
            _ => drop(self.open.insert(range, open)),
        }
    }

    fn of(&self, range: (u32, u32)) -> u64 {
        self.open.get(&range).copied().unwrap_or(0)
    }

    /// Goes past a flowop, which may use what is not open.
    fn pass(&mut self, flowop: &Flowop) -> Option<LanguageError> {
        let (conns, count) = (flowop.options.conn, flowop.options.count);
        let range = (conns.first, conns.last);
        let open = self.of(range);
        let kind = flowop.kind.as_str();
        let missing = match kind {
            "nop" | "think" | "" => return None,
            "connect" | "accept" => None,
            _ => first_missing(conns, &self.open),
        };
        let after = match kind {
            "connect" | "accept" => open.saturating_add(count),
            "disconnect" => open.saturating_sub(count),
            _ => open,
        };
        if after != open {
            self.before.entry(range).or_insert(open);
            self.set(range, after);
        }
        not_connected(flowop, missing?)
    }

    /// Goes through the transaction again as often as it is executed after its first pass.
    fn further_passes(&mut self, transaction: &Transaction) -> Option<LanguageError> {
        let passes = match transaction.until {
            // Loops and mixes open and close as often as they are drawn.
            _ if !transaction.order.is_empty() => return None,
            Until::Iterations(times) => Some(times.saturating_sub(1)),
            // There is time for more than there can be connections.
            Until::Duration(_) if only_closes(transaction) => Some(u64::MAX),
            // For how many there is time is not known.
            Until::Duration(_) => None,
        };
        let mut error = None;
        for (range, before) in std::mem::take(&mut self.before) {
            let open = self.of(range);
            if let Some(opened) = open.checked_sub(before) {
                let opened = opened.saturating_mul(passes.unwrap_or(u64::MAX));
                self.set(range, open.saturating_add(opened));
            } else if let Some(passes) = passes {
                let closed = (before - open).saturating_mul(passes);
                self.set(range, open.saturating_sub(closed));
                if closed > open && error.is_none() {
                    let closes = |flowop: &&Flowop| {
                        let conns = flowop.options.conn;
                        flowop.kind == "disconnect" && (conns.first, conns.last) == range
                    };
                    let flowop = transaction.flowops.iter().rfind(closes);
                    let conn = range.0;
                    error = flowop.filter(|flowop| !flowop.options.canfail).map(|flowop| {
                        located(LanguageErrorKind::ClosedTooOften { conn }, flowop.at)
                    });
                }
            }
        }
        error
    }
}

/// Whether the transaction does nothing else, and nothing delays the next pass.
fn only_closes(transaction: &Transaction) -> bool {
    let used = || transaction.flowops.iter().filter(|flowop| flowop.options.count > 0);
    transaction.arrivals.is_none()
        && used().all(|flowop| matches!(flowop.kind.as_str(), "disconnect" | "nop"))
}

fn not_connected(flowop: &Flowop, conn: u32) -> Option<LanguageError> {
    let kind = LanguageErrorKind::NotConnected { flowop: flowop.kind.clone(), conn };
    (!flowop.options.canfail).then(|| located(kind, flowop.at))
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
fn first_missing(conn: Conns, open: &BTreeMap<(u32, u32), u64>) -> Option<u32> {
    let mut id = conn.first;
    while let Some(&(_, last)) =
        open.keys().take_while(|(first, _)| *first <= id).find(|(_, last)| *last >= id)
    {
        if last >= conn.last {
            return None;
        }
        id = last + 1;
    }
    Some(id)
}
