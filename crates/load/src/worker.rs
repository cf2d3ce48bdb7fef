//! A worker: strands that share a thread, and everything that is the same whichever way the thread
//! waits for I/O. The engines own the waiting.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use wirecost_linux::clock::Monotonic;
use wirecost_linux::tcp_info::TcpInfo;
use wirecost_model::clock::{Clock, MILLISECOND, Nanos, SECOND, nanos};
use wirecost_model::histogram::Histogram;
use wirecost_model::measure::{
    Edge, FairnessSums, FileChecks, IoCounts, Snapshot, StrandOperations, StrandSeries,
    StrandTotals, TcpSample,
};
use wirecost_model::placement::StrandPlacement;
use wirecost_model::plan::Endpoints;
use wirecost_model::profile::{Position, Until};
use wirecost_model::receive_stamps::StampCounts;
use wirecost_program::calls::EffectiveSetting;
use wirecost_program::net::{Interest, Net, Owner};
use wirecost_program::operation_log::{LogMemory, OperationLog};
use wirecost_program::payload::Patterns;
use wirecost_program::record::{Record, WorkerCounters};
use wirecost_program::step::{Group, Phase};
use wirecost_program::strand::{Context, PhaseTiming, Strand, StrandError, Turn};

use crate::clients::Clients;
use crate::load::DueSnapshots;
use crate::sockets::{Arrival, Socket, Sockets, Token};
use crate::strand_series::Recorder;

/// TCP_INFO is sampled at most this often.
const SAMPLE_INTERVAL: Nanos = 100 * MILLISECOND;

/// What a worker is told.
#[derive(Debug, Clone)]
pub(crate) enum Order {
    /// Where the others listen, and what to run.
    Connect {
        endpoints: Arc<Endpoints>,
        groups: Arc<[Group]>,
    },
    Phase(PhaseOrder),
    /// All have stopped beginning transactions; end after these.
    Finish(Arc<Limits>),
    /// End the phase now, whatever is under way.
    CutOff,
}

/// Transactions to complete, by group number and strand.
pub type Limits = BTreeMap<u32, Vec<u64>>;

#[derive(Debug, Clone)]
pub(crate) struct PhaseOrder {
    pub(crate) phase: u32,
    pub(crate) start: Nanos,
    /// What counts. Where iterations decide, it ends when they do.
    pub(crate) window: Range<Nanos>,
    /// Transactions begin before this instant; 0 where iterations decide.
    pub(crate) end: Nanos,
    pub(crate) counters: Arc<WorkerCounters>,
    /// Those of all workers' counters; `None` where nobody takes any.
    pub(crate) snapshots: Option<Arc<DueSnapshots>>,
    pub(crate) tcp_samples: u32,
    /// Whether strands and groups are reported by themselves too.
    pub(crate) details: bool,
    /// Where single operations are reported, memory for them.
    pub(crate) log: Option<Arc<LogMemory>>,
    /// Transactions that strands of all workers have completed, by index of the group: of groups whose strands serve any
    /// client, and only once it is known how many there are to be.
    pub(crate) completed: Arc<[AtomicU64]>,
    /// No more are kept.
    pub(crate) most_samples: usize,
    /// How often the bytes of each strand are recorded; `None` where there are too many strands.
    pub(crate) follow: Option<Nanos>,
}

/// What a worker says.
#[derive(Debug)]
pub(crate) enum Event {
    /// No strand of it begins another transaction by itself; so many has each begun, in the order of
    /// `Placement::strands`.
    Quiesced {
        worker: u32,
        started: Vec<u64>,
    },
    Ended(Box<WorkerReport>),
    Failed(StrandError),
    /// Of the thread that takes snapshots, or of a worker in its place.
    Snapshot(Box<Snapshot>),
    /// Of the same: a phase has had as many readings as can be kept, and has not ended.
    Endless(u64),
    /// Of the same, at an edge of the window.
    Clocks(Clocks),
}

/// Called when there is news; it must not block.
pub type Notify = Arc<dyn Fn() + Send + Sync>;

/// Where workers put their events.
#[derive(Clone)]
pub(crate) struct EventSender {
    events: Sender<Event>,
    notify: Notify,
}

impl std::fmt::Debug for EventSender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("EventSender")
    }
}

impl EventSender {
    pub(crate) fn new(notify: Notify) -> (Self, Receiver<Event>) {
        let (events, receiver) = channel();
        (Self { events, notify }, receiver)
    }

    pub(crate) fn send(&self, event: Event) {
        // Nobody listens any more when the load has been dropped.
        let _ = self.events.send(event);
        (self.notify)();
    }
}

