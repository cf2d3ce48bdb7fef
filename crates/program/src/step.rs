//! Programs as strands execute them: each act resolved once, before the run, to a step of a small
//! closed kind, so that the hot loop looks nothing up.

use std::collections::BTreeMap;
use std::sync::Arc;

use wirecost_model::clock::{MILLISECOND, Nanos, SECOND, nanos};
use wirecost_model::measure::FlowopKey;
use wirecost_model::plan::FileSizes;
use wirecost_model::profile::{
    Arrivals, ByStrand, Options, Payload, Position, Quantity, Until, Weighted,
};
use wirecost_model::program::{Act, GroupProgram, PhaseProgram, Program, ServiceRef, Side};
use wirecost_model::quantity;
use wirecost_profile::flowops;
use wirecost_profile::protocols::{self, Protocol};

use crate::calls::{self, Receives, Sends, SinkPlace, Streamed, Unseen};
use crate::draw;
use crate::quantiles::Quantiles;
use crate::route::{Route, firsts, part_of};

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

/// How bytes are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendCall {
    /// By a call for each piece.
    Plain(flowops::SendCall),
    Streamed(Streamed),
    /// Datagrams, several by one call.
    Several(Sends),
}

/// How bytes are received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReceiveCall {
    /// By a call for each piece.
    Plain(flowops::ReceiveCall),
    /// Bytes go on to this place of [`calls::sinks`] when they have been received.
    Kept(u16),
    Unseen(Unseen),
    /// Datagrams, several by one call.
    Several(Receives),
}

impl SendCall {
    /// send(2), for each piece.
    pub const SEND: Self = SendCall::Plain(flowops::SendCall::Send);
}

impl From<flowops::Action> for Action {
    fn from(action: flowops::Action) -> Self {
        match action {
            flowops::Action::Connect => Action::Connect,
            flowops::Action::Accept => Action::Accept,
            flowops::Action::Close => Action::Close,
            flowops::Action::Send(call) => Action::Send(SendCall::Plain(call)),
            flowops::Action::Receive(call) => Action::Receive(ReceiveCall::Plain(call)),
            flowops::Action::SendFile => Action::SendFile,
            flowops::Action::Think => Action::Think,
            flowops::Action::Nothing => Action::Nothing,
        }
    }
}

impl ReceiveCall {
    /// recv(2), for each piece.
    pub const RECV: Self = ReceiveCall::Plain(flowops::ReceiveCall::Recv);

    /// Whether it only receives, and only once.
    pub fn is_plain(self) -> bool {
        matches!(self, ReceiveCall::Plain(_))
    }
}

/// Bytes of each operation of a step.
#[derive(Debug, Clone)]
pub enum Length {
    Fixed(u64),
    Random {
        min: u64,
        max: u64,
    },
    /// Of a continuous distribution.
    Quantiles(Arc<Quantiles>),
    /// One of these, with the part of 2^64 that is drawn for it and those before it.
    Choices(Arc<[(u64, u64)]>),
    /// That of the strand.
    ByStrand(Arc<[u64]>),
    /// One of these files, drawn at random each time.
    Files(Arc<[u64]>),
}

impl Length {
    /// A quantity as it is drawn by so many strands, with this key.
    fn new(quantity: &Quantity, key: u64, strands: u32) -> Self {
        let choices = |values: &[Weighted]| {
            let total = values.iter().map(|v| u128::from(v.weight)).sum();
            let mut sum = 0;
            let each = values.iter().map(|v| {
                sum += u128::from(v.weight);
                (part_of(sum, total), v.value)
            });
            Length::Choices(each.collect())
        };
        match quantity {
            Quantity::Fixed(n) => Length::Fixed(*n),
            Quantity::Random { min, max } => Length::Random { min: *min, max: *max },
            Quantity::Lognormal { median, sigma, min, max } => {
                let sigma = *sigma as f64 / 1e6;
                Length::Quantiles(Arc::new(Quantiles::lognormal(*median, sigma, *min, *max)))
            }
            Quantity::Exponential { mean, min, max } => {
                Length::Quantiles(Arc::new(Quantiles::exponential(*mean, *min, *max)))
            }
            Quantity::Table(values) => choices(values),
            Quantity::Imix { headers } => choices(&quantity::imix(*headers)),
            Quantity::ByStrand(ByStrand::Each(values)) => Length::ByStrand(values.clone().into()),
            Quantity::ByStrand(ByStrand::Spread { first, last }) => {
                let steps = i128::from(strands.max(2) - 1);
                let (from, to) = (i128::from(*first), i128::from(*last));
                let each =
                    (0..i128::from(strands)).map(|n| (from + (to - from) * n / steps) as u64);
                Length::ByStrand(each.collect())
            }
            Quantity::ByStrand(ByStrand::Drawn(quantity)) => {
                let drawn = Length::new(quantity, key, strands);
                let each = (0..strands).map(|n| drawn.draw(draw::key(&[key, u64::from(n)]), n));
                Length::ByStrand(each.collect())
            }
        }
    }

