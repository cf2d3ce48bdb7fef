//! The common case: each transaction is the same few messages of fixed length, on streams that are open, or one
//! datagram, with nothing that could time out or be compared. What the general way asks of each operation is known
//! here when the program is compiled. One message each way has a shorter way still (`exchange`). All do the same; a
//! simulation compares them with the general way.

use std::io;

use wirecost_model::clock::Nanos;

use super::{Context, OPERATION_BYTES, Strand, TURN_BYTES, Turn};
use crate::net::{Interest, Net};
use crate::step::{Exchange, Phase, PlainCall, PlainStep, ReceiveCall, SendCall};

/// About the payload of the largest packet that TCP passes on (GSO_LEGACY_MAX_SIZE, less its headers).
const PACKET_BYTES: i64 = 64 << 10;

/// Why the plain way does not go on.
pub(super) enum Stop {
    NotPlain,
    /// Others have their turn.
    TurnOver,
    NoBytes,
    NoRoom,
    Failed(io::Error),
}

/// How far an exchange has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Exchanged {
    /// The strand waits for the next message.
    Waits,
    /// The socket has no room for the message to be sent.
    NoRoom,
    /// The plain loop goes on: a message was moved in part, no transaction may begin, or the next message may be
    /// there already, which no event would tell.
    GoesOn,
}

impl<S> Strand<S> {
    /// Whether the plain way can go on from here.
    #[inline]
    pub(super) fn is_plain<N: Net<Socket = S>>(
        &self,
        phase: &Phase,
        context: &Context<'_, N>,
    ) -> bool {
        let is_given_up = context.timing.closed
            && self.transaction.running
            && !self.transaction.engaged
            && self.transaction.iteration >= self.transaction.limit;
        !phase.plain.is_empty() && self.connections.abandoned() == 0 && !is_given_up
    }

    /// Runs for as long as everything is plain. `None` where it is not: the general way goes on.
    #[inline]
    pub(super) fn run_plain<N: Net<Socket = S>>(
        &mut self,
        phase: &Phase,
        context: &mut Context<'_, N>,
        budget: &mut i64,
    ) -> io::Result<Option<Turn>> {
        if let Some(exchange) = &phase.exchange
            && self.awaits(exchange)
        {
            let before = self.bytes;
            match self.exchange(exchange, phase, context)? {
                Exchanged::Waits => return Ok(Some(self.wait(Interest::Readable, None))),
                Exchanged::NoRoom => {
                    let step = &phase.steps[exchange.send];
                    return self.no_room(step, context).map(Some);
                }
                Exchanged::GoesOn => {
                    *budget -= OPERATION_BYTES.max((self.bytes - before) as i64);
                }
            }
        }
        match self.stop_of_plain(phase, context, budget) {
            Stop::NotPlain => Ok(None),
            Stop::TurnOver => Ok(Some(Turn::Again)),
            Stop::NoBytes => self.await_plain(phase, context).map(Some),
            Stop::NoRoom => {
                let step = &phase.steps[self.transaction.step()];
                self.no_room(step, context).map(Some)
            }
            Stop::Failed(error) => Err(error),
        }
    }