/// What the CPU-time clocks of all workers showed at an edge of the window; none where one is gone.
#[derive(Debug)]
pub(crate) struct Clocks {
    pub(crate) edge: Edge,
    pub(crate) of_workers: Vec<Option<ClockReading>>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct ClockReading {
    pub(crate) at: Nanos,
    pub(crate) cpu: Nanos,
}

/// What a worker counted in a phase, beyond its counters.
#[derive(Debug)]
pub(crate) struct WorkerReport {
    pub(crate) worker: u32,
    pub(crate) transactions: Histogram,
    pub(crate) latencies: Vec<Histogram>,
    /// Delays of datagrams that this worker received.
    pub(crate) one_way: Histogram,
    /// Of stamped sockets; none where no stamps were asked for.
    pub(crate) receive_stamps: Option<StampCounts>,
    /// Of transactions of several operations, by index of the group; only with details.
    pub(crate) group_transactions: Vec<Histogram>,
    /// Only with details.
    pub(crate) strands: Vec<StrandTotals>,
    pub(crate) strand_series: Vec<StrandSeries>,
    /// Single operations, and how many more there were; only where they are asked for.
    pub(crate) logged: Vec<StrandOperations>,
    pub(crate) not_logged: u64,
    pub(crate) verify_failures: u64,
    pub(crate) file_checks: FileChecks,
    pub(crate) io: IoCounts,
    pub(crate) open: u64,
    pub(crate) failed_connections: u64,
    pub(crate) segments: SegmentCounts,
    /// Connections that closed inside the window: `segments` lacks theirs.
    pub(crate) closed_unread: u64,
    pub(crate) tcp_samples: Vec<TcpSample>,
    pub(crate) fairness: FairnessSums,
    pub(crate) drops: u64,
    pub(crate) unfinished: u64,
    pub(crate) buffer_bytes: u64,
    pub(crate) rejected_connections: u64,
    pub(crate) settings: Vec<EffectiveSetting>,
    /// By number of the peer, group and strand.
    pub(crate) placements: BTreeMap<(u32, u32, u32), StrandPlacement>,
}

/// Segments of TCP connections, as the kernel counts them by connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct SegmentCounts {
    pub(crate) retransmits: u64,
    /// With data, those sent again included.
    pub(crate) sent: u64,
    pub(crate) out_of_order: u64,
}

impl SegmentCounts {
    pub(crate) fn add(&mut self, info: &TcpInfo) {
        self.retransmits += u64::from(info.retransmits);
        self.sent += u64::from(info.data_segments_out.unwrap_or(0));
        self.out_of_order += u64::from(info.out_of_order.unwrap_or(0));
    }

    fn since(&self, before: &Self) -> Self {
        Self {
            retransmits: self.retransmits.saturating_sub(before.retransmits),
            sent: self.sent.saturating_sub(before.sent),
            out_of_order: self.out_of_order.saturating_sub(before.out_of_order),
        }
    }
}

/// The window's connections are asked for their segments so long before it opens: thousands of them take
/// milliseconds, which the window must not lose. Observers leave as much time free (their probes attach
/// then), so it is not the time without observers either.
const READ_AHEAD: Nanos = 60 * MILLISECOND;

/// What is known at an edge of the window.
#[derive(Debug, Default)]
struct EdgeState {
    open: u64,
    buffer_bytes: u64,
}

#[derive(Debug)]
struct Running {
    order: PhaseOrder,
    /// By index of the group.
    timings: Vec<PhaseTiming>,
    record: Record,
    held: bool,
    /// Strands of some groups end after so many iterations, while others run for a time.
    mixed: bool,
    /// No side begins another transaction but those that are agreed on.
    finishing: bool,
    /// Strands with something left to do, once it is known how much that is.
    unfinished: Option<usize>,
    done: Vec<bool>,
    finish_time: Nanos,
    /// How many transactions each strand of this program's groups makes, once that is known.
    limits: Limits,
    /// Just before the window opens, and when it has ended.
    segments_before: Option<SegmentCounts>,
    segments_after: Option<SegmentCounts>,
    start_edge: Option<EdgeState>,
    end_edge: Option<EdgeState>,
    /// Bytes, and transactions, of each strand at the start of the window. There is memory for them before, so
    /// that the window does not stop for it.
    at_start: Vec<(u64, u64)>,
    /// Of what the strands moved in the window.
    fairness: FairnessSums,
    /// Bytes of each strand over time.
    followed: Recorder,
    next_sample: Nanos,
    samples: Vec<TcpSample>,
    failed_before: u64,
    drops_before: u64,
    closed_unread_before: u64,
    io_before: IoCounts,
}

/// What the numbers of a phase's messages begin with.
fn tag(phase: u32) -> u64 {
    u64::from(phase + 1) << 56
}

/// A [`Net`] of real sockets.
pub(crate) trait SocketNet: Net {
    fn sockets(&self) -> &Sockets;

    fn sockets_mut(&mut self) -> &mut Sockets;

    /// A strand begins to wait for something on this connection; events name it by the token.
    fn watch(&self, _: &Self::Socket, _: Token) -> io::Result<()> {
        Ok(())
    }

    /// An event has told that bytes can be sent on this connection, which is being opened.
    fn note_writable(&mut self, socket: &mut Self::Socket);

    /// What a strand's handle stands for.
    fn socket<'a>(&'a self, handle: &'a Self::Socket) -> &'a Socket;

