//! Which system calls a flowop's I/O options make of its transfers, and which options a protocol has
//! a use for.

use std::collections::{BTreeMap, BTreeSet};

use wirecost_model::profile::{Io, Options};
use wirecost_model::program::{Act, GroupProgram, Program};
use wirecost_profile::flowops::{self, Action};
use wirecost_profile::protocols::Protocol;
use wirecost_profile::{io_options, language};

use crate::hello;
use crate::step::{ReceiveCall, SendCall};

/// A setting as requested, and as it takes effect.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Granted {
    pub name: &'static str,
    pub asked: String,
    pub granted: String,
}

/// A stream's messages by other means than a copying call for each piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Streamed {
    /// Part segments wait until the last message of the flowop's turn.
    pub cork: bool,
    pub zerocopy: bool,
}

/// How many datagrams one call sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sends {
    pub messages: u16,
    /// Datagrams that the kernel cuts each message into.
    pub segments: u16,
}

/// How many datagrams one call receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receives {
    pub messages: u16,
    /// Whether one message may be several datagrams.
    pub joined: bool,
    /// Room for a datagram, bytes.
    pub place: u32,
}

/// What becomes of the bytes of a stream that never enter this program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unseen {
    /// The kernel drops them.
    Discarded,
    /// They go through a pipe to this place in [`sinks`]; none: they are dropped after the pipe.
    Spliced(Option<u16>),
}

/// A directory for what is received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SinkPlace {
    pub directory: String,
    /// Of all files of one host together.
    pub bytes: u64,
    pub direct: bool,
}

/// Bytes of the files of a sink, unless the profile says otherwise.
const SINK_BYTES: u64 = 64 << 20;

/// The largest message that GRO makes.
const JOINED: u32 = 64 << 10;

/// Datagrams of one execution of a flowop, where it moves datagrams.
pub fn datagrams(options: &Options, protocol: Option<&dyn Protocol>) -> u64 {
    if io_options::fits("batch", protocol) { options.io.datagrams() } else { 1 }
}

/// How a flowop sends with its options.
pub fn send_call(
    plain: flowops::SendCall,
    options: &Options,
    protocol: Option<&dyn Protocol>,
) -> SendCall {
    let io = &options.io;
    if io_options::fits("batch", protocol) && io.datagrams() > 1 {
        let number = |of: Option<u32>| of.map_or(1, |n| n.clamp(1, u16::MAX.into()) as u16);
        let (messages, segments) = (number(io.batch), number(io.gso));
        SendCall::Several(Sends { messages, segments })
    } else if io_options::fits("zerocopy", protocol) && (io.zerocopy || io.tcp_cork) {
        SendCall::Streamed(Streamed { cork: io.tcp_cork, zerocopy: io.zerocopy })
    } else {
        SendCall::Plain(plain)
    }
}

/// How a flowop receives with its options.
pub fn receive_call(
    plain: flowops::ReceiveCall,
    options: &Options,
    protocol: Option<&dyn Protocol>,
    receives: Option<Receives>,
    sinks: &[SinkPlace],
) -> ReceiveCall {
    let io = &options.io;
    if let Some(receives) = receives {
        ReceiveCall::Several(receives)
    } else if io_options::fits("discard", protocol) && io.discard {
        ReceiveCall::Unseen(Unseen::Discarded)
    } else if io_options::fits("sink", protocol) && (splices(options) || io.sink.is_some()) {
        let place = sink_place(io);
        let sink = sinks.iter().position(|sink| Some(sink) == place.as_ref());
        let sink = sink.and_then(|sink| u16::try_from(sink).ok());
        match sink {
            sink if splices(options) => ReceiveCall::Unseen(Unseen::Spliced(sink)),
            Some(sink) => ReceiveCall::Kept(sink),
            None => ReceiveCall::Plain(plain),
        }
    } else {
        ReceiveCall::Plain(plain)
    }
}

/// Whether a receiver does. Of `sendfile`, whose files it knows, that is the sender's way.
fn splices(options: &Options) -> bool {
    options.io.splice && options.dir.is_none()
}

fn sink_place(io: &Io) -> Option<SinkPlace> {
    let directory = io.sink.clone()?;
    Some(SinkPlace { directory, bytes: io.sink_size.unwrap_or(SINK_BYTES), direct: io.o_direct })
}

