//! The operation under way: how much of it has been moved, and until when it may take.

use wirecost_model::clock::Nanos;

use crate::step::{Coordinates, Messages, Phase, Step};

#[derive(Debug, Default)]
pub(super) struct Operation {
    /// The place of its connection's id, and the slot of its connection.
    pub(super) place: u32,
    pub(super) slot: u32,
    /// Counted from the beginning of the step on this connection.
    pub(super) number: u64,
    /// When it began, or was meant to.
    pub(super) start: Nanos,
    pub(super) begun: bool,
    /// Its bytes, or the nanoseconds of a thought, and the bytes of it that have been moved.
    pub(super) length: u64,
    pub(super) moved: u64,
    /// Where operations are not messages: the messages that they are pieces of.
    pieces: Option<Box<Pieces>>,
    /// When it times out, or the thought ends; 0 until that is known.
    pub(super) due: Nanos,
    /// It has been counted as failed already.
    pub(super) overdue: bool,
    /// Nothing has come within an impatient time-out of this step.
    pub(super) silent: bool,
}

/// Messages whose bytes operations of another size move.
#[derive(Debug, Default)]
struct Pieces {
    /// Messages whose lengths are known.
    drawn: u64,
    /// Bytes of those that no operation has had.
    available: u64,
    /// Where messages are numbered: the message under way, and how much of it has been moved.
    message: u64,
    offset: u64,
}

impl Pieces {
    /// Makes sure that at least `bytes` are available, unless all messages together have fewer. A
    /// step of many messages is not added up at once.
    fn draw(&mut self, bytes: u64, step: &Step, messages: &Messages, at: Coordinates) {
        if let Some(length) = messages.length.fixed() {
            let left = step.count - self.drawn;
            self.available = self.available.saturating_add(length.saturating_mul(left));
            self.drawn = step.count;
        }
        while self.available < bytes && self.drawn < step.count {
            let length = messages.length.at(Coordinates { number: self.drawn, ..at });
            self.available = self.available.saturating_add(length);
            self.drawn += 1;
        }
    }
}

impl Operation {
    /// Makes ready for a phase that begins at `start`.
    pub(super) fn begin_phase(&mut self, start: Nanos) {
        self.start = start;
        // One that began in the phase before and moved nothing has that phase's length.
        self.over();
    }

    /// Makes ready for a step, or for its next connection.
    #[inline]
    pub(super) fn enter(&mut self, place: u32, slot: u32) {
        self.place = place;
        self.slot = slot;
        self.number = 0;
        self.silent = false;
    }

    /// Takes the memory that a phase needs.
    pub(super) fn reserve(&mut self, phase: &Phase) {
        let has_pieces =
            |step: &Step| step.messages().is_some_and(|messages| messages.unit.is_some());
        if phase.steps.iter().any(has_pieces) {
            self.pieces();
        }
    }

    /// The operation is over, completed or not.
    #[inline]
    pub(super) fn over(&mut self) {
        self.begun = false;
        self.due = 0;
        self.overdue = false;
    }

    /// Bytes that are left of it.
    #[inline]
    pub(super) fn left(&self) -> u64 {
        self.length - self.moved
    }

    #[inline]
    pub(super) fn begin(&mut self, length: u64) {
        self.length = length;
        self.moved = 0;
        self.begun = true;
    }

    /// The messages that operations are pieces of, where they are.
    fn pieces(&mut self) -> &mut Pieces {
        self.pieces.get_or_insert_default()
    }

    /// Begins one that moves a message, or a piece of one. `at` is the place of its first message.
    #[inline]
    pub(super) fn begin_message(&mut self, step: &Step, messages: &Messages, at: Coordinates) {
        let length = match messages.unit {
            None => messages.length.at(Coordinates { number: self.number, ..at }),
            Some(unit) => {
                let unit = unit.max(1);
                if self.number == 0 {
                    *self.pieces() = Pieces::default();
                    self.pass(step, messages, at, 0);
                }
                let pieces = self.pieces();
                pieces.draw(unit, step, messages, at);
                unit.min(pieces.available)
            }
        };
        self.begin(length);
    }

