//! Programs as strands execute them: each act resolved once, before the run, to a step of a small
//! closed kind, so that the hot loop looks nothing up.

use std::collections::BTreeMap;
use std::sync::Arc;

use wirecost_model::clock::{MILLISECOND, Nanos, SECOND, nanos};
use wirecost_model::measure::FlowopKey;
use wirecost_model::plan::FileSizes;
use wirecost_model::profile::{Options, Payload, Position, Size, Until};
use wirecost_model::program::{Act, GroupProgram, PhaseProgram, Program, ServiceRef, Side};

use crate::calls::{self, Kept, Receives, Sends, SinkPlace, Streamed};
use crate::draw;
use crate::flowops;
use crate::protocols::{self, Protocol};

/// What a step does. Engines and the strand know these and nothing else of flowops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Connect,
    Accept,
    Close,
    Send(SendCall),
    Receive(ReceiveCall),
    SendFile,
    Think,
    Nothing,
}

/// Which system call sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendCall {
    Write,
    Send,
    SendTo,
    Streamed(Streamed),
    /// Datagrams, several by one call.
    Several(Sends),
}

/// Which system call receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReceiveCall {
    Read,
    Recv,
    RecvFrom,
    /// Bytes are dropped in the kernel.
    Discard,
    Kept(Kept),
    /// Datagrams, several by one call.
    Several(Receives),
}

/// Bytes of each operation of a step.
#[derive(Debug, Clone)]
pub enum Length {
    Fixed(u64),
    Random {
        min: u64,
        max: u64,
    },
    /// One of these files, drawn at random each time.
    Files(Arc<[u64]>),
}

/// How long a connection may take to open, unless its flowop says otherwise.
const CONNECT_TIMEOUT: Nanos = 10 * SECOND;
/// How long the master waits to be connected to.
const ACCEPT_TIMEOUT: Nanos = 30 * SECOND;
/// How long the master waits for the datagram that answers one of its own before it counts it as
/// lost and goes on. uperf would wait for ever.
pub const REPLY_TIMEOUT: Nanos = SECOND;
/// A receiver of datagrams believes that no more come when none has come for this long after the
/// senders have ended.
pub const QUIET: Nanos = 200 * MILLISECOND;
/// What the mirror of a whole-file `sendfile` reads at a time, as in uperf.
const FILE_READ: u64 = 64 << 10;

/// One act, resolved.
#[derive(Debug, Clone)]
pub struct Step {
    pub action: Action,
    /// Row of counters.
    pub row: u32,
    /// Connection slots of the strand, both included.
    pub first: u32,
    pub last: u32,
    /// Executions on each connection each time the step's turn comes.
    pub count: u64,
    pub length: Length,
    /// Bytes moved by one operation where it is not the message's length (`rsize`, `sendfile`).
    pub unit: Option<u64>,
    pub timeout: Option<Nanos>,
    pub can_fail: bool,
    pub verify: bool,
    pub datagram: bool,
    /// Whether the time-out is not the profile's: after one, what has not come by then of the same
    /// step is not waited for each in its turn.
    pub impatient: bool,
    /// Whether the program goes on without a datagram that has not come in time, so a time-out also
    /// gives up its number.
    pub reply: bool,
    pub busy: bool,
    pub think: Nanos,
    pub service: Option<ServiceRef>,
    pub options: Arc<Options>,
    pub protocol: Option<&'static str>,
    /// What random lengths are drawn with.
    pub key: u64,
    /// First connection id; slot `first` has it.
    pub first_id: u32,
    /// Which of [`payloads`] it sends or expects.
    pub payload: u32,
    /// Where the profile says it, and under which name it runs here.
    pub at: Position,
    pub kind: &'static str,
}

impl Step {
    /// Length of message `number` (counted from the step's beginning in this iteration).
    #[inline]
    pub fn length(&self, strand: u32, iteration: u64, conn_id: u32, number: u64) -> u64 {
        let place = || {
            draw::mix(self.key ^ (u64::from(strand) << 32 | u64::from(conn_id)))
                ^ draw::mix(iteration.wrapping_mul(0x1_0000_0001).wrapping_add(number << 40))
        };
        match &self.length {
            Length::Fixed(bytes) => *bytes,
            Length::Random { min, max } => draw::between(place(), *min, *max),
            Length::Files(sizes) => sizes[self.file(place(), sizes.len())],
        }
    }

    /// Which file execution `number` sends.
    pub fn file_index(&self, strand: u32, iteration: u64, conn_id: u32, number: u64) -> usize {
        let place = draw::mix(self.key ^ (u64::from(strand) << 32 | u64::from(conn_id)))
            ^ draw::mix(iteration.wrapping_mul(0x1_0000_0001).wrapping_add(number << 40));
        match &self.length {
            Length::Files(sizes) => self.file(place, sizes.len()),
            _ => 0,
        }
    }

    fn file(&self, place: u64, files: usize) -> usize {
        draw::between(place, 0, files as u64 - 1) as usize
    }
}