/// Where a host keeps what it receives.
pub fn sinks(program: &Program) -> Vec<SinkPlace> {
    let mut sinks = Vec::new();
    for act in crate::step::acts(program).filter(|act| receives(act)) {
        sinks.extend(sink_place(&act.options.io).filter(|place| !sinks.contains(place)));
    }
    sinks
}

fn receives(act: &Act) -> bool {
    flowops::find(&act.kind).is_some_and(|f| matches!(f.action(), Action::Receive(_)))
}

/// The I/O options of a host's flowops, as far as they are this end's part: the sender's or the
/// receiver's.
pub fn settings(program: &Program) -> BTreeSet<Granted> {
    let mut settings = BTreeSet::new();
    for group in &program.groups {
        let protocols = crate::step::connection_protocols(group);
        for act in group.phases.iter().flatten().flat_map(|phase| &phase.acts) {
            let action = flowops::find(&act.kind).map(|flowop| flowop.action());
            let names: &[&str] = match action {
                Some(Action::Send(_)) => &["tcp_cork", "zerocopy", "gso", "batch"],
                Some(Action::Receive(_)) if act.options.dir.is_some() => continue,
                Some(Action::Receive(_)) => {
                    &["gro", "batch", "discard", "splice", "sink", "sink_size", "o_direct"]
                }
                Some(Action::SendFile) => &["splice", "o_direct"],
                _ => continue,
            };
            let protocol = protocols.get(&act.options.conn.first).copied();
            for option in names.iter().filter_map(|name| language::find_option(name)) {
                if let Some(written) = option.written(&act.options)
                    && io_options::fits(option.name, protocol)
                {
                    let value = if written.is_empty() { "on".to_owned() } else { written };
                    let (asked, granted) = (value.clone(), value);
                    settings.insert(Granted { name: option.name, asked, granted });
                }
            }
        }
    }
    settings
}

/// Connections, by id, whose datagrams are received several at a time. What one call receives may be
/// more than one flowop wants: all flowops of a connection receive in the same way.
pub fn several(
    group: &GroupProgram,
    protocols: &BTreeMap<u32, &'static dyn Protocol>,
) -> BTreeMap<u32, Receives> {
    let mut several: BTreeMap<u32, Receives> = BTreeMap::new();
    let acts = || group.phases.iter().flatten().flat_map(|phase| &phase.acts);
    for act in acts().filter(|act| receives(act)) {
        let options = &act.options;
        for id in options.conn.first..=options.conn.last {
            if !io_options::fits("batch", protocols.get(&id).copied()) {
                continue;
            }
            let messages = options.io.batch.unwrap_or(1).clamp(1, u16::MAX.into()) as u16;
            let size =
                options.size.as_ref().map_or(0, |size| size.max()).min(u64::from(JOINED)) as u32;
            let receives = several.entry(id).or_insert(Receives {
                messages: 1,
                joined: false,
                place: hello::LENGTH as u32,
            });
            receives.messages = receives.messages.max(messages);
            receives.joined |= options.io.gro;
            receives.place = receives.place.max(size.next_multiple_of(64));
        }
    }
    several.retain(|_, receives| receives.messages > 1 || receives.joined);
    for receives in several.values_mut().filter(|receives| receives.joined) {
        receives.place = JOINED;
    }
    several
}

/// The same for a range of connections: what is enough for each of them.
pub fn of_range(several: &BTreeMap<u32, Receives>, act: &Act) -> Option<Receives> {
    let conns = act.options.conn;
    let mut of = several.range(conns.first..=conns.last).map(|(_, receives)| *receives);
    let first = of.next()?;
    Some(of.fold(first, |a, b| Receives {
        messages: a.messages.max(b.messages),
        joined: a.joined || b.joined,
        place: a.place.max(b.place),
    }))
}

/// Connections, by id, of which some flowop receives in another way than by plain calls.
pub fn unlike(
    group: &GroupProgram,
    protocols: &BTreeMap<u32, &'static dyn Protocol>,
    several: &BTreeMap<u32, Receives>,
    sinks: &[SinkPlace],
) -> BTreeSet<u32> {
    let acts = group.phases.iter().flatten().flat_map(|phase| &phase.acts);
    acts.filter(|act| {
        let protocol = protocols.get(&act.options.conn.first).copied();
        let Some(Action::Receive(plain)) = flowops::find(&act.kind).map(|flowop| flowop.action())
        else {
            return false;
        };
        let receives = of_range(several, act);
        !receive_call(plain, &act.options, protocol, receives, sinks).is_plain()
    })
    .flat_map(|act| act.options.conn.first..=act.options.conn.last)
    .collect()
}
