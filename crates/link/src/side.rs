//! The loop of one thread: it reads the frames of some hosts, and delivers them when the lines say.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
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

/// Frames and packets that are read from one device before another has its turn.
const BATCH: usize = 16;
const PACKETS: usize = 1_024;

/// Pieces that one line delivers before another has its turn.
const PIECES: usize = 256;

/// Buffers that are kept for later frames, of each of two sizes.
const POOL: usize = 256;

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
    buffers: Buffers,
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

/// Buffers of frames that have left.
#[derive(Debug, Default)]
struct Buffers {
    small: Vec<Vec<u8>>,
    large: Vec<Vec<u8>>,
}

impl Buffers {
    /// A buffer with these bytes.
    fn filled(&mut self, frame: &[u8]) -> Vec<u8> {
        let (pool, room) = match frame.len() {
            ..=SMALL => (&mut self.small, SMALL),
            length => (&mut self.large, length),
        };
        let mut bytes = pool.pop().unwrap_or_default();
        bytes.clear();
        bytes.reserve_exact(room);
        bytes.extend_from_slice(frame);
        bytes
    }

    /// Keeps the buffers of frames that a line no longer needs.
    fn take_back(&mut self, line: &mut Line<Held>) {
        while let Some(Held { bytes, .. }) = line.take_done() {
            let pool = if bytes.len() <= SMALL { &mut self.small } else { &mut self.large };
            if pool.len() < POOL {
                pool.push(bytes);
            }
        }
    }
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
            buffers: Buffers::default(),
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
    pub(crate) fn serve(&mut self, stop: BorrowedFd<'_>, stopped: &AtomicBool) -> io::Result<()> {
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
        self.publish(0);
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
            // It may be busy for ever, and need not wait for that it is told to stop.
            if stopped.load(Ordering::Relaxed) {
                self.account(&schedule, &mut used);
                self.publish(instant);
                return Ok(());
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
        let mut packets = 0;
        for read in 0..BATCH {
            if packets > PACKETS {
                break;
            }
            let length = match self.devices[device].receive(scratch) {
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.inputs[input].empty_at = self.elapsed();
                    return Ok(read > 0);
                }
                // A frame that the device cannot describe.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                    self.counts.unroutable += 1;
                    continue;
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
            let bytes = self.buffers.filled(frame);
            let shape = frame::shape(frame);
            packets += usize::from(shape.packets);
            let line = &mut self.lines[line];
            line.arrive(now, Held { bytes, output, unread }, shape);
            // Of frames that were dropped.
            self.buffers.take_back(line);
        }
        Ok(true)
    }

    /// Writes what is due.
    fn deliver(&mut self) -> bool {
        let mut delivered = false;
        let mut piece_bytes = Vec::new();
        for line in 0..self.lines.len() {
            for _ in 0..PIECES {
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
                self.buffers.take_back(&mut self.lines[line]);
                if !released {
                    break;
                }
                delivered = true;
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