    /// Learns where others listen and what will be run.
    fn set_endpoints(&mut self, endpoints: Arc<Endpoints>, groups: &[Group]);

    /// What I/O options have done so far.
    fn io(&self) -> IoCounts;

    /// See [`Sockets::settle`].
    fn settle<'a>(&mut self, handles: impl Iterator<Item = &'a Self::Socket>) -> io::Result<()>
    where
        Self::Socket: 'a;
}

impl SocketNet for Sockets {
    fn sockets(&self) -> &Sockets {
        self
    }

    fn sockets_mut(&mut self) -> &mut Sockets {
        self
    }

    fn watch(&self, socket: &Socket, token: Token) -> io::Result<()> {
        self.opener.watch(socket, token)
    }

    fn note_writable(&mut self, socket: &mut Socket) {
        socket.note_writable();
    }

    fn socket<'a>(&'a self, handle: &'a Socket) -> &'a Socket {
        handle
    }

    fn set_endpoints(&mut self, endpoints: Arc<Endpoints>, groups: &[Group]) {
        Sockets::set_endpoints(self, endpoints, groups);
    }

    fn io(&self) -> IoCounts {
        let mut io = self.data.io;
        self.opener.add_accepted(&mut io);
        io
    }

    fn settle<'a>(&mut self, handles: impl Iterator<Item = &'a Socket>) -> io::Result<()> {
        Sockets::settle(self, handles)
    }
}

#[derive(Debug)]
pub(crate) struct Worker<N: SocketNet = Sockets> {
    pub(crate) number: u32,
    /// Its strands, by group and number, until they are made.
    mine: Vec<(u32, u32)>,
    pub(crate) net: N,
    pub(crate) strands: Vec<Strand<N::Socket>>,
    groups: Arc<[Group]>,
    /// Index in `groups` of each strand's group.
    group_of: Vec<u32>,
    patterns: Patterns,
    running: Option<Running>,
    events: EventSender,
}

/// Samples of a window, so that it need not stop for memory; of a phase whose end is unknown those
/// of its first minutes.
fn expected_samples(order: &PhaseOrder) -> usize {
    let length = order.window.end.saturating_sub(order.window.start).min(600 * SECOND);
    let times = usize::try_from(length / SAMPLE_INTERVAL + 1).unwrap_or(0);
    times.saturating_mul(order.tcp_samples as usize).min(order.most_samples)
}

/// Whether a strand takes part in a phase. Where any strand serves any client, one has no part in what clients do on
/// their connections unless it has one of these.
fn has_part<S>(phase: &Phase, strand: &Strand<S>) -> bool {
    !phase.shares_listeners || phase.accepts() || strand.sockets().next().is_some()
}

impl<N: SocketNet> Worker<N> {
    /// `mine`: the strands it runs, by group and number.
    pub(crate) fn new(
        number: u32,
        mine: Vec<(u32, u32)>,
        net: N,
        patterns: Patterns,
        events: EventSender,
    ) -> Self {
        Self {
            number,
            mine,
            net,
            strands: Vec::new(),
            groups: Arc::new([]),
            group_of: Vec::new(),
            patterns,
            running: None,
            events,
        }
    }

    /// Makes its strands, which are to connect to these endpoints.
    pub(crate) fn connect(&mut self, endpoints: Arc<Endpoints>, groups: Arc<[Group]>) {
        self.net.set_endpoints(endpoints, &groups);
        let by_number: BTreeMap<u32, usize> =
            groups.iter().enumerate().map(|(index, group)| (group.number, index)).collect();
        let mine = std::mem::take(&mut self.mine);
        // Exactly as much memory as there are.
        self.strands.reserve_exact(mine.len());
        self.group_of.reserve_exact(mine.len());
        for (local, (group, strand)) in mine.into_iter().enumerate() {
            let index = by_number.get(&group).copied();
            let ids = index.map_or(0, |index| groups[index].ids.len());
            self.group_of.push(index.unwrap_or(0) as u32);
            self.strands.push(Strand::new(group, strand, local as u32, ids));
        }
        self.groups = groups;
    }

    pub(crate) fn arrived(&mut self, arrival: Arrival) -> Option<u32> {
        let (group, strand) = (arrival.hello.group, arrival.hello.strand);
        self.net.sockets_mut().opener.arrived(arrival);
        // A worker's strands of one group are in ascending order.
        self.strands
            .binary_search_by_key(&(group, strand), |s| (s.group, s.number))
            .ok()
            .map(|local| local as u32)
    }

    pub(crate) fn groups(&self) -> &[Group] {
        &self.groups
    }

    fn phase_of(&self, local: u32) -> Option<&Phase> {
        let running = self.running.as_ref()?;
        let group = self.groups.get(*self.group_of.get(local as usize)? as usize)?;
        group.phases.get(running.order.phase as usize)?.as_deref()
    }

