//! One event loop for many strands, by a ring of the kernel.
//!
//! What ready strands ask for is gathered and handed over together, with the wait for what comes
//! next, by one system call. So the more connections are busy, the less of a call each operation
//! costs.

use std::collections::BTreeSet;
use std::io;

use wirecost_linux::clock::Monotonic;
use wirecost_linux::thread;
use wirecost_linux::uring::{self, Buffers, Event, Poller, Ring};
use wirecost_model::clock::Clock;
use wirecost_model::program::Program;
use wirecost_model::warning::{self, Warning};
use wirecost_program::hello;
use wirecost_program::net::Interest;
use wirecost_program::strand::{TURN_BYTES, Turn};

use super::epoll::Epoll;
use super::scheduler::Scheduler;
use super::{Engine, Run, Setup, Unavailable, Wakers, WorkerThread};
use crate::broker::receive_arrival;
use crate::load::transports_of;
use crate::ring_net::{RingNet, RingSocket};
use crate::sockets::Token;
use crate::worker::{SocketNet as _, Worker};

/// Operations that are gathered at most before they are handed over.
const ENTRIES: u32 = 2048;
/// As many as the kernel keeps completions.
const EVENTS: usize = 4 * ENTRIES as usize;
/// Connections whose descriptors the ring knows; of more the kernel looks them up.
const CONNECTIONS: u32 = 1 << 14;
/// Memory of a worker to receive into: as much as stays in a core's cache beside what else is used.
const BUFFERS_BYTES: usize = 2 << 20;
const MAX_BUFFERS: usize = 1024;
/// Lengths of a buffer: as small as the kernel's own unit of handling them is no gain, and what is
/// longer comes in several pieces.
const BUFFER_BYTES: std::ops::RangeInclusive<usize> = 1 << 10..=64 << 10;
/// Turns before the loop looks at the clock and hands over what has been gathered.
const ROUND: usize = 256;

/// The ring of a worker whose longest message is that long (0: not known).
fn ring_setup(message: u64, poller: Option<Poller>) -> uring::Setup {
    let longest = match usize::try_from(message) {
        Ok(1..) => message as usize,
        _ => *BUFFER_BYTES.end(),
    };
    // Whole cache lines. A greeting fits in, too.
    let length = longest
        .max(hello::LENGTH + 1)
        .clamp(*BUFFER_BYTES.start(), *BUFFER_BYTES.end())
        .next_multiple_of(64);
    let count = (BUFFERS_BYTES / length).min(MAX_BUFFERS).next_power_of_two();
    let buffers = Buffers { count: count as u16, bytes: length as u32 };
    uring::Setup { entries: ENTRIES, buffers, files: CONNECTIONS, poller }
}

/// Of a worker that only receives, and takes all that there is.
pub(crate) const GATHERING: Buffers = Buffers { count: 16, bytes: 64 << 10 };

pub(super) struct IoUring;

impl Engine for IoUring {
    fn name(&self) -> &'static str {
        "io_uring"
    }

    fn help(&self) -> &'static str {
        "as epoll, with fewer system calls; falls back to epoll if the kernel forbids it"
    }

    fn fallback(&self) -> Option<&'static dyn Engine> {
        Some(&Epoll)
    }

    fn warnings(&self, program: &Program) -> Vec<Warning> {
        calls_beside_the_ring(self.name(), program)
    }

    fn prepare(&self, setup: &mut Setup<'_>) -> io::Result<Run> {
        prepare(self.name(), setup, None)
    }
}

/// Names the protocols whose bytes do not go through a ring, which a comparison of engines must
/// not hide.
pub(super) fn calls_beside_the_ring(engine: &str, program: &Program) -> Vec<Warning> {
    let names: BTreeSet<_> = transports_of(program)
        .filter(|(transport, _)| transport.bypasses_ring())
        .map(|(transport, _)| transport.protocol().name())
        .collect();
    let beside = names.into_iter().map(|name| {
        Warning::from(warning::Fallback {
            host: String::new(),
            wanted: format!("engine {engine}"),
            used: format!("a system call for each read and write of {name}"),
            reason: "the ring only tells when; compare it with epoll, whose calls they are"
                .to_owned(),
        })
    });
    beside.collect()
}

