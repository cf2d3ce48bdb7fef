//! Opening and closing connections.

use std::io;

use wirecost_model::clock::MILLISECOND;

use super::gathering::Gathering;
use super::{Conn, Context, Strand, Turn};
use crate::net::{Interest, Net, Opening};
use crate::step::{Phase, Step};

impl<S> Strand<S> {
    pub(super) fn connect<N: Net<Socket = S>>(
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

    pub(super) fn accept<N: Net<Socket = S>>(
        &mut self,
        step: &Step,
        phase: &Phase,
        context: &mut Context<'_, N>,
    ) -> io::Result<Option<Turn>> {
        let owner = self.owner(step);
        if self.opening.is_none() {
            match context.net.accept(step, owner) {
                Ok(socket) => {
                    if let Some(old) = self.conns[self.slot as usize].take() {
                        self.owed -= old.owed;
                        context.net.close(old.socket, owner);
                    }
                    self.opening = Some(socket);
                    self.engaged = true;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(Some(self.wait_or_time_out(step, Interest::Arrival, context)?));
                }
                Err(error) => return Err(error),
            }
        }
        if let Some(socket) = &mut self.opening
            && let Opening::Wait(on, _) = context.net.opening(socket)?
        {
            return Ok(Some(self.wait_or_time_out(step, on, context)?));
        }
        if let Some(socket) = self.opening.take() {
            self.opened(socket, false);
        }
        let now = context.net.now();
        self.complete(step, phase, now, context);
        Ok(None)
    }

    pub(super) fn opened(&mut self, socket: S, connector: bool) {
        self.conns[self.slot as usize] = Some(Conn {
            socket,
            connector,
            gathering: Gathering::new(),
            owed: 0,
            owed_row: 0,
            sent: 0,
            received: 0,
            passed: 0,
        });
    }

    pub(super) fn close<N: Net<Socket = S>>(
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
}
