//! Where the strands of an event loop are: ready to run, or parked until something happens.

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
struct Parked {
    wait: Option<Wait>,
    queued: bool,
}

/// Timers that there may be beyond two for each strand.
const SPARE_TIMERS: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Scheduler {
    strands: Vec<Parked>,
    ready: VecDeque<u32>,
    /// One for each wait that has a time, and what is left of waits that ended before theirs.
    timers: BinaryHeap<Reverse<(Nanos, u32)>>,
}

impl Scheduler {
    /// Has the worker carry out all orders that have come, and parks its strands accordingly.
    /// Returns whether to go on.
    pub(super) fn handle_order<N: SocketNet>(
        &mut self,
        orders: &Receiver<Order>,
        worker: &mut Worker<N>,
    ) -> bool {
        loop {
            match orders.try_recv() {
                Ok(Order::Connect { endpoints, groups }) => {
                    worker.connect(endpoints, groups);
                    self.reset(worker.strands.len());
                }
                Ok(Order::Phase(order)) => {
                    // A strand that was to run in the phase before must not begin this one early. A
                    // worker whose peer did not agree to receive has no strands.
                    self.reset(worker.strands.len());
                    let start = order.start;
                    worker.begin(order);
                    for local in self.all().filter(|&local| worker.takes_part(local)) {
                        let on = Interest::Nothing;
                        self.park(local, Wait { slot: 0, on, until: Some(start) });
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

    /// Has so many strands, none of which is ready or parked.
    fn reset(&mut self, strands: usize) {
        // Memory for all that there can be, so that none is needed while a phase runs.
        self.timers.clear();
        self.timers.reserve(2 * strands + SPARE_TIMERS + 1);
        self.ready.clear();
        self.ready.reserve(strands);
        self.strands.clear();
        self.strands.resize(strands, Parked::default());
    }

    fn all(&self) -> std::ops::Range<u32> {
        0..self.strands.len() as u32
    }

    /// Strands that are ready.
    pub(super) fn ready(&self) -> usize {
        self.ready.len()
    }

    pub(super) fn queue(&mut self, local: u32) {
        let Some(strand) = self.strands.get_mut(local as usize) else { return };
        if !strand.queued {
            strand.queued = true;
            self.ready.push_back(local);
        }
    }

    /// Queues a strand if it waits for this, and returns whether it does; `slot`: on which connection.
    pub(super) fn wake(&mut self, local: u32, slot: Option<u32>, on: Interest) -> bool {
        let wait = self.strands.get(local as usize).and_then(|strand| strand.wait);
        let waits =
            wait.is_some_and(|wait| wait.on == on && slot.is_none_or(|slot| slot == wait.slot));
        if waits {
            self.queue(local);
        }
        waits
    }

    /// Queues strands for the connections that wait at listeners of the worker.
    pub(super) fn wake_acceptors<N: SocketNet>(&mut self, worker: &mut Worker<N>) {
        let opener = &mut worker.net.sockets_mut().opener;
        opener.wake_acceptors(|local| {
            self.wake(local, None, Interest::Arrival);
        });
    }

    /// The next strand to run. It waits for nothing any more.
    pub(super) fn next(&mut self) -> Option<u32> {
        let local = self.ready.pop_front()?;
        self.strands[local as usize] = Parked::default();
        Some(local)
    }

    pub(super) fn park(&mut self, local: u32, wait: Wait) {
        self.strands[local as usize].wait = Some(wait);
        if let Some(until) = wait.until {
            self.timers.push(Reverse((until, local)));
            self.remove_stale_timers();
        }
    }

    /// Waits that something else ends leave their timers behind. A strand has at most one that
    /// counts, so where there are many more, they are made anew: on average that costs no more than
    /// a push.
    fn remove_stale_timers(&mut self) {
        if self.timers.len() > 2 * self.strands.len() + SPARE_TIMERS {
            let mut timers = std::mem::take(&mut self.timers);
            timers.clear();
            let timer = |(local, wait): (u32, Wait)| Some(Reverse((wait.until?, local)));
            timers.extend(self.parked().filter_map(timer));
            self.timers = timers;
        }
    }

    /// The strands that wait, and for what.
    pub(super) fn parked(&self) -> impl Iterator<Item = (u32, Wait)> {
        let strands = (0u32..).zip(&self.strands).filter(|(_, strand)| !strand.queued);
        strands.filter_map(|(local, strand)| Some((local, strand.wait?)))
    }

    /// Whether the strand still waits for this timer.
    fn counts(&self, due: Nanos, local: u32) -> bool {
        self.strands[local as usize].wait.and_then(|wait| wait.until) == Some(due)
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

    /// How long nothing can be done but wait; none when a strand is ready. `due`: what the worker
    /// has to do next.
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

    fn scheduler(strands: u32) -> Scheduler {
        let mut scheduler = Scheduler::default();
        scheduler.reset(strands as usize);
        scheduler
    }

    fn until(due: Option<Nanos>) -> Wait {
        Wait { slot: 0, on: Interest::Readable, until: due }
    }

    /// Takes all that are ready.
    fn ready(scheduler: &mut Scheduler) -> Vec<u32> {
        std::iter::from_fn(|| scheduler.next()).collect()
    }

    #[test]
    fn a_timer_fires_once_and_in_time() {
        let mut scheduler = scheduler(2);
        scheduler.park(0, until(Some(100)));
        scheduler.park(1, until(Some(50)));
        assert_eq!(scheduler.sleep(10, None), Some(40));
        assert_eq!(scheduler.sleep(10, Some(20)), Some(10));
        scheduler.fire_timers(49);
        assert_eq!(ready(&mut scheduler), [0u32; 0]);
        scheduler.fire_timers(100);
        assert_eq!(scheduler.sleep(100, None), None);
        assert_eq!(ready(&mut scheduler), [1, 0]);
        scheduler.fire_timers(1000);
        assert_eq!(ready(&mut scheduler), [0u32; 0]);
        assert_eq!(scheduler.sleep(1000, None), Some(LONGEST_SLEEP));
    }

    #[test]
    fn a_stale_timer_wakes_nobody() {
        let mut scheduler = scheduler(1);
        scheduler.park(0, until(Some(100)));
        scheduler.wake(0, Some(0), Interest::Readable);
        assert_eq!(ready(&mut scheduler), [0]);
        scheduler.park(0, until(Some(900)));
        assert_eq!(scheduler.sleep(0, None), Some(900), "not 100");
        scheduler.fire_timers(500);
        assert_eq!(ready(&mut scheduler), [0u32; 0]);
        scheduler.fire_timers(900);
        assert_eq!(ready(&mut scheduler), [0]);
    }

    /// As where each connect has a time-out of seconds and takes microseconds; and where one
    /// deadline holds for many waits.
    #[test]
    fn many_short_waits_leave_few_timers() {
        for step in [1, 0] {
            let mut scheduler = scheduler(STRANDS);
            for round in 0..50_000u64 {
                for local in 0..STRANDS {
                    scheduler.park(local, until(Some(10_000_000_000 + round * step)));
                    scheduler.wake(local, None, Interest::Readable);
                }
                assert_eq!(ready(&mut scheduler).len(), STRANDS as usize);
            }
            let most = 2 * STRANDS as usize + SPARE_TIMERS;
            assert!(scheduler.timers.len() <= most, "{} timers", scheduler.timers.len());
        }
    }

    #[derive(Debug, Clone)]
    enum Step {
        Park(u32, Option<Nanos>),
        Wake(u32),
        Pass(Nanos),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => (0..STRANDS, prop::option::of(0u64..300)).prop_map(|(s, t)| Step::Park(s, t)),
            3 => (0..STRANDS).prop_map(Step::Wake),
            1 => (1u64..40).prop_map(Step::Pass),
        ];
        prop::collection::vec(step, 0..600)
    }

    proptest! {
        /// Against what is meant: each strand waits for one thing, and is ready when that or its
        /// time comes.
        #[test]
        fn strands_are_ready_when_their_time_or_event_comes(steps in steps()) {
            let mut scheduler = scheduler(STRANDS);
            let mut waits: Vec<Option<Option<Nanos>>> = vec![None; STRANDS as usize];
            let mut now = 0;
            for step in steps {
                match step {
                    // A strand that has run waits; one that waits does not run.
                    Step::Park(local, after) if waits[local as usize].is_none() => {
                        let due = after.map(|after| now + after);
                        scheduler.park(local, until(due));
                        waits[local as usize] = Some(due);
                    }
                    Step::Park(..) => continue,
                    Step::Wake(local) => {
                        scheduler.wake(local, Some(0), Interest::Readable);
                        // Of another connection, or for another reason: nothing.
                        scheduler.wake((local + 1) % STRANDS, Some(1), Interest::Readable);
                        scheduler.wake((local + 1) % STRANDS, None, Interest::Writable);
                        let expected: Vec<u32> =
                            waits[local as usize].take().map(|_| local).into_iter().collect();
                        prop_assert_eq!(ready(&mut scheduler), expected);
                    }
                    Step::Pass(time) => now += time,
                }
                scheduler.fire_timers(now);
                let mut expected = Vec::new();
                for (local, wait) in waits.iter_mut().enumerate() {
                    if wait.flatten().is_some_and(|due| due <= now) {
                        expected.push(local as u32);
                        *wait = None;
                    }
                }
                let mut got = ready(&mut scheduler);
                got.sort_unstable();
                prop_assert_eq!(got, expected);
                let next = waits.iter().flatten().flatten().min();
                let sleep = next.map_or(LONGEST_SLEEP, |due| (due - now).min(LONGEST_SLEEP));
                prop_assert_eq!(scheduler.sleep(now, None), Some(sleep));
            }
        }
    }
}