/// A phase of one group on this host.
#[derive(Debug)]
pub struct Phase {
    pub steps: Vec<Step>,
    pub until: Until,
    /// Time between intended starts of one strand's transactions; only on the side that begins them.
    pub period: Option<Nanos>,
    /// Whether the strand may skip ahead in its program when datagrams were lost: it follows another
    /// side, and everything it moves is datagrams.
    pub may_skip: bool,
    /// Whether any step may fail, so that one side may begin what the other never sees.
    pub can_fail: bool,
    /// Whether every transfer is by datagrams, so iterations of both ends need not agree.
    pub datagrams_only: bool,
    /// Whether connections are opened or closed.
    pub opens: bool,
    /// A receiver believes that no more datagrams come when none has come for this long.
    pub quiet: Nanos,
    /// Datagrams received and sent in one iteration, by connection slot.
    pub datagrams: Vec<(u64, u64)>,
}

impl Phase {
    /// Datagrams that are received on a connection before this step of this iteration.
    pub fn position(&self, step: u32, slot: u32, iteration: u64) -> u64 {
        let of_iteration = self.datagrams.get(slot as usize).map_or(0, |datagrams| datagrams.0);
        // A connection that is opened anew in each iteration counts from 0 in each.
        let before = if self.opens { 0 } else { iteration * of_iteration };
        let steps = self.steps.iter().take(step as usize);
        let receives = steps.filter(|step| {
            matches!(step.action, Action::Receive(_)) && (step.first..=step.last).contains(&slot)
        });
        before + receives.map(|step| step.count).sum::<u64>()
    }
}

/// One group of this host, ready to run.
#[derive(Debug)]
pub struct Group {
    pub number: u32,
    pub strands: u32,
    pub side: Side,
    /// Connection ids by slot, ascending.
    pub ids: Vec<u32>,
    pub phases: Vec<Option<Arc<Phase>>>,
    /// Names of the rows of each phase, from `first_row[phase]` on.
    pub rows: Vec<Vec<FlowopKey>>,
}

/// Resolves a group; `payloads` are those of [`payloads()`], `sinks` those of [`calls::sinks`]. Rows are numbered from `first_rows[phase]`, which is advanced.
///
/// # Errors
/// An act that nothing here executes, with what is missing.
pub fn compile(
    group: &GroupProgram,
    side: Side,
    seed: u64,
    files: &[FileSizes],
    payloads: &[Payload],
    sinks: &[SinkPlace],
    first_rows: &mut [u32],
) -> Result<Group, String> {
    let ids = connection_ids(group);
    let protocols = connection_protocols(group);
    let several = calls::several(group, &protocols);
    let mut phases = Vec::new();
    let mut rows = Vec::new();
    for (number, phase) in group.phases.iter().enumerate() {
        let Some(phase) = phase else {
            phases.push(None);
            rows.push(Vec::new());
            continue;
        };
        let mut steps = Vec::new();
        let mut keys = Vec::new();
        for act in &phase.acts {
            let sizes = files.iter().find(|f| {
                f.group == group.group && f.phase == number as u32 && f.flowop == act.flowop
            });
            let mut step = step(act, side, &ids, &protocols, sizes)?;
            let protocol = protocols.get(&act.options.conn.first).copied();
            let receives = calls::of_range(&several, act);
            step.action = calls::chosen(step.action, &act.options, protocol, receives, sinks);
            step.key =
                draw::key(&[seed, u64::from(group.group), number as u64, u64::from(act.flowop)]);
            let payload = payloads.iter().position(|payload| *payload == act.options.payload);
            step.payload = payload.unwrap_or(0) as u32;
            step.row = first_rows[number] + keys.len() as u32;
            keys.push(FlowopKey {
                group: group.group,
                flowop: act.flowop,
                kind: act.kind.clone(),
                side,
            });
            steps.push(step);
        }
        first_rows[number] += keys.len() as u32;
        phases.push(Some(Arc::new(finish(steps, phase, side, ids.len()))));
        rows.push(keys);
    }
    Ok(Group { number: group.group, strands: group.strands, side, ids, phases, rows })
}

