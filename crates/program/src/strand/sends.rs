//! Sending by other means than a copying call for each message.

use std::io;

use super::{Context, Strand, Turn};
use crate::calls::{Sends, StreamSend};
use crate::net::Net;
use crate::payload::{STAMP, Stamps};
use crate::step::{Coordinates, Messages, Phase, SendCall, Step};

impl<S> Strand<S> {
    pub(super) fn send_streamed<N: Net<Socket = S>>(
        &mut self,
        step: &Step,
        phase: &Phase,
        messages: &Messages,
        way: StreamSend,
        context: &mut Context<'_, N>,
    ) -> io::Result<Option<Turn>> {
        let slot = self.operation.slot;
        if way.cork && self.operation.number == 0 && !self.operation.begun {
            context.net.cork(&self.connections.require(slot)?.socket, true)?;
        }
        let turn = if way.zerocopy {
            self.send_zerocopy(step, phase, messages, context)?
        } else {
            self.send(step, phase, messages, SendCall::SEND, context)?
        };
        // After a failure the cork stays until the flowop's next turn; the kernel lets what it
        // holds back go after 200 ms by itself.
        if way.cork
            && (self.operation.begun, self.operation.number) == (false, 0)
            && let Some(conn) = self.connections.get(slot)
        {
            context.net.cork(&conn.socket, false)?;
        }
        Ok(turn)
    }

    fn send_zerocopy<N: Net<Socket = S>>(
        &mut self,
        step: &Step,
        phase: &Phase,
        messages: &Messages,
        context: &mut Context<'_, N>,
    ) -> io::Result<Option<Turn>> {
        self.begin_message(step, messages);
        let (message, offset, left) = self.operation.message(messages, self.coordinates(step));
        let conn = self.connections.require(self.operation.slot)?;
        let stamp = messages.verify.then_some(context.tag | (conn.sent + message));
        let piece = context.patterns.piece(messages.payload, offset, left, stamp);
        // The next message's number will stand where this one's does.
        let copied = match stamp {
            Some(_) => (STAMP as u64).saturating_sub(offset).min(piece.len() as u64) as usize,
            None => 0,
        };
        let sent = match context.net.send_zerocopy(&conn.socket, piece, copied) {
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

    /// Sends as many datagrams as one call takes, each an operation of its own.
    pub(super) fn send_batch<N: Net<Socket = S>>(
        &mut self,
        step: &Step,
        phase: &Phase,
        messages: &Messages,
        sends: Sends,
        context: &mut Context<'_, N>,
    ) -> io::Result<Option<Turn>> {
        self.begin_message(step, messages);
        let (at, first) = (self.coordinates(step), self.operation.number);
        let length = |number: u64| messages.length.at(Coordinates { number, ..at });
        let most = u64::from(sends.messages) * u64::from(sends.segments);
        let end = step.count.min(first + most);
        let segments = u64::from(sends.segments).max(1);
        let now = context.net.now();
        let departures = (phase.lead > 0).then(|| {
            self.pacing.departures((first / segments, step.count.div_ceil(segments)), now)
        });
        let conn = self.connections.require(self.operation.slot)?;
        let stamps = Stamps {
            first: context.tag | conn.sent,
            now,
            departures,
            origin: context.timing.start,
        };
        let lengths = (first..end).map(|operation| length(operation) as usize);
        let batch = context.patterns.batch(messages.payload, lengths, stamps, segments as usize);
        let sent = match context.net.send_batch(&conn.socket, &batch) {
            Ok(sent) => sent as u64,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.transaction.engaged |= context.net.has_begun_to_send(&conn.socket);
                return Ok(Some(self.no_room(step, context)?));
            }
            Err(error) => return Err(error),
        };
        conn.sent += sent;
        let connector = conn.connector;
        context.record.counters.datagrams_sent.add(sent);
        // All of a call began and ended together, but those with departure times, each of which ends when it is to leave.
        let (mut start, mut end) = (self.operation.start, context.net.now());
        let returned = end;
        for operation in first..first + sent {
            if let Some(departures) = departures {
                let message = (operation - first) / segments;
                let at = departures.at(message as usize);
                start = departures.due(message);
                end = at.max(returned);
                self.pacing.note_departure(at);
            }
            let bytes = length(operation);
            context.record.sent(step.row, connector, bytes);
            self.bytes += bytes;
            self.operation.start = start;
            self.complete(step, phase, end, context);
        }
        Ok(None)
    }
}
