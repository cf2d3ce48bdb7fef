//! Which system calls a flowop's I/O options make of its transfers, and which options a protocol
//! has a use for.

use std::collections::{BTreeMap, BTreeSet};

use wirecost_model::plan::limits::SINK_BLOCK;
use wirecost_model::plan::{self, IoLimits, LimitError};
use wirecost_model::profile::{IoValue, IoValues, Options, Quantity};
use wirecost_model::program::{GroupProgram, HostFlowop, Program};
use wirecost_profile::flowops::{self, Action};
use wirecost_profile::io_options::batch::Batch;
use wirecost_profile::io_options::io_depth;
use wirecost_profile::io_options::page_cache::CacheState;
use wirecost_profile::io_options::sink_io::SinkCalls;
use wirecost_profile::io_options::source_io::SourceCalls;
use wirecost_profile::io_options::{self, Call, Effect, IoOption, TransferKind};
use wirecost_profile::language;
use wirecost_profile::protocols::{self, Delivery, Protocol};

use crate::arrivals;
use crate::files::{self, StreamSource};
use crate::hello;
use crate::step::{ReceiveCall, SendCall};

/// A setting as requested, and as it takes effect.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct EffectiveSetting {
    pub name: &'static str,
    pub requested: String,
    pub effective: String,
}

/// A stream's messages by other means than a copying call for each piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamSend {
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
pub enum KernelReceive {
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
    /// Written back to the device at the end of a phase.
    pub sync: bool,
    /// Left there after the run, under a name.
    pub keep: bool,
    /// Reserved before the run.
    pub preallocate: bool,
    /// Read back at the end of a phase, and compared by checksums.
    pub verify: bool,
    /// Blocks that io_uring has in flight; none: write(2).
    pub depth: Option<u16>,
}

impl SinkPlace {
    fn flags(&self) -> u8 {
        let Self { direct, sync, keep, preallocate, verify, .. } = *self;
        let flags = [direct, sync, keep, preallocate, verify].into_iter().enumerate();
        flags.fold(0, |all, (place, flag)| all | u8::from(flag) << place)
    }
}

/// What becomes of the bytes of a stream that this program receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keep {
    /// They are written to the file of this place of [`sinks`].
    pub sink: Option<u16>,
    /// Their checksum is that of the sender's file.
    pub sum: bool,
}

/// Bytes of the files of a sink, unless the profile says otherwise.
pub const SINK_BYTES: u64 = 64 << 20;
/// When a request was due that has no answer yet.
const DUE_BYTES: u64 = 8;

/// The largest message that GRO makes.
const JOINED: u32 = 64 << 10;

/// What the I/O options of a flowop make of its calls.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Choices<'a> {
    cork: bool,
    zerocopy: bool,
    segments: Option<u64>,
    joined: bool,
    messages: Option<u64>,
    discard: bool,
    pub(crate) splice: bool,
    sink: Option<&'a str>,
    sink_bytes: Option<u64>,
    pub(crate) direct: bool,
    sync: bool,
    keep: bool,
    preallocate: bool,
    sink_calls: SinkCalls,
    depth: Option<u64>,
    pub(crate) source: Option<&'a str>,
    pub(crate) source_calls: SourceCalls,
    pub(crate) source_bytes: Option<u64>,
    pub(crate) cache: CacheState,
}

impl<'a> Choices<'a> {
    /// Of the options that have an effect on connections of this protocol.
    pub(crate) fn new(io: &'a IoValues, protocol: Option<&dyn Protocol>) -> Self {
        Self::of(io, |option| option.fits(protocol))
    }

    fn of(io: &'a IoValues, is_wanted: impl Fn(&dyn IoOption) -> bool) -> Self {
        let mut choices = Self::default();
        for (option, value) in io_options::set_in(io).filter(|(option, _)| is_wanted(*option)) {
            let Effect::Call(call, _) = option.effect() else { continue };
            let number = match value {
                IoValue::Number(number) => Some(*number),
                _ => None,
            };
            match call {
                Call::Cork => choices.cork = true,
                Call::ZeroCopy => choices.zerocopy = true,
                Call::Segments => choices.segments = number,
                Call::Join => choices.joined = true,
                Call::Messages => choices.messages = number,
                // Only of what begins a transaction: see `step::compile`.
                Call::Departure => {}
                Call::Discard => choices.discard = true,
                Call::Splice => choices.splice = true,
                Call::Sink => choices.sink = text(value),
                Call::SinkIo => choices.sink_calls = SinkCalls::of(value),
                Call::IoDepth => choices.depth = number,
                Call::SinkSync => choices.sync = true,
                Call::SinkKeep => choices.keep = true,
                Call::SinkPreallocate => choices.preallocate = true,
                Call::Source => choices.source = text(value),
                Call::SourceIo => choices.source_calls = SourceCalls::of(value),
                Call::SourceSize => choices.source_bytes = number,
                Call::PageCache => choices.cache = CacheState::of(value),
                Call::SinkSize => choices.sink_bytes = number,
                Call::Direct => choices.direct = true,
            }
        }
        choices
    }