    pub(crate) fn begin(&mut self, order: PhaseOrder) {
        self.net.sockets_mut().begin(order.phase, order.window.clone());
        let by_iterations = order.end == 0;
        let until = |group: &Group| {
            let phase = group.phases.get(order.phase as usize)?.as_ref()?;
            Some(phase.until)
        };
        let window = order.window.start;
        let timings = self
            .groups
            .iter()
            .map(|group| match until(group) {
                Some(Until::Duration(length)) if !by_iterations => {
                    let end = order.window.start.saturating_add(nanos(length));
                    // Who fills the window goes on for as long as the phase does after it.
                    let end = if end >= order.window.end { order.end.max(end) } else { end };
                    PhaseTiming { start: order.start, window, end, closed: false, finishing: false }
                }
                _ => PhaseTiming {
                    start: order.start,
                    window,
                    end: 0,
                    closed: true,
                    finishing: false,
                },
            })
            .collect();
        for (index, group) in (0u32..).zip(self.groups.iter()) {
            if let Some(Some(phase)) = group.phases.get(order.phase as usize)
                && self.group_of.contains(&index)
            {
                phase.numbered().for_each(|payload| self.patterns.number(payload));
            }
        }
        let mut mixed = false;
        let mut taking_part = 0;
        for (strand, &group) in self.strands.iter_mut().zip(&self.group_of) {
            let phase = self.groups[group as usize].phases.get(order.phase as usize);
            let phase = phase.and_then(|phase| phase.as_deref());
            let shares = phase.is_some_and(|phase| phase.shares_listeners);
            let limit = match until(&self.groups[group as usize]) {
                // How many there are of its own transactions, only its clients know.
                Some(Until::Iterations(_)) if phase.is_some_and(|phase| phase.serves) => u64::MAX,
                Some(Until::Iterations(_)) if shares && phase.is_some_and(Phase::reconnects) => {
                    u64::MAX
                }
                Some(Until::Duration(_)) if shares => u64::MAX,
                Some(Until::Iterations(n)) => n,
                _ => 0,
            };
            strand.enter(phase, order.start, limit);
            taking_part += u64::from(phase.is_some_and(|phase| has_part(phase, strand)));
            mixed |= !by_iterations && limit > 0 && limit < u64::MAX;
        }
        order.counters.working.raise(taking_part);
        // A connection that lives for one transaction has no course to follow.
        let lasting = |group: &Group| {
            group
                .phases
                .get(order.phase as usize)
                .is_some_and(|phase| phase.as_ref().is_some_and(|phase| !phase.opens))
        };
        let samples = order.tcp_samples > 0 && self.groups.iter().any(lasting);
        self.running = Some(Running {
            timings,
            record: Record::new(
                order.counters.clone(),
                order.window.clone(),
                match order.details {
                    true => self.groups.iter().map(|g| g.number as usize + 1).max().unwrap_or(1),
                    false => 1,
                },
            )
            .with_log(order.log.clone().map(OperationLog::new)),
            held: false,
            mixed,
            finishing: false,
            unfinished: None,
            done: vec![false; self.strands.len()],
            finish_time: 0,
            limits: Limits::new(),
            segments_before: None,
            segments_after: None,
            start_edge: None,
            end_edge: None,
            at_start: Vec::with_capacity(self.strands.len()),
            fairness: FairnessSums::default(),
            followed: self.recorder(&order),
            next_sample: if samples { order.window.start } else { Nanos::MAX },
            samples: Vec::with_capacity(expected_samples(&order)),
            failed_before: self.net.sockets().opener.failed_connections,
            drops_before: self.drops(),
            closed_unread_before: self.net.sockets().opener.closed_unread,
            io_before: self.net.io(),
            order,
        });
        if by_iterations {
            self.count_unfinished();
        }
    }

    /// Which connection a strand waits for that is to arrive.
    pub(crate) fn awaited(&self, local: u32) -> Owner {
        let local = local as usize;
        self.strands[local].awaited(&self.groups[self.group_of[local] as usize].ids)
    }

    /// Whether a strand takes part in the phase under way.
    pub(crate) fn takes_part(&self, local: u32) -> bool {
        let strand = self.strands.get(local as usize);
        self.phase_of(local).zip(strand).is_some_and(|(phase, strand)| has_part(phase, strand))
    }

    /// Whether a strand receives nothing in the phase under way.
    pub(crate) fn only_sends(&self, local: u32) -> bool {
        self.phase_of(local).is_some_and(|phase| !phase.receives())
    }

    pub(crate) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    pub(crate) fn start(&self) -> Nanos {
        self.running.as_ref().map_or(0, |running| running.order.start)
    }

    fn count_unfinished(&mut self) {
        let Some(running) = &mut self.running else {
            return;
        };
        let mut unfinished = 0;
        let phase = running.order.phase as usize;
        let each = self.strands.iter().zip(&self.group_of).zip(&mut running.done);
        for ((strand, &group), done) in each {
            let of_group = self.groups[group as usize].phases.get(phase);
            let shares = of_group.and_then(Option::as_deref).is_some_and(|p| p.shares_listeners);
            // Those that serve any client say nothing of the transactions of one, and are done when all are.
            *done = if shares { !running.finishing } else { strand.finished() };
            unfinished += usize::from(!*done);
        }
        running.unfinished = Some(unfinished);
        self.check_served();
        self.check_finished();
    }

