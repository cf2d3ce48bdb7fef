//! Requests that do not wait for the answers to those before them: open-loop load, or a number of requests on their
//! way at a time. Each request is a transaction, which ends when its answer comes. The peer answers one after the
//! other, as ever, and numbers its answers as the requests are.

use std::io;

use wirecost_model::clock::{MILLISECOND, Nanos};

use super::datagrams::Arrived;
use super::{Activity, Context, OPERATION_BYTES, Strand, Turn, Wait, note_late};
use crate::net::{Interest, Net};
use crate::payload::Stamps;
use crate::step::{Action, Phase, Receive, Send, Step};

/// Requests whose answers are awaited.
#[derive(Debug, Default)]
pub(super) struct Outstanding {
    /// How many there are.
    requests: u64,
    /// When each was due, by its number modulo the length.
    due: Box<[Nanos]>,
}

impl Outstanding {
    pub(super) fn new(most: u64, start: Nanos) -> Self {
        // Not more than the option allows, whoever has sent the program.
        let places = usize::try_from(most.clamp(1, 1 << 16)).unwrap_or(1).next_power_of_two();
        // Another value than 0, so that its pages are there before the window begins.
        Self { requests: 0, due: vec![start.max(1); places].into() }
    }

    fn place(&mut self, number: u64) -> Option<&mut Nanos> {
        let mask = self.due.len().wrapping_sub(1) as u64;
        self.due.get_mut((number & mask) as usize)
    }
}

/// What a phase is that has such requests.
#[derive(Clone, Copy)]
struct Steps<'a> {
    request: (&'a Step, &'a Send),
    answer: (&'a Step, &'a Receive),
    most: u64,
    /// See [`Phase::lead`].
    lead: Nanos,
}

impl<'a> Steps<'a> {
    fn of(phase: &'a Phase) -> Option<Self> {
        let most = phase.outstanding?;
        match &phase.steps[..] {
            [request, answer] => match (&request.action, &answer.action) {
                (Action::Send(send), Action::Receive(receive)) => {
                    let (request, answer) = ((request, send), (answer, receive));
                    Some(Self { request, answer, most, lead: phase.lead })
                }
                _ => None,
            },
            _ => None,
        }
    }
}

/// Why no more requests are sent.
enum Stop {
    TurnOver,
    NoRoom,
    /// As many are without an answer as may be.
    Full,
    NotBefore(Nanos),
    /// No more may begin.
    Ended,
}

impl<S> Strand<S> {
    /// Whether answers are awaited.
    pub fn has_outstanding(&self) -> bool {
        self.outstanding.as_ref().is_some_and(|outstanding| outstanding.requests > 0)
    }

    /// Nothing more is awaited.
    pub(super) fn forget_outstanding(&mut self) {
        if let Some(outstanding) = &mut self.outstanding {
            outstanding.requests = 0;
        }
    }

    /// Takes the answers that are there, and sends requests. `None` where the phase has no such requests.
    pub(super) fn run_outstanding<N: Net<Socket = S>>(
        &mut self,
        phase: &Phase,
        context: &mut Context<'_, N>,
    ) -> Option<Turn> {
        let steps = Steps::of(phase)?;
        let mut budget = context.turn;
        self.enter_place(steps.request.0.first);
        if let Some(until) = self.pacing.paused(|| context.net.now()) {
            return Some(self.wait(Interest::Nothing, Some(until)));
        }
        loop {
            let (step, result) = match self.take_answers(steps, &mut budget, context) {
                Ok(()) => (steps.request.0, self.send_requests(phase, steps, &mut budget, context)),
                Err(error) => (steps.answer.0, Err(error)),
            };
            let error = match result {
                Ok(stop) => match self.after_requests(stop, steps, budget, context) {
                    Some(turn) => return Some(turn),
                    None => continue,
                },
                Err(error) => error,
            };
            let conn = self.connections.get(self.operation.slot);
            let harmless = error.kind() == io::ErrorKind::Interrupted
                || conn.is_some_and(|conn| context.net.take_hello_refusal(&conn.socket, &error));
            budget -= OPERATION_BYTES;
            if !harmless {
                return Some(self.fail(step, error, context).unwrap_or(Turn::Again));
            }
        }
    }

