//! Moving bytes: messages over streams, and what both kinds of transfer share.

use std::io;

use wirecost_model::clock::MILLISECOND;

use super::{Context, Strand, Turn, Wait};
use crate::files::StreamPart;
use crate::net::{Interest, Net};
use crate::payload::Patterns;
use crate::step::{Coordinates, Messages, Phase, Receive, ReceiveCall, SendCall, SendFile, Step};

impl<S> Strand<S> {
    /// Receives what earlier time-outs have left, so that the next phase finds connections empty.
    pub(super) fn settle<N: Net<Socket = S>>(
        &mut self,
        context: &mut Context<'_, N>,
    ) -> Option<Turn> {
        if self.connections.abandoned() == 0 {
            return None;
        }
        let mut blocked = None;
        for slot in 0..self.connections.len() {
            while let Some(conn) = self.connections.get(slot)
                && conn.abandoned() > 0
            {
                let abandoned = conn.abandoned();
                let most = usize::try_from(abandoned).unwrap_or(usize::MAX);
                let received = context.net.receive(&conn.socket, most, ReceiveCall::RECV, true);
                let got = match received.map(<[u8]>::len) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        blocked = Some(slot);
                        break;
                    }
                    // Nothing more comes from a connection that is gone.
                    Ok(0) | Err(_) => abandoned,
                    Ok(got) => {
                        context.record.received(conn.abandoned_row(), conn.connector, got as u64);
                        self.bytes += got as u64;
                        got as u64
                    }
                };
                self.connections.settle(slot, got);
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
        if let Some(Turn::Wait(_)) = self.settle(context)
            && let Turn::Wait(wait) = &mut turn
        {
            let soon = context.net.now() + MILLISECOND;
            wait.until = Some(wait.until.map_or(soon, |until| until.min(soon)));
        }
        Ok(turn)
    }

    /// Begins an operation on messages, unless one is under way.
    #[inline]
    pub(super) fn begin_message(&mut self, step: &Step, messages: &Messages) {
        if !self.operation.begun {
            let at = self.coordinates(step);
            self.operation.begin_message(step, messages, at);
        }
    }

