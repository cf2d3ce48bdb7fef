//! The loop of one thread: it reads the frames of some hosts, and delivers them when the lines say.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{ClockId, clock_gettime};
use wirecost_linux::thread::{self, SchedStat};
use wirecost_linux::tun::Tun;
use wirecost_model::link::{NamedLine, SideCounts};

use crate::clock::Instant;
use crate::frame;
use crate::line::Line;
use crate::route::Router;

/// Frames that are read from one device before another has its turn.
const BATCH: usize = 16;

/// The largest frame: 64 KiB of IP, and its prefix.
const LARGEST: usize = frame::PREFIX + 65_536;

/// Buffers up to this size are kept apart, so that acknowledgments do not occupy large ones.
const SMALL: usize = 2_048;

/// Counters are published at most this often, and later than this only while nothing happens.
const PUBLISH: u64 = 5_000_000;

const SECOND: u64 = 1_000_000_000;

/// A frame later than this does not do what its link promises.
pub(crate) const LATE: u64 = 1_000_000;

/// A frame in a line.
#[derive(Debug)]
pub(crate) struct Held {
    bytes: Vec<u8>,
    /// Where it goes: a device of all.
    output: usize,
    /// How long it may have waited before it was read.
    unread: u64,
}

/// What a thread serves.
#[derive(Debug)]
pub(crate) struct Side {
    /// Devices of all hosts.
    devices: Arc<Vec<Tun>>,
    /// Those that it reads.
    inputs: Vec<Input>,
    names: Vec<String>,
    lines: Vec<Line<Held>>,
    router: Router,
    began: Instant,
    small: Vec<Vec<u8>>,
    large: Vec<Vec<u8>>,
    counts: SideCounts,
    published: Arc<Mutex<SideCounts>>,
    publish_at: Instant,
    unpublished: bool,
}

#[derive(Debug)]
struct Input {
    device: usize,
    /// When it had no frame, at the last look.
    empty_at: Instant,
}

impl Side {
    pub(crate) fn new(
        devices: Arc<Vec<Tun>>,
        inputs: &[usize],
        lines: Vec<(String, Line<Held>)>,
        router: Router,
        published: Arc<Mutex<SideCounts>>,
    ) -> Self {
        let (names, lines) = lines.into_iter().unzip();
        let inputs = inputs.iter().map(|&device| Input { device, empty_at: 0 }).collect();
        Self {
            devices,
            inputs,
            names,
            lines,
            router,
            began: now(),
            small: Vec::new(),
            large: Vec::new(),
            counts: SideCounts::default(),
            published,
            publish_at: 0,
            unpublished: false,
        }
    }