    /// The operation has had its bytes, or they are given up. Whether more are to follow of the
    /// same messages is for [`Operation::has_more`] to say.
    #[inline]
    pub(super) fn spend(&mut self) {
        if let Some(pieces) = &mut self.pieces {
            pieces.available = pieces.available.saturating_sub(self.length);
        }
    }

    /// Whether the step has more operations on this connection.
    #[inline]
    pub(super) fn has_more(
        &mut self,
        step: &Step,
        messages: Option<&Messages>,
        at: Coordinates,
    ) -> bool {
        match messages.filter(|messages| messages.unit.is_some()) {
            Some(messages) => {
                let pieces = self.pieces();
                pieces.draw(1, step, messages, at);
                pieces.available > 0
            }
            None => self.number < step.count,
        }
    }

    /// Keeps account of the message under way, where operations are not messages.
    #[inline]
    pub(super) fn pass(&mut self, step: &Step, messages: &Messages, at: Coordinates, bytes: u64) {
        if !messages.verify || messages.unit.is_none() {
            return;
        }
        let pieces = self.pieces();
        pieces.offset += bytes;
        while pieces.message < step.count {
            let length = messages.length.at(Coordinates { number: pieces.message, ..at });
            if pieces.offset < length {
                return;
            }
            pieces.offset -= length;
            pieces.message += 1;
        }
    }

    /// The message under way: which one of the step it is, its bytes moved, and those left.
    #[inline]
    pub(super) fn message(&self, messages: &Messages, at: Coordinates) -> (u64, u64, u64) {
        if !messages.verify || messages.unit.is_none() {
            return (0, self.moved, self.left());
        }
        let pieces = self.pieces.as_deref();
        let (message, offset) = pieces.map_or((0, 0), |pieces| (pieces.message, pieces.offset));
        let length = messages.length.at(Coordinates { number: message, ..at });
        (message, offset, self.left().min(length.saturating_sub(offset)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use wirecost_model::profile::Position;
    use wirecost_profile::flowops;

    use super::*;
    use crate::step::{Action, Distribution, SeededDistribution, Send, SendCall};

    fn step(count: u64) -> Step {
        let choices = Distribution::Choices(Arc::from([(u64::MAX / 2, 0), (u64::MAX, 700)]));
        let messages = Messages {
            length: SeededDistribution::new(choices, 7),
            unit: Some(1000),
            payload: 0,
            verify: false,
        };
        let call = SendCall::Plain(flowops::SendCall::Write);
        Step {
            action: Action::Send(Send { messages, call }),
            row: 0,
            first: 0,
            last: 0,
            first_id: 1,
            count,
            timeout: None,
            can_fail: false,
            datagram: false,
            at: Position::default(),
            kind: "write",
        }
    }

    #[test]
    fn a_step_of_many_messages_is_not_added_up_at_its_beginning() {
        let step = step(u64::MAX);
        let at = Coordinates { strand: 0, round: 0, conn: 1, number: 0 };
        let mut operation = Operation::default();
        operation.begin_message(&step, step.messages().unwrap(), at);
        assert_eq!(operation.length, 1000);
        assert!(operation.pieces().drawn < 100, "{:?}", operation.pieces);
    }

    #[test]
    fn pieces_of_messages_add_up_to_the_messages() {
        let step = step(50);
        let messages = step.messages().unwrap();
        let at = Coordinates { strand: 0, round: 3, conn: 1, number: 0 };
        let whole: u64 =
            (0..50).map(|number| messages.length.at(Coordinates { number, ..at })).sum();
        let (mut operation, mut sum) = (Operation::default(), 0);
        loop {
            operation.begin_message(&step, messages, at);
            sum += operation.length;
            operation.spend();
            operation.over();
            operation.number += 1;
            if !operation.has_more(&step, Some(messages), at) {
                break;
            }
        }
        assert_eq!(sum, whole);
        assert_eq!(operation.number, whole.div_ceil(1000));
    }
}