    pub(super) fn send<N: Net<Socket = S>>(
        &mut self,
        step: &Step,
        phase: &Phase,
        messages: &Messages,
        call: SendCall,
        context: &mut Context<'_, N>,
    ) -> io::Result<Option<Turn>> {
        self.begin_message(step, messages);
        let (message, offset, left) = self.operation.message(messages, self.coordinates(step));
        let conn = self.connections.require(self.operation.slot)?;
        let number = context.tag | (conn.sent + message);
        let piece = if step.datagram {
            let now = context.net.now().wrapping_sub(context.timing.start);
            context.patterns.datagram(messages.payload, left, number, now)
        } else {
            let stamp = messages.verify.then_some(number);
            context.patterns.piece(messages.payload, offset, left, stamp)
        };
        let sent = match context.net.send(&conn.socket, piece, call) {
            Ok(sent) => sent as u64,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.transaction.engaged |= context.net.has_begun_to_send(&conn.socket);
                return Ok(Some(self.no_room(step, context)?));
            }
            Err(error) => return Err(error),
        };
        let connector = conn.connector;
        self.sent(step, phase, messages, (sent, connector), context);
        Ok(None)
    }

    /// `sent` bytes of the operation under way have been sent.
    #[inline]
    pub(super) fn sent<N: Net<Socket = S>>(
        &mut self,
        step: &Step,
        phase: &Phase,
        messages: &Messages,
        (sent, connector): (u64, bool),
        context: &mut Context<'_, N>,
    ) {
        context.record.sent(step.row, connector, sent);
        self.transaction.engaged = true;
        self.bytes += sent;
        self.operation.moved += sent;
        let at = self.coordinates(step);
        self.operation.pass(step, messages, at, sent);
        if self.operation.left() > 0 {
            return;
        }
        let numbered = step.datagram || messages.verify;
        if numbered
            && messages.unit.is_none()
            && let Some(conn) = self.connections.get_mut(self.operation.slot)
        {
            conn.sent += 1;
        }
        if step.datagram {
            context.record.counters.datagrams_sent.add(1);
        }
        if self.operation.length > 0 {
            self.received.last_sent_slot = Some(self.operation.slot);
        }
        self.operation.spend();
        let now = context.net.now();
        self.complete(step, phase, now, context);
    }

    /// Sends a message whose bytes are the next ones of a file.
    pub(super) fn send_from_file<N: Net<Socket = S>>(
        &mut self,
        step: &Step,
        phase: &Phase,
        messages: &Messages,
        source: u16,
        context: &mut Context<'_, N>,
    ) -> io::Result<Option<Turn>> {
        self.begin_message(step, messages);
        let (_, _, left) = self.operation.message(messages, self.coordinates(step));
        let part = StreamPart { source, group: self.group, strand: self.number };
        let conn = self.connections.require(self.operation.slot)?;
        let sent = match left {
            0 => Ok(0),
            left => context.net.send_from_file(&conn.socket, part, left),
        };
        let sent = match sent {
            Ok(sent) => sent as u64,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Ok(Some(self.no_room(step, context)?));
            }
            Err(error) => return Err(error),
        };
        let connector = conn.connector;
        self.sent(step, phase, messages, (sent, connector), context);
        Ok(None)
    }

    pub(super) fn send_file<N: Net<Socket = S>>(
        &mut self,
        step: &Step,
        phase: &Phase,
        send: &SendFile,
        context: &mut Context<'_, N>,
    ) -> io::Result<Option<Turn>> {
        let at = Coordinates { number: self.operation.number, ..self.coordinates(step) };
        if !self.operation.begun {
            self.operation.begin(send.size.at(at));
        }
        if self.operation.left() > 0 {
            let piece = self.operation.left().min(send.piece);
            let moved = self.operation.moved;
            let conn = self.connections.require(self.operation.slot)?;
            let file = send.size.file(at);
            let sent = match context.net.send_file(&conn.socket, send.source, file, moved, piece) {
                Ok(0) => {
                    return Err(io::Error::new(
                        io::ErrorKind::UnexpectedEof,
                        "a file is shorter than it was when the run began",
                    ));
                }
                Ok(sent) => sent as u64,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.transaction.engaged |= context.net.has_begun_to_send(&conn.socket);
                    return Ok(Some(self.no_room(step, context)?));
                }
                Err(error) => return Err(error),
            };
            context.record.sent(step.row, conn.connector, sent);
            self.transaction.engaged = true;
            self.bytes += sent;
            self.operation.moved += sent;
        }
        if self.operation.left() == 0 {
            let now = context.net.now();
            self.complete(step, phase, now, context);
        }
        Ok(None)
    }

    pub(super) fn receive<N: Net<Socket = S>>(
        &mut self,
        step: &Step,
        phase: &Phase,
        receive: &Receive,
        context: &mut Context<'_, N>,
    ) -> io::Result<Option<Turn>> {
        let messages = &receive.messages;
        self.begin_message(step, messages);
        let left = self.operation.left();
        // No byte announces an empty message: to read ahead for it might be to wait for ever.
        let is_empty = left == 0 && phase.receive_only;
        if self.received.ahead > 0 || is_empty {
            if is_empty && self.received.ahead == 0 {
                self.received.at = context.net.now();
            }
            self.take(step, phase, left, context);
            return Ok(None);
        }
        if left > 0 && self.expects_an_answer(receive, phase, context) {
            return Ok(Some(self.await_bytes(step, phase, context)?));
        }
        let slot = self.operation.slot;
        let conn = self.connections.require(slot)?;
        let abandoned = conn.abandoned();
        let wanted = match abandoned {
            0 if phase.receive_only => u64::MAX,
            0 => left,
            abandoned => abandoned,
        };
        let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
        let timed = step.timeout.is_some();
        let result = match receive.call {
            ReceiveCall::KernelReceive(call) => context
                .net
                .receive_in_kernel(&conn.socket, wanted, call, timed)
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
        self.bytes += bytes;
        if abandoned > 0 {
            self.connections.settle(slot, bytes);
            return Ok(None);
        }
        if messages.verify {
            let first = context.tag | conn.received;
            context.record.verify_failures +=
                self.verify(step, messages, received, first, context.patterns);
        }
        self.transaction.engaged = true;
        if phase.receive_only {
            self.connections.require(slot)?.low_water.received(bytes);
            self.received.ahead = bytes;
            self.received.at = context.net.now();
            self.take(step, phase, left, context);
            return Ok(None);
        }
        self.operation.moved += bytes;
        if self.operation.left() == 0 {
            if messages.verify && messages.unit.is_none() {
                self.connections.require(slot)?.received += 1;
            }
            self.operation.spend();
            let now = context.net.now();
            self.complete(step, phase, now, context);
        }
        Ok(None)
    }

    /// Whether what is to be received answers what this strand has just sent, so that looking
    /// whether it is there would be a system call for nothing. Both ends go the same way through
    /// the same program: what the other end sends next follows its receiving that, and what it sent
    /// before has been received here. Where something may be given up this is not so.
    fn expects_an_answer<N: Net<Socket = S>>(
        &mut self,
        receive: &Receive,
        phase: &Phase,
        context: &Context<'_, N>,
    ) -> bool {
        let slot = self.operation.slot;
        let asked = self.received.last_sent_slot.take() == Some(slot);
        let waits = !(phase.can_fail || receive.polls);
        let conn = self.connections.get(slot);
        let conn = conn.filter(|conn| asked && waits && conn.abandoned() == 0);
        conn.is_some_and(|conn| context.net.notifies_on_new_data(&conn.socket))
    }

    /// Waits for something to be received; a strand that only receives waits for much.
    pub(super) fn await_bytes<N: Net<Socket = S>>(
        &mut self,
        step: &Step,
        phase: &Phase,
        context: &mut Context<'_, N>,
    ) -> io::Result<Turn> {
        let receive_only = phase.receive_only && !context.timing.closed;
        let now = if receive_only { context.net.now() } else { 0 };
        let conn = self.connections.require(self.operation.slot)?;
        let mut mark = if receive_only { conn.low_water.next(now) } else { 1 };
        if mark != conn.low_water.mark() {
            mark = context.net.low_water(&conn.socket, mark)?;
        }
        match conn.low_water.set(mark) {
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
        let taken = left.min(self.received.ahead);
        self.received.ahead -= taken;
        self.operation.moved += taken;
        self.transaction.engaged = true;
        if self.operation.left() == 0 {
            self.operation.spend();
            let at = self.received.at;
            self.complete(step, phase, at, context);
        }
    }

    /// Compares what has come of a stream with what was sent; `first` is the number of the step's
    /// first message. Returns how many pieces differ.
    fn verify(
        &mut self,
        step: &Step,
        messages: &Messages,
        mut rest: &[u8],
        first: u64,
        patterns: &mut Patterns,
    ) -> u64 {
        let at = self.coordinates(step);
        let mut failures = 0;
        while !rest.is_empty() {
            let (message, offset, left) = self.operation.message(messages, at);
            let here = rest.len().min(usize::try_from(left).unwrap_or(usize::MAX)).max(1);
            let same = patterns.matches(messages.payload, &rest[..here], offset, first + message);
            failures += u64::from(!same);
            rest = &rest[here..];
            self.operation.pass(step, messages, at, here as u64);
        }
        failures
    }
}
