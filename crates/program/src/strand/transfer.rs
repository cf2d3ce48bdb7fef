//! Moving bytes: messages over streams, and what both kinds of transfer share.

use std::io;

use wirecost_model::clock::MILLISECOND;

use super::{Conn, Context, Strand, Turn, Wait};

use crate::net::{Interest, Net};
use crate::payload::Patterns;
use crate::step::{Action, Phase, ReceiveCall, SendCall, Step};

impl<S> Strand<S> {
    pub(super) fn id(&self, step: &Step) -> u32 {
        step.first_id + (self.slot - step.first)
    }

    /// Length of the operation that begins now.
    pub(super) fn begin(&mut self, step: &Step) {
        let id = self.id(step);
        match step.unit {
            Some(unit) if !matches!(step.action, Action::SendFile) => {
                if self.operation == 0 {
                    self.left =
                        (0..step.count).map(|i| step.length(self.number, self.round, id, i)).sum();
                    self.message = 0;
                    self.offset = 0;
                    self.pass(step, 0);
                }
                self.length = unit.max(1).min(self.left);
            }
            _ => self.length = step.length(self.number, self.round, id, self.operation),
        }
        self.moved = 0;
        self.begun = true;
    }

    /// Keeps account of the message under way, where operations are not messages.
    pub(super) fn pass(&mut self, step: &Step, bytes: u64) {
        if !step.verify || step.unit.is_none() {
            return;
        }
        let id = self.id(step);
        self.offset += bytes;
        while self.message < step.count {
            let length = step.length(self.number, self.round, id, self.message);
            if self.offset < length {
                return;
            }
            self.offset -= length;
            self.message += 1;
        }
    }

    /// Of the message under way: which one of the step it is, its bytes moved, and those left.
    pub(super) fn message(&self, step: &Step) -> (u64, u64, u64) {
        if !step.verify || step.unit.is_none() {
            return (0, self.moved, self.length - self.moved);
        }
        let length = step.length(self.number, self.round, self.id(step), self.message);
        let left = (self.length - self.moved).min(length.saturating_sub(self.offset));
        (self.message, self.offset, left)
    }

    /// Receives what earlier time-outs have left, so that the next phase finds connections empty.
    pub(super) fn settle<N: Net<Socket = S>>(
        &mut self,
        context: &mut Context<'_, N>,
    ) -> Option<Turn> {
        let mut blocked = None;
        for (slot, conn) in self.conns.iter_mut().enumerate() {
            let Some(conn) = conn else { continue };
            while conn.owed > 0 {
                let most = usize::try_from(conn.owed).unwrap_or(usize::MAX);
                let received = context.net.receive(&conn.socket, most, ReceiveCall::RECV, true);
                let got = match received.map(<[u8]>::len) {
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
    pub(super) fn no_room<N: Net<Socket = S>>(
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

    pub(super) fn conn(&mut self) -> io::Result<&mut Conn<S>> {
        self.conns[self.slot as usize].as_mut().ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotConnected, "the strand has no such connection open")
        })
    }

    pub(super) fn send<N: Net<Socket = S>>(
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
                let begun = context.net.has_begun_to_send(&conn.socket);
                self.engaged |= begun;
                return Ok(Some(self.no_room(step, context)?));
            }
            Err(error) => return Err(error),
        };
        let connector = conn.connector;
        self.sent(step, phase, (sent, connector), stamp.is_some(), context);
        Ok(None)
    }

    /// So many bytes of the operation under way have been sent.
    #[inline]
    pub(super) fn sent<N: Net<Socket = S>>(
        &mut self,
        step: &Step,
        phase: &Phase,
        (sent, connector): (u64, bool),
        stamped: bool,
        context: &mut Context<'_, N>,
    ) {
        context.record.sent(step.row, connector, sent);
        self.engaged = true;
        self.bytes += sent;
        self.moved += sent;
        self.pass(step, sent);
        if self.moved >= self.length {
            if stamped
                && step.unit.is_none()
                && let Some(conn) = &mut self.conns[self.slot as usize]
            {
                conn.sent += 1;
            }
            if step.datagram {
                context.record.counters.datagrams_sent.add(1);
            }
            if self.length > 0 {
                self.asked = Some(self.slot);
            }
            self.left = self.left.saturating_sub(self.length);
            let now = context.net.now();
            self.complete(step, phase, now, context);
        }
    }

