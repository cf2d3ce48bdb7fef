//! A strand: one independent actor that runs its group's steps. A small state machine that never
//! blocks by itself; an engine lets it run until it has to wait, and remembers what for.

mod answers;
mod connections;
mod datagrams;
mod low_water;
mod open;
mod operation;
mod outstanding;
mod pacing;
mod plain;
mod plain_datagrams;
mod sends;
mod transaction;
mod transfer;

use std::io;

use wirecost_model::clock::{MILLISECOND, Nanos};

use self::answers::Answers;
use self::connections::Connections;
use self::datagrams::Skip;
use self::operation::Operation;
use self::outstanding::Outstanding;
use self::pacing::Pacing;
use self::transaction::Transaction;
use crate::net::{Interest, Net, Owner};
use crate::payload::Patterns;
use crate::record::{Gauge, Record, WorkerCounters};
use crate::step::{Action, Coordinates, Phase, SendCall, Step, Think};

/// How much a strand may move before others of its worker get their turn. Enough that switching
/// costs little, little enough that a neighbour waits for microseconds only.
pub const TURN_BYTES: i64 = 256 << 10;
/// What an operation counts for at least, so that small ones do not make a turn endless.
const OPERATION_BYTES: i64 = 4 << 10;
/// What begins so much later than it was due is told, for the search for times in which nothing moved.
const LATE: Nanos = 100 * MILLISECOND;
/// Pause after an operation that failed at once, so that a broken connection does not make a strand
/// spin.
const FAILURE_PAUSE: Nanos = MILLISECOND;

/// When the transactions of a phase may begin.
#[derive(Debug, Clone, Copy)]
pub struct PhaseTiming {
    pub start: Nanos,
    /// When what counts begins; a trace is meant from then on.
    pub window: Nanos,
    /// Transactions begin before this instant only (0 where iterations decide).
    pub end: Nanos,
    /// No transaction may begin any more but those up to the strand's limit.
    pub closed: bool,
    /// The senders have ended: what has not arrived soon will not arrive.
    pub finishing: bool,
}

/// What a strand runs with: its worker's, lent for a turn.
#[derive(Debug)]
pub struct Context<'a, N: Net> {
    pub net: &'a mut N,
    pub record: &'a mut Record,
    pub patterns: &'a mut Patterns,
    pub timing: &'a PhaseTiming,
    /// How much the strand may move in this turn: [`TURN_BYTES`], or less.
    pub turn: i64,
    /// First bits of the number of each datagram, different in each phase.
    pub tag: u64,
}

/// How a turn ended.
#[derive(Debug)]
pub enum Turn {
    /// More could be done at once; let others run first.
    Again,
    Wait(Wait),
    /// Between two transactions, of which the next may not begin (yet).
    Quiesced,
    Failed(Box<StrandError>),
}

/// What a strand waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wait {
    pub slot: u32,
    pub on: Interest,
    pub until: Option<Nanos>,
}

/// Why a strand cannot go on.
#[derive(Debug, thiserror::Error)]
#[error("strand {strand} of group {group}: {kind} ({at}): {source}")]
pub struct StrandError {
    pub group: u32,
    pub strand: u32,
    pub kind: &'static str,
    pub at: wirecost_model::profile::Position,
    #[source]
    pub source: io::Error,
}

/// What a strand is doing, as far as it says whether a time without traffic is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Activity {
    /// An operation is under way.
    #[default]
    Working,
    /// It thinks, or waits for the instant at which its next transaction is to begin.
    Resting,
    /// It begins no more transactions.
    Ended,
}

impl Activity {
    fn gauge(self, counters: &WorkerCounters) -> Option<&Gauge> {
        match self {
            Activity::Working => Some(&counters.working),
            Activity::Resting => Some(&counters.resting),
            Activity::Ended => None,
        }
    }
}

/// What a strand knows of what it has received, and of what it may expect.
#[derive(Debug, Default)]
struct Received {
    /// Bytes that have been received for operations whose turn has not come, and when.
    ahead: u64,
    at: Nanos,
    /// When the last datagram came.
    last: Nanos,
    /// The connection that it has sent to last, in this turn: before the other end has that, the
    /// other end sends nothing that is not here already.
    last_sent_slot: Option<u32>,
}