    /// What is drawn for a strand at this place, as [`draw::key`] makes places.
    #[inline]
    fn draw(&self, place: u64, strand: u32) -> u64 {
        match self {
            Length::Fixed(n) => *n,
            Length::Random { min, max } => draw::between(place, *min, *max),
            Length::Quantiles(quantiles) => quantiles.draw(draw::mix(place)),
            Length::Choices(choices) => {
                let drawn = draw::mix(place);
                choices.iter().find(|(below, _)| drawn <= *below).map_or(0, |choice| choice.1)
            }
            Length::ByStrand(values) => {
                let place = (strand as usize).checked_rem(values.len());
                place.map_or(0, |place| values[place])
            }
            Length::Files(sizes) => sizes[file(place, sizes.len())],
        }
    }

    /// The largest that can be drawn.
    fn max(&self) -> u64 {
        match self {
            Length::Fixed(n) => *n,
            Length::Random { max, .. } => *max,
            Length::Quantiles(quantiles) => quantiles.max(),
            Length::Choices(choices) => choices.iter().map(|c| c.1).max().unwrap_or(0),
            Length::ByStrand(values) | Length::Files(values) => {
                values.iter().copied().max().unwrap_or(0)
            }
        }
    }
}

fn file(place: u64, files: usize) -> usize {
    draw::between(place, 0, files as u64 - 1) as usize
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
/// Stands for what belongs to a phase and not to one of its flowops, where random numbers are drawn.
const ORDER: u64 = 1 << 32;
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
    /// Bytes of each operation; of a thought its nanoseconds.
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
    /// Of one that opens connections: whether some step receives of them in another way than by plain
    /// calls, in whatever phase.
    pub unlike: bool,
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
    /// Length of message `number` of this round: counted from the step's beginning, in one execution
    /// of the step.
    #[inline]
    pub fn length(&self, strand: u32, round: u64, conn_id: u32, number: u64) -> u64 {
        match &self.length {
            Length::Fixed(bytes) => *bytes,
            drawn => drawn.draw(self.place(strand, round, conn_id, number), strand),
        }
    }

    /// Which file execution `number` sends.
    pub fn file_index(&self, strand: u32, round: u64, conn_id: u32, number: u64) -> usize {
        match &self.length {
            Length::Files(sizes) => file(self.place(strand, round, conn_id, number), sizes.len()),
            _ => 0,
        }
    }

    #[inline]
    fn place(&self, strand: u32, round: u64, conn_id: u32, number: u64) -> u64 {
        draw::mix(self.key ^ (u64::from(strand) << 32 | u64::from(conn_id)))
            ^ draw::mix(round.wrapping_mul(0x1_0000_0001).wrapping_add(number << 40))
    }
}

/// When the transactions of a strand are meant to begin, in nanoseconds from the phase's beginning.
#[derive(Debug, Clone)]
pub enum Pace {
    /// One after another in even steps; strands take turns within the first.
    Even(Nanos),
    /// With times between them that are drawn.
    Drawn { between: Arc<Quantiles>, key: u64 },
    /// At these, which the strands have in turn.
    Trace { starts: Arc<[Nanos]>, strands: u32 },
}

