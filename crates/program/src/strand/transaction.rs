//! Transactions of a strand: how many there have been, and which step of one is under way.

use wirecost_model::clock::Nanos;

use super::PhaseTiming;
use crate::draw;
use crate::route::Cursor;
use crate::step::Phase;

#[derive(Debug, Default)]
pub(super) struct Transaction {
    /// Transactions that are over, completed or not.
    pub(super) iteration: u64,
    /// Transactions up to this number may begin even after the gate has closed.
    pub(super) limit: u64,
    /// Within a transaction.
    pub(super) running: bool,
    /// Something of it has happened.
    pub(super) engaged: bool,
    pub(super) failed: bool,
    /// Transactions of one message each that one call has begun, this one included; 0 where none is under
    /// way.
    pub(super) together: u64,
    /// Transactions up to the last one in which anything happened here.
    reached: u64,
    /// Since the phase began.
    pub(super) completed: u64,
    start: Nanos,
    /// Think time, which its latency leaves out.
    thought: Nanos,
    step: u32,
    /// Where the order of the steps is another than their own.
    place: Option<Box<Cursor>>,
    /// Which execution of the step it is, as a number to draw with.
    pub(super) round: u64,
}

impl Transaction {
    pub(super) fn enter(&mut self, limit: u64) {
        let (step, place, round) = (self.step, self.place.take(), self.round);
        *self = Self { limit, step, place, round, ..Self::default() };
    }

    /// Takes the memory that a phase needs.
    pub(super) fn reserve(&mut self, phase: &Phase) {
        if phase.route.is_some() {
            self.place.get_or_insert_default();
        }
    }

    /// Transactions begun. Where it draws what is in a transaction, a host may be ahead by some that
    /// have nothing in them for it.
    pub(super) fn started(&self) -> u64 {
        if self.running && self.engaged {
            self.iteration + self.together.max(1)
        } else {
            self.reached
        }
    }

    /// Whether nothing is left to do up to the limit.
    pub(super) fn finished(&self) -> bool {
        self.iteration >= self.limit && !(self.running && self.engaged)
    }

    #[inline]
    pub(super) fn begin(&mut self, start: Nanos) {
        self.running = true;
        self.engaged = false;
        self.failed = false;
        self.start = start;
        self.thought = 0;
    }

    /// The transaction is over. Returns its latency where it was completed.
    #[inline]
    pub(super) fn end(&mut self, phase: &Phase, end: Nanos) -> Option<Nanos> {
        if self.engaged {
            self.reached = self.iteration + 1;
        }
        // Another host may have had all of a mix.
        let completed = !self.failed && (self.engaged || !phase.mixed);
        self.completed += u64::from(completed);
        self.iteration += 1;
        self.running = false;
        completed.then(|| end.saturating_sub(self.start + self.thought))
    }

    /// Whether one that would begin at `start` may begin.
    #[inline]
    pub(super) fn may_begin_at(&self, start: Nanos, timing: &PhaseTiming) -> bool {
        self.iteration < self.limit || !(timing.closed || start >= timing.end)
    }

    /// Begins one right after the last one, if one may begin.
    #[inline]
    pub(super) fn begin_next(&mut self, start: Nanos, timing: &PhaseTiming) -> bool {
        let may_begin = self.may_begin_at(start, timing);
        if may_begin {
            self.begin(start);
            self.round = self.iteration;
        }
        may_begin
    }

    /// The transaction is complete: it has not failed, and no think time was in it. Returns its latency.
    #[inline]
    pub(super) fn complete(&mut self, end: Nanos) -> Nanos {
        self.add_completed(1);
        self.running = false;
        end.saturating_sub(self.start)
    }

    /// The request of one has been sent, whose answer the next does not wait for.
    pub(super) fn sent_request(&mut self) {
        self.iteration += 1;
        self.reached = self.iteration;
        self.running = false;
    }

    /// So many of one datagram each are over, because it was lost.
    pub(super) fn pass_by(&mut self, transactions: u64) {
        self.iteration += transactions;
        self.reached = self.iteration;
    }

    /// Goes on to a later transaction without ending this one: datagrams of it were lost, and of all between.
    pub(super) fn skip(&mut self, transactions: u64, now: Nanos) {
        self.iteration += transactions;
        self.reached = self.iteration;
        self.start = now;
        self.thought = 0;
        self.failed = false;
    }

    /// What is left up to the limit is given up.
    pub(super) fn give_up(&mut self) {
        self.iteration = self.iteration.max(self.limit);
        self.running = false;
    }

    pub(super) fn think(&mut self, time: Nanos) {
        self.thought += time;
    }

    #[inline]
    pub(super) fn step(&self) -> usize {
        self.step as usize
    }

    /// Goes to the first step of this iteration, where steps follow one another.
    #[inline]
    pub(super) fn begin_steps(&mut self) {
        self.round = self.iteration;
        self.step = 0;
    }

    /// Goes to the next step, where steps follow one another.
    #[inline]
    pub(super) fn pass_step(&mut self) {
        self.step += 1;
    }

    /// Goes to a step, where steps follow one another.
    #[inline]
    pub(super) fn enter_step(&mut self, step: usize) {
        self.step = step as u32;
    }

    /// Transactions that may begin whatever the time.
    pub(super) fn within_limit(&self) -> u64 {
        self.limit.saturating_sub(self.iteration)
    }

    /// Transactions that may begin before the end of the phase.
    pub(super) fn may_begin(&self, timing: &PhaseTiming) -> u64 {
        if timing.closed { self.within_limit() } else { u64::MAX }
    }

    /// Of transactions of one operation each, which have begun one after the other, so many are over.
    /// `start`: when the last one of them ended; the next one began then, if it is under way.
    pub(super) fn complete_first(&mut self, transactions: u64, start: Nanos, is_under_way: bool) {
        if transactions > 0 {
            self.add_completed(transactions);
            self.begin(start);
            self.running = is_under_way;
            self.round = self.iteration;
        }
    }

    /// So many more transactions are complete.
    pub(super) fn add_completed(&mut self, transactions: u64) {
        self.iteration += transactions;
        self.completed += transactions;
        self.reached = self.iteration;
    }

    /// Goes to the first step of this iteration.
    pub(super) fn first_step(&mut self, phase: &Phase, strand: u32) {
        self.round = self.iteration;
        self.step = 0;
        if phase.route.is_some() {
            **self.place.get_or_insert_default() = Cursor::default();
            self.next_step(phase, strand);
        }
    }

    #[inline]
    pub(super) fn next_step(&mut self, phase: &Phase, strand: u32) {
        match &phase.route {
            None => self.step += 1,
            Some(route) => {
                let place = self.place.get_or_insert_default();
                self.step = route.next(place, strand, self.iteration);
                self.round = match place.pass {
                    0 => self.iteration,
                    pass => draw::mix(self.iteration) ^ pass,
                };
            }
        }
    }
}
