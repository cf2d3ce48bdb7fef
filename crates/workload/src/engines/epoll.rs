//! One event loop for many strands: edge-triggered epoll.
//!
//! Each strand tries before it waits, so one registration serves a connection all its life and no
//! call re-arms it. While any strand can go on, the loop only looks at events in passing.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, TryRecvError};

use rustix::event::epoll;
use rustix::io::Errno;
use wirecost_linux::clock::{Monotonic, timespec};
use wirecost_model::clock::{Clock, Nanos, SECOND};

use crate::doorman::receive_arrival;
use crate::net::Interest;
use crate::sockets::Token;
use crate::strand::{TURN_BYTES, Turn, Wait};
use crate::worker::{Order, Worker};

/// No sleep is longer: orders come by an event, so this only bounds the damage of a lost one.
const LONGEST_SLEEP: Nanos = SECOND;
const EVENTS: usize = 512;
/// What all that are ready may move together before the first has its next turn: a few milliseconds.
const ROUND_BYTES: i64 = 16 << 20;
/// Less would be spent on switching.
const LEAST_TURN: i64 = 16 << 10;
/// Turns before the loop looks at the clock and at events: thousands of ready strands would else keep
/// the edges of the window, timers and orders waiting for seconds.
const ROUND: usize = 64;

/// What only this engine keeps of a strand.
#[derive(Debug, Clone, Copy)]
struct Seat {
    wait: Option<Wait>,
    queued: bool,
}

struct Loop {
    worker: Worker,
    seats: Vec<Seat>,
    ready: VecDeque<u32>,
    timers: BinaryHeap<Reverse<(Nanos, u32)>>,
    mine: Vec<(u32, u32)>,
    inbox: OwnedFd,
    wake: OwnedFd,
    run: u32,
}

/// Runs until the orders end.
pub(crate) fn run(
    worker: Worker,
    orders: &Receiver<Order>,
    mine: Vec<(u32, u32)>,
    inbox: OwnedFd,
    wake: OwnedFd,
    run: u32,
) {
    let mut engine = Loop {
        worker,
        seats: Vec::new(),
        ready: VecDeque::new(),
        timers: BinaryHeap::new(),
        mine,
        inbox,
        wake,
        run,
    };
    let mut events = Vec::with_capacity(EVENTS);
    while engine.obey(orders) {
        for _ in 0..engine.ready.len().min(ROUND) {
            engine.run_next();
        }
        let now = Monotonic.now();
        let due = engine.worker.keep_time(now);
        engine.fire_timers(now);
        engine.poll(&mut events, now, due);
    }
    engine.worker.close_all();
}

impl Loop {
    /// Takes all orders that have come. Returns whether to go on.
    fn obey(&mut self, orders: &Receiver<Order>) -> bool {
        loop {
            match orders.try_recv() {
                Ok(Order::Connect { endpoints, groups }) => {
                    self.worker.connect(endpoints, groups, &self.mine);
                    self.seats = vec![Seat { wait: None, queued: false }; self.mine.len()];
                }
                Ok(Order::Phase(order)) => {
                    // Whoever was to run in the phase before must not begin this one early.
                    self.timers.clear();
                    self.ready.clear();
                    self.seats.fill(Seat { wait: None, queued: false });
                    let start = order.start;
                    self.worker.begin(order);
                    for local in 0..self.seats.len() as u32 {
                        if self.worker.takes_part(local) {
                            let on = Interest::Nothing;
                            self.sit(local, Wait { slot: 0, on, until: Some(start) });
                        }
                    }
                }
                Ok(Order::Finish(limits)) => {
                    self.worker.finish(&limits);
                    for local in 0..self.seats.len() as u32 {
                        self.queue(local);
                    }
                }
                Ok(Order::CutOff) => self.worker.cut_off(),
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    fn queue(&mut self, local: u32) {
        let seat = &mut self.seats[local as usize];
        if !seat.queued {
            seat.queued = true;
            self.ready.push_back(local);
        }
    }

    fn sit(&mut self, local: u32, wait: Wait) {
        self.seats[local as usize].wait = Some(wait);
        if let Some(until) = wait.until {
            self.timers.push(Reverse((until, local)));
        }
    }

    fn run_next(&mut self) {
        let Some(local) = self.ready.pop_front() else {
            return;
        };
        let seat = &mut self.seats[local as usize];
        seat.queued = false;
        seat.wait = None;
        if !self.worker.is_running() {
            return;
        }
        // Of thousands that are ready each gets less, so that all have their turn in time.
        let turn = (ROUND_BYTES / (self.ready.len() as i64 + 1)).clamp(LEAST_TURN, TURN_BYTES);
        match self.worker.turn(local, turn) {
            Turn::Again => self.queue(local),
            Turn::Wait(wait) => self.sit(local, wait),
            Turn::Held => {}
            Turn::Failed(error) => self.worker.failed(error),
        }
    }

    fn fire_timers(&mut self, now: Nanos) {
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

    fn poll(&mut self, events: &mut Vec<epoll::Event>, now: Nanos, due: Option<Nanos>) {
        let sleep = if self.ready.is_empty() {
            let timer = self.timers.peek().map(|&Reverse((due, _))| due);
            let next = [timer, due].into_iter().flatten().min();
            next.map_or(LONGEST_SLEEP, |next| next.saturating_sub(now)).min(LONGEST_SLEEP)
        } else {
            0
        };
        let Some(poll) = self.worker.net.epoll() else {
            return;
        };
        let timeout = timespec(sleep);
        match epoll::wait(poll, rustix::buffer::spare_capacity(events), Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return,
        }
        for event in events.drain(..) {
            let flags = event.flags;
            match Token::unpack(event.data) {
                Token::Connection { local, slot } => {
                    let broken = epoll::EventFlags::ERR | epoll::EventFlags::HUP;
                    let Some(seat) = self.seats.get(local as usize) else {
                        continue;
                    };
                    let wanted = match seat.wait {
                        Some(Wait { slot: waited, on, .. }) if waited == slot => match on {
                            Interest::Readable => epoll::EventFlags::IN | broken,
                            Interest::Writable => epoll::EventFlags::OUT | broken,
                            Interest::Arrival | Interest::Nothing => continue,
                        },
                        _ => continue,
                    };
                    if flags.intersects(wanted) {
                        self.queue(local);
                    }
                }
                Token::Listener { local } => self.queue_arrival(local),
                Token::Inbox => {
                    while let Ok(arrival) = receive_arrival(&self.inbox, self.run) {
                        if let Some(local) = self.worker.arrived(arrival) {
                            self.queue_arrival(local);
                        }
                    }
                }
                Token::Wake => {
                    let mut count = [0; 8];
                    let _ = rustix::io::read(&self.wake, &mut count);
                }
            }
        }
    }

    fn queue_arrival(&mut self, local: u32) {
        let waits = self.seats.get(local as usize).and_then(|seat| seat.wait);
        if waits.is_some_and(|wait| wait.on == Interest::Arrival) {
            self.queue(local);
        }
    }
}
