//! A strand: one independent actor that runs its group's steps. A small state machine that never
//! blocks by itself; an engine lets it run until it has to wait, and remembers what for.

mod calls;
mod datagrams;
mod gathering;
mod opening;
mod transfer;

use std::io;

use wirecost_model::clock::{MILLISECOND, Nanos, SECOND};

use self::gathering::Gathering;
use crate::draw;
use crate::net::{Interest, Net, Owner};
use crate::payload::Patterns;
use crate::record::Record;
use crate::route::Place;
use crate::step::{Action, Phase, SendCall, Step};

/// How much a strand may move before others of its worker get their turn. Enough that switching
/// costs little, little enough that a neighbour waits for microseconds only.
pub const TURN_BYTES: i64 = 256 << 10;
/// What an operation counts for at least, so that small ones do not make a turn endless.
const OPERATION_BYTES: i64 = 4 << 10;
/// Pause after an operation that failed at once, so that a broken connection does not make a strand
/// spin.
const FAILURE_PAUSE: Nanos = MILLISECOND;

/// How long a strand waits for the other side to begin a transaction that may have failed there, once
/// all have been agreed on.
const LEFT_ALONE: Nanos = SECOND;

/// When the transactions of a phase may begin.
#[derive(Debug, Clone, Copy)]
pub struct Gate {
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
    pub gate: &'a Gate,
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
    Held,
    Failed(StrandError),
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

/// One connection of a strand.
#[derive(Debug)]
struct Conn<S> {
    socket: S,
    connector: bool,
    gathering: Gathering,
    /// Bytes still to come of messages that a time-out has given up, and the row they belong to.
    owed: u64,
    owed_row: u32,
    /// Numbered messages sent and received, or the numbers they would have had.
    sent: u64,
    received: u64,
    /// Datagrams that were to be received so far, whether or not they came.
    passed: u64,
}

#[derive(Debug)]
pub struct Strand<S> {
    /// Number of the group in the profile, of the strand in its group, and among its worker's.
    pub group: u32,
    pub number: u32,
    pub local: u32,
    conns: Box<[Option<Conn<S>>]>,
    opening: Option<S>,
    openings: u64,
    /// Transactions that are over, completed or not.
    pub iteration: u64,
    /// Transactions up to this number may begin even after the gate has closed.
    pub limit: u64,
    /// Within a transaction, and whether anything of it has happened yet.
    running: bool,
    engaged: bool,
    failed: bool,
    /// Nothing has come within an impatient time-out of this step.
    silent: bool,
    step: u32,
    place: Place,
    /// Which execution of the step it is, as a number to draw with.
    round: u64,
    /// Transactions up to the last one in which anything happened here.
    reached: u64,
    /// Intended start of the transaction before number `arrivals`, from the beginning of the phase.
    arrival: Nanos,
    arrivals: u64,
    slot: u32,
    operation: u64,
    begun: bool,
    /// Of the operation: its length (of a thought, its nanoseconds), and what has been moved of it.
    length: u64,
    moved: u64,
    /// Bytes left of the step on this connection, where its operations have a length of their own.
    left: u64,
    /// Where operations are not messages but messages are numbered: the message under way, and how
    /// much of it has been moved.
    message: u64,
    offset: u64,
    /// When the operation under way times out, or the thought ends; 0 until it is known.
    due: Nanos,
    /// The operation under way has been counted as failed already.
    overdue: bool,
    /// Bytes owed on all connections.
    owed: u64,
    /// The connection to which it has sent last, in this turn: before the other end has that, it sends nothing
    /// that is not here already.
    asked: Option<u32>,
    /// Bytes that have been received for operations whose turn has not come, and when.
    ahead: u64,
    received_at: Nanos,
    operation_start: Nanos,
    transaction_start: Nanos,
    thought: Nanos,
    /// No attempt before this instant.
    pause: Nanos,
    heard: Nanos,
    /// Bytes sent and received, and transactions completed, since the phase began.
    pub bytes: u64,
    pub completed: u64,
}

impl<S> Strand<S> {
    pub fn new(group: u32, number: u32, local: u32, slots: usize) -> Self {
        Self {
            group,
            number,
            local,
            conns: (0..slots).map(|_| None).collect(),
            opening: None,
            openings: 0,
            iteration: 0,
            limit: 0,
            running: false,
            engaged: false,
            failed: false,
            silent: false,
            step: 0,
            place: Place::default(),
            round: 0,
            reached: 0,
            arrival: 0,
            arrivals: 0,
            slot: 0,
            operation: 0,
            begun: false,
            length: 0,
            moved: 0,
            left: 0,
            message: 0,
            offset: 0,
            due: 0,
            overdue: false,
            owed: 0,
            asked: None,
            ahead: 0,
            received_at: 0,
            operation_start: 0,
            transaction_start: 0,
            thought: 0,
            pause: 0,
            heard: 0,
            bytes: 0,
            completed: 0,
        }
    }

