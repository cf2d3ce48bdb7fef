//! One event loop for many strands by poll(2), as servers were written before epoll.
//!
//! Every wait hands over what all parked strands wait for, so its cost grows with their number,
//! whether or not anything happens to them.

use std::io;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use wirecost_linux::clock::{Monotonic, timespec};
use wirecost_model::clock::{Clock, Nanos};
use wirecost_program::net::Interest;
use wirecost_program::strand::{TURN_BYTES, Turn, Wait};

use super::scheduler::Scheduler;
use super::{Engine, Run, Setup, Wakers, WorkerThread};
use crate::broker::receive_arrival;
use crate::worker::Worker;

/// Turns before the loop looks at the clock and at events.
const ROUND: usize = 64;

pub(super) struct Poll;

impl Engine for Poll {
    fn name(&self) -> &'static str {
        "poll"
    }

    fn help(&self) -> &'static str {
        "event loop by poll(2); each wait costs more with more strands"
    }

    fn prepare(&self, setup: &mut Setup<'_>) -> io::Result<Run> {
        setup.wakers()?;
        setup.sockets.opener.accept_only_when_ready();
        Ok(Box::new(run))
    }
}

/// What an entry of a wait stands for.
#[derive(Debug, Clone, Copy)]
enum Entry {
    Wake,
    Inbox,
    Connection { local: u32, wait: Wait },
    Listener { local: u32, number: u32 },
    WorkerListener { number: u32 },
}

struct Loop {
    worker: Worker,
    scheduler: Scheduler,
    wakers: Wakers,
    /// Whether more connections can come by the inbox. Once its other end is closed, every poll
    /// would report it at once.
    inbox_is_open: bool,
    /// The longest `busy_poll` that has been noted, microseconds.
    busy_poll: u32,
    run: u32,
    /// Empty between two waits; only its memory is kept.
    descriptors: Vec<PollFd<'static>>,
    /// In the order of the descriptors of a wait.
    entries: Vec<Entry>,
}

/// Runs until the orders end.
fn run(thread: WorkerThread) {
    let WorkerThread { number, sockets, patterns, outlet, orders, mine, wakers } = thread;
    let Some(wakers) = wakers else { return };
    // A strand waits at all its listeners, or for one connection.
    let descriptors_of = |local| sockets.opener.listeners_of(local).count().max(1);
    let shared = sockets.opener.worker_listeners.len();
    let most = 2 + shared + (0..mine.len() as u32).map(descriptors_of).sum::<usize>();
    let run = sockets.opener.run();
    let mut engine = Loop {
        worker: Worker::new(number, mine, sockets, patterns, outlet),
        scheduler: Scheduler::default(),
        wakers,
        inbox_is_open: true,
        busy_poll: 0,
        run,
        descriptors: Vec::with_capacity(most),
        entries: Vec::with_capacity(most),
    };
    while engine.scheduler.handle_order(&orders, &mut engine.worker) {
        for _ in 0..engine.scheduler.ready().min(ROUND) {
            engine.run_next();
        }
        let now = Monotonic.now();
        let due = engine.worker.run_due(now);
        engine.scheduler.fire_timers(now);
        if let Err(source) = engine.poll(now, due) {
            engine.worker.failed_to_wait("poll", source);
            break;
        }
    }
    engine.worker.close_all();
}

/// The memory of descriptors that a wait is done with, for the next ones: collecting in place keeps
/// it.
fn recycle<'a>(mut descriptors: Vec<PollFd<'_>>) -> Vec<PollFd<'a>> {
    descriptors.clear();
    descriptors.into_iter().map_while(|_| None).collect()
}

impl Loop {
    fn run_next(&mut self) {
        let Some(local) = self.scheduler.next() else { return };
        if !self.worker.is_running() {
            return;
        }
        match self.worker.turn(local, TURN_BYTES) {
            Turn::Again => self.scheduler.queue(local),
            Turn::Wait(wait) => self.scheduler.park(local, wait),
            Turn::Quiesced => {}
            Turn::Failed(error) => self.worker.failed(*error),
        }
        let settings = &mut self.worker.net.settings;
        if settings.busy_poll() > self.busy_poll {
            self.busy_poll = settings.busy_poll();
            // How long poll(2) looks at devices is up to net.core.busy_poll, not to a socket.
            settings.note_waits(false);
        }
    }

    fn poll(&mut self, now: Nanos, due: Option<Nanos>) -> io::Result<()> {
        self.scheduler.wake_acceptors(&mut self.worker);
        let timeout = timespec(self.scheduler.sleep(now, due).unwrap_or(0));
        let mut descriptors = recycle(std::mem::take(&mut self.descriptors));
        self.entries.clear();
        self.entries.push(Entry::Wake);
        descriptors.push(PollFd::new(&self.wakers.wake, PollFlags::IN));
        if self.inbox_is_open {
            self.entries.push(Entry::Inbox);
            descriptors.push(PollFd::new(&self.wakers.inbox, PollFlags::IN));
        }
        let Worker { strands, net, .. } = &self.worker;
        for (number, fd) in net.opener.worker_listeners.awaited() {
            self.entries.push(Entry::WorkerListener { number });
            descriptors.push(PollFd::new(fd, PollFlags::IN));
        }
        for (local, wait) in self.scheduler.parked() {
            let flags = match wait.on {
                Interest::Readable => PollFlags::IN,
                Interest::Writable => PollFlags::OUT,
                Interest::Arrival => {
                    // Of a listener that was called before, the strand knows.
                    let own = net.opener.listeners_of(local);
                    for (number, listener) in own.filter(|(_, listener)| !listener.ready) {
                        self.entries.push(Entry::Listener { local, number });
                        descriptors.push(PollFd::new(&listener.fd, PollFlags::IN));
                    }
                    continue;
                }
                Interest::Nothing => continue,
            };
            if let Some(socket) = strands[local as usize].socket(wait.slot) {
                self.entries.push(Entry::Connection { local, wait });
                descriptors.push(PollFd::new(socket.fd(), flags));
            }
        }
        let found = match rustix::event::poll(&mut descriptors, Some(&timeout)) {
            Err(Errno::INTR) => 0,
            found => found?,
        };
        // Entries of what happened stay, in front.
        let mut events = 0;
        for (place, descriptor) in descriptors.iter().enumerate() {
            if events == found {
                break;
            }
            let happened = descriptor.revents();
            if !happened.is_empty() {
                let entry = self.entries[place];
                if matches!(entry, Entry::Inbox) && happened.contains(PollFlags::HUP) {
                    self.inbox_is_open = false;
                }
                self.entries[events] = entry;
                events += 1;
            }
        }
        self.descriptors = recycle(descriptors);
        for event in 0..events {
            self.on_event(self.entries[event]);
        }
        self.scheduler.wake_acceptors(&mut self.worker);
        Ok(())
    }

    fn on_event(&mut self, event: Entry) {
        match event {
            Entry::Wake => self.wakers.empty_wake(),
            Entry::Inbox => {
                while let Ok(arrival) = receive_arrival(&self.wakers.inbox, self.run) {
                    if let Some(local) = self.worker.arrived(arrival) {
                        self.scheduler.wake(local, None, Interest::Arrival);
                    }
                }
            }
            Entry::Connection { local, wait } => {
                self.scheduler.wake(local, Some(wait.slot), wait.on);
            }
            Entry::WorkerListener { number } => {
                self.worker.net.opener.mark_worker_listener(number);
            }
            Entry::Listener { local, number } => {
                self.worker.net.opener.mark_ready(local, number, true);
                self.scheduler.wake(local, None, Interest::Arrival);
            }
        }
    }
}