    /// What the strand waits for. `None` where it goes on at once.
    fn after_requests<N: Net<Socket = S>>(
        &mut self,
        stop: Stop,
        steps: Steps<'_>,
        budget: i64,
        context: &mut Context<'_, N>,
    ) -> Option<Turn> {
        let now = context.net.now();
        let until = match stop {
            _ if budget <= 0 => return Some(Turn::Again),
            Stop::TurnOver => return Some(Turn::Again),
            Stop::NoRoom => {
                // Answers that come meanwhile wait for no longer than this.
                let soon = Some(now + MILLISECOND);
                return Some(self.wait(Interest::Writable, soon));
            }
            Stop::Ended if !self.has_outstanding() => return Some(self.quiesce(context)),
            Stop::Full | Stop::Ended => None,
            Stop::NotBefore(start) => {
                self.set_activity(Activity::Resting, now, &context.record.counters);
                self.due = start;
                Some(start)
            }
        };
        // Where more may be sent, answers that do not come hold up nothing: later ones pass them over.
        if until.is_none()
            && let Some(timeout) = steps.answer.0.timeout
        {
            if self.operation.due == 0 {
                // The last request may not have left yet.
                self.operation.due = now.saturating_add(timeout).saturating_add(steps.lead);
            } else if now >= self.operation.due {
                self.give_up_answers(context);
                return None;
            }
        }
        let due = (self.operation.due > 0).then_some(self.operation.due);
        let slot = self.operation.slot;
        Some(Turn::Wait(Wait { slot, on: Interest::Readable, until: until.or(due) }))
    }