    /// Whether strands that serve any client have, on all workers together, done what the clients have begun.
    fn check_served(&mut self) {
        let Some(running) = self.running.as_mut().filter(|running| running.finishing) else {
            return;
        };
        for (index, group) in (0u32..).zip(self.groups.iter()) {
            let phase = group.phases.get(running.order.phase as usize).and_then(Option::as_deref);
            if !phase.is_some_and(|phase| phase.shares_listeners) {
                continue;
            }
            let all: u64 = running.limits.get(&group.number).map_or(0, |limits| {
                limits.iter().fold(0u64, |sum, limit| sum.saturating_add(*limit))
            });
            let completed = running.order.completed.get(index as usize);
            if completed.is_some_and(|completed| completed.load(Ordering::Relaxed) < all) {
                continue;
            }
            let strands = self.group_of.iter().zip(&mut running.done);
            let open = strands.filter(|(of, done)| **of == index && !**done);
            let ended = open.map(|(_, done)| *done = true).count();
            running.unfinished = running.unfinished.map(|n| n.saturating_sub(ended));
        }
    }

    /// Makes known what strands that serve any client have completed before it was known how many transactions there
    /// are to be.
    fn publish_served(&self) {
        let Some(running) = &self.running else { return };
        for (local, (strand, &group)) in self.strands.iter().zip(&self.group_of).enumerate() {
            if self.shares_listeners(local, running.order.phase)
                && let Some(completed) = running.order.completed.get(group as usize)
            {
                completed.fetch_add(strand.completed(), Ordering::Relaxed);
            }
        }
    }

    /// Whether a strand accepts at listeners of the worker, or serves a connection that one has accepted there.
    fn shares_listeners(&self, local: usize, phase: u32) -> bool {
        let phases = &self.groups[self.group_of[local] as usize].phases;
        let phase = phases.get(phase as usize).and_then(Option::as_deref);
        phase.is_some_and(|phase| phase.shares_listeners)
    }

    /// Sets how many transactions there are to be. Strands that have more to do must run again.
    pub(crate) fn finish(&mut self, limits: &Limits) {
        let Some(running) = &mut self.running else {
            return;
        };
        for timing in &mut running.timings {
            timing.closed = true;
            timing.finishing = true;
        }
        running.finishing = true;
        running.held = true;
        running.finish_time = Monotonic.now();
        running.limits = limits.clone();
        let phase = running.order.phase;
        for local in 0..self.strands.len() {
            let limit = match (self.serves(local, phase), self.shares_listeners(local, phase)) {
                // Whatever comes, until nothing does.
                (true, _) => u64::MAX,
                // Its number is not that of its client.
                (false, true) => 0,
                (false, false) => {
                    let strand = &self.strands[local];
                    let limit =
                        limits.get(&strand.group).and_then(|l| l.get(strand.number as usize));
                    limit.copied().unwrap_or_default()
                }
            };
            self.strands[local].raise_limit(limit);
        }
        self.publish_served();
        self.count_unfinished();
    }

    /// Ends the phase now. What is under way is counted as unfinished and its connections closed.
    pub(crate) fn cut_off(&mut self) {
        let Some(running) = &self.running else { return };
        let unfinished: Vec<usize> = running
            .done
            .iter()
            .zip(&self.strands)
            .enumerate()
            .filter(|(_, (done, strand))| !**done && !strand.finished())
            .map(|(local, _)| local)
            .filter(|&local| {
                let strand = &self.strands[local];
                let shares = self.shares_listeners(local, running.order.phase);
                !shares || strand.started() > strand.iteration()
            })
            .collect();
        for &local in &unfinished {
            self.strands[local].close_all(&mut self.net);
        }
        self.end(unfinished.len() as u64);
    }

    pub(crate) fn close_all(&mut self) {
        for strand in &mut self.strands {
            strand.close_all(&mut self.net);
        }
    }

    /// Lets a strand run and move about so many bytes. The engine keeps what it then waits for.
    pub(crate) fn turn(&mut self, local: u32, bytes: i64) -> Turn {
        let group = self.group_of[local as usize] as usize;
        let Some(running) = &mut self.running else {
            return Turn::Quiesced;
        };
        let Some(phase) = &self.groups[group].phases[running.order.phase as usize] else {
            return Turn::Quiesced;
        };
        let shares = phase.shares_listeners;
        if shares && !has_part(phase, &self.strands[local as usize]) {
            return Turn::Quiesced;
        }
        let mut context = Context {
            net: &mut self.net,
            record: &mut running.record,
            patterns: &mut self.patterns,
            timing: &running.timings[group],
            turn: bytes,
            tag: tag(running.order.phase),
        };
        context.record.begin_turn(local);
        let strand = &mut self.strands[local as usize];
        let completed = strand.completed();
        let mut turn = strand.run(phase, &mut context);
        if let Turn::Wait(wait) = &turn
            && matches!(wait.on, Interest::Readable | Interest::Writable)
            && let Some(socket) = strand.socket(wait.slot)
            && let Err(error) = self.net.watch(socket, Token::Connection { local, slot: wait.slot })
        {
            turn = Turn::Failed(Box::new(strand.failure(phase, error)));
        }
        if shares {
            let more = strand.completed() - completed;
            if running.finishing && more > 0 {
                if let Some(all) = running.order.completed.get(group) {
                    all.fetch_add(more, Ordering::Relaxed);
                }
                self.check_served();
                self.check_finished();
            }
        } else if running.unfinished.is_some() && !running.done[local as usize] && strand.finished()
        {
            running.done[local as usize] = true;
            running.unfinished = running.unfinished.map(|n| n.saturating_sub(1));
            self.check_finished();
        }
        turn
    }