/// Every act of a host.
pub fn acts(program: &Program) -> impl Iterator<Item = &Act> {
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

fn needs_payload(act: &Act) -> bool {
    let sends = |flowop: &dyn flowops::Flowop| matches!(flowop.action(), Action::Send(_));
    act.options.verify || flowops::find(&act.kind).is_some_and(sends)
}

/// What is known only once all steps are.
fn finish(mut steps: Vec<Step>, phase: &PhaseProgram, side: Side, slots: usize) -> Phase {
    let transfers = |step: &&Step| {
        matches!(step.action, Action::Send(_) | Action::Receive(_) | Action::SendFile)
    };
    let opens = steps
        .iter()
        .any(|step| matches!(step.action, Action::Connect | Action::Accept | Action::Close));
    let datagrams_only = steps.iter().any(|step| step.datagram)
        && steps.iter().filter(transfers).all(|step| step.datagram);
    // Who only receives holds up nobody. For anybody else's next message the other end may wait.
    let only_receives = !opens
        && steps
            .iter()
            .filter(transfers)
            .all(|step| step.datagram && matches!(step.action, Action::Receive(_)));
    let may_skip = side == Side::Peer && datagrams_only && !opens;
    let thinks = steps.iter().map(|step| step.think.saturating_mul(step.count)).sum::<Nanos>();
    // What the master takes its time for is not a loss.
    let slack = match (side, phase.rate) {
        (Side::Master, _) => 0,
        (Side::Peer, Some(rate)) if rate > 0.0 => {
            thinks.saturating_add((SECOND as f64 / rate) as Nanos)
        }
        (Side::Peer, _) => thinks,
    };
    let mut datagrams = vec![(0, 0); slots];
    for step in &mut steps {
        let slots = step.first as usize..=step.last as usize;
        let Some(moves) = datagrams.get_mut(slots) else { continue };
        match step.action {
            Action::Receive(_) if step.datagram => moves.iter_mut().for_each(|m| m.0 += step.count),
            Action::Send(_) if step.datagram => {
                moves.iter_mut().for_each(|m| m.1 += step.count);
                continue;
            }
            _ => continue,
        }
        // A peer that follows by datagrams alone catches up by their numbers, so it need not look at
        // the time. One that streams or connects as well would keep the master waiting for it.
        let goes_on = if side == Side::Master { !only_receives } else { !may_skip };
        if goes_on {
            step.reply = true;
            step.impatient = step.timeout.is_none();
            step.timeout = step.timeout.or(Some(REPLY_TIMEOUT.saturating_add(slack)));
        }
    }
    let first_moving = steps.iter().find(|step| !matches!(step.action, Action::Nothing));
    let passive = side == Side::Peer
        && first_moving
            .is_some_and(|step| matches!(step.action, Action::Receive(_) | Action::Accept));
    let period = match (phase.until, phase.rate) {
        (Until::Duration(_), Some(rate)) if rate > 0.0 && !passive => {
            Some((SECOND as f64 / rate) as Nanos)
        }
        _ => None,
    };
    Phase {
        can_fail: steps.iter().any(|step| step.can_fail),
        until: phase.until,
        period,
        may_skip,
        datagrams_only,
        opens,
        quiet: QUIET.saturating_add(thinks),
        datagrams,
        steps,
    }
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

pub(crate) fn connection_protocols(group: &GroupProgram) -> BTreeMap<u32, &'static dyn Protocol> {
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

fn acts_of_group(group: &GroupProgram) -> impl Iterator<Item = &Act> {
    group.phases.iter().flatten().flat_map(|phase| &phase.acts)
}

fn step(
    act: &Act,
    side: Side,
    ids: &[u32],
    protocols: &BTreeMap<u32, &'static dyn Protocol>,
    files: Option<&FileSizes>,
) -> Result<Step, String> {
    let options = &act.options;
    let flowop = flowops::find(&act.kind)
        .ok_or_else(|| format!("this version does not know the flowop {}", act.kind))?;
    let action = flowop.action();
    let on_connection = !matches!(action, Action::Think | Action::Nothing);
    let slot = |id: u32| ids.binary_search(&id).map_or(0, |slot| slot as u32);
    let (first, last) =
        if on_connection { (slot(options.conn.first), slot(options.conn.last)) } else { (0, 0) };
    let protocol = protocols.get(&options.conn.first).copied().filter(|_| on_connection);
    let transfers = matches!(action, Action::Send(_) | Action::Receive(_) | Action::SendFile);
    let datagram = transfers && protocol.is_some_and(|protocol| !protocol.stream());
    let length = match (files, options.size) {
        (Some(files), _) if !files.sizes.is_empty() => Length::Files(files.sizes.clone().into()),
        (_, Some(Size::Fixed(bytes))) => Length::Fixed(bytes),
        (_, Some(Size::Random { min, max })) => Length::Random { min, max },
        (_, None) => Length::Fixed(0),
    };
    let unit = match (&length, options.rsize) {
        _ if datagram => None,
        (_, Some(unit)) => Some(unit),
        (Length::Files(_), None) => Some(match options.size {
            Some(size) => size.max(),
            None if matches!(action, Action::Receive(_)) => FILE_READ,
            None => u64::MAX,
        }),
        _ => None,
    };
    let default_timeout = match (action, side) {
        (Action::Connect, _) => Some(CONNECT_TIMEOUT),
        (Action::Accept, Side::Master) => Some(ACCEPT_TIMEOUT),
        _ => None,
    };
    Ok(Step {
        action,
        row: 0,
        first,
        last,
        count: options.count.max(1) * options.repeat.max(1) * calls::datagrams(options, protocol),
        length,
        unit,
        timeout: options.timeout.map(nanos).or(default_timeout),
        can_fail: options.canfail,
        // What a file holds the receiver does not know.
        verify: options.verify && files.is_none(),
        datagram,
        reply: false,
        impatient: false,
        busy: options.busy,
        think: options.duration.map_or(0, nanos),
        service: act.service,
        options: Arc::new(options.clone()),
        protocol: protocol.map(|protocol| protocol.name()),
        key: 0,
        first_id: options.conn.first,
        at: act.at,
        kind: flowop.name(),
        payload: 0,
    })
}