#[derive(Debug)]
pub struct Strand<S> {
    /// Number of the group in the profile, of the strand in its group, and among its worker's.
    pub group: u32,
    pub number: u32,
    pub local: u32,
    connections: Connections<S>,
    transaction: Transaction,
    operation: Operation,
    /// Where requests do not wait for the answers to those before them.
    outstanding: Option<Box<Outstanding>>,
    /// Where it answers several clients together.
    answers: Option<Box<Answers>>,
    pacing: Pacing,
    received: Received,
    /// Where a datagram has come far behind what it waited for, and not all before it has been passed over.
    skip: Option<Box<Skip>>,
    activity: Activity,
    /// Since when it has had something to do; where it rests, when it is to go on.
    due: Nanos,
    /// Bytes sent and received since the phase began.
    bytes: u64,
}

impl<S> Strand<S> {
    /// `ids`: connection ids that it has.
    pub fn new(group: u32, number: u32, local: u32, ids: usize) -> Self {
        Self {
            group,
            number,
            local,
            connections: Connections::new(ids),
            transaction: Transaction::default(),
            operation: Operation::default(),
            outstanding: None,
            answers: None,
            pacing: Pacing::default(),
            received: Received::default(),
            skip: None,
            activity: Activity::default(),
            due: 0,
            bytes: 0,
        }
    }

    /// Makes ready for a phase that begins at `start`, where the strand has a part in it. Takes the memory that it
    /// needs there.
    pub fn enter(&mut self, phase: Option<&Phase>, start: Nanos, limit: u64) {
        self.transaction.enter(limit);
        self.operation.begin_phase(start);
        if let Some(phase) = phase {
            self.transaction.reserve(phase);
            self.operation.reserve(phase);
        }
        let most = phase.and_then(|phase| phase.outstanding);
        self.outstanding = most.map(|most| Box::new(Outstanding::new(most, start)));
        self.answers = phase.and_then(Answers::new).map(Box::new);
        self.pacing = Pacing::default();
        self.received.last = start;
        self.received.ahead = 0;
        self.skip = None;
        self.activity = Activity::Working;
        self.due = start;
        self.bytes = 0;
        self.connections.begin_phase();
    }

    /// Transactions that are over, completed or not.
    pub fn iteration(&self) -> u64 {
        self.transaction.iteration
    }

    /// Transactions up to this number may begin even after the gate has closed.
    pub fn limit(&self) -> u64 {
        self.transaction.limit
    }

    /// Lets transactions up to this number begin, unless more may already.
    pub fn raise_limit(&mut self, limit: u64) {
        self.transaction.limit = self.transaction.limit.max(limit);
    }

    /// Bytes sent and received since the phase began.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Transactions completed since the phase began.
    pub fn completed(&self) -> u64 {
        self.transaction.completed
    }

    /// Transactions begun: with those, both ends agree how many there are to be.
    pub fn started(&self) -> u64 {
        self.transaction.started()
    }

    /// Whether nothing is left to do up to the limit.
    pub fn finished(&self) -> bool {
        self.transaction.finished() && self.connections.abandoned() == 0 && !self.has_outstanding()
    }

    /// Open connections.
    pub fn sockets(&self) -> impl Iterator<Item = &S> {
        self.connections.sockets()
    }

    /// Which connection the strand waits for that is to arrive; `ids` are those of its group.
    pub fn awaited(&self, ids: &[u32]) -> Owner {
        let place = self.operation.place;
        Owner {
            group: self.group,
            strand: self.number,
            local: self.local,
            slot: self.operation.slot,
            id: ids.get(place as usize).copied().unwrap_or(0),
            ordinal: self.connections.ordinal(place),
        }
    }

    /// The connection in a slot, open or opening.
    pub fn socket(&self, slot: u32) -> Option<&S> {
        self.connections.socket(slot)
    }

    /// The connection that is being opened.
    pub fn opening(&mut self) -> Option<&mut S> {
        self.connections.opening()
    }

    /// What it does cannot go on.
    pub fn failure(&self, phase: &Phase, source: io::Error) -> StrandError {
        let step = phase.steps.get(self.transaction.step());
        StrandError {
            group: self.group,
            strand: self.number,
            kind: step.map_or("", |step| step.kind),
            at: step.map_or_else(Default::default, |step| step.at),
            source,
        }
    }

