//! Where the strands of an event loop are: ready to run, or waiting for something.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::mpsc::{Receiver, TryRecvError};

use wirecost_model::clock::{Nanos, SECOND};
use wirecost_program::net::Interest;
use wirecost_program::strand::Wait;

use crate::worker::{Order, SocketNet, Worker};

/// No sleep is longer: orders come by an event, so this only bounds the damage of a lost one.
const LONGEST_SLEEP: Nanos = SECOND;

#[derive(Debug, Clone, Copy, Default)]
struct Seat {
    wait: Option<Wait>,
    queued: bool,
}

/// Timers that there may be beyond two for each strand.
const SPARE_TIMERS: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Seats {
    seats: Vec<Seat>,
    ready: VecDeque<u32>,
    /// One for each wait that has a time, and what is left of waits that ended before theirs.
    timers: BinaryHeap<Reverse<(Nanos, u32)>>,
}

impl Seats {
    /// Has the worker do all orders that have come, and seats its strands accordingly. Returns whether
    /// to go on.
    pub(super) fn obey<N: SocketNet>(
        &mut self,
        orders: &Receiver<Order>,
        worker: &mut Worker<N>,
        mine: &[(u32, u32)],
    ) -> bool {
        loop {
            match orders.try_recv() {
                Ok(Order::Connect { endpoints, groups }) => {
                    worker.connect(endpoints, groups, mine);
                    self.reset(mine.len());
                }
                Ok(Order::Phase(order)) => {
                    // Whoever was to run in the phase before must not begin this one early; and who has
                    // not connected, as its peer did not agree, has no strands.
                    self.reset(worker.strands.len());
                    let start = order.start;
                    worker.begin(order);
                    for local in self.all().filter(|&local| worker.takes_part(local)) {
                        let on = Interest::Nothing;
                        self.sit(local, Wait { slot: 0, on, until: Some(start) });
                    }
                }
                Ok(Order::Finish(limits)) => {
                    worker.finish(&limits);
                    self.all().for_each(|local| self.queue(local));
                }
                Ok(Order::CutOff) => worker.cut_off(),
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    /// Seats for so many strands, none of which is ready or waits.
    fn reset(&mut self, strands: usize) {
        self.timers.clear();
        self.ready.clear();
        self.seats.clear();
        self.seats.resize(strands, Seat::default());
    }

    fn all(&self) -> std::ops::Range<u32> {
        0..self.seats.len() as u32
    }

    /// Strands that are ready.
    pub(super) fn ready(&self) -> usize {
        self.ready.len()
    }

    pub(super) fn queue(&mut self, local: u32) {
        let Some(seat) = self.seats.get_mut(local as usize) else { return };
        if !seat.queued {
            seat.queued = true;
            self.ready.push_back(local);
        }
    }

    /// Queues a strand if it waits for this; `slot`: on which connection.
    pub(super) fn wake(&mut self, local: u32, slot: Option<u32>, on: Interest) {
        let wait = self.seats.get(local as usize).and_then(|seat| seat.wait);
        if wait.is_some_and(|wait| wait.on == on && slot.is_none_or(|slot| slot == wait.slot)) {
            self.queue(local);
        }
    }

    /// The next strand to run. It waits for nothing any more.
    pub(super) fn next(&mut self) -> Option<u32> {
        let local = self.ready.pop_front()?;
        self.seats[local as usize] = Seat::default();
        Some(local)
    }

    pub(super) fn sit(&mut self, local: u32, wait: Wait) {
        self.seats[local as usize].wait = Some(wait);
        if let Some(until) = wait.until {
            self.timers.push(Reverse((until, local)));
            self.remove_stale_timers();
        }
    }

    /// Waits that something else ends leave their timers behind. A strand has at most one that counts, so
    /// where there are many more, they are made anew: on average that costs no more than a push.
    fn remove_stale_timers(&mut self) {
        if self.timers.len() > 2 * self.seats.len() + SPARE_TIMERS {
            let waits = self.seats.iter().enumerate();
            let timer =
                |(local, seat): (usize, &Seat)| Some(Reverse((seat.wait?.until?, local as u32)));
            self.timers.clear();
            self.timers.extend(waits.filter_map(timer));
        }
    }

    /// Whether the strand still waits for this timer.
    fn counts(&self, due: Nanos, local: u32) -> bool {
        self.seats[local as usize].wait.and_then(|wait| wait.until) == Some(due)
    }

    /// Queues all whose time has come.
    pub(super) fn fire_timers(&mut self, now: Nanos) {
        while let Some(&Reverse((due, local))) = self.timers.peek() {
            if due > now {
                return;
            }
            self.timers.pop();
            // A strand that has gone on since waits for something else, or not at all.
            if self.counts(due, local) {
                self.queue(local);
            }
        }
    }

    /// How long nothing can be done but wait; none when a strand is ready. `due`: what the worker has
    /// to do next.
    pub(super) fn sleep(&mut self, now: Nanos, due: Option<Nanos>) -> Option<Nanos> {
        if !self.ready.is_empty() {
            return None;
        }
        // Nobody is to be woken for a timer that does not count.
        while let Some(&Reverse((due, local))) = self.timers.peek()
            && !self.counts(due, local)
        {
            self.timers.pop();
        }
        let timer = self.timers.peek().map(|&Reverse((due, _))| due);
        let next = [timer, due].into_iter().flatten().min();
        Some(next.map_or(LONGEST_SLEEP, |next| next.saturating_sub(now)).min(LONGEST_SLEEP))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const STRANDS: u32 = 4;

    fn seats(strands: u32) -> Seats {
        let mut seats = Seats::default();
        seats.reset(strands as usize);
        seats
    }

    fn until(due: Option<Nanos>) -> Wait {
        Wait { slot: 0, on: Interest::Readable, until: due }
    }

    /// Takes all that are ready.
    fn ready(seats: &mut Seats) -> Vec<u32> {
        std::iter::from_fn(|| seats.next()).collect()
    }

    #[test]
    fn a_timer_fires_once_and_in_time() {
        let mut seats = seats(2);
        seats.sit(0, until(Some(100)));
        seats.sit(1, until(Some(50)));
        assert_eq!(seats.sleep(10, None), Some(40));
        assert_eq!(seats.sleep(10, Some(20)), Some(10));
        seats.fire_timers(49);
        assert_eq!(ready(&mut seats), [0u32; 0]);
        seats.fire_timers(100);
        assert_eq!(seats.sleep(100, None), None);
        assert_eq!(ready(&mut seats), [1, 0]);
        seats.fire_timers(1000);
        assert_eq!(ready(&mut seats), [0u32; 0]);
        assert_eq!(seats.sleep(1000, None), Some(LONGEST_SLEEP));
    }

    #[test]
    fn a_stale_timer_wakes_nobody() {
        let mut seats = seats(1);
        seats.sit(0, until(Some(100)));
        seats.wake(0, Some(0), Interest::Readable);
        assert_eq!(ready(&mut seats), [0]);
        seats.sit(0, until(Some(900)));
        assert_eq!(seats.sleep(0, None), Some(900), "not 100");
        seats.fire_timers(500);
        assert_eq!(ready(&mut seats), [0u32; 0]);
        seats.fire_timers(900);
        assert_eq!(ready(&mut seats), [0]);
    }

    /// As where each connect has a time-out of seconds and takes microseconds; and where one deadline
    /// holds for many waits.
    #[test]
    fn many_short_waits_leave_few_timers() {
        for step in [1, 0] {
            let mut seats = seats(STRANDS);
            for round in 0..50_000u64 {
                for local in 0..STRANDS {
                    seats.sit(local, until(Some(10_000_000_000 + round * step)));
                    seats.wake(local, None, Interest::Readable);
                }
                assert_eq!(ready(&mut seats).len(), STRANDS as usize);
            }
            let most = 2 * STRANDS as usize + SPARE_TIMERS;
            assert!(seats.timers.len() <= most, "{} timers", seats.timers.len());
        }
    }

    #[derive(Debug, Clone)]
    enum Step {
        Sit(u32, Option<Nanos>),
        Wake(u32),
        Pass(Nanos),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => (0..STRANDS, prop::option::of(0u64..300)).prop_map(|(s, t)| Step::Sit(s, t)),
            3 => (0..STRANDS).prop_map(Step::Wake),
            1 => (1u64..40).prop_map(Step::Pass),
        ];
        prop::collection::vec(step, 0..600)
    }

    proptest! {
        /// Against what is meant: each strand waits for one thing, and is ready when that or its time comes.
        #[test]
        fn strands_are_ready_when_their_time_or_event_comes(steps in steps()) {
            let mut seats = seats(STRANDS);
            let mut waits: Vec<Option<Option<Nanos>>> = vec![None; STRANDS as usize];
            let mut now = 0;
            for step in steps {
                match step {
                    // A strand that has run waits; one that waits does not run.
                    Step::Sit(local, after) if waits[local as usize].is_none() => {
                        let due = after.map(|after| now + after);
                        seats.sit(local, until(due));
                        waits[local as usize] = Some(due);
                    }
                    Step::Sit(..) => continue,
                    Step::Wake(local) => {
                        seats.wake(local, Some(0), Interest::Readable);
                        // Of another connection, or for another reason: nothing.
                        seats.wake((local + 1) % STRANDS, Some(1), Interest::Readable);
                        seats.wake((local + 1) % STRANDS, None, Interest::Writable);
                        let expected: Vec<u32> =
                            waits[local as usize].take().map(|_| local).into_iter().collect();
                        prop_assert_eq!(ready(&mut seats), expected);
                    }
                    Step::Pass(time) => now += time,
                }
                seats.fire_timers(now);
                let mut expected = Vec::new();
                for (local, wait) in waits.iter_mut().enumerate() {
                    if wait.flatten().is_some_and(|due| due <= now) {
                        expected.push(local as u32);
                        *wait = None;
                    }
                }
                let mut got = ready(&mut seats);
                got.sort_unstable();
                prop_assert_eq!(got, expected);
                let next = waits.iter().flatten().flatten().min();
                let sleep = next.map_or(LONGEST_SLEEP, |due| (due - now).min(LONGEST_SLEEP));
                prop_assert_eq!(seats.sleep(now, None), Some(sleep));
            }
        }
    }
}