impl Pace {
    fn new(arrivals: &Arrivals, key: u64, strands: u32) -> Self {
        let period = |rate: f64| (SECOND as f64 / rate) as Nanos;
        match arrivals {
            Arrivals::Even(rate) => Pace::Even(period(*rate)),
            Arrivals::Poisson(rate) => Pace::Drawn {
                between: Arc::new(Quantiles::exponential(period(*rate), 0, Nanos::MAX)),
                key,
            },
            Arrivals::Trace(trace) => Pace::Trace { starts: trace.starts.clone().into(), strands },
        }
    }

    /// Whether the beginning is that of the window instead.
    #[inline]
    pub fn is_trace(&self) -> bool {
        matches!(self, Pace::Trace { .. })
    }

    /// Intended start of transaction `number`; `before` is that of the one before it.
    #[inline]
    pub fn intended(&self, strand: u32, number: u64, before: Nanos) -> Nanos {
        match self {
            Pace::Even(period) => (period / 64 * u64::from(strand % 64))
                .saturating_add(number.saturating_mul(*period)),
            Pace::Drawn { between, key } => {
                let word = draw::mix(draw::key(&[*key, u64::from(strand), number]));
                before.saturating_add(between.draw(word))
            }
            Pace::Trace { starts, strands } => {
                let place =
                    number.saturating_mul(u64::from(*strands)).saturating_add(strand.into());
                let start = usize::try_from(place).ok().and_then(|place| starts.get(place));
                start.copied().unwrap_or(Nanos::MAX)
            }
        }
    }
}

/// A phase of one group on this host.
#[derive(Debug)]
pub struct Phase {
    pub steps: Vec<Step>,
    pub until: Until,
    /// How the steps follow one another; none where they do so in their order.
    pub route: Option<Route>,
    /// Whether the strand draws which of its steps are in a transaction.
    pub mixed: bool,
    /// When transactions are meant to begin; only on the side that begins them.
    pub pace: Option<Pace>,
    /// Whether the strand may skip ahead in its program when datagrams were lost: it follows another
    /// side, and everything it moves is datagrams.
    pub may_skip: bool,
    /// Whether any step may fail, so that one side may begin what the other never sees.
    pub can_fail: bool,
    /// Whether every transfer is by datagrams, so iterations of both ends need not agree.
    pub datagrams_only: bool,
    /// Whether connections are opened or closed.
    pub opens: bool,
    /// The row of the only operation of a transaction, where it has just one.
    pub whole: Option<u32>,
    /// Whether all that a strand of a peer does is to receive on one stream, so that what there is may
    /// be taken in one call, also for operations whose turn has not come. A master's operations each
    /// take their own time, as that is what the result tells.
    pub gathers: bool,
    /// A receiver believes that no more datagrams come when none has come for this long.
    pub quiet: Nanos,
    /// Datagrams received and sent in one iteration, by connection slot.
    pub datagrams: Vec<(u64, u64)>,
}

