//! A strand: one independent actor that runs its group's steps. A small state machine that never
//! blocks by itself; an engine lets it run until it has to wait, and remembers what for.

use std::io;

use wirecost_model::clock::{MILLISECOND, Nanos, SECOND};

use crate::net::{Interest, Net, Opening, Owner};
use crate::payload::{self, Patterns};
use crate::record::Record;
use crate::step::{Action, Phase, ReceiveCall, SendCall, Step};

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
    pub buffer: &'a mut [u8],
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
    /// Bytes still to come of messages that a time-out has given up, and the row they belong to.
    owed: u64,
    owed_row: u32,
    /// Numbered messages sent and received, or the numbers they would have had.
    sent: u64,
    received: u64,
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
    step: u32,
    slot: u32,
    operation: u64,
    begun: bool,
    /// Of the operation: its length, and what has been moved of it.
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
            step: 0,
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
        self.limit = limit;
        self.running = false;
        self.engaged = false;
        self.operation_start = start;
        self.pause = 0;
        self.heard = start;
        self.bytes = 0;
        self.completed = 0;
        for conn in self.conns.iter_mut().flatten() {
            conn.sent = 0;
            conn.received = 0;
        }
    }

    /// Transactions begun: with those, both ends agree how many there are to be.
    pub fn started(&self) -> u64 {
        self.iteration + u64::from(self.running && self.engaged)
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
                self.end_transaction(context);
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
        if let (Some(period), false) = (phase.period, gate.closed) {
            // Even and open loop: the intended starts do not depend on how long anything took.
            // Strands begin one after another within the first period.
            let offset = period / 64 * u64::from(self.number % 64);
            let intended = gate.start + offset + self.iteration * period;
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
        self.step = 0;
        self.enter_step(phase);
        None
    }

    fn end_transaction<N: Net<Socket = S>>(&mut self, context: &mut Context<'_, N>) {
        let end = self.operation_start;
        if !self.failed {
            let latency = end.saturating_sub(self.transaction_start + self.thought);
            context.record.transaction(latency, end);
            self.completed += 1;
        }
        self.iteration += 1;
        self.running = false;
    }

    fn enter_step(&mut self, phase: &Phase) {
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
            return;
        }
        self.step += 1;
        self.enter_step(phase);
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
                    let next =
                        phase.position(self.step, self.slot, self.iteration) + self.operation + 1;
                    context.record.counters.gaps.add(next.saturating_sub(conn.received));
                    conn.received = next.max(conn.received);
                }
            }
            self.left = self.left.saturating_sub(self.length);
            self.pass(step, rest);
        }
        self.advance(step, phase);
    }

    fn id(&self, step: &Step) -> u32 {
        step.first_id + (self.slot - step.first)
    }

    /// Length of the operation that begins now.
    fn begin(&mut self, step: &Step) {
        let id = self.id(step);
        match step.unit {
            Some(unit) if !matches!(step.action, Action::SendFile) => {
                if self.operation == 0 {
                    self.left = (0..step.count)
                        .map(|i| step.length(self.number, self.iteration, id, i))
                        .sum();
                    self.message = 0;
                    self.offset = 0;
                    self.pass(step, 0);
                }
                self.length = unit.max(1).min(self.left);
            }
            _ => self.length = step.length(self.number, self.iteration, id, self.operation),
        }
        self.moved = 0;
        self.begun = true;
    }

    /// Keeps account of the message under way, where operations are not messages.
    fn pass(&mut self, step: &Step, bytes: u64) {
        if !step.verify || step.unit.is_none() {
            return;
        }
        let id = self.id(step);
        self.offset += bytes;
        while self.message < step.count {
            let length = step.length(self.number, self.iteration, id, self.message);
            if self.offset < length {
                return;
            }
            self.offset -= length;
            self.message += 1;
        }
    }

    /// Of the message under way: which one of the step it is, its bytes moved, and those left.
    fn message(&self, step: &Step) -> (u64, u64, u64) {
        if !step.verify || step.unit.is_none() {
            return (0, self.moved, self.length - self.moved);
        }
        let length = step.length(self.number, self.iteration, self.id(step), self.message);
        let left = (self.length - self.moved).min(length.saturating_sub(self.offset));
        (self.message, self.offset, left)
    }

    /// Receives what earlier time-outs have left, so that the next phase finds connections empty.
    fn settle<N: Net<Socket = S>>(&mut self, context: &mut Context<'_, N>) -> Option<Turn> {
        let mut blocked = None;
        for (slot, conn) in self.conns.iter_mut().enumerate() {
            let Some(conn) = conn else { continue };
            while conn.owed > 0 {
                let most = usize::try_from(conn.owed).unwrap_or(usize::MAX);
                let wanted = context.buffer.len().min(most);
                let buffer = &mut context.buffer[..wanted];
                let got = match context.net.receive(&conn.socket, buffer, ReceiveCall::Recv, true) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        blocked = Some(slot as u32);
                        break;
                    }
                    // A connection that is gone owes nothing.
                    Ok(0) | Err(_) => conn.owed,
                    Ok(got) => {
                        context.record.received(conn.owed_row, conn.connector, got as u64);
                        self.bytes += got as u64;
                        got as u64
                    }
                };
                conn.owed -= got;
                self.owed -= got;
            }
        }
        let wait = Wait { slot: blocked?, on: Interest::Readable, until: None };
        Some(Turn::Wait(wait))
    }

    /// There is no room to send.
    fn no_room<N: Net<Socket = S>>(
        &mut self,
        step: &Step,
        context: &mut Context<'_, N>,
    ) -> io::Result<Turn> {
        let mut turn = self.wait_or_time_out(step, Interest::Writable, context)?;
        // The other end may have none either, for what a time-out has given up here.
        if self.owed > 0
            && let Some(Turn::Wait(_)) = self.settle(context)
            && let Turn::Wait(wait) = &mut turn
        {
            let soon = context.net.now() + MILLISECOND;
            wait.until = Some(wait.until.map_or(soon, |until| until.min(soon)));
        }
        Ok(turn)
    }

    fn conn(&mut self) -> io::Result<&mut Conn<S>> {
        self.conns[self.slot as usize].as_mut().ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotConnected, "the strand has no such connection open")
        })
    }

    fn send<N: Net<Socket = S>>(
        &mut self,
        step: &Step,
        phase: &Phase,
        call: SendCall,
        context: &mut Context<'_, N>,
    ) -> io::Result<Option<Turn>> {
        if !self.begun {
            self.begin(step);
        }
        let (message, offset, left) = self.message(step);
        let conn = self.conn()?;
        let stamp = (step.datagram || step.verify).then_some(context.tag | (conn.sent + message));
        let piece = context.patterns.piece(step.payload, offset, left, stamp);
        let sent = match context.net.send(&conn.socket, piece, call) {
            Ok(sent) => sent as u64,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Ok(Some(self.no_room(step, context)?));
            }
            Err(error) => return Err(error),
        };
        context.record.sent(step.row, conn.connector, sent);
        self.engaged = true;
        self.bytes += sent;
        self.moved += sent;
        self.pass(step, sent);
        if self.moved >= self.length {
            if stamp.is_some() && step.unit.is_none() {
                self.conn()?.sent += 1;
            }
            if step.datagram {
                context.record.counters.datagrams_sent.add(1);
            }
            self.left = self.left.saturating_sub(self.length);
            let now = context.net.now();
            self.complete(step, phase, now, context);
        }
        Ok(None)
    }

    fn send_file<N: Net<Socket = S>>(
        &mut self,
        step: &Step,
        phase: &Phase,
        context: &mut Context<'_, N>,
    ) -> io::Result<Option<Turn>> {
        if !self.begun {
            self.begin(step);
        }
        if self.moved < self.length {
            let id = self.id(step);
            let file = step.file_index(self.number, self.iteration, id, self.operation);
            let piece = (self.length - self.moved).min(step.unit.unwrap_or(u64::MAX));
            let moved = self.moved;
            let conn = self.conn()?;
            let sent = match context.net.send_file(&conn.socket, step, file, moved, piece) {
                Ok(0) => {
                    return Err(io::Error::new(
                        io::ErrorKind::UnexpectedEof,
                        "a file is shorter than it was when the run began",
                    ));
                }
                Ok(sent) => sent as u64,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(Some(self.no_room(step, context)?));
                }
                Err(error) => return Err(error),
            };
            context.record.sent(step.row, conn.connector, sent);
            self.engaged = true;
            self.bytes += sent;
            self.moved += sent;
        }
        if self.moved >= self.length {
            let now = context.net.now();
            self.complete(step, phase, now, context);
        }
        Ok(None)
    }

    fn receive<N: Net<Socket = S>>(
        &mut self,
        step: &Step,
        phase: &Phase,
        call: ReceiveCall,
        context: &mut Context<'_, N>,
    ) -> io::Result<Option<Turn>> {
        if !self.begun {
            self.begin(step);
        }
        let timed = step.timeout.is_some() || (step.datagram && context.gate.finishing);
        let (length, moved) = (self.length, self.moved);
        let conn = self.conn()?;
        let wanted = if step.datagram {
            context.buffer.len()
        } else if conn.owed > 0 {
            context.buffer.len().min(usize::try_from(conn.owed).unwrap_or(usize::MAX))
        } else {
            context.buffer.len().min(usize::try_from(length - moved).unwrap_or(usize::MAX))
        };
        let got =
            match context.net.receive(&conn.socket, &mut context.buffer[..wanted], call, timed) {
                Ok(0) if !step.datagram && wanted > 0 => {
                    return Err(io::Error::new(
                        io::ErrorKind::UnexpectedEof,
                        "the other end closed the connection",
                    ));
                }
                Ok(got) => got,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(Some(self.wait_or_time_out(step, Interest::Readable, context)?));
                }
                Err(error) => return Err(error),
            };
        let bytes = got as u64;
        context.record.received(step.row, conn.connector, bytes);
        if step.datagram {
            return Ok(self.datagram(step, phase, got, context));
        }
        if conn.owed > 0 {
            conn.owed -= bytes;
            self.owed -= bytes;
            self.bytes += bytes;
            return Ok(None);
        }
        if step.verify {
            self.verify(step, got, context);
        }
        self.engaged = true;
        self.bytes += bytes;
        self.moved += bytes;
        if self.moved >= self.length {
            if step.verify && step.unit.is_none() {
                self.conn()?.received += 1;
            }
            self.left = self.left.saturating_sub(self.length);
            let now = context.net.now();
            self.complete(step, phase, now, context);
        }
        Ok(None)
    }

    /// Compares what has come of a stream with what was sent.
    fn verify<N: Net<Socket = S>>(
        &mut self,
        step: &Step,
        got: usize,
        context: &mut Context<'_, N>,
    ) {
        let Some(conn) = &self.conns[self.slot as usize] else { return };
        let first = context.tag | conn.received;
        let mut rest = &context.buffer[..got];
        while !rest.is_empty() {
            let (message, offset, left) = self.message(step);
            let here = rest.len().min(usize::try_from(left).unwrap_or(usize::MAX)).max(1);
            if !context.patterns.matches(step.payload, &rest[..here], offset, first + message) {
                context.record.verify_failures += 1;
            }
            rest = &rest[here..];
            self.pass(step, here as u64);
        }
    }

    /// A datagram has arrived: is it the awaited one, a later or an earlier one?
    fn datagram<N: Net<Socket = S>>(
        &mut self,
        step: &Step,
        phase: &Phase,
        got: usize,
        context: &mut Context<'_, N>,
    ) -> Option<Turn> {
        let now = context.net.now();
        self.heard = now;
        self.bytes += got as u64;
        let counters = context.record.counters.clone();
        counters.datagrams_received.add(1);
        let conn = self.conns[self.slot as usize].as_mut()?;
        let expected = context.tag | conn.received;
        let datagram = &context.buffer[..got];
        let ahead = payload::ahead(datagram, expected);
        if !(0..1 << 40).contains(&ahead) {
            // Of before, or of another phase.
            counters.late.add(1);
            return None;
        }
        if step.verify
            && !context.patterns.matches(
                step.payload,
                datagram,
                0,
                expected.wrapping_add_signed(ahead),
            )
        {
            context.record.verify_failures += 1;
        }
        if ahead > 0 {
            counters.gaps.add(ahead as u64);
            if phase.may_skip {
                self.skip(phase, ahead as u64, context);
            } else if let Some(conn) = &mut self.conns[self.slot as usize] {
                conn.received += ahead as u64;
            }
        }
        if let Some(conn) = &mut self.conns[self.slot as usize] {
            conn.received += 1;
        }
        let step = phase.steps.get(self.step as usize).unwrap_or(step);
        self.complete(step, phase, now, context);
        None
    }

    /// Passes over the program up to where the strand would have received `datagrams` more on this
    /// connection. What it would have sent in between is left out: nobody waits for it any more.
    fn skip<N: Net<Socket = S>>(
        &mut self,
        phase: &Phase,
        datagrams: u64,
        context: &mut Context<'_, N>,
    ) {
        let slot = self.slot;
        let mut left = datagrams;
        while let Some(step) = phase.steps.get(self.step as usize) {
            let conn = self.conns[self.slot as usize].as_mut();
            match (step.action, conn) {
                (Action::Receive(_), Some(conn)) => {
                    if self.slot == slot && left == 0 {
                        return;
                    }
                    conn.received += 1;
                    if self.slot == slot {
                        left -= 1;
                    } else {
                        context.record.counters.gaps.add(1);
                    }
                }
                (Action::Send(_), Some(conn)) => {
                    conn.sent += 1;
                    context.record.counters.skipped.add(1);
                }
                _ => {}
            }
            self.failed = true;
            self.advance(step, phase);
            if self.step as usize >= phase.steps.len() {
                self.iteration += 1;
                self.transaction_start = self.operation_start;
                self.thought = 0;
                self.failed = false;
                self.step = 0;
                self.enter_step(phase);
            }
        }
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
                self.due = now.saturating_add(timeout);
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

    /// Gives up datagrams that have not come after their senders ended, and what the strand would
    /// have sent in answer; also transactions that failed at the other side before anything of them
    /// came here. Returns whether it did.
    pub fn give_up_missing(
        &mut self,
        phase: &Phase,
        record: &Record,
        now: Nanos,
        since: Nanos,
    ) -> bool {
        let heard = self.heard.max(since).max(self.operation_start);
        let waits = self.running
            && phase
                .steps
                .get(self.step as usize)
                .is_some_and(|step| matches!(step.action, Action::Receive(_) | Action::Accept));
        if !waits || self.finished() {
            return false;
        }
        // What the other side failed to begin does not come either.
        if phase.can_fail && !self.engaged && now >= heard + LEFT_ALONE {
            self.iteration = self.iteration.max(self.limit);
            self.running = false;
            return true;
        }
        if !phase.datagrams_only || now < heard + phase.quiet {
            return false;
        }
        // A connection that is opened anew in each transaction counts from 0 in each.
        let transactions = if phase.opens { 1 } else { self.limit.max(self.iteration) };
        for (conn, (receives, sends)) in self.conns.iter_mut().zip(&phase.datagrams) {
            if let Some(conn) = conn {
                let (received, sent) = (transactions * receives, transactions * sends);
                record.counters.gaps.add(received.saturating_sub(conn.received));
                record.counters.skipped.add(sent.saturating_sub(conn.sent));
                conn.received = received.max(conn.received);
                conn.sent = sent.max(conn.sent);
            }
        }
        self.iteration = self.iteration.max(self.limit);
        self.running = false;
        true
    }

    fn connect<N: Net<Socket = S>>(
        &mut self,
        step: &Step,
        phase: &Phase,
        context: &mut Context<'_, N>,
    ) -> io::Result<Option<Turn>> {
        let owner = self.owner(step);
        if self.opening.is_none() {
            if let Some(old) = self.conns[self.slot as usize].take() {
                self.owed -= old.owed;
                context.net.close(old.socket, owner);
            }
            match context.net.connect(step, owner, self.openings) {
                Ok(socket) => self.opening = Some(socket),
                // Too many are on their way; a little later, then.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let soon = context.net.now() + MILLISECOND;
                    return Ok(Some(self.wait(Interest::Nothing, Some(soon))));
                }
                Err(error) => return Err(error),
            }
            self.openings += 1;
            self.engaged = true;
        }
        if let Some(socket) = &mut self.opening
            && let Opening::Wait(on, at) = context.net.opening(socket)?
        {
            let Turn::Wait(mut wait) = self.wait_or_time_out(step, on, context)? else {
                return Ok(None);
            };
            wait.until = match (wait.until, at) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
            return Ok(Some(Turn::Wait(wait)));
        }
        if let Some(socket) = self.opening.take() {
            self.opened(socket, true);
        }
        let now = context.net.now();
        self.complete(step, phase, now, context);
        Ok(None)
    }

    fn accept<N: Net<Socket = S>>(
        &mut self,
        step: &Step,
        phase: &Phase,
        context: &mut Context<'_, N>,
    ) -> io::Result<Option<Turn>> {
        let owner = self.owner(step);
        match context.net.accept(step, owner) {
            Ok(socket) => {
                if let Some(old) = self.conns[self.slot as usize].take() {
                    self.owed -= old.owed;
                    context.net.close(old.socket, owner);
                }
                self.opened(socket, false);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Ok(Some(self.wait_or_time_out(step, Interest::Arrival, context)?));
            }
            Err(error) => return Err(error),
        }
        let now = context.net.now();
        self.complete(step, phase, now, context);
        Ok(None)
    }

    fn opened(&mut self, socket: S, connector: bool) {
        self.conns[self.slot as usize] =
            Some(Conn { socket, connector, owed: 0, owed_row: 0, sent: 0, received: 0 });
    }

    fn close<N: Net<Socket = S>>(
        &mut self,
        step: &Step,
        phase: &Phase,
        context: &mut Context<'_, N>,
    ) -> io::Result<Option<Turn>> {
        let owner = self.owner(step);
        self.conn()?;
        if let Some(conn) = self.conns[self.slot as usize].take() {
            self.owed -= conn.owed;
            context.net.close(conn.socket, owner);
        }
        let now = context.net.now();
        self.complete(step, phase, now, context);
        Ok(None)
    }

    fn think<N: Net<Socket = S>>(
        &mut self,
        step: &Step,
        phase: &Phase,
        context: &mut Context<'_, N>,
    ) -> Option<Turn> {
        let now = context.net.now();
        if self.due == 0 {
            // From now on, not from the intended start: a delay is not a thought.
            self.due = now.saturating_add(step.think);
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
        self.thought += now - (until - step.think);
        self.complete(step, phase, now, context);
        None
    }
}