    fn id(&self, step: &Step) -> u32 {
        step.first_id + (self.operation.place - step.first)
    }

    fn owner(&self, step: &Step) -> Owner {
        Owner {
            group: self.group,
            strand: self.number,
            local: self.local,
            slot: self.operation.slot,
            id: self.id(step),
            ordinal: self.connections.ordinal(self.operation.place),
        }
    }

    /// Where the first operation of this execution of a step stands in the run.
    #[inline]
    fn coordinates(&self, step: &Step) -> Coordinates {
        let (strand, round) = (self.number, self.transaction.round);
        Coordinates { strand, round, conn: self.id(step), number: 0 }
    }

    /// Closes everything, also what is being opened.
    pub fn close_all<N: Net<Socket = S>>(&mut self, net: &mut N) {
        let (group, strand, local) = (self.group, self.number, self.local);
        let owner = |slot| Owner { group, strand, local, slot, id: 0, ordinal: 0 };
        for (slot, socket) in self.connections.take_all() {
            net.close(socket, owner(slot));
        }
        if let Some(socket) = self.connections.cancel_opening() {
            net.close(socket, owner(self.operation.slot));
        }
    }

    /// Runs until there is something to wait for, or the turn is over.
    pub fn run<N: Net<Socket = S>>(&mut self, phase: &Phase, context: &mut Context<'_, N>) -> Turn {
        let mut budget = context.turn;
        self.received.last_sent_slot = None;
        if let Some(turn) = self.run_outstanding(phase, context) {
            return turn;
        }
        if self.is_plain(phase, context) {
            match self.run_plain(phase, context, &mut budget) {
                Ok(Some(turn)) => return turn,
                Ok(None) => {}
                Err(error) => {
                    if let Some(turn) = self.fail_plain(phase, error, context) {
                        return turn;
                    }
                }
            }
        }
        self.run_general(phase, context, budget)
    }