    fn stop_of_plain<N: Net<Socket = S>>(
        &mut self,
        phase: &Phase,
        context: &mut Context<'_, N>,
        budget: &mut i64,
    ) -> Stop {
        loop {
            if !self.transaction.running && !self.begin_plain(phase, context) {
                return Stop::NotPlain;
            }
            let Some(step) = phase.plain.get(self.transaction.step()) else {
                return Stop::NotPlain;
            };
            if *budget <= 0 {
                return Stop::TurnOver;
            }
            if !self.operation.begun {
                self.operation.begin(step.length);
            }
            let before = self.bytes;
            let stop = match step.call {
                PlainCall::Send(call) if phase.whole.is_some() && self.operation.moved == 0 => {
                    match self.send_alike(step, call, context, budget) {
                        None => continue,
                        stop => stop,
                    }
                }
                PlainCall::Send(call) => self.send_plain(step, call, phase, context),
                PlainCall::SendDatagrams(call) => {
                    match self.send_datagrams(step, call, context, budget) {
                        None => continue,
                        stop => stop,
                    }
                }
                PlainCall::ReceiveDatagrams(call) => {
                    match self.receive_datagrams(step, call, phase, context, budget) {
                        None => continue,
                        stop => stop,
                    }
                }
                PlainCall::Receive(call) if phase.receive_only => {
                    self.receive_ahead(step, call, phase, context)
                }
                PlainCall::Receive(call) => self.receive_plain(step, call, phase, context),
            };
            if let Some(stop) = stop {
                return stop;
            }
            *budget -= OPERATION_BYTES.max((self.bytes - before) as i64);
        }
    }

    #[inline]
    fn begin_plain<N: Net<Socket = S>>(&mut self, phase: &Phase, context: &Context<'_, N>) -> bool {
        let start = self.operation.start.max(context.timing.start);
        if !self.transaction.may_begin_at(start, context.timing) {
            return false;
        }
        self.transaction.begin(start);
        self.transaction.begin_steps();
        self.operation.start = start;
        self.enter_place(phase.plain[0].place);
        true
    }

    /// Whether the message that the strand waits for is that of an exchange, and nothing of it has come.
    #[inline]
    fn awaits(&self, exchange: &Exchange) -> bool {
        self.transaction.running
            && self.operation.begun
            && self.operation.moved == 0
            && self.transaction.step() == exchange.receive
    }

