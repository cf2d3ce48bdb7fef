//! One event loop for many strands: edge-triggered epoll.
//!
//! Each strand tries before it waits, so one registration serves a connection all its life and no
//! call re-arms it. While any strand can go on, the loop only looks at events in passing.

use std::io;

use rustix::event::epoll;
use rustix::io::Errno;
use wirecost_linux::clock::{Monotonic, timespec};
use wirecost_linux::thread;
use wirecost_model::clock::{Clock, Nanos};
use wirecost_program::net::Interest;
use wirecost_program::strand::{TURN_BYTES, Turn};

use super::scheduler::Scheduler;
use super::{Engine, Run, Setup, Wakers, WorkerThread};
use crate::broker::receive_arrival;
use crate::sockets::{Token, Trigger, register};
use crate::worker::Worker;

const EVENTS: usize = 512;
/// What all that are ready may move together before the first has its next turn: a quarter of a
/// second at most. The longer a turn, the less of it goes to fetching a connection that has left
/// the caches (ADR 0017).
const ROUND_BYTES: i64 = 512 << 20;
/// Less would be spent on switching.
const MIN_TURN: i64 = 16 << 10;
/// Turns before the loop looks at the clock and at events: thousands of ready strands would else
/// keep the edges of the window, timers and orders waiting for seconds.
const ROUND: usize = 64;

pub(super) struct Epoll;

impl Engine for Epoll {
    fn name(&self) -> &'static str {
        "epoll"
    }

    fn help(&self) -> &'static str {
        "edge-triggered event loop; runs many strands per worker"
    }

    fn prepare(&self, setup: &mut Setup<'_>) -> io::Result<Run> {
        let shares_cpus = prepare_events(setup)?;
        Ok(Box::new(move |thread| run(thread, shares_cpus)))
    }
}

/// Makes the epoll that tells a worker of its sockets, its inbox and its end. Returns whether it shares CPUs with others.
pub(super) fn prepare_events(setup: &mut Setup<'_>) -> io::Result<bool> {
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let wakers = setup.wakers()?;
    register(&poll, &wakers.wake, Token::Wake, Trigger::Edge)?;
    register(&poll, &wakers.inbox, Token::Inbox, Trigger::Edge)?;
    setup.sockets.opener.set_epoll(poll);
    setup.sockets.opener.accept_only_when_ready();
    if setup.shares_cpus {
        thread::set_batch();
    }
    Ok(setup.shares_cpus)
}

struct Loop {
    worker: Worker,
    scheduler: Scheduler,
    wakers: Wakers,
    run: u32,
    /// The other end may be waiting for this CPU.
    shares_cpus: bool,
}

/// Runs until the orders end.
fn run(thread: WorkerThread, shares_cpus: bool) {
    let WorkerThread { number, sockets, patterns, outlet, orders, mine, wakers } = thread;
    let Some(wakers) = wakers else { return };
    let run = sockets.opener.run();
    let worker = Worker::new(number, mine, sockets, patterns, outlet);
    let mut engine = Loop { worker, scheduler: Scheduler::default(), wakers, run, shares_cpus };
    let mut events = Vec::with_capacity(EVENTS);
    while engine.scheduler.handle_order(&orders, &mut engine.worker) {
        for _ in 0..engine.scheduler.ready().min(ROUND) {
            engine.run_next();
        }
        let now = Monotonic.now();
        let due = engine.worker.run_due(now);
        engine.scheduler.fire_timers(now);
        engine.poll(&mut events, now, due);
    }
    engine.worker.close_all();
}

impl Loop {
    fn run_next(&mut self) {
        let Some(local) = self.scheduler.next() else { return };
        if !self.worker.is_running() {
            return;
        }
        // Of thousands that are ready each gets less, so that all have their turn in time.
        let turn = (ROUND_BYTES / (self.scheduler.ready() as i64 + 1)).clamp(MIN_TURN, TURN_BYTES);
        match self.worker.turn(local, turn) {
            Turn::Again => {
                self.scheduler.queue(local);
                // The receiver finds the data in the caches (ADR 0040). Receivers do not yield: they would stay
                // as far behind as they are.
                if self.shares_cpus && self.worker.only_sends(local) {
                    std::thread::yield_now();
                }
            }
            Turn::Wait(wait) => self.scheduler.park(local, wait),
            Turn::Quiesced => {}
            Turn::Failed(error) => self.worker.failed(*error),
        }
    }

    fn poll(&mut self, events: &mut Vec<epoll::Event>, now: Nanos, due: Option<Nanos>) {
        self.scheduler.wake_acceptors(&mut self.worker);
        let sleep = self.scheduler.sleep(now, due).unwrap_or(0);
        let Some(poll) = self.worker.net.opener.epoll() else {
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
                    for (flag, on) in [
                        (epoll::EventFlags::IN, Interest::Readable),
                        (epoll::EventFlags::OUT, Interest::Writable),
                    ] {
                        if flags.intersects(flag | broken)
                            && self.scheduler.wake(local, Some(slot), on)
                            && on == Interest::Writable
                            && !flags.intersects(broken)
                        {
                            self.worker.writable(local);
                        }
                    }
                }
                Token::Listener { local, number } => {
                    let heeded = self.scheduler.wake(local, None, Interest::Arrival);
                    self.worker.net.opener.mark_ready(local, number, heeded);
                }
                Token::WorkerListener { number } => {
                    self.worker.net.opener.mark_worker_listener(number);
                }
                Token::Inbox => {
                    while let Ok(arrival) = receive_arrival(&self.wakers.inbox, self.run) {
                        if let Some(local) = self.worker.arrived(arrival) {
                            self.scheduler.wake(local, None, Interest::Arrival);
                        }
                    }
                }
                Token::Wake => self.wakers.empty_wake(),
                // Other engines' workers have none.
                Token::Frames { .. } => {}
            }
        }
        self.scheduler.wake_acceptors(&mut self.worker);
    }
}