    /// An event has told that a strand can send on the connection that it waits for.
    pub(crate) fn writable(&mut self, local: u32) {
        if let Some(socket) = self.strands[local as usize].opening() {
            self.net.note_writable(socket);
        }
    }

    pub(crate) fn failed(&mut self, error: StrandError) {
        self.events.send(Event::Failed(error));
    }

    /// The call that waits for all strands has failed.
    pub(crate) fn failed_to_wait(&mut self, call: &'static str, source: io::Error) {
        let (group, strand) = self.strands.first().map_or((0, 0), |s| (s.group, s.number));
        let at = Position::default();
        self.failed(StrandError { group, strand, kind: call, at, source });
    }

    fn check_finished(&mut self) {
        let Some(running) = &self.running else { return };
        if running.unfinished != Some(0) {
            return;
        }
        if running.finishing {
            self.end(0);
        } else if !running.held {
            self.hold();
        }
    }

    /// Says that no strand begins another transaction by itself.
    fn hold(&mut self) {
        let Some(running) = &mut self.running else {
            return;
        };
        for timing in &mut running.timings {
            timing.closed = true;
        }
        running.held = true;
        let phase = running.order.phase;
        // A strand that serves any client says nothing of the transactions of one.
        let each = self.strands.iter().enumerate();
        let started = each
            .map(|(local, s)| match self.is_follower(local, phase) {
                true => 0,
                false => s.started().max(s.limit()),
            })
            .collect();
        self.events.send(Event::Quiesced { worker: self.number, started });
    }

    /// What is due at `now`: edges of the window, samples, the end of the phase. Returns when
    /// something is due next.
    pub(crate) fn run_due(&mut self, now: Nanos) -> Option<Nanos> {
        let running = self.running.as_ref()?;
        if let Some(snapshots) = &running.order.snapshots {
            snapshots.take_overdue(now);
        }
        let window = running.order.window.clone();
        let ahead = window.start.saturating_sub(READ_AHEAD).max(running.order.start);
        if running.segments_before.is_none() && now >= ahead {
            let segments = self.segments();
            self.running.as_mut()?.segments_before = Some(segments);
        }
        if self.running.as_ref()?.start_edge.is_none() && now >= window.start {
            self.net.sockets_mut().opener.reads_closing = false;
            let edge = self.edge();
            let running = self.running.as_mut()?;
            running.at_start.extend(self.strands.iter().map(|s| (s.bytes(), s.completed())));
            running.start_edge = Some(edge);
        }
        if self.running.as_ref()?.end_edge.is_none() && now >= window.end {
            self.net.sockets_mut().opener.reads_closing = true;
            let edge = self.edge();
            let fairness = self.fairness(self.running.as_ref()?);
            let segments = self.segments();
            let running = self.running.as_mut()?;
            running.followed.take_last(now, self.strands.iter().map(Strand::bytes));
            running.end_edge = Some(edge);
            running.fairness = fairness;
            running.segments_after = Some(segments);
        }
        self.sample(now);
        let running = self.running.as_mut()?;
        running.followed.take_due(now, self.strands.iter().map(Strand::bytes));
        let running = self.running.as_ref()?;
        let mut end = running.order.end;
        if !running.held && end > 0 && now >= end {
            let phase = running.order.phase;
            let mut others = self
                .strands
                .iter()
                .enumerate()
                .filter(|(local, _)| !self.is_follower(*local, phase));
            if running.mixed
                && others
                    .any(|(_, s)| s.iteration() < s.limit() || s.limit() > 0 && s.has_outstanding())
            {
                end = now + MILLISECOND;
            } else {
                self.hold();
            }
        }
        self.give_up_missing(now);
        if self.running.as_ref()?.finishing {
            // Other workers may have completed the last transactions.
            self.check_served();
            self.check_finished();
        }
        let running = self.running.as_ref()?;
        let edge = match (&running.start_edge, &running.end_edge) {
            (None, _) if running.segments_before.is_none() => Some(ahead),
            (None, _) => Some(window.start),
            (Some(_), None) => Some(window.end.min(running.next_sample)),
            (Some(_), Some(_)) => None,
        };
        let end = (!running.held && end > 0).then_some(end);
        let follow = Some(running.followed.next()).filter(|next| *next < Nanos::MAX);
        let phase = running.order.phase;
        let shares = || (0..self.strands.len()).any(|local| self.shares_listeners(local, phase));
        let pause = if running.finishing && shares() { MILLISECOND } else { 50 * MILLISECOND };
        let look = running.finishing.then_some(now + pause);
        [edge, end, follow, look].into_iter().flatten().min()
    }