    fn sink_place(&self, verify: bool) -> Option<SinkPlace> {
        let Self { direct, sync, keep, preallocate, .. } = *self;
        let directory = self.sink?.to_owned();
        let bytes = self.sink_bytes.unwrap_or(SINK_BYTES);
        let depth = (self.sink_calls == SinkCalls::IoUring).then(|| self.depth());
        Some(SinkPlace { directory, bytes, direct, sync, keep, preallocate, verify, depth })
    }

    /// Requests that io_uring has in flight for each file.
    pub(crate) fn depth(&self) -> u16 {
        self.depth.map_or(io_depth::DEFAULT, |_| count(self.depth))
    }
}

fn text(value: &IoValue) -> Option<&str> {
    match value {
        IoValue::Text(text) => Some(text),
        _ => None,
    }
}

fn count(of: Option<u64>) -> u16 {
    of.map_or(1, |n| n.clamp(1, u16::MAX.into()) as u16)
}

/// Datagrams of one execution of a flowop, where it moves datagrams.
pub fn datagrams(options: &Options, protocol: Option<&dyn Protocol>) -> u64 {
    if Batch.fits(protocol) { io_options::datagrams(&options.io) } else { 1 }
}

/// How a flowop sends with its options.
pub fn send_call(
    plain: flowops::SendCall,
    options: &Options,
    protocol: Option<&dyn Protocol>,
    sources: &[StreamSource],
) -> SendCall {
    let source = files::stream_source(options, protocol);
    let source = source.and_then(|source| sources.iter().position(|other| *other == source));
    if let Some(source) = source.and_then(|source| u16::try_from(source).ok()) {
        return SendCall::FromFile(source);
    }
    let Choices { cork, zerocopy, segments, messages, .. } = Choices::new(&options.io, protocol);
    let (messages, segments) = (count(messages), count(segments));
    if messages > 1 || segments > 1 {
        SendCall::Batched(Sends { messages, segments })
    } else if zerocopy || cork {
        SendCall::StreamSend(StreamSend { cork, zerocopy })
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
    let choices = Choices::new(&options.io, protocol);
    // Of `sendfile`, whose files it knows, that is the sender's way.
    let splices = choices.splice && options.dir.is_none();
    if let Some(receives) = receives {
        return ReceiveCall::Batched(receives);
    }
    if choices.discard {
        return ReceiveCall::KernelReceive(KernelReceive::Discarded);
    }
    let place = choices.sink_place(options.verify);
    let sink = place.and_then(|place| sinks.iter().position(|sink| *sink == place));
    let sum = options.verify && choices.source.is_some();
    match sink.and_then(|sink| u16::try_from(sink).ok()) {
        sink if splices => ReceiveCall::KernelReceive(KernelReceive::Spliced(sink)),
        None if !sum => ReceiveCall::Plain(plain),
        sink => ReceiveCall::Kept(Keep { sink, sum }),
    }
}

/// The limits of I/O options for [`plan::Plan::check`].
#[derive(Debug, Clone, Copy)]
pub struct KnownOptions;

impl IoLimits for KnownOptions {
    fn check(&self, io: &IoValues) -> Result<(), LimitError> {
        for (name, value) in io.iter() {
            let option = io_options::find(name).ok_or_else(|| {
                let name: String = name.chars().take(40).collect();
                LimitError::invalid(name, "is an unknown option")
            })?;
            let outside = |problem: String| LimitError::invalid(name, problem);
            option.value().check(value).map_err(outside)?;
        }
        Ok(())
    }

    fn datagrams(&self, io: &IoValues) -> u64 {
        io_options::datagrams(io)
    }

    fn sink(&self, options: &Options) -> Option<plan::Sink> {
        let place = Choices::of(&options.io, |_| true).sink_place(options.verify)?;
        let (flags, depth) = (place.flags(), place.depth.unwrap_or(0));
        // One more is being filled.
        let memory = (u64::from(depth) + 1) * SINK_BLOCK;
        Some(plan::Sink { directory: place.directory, bytes: place.bytes, flags, memory })
    }

    fn kept(&self, options: &Options) -> u64 {
        let due = crate::outstanding::most(options).unwrap_or(0) * DUE_BYTES;
        let datagrams = options
            .protocol
            .as_deref()
            .and_then(protocols::find)
            .is_some_and(|protocol| protocol.delivery() == Delivery::Datagrams);
        let connections = u64::from(options.conn.last - options.conn.first) + 1;
        let message = options.size.as_ref().map_or(0, Quantity::max);
        let choices = Choices::of(&options.io, |_| true);
        let file = match options.io.get("source") {
            Some(_) if choices.source_calls == SourceCalls::IoUring => {
                (u64::from(choices.depth()) + 1) * files::READ_AHEAD as u64
            }
            Some(_) => message.clamp(files::SUMMED_AT_ONCE as u64, files::READ_AT_ONCE as u64),
            None => 0,
        };
        due + connections * (file + if datagrams { arrivals::MEMORY } else { 0 })
    }
}

/// Where a host keeps what it receives.
pub fn sinks(program: &Program) -> Vec<SinkPlace> {
    let mut sinks = Vec::new();
    for act in crate::step::acts(program).filter(|act| receives(act)) {
        let place = Choices::of(&act.options.io, |_| true).sink_place(act.options.verify);
        sinks.extend(place.filter(|place| !sinks.contains(place)));
    }
    sinks
}

fn receives(act: &HostFlowop) -> bool {
    flowops::find(&act.kind).is_some_and(|f| matches!(f.action(), Action::Receive(_)))
}

/// The I/O options of a host's flowops, as far as they are this end's part: the sender's or the
/// receiver's.
pub fn settings(program: &Program) -> BTreeSet<EffectiveSetting> {
    let mut settings = BTreeSet::new();
    for group in &program.groups {
        let protocols = crate::step::connection_protocols(group);
        let phases = group.phases.iter().flatten();
        for (place, act) in phases.flat_map(|phase| phase.acts.iter().enumerate()) {
            let moves = match flowops::find(&act.kind).map(|flowop| flowop.action()) {
                Some(Action::Send(_)) => TransferKind::Send,
                Some(Action::Receive(_)) => TransferKind::Receive,
                Some(Action::SendFile) => TransferKind::SendFile,
                _ => continue,
            };
            let protocol = protocols.get(&act.options.conn.first).copied();
            for (option, value) in io_options::set_in(&act.options.io) {
                let acts = match option.effect() {
                    // An answer leaves when its request has come.
                    Effect::Call(Call::Departure, of) => place == 0 && of.contains(&moves),
                    // The file is known to its sender, and how it is sent is the sender's way.
                    Effect::Call(_, of) if moves == TransferKind::Receive => {
                        let is_senders =
                            act.options.dir.is_some() && of.contains(&TransferKind::SendFile);
                        of.contains(&moves) && !is_senders
                    }
                    Effect::Call(_, of) => of.contains(&moves),
                    _ => false,
                };
                if acts && option.fits(protocol) {
                    let value = language::requested(value);
                    let (requested, effective) = (value.clone(), value);
                    settings.insert(EffectiveSetting { name: option.name(), requested, effective });
                }
            }
        }
    }
    settings
}

/// Connections, by id, whose datagrams are received several at a time. What one call receives may
/// be more than one flowop wants: all flowops of a connection receive in the same way.
pub fn batched_receives(
    group: &GroupProgram,
    protocols: &BTreeMap<u32, &'static dyn Protocol>,
) -> BTreeMap<u32, Receives> {
    let mut batched: BTreeMap<u32, Receives> = BTreeMap::new();
    let acts = || group.phases.iter().flatten().flat_map(|phase| &phase.acts);
    for act in acts().filter(|act| receives(act)) {
        let options = &act.options;
        for id in options.conn.first..=options.conn.last {
            let protocol = protocols.get(&id).copied();
            if !Batch.fits(protocol) {
                continue;
            }
            let choices = Choices::new(&options.io, protocol);
            let size =
                options.size.as_ref().map_or(0, |size| size.max()).min(u64::from(JOINED)) as u32;
            let receives = batched.entry(id).or_insert(Receives {
                messages: 1,
                joined: false,
                place: hello::LENGTH as u32,
            });
            receives.messages = receives.messages.max(count(choices.messages));
            receives.joined |= choices.joined;
            receives.place = receives.place.max(size.next_multiple_of(64));
        }
    }
    batched.retain(|_, receives| receives.messages > 1 || receives.joined);
    for receives in batched.values_mut().filter(|receives| receives.joined) {
        receives.place = JOINED;
    }
    batched
}

/// The same for a range of connections: what is enough for each of them.
pub fn receives_of(batched: &BTreeMap<u32, Receives>, act: &HostFlowop) -> Option<Receives> {
    let conns = act.options.conn;
    let mut of = batched.range(conns.first..=conns.last).map(|(_, receives)| *receives);
    let first = of.next()?;
    Some(of.fold(first, |a, b| Receives {
        messages: a.messages.max(b.messages),
        joined: a.joined || b.joined,
        place: a.place.max(b.place),
    }))
}

/// Connections, by id, of which some flowop receives in another way than by plain calls.
pub fn special_receivers(
    group: &GroupProgram,
    protocols: &BTreeMap<u32, &'static dyn Protocol>,
    batched: &BTreeMap<u32, Receives>,
    sinks: &[SinkPlace],
) -> BTreeSet<u32> {
    let acts = group.phases.iter().flatten().flat_map(|phase| &phase.acts);
    acts.filter(|act| {
        let protocol = protocols.get(&act.options.conn.first).copied();
        let Some(Action::Receive(plain)) = flowops::find(&act.kind).map(|flowop| flowop.action())
        else {
            return false;
        };
        let receives = receives_of(batched, act);
        !receive_call(plain, &act.options, protocol, receives, sinks).is_plain()
    })
    .flat_map(|act| act.options.conn.first..=act.options.conn.last)
    .collect()
}

/// Connections, by id, on which some flowop sends several datagrams by one call.
pub fn batched_senders(
    group: &GroupProgram,
    protocols: &BTreeMap<u32, &'static dyn Protocol>,
) -> BTreeSet<u32> {
    let acts = group.phases.iter().flatten().flat_map(|phase| &phase.acts);
    acts.filter(|act| {
        let protocol = protocols.get(&act.options.conn.first).copied();
        match flowops::find(&act.kind).map(|flowop| flowop.action()) {
            Some(Action::Send(plain)) => {
                matches!(send_call(plain, &act.options, protocol, &[]), SendCall::Batched(_))
            }
            _ => false,
        }
    })
    .flat_map(|act| act.options.conn.first..=act.options.conn.last)
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn io_options_have_limits() {
        let problem = |name: &str, value: IoValue| {
            let mut io = IoValues::default();
            io.set(name, value);
            KnownOptions.check(&io).map_err(|error| error.to_string())
        };
        for name in ["busy_poll", "gso", "batch", "sink_size", "wndsz"] {
            let error = problem(name, IoValue::Number(u64::MAX)).unwrap_err();
            assert!(error.starts_with(&format!("{name} must be from ")), "{error}");
        }
        let error = problem("zerocopy", IoValue::Number(1)).unwrap_err();
        assert_eq!(error, "zerocopy has a value of another type");
        assert_eq!(problem("flaw", IoValue::On).unwrap_err(), "flaw is an unknown option");
        assert_eq!(problem("batch", IoValue::Number(1024)), Ok(()));
    }

    /// A host opens a file for each of them.
    #[test]
    fn sinks_that_differ_only_by_verify_are_two() {
        let mut options = Options::default();
        options.io.set("sink", IoValue::Text("/tmp".to_owned()));
        let plain = KnownOptions.sink(&options);
        assert!(plain.is_some());
        options.verify = true;
        assert_ne!(KnownOptions.sink(&options), plain);
    }

    #[test]
    fn a_sink_takes_memory_for_each_block_in_flight() {
        let mut options = Options::default();
        let memory = |options: &Options| KnownOptions.sink(options).map(|sink| sink.memory);
        assert_eq!(memory(&options), None);
        options.io.set("sink", IoValue::Text("/tmp".to_owned()));
        options.io.set("io_depth", IoValue::Number(100));
        assert_eq!(memory(&options), Some(SINK_BLOCK));
        options.io.set("sink_io", IoValue::Text("io_uring".to_owned()));
        assert_eq!(memory(&options), Some(101 * SINK_BLOCK));
        options.io.remove("io_depth");
        assert_eq!(memory(&options), Some(9 * SINK_BLOCK));
    }

    #[test]
    fn what_strands_remember_of_datagrams_and_requests_is_counted() {
        let mut options = Options { protocol: Some("udp".to_owned()), ..Options::default() };
        options.conn.last = options.conn.first + 2;
        assert_eq!(KnownOptions.kept(&options), 3 * arrivals::MEMORY);
        options.protocol = Some("tcp".to_owned());
        assert_eq!(KnownOptions.kept(&options), 0);
        options.io.set("outstanding", IoValue::Number(1000));
        assert_eq!(KnownOptions.kept(&options), 8000);
        options.io.remove("outstanding");
        options.io.set("source", IoValue::Text("f".to_owned()));
        options.size = Some(Quantity::Fixed(100_000));
        assert_eq!(KnownOptions.kept(&options), 300_000);
        options.io.set("source_io", IoValue::Text("io_uring".to_owned()));
        assert_eq!(KnownOptions.kept(&options), 3 * 9 * files::READ_AHEAD as u64);
        options.io.set("io_depth", IoValue::Number(100));
        assert_eq!(KnownOptions.kept(&options), 3 * 101 * files::READ_AHEAD as u64);
    }
}
