//! Answers to several clients, sent together: a strand that serves any client reads what has come, and then sends as many
//! answers by one call as its options say.

use std::io;
use std::net::SocketAddr;

use super::{Context, Strand, Turn};
use crate::calls::Sends;
use crate::net::Net;
use crate::payload::Addressed;
use crate::step::{Action, Coordinates, Messages, Phase, Receive, ReceiveCall, SendCall, Step};

/// Answers that have not been sent.
#[derive(Debug)]
pub(super) struct Answers {
    /// In the order in which their requests came.
    pending: Vec<Answer>,
    /// So many are sent before more requests are read.
    most: usize,
    /// Of the call under way.
    messages: Vec<Addressed>,
}

#[derive(Debug, Clone, Copy)]
struct Answer {
    /// That of its request, as it is in the datagram.
    number: u64,
    to: SocketAddr,
}

impl Answers {
    /// None where a phase has no answers that are sent together.
    pub(super) fn new(phase: &Phase) -> Option<Self> {
        let sends = phase.steps.last().and_then(|step| match &step.action {
            Action::Send(send) => Some(send.call),
            _ => None,
        });
        match sends {
            Some(SendCall::Batched(Sends { messages, segments })) if phase.answers_together => {
                let most = usize::from(messages.max(1)) * usize::from(segments.max(1));
                let (pending, messages) = (Vec::with_capacity(most), Vec::with_capacity(most));
                Some(Self { pending, most, messages })
            }
            _ => None,
        }
    }

    pub(super) fn add(&mut self, number: u64, to: SocketAddr) {
        self.pending.push(Answer { number, to });
    }

    /// Makes the messages of one call: the kernel cuts one into several datagrams, which all go to one client. Returns
    /// how many answers they are.
    fn gather(&mut self, sends: Sends) -> usize {
        self.messages.clear();
        for (place, answer) in self.pending.iter().enumerate() {
            if let Some(last) = self.messages.last_mut()
                && last.to == answer.to
                && last.datagrams < sends.segments
            {
                last.datagrams += 1;
            } else if self.messages.len() < usize::from(sends.messages.max(1)) {
                self.messages.push(Addressed { to: answer.to, datagrams: 1 });
            } else {
                return place;
            }
        }
        self.pending.len()
    }
}

impl<S> Strand<S> {
    /// Whether it has read requests that it has not answered, see [`Phase::answers_together`].
    pub(super) fn has_answers(&self) -> bool {
        self.answers.as_ref().is_some_and(|answers| !answers.pending.is_empty())
    }

    /// Goes on to send the answers, or when all are sent, to read again.
    pub(super) fn end_step(&mut self, phase: &Phase) {
        self.transaction.next_step(phase, self.number);
        self.enter_step(phase);
    }

    /// Goes on to send the answers where there are as many as one call sends, or no more requests that one call has
    /// received.
    pub(super) fn answer_if_all<N: Net<Socket = S>>(
        &mut self,
        phase: &Phase,
        receive: &Receive,
        context: &Context<'_, N>,
    ) {
        let Some(answers) = self.answers.as_ref().filter(|answers| !answers.pending.is_empty())
        else {
            return;
        };
        let conn = self.connections.get(self.operation.slot);
        // Where a call receives one, the next call says whether there are more.
        let is_over = matches!(receive.call, ReceiveCall::Batched(_))
            && conn.is_some_and(|conn| !context.net.has_received(&conn.socket));
        if is_over || answers.pending.len() >= answers.most {
            self.end_step(phase);
        }
    }

    /// Sends answers by one call, each of them an operation.
    pub(super) fn send_answers<N: Net<Socket = S>>(
        &mut self,
        step: &Step,
        phase: &Phase,
        messages: &Messages,
        sends: Sends,
        context: &mut Context<'_, N>,
    ) -> io::Result<Option<Turn>> {
        self.begin_message(step, messages);
        let at = Coordinates { number: self.operation.number, ..self.coordinates(step) };
        let length = messages.length.at(at);
        let conn = self.connections.require(self.operation.slot)?;
        let connector = conn.connector;
        let Some(answers) = &mut self.answers else { return Ok(None) };
        let all = answers.gather(sends);
        let numbers = answers.pending[..all].iter().map(|answer| answer.number);
        let now = context.net.now().wrapping_sub(context.timing.start);
        let form = (usize::from(sends.segments), &answers.messages[..]);
        let of_length = (messages.payload, length as usize);
        let batch = context.patterns.answers(of_length, numbers, now, form);
        let counters = &context.record.counters;
        let sent = match context.net.send_batch(&conn.socket, &batch) {
            Ok(sent) => sent,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Ok(Some(self.no_room(step, context)?));
            }
            Err(error) => {
                if error.kind() != io::ErrorKind::Interrupted {
                    // The call tells it of its first message. Where that may fail, the others are sent all the same.
                    let first = answers.messages.first().map_or(0, |message| message.datagrams);
                    answers.pending.drain(..usize::from(first));
                    let is_last = answers.pending.is_empty();
                    counters.skipped.add(first.into());
                    // Whoever hears of the error counts one.
                    let (began, now) = (self.operation.start, context.net.now());
                    for _ in 1..first {
                        context.record.failed(step.row, false);
                        context.record.failure_ended(began, now.max(began));
                    }
                    if is_last {
                        self.end_step(phase);
                    }
                }
                return Err(error);
            }
        };
        answers.pending.drain(..sent);
        let is_last = answers.pending.is_empty();
        counters.datagrams_sent.add(sent as u64);
        let returned = context.net.now();
        for _ in 0..sent {
            context.record.sent(step.row, connector, length);
            self.bytes += length;
            self.complete(step, phase, returned, context);
        }
        if is_last {
            self.end_step(phase);
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gathered(clients: &[u16], sends: Sends) -> (usize, Vec<(u16, u16)>) {
        let mut answers = Answers { pending: Vec::new(), most: 100, messages: Vec::new() };
        for (number, &client) in (0..).zip(clients) {
            answers.add(number, SocketAddr::from(([198, 18, 0, 1], client)));
        }
        let all = answers.gather(sends);
        (all, answers.messages.iter().map(|one| (one.to.port(), one.datagrams)).collect())
    }

    #[test]
    fn answers_in_a_row_to_one_client_are_one_message() {
        let sends = |messages, segments| Sends { messages, segments };
        let clients = [1, 1, 1, 2, 1, 2, 2];
        assert_eq!(
            gathered(&clients, sends(8, 2)),
            (7, vec![(1, 2), (1, 1), (2, 1), (1, 1), (2, 2)])
        );
        assert_eq!(gathered(&clients, sends(2, 4)), (4, vec![(1, 3), (2, 1)]));
        assert_eq!(gathered(&clients, sends(3, 1)), (3, vec![(1, 1); 3]));
        assert_eq!(gathered(&[], sends(3, 1)), (0, vec![]));
    }
}