    /// Receives the message that the strand waits for, and sends the next one. The strand then waits in the same state
    /// as before, so only what changes is written.
    fn exchange<N: Net<Socket = S>>(
        &mut self,
        exchange: &Exchange,
        phase: &Phase,
        context: &mut Context<'_, N>,
    ) -> io::Result<Exchanged> {
        let Context { net, record, patterns, timing, .. } = context;
        let [receive, send] = [&phase.plain[exchange.receive], &phase.plain[exchange.send]];
        let Some(conn) = self.connections.get(self.operation.slot) else {
            return Ok(Exchanged::GoesOn);
        };
        let wakes_at_once = conn.low_water.mark() == 1;
        let length = receive.length as usize;
        let got = match net.receive(&conn.socket, length, exchange.receive_call, false) {
            Ok([]) => return Err(closed()),
            Ok(received) => received.len() as u64,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Ok(if wakes_at_once { Exchanged::Waits } else { Exchanged::GoesOn });
            }
            Err(error) => return Err(error),
        };
        self.bytes += got;
        self.transaction.engaged = true;
        if got < receive.length {
            record.received(receive.row, conn.connector, got);
            self.operation.moved = got;
            return Ok(Exchanged::GoesOn);
        }
        let now = net.now();
        let start = std::mem::replace(&mut self.operation.start, now);
        record.received_at_once(receive.row, conn.connector, got, start..now);
        if exchange.asks() {
            record.transaction(self.group, self.transaction.complete(now), now);
            if !self.transaction.begin_next(now, timing) {
                self.operation.begun = false;
                return Ok(Exchanged::GoesOn);
            }
        }
        let piece = patterns.piece(send.payload, 0, send.length, None);
        let sent = match net.send(&conn.socket, piece, exchange.send_call) {
            Ok(sent) => sent as u64,
            Err(error) => {
                let begun = net.has_begun_to_send(&conn.socket);
                self.send_of_exchange(exchange, send, 0);
                return match self.not_sent(error, begun) {
                    Stop::Failed(error) => Err(error),
                    _ => Ok(Exchanged::NoRoom),
                };
            }
        };
        self.bytes += sent;
        self.transaction.engaged = true;
        if sent < send.length {
            record.sent(send.row, conn.connector, sent);
            self.send_of_exchange(exchange, send, sent);
            return Ok(Exchanged::GoesOn);
        }
        let now = net.now();
        let start = std::mem::replace(&mut self.operation.start, now);
        record.sent_at_once(send.row, conn.connector, sent, start..now);
        if !exchange.asks() {
            record.transaction(self.group, self.transaction.complete(now), now);
            if !self.transaction.begin_next(now, timing) {
                self.operation.begun = false;
                return Ok(Exchanged::GoesOn);
            }
        }
        // See `expects_an_answer`.
        let waits = wakes_at_once && net.notifies_on_new_data(&conn.socket);
        Ok(if waits { Exchanged::Waits } else { Exchanged::GoesOn })
    }

    /// The message that an exchange sends is under way.
    #[cold]
    fn send_of_exchange(&mut self, exchange: &Exchange, send: &PlainStep, moved: u64) {
        self.transaction.enter_step(exchange.send);
        self.operation.begin(send.length);
        self.operation.moved = moved;
    }

    #[inline]
    fn send_plain<N: Net<Socket = S>>(
        &mut self,
        step: &PlainStep,
        call: SendCall,
        phase: &Phase,
        context: &mut Context<'_, N>,
    ) -> Option<Stop> {
        let slot = self.operation.slot;
        let left = self.operation.left();
        let Some(conn) = self.connections.get(slot) else { return Some(Stop::NotPlain) };
        let piece = context.patterns.piece(step.payload, self.operation.moved, left, None);
        let sent = match context.net.send(&conn.socket, piece, call) {
            Ok(sent) => sent as u64,
            Err(error) => {
                let begun = context.net.has_begun_to_send(&conn.socket);
                return Some(self.not_sent(error, begun));
            }
        };
        context.record.sent(step.row, conn.connector, sent);
        if sent == left {
            self.received.last_sent_slot = Some(slot);
        }
        self.moved_plain(step, (sent, left), phase, context);
        None
    }

    /// Transactions of one message each, one after the other, of which the first has begun: what stays
    /// the same is looked up once.
    #[inline(never)]
    fn send_alike<N: Net<Socket = S>>(
        &mut self,
        step: &PlainStep,
        call: SendCall,
        context: &mut Context<'_, N>,
        budget: &mut i64,
    ) -> Option<Stop> {
        let Context { net, record, patterns, timing, .. } = context;
        let slot = self.operation.slot;
        let Some(conn) = self.connections.get(slot) else { return Some(Stop::NotPlain) };
        let piece = patterns.piece(step.payload, 0, step.length, None);
        let most_times = net.most_times(&conn.socket);
        if most_times > 1 && piece.len() as u64 == step.length {
            return self.send_together(step, call, most_times, context, budget);
        }
        let may_begin = self.transaction.may_begin(timing);
        let end = if timing.closed { Nanos::MAX } else { timing.end };
        let each = share_of_turn(piece.len());
        let (mut start, mut complete) = (self.operation.start, 0);
        let stop = loop {
            let sent = match net.send(&conn.socket, piece, call) {
                Ok(sent) => sent,
                Err(error) => break Some(error),
            };
            record.sent(step.row, conn.connector, sent as u64);
            *budget -= each;
            if sent as u64 != step.length {
                self.operation.moved = sent as u64;
                break None;
            }
            let now = net.now();
            record.done(step.row, start, now);
            start = now;
            complete += 1;
            if *budget <= 0 || now >= end || complete >= may_begin {
                break None;
            }
        };
        let begun = stop.is_some() && net.has_begun_to_send(&conn.socket);
        self.bytes += complete * step.length + self.operation.moved;
        if complete > 0 {
            self.received.last_sent_slot = Some(slot);
        }
        // The last one is complete, or under way.
        let is_under_way = stop.is_some() || self.operation.moved > 0;
        self.transaction.complete_first(complete, start, is_under_way);
        self.transaction.engaged |= self.operation.moved > 0;
        self.operation.begun = is_under_way;
        self.operation.start = start;
        stop.map(|error| self.not_sent(error, begun))
    }

    /// The same where one call sends several messages, which begin and end together.
    fn send_together<N: Net<Socket = S>>(
        &mut self,
        step: &PlainStep,
        call: SendCall,
        most_times: u64,
        context: &mut Context<'_, N>,
        budget: &mut i64,
    ) -> Option<Stop> {
        let Context { net, record, patterns, timing, .. } = context;
        let slot = self.operation.slot;
        let Some(conn) = self.connections.get(slot) else { return Some(Stop::NotPlain) };
        let piece = patterns.piece(step.payload, 0, step.length, None);
        let times = match self.transaction.together {
            0 => most_times
                .min(TURN_BYTES as u64 / step.length)
                .min(self.transaction.may_begin(timing))
                .max(1),
            under_way => under_way,
        };
        self.transaction.together = 0;
        let sent = match net.send_times(&conn.socket, piece, call, times) {
            Ok(sent) => sent,
            Err(error) => {
                let begun = net.has_begun_to_send(&conn.socket);
                if begun && error.kind() == io::ErrorKind::WouldBlock {
                    self.transaction.together = times;
                }
                return Some(self.not_sent(error, begun));
            }
        };
        let now = net.now();
        let (complete, moved) = (sent / step.length, sent % step.length);
        record.sent(step.row, conn.connector, sent);
        record.done_together(step.row, self.operation.start, now, complete);
        *budget -= OPERATION_BYTES.max(sent as i64);
        self.bytes += sent;
        if complete > 0 {
            self.received.last_sent_slot = Some(slot);
            self.operation.start = now;
        }
        self.transaction.complete_first(complete, now, moved > 0);
        self.transaction.engaged |= moved > 0;
        self.operation.begun = moved > 0;
        self.operation.moved = moved;
        None
    }

    #[cold]
    pub(super) fn not_sent(&mut self, error: io::Error, begun: bool) -> Stop {
        if error.kind() != io::ErrorKind::WouldBlock {
            return Stop::Failed(error);
        }
        self.transaction.engaged |= begun;
        Stop::NoRoom
    }

    #[inline]
    fn receive_plain<N: Net<Socket = S>>(
        &mut self,
        step: &PlainStep,
        call: ReceiveCall,
        phase: &Phase,
        context: &mut Context<'_, N>,
    ) -> Option<Stop> {
        let slot = self.operation.slot;
        let left = self.operation.left();
        let Some(conn) = self.connections.get(slot) else { return Some(Stop::NotPlain) };
        // See `expects_an_answer`.
        let asked = self.received.last_sent_slot.take() == Some(slot);
        if asked && context.net.notifies_on_new_data(&conn.socket) {
            return Some(Stop::NoBytes);
        }
        let got = match context.net.receive(&conn.socket, left as usize, call, false) {
            Ok([]) => return Some(Stop::Failed(closed())),
            Ok(received) => received.len() as u64,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Some(Stop::NoBytes);
            }
            Err(error) => return Some(Stop::Failed(error)),
        };
        context.record.received(step.row, conn.connector, got);
        self.moved_plain(step, (got, left), phase, context);
        None
    }

    /// So many bytes of the operation under way have been sent or received, of those that were left.
    // A call of its own would take 40 instructions for each pair of request-response.
    #[inline(always)]
    fn moved_plain<N: Net<Socket = S>>(
        &mut self,
        step: &PlainStep,
        (bytes, left): (u64, u64),
        phase: &Phase,
        context: &mut Context<'_, N>,
    ) {
        self.transaction.engaged = true;
        self.bytes += bytes;
        self.operation.moved += bytes;
        if bytes == left {
            let now = context.net.now();
            context.record.done(step.row, self.operation.start, now);
            self.operation.start = now;
            self.advance_plain(phase, context);
        }
    }

    /// Receives what there is, and completes all operations that have their bytes then: at once, as that
    /// is when they were received.
    fn receive_ahead<N: Net<Socket = S>>(
        &mut self,
        step: &PlainStep,
        call: ReceiveCall,
        phase: &Phase,
        context: &mut Context<'_, N>,
    ) -> Option<Stop> {
        if self.received.ahead == 0 {
            let slot = self.operation.slot;
            let Some(conn) = self.connections.get_mut(slot) else { return Some(Stop::NotPlain) };
            let got = match context.net.receive(&conn.socket, usize::MAX, call, false) {
                Ok([]) => return Some(Stop::Failed(closed())),
                Ok(received) => received.len() as u64,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Some(Stop::NoBytes);
                }
                Err(error) => return Some(Stop::Failed(error)),
            };
            context.record.received(step.row, conn.connector, got);
            conn.low_water.received(got);
            self.bytes += got;
            self.received.ahead = got;
            self.received.at = context.net.now();
        }
        let taken = self.operation.left().min(self.received.ahead);
        self.received.ahead -= taken;
        self.operation.moved += taken;
        self.transaction.engaged = true;
        if self.operation.left() > 0 {
            return None;
        }
        let at = self.received.at;
        context.record.done(step.row, self.operation.start, at);
        self.operation.start = at;
        self.advance_plain(phase, context);
        if phase.whole.is_some() {
            self.complete_ahead(step, context);
        }
        None
    }

    /// Completes whole transactions of one operation each that have been received already.
    fn complete_ahead<N: Net<Socket = S>>(
        &mut self,
        step: &PlainStep,
        context: &mut Context<'_, N>,
    ) {
        let at = self.received.at;
        let may_begin = match at >= context.timing.end {
            false => self.transaction.may_begin(context.timing),
            true => self.transaction.within_limit(),
        };
        let complete = (self.received.ahead / step.length).min(may_begin);
        self.received.ahead -= complete * step.length;
        self.transaction.add_completed(complete);
        context.record.done_together(step.row, at, at, complete);
    }

    /// Waits for something to be received.
    #[inline]
    fn await_plain<N: Net<Socket = S>>(
        &mut self,
        phase: &Phase,
        context: &mut Context<'_, N>,
    ) -> io::Result<Turn> {
        if !phase.receive_only
            && self.connections.require(self.operation.slot)?.low_water.mark() == 1
        {
            return Ok(self.wait(Interest::Readable, None));
        }
        let step = &phase.steps[self.transaction.step()];
        self.await_bytes(step, phase, context)
    }

    /// Goes on to the next operation, or ends the transaction.
    #[inline]
    fn advance_plain<N: Net<Socket = S>>(&mut self, phase: &Phase, context: &mut Context<'_, N>) {
        self.operation.begun = false;
        self.transaction.pass_step();
        match phase.plain.get(self.transaction.step()) {
            Some(next) => self.enter_place(next.place),
            None => self.end_transaction(phase, context),
        }
    }
}

/// Bytes that one send takes off the budget of a turn. Where TCP paces its packets (BBR does), a large send right
/// after another one has to wait for a timer, which on virtual machines can cost more than the packet
/// (ADR 0043). So a turn has two packets where one send fills more than half of one.
/// <https://github.com/torvalds/linux/blob/v6.12/net/ipv4/tcp_output.c> (`tcp_pacing_check`)
pub(super) fn share_of_turn(bytes: usize) -> i64 {
    match bytes as i64 {
        bytes if bytes > PACKET_BYTES / 2 => {
            TURN_BYTES / 2 * ((bytes + PACKET_BYTES - 1) / PACKET_BYTES)
        }
        bytes => OPERATION_BYTES.max(bytes),
    }
}

#[cold]
fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the other end closed the connection")
}
