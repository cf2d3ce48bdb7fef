//! Transactions of one datagram each, one after the other, with nothing that could time out or be compared: what stays
//! the same is looked up once for all that a turn moves. It does the same as the general way; a simulation compares
//! them.

use std::io;

use wirecost_model::clock::Nanos;

use super::plain::{Stop, share_of_turn};
use super::{Context, OPERATION_BYTES, Strand};
use crate::arrivals::arrived;
use crate::net::Net;
use crate::payload;
use crate::step::{Phase, PlainStep, ReceiveCall, SendCall};

impl<S> Strand<S> {
    /// Sends datagrams, of which the first has begun. `None`: the transaction is over, or the turn is.
    pub(super) fn send_datagrams<N: Net<Socket = S>>(
        &mut self,
        step: &PlainStep,
        call: SendCall,
        context: &mut Context<'_, N>,
        budget: &mut i64,
    ) -> Option<Stop> {
        let Context { net, record, patterns, timing, tag, .. } = context;
        let slot = self.operation.slot;
        let Some(conn) = self.connections.get_mut(slot) else { return Some(Stop::NotPlain) };
        let may_begin = self.transaction.may_begin(timing);
        let end = if timing.closed { Nanos::MAX } else { timing.end };
        let each = share_of_turn(step.length as usize);
        let (mut start, mut complete) = (self.operation.start, 0);
        // The end of one is when the next is sent; the first may have waited since.
        let mut now = net.now();
        let stop = loop {
            let (number, since) = (*tag | conn.sent, now.wrapping_sub(timing.start));
            let datagram = patterns.datagram(step.payload, step.length, number, since);
            let sent = match net.send(&conn.socket, datagram, call) {
                Ok(sent) => sent as u64,
                Err(error) => break Some(error),
            };
            now = net.now();
            conn.sent += 1;
            record.counters.datagrams_sent.add(1);
            record.sent_at_once(step.row, conn.connector, sent, start..now);
            start = now;
            complete += 1;
            *budget -= each;
            if *budget <= 0 || now >= end || complete >= may_begin {
                break None;
            }
        };
        let begun = stop.is_some() && net.has_begun_to_send(&conn.socket);
        self.bytes += complete * step.length;
        if complete > 0 {
            self.received.last_sent_slot = Some(slot);
        }
        let is_under_way = stop.is_some();
        self.transaction.complete_first(complete, start, is_under_way);
        self.operation.begun = is_under_way;
        self.operation.start = start;
        stop.map(|error| self.not_sent(error, begun))
    }

    /// Receives the datagrams that are there, of which the first is awaited. `None`: no more may begin, or the turn is
    /// over.
    pub(super) fn receive_datagrams<N: Net<Socket = S>>(
        &mut self,
        step: &PlainStep,
        call: ReceiveCall,
        phase: &Phase,
        context: &mut Context<'_, N>,
        budget: &mut i64,
    ) -> Option<Stop> {
        let Context { net, record, timing, tag, .. } = context;
        let slot = self.operation.slot;
        let Some(conn) = self.connections.get_mut(slot) else { return Some(Stop::NotPlain) };
        while *budget > 0 {
            let datagram = match net.receive(&conn.socket, usize::MAX, call, timing.finishing) {
                Ok(datagram) => datagram,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Some(Stop::NoBytes);
                }
                Err(error) => return Some(Stop::Failed(error)),
            };
            let bytes = datagram.len() as u64;
            let ahead = payload::ahead(datagram, *tag | conn.received);
            let sent = payload::sent_at(datagram);
            let now = net.now();
            self.received.last = now;
            self.bytes += bytes;
            *budget -= OPERATION_BYTES.max(bytes as i64);
            record.received(step.row, conn.connector, bytes);
            let counters = &record.counters;
            counters.datagrams_received.add(1);
            let times = (sent, now.wrapping_sub(timing.start));
            let place = (conn.received, ahead);
            let arrival = arrived(place, times, conn.arrivals(), &counters.arrivals);
            match arrival.number.filter(|_| !arrival.belated) {
                Some(number) => {
                    if ahead > 0 {
                        let passed = ahead.cast_unsigned();
                        counters.gaps.add(passed);
                        conn.pass_over(number, &counters.arrivals);
                        conn.expected += passed;
                        if phase.may_skip {
                            self.transaction.pass_by(passed);
                        }
                    }
                    conn.received += 1;
                    conn.expected += 1;
                    conn.arrivals().expected(number);
                    record.done(step.row, self.operation.start, now);
                    self.operation.start = now;
                    self.operation.begun = false;
                    self.transaction.add_completed(1);
                }
                None => counters.late.add(u64::from(arrival.is_new)),
            }
            if let Some(transit) = arrival.transit {
                record.one_way(transit, now);
            }
            if !self.operation.begun {
                if !self.transaction.begin_next(now.max(timing.start), timing) {
                    self.transaction.running = false;
                    return None;
                }
                self.operation.begin(step.length);
            }
        }
        None
    }
}
