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

#[derive(Debug, Default)]
pub(super) struct Seats {
    seats: Vec<Seat>,
    ready: VecDeque<u32>,
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
        }
    }

    /// Queues all whose time has come.
    pub(super) fn fire_timers(&mut self, now: Nanos) {
        while let Some(&Reverse((due, local))) = self.timers.peek() {
            if due > now {
                return;
            }
            self.timers.pop();
            // A strand that has gone on since waits for something else, or not at all.
            if self.seats[local as usize].wait.and_then(|wait| wait.until) == Some(due) {
                self.queue(local);
            }
        }
    }

    /// How long nothing can be done but wait; none when a strand is ready. `due`: what the worker has
    /// to do next.
    pub(super) fn sleep(&self, now: Nanos, due: Option<Nanos>) -> Option<Nanos> {
        if !self.ready.is_empty() {
            return None;
        }
        let timer = self.timers.peek().map(|&Reverse((due, _))| due);
        let next = [timer, due].into_iter().flatten().min();
        Some(next.map_or(LONGEST_SLEEP, |next| next.saturating_sub(now)).min(LONGEST_SLEEP))
    }
}