    /// Takes all answers that have come.
    fn take_answers<N: Net<Socket = S>>(
        &mut self,
        steps: Steps<'_>,
        budget: &mut i64,
        context: &mut Context<'_, N>,
    ) -> io::Result<()> {
        let (step, receive) = steps.answer;
        while *budget > 0 {
            let slot = self.operation.slot;
            let arrived = match self.next_datagram(step, receive, true, context) {
                Ok(arrived) => arrived,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            let Arrived { arrival, ahead, bytes, now } = arrived;
            *budget -= OPERATION_BYTES.max(bytes as i64);
            self.operation.due = 0;
            let counters = &context.record.counters;
            let Some(number) = arrival.number.filter(|_| !arrival.belated) else {
                counters.late.add(u64::from(arrival.is_new));
                continue;
            };
            let conn = self.connections.require(slot)?;
            // Where sends are under way for a while, an answer may be here before its request is known to be sent. Any
            // other answer to what was not asked is none.
            let under_way = self.transaction.running && self.transaction.engaged;
            if number >= conn.sent + u64::from(under_way) {
                continue;
            }
            counters.gaps.add(ahead.cast_unsigned());
            conn.pass_over(number, &counters.arrivals);
            conn.received += 1;
            conn.arrivals().expected(number);
            let awaited = conn.sent.saturating_sub(conn.received);
            let Some(outstanding) = &mut self.outstanding else { return Ok(()) };
            outstanding.requests = awaited;
            let due = outstanding.place(number).map_or(now, |due| *due);
            // Where nobody held back what has a departure time.
            let now = now.max(due);
            self.transaction.completed += 1;
            context.record.done(step.row, due, now);
            context.record.transaction(self.group, now.saturating_sub(due), now);
        }
        Ok(())
    }

    /// Sends requests for as long as they may be sent.
    fn send_requests<N: Net<Socket = S>>(
        &mut self,
        phase: &Phase,
        steps: Steps<'_>,
        budget: &mut i64,
        context: &mut Context<'_, N>,
    ) -> io::Result<Stop> {
        let (step, send) = steps.request;
        let timing = context.timing;
        let mut now = context.net.now();
        loop {
            if *budget <= 0 {
                return Ok(Stop::TurnOver);
            }
            let under_way = self.transaction.running && self.transaction.engaged;
            if !under_way && !self.transaction.may_begin_at(now.max(timing.start), timing) {
                self.transaction.running = false;
                return Ok(Stop::Ended);
            }
            if self.outstanding.as_ref().is_none_or(|of| of.requests >= steps.most) {
                return Ok(Stop::Full);
            }
            if !self.transaction.running {
                let iteration = self.transaction.iteration;
                let mut due = now;
                if let (Some(pace), false) = (&phase.pace, timing.closed) {
                    let from = if pace.is_trace() { timing.window } else { timing.start };
                    due = from.saturating_add(self.pacing.intended(pace, self.number, iteration));
                    let handed_over = due.saturating_sub(steps.lead);
                    if handed_over >= timing.end && iteration >= self.transaction.limit {
                        return Ok(Stop::Ended);
                    }
                    if now < handed_over {
                        return Ok(Stop::NotBefore(handed_over));
                    }
                    if steps.lead > 0 {
                        self.pacing.schedule(pace, self.number, due);
                    }
                    note_late(due, now, &context.record.counters);
                } else {
                    self.pacing.unschedule();
                }
                let number = self.connections.require(self.operation.slot)?.sent;
                if let Some(of_request) = self.outstanding.as_mut().and_then(|of| of.place(number))
                {
                    *of_request = due;
                }
                self.transaction.begin(due);
                self.transaction.begin_steps();
                self.operation.number = 0;
                self.operation.start = due;
                let at = self.coordinates(step);
                self.operation.begin_message(step, &send.messages, at);
                self.set_activity(Activity::Working, now, &context.record.counters);
            }
            let conn = self.connections.require(self.operation.slot)?;
            let (payload, length) = (send.messages.payload, self.operation.length);
            let number = context.tag | conn.sent;
            let mut leaves = 0;
            let result = if steps.lead > 0 {
                let departures = self.pacing.departures((0, 1), now);
                leaves = departures.at(0);
                let (departures, origin) = (Some(departures), timing.start);
                let stamps = Stamps { first: number, now, departures, origin };
                let lengths = std::iter::once(length as usize);
                let batch = context.patterns.batch(payload, lengths, stamps, 1);
                context.net.send_batch(&conn.socket, &batch).map(|_| batch.bytes.len())
            } else {
                let since = now.wrapping_sub(timing.start);
                let piece = context.patterns.datagram(payload, length, number, since);
                context.net.send(&conn.socket, piece, send.call)
            };
            let sent = match result {
                Ok(sent) => sent as u64,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.transaction.engaged |= context.net.has_begun_to_send(&conn.socket);
                    return Ok(Stop::NoRoom);
                }
                Err(error) => return Err(error),
            };
            now = context.net.now();
            conn.sent += 1;
            let awaited = conn.sent.saturating_sub(conn.received);
            context.record.sent(step.row, conn.connector, sent);
            context.record.counters.datagrams_sent.add(1);
            context.record.done(step.row, self.operation.start, now.max(leaves));
            self.pacing.note_departure(leaves);
            self.bytes += sent;
            *budget -= OPERATION_BYTES.max(sent as i64);
            self.transaction.sent_request();
            self.operation.begun = false;
            if let Some(outstanding) = &mut self.outstanding {
                outstanding.requests = awaited;
            }
        }
    }

    /// Awaits none of the answers any more.
    fn give_up_answers<N: Net<Socket = S>>(&mut self, context: &Context<'_, N>) {
        self.operation.due = 0;
        if let Some(conn) = self.connections.get_mut(self.operation.slot) {
            let counters = &context.record.counters;
            counters.gaps.add(conn.sent.saturating_sub(conn.received));
            conn.pass_over(conn.sent, &counters.arrivals);
        }
        self.forget_outstanding();
    }
}
