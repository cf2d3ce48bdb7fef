//! Datagrams: which one has arrived, what was lost before it, and what will not come any more.

use std::io;

use wirecost_model::clock::{Nanos, SECOND};

use super::{Context, Strand, Turn};
use crate::arrivals::{Arrival, arrived};
use crate::net::{FromClient, Interest, Net};
use crate::payload;
use crate::record::Record;
use crate::step::{Action, Phase, Receive, Step};

/// How long a strand waits for the other side to begin a transaction that may have failed there,
/// once all have been agreed on.
const LEFT_ALONE: Nanos = SECOND;

/// A datagram that has come on a connection.
pub(super) struct Arrived {
    pub(super) arrival: Arrival,
    /// How far its number is ahead of the awaited one.
    pub(super) ahead: i64,
    pub(super) bytes: u64,
    pub(super) now: Nanos,
}

impl<S> Strand<S> {
    /// Takes the next datagram: is it the awaited one, a later or an earlier one?
    pub(super) fn receive_datagram<N: Net<Socket = S>>(
        &mut self,
        step: &Step,
        phase: &Phase,
        receive: &Receive,
        context: &mut Context<'_, N>,
    ) -> io::Result<Option<Turn>> {
        let messages = &receive.messages;
        self.begin_message(step, messages);
        if phase.serves {
            return self.receive_from_client(step, phase, receive, context);
        }
        let timed = step.timeout.is_some() || context.timing.finishing;
        let slot = self.operation.slot;
        let Arrived { arrival, ahead, now, .. } =
            match self.next_datagram(step, receive, timed, context) {
                Ok(arrived) => arrived,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(Some(self.wait_or_time_out(step, Interest::Readable, context)?));
                }
                Err(error) => return Err(error),
            };
        let conn = self.connections.require(slot)?;
        let counters = &context.record.counters;
        let Some(number) = arrival.number.filter(|_| !arrival.belated) else {
            counters.late.add(u64::from(arrival.is_new));
            return Ok(None);
        };
        if ahead > 0 {
            counters.gaps.add(ahead as u64);
            if phase.may_skip {
                self.skip(phase, ahead as u64, context);
            } else {
                conn.pass_over(number, &counters.arrivals);
            }
        }
        if let Some(conn) = self.connections.get_mut(slot) {
            conn.received += 1;
            conn.arrivals().expected(number);
        }
        let step = phase.steps.get(self.transaction.step()).unwrap_or(step);
        self.complete(step, phase, now, context);
        Ok(None)
    }

    /// Receives a datagram on the connection of the operation under way.
    pub(super) fn next_datagram<N: Net<Socket = S>>(
        &mut self,
        step: &Step,
        receive: &Receive,
        timed: bool,
        context: &mut Context<'_, N>,
    ) -> io::Result<Arrived> {
        let messages = &receive.messages;
        let conn = self.connections.require(self.operation.slot)?;
        let datagram = context.net.receive(&conn.socket, usize::MAX, receive.call, timed)?;
        let bytes = datagram.len() as u64;
        context.record.received(step.row, conn.connector, bytes);
        let counters = &context.record.counters;
        counters.datagrams_received.add(1);
        let expected = context.tag | conn.received;
        let ahead = payload::ahead(datagram, expected);
        if messages.verify && (0..1 << 40).contains(&ahead) {
            let number = expected.wrapping_add_signed(ahead);
            if !context.patterns.datagram_matches(messages.payload, datagram, number) {
                context.record.verify_failures += 1;
            }
        }
        let sent = payload::sent_at(datagram);
        let now = context.net.now();
        self.received.last = now;
        self.operation.silent = false;
        self.bytes += bytes;
        let place = (conn.received, ahead);
        let times = (sent, now.wrapping_sub(context.timing.start));
        let arrival = arrived(place, times, conn.arrivals(), &counters.arrivals);
        if let Some(transit) = arrival.transit {
            context.record.one_way(transit, now);
        }
        Ok(Arrived { arrival, ahead, bytes, now })
    }

    /// Takes the next datagram of any client. Each that has not come before is an operation: which of them are lost,
    /// the client's numbers tell.
    fn receive_from_client<N: Net<Socket = S>>(
        &mut self,
        step: &Step,
        phase: &Phase,
        receive: &Receive,
        context: &mut Context<'_, N>,
    ) -> io::Result<Option<Turn>> {
        let timed = step.timeout.is_some() || context.timing.finishing;
        let slot = self.operation.slot;
        let conn = self.connections.require(slot)?;
        let FromClient { datagram, client, at: now } =
            match context.net.receive_from_client(&conn.socket, receive.call, timed) {
                Ok(received) => received,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(Some(self.wait_or_time_out(step, Interest::Readable, context)?));
                }
                Err(error) => return Err(error),
            };
        let (got, counters) = (datagram.len() as u64, &context.record.counters);
        let taken = client.take(
            (context.tag, phase.answers()),
            datagram,
            (now, context.timing.start),
            counters,
        );
        let payload = receive.messages.payload;
        if receive.messages.verify
            && let Some(number) = taken.arrival.number
            && !context.patterns.datagram_matches(payload, datagram, context.tag | number)
        {
            context.record.verify_failures += 1;
        }
        let conn = self.connections.require(slot)?;
        if let Some(number) = taken.answer {
            conn.sent = number;
            context.net.will_answer(&conn.socket);
        }
        context.record.received(step.row, conn.connector, got);
        context.record.counters.datagrams_received.add(1);
        self.received.last = now;
        self.operation.silent = false;
        self.bytes += got;
        if let Some(transit) = taken.arrival.transit {
            context.record.one_way(transit, now);
        }
        if taken.answer.is_some() {
            self.complete(step, phase, now, context);
        }
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
        let slot = self.operation.slot;
        let mut left = datagrams;
        while let Some(step) = phase.steps.get(self.transaction.step()) {
            let here = self.operation.slot;
            let conn = self.connections.get_mut(here);
            match (&step.action, conn) {
                (Action::Receive(_), Some(conn)) => {
                    if here == slot && left == 0 {
                        return;
                    }
                    conn.pass_over(conn.received + 1, &context.record.counters.arrivals);
                    if here == slot {
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
            self.transaction.failed = true;
            self.advance(step, phase);
            // Of a mix there may be none here.
            while self.transaction.step() >= phase.steps.len() {
                self.transaction.skip(self.operation.start);
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
        let heard = self.received.last.max(since).max(self.operation.start);
        let waits = self.transaction.running
            && phase
                .steps
                .get(self.transaction.step())
                .is_some_and(|step| matches!(step.action, Action::Receive(_) | Action::Accept(_)));
        if !(waits || self.has_outstanding()) || self.finished() {
            return false;
        }
        // What the other side failed to begin does not come either.
        if phase.can_fail && !self.transaction.engaged && now >= heard + LEFT_ALONE {
            self.transaction.give_up();
            return true;
        }
        if !phase.datagrams_only || now < heard + phase.quiet {
            return false;
        }
        if phase.mixed {
            self.pass_rest(phase, record);
            return true;
        }
        // What is missing is the clients', whom others may have heard.
        if phase.serves {
            self.transaction.give_up();
            return true;
        }
        // A connection that is opened anew in each transaction counts from 0 in each.
        let transactions = if phase.opens { 1 } else { self.limit().max(self.iteration()) };
        // Where connections are opened, those below the newest had their turn.
        for conn in self.connections.tops_mut() {
            let Some((receives, sends)) = phase.datagrams.get(conn.place as usize) else {
                continue;
            };
            let (received, sent) = (transactions * receives, transactions * sends);
            record.counters.gaps.add(received.saturating_sub(conn.received));
            record.counters.skipped.add(sent.saturating_sub(conn.sent));
            conn.pass_over(received, &record.counters.arrivals);
            conn.sent = sent.max(conn.sent);
        }
        self.forget_outstanding();
        self.transaction.give_up();
        true
    }

    /// Goes through the rest of the program, where each transaction draws what is in it, to count
    /// the datagrams that are missing.
    fn pass_rest(&mut self, phase: &Phase, record: &Record) {
        let limit = if phase.opens { self.iteration() + 1 } else { self.limit() };
        while self.iteration() < limit {
            let Some(step) = phase.steps.get(self.transaction.step()) else {
                self.transaction.iteration += 1;
                self.first_step(phase);
                continue;
            };
            if step.sends()
                && let Some(conn) = self.connections.get_mut(self.operation.slot)
            {
                conn.sent += 1;
                record.counters.skipped.add(1);
            }
            self.advance(step, phase);
        }
        for conn in self.connections.iter_mut() {
            record.counters.gaps.add(conn.expected.saturating_sub(conn.received));
            conn.pass_over(conn.expected, &record.counters.arrivals);
        }
        self.transaction.give_up();
    }
}
