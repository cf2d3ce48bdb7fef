//! Datagrams: which one has arrived, what was lost before it, and what will not come any more.

use std::io;

use wirecost_model::clock::{Nanos, SECOND};

use super::{Context, Strand, Turn};
use crate::arrivals::{Arrival, arrived};
use crate::net::{FromClient, Interest, Net};
use crate::payload;
use crate::record::{Record, WorkerCounters};
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

/// A strand passes over so many steps in one turn, which takes less than a millisecond.
const STEPS: u32 = 1 << 13;

/// A datagram that has come, before which others are passed over.
#[derive(Debug, Clone, Copy)]
pub(super) struct Skip {
    slot: u32,
    left: u64,
    number: u64,
    now: Nanos,
}

/// Transactions that were passed over together, and the datagrams of them that would have come on one connection.
#[derive(Debug, Clone, Copy, Default)]
struct Skipped {
    transactions: u64,
    datagrams: u64,
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
            // Of several answers a later one may have come first: each of them ends an operation all the same.
            let first = conn.expected.saturating_sub(self.operation.number);
            let is_of_step =
                |number: u64| (first..first.saturating_add(step.count)).contains(&number);
            if receive.reply && arrival.is_new && arrival.number.is_some_and(is_of_step) {
                self.complete(step, phase, now, context);
                self.pass_unanswered(receive, slot, &context.record.counters);
            }
            return Ok(None);
        };
        if ahead > 0 {
            counters.gaps.add(ahead as u64);
            if phase.may_skip {
                let skip = Skip { slot, left: ahead as u64, number, now };
                return Ok(self.skip(phase, skip, context));
            }
            conn.pass_over(number, &counters.arrivals);
        }
        self.take_expected(phase, (slot, number, now), context);
        self.pass_unanswered(receive, slot, &context.record.counters);
        Ok(None)
    }

    /// Where the step under way has just begun, what the one before it has left without an answer is lost. A later answer
    /// than an operation's own may have ended that.
    fn pass_unanswered(&mut self, receive: &Receive, slot: u32, counters: &WorkerCounters) {
        if receive.reply
            && self.operation.number == 0
            && let Some(conn) = self.connections.get_mut(slot)
            && conn.received < conn.expected
        {
            counters.gaps.add(conn.expected - conn.received);
            conn.pass_over(conn.expected, &counters.arrivals);
        }
    }

    /// A datagram that the strand now waits for has come.
    fn take_expected<N: Net<Socket = S>>(
        &mut self,
        phase: &Phase,
        (slot, number, now): (u32, u64, Nanos),
        context: &mut Context<'_, N>,
    ) {
        if let Some(conn) = self.connections.get_mut(slot) {
            conn.received += 1;
            conn.arrivals().expected(number);
        }
        if let Some(step) = phase.steps.get(self.transaction.step()) {
            self.complete(step, phase, now, context);
        }
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
        let has_answers = self.has_answers();
        let timed = step.timeout.is_some() || context.timing.finishing || has_answers;
        let slot = self.operation.slot;
        let conn = self.connections.require(slot)?;
        let FromClient { datagram, client, from, at: now } =
            match context.net.receive_from_client(&conn.socket, receive.call, timed) {
                Ok(received) => received,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && has_answers => {
                    self.end_step(phase);
                    return Ok(None);
                }
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
            match &mut self.answers {
                Some(answers) => answers.add(context.tag | number, from),
                None => {
                    conn.sent = number;
                    context.net.will_answer(&conn.socket);
                }
            }
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
        self.answer_if_all(phase, receive, context);
        Ok(None)
    }

    /// Goes on with what an earlier turn has begun to pass over.
    pub(super) fn go_on_skipping<N: Net<Socket = S>>(
        &mut self,
        phase: &Phase,
        context: &mut Context<'_, N>,
    ) -> Option<Turn> {
        let skip = self.skip.take()?;
        self.skip(phase, *skip, context)
    }

    /// Passes over the datagrams before one that has come, and takes that. Where they are very many, others have their
    /// turn in between.
    fn skip<N: Net<Socket = S>>(
        &mut self,
        phase: &Phase,
        mut skip: Skip,
        context: &mut Context<'_, N>,
    ) -> Option<Turn> {
        match self.pass_over_program(phase, (skip.slot, skip.left), context) {
            Some(left) => {
                skip.left = left;
                self.skip = Some(Box::new(skip));
                Some(Turn::Again)
            }
            None => {
                self.take_expected(phase, (skip.slot, skip.number, skip.now), context);
                None
            }
        }
    }

    /// Passes over the program up to where the strand would have received `left` datagrams more on the connection in
    /// `slot`. What it would have sent in between is left out: nobody waits for it any more. Returns how many are left
    /// where others should have their turn first.
    ///
    /// Steps are passed over with all their operations, and transactions that are alike all together: the number of
    /// a forged datagram says how many there are.
    fn pass_over_program<N: Net<Socket = S>>(
        &mut self,
        phase: &Phase,
        (slot, mut left): (u32, u64),
        context: &mut Context<'_, N>,
    ) -> Option<u64> {
        let mut steps = 0;
        while let Some(step) = phase.steps.get(self.transaction.step()) {
            let here = self.operation.slot;
            // Those of this step on this connection that are left.
            let mut operations = match step.messages() {
                Some(messages) if messages.unit.is_some() => 1,
                _ => step.count.saturating_sub(self.operation.number).max(1),
            };
            let conn = self.connections.get_mut(here);
            let counters = &context.record.counters;
            match (&step.action, conn) {
                (Action::Receive(_), Some(conn)) => {
                    if here == slot {
                        if left == 0 {
                            return None;
                        }
                        operations = operations.min(left);
                        left -= operations;
                    } else {
                        counters.gaps.add(operations);
                    }
                    conn.pass_over(conn.received.wrapping_add(operations), &counters.arrivals);
                    // The last one is counted where the strand goes on.
                    conn.expected = conn.expected.wrapping_add(operations - 1);
                }
                (Action::Send(_), Some(conn)) => {
                    conn.sent = conn.sent.wrapping_add(operations);
                    counters.skipped.add(operations);
                }
                _ => {}
            }
            self.operation.number += operations - 1;
            self.transaction.failed = true;
            self.advance(step, phase);
            steps += 1;
            // Of a mix there may be none here.
            while self.transaction.step() >= phase.steps.len() {
                let alike = self.skip_alike(phase, (slot, left), context);
                left -= alike.datagrams;
                self.transaction.skip(alike.transactions + 1, self.operation.start);
                self.first_step(phase);
                steps += 1;
            }
            if steps >= STEPS {
                return Some(left);
            }
        }
        None
    }

    /// Passes over whole transactions, where all have the same datagrams: as many as there are in `left` datagrams on the
    /// connection in `slot`.
    fn skip_alike<N: Net<Socket = S>>(
        &mut self,
        phase: &Phase,
        (slot, left): (u32, u64),
        context: &Context<'_, N>,
    ) -> Skipped {
        let mut skipped = Skipped::default();
        let in_pieces = |step: &Step| step.messages().is_some_and(|of| of.unit.is_some());
        let place = self.connections.get(slot).map_or(u32::MAX, |conn| conn.place);
        let each = phase.datagrams.get(place as usize).map_or(0, |(receives, _)| *receives);
        if each == 0 || phase.mixed || phase.steps.iter().any(in_pieces) {
            return skipped;
        }
        skipped.transactions = left / each;
        skipped.datagrams = skipped.transactions * each;
        if skipped.transactions == 0 {
            return skipped;
        }
        let counters = &context.record.counters;
        for conn in self.connections.tops_mut() {
            let Some((receives, sends)) = phase.datagrams.get(conn.place as usize) else {
                continue;
            };
            let received = skipped.transactions.wrapping_mul(*receives);
            let sent = skipped.transactions.wrapping_mul(*sends);
            if received > 0 {
                conn.pass_over(conn.received.wrapping_add(received), &counters.arrivals);
                conn.expected = conn.expected.wrapping_add(received);
            }
            if conn.place != place {
                counters.gaps.add(received);
            }
            conn.sent = conn.sent.wrapping_add(sent);
            counters.skipped.add(sent);
        }
        skipped
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
        let is_busy = self.skip.is_some() || self.has_answers();
        if is_busy || !(waits || self.has_outstanding()) || self.finished() {
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use wirecost_model::profile::{Part, Transaction};

    use super::*;
    use crate::payload::Patterns;
    use crate::sim::datagrams::{order, programs, udp};
    use crate::sim::net::{SimNet, Weather};
    use crate::sim::{connect, profile, times};
    use crate::step;
    use crate::strand::PhaseTiming;

    /// A strand of a peer that waits for its first datagram, and what it counts.
    struct Waiting {
        strand: Strand<usize>,
        phase: Arc<Phase>,
        record: Record,
        /// Of the connection of that datagram.
        slot: u32,
    }

    impl Waiting {
        /// None of a program of which a peer receives nothing.
        fn new(flowops: Vec<wirecost_model::profile::Flowop>, order: Vec<Part>) -> Option<Self> {
            let open = vec![connect("udp", "a", 1), connect("udp", "a", 2)];
            let moves = Transaction { order, ..times(20, flowops) };
            let programs =
                crate::program::compile(&profile(1, vec![times(1, open), moves])).unwrap();
            let group = step::compile(&programs[1], 7, &[]).unwrap().remove(0);
            let phase = group.phases[1].clone()?;
            assert!(phase.may_skip);
            let mut strand = Strand::new(0, 0, 0, group.ids.len());
            for place in 0..group.ids.len() as u32 {
                strand.connections.begin_opening(place as usize);
                strand.connections.opened(place, false, true);
            }
            strand.enter(Some(&phase), 0, 20);
            strand.transaction.begin(0);
            strand.first_step(&phase);
            let counters = WorkerCounters::new(group.rows[1].len(), vec![]);
            let record = Record::new(Arc::new(counters), 0..0, 1);
            let mut waiting = Self { strand, phase, record, slot: 0 };
            // Of a mix there may be none for a while.
            for _ in 0..1000 {
                let Self { strand, phase, .. } = &mut waiting;
                match phase.steps.get(strand.transaction.step()) {
                    Some(step) if step.receives() => {
                        waiting.slot = strand.operation.slot;
                        return Some(waiting);
                    }
                    Some(step) => strand.advance(step, phase),
                    None => {
                        strand.transaction.skip(1, 0);
                        strand.first_step(phase);
                    }
                }
            }
            None
        }

        /// Returns how many are left for a later turn.
        fn skip(&mut self, datagrams: u64) -> Option<u64> {
            let timing =
                PhaseTiming { start: 0, window: 0, end: 0, closed: true, finishing: false };
            let mut context = Context {
                net: &mut SimNet::new(Weather::default()),
                record: &mut self.record,
                patterns: &mut Patterns::new(&[Default::default()], 64, 7, &Default::default())
                    .unwrap(),
                timing: &timing,
                turn: 0,
                tag: 0,
            };
            let left = (self.slot, datagrams);
            self.strand.pass_over_program(&self.phase.clone(), left, &mut context)
        }

        fn state(&self) -> String {
            let counters = &self.record.counters;
            let counts = (counters.gaps.get(), counters.skipped.get(), counters.arrivals.bursts());
            format!("{:?} {counts:?}", self.strand)
        }
    }

    proptest! {
        /// What one datagram says of many that are lost is what many say of one each.
        #[test]
        fn many_are_passed_over_as_one_after_the_other(
            flowops in programs(),
            verify: bool,
            shape in 0usize..5,
            before in 0u64..5,
            datagrams in 1u64..80,
        ) {
            let order = order(shape, &flowops);
            let mut flowops = flowops;
            flowops.iter_mut().for_each(|flowop| flowop.options.verify = verify);
            let new = || Waiting::new(flowops.clone(), order.clone());
            let (Some(mut together), Some(mut one_by_one)) = (new(), new()) else { return Ok(()) };
            for waiting in [&mut together, &mut one_by_one] {
                (0..before).for_each(|_| assert_eq!(waiting.skip(1), None));
            }
            assert_eq!(together.skip(datagrams), None);
            (0..datagrams).for_each(|_| assert_eq!(one_by_one.skip(1), None));
            prop_assert_eq!(together.state(), one_by_one.state());
        }

        /// Such a number comes at the price of a small one: one by one, it would take hours.
        #[test]
        fn a_forged_number_does_not_hang_a_worker(
            flowops in programs(),
            shape in prop_oneof![Just(0usize), Just(3)],
            datagrams in (1u64 << 39)..(1 << 40),
        ) {
            let order = order(shape, &flowops);
            let Some(mut waiting) = Waiting::new(flowops, order) else { return Ok(()) };
            prop_assert_eq!(waiting.skip(datagrams), None);
            let conn = waiting.strand.connections.get(waiting.slot).unwrap();
            prop_assert_eq!((conn.received, conn.expected), (datagrams, datagrams));
        }
    }

    /// Nor does one within a transaction of very many datagrams.
    #[test]
    fn a_forged_number_within_a_transaction_does_not_hang_a_worker() {
        let flowops = vec![udp("write", 64, 1 << 40, 1)];
        let mut waiting = Waiting::new(flowops, Vec::new()).unwrap();
        assert_eq!(waiting.skip((1 << 40) - 1), None);
        assert_eq!(waiting.record.counters.arrivals.bursts().iter().sum::<i64>(), 1);
        assert_eq!(waiting.strand.iteration(), 0);
        assert_eq!((waiting.skip(1), waiting.skip(3)), (None, None));
        assert_eq!(waiting.strand.iteration(), 1);
    }

    /// Where each transaction draws what is in it, others have their turn meanwhile, and it comes to the same.
    #[test]
    fn transactions_that_differ_are_passed_over_little_by_little() {
        let flowops = || vec![udp("write", 64, 1, 1), udp("write", 64, 1, 2)];
        let order = || order(1, &flowops());
        let mut forged = Waiting::new(flowops(), order()).unwrap();
        let left = forged.skip(1 << 40).unwrap();
        assert!(((1 << 40) - u64::from(STEPS)..(1 << 40) - 1000).contains(&left), "{left}");

        let new = || Waiting::new(flowops(), order()).unwrap();
        let (mut together, mut one_by_one) = (new(), new());
        let (mut left, mut turns) = (Some(30_000), 0);
        while let Some(more) = left {
            left = together.skip(more);
            turns += 1;
        }
        (0..30_000).for_each(|_| assert_eq!(one_by_one.skip(1), None));
        assert_eq!(together.state(), one_by_one.state());
        assert!(turns > 3, "{turns}");
    }
}
