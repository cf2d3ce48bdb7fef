//! From a host's program to the steps of its strands.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use wirecost_model::clock::{Nanos, SECOND, nanos};
use wirecost_model::measure::FlowopKey;
use wirecost_model::plan::FileSizes;
use wirecost_model::profile::{Options, Payload, Until};
use wirecost_model::program::{GroupProgram, HostFlowop, PhaseProgram, Program, Side};
use wirecost_profile::flowops::{self, Action as FlowopAction};
use wirecost_profile::io_options::IoOption;
use wirecost_profile::io_options::busy_poll::BusyPoll;
use wirecost_profile::protocols::{self, Protocol};

use super::{
    Action, Distribution, Exchange, Group, Messages, Open, Pace, Phase, PlainCall, PlainStep,
    QUIET_PERIOD, REPLY_TIMEOUT, Receive, SeededDistribution, Send, SendCall, SendFile, Step,
    Think,
};
use crate::calls::{self, Receives, Sends, SinkPlace};
use crate::departures;
use crate::draw;
use crate::files::{self, FileSource, StreamSource};
use crate::outstanding;
use crate::route::{StepSequence, first_steps};
use crate::served;
use crate::socket_setup::SocketSetup;

/// How long a connection may take to open, unless its flowop says otherwise.
const CONNECT_TIMEOUT: Nanos = 10 * SECOND;
/// How long the master waits to be connected to.
const ACCEPT_TIMEOUT: Nanos = 30 * SECOND;
/// Stands for what belongs to a phase and not to one of its flowops, where random numbers are
/// drawn.
const ORDER: u64 = 1 << 32;
/// What the mirror of a whole-file `sendfile` reads at a time, as in uperf.
const FILE_READ: u64 = 64 << 10;

/// Resolves the program of a host. `files` are the sizes of what any host sends by `sendfile`.
///
/// # Errors
/// An act that nothing here executes, with what is missing.
pub fn compile(program: &Program, seed: u64, files: &[FileSizes]) -> Result<Vec<Group>, String> {
    let phases = program.groups.iter().map(|group| group.phases.len()).max().unwrap_or_default();
    let host = Host {
        side: program.side,
        seed,
        files,
        payloads: payloads(program),
        sinks: calls::sinks(program),
        sources: files::sources(program),
        streams: files::stream_sources(program).into_iter().map(|(source, _)| source).collect(),
    };
    let mut rows = vec![0; phases];
    program.groups.iter().map(|group| host.group(group, &mut rows)).collect()
}

/// What the groups of a host share.
struct Host<'a> {
    side: Side,
    seed: u64,
    files: &'a [FileSizes],
    payloads: Vec<Payload>,
    sinks: Vec<SinkPlace>,
    sources: Vec<FileSource>,
    streams: Vec<StreamSource>,
}

/// What the steps of a group share.
struct Connections<'a> {
    group: &'a GroupProgram,
    ids: Vec<u32>,
    protocols: BTreeMap<u32, &'static dyn Protocol>,
    /// Connections whose datagrams are received several at a time.
    batched: BTreeMap<u32, Receives>,
    /// Connections on which some flowop receives by other than plain calls, or answers several clients by one call.
    special_receivers: BTreeSet<u32>,
}

