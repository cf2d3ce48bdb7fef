//! One event loop for many strands, whose datagrams are frames of AF_XDP sockets: the kernel's IP and UDP do nothing for
//! them. A strand puts frames into memory that the kernel reads; one call has it send many. Frames that come are in
//! memory before a strand looks for them. See [`crate::frames`].

use std::io;

use rustix::event::epoll;
use rustix::io::Errno;
use wirecost_linux::clock::{Monotonic, timespec};
use wirecost_linux::xdp::Mode;
use wirecost_model::clock::{Clock, MICROSECOND, Nanos};
use wirecost_program::net::Interest;
use wirecost_program::strand::{TURN_BYTES, Turn};

use super::epoll::prepare_events;
use super::scheduler::Scheduler;
use super::{Engine, Limits, Run, Setup, Shared, Wakers, WorkerThread};
use crate::broker::receive_arrival;
use crate::frames::{self, Carrier, FrameNet, HostProgram};
use crate::sockets::Token;
use crate::worker::Worker;

const EVENTS: usize = 512;
/// Turns before the loop looks at the clock and at events.
const ROUND: usize = 64;
/// A device that is busy tells nobody when it has room again, so it is asked.
const BUSY: Nanos = 20 * MICROSECOND;

pub(super) struct AfXdp;

impl Engine for AfXdp {
    fn name(&self) -> &'static str {
        "af_xdp"
    }

    fn help(&self) -> &'static str {
        "UDP datagrams as frames of AF_XDP sockets (generic mode), without the kernel's IP and UDP"
    }

    fn limits(&self) -> Option<&'static Limits> {
        Some(&frames::LIMITS)
    }

    fn share(&self, workers: u32) -> io::Result<Shared> {
        share(Mode::Generic, workers)
    }

    fn prepare(&self, setup: &mut Setup<'_>) -> io::Result<Run> {
        prepare(setup, Mode::Generic)
    }
}

pub(super) fn share(mode: Mode, workers: u32) -> io::Result<Shared> {
    Ok(Shared { program: Some(HostProgram::load(mode, workers)?) })
}

pub(super) fn prepare(setup: &mut Setup<'_>, mode: Mode) -> io::Result<Run> {
    let shares_cpus = prepare_events(setup)?;
    let program = setup.program.take();
    let program = program.ok_or_else(|| io::Error::other("a worker without its XDP program"))?;
    let carrier = Carrier { mode, program, longest: setup.message };
    Ok(Box::new(move |thread| run(thread, carrier, shares_cpus)))
}

struct Loop {
    worker: Worker<FrameNet>,
    scheduler: Scheduler,
    wakers: Wakers,
    run: u32,
    /// The other end may be waiting for this CPU.
    shares_cpus: bool,
    /// Strands that wait for room in a transmit ring, and their slots.
    blocked: Vec<(u32, u32)>,
}

/// Runs until the orders end.
fn run(thread: WorkerThread, carrier: Carrier, shares_cpus: bool) {
    let WorkerThread { number, sockets, patterns, outlet, orders, mine, wakers } = thread;
    let Some(wakers) = wakers else { return };
    let run = sockets.opener.run();
    let blocked = Vec::with_capacity(mine.len());
    let worker = Worker::new(number, mine, FrameNet::new(sockets, carrier), patterns, outlet);
    let scheduler = Scheduler::default();
    let mut engine = Loop { worker, scheduler, wakers, run, shares_cpus, blocked };
    let mut events = Vec::with_capacity(EVENTS);
    while engine.scheduler.handle_order(&orders, &mut engine.worker) {
        for _ in 0..engine.scheduler.ready().min(ROUND) {
            engine.run_next();
        }
        let sent = engine.worker.net.hand_over();
        let all_sent = match sent {
            Ok(all) => all,
            Err(source) => {
                engine.worker.failed_to_wait("sendto", source);
                break;
            }
        };
        while let Some((local, slot)) = engine.worker.net.take_arrived() {
            engine.scheduler.wake(local, Some(slot), Interest::Readable);
        }
        engine.unblock();
        let now = Monotonic.now();
        let due = engine.worker.run_due(now);
        engine.scheduler.fire_timers(now);
        let is_busy = !all_sent || !engine.blocked.is_empty();
        engine.poll(&mut events, now, due, is_busy);
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
            Turn::Again => {
                self.scheduler.queue(local);
                if self.shares_cpus && self.worker.only_sends(local) {
                    // ADR 0040.
                    std::thread::yield_now();
                }
            }
            Turn::Wait(wait) => {
                let is_open = |slot| self.worker.strands[local as usize].socket(slot).is_some();
                let blocked = (local, wait.slot);
                if wait.on == Interest::Writable
                    && is_open(wait.slot)
                    && !self.blocked.contains(&blocked)
                {
                    self.blocked.push(blocked);
                }
                self.scheduler.park(local, wait);
            }
            Turn::Quiesced => {}
            Turn::Failed(error) => self.worker.failed(*error),
        }
    }

    /// Wakes strands whose transmit ring has room again.
    fn unblock(&mut self) {
        let Worker { strands, net, .. } = &mut self.worker;
        let scheduler = &mut self.scheduler;
        self.blocked.retain(|&(local, slot)| {
            let connection = strands[local as usize].socket(slot);
            let has_room = connection.is_none_or(|connection| net.has_room(connection));
            if has_room {
                scheduler.wake(local, Some(slot), Interest::Writable);
            }
            !has_room
        });
    }

    fn poll(
        &mut self,
        events: &mut Vec<epoll::Event>,
        now: Nanos,
        due: Option<Nanos>,
        is_busy: bool,
    ) {
        let longest = if is_busy { BUSY } else { Nanos::MAX };
        let sleep = self.scheduler.sleep(now, due).unwrap_or(0).min(longest);
        let Some(poll) = self.worker.net.epoll() else { return };
        let timeout = timespec(sleep);
        match epoll::wait(poll, rustix::buffer::spare_capacity(events), Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return,
        }
        for event in events.drain(..) {
            let flags = event.flags;
            match Token::unpack(event.data) {
                Token::Frames { port } => self.worker.net.frames_came(port as usize),
                Token::Connection { local, slot } => {
                    let broken = epoll::EventFlags::ERR | epoll::EventFlags::HUP;
                    if flags.intersects(epoll::EventFlags::IN | broken) {
                        let Worker { strands, net, .. } = &mut self.worker;
                        if let Some(connection) = strands[local as usize].socket(slot) {
                            net.kernel_has(connection);
                        }
                        self.scheduler.wake(local, Some(slot), Interest::Readable);
                    }
                    if flags.intersects(epoll::EventFlags::OUT | broken)
                        && self.scheduler.wake(local, Some(slot), Interest::Writable)
                        && !flags.intersects(broken)
                    {
                        self.worker.writable(local);
                    }
                }
                Token::Listener { local, number } => {
                    let heeded = self.scheduler.wake(local, None, Interest::Arrival);
                    self.worker.net.mark_ready(local, number, heeded);
                }
                // Those are of TCP.
                Token::WorkerListener { .. } => {}
                Token::Inbox => {
                    while let Ok(arrival) = receive_arrival(&self.wakers.inbox, self.run) {
                        if let Some(local) = self.worker.arrived(arrival) {
                            self.scheduler.wake(local, None, Interest::Arrival);
                        }
                    }
                }
                Token::Wake => self.wakers.empty_wake(),
            }
        }
        while let Some((local, slot)) = self.worker.net.take_arrived() {
            self.scheduler.wake(local, Some(slot), Interest::Readable);
        }
    }
}
