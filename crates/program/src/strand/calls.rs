//! Messages that are not sent by a copying call each.

use std::io;

use super::{Context, Strand, Turn};

use crate::calls::{Sends, Streamed};
use crate::net::Net;
use crate::payload::STAMP;
use crate::step::{Phase, SendCall, Step};

impl<S> Strand<S> {
    pub(super) fn send_streamed<N: Net<Socket = S>>(
        &mut self,
        step: &Step,
        phase: &Phase,
        way: Streamed,
        context: &mut Context<'_, N>,
    ) -> io::Result<Option<Turn>> {
        let slot = self.slot;
        if way.cork && self.operation == 0 && !self.begun {
            context.net.cork(&self.conn()?.socket, true)?;
        }
        let turn = if way.zerocopy {
            self.send_zerocopy(step, phase, context)?
        } else {
            self.send(step, phase, SendCall::SEND, context)?
        };
        // After a failure the cork stays until the flowop's next turn; the kernel lets what it holds
        // back go after 200 ms by itself.
        if way.cork
            && (self.begun, self.operation) == (false, 0)
            && let Some(conn) = &self.conns[slot as usize]
        {
            context.net.cork(&conn.socket, false)?;
        }
        Ok(turn)
    }

    fn send_zerocopy<N: Net<Socket = S>>(
        &mut self,
        step: &Step,
        phase: &Phase,
        context: &mut Context<'_, N>,
    ) -> io::Result<Option<Turn>> {
        if !self.begun {
            self.begin(step);
        }
        let (message, offset, left) = self.message(step);
        let conn = self.conn()?;
        let stamp = step.verify.then_some(context.tag | (conn.sent + message));
        let piece = context.patterns.piece(step.payload, offset, left, stamp);
        // The next message's number will stand where this one's does.
        let copied = match stamp {
            Some(_) => (STAMP as u64).saturating_sub(offset).min(piece.len() as u64) as usize,
            None => 0,
        };
        let sent = match context.net.send_zerocopy(&conn.socket, piece, copied) {
            Ok(sent) => sent as u64,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.engaged |= N::DEFERS;
                return Ok(Some(self.no_room(step, context)?));
            }
            Err(error) => return Err(error),
        };
        let connector = conn.connector;
        self.sent(step, phase, (sent, connector), stamp.is_some(), context);
        Ok(None)
    }

    /// Sends as many datagrams as one call takes, each an operation of its own.
    pub(super) fn send_several<N: Net<Socket = S>>(
        &mut self,
        step: &Step,
        phase: &Phase,
        sends: Sends,
        context: &mut Context<'_, N>,
    ) -> io::Result<Option<Turn>> {
        if !self.begun {
            self.begin(step);
        }
        let (number, round, first, id) = (self.number, self.round, self.operation, self.id(step));
        let length = |operation: u64| step.length(number, round, id, operation);
        let most = u64::from(sends.messages) * u64::from(sends.segments);
        let end = step.count.min(first + most);
        let conn = self.conn()?;
        let laid = context.patterns.lay(
            step.payload,
            (first..end).map(|operation| length(operation) as usize),
            context.tag | conn.sent,
            sends.segments.into(),
        );
        let sent = match context.net.send_several(&conn.socket, &laid) {
            Ok(sent) => sent as u64,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Ok(Some(self.no_room(step, context)?));
            }
            Err(error) => return Err(error),
        };
        conn.sent += sent;
        let connector = conn.connector;
        context.record.counters.datagrams_sent.add(sent);
        // All of a call began and ended together.
        let (start, now) = (self.operation_start, context.net.now());
        for operation in first..first + sent {
            let bytes = length(operation);
            context.record.sent(step.row, connector, bytes);
            self.bytes += bytes;
            self.operation_start = start;
            self.complete(step, phase, now, context);
        }
        Ok(None)
    }
}