impl Host<'_> {
    /// Rows of counters are numbered from `rows[phase]` on, which is advanced.
    fn group(&self, group: &GroupProgram, rows: &mut [u32]) -> Result<Group, String> {
        let protocols = connection_protocols(group);
        let batched = calls::batched_receives(group, &protocols);
        let serves = served::shared_sockets(group).is_some();
        let mut special_receivers =
            calls::special_receivers(group, &protocols, &batched, &self.sinks);
        if serves {
            special_receivers.extend(calls::batched_senders(group, &protocols));
        }
        let connections = Connections {
            group,
            ids: connection_ids(group),
            special_receivers,
            batched,
            protocols,
        };
        let shares_listeners = served::shared_listeners(group).is_some();
        let mut phases = Vec::new();
        let mut keys = Vec::new();
        for (number, phase) in group.phases.iter().enumerate() {
            let Some(phase) = phase else {
                phases.push(None);
                keys.push(Vec::new());
                continue;
            };
            let key = |of: u64| draw::key(&[self.seed, u64::from(group.group), number as u64, of]);
            let mut steps = Vec::new();
            for act in &phase.acts {
                let files = self.files.iter().find(|f| {
                    f.group == group.group && f.phase == number as u32 && f.flowop == act.flowop
                });
                let row = rows[number] + steps.len() as u32;
                steps.push(self.step(act, &connections, files, row, key(act.flowop.into()))?);
            }
            rows[number] += steps.len() as u32;
            let slots = connections.ids.len();
            let whole = finish(steps, phase, self.side, slots, (key(ORDER), group.strands))?;
            let whole = if serves { whole.serving() } else { whole };
            let whole = Phase { shares_listeners, ..whole };
            phases.push(Some(Arc::new(whole)));
            keys.push(phase.acts.iter().map(|act| self.row_of(group, act)).collect());
        }
        let (number, strands) = (group.group, group.strands);
        let ids = connections.ids;
        Ok(Group { number, strands, side: self.side, ids, phases, rows: keys })
    }

    fn row_of(&self, group: &GroupProgram, act: &HostFlowop) -> FlowopKey {
        let (flowop, kind) = (act.flowop, act.kind.clone());
        FlowopKey { group: group.group, flowop, kind, side: self.side }
    }

    fn step(
        &self,
        act: &HostFlowop,
        connections: &Connections<'_>,
        files: Option<&FileSizes>,
        row: u32,
        key: u64,
    ) -> Result<Step, String> {
        let options = &act.options;
        let conns = options.conn;
        let flowop = flowops::find(&act.kind)
            .ok_or_else(|| format!("this version does not know the flowop {}", act.kind))?;
        let does = flowop.action();
        let on_connection = does.is_on_connection();
        let slot = |id: u32| connections.ids.binary_search(&id).map_or(0, |slot| slot as u32);
        let (first, last) =
            if on_connection { (slot(conns.first), slot(conns.last)) } else { (0, 0) };
        let protocol = connections.protocols.get(&conns.first).copied().filter(|_| on_connection);
        let transfers = matches!(
            does,
            FlowopAction::Send(_) | FlowopAction::Receive(_) | FlowopAction::SendFile
        );
        let datagram =
            transfers && protocol.is_some_and(|protocol| !protocol.delivery().is_reliable());
        let strands = connections.group.strands;
        let size = || SeededDistribution { length: length(files, options, key, strands), key };
        let from_file = files::stream_source(options, protocol).is_some();
        let messages = |reads: u64| {
            let messages = self.messages(options, size(), datagram, files, reads);
            // The receiver does not know what a file holds.
            Messages { verify: messages.verify && !from_file, ..messages }
        };
        let open = || {
            let missing = |what| format!("{}: {} without {what}", act.at, act.kind);
            let protocol = protocol.ok_or_else(|| missing("a protocol"))?;
            Ok::<_, String>(Open {
                service: act.service.ok_or_else(|| missing("a service"))?,
                protocol,
                setup: Arc::new(SocketSetup::new(options, protocol)),
                row,
                most: act.most_open,
                plain_receives: connections
                    .special_receivers
                    .range(conns.first..=conns.last)
                    .next()
                    .is_none(),
            })
        };
        let default_timeout = match (does, self.side) {
            (FlowopAction::Connect, _) => Some(CONNECT_TIMEOUT),
            (FlowopAction::Accept, Side::Master) => Some(ACCEPT_TIMEOUT),
            _ => None,
        };
        let action = match does {
            FlowopAction::Connect => Action::Connect(open()?),
            FlowopAction::Accept => Action::Accept(open()?),
            FlowopAction::Close => Action::Close,
            FlowopAction::Send(call) => Action::Send(Send {
                messages: messages(u64::MAX),
                call: calls::send_call(call, options, protocol, &self.streams),
            }),
            FlowopAction::Receive(call) => {
                let batched = calls::receives_of(&connections.batched, act);
                Action::Receive(Receive {
                    messages: messages(FILE_READ),
                    call: calls::receive_call(call, options, protocol, batched, &self.sinks),
                    reply: false,
                    impatient: false,
                    polls: options.busy || BusyPoll.is_set(options),
                    single_reads: options.single_reads,
                })
            }
            FlowopAction::SendFile => {
                let source = files::source(connections.group, act);
                let source = self.sources.iter().position(|s| Some(s) == source.as_ref());
                let piece = options.rsize.or(options.size.as_ref().map(|size| size.max()));
                Action::SendFile(SendFile {
                    size: size(),
                    piece: piece.unwrap_or(u64::MAX),
                    source: source.unwrap_or(0) as u32,
                })
            }
            FlowopAction::ShutDown => Action::ShutDown,
            FlowopAction::ReceiveEnd => Action::ReceiveEnd,
            FlowopAction::Think => {
                let length = options.duration.as_ref().map(|d| Distribution::new(d, key, strands));
                let length =
                    SeededDistribution { length: length.unwrap_or(Distribution::Fixed(0)), key };
                Action::Think(Think { length, busy: options.busy })
            }
            FlowopAction::Nothing => Action::Nothing,
        };
        Ok(Step {
            action,
            row,
            first,
            last,
            first_id: conns.first,
            count: options.count.max(1)
                * options.repeat.max(1)
                * calls::datagrams(options, protocol),
            timeout: options.timeout.map(nanos).or(default_timeout),
            can_fail: options.canfail,
            datagram,
            at: act.at,
            kind: flowop.name(),
        })
    }

    /// `reads`: bytes of one operation on a file of which nothing else is said.
    fn messages(
        &self,
        options: &Options,
        length: SeededDistribution,
        datagram: bool,
        files: Option<&FileSizes>,
        reads: u64,
    ) -> Messages {
        let unit = match (&length.length, options.rsize) {
            _ if datagram => None,
            (_, Some(unit)) => Some(unit),
            (Distribution::Files(_), None) => {
                Some(options.size.as_ref().map_or(reads, |size| size.max()))
            }
            _ => None,
        };
        let payload = self.payloads.iter().position(|payload| *payload == options.payload);
        Messages {
            length,
            unit,
            payload: payload.unwrap_or(0) as u32,
            // The receiver does not know what a file holds.
            verify: options.verify && files.is_none(),
        }
    }
}