impl Phase {
    pub fn receives(&self) -> bool {
        self.steps.iter().any(|step| matches!(step.action, Action::Receive(_)))
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

/// Rows of operations that are a transaction each, in a phase of a host's groups.
pub fn whole_rows(groups: &[Group], phase: usize) -> Vec<u32> {
    groups.iter().filter_map(|group| group.phases.get(phase)?.as_ref()?.whole).collect()
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
    let unlike = calls::unlike(group, &protocols, &several, sinks);
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
            let key =
                draw::key(&[seed, u64::from(group.group), number as u64, u64::from(act.flowop)]);
            let mut step = step(act, side, &ids, &protocols, sizes, (key, group.strands))?;
            let protocol = protocols.get(&act.options.conn.first).copied();
            let receives = calls::of_range(&several, act);
            step.action = calls::chosen(step.action, &act.options, protocol, receives, sinks);
            let conns = act.options.conn;
            step.unlike = unlike.range(conns.first..=conns.last).next().is_some();
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
        let key = draw::key(&[seed, u64::from(group.group), number as u64, ORDER]);
        let whole = finish(steps, phase, side, ids.len(), (key, group.strands))?;
        phases.push(Some(Arc::new(whole)));
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
    let route = Route::new(&phase.order, &flowop_of, key)?;
    let times = |step: usize| route.as_ref().map_or(1, |route| route.times(step));
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
    let thinks = steps.iter().enumerate().filter(|(_, step)| step.action == Action::Think);
    let thinks = thinks.fold(0, |sum: Nanos, (number, step)| {
        let executions = step.count.saturating_mul(times(number));
        sum.saturating_add(step.length.max().saturating_mul(executions))
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
        match step.action {
            Action::Receive(_) if step.datagram => moves.iter_mut().for_each(|m| m.0 += executions),
            Action::Send(_) if step.datagram => {
                moves.iter_mut().for_each(|m| m.1 += executions);
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
    let idle = |step: &Step| matches!(step.action, Action::Nothing);
    let waits = |step: &Step| matches!(step.action, Action::Receive(_) | Action::Accept);
    let firsts: Vec<&Step> = if route.is_some() {
        let firsts = firsts(&phase.order, &flowop_of, &|step| idle(&steps[step as usize]));
        firsts.steps.into_iter().map(|step| &steps[step as usize]).collect()
    } else {
        steps.iter().find(|step| !idle(step)).into_iter().collect()
    };
    let passive = side == Side::Peer && !firsts.is_empty() && firsts.into_iter().all(waits);
    let pace = match (phase.until, &phase.arrivals) {
        (Until::Duration(_), Some(arrivals)) if !passive => {
            Some(Pace::new(arrivals, draw::mix(key), strands))
        }
        _ => None,
    };
    // Of one that is a way through several it is not known how many come.
    let simple = route.is_none();
    Ok(Phase {
        whole: whole(&steps).filter(|_| simple),
        gathers: side == Side::Peer && simple && gathers(&steps),
        can_fail: steps.iter().any(|step| step.can_fail),
        until: phase.until,
        mixed: route.as_ref().is_some_and(Route::is_mixed),
        route,
        pace,
        may_skip,
        datagrams_only,
        opens,
        quiet: QUIET.saturating_add(thinks),
        datagrams,
        steps,
    })
}

fn whole(steps: &[Step]) -> Option<u32> {
    match steps {
        [only] if only.count == 1 && only.first == only.last && only.unit.is_none() => {
            (!matches!(only.action, Action::Think)).then_some(only.row)
        }
        _ => None,
    }
}

fn gathers(steps: &[Step]) -> bool {
    let alike = |step: &Step| {
        matches!(step.action, Action::Receive(call) if call.is_plain())
            && !(step.datagram || step.verify || step.can_fail || step.options.single_reads)
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

fn acts_of_group(group: &GroupProgram) -> impl Iterator<Item = &Act> {
    group.phases.iter().flatten().flat_map(|phase| &phase.acts)
}

fn step(
    act: &Act,
    side: Side,
    ids: &[u32],
    protocols: &BTreeMap<u32, &'static dyn Protocol>,
    files: Option<&FileSizes>,
    (key, strands): (u64, u32),
) -> Result<Step, String> {
    let options = &act.options;
    let flowop = flowops::find(&act.kind)
        .ok_or_else(|| format!("this version does not know the flowop {}", act.kind))?;
    let action: Action = flowop.action().into();
    let on_connection = !matches!(action, Action::Think | Action::Nothing);
    let slot = |id: u32| ids.binary_search(&id).map_or(0, |slot| slot as u32);
    let (first, last) =
        if on_connection { (slot(options.conn.first), slot(options.conn.last)) } else { (0, 0) };
    let protocol = protocols.get(&options.conn.first).copied().filter(|_| on_connection);
    let transfers = matches!(action, Action::Send(_) | Action::Receive(_) | Action::SendFile);
    let datagram = transfers && protocol.is_some_and(|protocol| !protocol.delivery().is_reliable());
    let quantity = if action == Action::Think { &options.duration } else { &options.size };
    let length = match (files, quantity) {
        (Some(files), _) if !files.sizes.is_empty() => Length::Files(files.sizes.clone().into()),
        (_, Some(quantity)) => Length::new(quantity, key, strands),
        (_, None) => Length::Fixed(0),
    };
    let unit = match (&length, options.rsize) {
        _ if datagram || !transfers => None,
        (_, Some(unit)) => Some(unit),
        (Length::Files(_), None) => Some(match &options.size {
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
        unlike: false,
        service: act.service,
        options: Arc::new(options.clone()),
        protocol: protocol.map(|protocol| protocol.name()),
        key,
        first_id: options.conn.first,
        at: act.at,
        kind: flowop.name(),
        payload: 0,
    })
}
