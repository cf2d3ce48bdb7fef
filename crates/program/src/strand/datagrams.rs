//! Datagrams: which one has arrived, what was lost before it, and what will not come any more.

use std::io;

use wirecost_model::clock::Nanos;

use super::{Context, LEFT_ALONE, Strand, Turn};
use crate::net::{Interest, Net};
use crate::payload;
use crate::record::Record;
use crate::step::{Action, Phase, ReceiveCall, Step};

impl<S> Strand<S> {
    /// Takes the next datagram: is it the awaited one, a later or an earlier one?
    pub(super) fn datagram<N: Net<Socket = S>>(
        &mut self,
        step: &Step,
        phase: &Phase,
        call: ReceiveCall,
        context: &mut Context<'_, N>,
    ) -> io::Result<Option<Turn>> {
        let timed = step.timeout.is_some() || context.gate.finishing;
        let conn = self.conn()?;
        let datagram = match context.net.receive(&conn.socket, usize::MAX, call, timed) {
            Ok(datagram) => datagram,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Ok(Some(self.wait_or_time_out(step, Interest::Readable, context)?));
            }
            Err(error) => return Err(error),
        };
        let got = datagram.len() as u64;
        context.record.received(step.row, conn.connector, got);
        let counters = context.record.counters.clone();
        counters.datagrams_received.add(1);
        let expected = context.tag | conn.received;
        let ahead = payload::ahead(datagram, expected);
        let known = (0..1 << 40).contains(&ahead);
        if known && step.verify {
            let number = expected.wrapping_add_signed(ahead);
            if !context.patterns.matches(step.payload, datagram, 0, number) {
                context.record.verify_failures += 1;
            }
        }
        let now = context.net.now();
        self.heard = now;
        self.silent = false;
        self.bytes += got;
        if !known {
            // Of before, or of another phase.
            counters.late.add(1);
            return Ok(None);
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
        Ok(None)
    }

    /// Passes over the program up to where the strand would have received `datagrams` more on this
    /// connection. What it would have sent in between is left out: nobody waits for it any more.
    pub(super) fn skip<N: Net<Socket = S>>(
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
            // Of a mix there may be none here.
            while self.step as usize >= phase.steps.len() {
                self.iteration += 1;
                self.reached = self.iteration;
                self.transaction_start = self.operation_start;
                self.thought = 0;
                self.failed = false;
                self.first_step(phase);
            }
        }
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
        if phase.mixed {
            self.pass_rest(phase, record);
            return true;
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

    /// Goes through the rest of the program, where each transaction draws what is in it, to count
    /// the datagrams that are missing.
    fn pass_rest(&mut self, phase: &Phase, record: &Record) {
        let limit = if phase.opens { self.iteration + 1 } else { self.limit };
        while self.iteration < limit {
            let Some(step) = phase.steps.get(self.step as usize) else {
                self.iteration += 1;
                self.first_step(phase);
                continue;
            };
            if let (Action::Send(_), Some(conn)) =
                (step.action, &mut self.conns[self.slot as usize])
            {
                conn.sent += 1;
                record.counters.skipped.add(1);
            }
            self.advance(step, phase);
        }
        for conn in self.conns.iter_mut().flatten() {
            record.counters.gaps.add(conn.passed.saturating_sub(conn.received));
            conn.received = conn.passed.max(conn.received);
        }
        self.iteration = self.iteration.max(self.limit);
        self.running = false;
    }
}