fn length(files: Option<&FileSizes>, options: &Options, key: u64, strands: u32) -> Distribution {
    match (files, &options.size) {
        (Some(files), _) if !files.sizes.is_empty() => {
            Distribution::Files(files.sizes.clone().into())
        }
        (_, Some(quantity)) => Distribution::new(quantity, key, strands),
        (_, None) => Distribution::Fixed(0),
    }
}

/// Every act of a host.
pub fn acts(program: &Program) -> impl Iterator<Item = &HostFlowop> {
    program.groups.iter().flat_map(acts_of_group)
}

/// What a host's messages are made of: those it sends, and those it compares.
pub fn payloads(program: &Program) -> Vec<Payload> {
    let mut payloads = vec![Payload::default()];
    for act in acts(program).filter(|act| needs_payload(act)) {
        if !payloads.contains(&act.options.payload) {
            payloads.push(act.options.payload.clone());
        }
    }
    payloads
}

fn needs_payload(act: &HostFlowop) -> bool {
    let sends = |flowop: &dyn flowops::Flowop| matches!(flowop.action(), flowops::Action::Send(_));
    act.options.verify || flowops::find(&act.kind).is_some_and(sends)
}

/// What is known only once all steps are.
fn finish(
    mut steps: Vec<Step>,
    phase: &PhaseProgram,
    side: Side,
    slots: usize,
    (key, strands): (u64, u32),
) -> Result<Phase, String> {
    let flowop_of: Vec<u32> = phase.acts.iter().map(|act| act.flowop).collect();
    let route = StepSequence::new(&phase.order, &flowop_of, key)?;
    let times = |step: usize| route.as_ref().map_or(1, |route| route.times(step));
    let opens = steps
        .iter()
        .any(|step| matches!(step.action, Action::Connect(_) | Action::Accept(_) | Action::Close));
    let datagrams_only = steps.iter().any(|step| step.datagram)
        && steps.iter().filter(|step| step.transfers()).all(|step| step.datagram);
    // Who only receives holds up nobody. For anybody else's next message the other end may wait.
    let only_receives = !opens
        && steps
            .iter()
            .filter(|step| step.transfers())
            .all(|step| step.datagram && step.receives());
    let may_skip = side == Side::Peer && datagrams_only && !opens;
    let thinks = steps.iter().enumerate().fold(0, |sum: Nanos, (number, step)| {
        let Action::Think(think) = &step.action else { return sum };
        let executions = step.count.saturating_mul(times(number));
        sum.saturating_add(think.length.length.max().saturating_mul(executions))
    });
    // What the master takes its time for is not a loss.
    let slack = match (side, &phase.arrivals) {
        (Side::Master, _) => 0,
        (Side::Peer, Some(arrivals)) => {
            let pause = arrivals.longest_pause(strands) * SECOND as f64;
            thinks.saturating_add(pause as Nanos)
        }
        (Side::Peer, None) => thinks,
    };
    let mut datagrams = vec![(0, 0); slots];
    for (number, step) in steps.iter_mut().enumerate() {
        let executions = step.count.saturating_mul(times(number));
        let slots = step.first as usize..=step.last as usize;
        let Some(moves) = datagrams.get_mut(slots) else { continue };
        let receive = match &mut step.action {
            Action::Receive(receive) if step.datagram => receive,
            Action::Send(_) if step.datagram => {
                moves.iter_mut().for_each(|m| m.1 += executions);
                continue;
            }
            _ => continue,
        };
        moves.iter_mut().for_each(|m| m.0 += executions);
        // A peer that follows by datagrams alone catches up by their numbers, so it need not look
        // at the time. One that streams or connects as well would keep the master waiting for it.
        let goes_on = if side == Side::Master { !only_receives } else { !may_skip };
        if goes_on {
            receive.reply = true;
            receive.impatient = step.timeout.is_none();
            step.timeout = step.timeout.or(Some(REPLY_TIMEOUT.saturating_add(slack)));
        }
    }
    let idle = |step: &Step| matches!(step.action, Action::Nothing);
    let waits = |step: &Step| {
        matches!(step.action, Action::Receive(_) | Action::ReceiveEnd | Action::Accept(_))
    };
    let first_steps: Vec<&Step> = if route.is_some() {
        let first_steps =
            first_steps(&phase.order, &flowop_of, &|step| idle(&steps[step as usize]));
        first_steps.steps.into_iter().map(|step| &steps[step as usize]).collect()
    } else {
        steps.iter().find(|step| !idle(step)).into_iter().collect()
    };
    let passive =
        side == Side::Peer && !first_steps.is_empty() && first_steps.into_iter().all(waits);
    let pace = match (phase.until, &phase.arrivals) {
        (Until::Duration(_), Some(arrivals)) if !passive => {
            Some(Pace::new(arrivals, draw::mix(key), strands))
        }
        _ => None,
    };
    let (lead, ahead) = match (&phase.arrivals, departure_times(phase, &steps)) {
        (Some(arrivals), Some((lead, sends, count))) if pace.is_some() => {
            let messages = count.div_ceil(u64::from(sends.segments).max(1));
            if let Some(Action::Send(send)) = steps.first_mut().map(|step| &mut step.action) {
                send.call = SendCall::Batched(sends);
            }
            (lead, departures::most_waiting(arrivals, lead, messages))
        }
        _ => (0, 0),
    };
    // What has been handed over may leave later, on any host.
    let leads = phase.acts.iter().filter_map(|act| departures::lead(&act.options));
    let leaves_later = match (leads.max(), &phase.arrivals) {
        (Some(lead), Some(arrivals)) => {
            let pause = (arrivals.longest_pause(strands) * SECOND as f64) as Nanos;
            lead.saturating_add(pause.min(departures::LONGEST_SPREAD))
        }
        _ => 0,
    };
    // Of one that is a way through several it is not known how many come.
    let simple = route.is_none();
    let plain = if simple && pace.is_none() { plain(&steps) } else { Vec::new() };
    Ok(Phase {
        whole: whole(&steps).filter(|_| simple),
        receive_only: side == Side::Peer && simple && receive_only(&steps),
        exchange: exchange(&plain),
        plain,
        can_fail: steps.iter().any(|step| step.can_fail),
        until: phase.until,
        mixed: route.as_ref().is_some_and(StepSequence::is_mixed),
        route,
        pace,
        may_skip,
        outstanding: requests_ahead(phase, side, &steps),
        lead,
        ahead,
        serves: false,
        answers_together: false,
        shares_listeners: false,
        datagrams_only,
        opens,
        quiet: QUIET_PERIOD.saturating_add(thinks).saturating_add(leaves_later),
        datagrams,
        steps,
    })
}

