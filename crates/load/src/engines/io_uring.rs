//! One event loop for many strands, by a ring of the kernel.
//!
//! What ready strands ask for is gathered and handed over together, with the wait for what comes next,
//! by one system call. So the more connections are busy, the less of a call each operation costs.

use std::os::fd::OwnedFd;
use std::sync::mpsc::Receiver;

use rustix::io::Errno;
use wirecost_linux::clock::Monotonic;
use wirecost_linux::uring::{Buffers, Event, Setup};
use wirecost_model::clock::Clock;
use wirecost_model::profile::Position;
use wirecost_program::hello;
use wirecost_program::net::Interest;
use wirecost_program::strand::{StrandError, TURN_BYTES, Turn};

use super::seats::Seats;
use crate::doorman::receive_arrival;
use crate::ring_net::RingNet;
use crate::sockets::Token;
use crate::worker::{Order, SocketNet, Worker};

/// Operations that are gathered at most before they are handed over.
const ENTRIES: u32 = 2048;
/// Connections whose descriptors the ring knows; of more the kernel looks them up.
const CONNECTIONS: u32 = 1 << 14;
/// Memory of a worker to receive into: as much as stays in a core's cache beside what else is used.
const BUFFERS_BYTES: usize = 2 << 20;
const MOST_BUFFERS: usize = 1024;
/// Lengths of a buffer: as small as the kernel's own unit of handling them is no gain, and what is
/// longer comes in several pieces.
const BUFFER_BYTES: std::ops::RangeInclusive<usize> = 1 << 10..=64 << 10;
/// Turns before the loop looks at the clock and hands over what has been gathered.
const ROUND: usize = 256;

/// The ring of a worker whose longest message is that long (0: not known).
pub(crate) fn setup(message: u64) -> Setup {
    let longest = match usize::try_from(message) {
        Ok(1..) => message as usize,
        _ => *BUFFER_BYTES.end(),
    };
    // Whole cache lines. A greeting fits in, too.
    let length = longest
        .max(hello::LENGTH + 1)
        .clamp(*BUFFER_BYTES.start(), *BUFFER_BYTES.end())
        .next_multiple_of(64);
    let count = (BUFFERS_BYTES / length).min(MOST_BUFFERS).next_power_of_two();
    let buffers = Buffers { count: count as u16, bytes: length as u32 };
    Setup { entries: ENTRIES, buffers, files: CONNECTIONS }
}

/// Of a worker that only receives, and takes all that there is.
pub(crate) const GATHERING: Buffers = Buffers { count: 16, bytes: 64 << 10 };

struct Loop {
    worker: Worker<RingNet>,
    seats: Seats,
    mine: Vec<(u32, u32)>,
    inbox: OwnedFd,
    wake: OwnedFd,
    run: u32,
}

/// Runs until the orders end.
pub(crate) fn run(
    worker: Worker<RingNet>,
    orders: &Receiver<Order>,
    mine: Vec<(u32, u32)>,
    inbox: OwnedFd,
    wake: OwnedFd,
) {
    let run = worker.net.sockets().opener.run();
    let mut engine = Loop { worker, seats: Seats::default(), mine, inbox, wake, run };
    let mut events = Vec::new();
    while engine.seats.obey(orders, &mut engine.worker, &engine.mine) {
        for _ in 0..engine.seats.ready().min(ROUND) {
            engine.run_next();
        }
        let now = Monotonic.now();
        let due = engine.worker.keep_time(now);
        engine.seats.fire_timers(now);
        let sleep = engine.seats.sleep(now, due);
        if let Err(source) = engine.worker.net.submit(sleep, &mut events) {
            engine.fail(source);
            break;
        }
        for event in events.drain(..) {
            engine.heed(event);
        }
    }
    engine.worker.close_all();
}

impl Loop {
    /// Without its ring a worker can do nothing.
    fn fail(&mut self, source: std::io::Error) {
        let (group, strand) = self.mine.first().copied().unwrap_or_default();
        let at = Position::default();
        self.worker.failed(StrandError { group, strand, kind: "io_uring_enter", at, source });
    }

    fn run_next(&mut self) {
        let Some(local) = self.seats.next() else { return };
        if !self.worker.is_running() {
            return;
        }
        match self.worker.turn(local, TURN_BYTES) {
            Turn::Again => self.seats.queue(local),
            Turn::Wait(wait) => {
                let Worker { strands, net, .. } = &mut self.worker;
                if let Some(key) = strands[local as usize].socket(wait.slot)
                    && net.await_ready(key, wait.on).is_err()
                {
                    self.seats.queue(local);
                    return;
                }
                self.seats.sit(local, wait);
            }
            Turn::Held => {}
            Turn::Failed(error) => self.worker.failed(error),
        }
    }

    fn heed(&mut self, event: Event) {
        let (token, on) = match event {
            Event::Readable(token) => (token, Interest::Readable),
            Event::Writable(token) => (token, Interest::Writable),
            Event::Arrival(token) => (token, Interest::Arrival),
        };
        match Token::of(token) {
            Token::Connection { local, slot } => self.seats.wake(local, Some(slot), on),
            Token::Listener { local, .. } => self.seats.wake(local, None, on),
            Token::Inbox => {
                while let Ok(arrival) = receive_arrival(&self.inbox, self.run) {
                    if let Some(local) = self.worker.arrived(arrival) {
                        self.seats.wake(local, None, on);
                    }
                }
            }
            Token::Wake => {
                let mut count = [0; 8];
                while rustix::io::read(&self.wake, &mut count) == Err(Errno::INTR) {}
            }
        }
    }
}