    /// Whether a strand goes on for as long as clients do, whichever it serves.
    fn is_follower(&self, local: usize, phase: u32) -> bool {
        self.serves(local, phase) || self.shares_listeners(local, phase)
    }

    /// Whether a strand serves any client in a phase.
    fn serves(&self, local: usize, phase: u32) -> bool {
        let phases = &self.groups[self.group_of[local] as usize].phases;
        phases.get(phase as usize).and_then(Option::as_deref).is_some_and(|phase| phase.serves)
    }

    fn give_up_missing(&mut self, now: Nanos) {
        let Some(running) = &mut self.running else {
            return;
        };
        if !running.finishing {
            return;
        }
        // Clients of a group are asked once, not by each of its strands.
        let (mut heard_of, mut given_up) = (BTreeMap::new(), BTreeSet::new());
        for (local, strand) in self.strands.iter_mut().enumerate() {
            if running.done[local] {
                continue;
            }
            let group = self.group_of[local] as usize;
            let number = self.groups[group].number;
            let phase = &self.groups[group].phases[running.order.phase as usize];
            let Some(phase) = phase.as_ref().filter(|phase| !phase.shares_listeners) else {
                continue;
            };
            let clients = self.net.sockets().opener.clients(number).filter(|_| phase.serves);
            let heard = match clients {
                Some(clients) if now >= running.finish_time + phase.quiet => {
                    *heard_of.entry(number).or_insert_with(|| clients.last_heard())
                }
                _ => 0,
            };
            let heard = heard.max(running.finish_time);
            if strand.give_up_missing(phase, &running.record, now, heard) {
                let tag = tag(running.order.phase);
                let sends = phase.datagrams.iter().map(|&(receives, _)| receives).sum();
                let limits = running.limits.get(&number);
                let least = match phase.until {
                    Until::Iterations(iterations) => iterations,
                    Until::Duration(_) => 0,
                };
                let clients = clients.filter(|_| given_up.insert(number));
                for client in clients.into_iter().flat_map(Clients::all) {
                    let limit = limits.and_then(|limits| limits.get(client.strand as usize));
                    let transactions = limit.copied().unwrap_or_default().max(least);
                    let sent = transactions.saturating_mul(sends);
                    client.give_up((tag, phase.answers()), sent, &running.record.counters);
                }
                running.done[local] = true;
                running.unfinished = running.unfinished.map(|n| n.saturating_sub(1));
            }
        }
        self.check_finished();
    }

    fn open(&self) -> impl Iterator<Item = &Socket> {
        self.strands.iter().flat_map(Strand::sockets).map(|handle| self.net.socket(handle))
    }

    /// Of the kernel's sockets. AF_XDP sockets count theirs in `io`.
    fn drops(&self) -> u64 {
        let open: u64 = self.open().map(|socket| u64::from(socket.receive_drops())).sum();
        open + self.net.sockets().opener.closed_drops
    }

    /// Segments of all connections so far, but for those that closed unread.
    fn segments(&self) -> SegmentCounts {
        let mut segments = self.net.sockets().opener.closed_segments;
        self.open().filter_map(Socket::tcp_info).for_each(|info| segments.add(&info));
        segments
    }

    fn edge(&self) -> EdgeState {
        let open = self.open().count() as u64;
        // Buffers are alike on connections that were opened alike; reading them all would take
        // long.
        let first = self.open().take(16);
        let (sum, count) = first.fold((0, 0), |(sum, n), s| (sum + s.buffer_bytes(), n + 1));
        let buffer_bytes = u64::checked_div(sum, count).unwrap_or(0) * open;
        EdgeState { open, buffer_bytes }
    }

    /// Of what the strands have moved since the start of the window, or in all if it has not started.
    fn fairness(&self, running: &Running) -> FairnessSums {
        let mut fairness = FairnessSums::default();
        for (local, strand) in self.strands.iter().enumerate() {
            let before = running.at_start.get(local).copied().unwrap_or((0, 0));
            let group = self.group_of[local] as usize;
            // Which strand serves how many clients says nothing of how clients share.
            let of_group = self.groups[group].phases[running.order.phase as usize].as_ref();
            if of_group.is_some_and(|phase| !phase.shares_listeners) {
                let bytes = strand.bytes().saturating_sub(before.0);
                let transactions = strand.completed().saturating_sub(before.1);
                fairness.add(if bytes > 0 { bytes } else { transactions } as f64);
            }
        }
        fairness
    }