    /// Serves its hosts until `stop` can be read.
    ///
    /// # Errors
    /// Those of read(2) of a device and of poll(2). A frame that a host does not take is counted.
    pub(crate) fn serve(&mut self, stop: BorrowedFd<'_>) -> io::Result<()> {
        thread::minimize_timer_slack();
        let schedule = SchedStat::own();
        let mut used = schedule.now().unwrap_or_default();
        let mut scratch = vec![0; LARGEST];
        let devices = Arc::clone(&self.devices);
        let mut polled: Vec<PollFd<'_>> = self
            .inputs
            .iter()
            .map(|input| devices[input.device].as_fd())
            .chain([stop])
            .map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN))
            .collect();
        loop {
            let mut busy = false;
            for input in 0..self.inputs.len() {
                busy |= self.receive(input, &mut scratch)?;
            }
            busy |= self.deliver();
            let instant = self.elapsed();
            if instant >= self.publish_at && self.unpublished {
                self.account(&schedule, &mut used);
                self.publish(instant);
            }
            if busy {
                continue;
            }
            let next = self.lines.iter().filter_map(Line::next).min();
            let publish = self.unpublished.then_some(self.publish_at);
            let wait = [next, publish].into_iter().flatten().min().map(|at| {
                let wait = at.saturating_sub(instant);
                Timespec {
                    tv_sec: (wait / SECOND).cast_signed(),
                    tv_nsec: (wait % SECOND).cast_signed(),
                }
            });
            match poll(&mut polled, wait.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            if polled.last().is_some_and(|stop| !stop.revents().is_empty()) {
                let instant = self.elapsed();
                self.account(&schedule, &mut used);
                self.publish(instant);
                return Ok(());
            }
            // Until it was woken there was no frame. It may have waited for a CPU since.
            let waited = self.account(&schedule, &mut used);
            let woken = self.elapsed().saturating_sub(waited);
            for input in &mut self.inputs {
                input.empty_at = input.empty_at.max(woken);
            }
        }
    }

    /// Reads frames of one device into the lines.
    fn receive(&mut self, input: usize, scratch: &mut [u8]) -> io::Result<bool> {
        let device = self.inputs[input].device;
        for read in 0..BATCH {
            let length = match self.devices[device].receive(scratch) {
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.inputs[input].empty_at = self.elapsed();
                    return Ok(read > 0);
                }
                Err(error) => return Err(error),
            };
            let now = self.elapsed();
            let frame = &scratch[..length];
            self.unpublished = true;
            let Some((line, output)) = self.router.route(device, frame) else {
                self.counts.unroutable += 1;
                continue;
            };
            let unread = now - self.inputs[input].empty_at;
            let pool = if length <= SMALL { &mut self.small } else { &mut self.large };
            let mut bytes = pool.pop().unwrap_or_default();
            bytes.extend_from_slice(frame);
            self.lines[line].arrive(now, Held { bytes, output, unread }, frame::shape(frame));
        }
        Ok(true)
    }

    /// Writes what is due.
    fn deliver(&mut self) -> bool {
        let mut delivered = false;
        let mut piece_bytes = Vec::new();
        for line in 0..self.lines.len() {
            loop {
                let now = self.elapsed();
                let (devices, counts) = (&self.devices, &mut self.counts);
                let released = self.lines[line].release(now, |piece| {
                    let held = piece.frame;
                    let bytes = if piece.packets == (0, piece.shape.packets) {
                        &held.bytes
                    } else {
                        frame::cut(&held.bytes, piece.shape, piece.packets, &mut piece_bytes);
                        &piece_bytes
                    };
                    let error = now - piece.due + held.unread;
                    counts.error.record(error);
                    counts.late += u64::from(error > LATE);
                    if devices[held.output].send(bytes).is_err() {
                        counts.refused += 1;
                    }
                });
                if !released {
                    break;
                }
                delivered = true;
                while let Some(Held { mut bytes, .. }) = self.lines[line].take_done() {
                    bytes.clear();
                    let pool =
                        if bytes.capacity() <= SMALL { &mut self.small } else { &mut self.large };
                    pool.push(bytes);
                }
            }
        }
        self.unpublished |= delivered;
        delivered
    }

    /// Counts CPU time since the last call. Returns how long the thread has waited for a CPU since.
    fn account(&mut self, schedule: &SchedStat, used: &mut thread::Scheduled) -> u64 {
        let Some(now) = schedule.now() else { return 0 };
        let ran = now.ran.saturating_sub(used.ran);
        let waited = now.waited.saturating_sub(used.waited);
        *used = now;
        *self.counts.cpu_nanoseconds.entry(thread::current_cpu()).or_default() += ran;
        waited
    }

    fn publish(&mut self, instant: Instant) {
        let named = |(name, line): (&String, &Line<Held>)| NamedLine {
            name: name.clone(),
            counts: line.counts(),
        };
        self.counts.lines = self.names.iter().zip(&self.lines).map(named).collect();
        self.publish_at = instant + PUBLISH;
        self.unpublished = false;
        self.published
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .clone_from(&self.counts);
    }

    fn elapsed(&self) -> Instant {
        now() - self.began
    }
}

fn now() -> Instant {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec.cast_unsigned() * SECOND + time.tv_nsec.cast_unsigned()
}