    /// Makes ready for a phase that begins at `start`.
    pub fn enter(&mut self, start: Nanos, limit: u64) {
        self.iteration = 0;
        self.reached = 0;
        self.arrival = 0;
        self.arrivals = 0;
        self.limit = limit;
        self.running = false;
        self.engaged = false;
        self.operation_start = start;
        self.pause = 0;
        self.heard = start;
        self.bytes = 0;
        self.completed = 0;
        self.ahead = 0;
        for conn in self.conns.iter_mut().flatten() {
            conn.sent = 0;
            conn.received = 0;
            conn.passed = 0;
        }
    }

    /// Transactions begun: with those, both ends agree how many there are to be. Where it draws what
    /// is in a transaction, a host may be ahead by some that have nothing in them for it.
    pub fn started(&self) -> u64 {
        if self.running && self.engaged { self.iteration + 1 } else { self.reached }
    }

    /// Whether nothing is left to do up to the limit.
    pub fn finished(&self) -> bool {
        self.iteration >= self.limit && !(self.running && self.engaged) && self.owed == 0
    }

    /// Open connections.
    pub fn sockets(&self) -> impl Iterator<Item = &S> {
        self.conns.iter().flatten().map(|conn| &conn.socket)
    }

    /// The connection in a slot, open or opening.
    pub fn socket(&self, slot: u32) -> Option<&S> {
        let open = self.conns.get(slot as usize)?.as_ref().map(|conn| &conn.socket);
        self.opening.as_ref().or(open)
    }

    fn owner(&self, step: &Step) -> Owner {
        Owner {
            group: self.group,
            strand: self.number,
            local: self.local,
            slot: self.slot,
            id: step.first_id + (self.slot - step.first),
        }
    }

    /// Closes everything, also what is being opened.
    pub fn close_all<N: Net<Socket = S>>(&mut self, net: &mut N) {
        let owner =
            |slot| Owner { group: self.group, strand: self.number, local: self.local, slot, id: 0 };
        for (slot, conn) in self.conns.iter_mut().enumerate() {
            if let Some(conn) = conn.take() {
                net.close(conn.socket, owner(slot as u32));
            }
        }
        self.owed = 0;
        if let Some(socket) = self.opening.take() {
            net.close(socket, owner(self.slot));
        }
    }