    /// Of a phase that begins. Which strand serves how many clients says nothing of how clients share.
    fn recorder(&self, order: &PhaseOrder) -> Recorder {
        let of_phase = |group: &u32| self.groups[*group as usize].phases.get(order.phase as usize);
        let shares = |group: &u32| {
            let phase = of_phase(group).and_then(Option::as_deref);
            phase.is_some_and(|phase| phase.shares_listeners || phase.serves)
        };
        let strands = match order.follow {
            Some(_) if !self.group_of.iter().any(shares) => self.strands.len(),
            _ => 0,
        };
        Recorder::new(strands, order.start, order.window.end, order.follow.unwrap_or(SECOND))
    }

    fn sample(&mut self, now: Nanos) {
        let Some(running) = &mut self.running else {
            return;
        };
        if now < running.next_sample || running.end_edge.is_some() {
            return;
        }
        if running.samples.len() >= running.order.most_samples {
            running.next_sample = Nanos::MAX;
            return;
        }
        running.next_sample = now + SAMPLE_INTERVAL;
        let (groups, phase) = (&self.groups, running.order.phase as usize);
        let of_one_client = |group: u32| {
            let of_group = groups[group as usize].phases.get(phase).and_then(Option::as_deref);
            !of_group.is_some_and(|phase| phase.shares_listeners)
        };
        let strands = self.strands.iter().zip(&self.group_of);
        let strands = strands.filter(|(_, group)| of_one_client(**group)).map(|(strand, _)| strand);
        for strand in strands.take(running.order.tcp_samples as usize) {
            let first = strand.sockets().take(1).map(|handle| self.net.socket(handle));
            for info in first.filter_map(Socket::tcp_info) {
                running.samples.push(TcpSample {
                    at: now,
                    group: strand.group,
                    strand: strand.number,
                    rtt_us: f64::from(info.rtt_us),
                    min_rtt_us: info.min_rtt_us.map_or(0.0, f64::from),
                    path_mtu: info.path_mtu,
                    cwnd: info.cwnd,
                    retransmits: info.retransmits,
                });
            }
        }
    }

    /// The phase is over for this worker.
    fn end(&mut self, unfinished: u64) {
        let drops = self.drops();
        self.net.sockets_mut().opener.reads_closing = true;
        if let Err(error) = self.net.settle(self.strands.iter().flat_map(Strand::sockets)) {
            self.failed_to_wait("files", error);
        }
        let Some(mut running) = self.running.take() else {
            return;
        };
        let start = running.start_edge.take().unwrap_or_default();
        let end = running.end_edge.take().unwrap_or_else(|| {
            running.fairness = self.fairness(&running);
            self.edge()
        });
        let segments = running.segments_after.unwrap_or_else(|| self.segments());
        let (mut group_transactions, mut strands) = (Vec::new(), Vec::new());
        if running.order.details {
            group_transactions = running.record.transactions_of_groups();
            let totals = |strand: &Strand<_>| StrandTotals {
                group: strand.group,
                strand: strand.number,
                bytes: strand.bytes(),
                transactions: strand.completed(),
            };
            strands = self.strands.iter().map(totals).collect();
        }
        running.followed.take_last(Monotonic.now(), self.strands.iter().map(Strand::bytes));
        let names = self.strands.iter().map(|strand| (strand.group, strand.number));
        let strand_series = running.followed.finish(names).collect();
        let (mut logged, mut not_logged) = (Vec::new(), 0);
        if let Some(log) = running.record.take_log() {
            let of_strands;
            (of_strands, not_logged) = log.finish(self.strands.len());
            let named = |(strand, operations): (&Strand<_>, _)| StrandOperations {
                group: strand.group,
                strand: strand.number,
                operations,
            };
            let all = self.strands.iter().zip(of_strands).map(named);
            logged = all.filter(|strand| !strand.operations.is_empty()).collect();
        }
        let io = self.net.io().since(running.io_before);
        let report = WorkerReport {
            worker: self.number,
            transactions: running.record.transactions(),
            group_transactions,
            strands,
            strand_series,
            logged,
            not_logged,
            latencies: running.record.latencies(),
            one_way: running.record.one_way_delays(),
            receive_stamps: self.net.sockets().stamp_counts(),
            verify_failures: running.record.verify_failures,
            file_checks: std::mem::take(&mut self.net.sockets_mut().data.checks),
            io,
            open: start.open,
            failed_connections: self.net.sockets().opener.failed_connections
                - running.failed_before,
            segments: segments.since(&running.segments_before.unwrap_or_default()),
            closed_unread: self.net.sockets().opener.closed_unread - running.closed_unread_before,
            tcp_samples: running.samples,
            fairness: running.fairness,
            drops: drops.saturating_sub(running.drops_before) + io.frames_dropped,
            unfinished,
            buffer_bytes: start.buffer_bytes.max(end.buffer_bytes),
            rejected_connections: self.net.sockets().opener.rejected_connections,
            settings: self.net.sockets().settings.iter().cloned().collect(),
            placements: self.net.sockets().settings.placements().clone(),
        };
        self.events.send(Event::Ended(Box::new(report)));
    }
}