/// Makes a ring that knows what is sent, and what wakes its worker. Whether there is memory for
/// it is only known when it has been made.
pub(super) fn prepare(
    engine: &'static str,
    setup: &mut Setup<'_>,
    poller: Option<Poller>,
) -> io::Result<Run> {
    let shares_cpus = setup.shares_cpus;
    if shares_cpus {
        // Before the ring is made, because its poller inherits this.
        thread::set_batch();
    }
    let mut ring: Ring<RingSocket> = Ring::new(&ring_setup(setup.message, poller))
        .map_err(|reason| io::Error::other(Unavailable { engine, reason: reason.to_string() }))?;
    setup.patterns.shared().for_each(|bytes| ring.hold(bytes));
    let wakers = setup.wakers()?;
    ring.watch(&wakers.wake, Token::Wake.number())?;
    ring.watch(&wakers.inbox, Token::Inbox.number())?;
    Ok(Box::new(move |thread| run(thread, ring, shares_cpus)))
}

struct Loop {
    worker: Worker<RingNet>,
    scheduler: Scheduler,
    wakers: Wakers,
    run: u32,
}

/// Runs until the orders end.
fn run(thread: WorkerThread, ring: Ring<RingSocket>, shares_cpus: bool) {
    let WorkerThread { number, sockets, patterns, outlet, orders, mine, wakers } = thread;
    let Some(wakers) = wakers else { return };
    let run = sockets.opener.run();
    let worker = Worker::new(number, mine, RingNet::new(sockets, ring), patterns, outlet);
    let mut engine = Loop { worker, scheduler: Scheduler::default(), wakers, run };
    let mut events = Vec::with_capacity(EVENTS);
    while engine.scheduler.handle_order(&orders, &mut engine.worker) {
        for _ in 0..engine.scheduler.ready().min(ROUND) {
            engine.run_next();
            if engine.worker.net.has_much() {
                break;
            }
        }
        let now = Monotonic.now();
        let due = engine.worker.run_due(now);
        engine.scheduler.fire_timers(now);
        engine.scheduler.wake_acceptors(&mut engine.worker);
        let sleep = engine.scheduler.sleep(now, due);
        if let Err(source) = engine.worker.net.submit(sleep, &mut events) {
            // Without its ring a worker can do nothing.
            engine.worker.failed_to_wait("io_uring_enter", source);
            break;
        }
        if shares_cpus && engine.worker.net.should_yield() {
            // ADR 0040.
            std::thread::yield_now();
        }
        for event in events.drain(..) {
            engine.on_event(event);
        }
        engine.scheduler.wake_acceptors(&mut engine.worker);
    }
    engine.worker.close_all();
}

impl Loop {
    fn run_next(&mut self) {
        let Some(local) = self.scheduler.next() else { return };
        if !self.worker.is_running() {
            return;
        }
        match self.worker.turn(local, TURN_BYTES) {
            Turn::Again => self.scheduler.queue(local),
            Turn::Wait(wait) => {
                let Worker { strands, net, .. } = &mut self.worker;
                if let Some(key) = strands[local as usize].socket(wait.slot)
                    && net.await_ready(key, wait.on).is_err()
                {
                    self.scheduler.queue(local);
                    return;
                }
                self.scheduler.park(local, wait);
            }
            Turn::Quiesced => {}
            Turn::Failed(error) => self.worker.failed(*error),
        }
    }

    fn on_event(&mut self, event: Event) {
        let (token, on) = match event {
            Event::Readable(token) => (token, Interest::Readable),
            Event::Writable(token) | Event::CanSend(token) => (token, Interest::Writable),
            Event::Arrival(token) => (token, Interest::Arrival),
        };
        match Token::of(token) {
            Token::Connection { local, slot } => {
                if self.scheduler.wake(local, Some(slot), on) && matches!(event, Event::CanSend(_))
                {
                    self.worker.writable(local);
                }
            }
            Token::Listener { local, .. } => {
                self.scheduler.wake(local, None, on);
            }
            Token::WorkerListener { number } => {
                self.worker.net.sockets_mut().opener.mark_worker_listener(number);
            }
            Token::Inbox => {
                while let Ok(arrival) = receive_arrival(&self.wakers.inbox, self.run) {
                    if let Some(local) = self.worker.arrived(arrival) {
                        self.scheduler.wake(local, None, on);
                    }
                }
            }
            Token::Wake => self.wakers.empty_wake(),
            // Other engines' workers have none.
            Token::Frames { .. } => {}
        }
    }
}