/// See [`Phase::outstanding`].
fn requests_ahead(phase: &PhaseProgram, side: Side, steps: &[Step]) -> Option<u64> {
    let [request, answer] = steps else { return None };
    let is_exchange = request.datagram && request.sends() && answer.receives();
    let options = phase.acts.iter().filter(|_| is_exchange && side == Side::Master);
    options.filter_map(|act| outstanding::most(&act.options)).max()
}

/// How long before they are due the first step hands over its datagrams, by which calls, and how many they are.
fn departure_times(phase: &PhaseProgram, steps: &[Step]) -> Option<(Nanos, Sends, u64)> {
    let (act, step) = (phase.acts.first()?, steps.first()?);
    let Action::Send(send) = &step.action else { return None };
    let sends = match send.call {
        SendCall::Batched(sends) => sends,
        _ => Sends { messages: 1, segments: 1 },
    };
    let lead = departures::lead(&act.options).filter(|_| step.datagram);
    lead.map(|lead| (lead, sends, step.count))
}

/// The steps where all are plain, see [`Phase::plain`]; else none.
fn plain(steps: &[Step]) -> Vec<PlainStep> {
    let all: Option<Vec<PlainStep>> = steps.iter().map(plain_step).collect();
    let is_alone = steps.len() == 1;
    all.filter(|_| is_alone || !steps.iter().any(|step| step.datagram)).unwrap_or_default()
}

