//! uperf's model: a thread for each strand, which blocks in its system calls.

use std::io;
use std::sync::mpsc::{RecvTimeoutError, TryRecvError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use wirecost_linux::clock::{Monotonic, timespec};
use wirecost_model::clock::{Clock, MILLISECOND, Nanos};
use wirecost_model::program::Program;
use wirecost_program::net::Interest;
use wirecost_program::served;
use wirecost_program::strand::{TURN_BYTES, Turn, Wait};

use super::{Engine, Run, Setup, WorkerThread};
use crate::worker::{Order, Worker};

/// No wait is longer, so that a thread hears of the run's end.
const LONGEST_WAIT: Nanos = 250 * MILLISECOND;

pub(super) struct Threads;

impl Engine for Threads {
    fn name(&self) -> &'static str {
        "threads"
    }

    fn help(&self) -> &'static str {
        "one blocking thread per strand, as in uperf"
    }

    fn shares_threads(&self) -> bool {
        false
    }

    fn refuses(&self, program: &Program) -> Option<String> {
        let shares = program.groups.iter().any(|group| served::shared_listeners(group).is_some());
        shares.then(|| {
            "a strand's thread waits for its own connection only: for server_sockets over TCP use epoll, io_uring or poll"
                .to_owned()
        })
    }

    fn prepare(&self, _: &mut Setup<'_>) -> io::Result<Run> {
        Ok(Box::new(run))
    }
}

/// Runs until the orders end.
fn run(thread: WorkerThread) {
    let WorkerThread { number, sockets, patterns, outlet, orders, mine, .. } = thread;
    let mut worker = Worker::new(number, mine, sockets, patterns, outlet);
    loop {
        let order = if worker.is_running() {
            match orders.try_recv() {
                Ok(order) => Some(order),
                Err(TryRecvError::Empty) => None,
                Err(TryRecvError::Disconnected) => break,
            }
        } else {
            match orders.recv() {
                Ok(order) => Some(order),
                Err(_) => break,
            }
        };
        if let Some(order) = order {
            handle_order(&mut worker, order);
            continue;
        }
        let now = Monotonic.now();
        let early = worker.start().saturating_sub(now);
        if early > LONGEST_WAIT {
            match orders.recv_timeout(Duration::from_nanos(LONGEST_WAIT)) {
                Ok(order) => handle_order(&mut worker, order),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            continue;
        }
        if early > 0 {
            let _ = wirecost_linux::clock::sleep_until(worker.start());
            continue;
        }
        let due = worker.run_due(now);
        if !worker.is_running() {
            continue;
        }
        let turn = if worker.takes_part(0) { worker.turn(0, TURN_BYTES) } else { Turn::Quiesced };
        match turn {
            Turn::Again => {}
            Turn::Wait(wait) => pause(&mut worker, wait, due),
            Turn::Quiesced => {
                // Nothing to do until an order comes or the phase's time is up.
                let now = Monotonic.now();
                let next = due.map_or(LONGEST_WAIT, |due| due.saturating_sub(now));
                let length = Duration::from_nanos(next.min(LONGEST_WAIT));
                match orders.recv_timeout(length) {
                    Ok(order) => handle_order(&mut worker, order),
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => break,
                }
            }
            Turn::Failed(error) => {
                worker.failed(*error);
                // The run is over; wait to be told.
                match orders.recv() {
                    Ok(order) => handle_order(&mut worker, order),
                    Err(_) => break,
                }
            }
        }
    }
    worker.close_all();
}

fn handle_order(worker: &mut Worker, order: Order) {
    match order {
        Order::Connect { endpoints, groups } => worker.connect(endpoints, groups),
        Order::Phase(order) => {
            worker.begin(order);
        }
        Order::Finish(limits) => worker.finish(&limits),
        Order::CutOff => worker.cut_off(),
    }
}

fn pause(worker: &mut Worker, wait: Wait, due: Option<Nanos>) {
    let now = Monotonic.now();
    let until = [wait.until, due].into_iter().flatten().min();
    let length = until.map_or(LONGEST_WAIT, |until| until.saturating_sub(now)).min(LONGEST_WAIT);
    let poll = |fd: &std::os::fd::OwnedFd, flags| {
        let _ = rustix::event::poll(&mut [PollFd::new(fd, flags)], Some(&timespec(length)));
    };
    match wait.on {
        Interest::Nothing => wirecost_linux::clock::sleep(length),
        Interest::Readable | Interest::Writable => {
            let flags = match wait.on {
                Interest::Readable => PollFlags::IN,
                _ => PollFlags::OUT,
            };
            match worker.strands[0].socket(wait.slot) {
                Some(socket) => poll(socket.fd(), flags),
                None => wirecost_linux::clock::sleep(length.min(MILLISECOND)),
            }
        }
        Interest::Arrival => {
            let owner = worker.awaited(0);
            // Otherwise it has just blocked on its own listeners for a while.
            if worker.net.opener.awaits_broker {
                let length = Duration::from_nanos(length);
                worker.net.opener.mailbox().wait(owner, length);
            }
        }
    }
}