    fn run_general<N: Net<Socket = S>>(
        &mut self,
        phase: &Phase,
        context: &mut Context<'_, N>,
        mut budget: i64,
    ) -> Turn {
        if let Some(turn) = self.go_on_skipping(phase, context) {
            return turn;
        }
        loop {
            if !self.transaction.running
                && let Some(turn) = self.begin_transaction(phase, context)
            {
                return turn;
            }
            if context.timing.closed
                && !self.transaction.engaged
                && self.transaction.iteration >= self.transaction.limit
            {
                // How many have begun has been said, and this one was not among them. What the
                // other side has begun to send is: such a transaction is taken up again.
                self.transaction.running = false;
                continue;
            }
            let Some(step) = phase.steps.get(self.transaction.step()) else {
                self.end_transaction(phase, context);
                // A transaction of steps that neither wait nor move anything must not run for ever.
                budget -= OPERATION_BYTES / 16;
                if budget <= 0 {
                    return Turn::Again;
                }
                continue;
            };
            if budget <= 0 {
                return Turn::Again;
            }
            if let Some(until) = self.pacing.paused(|| context.net.now()) {
                return self.wait(Interest::Nothing, Some(until));
            }
            let before = self.bytes;
            let outcome = self.operate(step, phase, context);
            budget -= OPERATION_BYTES.max((self.bytes - before) as i64);
            match outcome {
                Ok(None) => {}
                Ok(Some(turn)) => return turn,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    if let Some(turn) = self.fail(step, error, context) {
                        return turn;
                    }
                }
            }
        }
    }

    fn wait(&self, on: Interest, until: Option<Nanos>) -> Turn {
        Turn::Wait(Wait { slot: self.operation.slot, on, until })
    }

    /// Tells what the strand does from `now` on. Called where it begins and ends to rest only, which
    /// takes longer than this.
    fn set_activity(&mut self, activity: Activity, now: Nanos, counters: &WorkerCounters) {
        if self.activity != activity {
            if let Some(gauge) = self.activity.gauge(counters) {
                gauge.lower(1);
            }
            if let Some(gauge) = activity.gauge(counters) {
                gauge.raise(1);
            }
            self.activity = activity;
            note_late(self.due, now, counters);
        }
    }

    /// Has nothing to do until an instant after `now`.
    fn rest<N: Net<Socket = S>>(
        &mut self,
        now: Nanos,
        until: Nanos,
        context: &Context<'_, N>,
    ) -> Turn {
        self.set_activity(Activity::Resting, now, &context.record.counters);
        self.due = until;
        self.wait(Interest::Nothing, Some(until))
    }

    /// Between two transactions, of which the next may not begin.
    fn quiesce<N: Net<Socket = S>>(&mut self, context: &mut Context<'_, N>) -> Turn {
        let now = context.net.now();
        self.set_activity(Activity::Ended, now, &context.record.counters);
        Turn::Quiesced
    }

    /// `None` when a transaction has begun.
    fn begin_transaction<N: Net<Socket = S>>(
        &mut self,
        phase: &Phase,
        context: &mut Context<'_, N>,
    ) -> Option<Turn> {
        let timing = context.timing;
        let iteration = self.transaction.iteration;
        let within_limit = iteration < self.transaction.limit;
        let mut start = self.operation.start.max(timing.start);
        if !within_limit {
            if timing.closed {
                let turn = self.settle(context);
                return Some(turn.unwrap_or_else(|| self.quiesce(context)));
            }
            if start.saturating_sub(phase.lead) >= timing.end {
                return Some(self.quiesce(context));
            }
        }
        if let (Some(pace), false) = (&phase.pace, timing.closed) {
            // Open loop: the intended starts do not depend on how long anything took.
            let from = if pace.is_trace() { timing.window } else { timing.start };
            let intended = from.saturating_add(self.pacing.intended(pace, self.number, iteration));
            let now = context.net.now();
            // What is handed over before the end may leave after it: else nothing would be handed over in the last LEAD.
            let handed_over = intended.saturating_sub(phase.lead);
            if now.max(handed_over) >= timing.end && !within_limit {
                return Some(self.quiesce(context));
            }
            if now < handed_over {
                return Some(self.rest(now, handed_over, context));
            }
            if phase.lead > 0 {
                self.pacing.schedule(pace, self.number, intended);
            }
            self.set_activity(Activity::Working, now, &context.record.counters);
            note_late(intended, now, &context.record.counters);
            start = intended;
        } else {
            self.pacing.unschedule();
        }
        self.transaction.begin(start);
        self.operation.start = start;
        self.first_step(phase);
        None
    }

    fn end_transaction<N: Net<Socket = S>>(&mut self, phase: &Phase, context: &mut Context<'_, N>) {
        let end = self.operation.start;
        let latency = self.transaction.end(phase, end);
        // One that is an operation has been recorded as that.
        if let Some(latency) = latency
            && phase.whole.is_none()
        {
            context.record.transaction(self.group, latency, end);
        }
    }

    /// Begins the steps of this iteration.
    fn first_step(&mut self, phase: &Phase) {
        self.transaction.first_step(phase, self.number);
        self.enter_step(phase);
    }

    fn enter_step(&mut self, phase: &Phase) {
        self.operation.over();
        let step = phase.steps.get(self.transaction.step());
        self.enter_place(step.map_or(self.operation.place, |step| step.first));
    }

    /// Goes on to the newest connection of a place.
    #[inline]
    fn enter_place(&mut self, place: u32) {
        let slot = self.connections.top(place);
        self.operation.enter(place, slot);
    }

    /// Ends the operation under way and moves on to the next one.
    #[inline]
    fn advance(&mut self, step: &Step, phase: &Phase) {
        self.operation.over();
        self.operation.number += 1;
        let slot = self.operation.slot;
        if step.datagram
            && step.receives()
            && let Some(conn) = self.connections.get_mut(slot)
        {
            conn.expected += 1;
        }
        let messages = step.messages();
        let at = self.coordinates(step);
        if self.operation.has_more(step, messages, at) {
            return;
        }
        if let Some(messages) = messages
            && messages.verify
            && messages.unit.is_some()
            && let Some(conn) = self.connections.get_mut(slot)
        {
            let numbered = if step.sends() { &mut conn.sent } else { &mut conn.received };
            *numbered += step.count;
        }
        if self.operation.place < step.last {
            self.enter_place(self.operation.place + 1);
            return;
        }
        self.transaction.next_step(phase, self.number);
        self.enter_step(phase);
    }

    /// Completes the operation under way, `now`.
    #[inline]
    fn complete<N: Net<Socket = S>>(
        &mut self,
        step: &Step,
        phase: &Phase,
        now: Nanos,
        context: &mut Context<'_, N>,
    ) {
        self.transaction.engaged = true;
        // What follows a datagram begins when it is to leave (`txtime`), which may be later than now.
        let now = now.max(self.operation.start);
        match self.operation.overdue {
            false => context.record.done(step.row, self.operation.start, now),
            true => context.record.failure_ended(self.operation.start, now),
        }
        self.operation.start = now;
        self.advance(step, phase);
    }

    /// Counts a failed operation where the profile lets it fail; else ends the strand.
    fn fail<N: Net<Socket = S>>(
        &mut self,
        step: &Step,
        error: io::Error,
        context: &mut Context<'_, N>,
    ) -> Option<Turn> {
        let timed_out = error.kind() == io::ErrorKind::TimedOut;
        let lost_datagram = timed_out && step.datagram;
        context.record.failed(step.row, timed_out);
        if !step.can_fail && !lost_datagram {
            return Some(Turn::Failed(Box::new(StrandError {
                group: self.group,
                strand: self.number,
                kind: step.kind,
                at: step.at,
                source: error,
            })));
        }
        self.transaction.failed = true;
        self.transaction.engaged = true;
        let now = context.net.now();
        let end = now.max(self.operation.start);
        context.record.failure_ended(self.operation.start, end);
        self.operation.start = end;
        if !timed_out {
            self.pacing.pause(now + FAILURE_PAUSE);
        }
        None
    }

    #[cold]
    fn fail_plain<N: Net<Socket = S>>(
        &mut self,
        phase: &Phase,
        error: io::Error,
        context: &mut Context<'_, N>,
    ) -> Option<Turn> {
        let step = &phase.steps[self.transaction.step()];
        let conn = self.connections.get(self.operation.slot);
        if error.kind() == io::ErrorKind::Interrupted
            || conn.is_some_and(|conn| context.net.take_hello_refusal(&conn.socket, &error))
        {
            return None;
        }
        self.fail(step, error, context)
    }

    /// One attempt at the operation under way. `Ok(None)`: something happened, go on.
    fn operate<N: Net<Socket = S>>(
        &mut self,
        step: &Step,
        phase: &Phase,
        context: &mut Context<'_, N>,
    ) -> io::Result<Option<Turn>> {
        let result = match &step.action {
            Action::Send(send) => match send.call {
                SendCall::Plain(_) => self.send(step, phase, &send.messages, send.call, context),
                SendCall::StreamSend(way) => {
                    self.send_streamed(step, phase, &send.messages, way, context)
                }
                SendCall::Batched(sends) if phase.answers_together => {
                    self.send_answers(step, phase, &send.messages, sends, context)
                }
                SendCall::Batched(sends) => {
                    self.send_batch(step, phase, &send.messages, sends, context)
                }
                SendCall::FromFile(source) => {
                    self.send_from_file(step, phase, &send.messages, source, context)
                }
            },
            Action::Receive(receive) if step.datagram => {
                self.receive_datagram(step, phase, receive, context)
            }
            Action::Receive(receive) => self.receive(step, phase, receive, context),
            Action::SendFile(send) => self.send_file(step, phase, send, context),
            Action::Connect(open) => self.connect(step, phase, open, context),
            Action::Accept(open) => self.accept(step, phase, open, context),
            Action::Close => self.close(step, phase, context),
            Action::ShutDown => self.shut_down(step, phase, context),
            Action::ReceiveEnd => self.receive_end(step, phase, context),
            Action::Think(think) => return Ok(self.think(step, phase, think, context)),
            Action::Nothing => {
                let now = self.operation.start;
                self.complete(step, phase, now, context);
                return Ok(None);
            }
        };
        if let Err(error) = &result
            && error.kind() != io::ErrorKind::Interrupted
        {
            if let Some(conn) = self.connections.get(self.operation.slot)
                && context.net.take_hello_refusal(&conn.socket, error)
            {
                return Err(io::ErrorKind::Interrupted.into());
            }
            if let Some(socket) = self.connections.cancel_opening() {
                context.net.close(socket, self.owner(step));
            }
            self.give_up(step, phase, error.kind() == io::ErrorKind::TimedOut, context);
        }
        result
    }

    /// Moves on past an operation that failed, so that a strand that may go on does.
    fn give_up<N: Net<Socket = S>>(
        &mut self,
        step: &Step,
        phase: &Phase,
        timed_out: bool,
        context: &Context<'_, N>,
    ) {
        if !(step.can_fail || (timed_out && step.datagram)) {
            return;
        }
        let slot = self.operation.slot;
        if self.operation.begun
            && let Some(messages) = step.messages()
        {
            let rest = self.operation.left();
            if let (Action::Receive(receive), Some(conn)) =
                (&step.action, self.connections.get_mut(slot))
            {
                if !step.datagram {
                    conn.received += u64::from(messages.verify && messages.unit.is_none());
                    self.connections.abandon(slot, step.row, rest);
                } else if receive.reply {
                    // Its number is passed, as if a later one had come. (If a later one of the same
                    // transaction has come, the number has been passed already.)
                    let next = conn.expected + 1;
                    context.record.counters.gaps.add(next.saturating_sub(conn.received));
                    conn.pass_over(next, &context.record.counters.arrivals);
                }
            }
            self.operation.spend();
            let at = self.coordinates(step);
            self.operation.pass(step, messages, at, rest);
        }
        if let Action::Receive(receive) = &step.action {
            self.operation.silent |= timed_out && receive.impatient;
        }
        self.advance(step, phase);
    }

    /// Waits for a connection unless the operation has taken too long already.
    fn wait_or_time_out<N: Net<Socket = S>>(
        &mut self,
        step: &Step,
        on: Interest,
        context: &mut Context<'_, N>,
    ) -> io::Result<Turn> {
        let mut until = None;
        if let Some(timeout) = step.timeout
            && !self.operation.overdue
        {
            let now = context.net.now();
            if self.operation.due == 0 {
                // From now on, not from the operation's intended start: a strand that has fallen
                // behind waits as long as any other.
                let wait = if self.operation.silent { 0 } else { timeout };
                // Nor before what it answers has left.
                self.operation.due = now.max(self.operation.start).saturating_add(wait);
            }
            if now < self.operation.due {
                until = Some(self.operation.due);
            } else if step.can_fail
                && !step.datagram
                && matches!(step.action, Action::Send(_) | Action::SendFile(_))
            {
                // The other end expects the whole message, so it is still sent.
                context.record.failed(step.row, true);
                self.operation.overdue = true;
                self.transaction.failed = true;
            } else {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    format!("nothing for {} ms", timeout / MILLISECOND),
                ));
            }
        }
        // Datagrams that never come are given up by the worker, which looks now and then.
        Ok(self.wait(on, until))
    }

    fn think<N: Net<Socket = S>>(
        &mut self,
        step: &Step,
        phase: &Phase,
        think: &Think,
        context: &mut Context<'_, N>,
    ) -> Option<Turn> {
        let now = context.net.now();
        if self.operation.due == 0 {
            let at = self.coordinates(step);
            let number = self.operation.number;
            self.operation.begin(think.length.at(Coordinates { number, ..at }));
            // From now on, not from the intended start: a delay is not a thought.
            self.operation.due = now.saturating_add(self.operation.length);
        }
        let until = self.operation.due;
        self.transaction.engaged = true;
        if now < until {
            let rest = self.rest(now, until, context);
            // Busy strands of one worker spin in turns, so they overlap as busy threads would.
            return Some(if think.busy { Turn::Again } else { rest });
        }
        self.set_activity(Activity::Working, now, &context.record.counters);
        self.transaction.think(now - (until - self.operation.length));
        self.complete(step, phase, now, context);
        None
    }
}

/// Tells the search for times in which nothing moved that something was due since `due` and has not
/// happened before `now`.
fn note_late(due: Nanos, now: Nanos, counters: &WorkerCounters) {
    if now.saturating_sub(due) >= LATE {
        counters.late_since.note(due);
    }
}