fn plain_step(step: &Step) -> Option<PlainStep> {
    let call = match &step.action {
        Action::Send(send) => match send.call {
            SendCall::Plain(_) if step.datagram => PlainCall::SendDatagrams(send.call),
            SendCall::Plain(_) => PlainCall::Send(send.call),
            _ => return None,
        },
        Action::Receive(receive) if receive.call.is_plain() && !receive.polls => {
            match step.datagram {
                true => PlainCall::ReceiveDatagrams(receive.call),
                false => PlainCall::Receive(receive.call),
            }
        }
        _ => return None,
    };
    let messages = step.messages()?;
    let length = messages.length.fixed().filter(|length| *length > 0)?;
    let is_plain = step.count == 1
        && step.first == step.last
        && step.timeout.is_none()
        && messages.unit.is_none()
        && !(step.can_fail || messages.verify);
    let Step { row, first: place, .. } = *step;
    is_plain.then_some(PlainStep { call, row, place, length, payload: messages.payload })
}

fn exchange(plain: &[PlainStep]) -> Option<Exchange> {
    let [first, second] = plain else { return None };
    let (send, receive, send_call, receive_call) = match (first.call, second.call) {
        (PlainCall::Send(send), PlainCall::Receive(receive)) => (0, 1, send, receive),
        (PlainCall::Receive(receive), PlainCall::Send(send)) => (1, 0, send, receive),
        _ => return None,
    };
    (first.place == second.place).then_some(Exchange { send, receive, send_call, receive_call })
}

fn whole(steps: &[Step]) -> Option<u32> {
    match steps {
        [only] if only.count == 1 && only.first == only.last => {
            let is_whole = match &only.action {
                Action::Think(_) | Action::SendFile(_) => false,
                _ => only.messages().is_none_or(|messages| messages.unit.is_none()),
            };
            is_whole.then_some(only.row)
        }
        _ => None,
    }
}

fn receive_only(steps: &[Step]) -> bool {
    let alike = |step: &Step| {
        let Action::Receive(receive) = &step.action else { return false };
        receive.call.is_plain()
            && !(step.datagram || step.can_fail || receive.messages.verify || receive.single_reads)
            && step.timeout.is_none()
            && (step.first, step.last) == (steps[0].first, steps[0].first)
    };
    !steps.is_empty() && steps.iter().all(alike)
}

fn connection_ids(group: &GroupProgram) -> Vec<u32> {
    let mut ids: Vec<u32> = acts_of_group(group)
        .filter(|act| !matches!(act.kind.as_str(), "think" | "nop"))
        .flat_map(|act| act.options.conn.first..=act.options.conn.last)
        .collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// The protocol of each connection, by id.
pub fn connection_protocols(group: &GroupProgram) -> BTreeMap<u32, &'static dyn Protocol> {
    let mut of_id = BTreeMap::new();
    for act in acts_of_group(group).filter(|act| act.service.is_some()) {
        if let Some(protocol) = act.options.protocol.as_deref().and_then(protocols::find) {
            for id in act.options.conn.first..=act.options.conn.last {
                of_id.insert(id, protocol);
            }
        }
    }
    of_id
}

fn acts_of_group(group: &GroupProgram) -> impl Iterator<Item = &HostFlowop> {
    group.phases.iter().flatten().flat_map(|phase| &phase.acts)
}
