//! Opening and closing connections, and ends of streams.

use std::io;

use wirecost_model::clock::MILLISECOND;

use super::{Context, Strand, Turn};
use crate::net::{Interest, Net, Opening};
use crate::step::{Open, Phase, ReceiveCall, Step};

impl<S> Strand<S> {
    pub(super) fn connect<N: Net<Socket = S>>(
        &mut self,
        step: &Step,
        phase: &Phase,
        open: &Open,
        context: &mut Context<'_, N>,
    ) -> io::Result<Option<Turn>> {
        let place = self.operation.place;
        if self.connections.opening().is_none() {
            self.connections.may_open(place, open.most)?;
            self.operation.slot = self.connections.next_slot();
            let owner = self.owner(step);
            match context.net.connect(open, owner, self.connections.attempts()) {
                Ok(socket) => self.connections.begin_opening(socket),
                // Too many are on their way; a little later, then.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let soon = context.net.now() + MILLISECOND;
                    return Ok(Some(self.wait(Interest::Nothing, Some(soon))));
                }
                Err(error) => return Err(error),
            }
            self.transaction.engaged = true;
        }
        if let Some(socket) = self.connections.opening()
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
        self.connections.opened(place, true, !open.protocol.delivery().is_reliable());
        self.received.last_sent_slot = None;
        let now = context.net.now();
        self.complete(step, phase, now, context);
        Ok(None)
    }

    pub(super) fn accept<N: Net<Socket = S>>(
        &mut self,
        step: &Step,
        phase: &Phase,
        open: &Open,
        context: &mut Context<'_, N>,
    ) -> io::Result<Option<Turn>> {
        let place = self.operation.place;
        if self.connections.opening().is_none() {
            self.connections.may_open(place, open.most)?;
            self.operation.slot = self.connections.next_slot();
            let owner = self.owner(step);
            match context.net.accept(open, owner) {
                Ok((socket, ordinal)) => {
                    self.connections.begin_accepting(socket, place, ordinal);
                    self.transaction.engaged = true;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(Some(self.wait_or_time_out(step, Interest::Arrival, context)?));
                }
                Err(error) => return Err(error),
            }
        }
        if let Some(socket) = self.connections.opening()
            && let Opening::Wait(on, _) = context.net.opening(socket)?
        {
            return Ok(Some(self.wait_or_time_out(step, on, context)?));
        }
        self.connections.opened(place, false, !open.protocol.delivery().is_reliable());
        self.received.last_sent_slot = None;
        let now = context.net.now();
        self.complete(step, phase, now, context);
        Ok(None)
    }

    pub(super) fn close<N: Net<Socket = S>>(
        &mut self,
        step: &Step,
        phase: &Phase,
        context: &mut Context<'_, N>,
    ) -> io::Result<Option<Turn>> {
        // The one before may have been of the same flowop.
        self.operation.slot = self.connections.top(self.operation.place);
        let owner = self.owner(step);
        self.connections.require(owner.slot)?;
        if let Some(socket) = self.connections.take(self.operation.place) {
            context.net.close(socket, owner);
        }
        self.received.last_sent_slot = None;
        let now = context.net.now();
        self.complete(step, phase, now, context);
        Ok(None)
    }

    /// Sends the end of the stream.
    pub(super) fn shut_down<N: Net<Socket = S>>(
        &mut self,
        step: &Step,
        phase: &Phase,
        context: &mut Context<'_, N>,
    ) -> io::Result<Option<Turn>> {
        let conn = self.connections.require(self.operation.slot)?;
        context.net.shut_down(&conn.socket)?;
        let now = context.net.now();
        self.complete(step, phase, now, context);
        Ok(None)
    }

    /// Receives the end of the stream, behind what earlier time-outs have left.
    pub(super) fn receive_end<N: Net<Socket = S>>(
        &mut self,
        step: &Step,
        phase: &Phase,
        context: &mut Context<'_, N>,
    ) -> io::Result<Option<Turn>> {
        let slot = self.operation.slot;
        let conn = self.connections.require(slot)?;
        let abandoned = conn.abandoned();
        let most = usize::try_from(abandoned.max(1)).unwrap_or(usize::MAX);
        let timed = step.timeout.is_some();
        match context.net.receive(&conn.socket, most, ReceiveCall::RECV, timed).map(<[u8]>::len) {
            Ok(0) => {
                let now = context.net.now();
                self.complete(step, phase, now, context);
                Ok(None)
            }
            Ok(got) if abandoned > 0 => {
                let got = got as u64;
                context.record.received(conn.abandoned_row(), conn.connector, got);
                self.bytes += got;
                self.connections.settle(slot, got);
                Ok(None)
            }
            Ok(_) => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "more bytes came where the stream was to end",
            )),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                Ok(Some(self.wait_or_time_out(step, Interest::Readable, context)?))
            }
            Err(error) => Err(error),
        }
    }
}