    /// Runs until there is something to wait for, or the turn is over.
    pub fn run<N: Net<Socket = S>>(&mut self, phase: &Phase, context: &mut Context<'_, N>) -> Turn {
        let mut budget = context.turn;
        self.asked = None;
        loop {
            if !self.running
                && let Some(turn) = self.begin_transaction(phase, context)
            {
                return turn;
            }
            if !self.engaged && context.gate.closed && self.iteration >= self.limit {
                // How many have begun has been said, and this one was not among them. What the
                // other side has begun to send is: such a transaction is taken up again.
                self.running = false;
                continue;
            }
            let Some(step) = phase.steps.get(self.step as usize) else {
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
            if self.pause > 0 {
                if context.net.now() < self.pause {
                    return self.wait(Interest::Nothing, Some(self.pause));
                }
                self.pause = 0;
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
        Turn::Wait(Wait { slot: self.slot, on, until })
    }

    /// `None` when a transaction has begun.
    fn begin_transaction<N: Net<Socket = S>>(
        &mut self,
        phase: &Phase,
        context: &mut Context<'_, N>,
    ) -> Option<Turn> {
        let gate = context.gate;
        let mut start = self.operation_start.max(gate.start);
        if self.iteration >= self.limit {
            if gate.closed {
                return Some(self.settle(context).unwrap_or(Turn::Held));
            }
            if start >= gate.end {
                return Some(Turn::Held);
            }
        }
        if let (Some(pace), false) = (&phase.pace, gate.closed) {
            // Open loop: the intended starts do not depend on how long anything took.
            while self.arrivals <= self.iteration {
                self.arrival = pace.intended(self.number, self.arrivals, self.arrival);
                self.arrivals += 1;
            }
            let from = if pace.is_trace() { gate.window } else { gate.start };
            let intended = from.saturating_add(self.arrival);
            let now = context.net.now();
            if now.max(intended) >= gate.end && self.iteration >= self.limit {
                return Some(Turn::Held);
            }
            if now < intended {
                return Some(self.wait(Interest::Nothing, Some(intended)));
            }
            start = intended;
        }
        self.running = true;
        self.engaged = false;
        self.failed = false;
        self.transaction_start = start;
        self.operation_start = start;
        self.thought = 0;
        self.first_step(phase);
        None
    }

    fn end_transaction<N: Net<Socket = S>>(&mut self, phase: &Phase, context: &mut Context<'_, N>) {
        let end = self.operation_start;
        if self.engaged {
            self.reached = self.iteration + 1;
        }
        // Of a mix another host may have had all.
        if !self.failed && (self.engaged || !phase.mixed) {
            // One that is an operation has been recorded as that.
            if phase.whole.is_none() {
                let latency = end.saturating_sub(self.transaction_start + self.thought);
                context.record.transaction(latency, end);
            }
            self.completed += 1;
        }
        self.iteration += 1;
        self.running = false;
    }

    /// Begins the steps of this iteration.
    fn first_step(&mut self, phase: &Phase) {
        self.round = self.iteration;
        match &phase.route {
            None => {
                self.step = 0;
                self.enter_step(phase);
            }
            Some(_) => {
                self.place = Place::default();
                self.next_step(phase);
            }
        }
    }

    fn next_step(&mut self, phase: &Phase) {
        match &phase.route {
            None => self.step += 1,
            Some(route) => {
                self.step = route.next(&mut self.place, self.number, self.iteration);
                self.round = match self.place.pass {
                    0 => self.iteration,
                    pass => draw::mix(self.iteration) ^ pass,
                };
            }
        }
        self.enter_step(phase);
    }

    fn enter_step(&mut self, phase: &Phase) {
        self.silent = false;
        self.operation = 0;
        self.begun = false;
        self.due = 0;
        self.overdue = false;
        if let Some(step) = phase.steps.get(self.step as usize) {
            self.slot = step.first;
        }
    }

    /// Ends the operation under way and moves on to the next one.
    fn advance(&mut self, step: &Step, phase: &Phase) {
        self.begun = false;
        self.due = 0;
        self.overdue = false;
        self.operation += 1;
        if step.datagram
            && matches!(step.action, Action::Receive(_))
            && let Some(conn) = &mut self.conns[self.slot as usize]
        {
            conn.passed += 1;
        }
        let more = match step.unit {
            Some(_) if matches!(step.action, Action::Send(_) | Action::Receive(_)) => self.left > 0,
            _ => self.operation < step.count,
        };
        if more {
            return;
        }
        if step.unit.is_some()
            && step.verify
            && let Some(conn) = &mut self.conns[self.slot as usize]
        {
            match step.action {
                Action::Send(_) => conn.sent += step.count,
                Action::Receive(_) => conn.received += step.count,
                _ => {}
            }
        }
        if self.slot < step.last {
            self.slot += 1;
            self.operation = 0;
            self.silent = false;
            return;
        }
        self.next_step(phase);
    }

    /// Completes the operation under way, `now`.
    fn complete<N: Net<Socket = S>>(
        &mut self,
        step: &Step,
        phase: &Phase,
        now: Nanos,
        context: &mut Context<'_, N>,
    ) {
        self.engaged = true;
        if !self.overdue {
            context.record.done(step.row, self.operation_start, now);
        }
        self.operation_start = now;
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
            return Some(Turn::Failed(StrandError {
                group: self.group,
                strand: self.number,
                kind: step.kind,
                at: step.at,
                source: error,
            }));
        }
        self.failed = true;
        self.engaged = true;
        let now = context.net.now();
        self.operation_start = now;
        if !timed_out {
            self.pause = now + FAILURE_PAUSE;
        }
        None
    }

    /// One attempt at the operation under way. `Ok(None)`: something happened, go on.
    fn operate<N: Net<Socket = S>>(
        &mut self,
        step: &Step,
        phase: &Phase,
        context: &mut Context<'_, N>,
    ) -> io::Result<Option<Turn>> {
        let result = match step.action {
            Action::Send(SendCall::Streamed(way)) => self.send_streamed(step, phase, way, context),
            Action::Send(SendCall::Several(sends)) => {
                self.send_several(step, phase, sends, context)
            }
            Action::Send(call) => self.send(step, phase, call, context),
            Action::Receive(call) => self.receive(step, phase, call, context),
            Action::SendFile => self.send_file(step, phase, context),
            Action::Connect => self.connect(step, phase, context),
            Action::Accept => self.accept(step, phase, context),
            Action::Close => self.close(step, phase, context),
            Action::Think => return Ok(self.think(step, phase, context)),
            Action::Nothing => {
                let now = self.operation_start;
                self.complete(step, phase, now, context);
                return Ok(None);
            }
        };
        if let Err(error) = &result
            && error.kind() != io::ErrorKind::Interrupted
        {
            if let Some(socket) = self.opening.take() {
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
        if self.begun {
            let rest = self.length.saturating_sub(self.moved);
            if let (Action::Receive(_), Some(conn)) =
                (step.action, &mut self.conns[self.slot as usize])
            {
                if !step.datagram {
                    conn.owed += rest;
                    conn.owed_row = step.row;
                    self.owed += rest;
                    conn.received += u64::from(step.verify && step.unit.is_none());
                } else if step.reply {
                    // Its number is passed, as if a later one had come. (If a later one of the same
                    // transaction has come, the number has been passed already.)
                    let next = conn.passed + 1;
                    context.record.counters.gaps.add(next.saturating_sub(conn.received));
                    conn.received = next.max(conn.received);
                }
            }
            self.left = self.left.saturating_sub(self.length);
            self.pass(step, rest);
        }
        self.silent |= timed_out && step.impatient;
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
            && !self.overdue
        {
            let now = context.net.now();
            if self.due == 0 {
                // From now on, not from the operation's intended start: a strand that has fallen
                // behind waits as long as any other.
                self.due = now.saturating_add(if self.silent { 0 } else { timeout });
            }
            if now < self.due {
                until = Some(self.due);
            } else if step.can_fail
                && !step.datagram
                && matches!(step.action, Action::Send(_) | Action::SendFile)
            {
                // The other end expects the whole message, so it is sent all the same.
                context.record.failed(step.row, true);
                self.overdue = true;
                self.failed = true;
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
        context: &mut Context<'_, N>,
    ) -> Option<Turn> {
        let now = context.net.now();
        if self.due == 0 {
            self.begin(step);
            // From now on, not from the intended start: a delay is not a thought.
            self.due = now.saturating_add(self.length);
        }
        let until = self.due;
        self.engaged = true;
        if now < until {
            // Busy strands of one worker spin in turns, so they overlap as busy threads would.
            return Some(if step.busy {
                Turn::Again
            } else {
                self.wait(Interest::Nothing, Some(until))
            });
        }
        self.thought += now - (until - self.length);
        self.complete(step, phase, now, context);
        None
    }
}