    pub(super) fn send_file<N: Net<Socket = S>>(
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
            let file = step.file_index(self.number, self.round, id, self.operation);
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
                    let begun = context.net.has_begun_to_send(&conn.socket);
                    self.engaged |= begun;
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

    pub(super) fn receive<N: Net<Socket = S>>(
        &mut self,
        step: &Step,
        phase: &Phase,
        call: ReceiveCall,
        context: &mut Context<'_, N>,
    ) -> io::Result<Option<Turn>> {
        if !self.begun {
            self.begin(step);
        }
        if step.datagram {
            return self.datagram(step, phase, call, context);
        }
        let left = self.length - self.moved;
        if self.ahead > 0 {
            self.take(step, phase, left, context);
            return Ok(None);
        }
        if left > 0 && self.expects_an_answer(step, phase, context) {
            return Ok(Some(self.await_bytes(step, phase, context)?));
        }
        let conn = self.conn()?;
        let wanted = match conn.owed {
            0 if phase.gathers => u64::MAX,
            0 => left,
            owed => owed,
        };
        let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
        let timed = step.timeout.is_some();
        let result = match call {
            ReceiveCall::Unseen(call) => context
                .net
                .pass_on(&conn.socket, wanted, call, timed)
                .map(|passed| (passed, &[] as &[u8])),
            call => context
                .net
                .receive(&conn.socket, wanted, call, timed)
                .map(|received| (received.len(), received)),
        };
        let (bytes, received) = match result {
            Ok((0, _)) if wanted > 0 => {
                return Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "the other end closed the connection",
                ));
            }
            Ok((bytes, received)) => (bytes as u64, received),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Ok(Some(self.await_bytes(step, phase, context)?));
            }
            Err(error) => return Err(error),
        };
        context.record.received(step.row, conn.connector, bytes);
        if conn.owed > 0 {
            conn.owed -= bytes;
            self.owed -= bytes;
            self.bytes += bytes;
            return Ok(None);
        }
        if step.verify {
            let first = context.tag | conn.received;
            context.record.verify_failures += self.verify(step, received, first, context.patterns);
        }
        self.engaged = true;
        self.bytes += bytes;
        if phase.gathers {
            self.conn()?.gathering.received(bytes);
            self.ahead = bytes;
            self.received_at = context.net.now();
            self.take(step, phase, left, context);
            return Ok(None);
        }
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

    /// Whether what is to be received answers what this strand has just sent, so that looking whether it is
    /// there would be a system call for nothing. Both ends go the same way through the same program: what the
    /// other end sends next follows its receiving that, and what it sent before has been received here. Where
    /// something may be given up this is not so.
    fn expects_an_answer<N: Net<Socket = S>>(
        &mut self,
        step: &Step,
        phase: &Phase,
        context: &Context<'_, N>,
    ) -> bool {
        let asked = self.asked.take() == Some(self.slot);
        let waits = !(phase.can_fail || step.busy || step.options.busy_poll.is_some());
        let conn = self.conns[self.slot as usize].as_ref();
        let conn = conn.filter(|conn| asked && waits && conn.owed == 0);
        conn.is_some_and(|conn| context.net.tells_of_arrivals(&conn.socket))
    }

    /// Waits for something to be received; who only receives, for much.
    fn await_bytes<N: Net<Socket = S>>(
        &mut self,
        step: &Step,
        phase: &Phase,
        context: &mut Context<'_, N>,
    ) -> io::Result<Turn> {
        let gathers = phase.gathers && !context.gate.closed;
        let now = if gathers { context.net.now() } else { 0 };
        let conn = self.conn()?;
        let mut mark = if gathers { conn.gathering.next(now) } else { 1 };
        if mark != conn.gathering.mark() {
            mark = context.net.low_water(&conn.socket, mark)?;
        }
        match conn.gathering.set(mark) {
            None => self.wait_or_time_out(step, Interest::Readable, context),
            until => Ok(self.wait(Interest::Readable, until)),
        }
    }

    /// Gives the operation under way its part of what has been received.
    fn take<N: Net<Socket = S>>(
        &mut self,
        step: &Step,
        phase: &Phase,
        left: u64,
        context: &mut Context<'_, N>,
    ) {
        let taken = left.min(self.ahead);
        self.ahead -= taken;
        self.moved += taken;
        self.engaged = true;
        if self.moved >= self.length {
            self.left = self.left.saturating_sub(self.length);
            self.complete(step, phase, self.received_at, context);
        }
    }

    /// Compares what has come of a stream with what was sent; `first` is the number of the step's
    /// first message. Returns how many pieces differ.
    fn verify(&mut self, step: &Step, mut rest: &[u8], first: u64, patterns: &mut Patterns) -> u64 {
        let mut failures = 0;
        while !rest.is_empty() {
            let (message, offset, left) = self.message(step);
            let here = rest.len().min(usize::try_from(left).unwrap_or(usize::MAX)).max(1);
            let same = patterns.matches(step.payload, &rest[..here], offset, first + message);
            failures += u64::from(!same);
            rest = &rest[here..];
            self.pass(step, here as u64);
        }
        failures
    }
}
