//! The loop of one thread: it reads the frames of some devices, and delivers them when the lines say.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{ClockId, clock_gettime};
use wirecost_linux::thread::{self, SchedStat};
use wirecost_linux::tun::Tun;
use wirecost_model::link::SideCounts;

use crate::approach::Approach;
use crate::clock::Instant;
use crate::frame;
use crate::line::{Line, Piece, Shape};
use crate::nic::{Nics, Waiting};
use crate::route::{Route, Router};

/// Frames and packets that are read from one device before another has its turn.
const BATCH: usize = 16;
const PACKETS: usize = 1_024;

/// The same where devices have rings: frames, and packets beyond those that the ring has room for. A device
/// receives while its host is busy, but reading what will be dropped takes time from the host, other than in hardware.
const RING_BATCH: usize = 256;
const BEYOND_RING: usize = 64;

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
    bytes: Arc<Vec<u8>>,
    /// Where it goes: a device of all, and its queue.
    output: (usize, usize),
    /// How long it may have waited before it was read.
    unread: u64,
}

/// A frame on its way to a line.
#[derive(Debug)]
struct Coming {
    line: usize,
    held: Held,
    shape: Shape,
}

/// A line that threads share.
#[derive(Debug)]
pub(crate) struct SharedLine {
    pub(crate) name: String,
    /// The devices where it leads; none if no hosts are joined by it.
    outputs: Vec<usize>,
    line: Mutex<Line<Held>>,
}

impl SharedLine {
    pub(crate) fn new(name: String, outputs: Vec<usize>, line: Line<Held>) -> Self {
        Self { name, outputs, line: Mutex::new(line) }
    }

    /// Whether it joins hosts.
    pub(crate) fn is_used(&self) -> bool {
        !self.outputs.is_empty()
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Line<Held>> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What all threads share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// An end of each queue of each host's device.
    pub(crate) devices: Vec<Vec<Tun>>,
    pub(crate) lines: Vec<SharedLine>,
    pub(crate) router: Router,
    /// Where devices are more than an end of a link.
    pub(crate) nics: Option<Nics>,
    pub(crate) began: Instant,
}

/// What one thread serves.
#[derive(Debug)]
pub(crate) struct Work {
    /// Number of the thread.
    pub(crate) thread: usize,
    /// Devices and queues that it reads.
    pub(crate) inputs: Vec<(usize, usize)>,
    /// Lines that it releases frames of, by number.
    pub(crate) lines: Vec<usize>,
    /// Devices and queues that it hands packets over to, where devices have rings.
    pub(crate) outputs: Vec<(usize, usize)>,
}

/// A thread between devices.
#[derive(Debug)]
pub(crate) struct Side {
    shared: Arc<Shared>,
    work: Work,
    inputs: Vec<Input>,
    buffers: Buffers,
    approach: Approach<Coming>,
    /// Packets that leave rings.
    taken: Vec<Waiting>,
    counts: SideCounts,
    published: Arc<Mutex<SideCounts>>,
    publish_at: Instant,
    unpublished: bool,
}

#[derive(Debug)]
struct Input {
    device: usize,
    queue: usize,
    /// When it had no frame, at the last look.
    empty_at: Instant,
}

/// Buffers of frames that have left.
#[derive(Debug, Default)]
struct Buffers {
    small: Vec<Arc<Vec<u8>>>,
    large: Vec<Arc<Vec<u8>>>,
}

impl Buffers {
    /// A buffer with these bytes.
    fn filled(&mut self, frame: &[u8]) -> Arc<Vec<u8>> {
        let (pool, room) = match frame.len() {
            ..=SMALL => (&mut self.small, SMALL),
            length => (&mut self.large, length),
        };
        let mut buffer = pool.pop().unwrap_or_default();
        if let Some(bytes) = Arc::get_mut(&mut buffer) {
            bytes.clear();
            bytes.reserve_exact(room);
            bytes.extend_from_slice(frame);
        }
        buffer
    }

    /// Keeps a buffer that nobody else has.
    fn take_back(&mut self, mut buffer: Arc<Vec<u8>>) {
        let pool = if buffer.len() <= SMALL { &mut self.small } else { &mut self.large };
        if pool.len() < POOL && Arc::get_mut(&mut buffer).is_some() {
            pool.push(buffer);
        }
    }

    /// Keeps the buffers of frames that a line no longer needs.
    fn take_back_from(&mut self, line: &mut Line<Held>) {
        while let Some(held) = line.take_done() {
            self.take_back(held.bytes);
        }
    }
}

impl Side {
    pub(crate) fn new(shared: Arc<Shared>, work: Work, published: Arc<Mutex<SideCounts>>) -> Self {
        let input = |&(device, queue): &(usize, usize)| Input { device, queue, empty_at: 0 };
        Self {
            inputs: work.inputs.iter().map(input).collect(),
            shared,
            work,
            buffers: Buffers::default(),
            approach: Approach::default(),
            taken: Vec::new(),
            counts: SideCounts::default(),
            published,
            publish_at: 0,
            unpublished: false,
        }
    }

    /// Serves its devices until `stop` can be read.
    ///
    /// # Errors
    /// Those of read(2) of a device and of poll(2). A frame that a host does not take is counted.
    pub(crate) fn serve(&mut self, stop: BorrowedFd<'_>, stopped: &AtomicBool) -> io::Result<()> {
        thread::minimize_timer_slack();
        let schedule = SchedStat::own();
        let mut used = schedule.now().unwrap_or_default();
        let mut scratch = vec![0; LARGEST];
        let mut piece = Vec::new();
        let shared = Arc::clone(&self.shared);
        self.publish(0);
        loop {
            let mut busy = false;
            for input in 0..self.inputs.len() {
                busy |= self.receive(input, &mut scratch)?;
            }
            busy |= self.arrive();
            busy |= self.release(&mut piece);
            busy |= self.hand_over(&mut piece);
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
            let nics = shared.nics.as_ref();
            if let Some(nics) = nics {
                nics.sleeps(self.work.thread);
            }
            let wait = self.next().map(|at| {
                let wait = at.saturating_sub(self.elapsed());
                Timespec {
                    tv_sec: (wait / SECOND).cast_signed(),
                    tv_nsec: (wait % SECOND).cast_signed(),
                }
            });
            // Frames for a device that pauses stay where they are.
            let inputs = self.inputs.iter().filter(|input| !self.is_paused(input.device));
            let mut polled: Vec<PollFd<'_>> = inputs
                .map(|input| shared.devices[input.device][input.queue].as_fd())
                .chain([stop])
                .chain(nics.map(|nics| nics.wake_of(self.work.thread)))
                .map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN))
                .collect();
            match poll(&mut polled, wait.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            if let Some(nics) = nics {
                nics.woke(self.work.thread);
            }
            // Until it was woken there was no frame. It may have waited for a CPU since.
            let waited = self.account(&schedule, &mut used);
            let woken = self.elapsed().saturating_sub(waited);
            for input in &mut self.inputs {
                input.empty_at = input.empty_at.max(woken);
            }
        }
    }

    /// When it has something to do, if no frame arrives.
    fn next(&self) -> Option<Instant> {
        let lines = self.work.lines.iter().map(|number| &self.shared.lines[*number]);
        let released =
            lines.filter(|line| !self.is_blocked(line)).filter_map(|line| line.lock().next()).min();
        let nics = self.shared.nics.as_ref();
        let handed_over = nics.and_then(|nics| {
            self.work.outputs.iter().filter_map(|output| nics.next(*output)).min()
        });
        let publish = self.unpublished.then_some(self.publish_at);
        [self.approach.next(), released, handed_over, publish].into_iter().flatten().min()
    }

    /// Whether frames of this device have to wait, because another pauses the link.
    fn is_paused(&self, device: usize) -> bool {
        self.shared.nics.as_ref().is_some_and(|nics| nics.another_pauses(device))
    }

    /// Whether a line leads to a device that pauses it.
    fn is_blocked(&self, line: &SharedLine) -> bool {
        let nics = self.shared.nics.as_ref();
        nics.is_some_and(|nics| line.outputs.iter().any(|output| nics.pauses(*output)))
    }

    /// Reads frames of one device into the lines.
    fn receive(&mut self, input: usize, scratch: &mut [u8]) -> io::Result<bool> {
        let shared = Arc::clone(&self.shared);
        let Input { device, queue, .. } = self.inputs[input];
        let (most, most_packets) = match &shared.nics {
            Some(nics) => (RING_BATCH, nics.room((device, queue)) + BEYOND_RING),
            None => (BATCH, PACKETS),
        };
        let mut packets = 0;
        for read in 0..most {
            if packets > most_packets {
                break;
            }
            if self.is_paused(device) {
                self.inputs[input].empty_at = self.elapsed();
                return Ok(read > 0);
            }
            let length = match shared.devices[device][queue].receive(scratch) {
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
            let frame = &scratch[..length];
            self.unpublished = true;
            let shape = frame::shape(frame);
            if let Some(nics) = &shared.nics {
                nics.sent((device, queue), shape);
            }
            let Some(Route { line, output, approach }) = shared.router.route(device, frame) else {
                self.counts.unroutable += 1;
                continue;
            };
            let bytes = self.buffers.filled(frame);
            packets += usize::from(shape.packets);
            let mut held = Held { bytes, output: (output, queue), unread: 0 };
            if approach > 0 {
                let now = self.elapsed();
                held.unread = now.saturating_sub(self.inputs[input].empty_at);
                let coming = Coming { line, held, shape };
                if let Err(coming) =
                    self.approach.depart(now, approach, length.max(SMALL) as u64, coming)
                {
                    let mut line = shared.lines[line].lock();
                    line.lose(coming.held);
                    self.buffers.take_back_from(&mut line);
                }
                continue;
            }
            let mut line = shared.lines[line].lock();
            // With the lock, so that instants do not decrease from thread to thread.
            let now = self.elapsed();
            held.unread = now.saturating_sub(self.inputs[input].empty_at);
            line.arrive(now, held, shape);
            // Of frames that were dropped.
            self.buffers.take_back_from(&mut line);
        }
        Ok(true)
    }

    /// Has frames of hosts that are farther away arrive at their lines.
    fn arrive(&mut self) -> bool {
        let mut any = false;
        while let Some((due, Coming { line, mut held, shape })) =
            self.approach.arrived(self.elapsed())
        {
            let mut line = self.shared.lines[line].lock();
            // With the lock, so that instants do not decrease from thread to thread.
            let now = now() - self.shared.began;
            held.unread += now - due;
            line.arrive(now, held, shape);
            self.buffers.take_back_from(&mut line);
            any = true;
        }
        any
    }

    /// Has what is due leave the lines: to its host, or into a ring of its device.
    fn release(&mut self, piece_bytes: &mut Vec<u8>) -> bool {
        let shared = Arc::clone(&self.shared);
        let mut any = false;
        for &number in &self.work.lines {
            let line = &shared.lines[number];
            for _ in 0..PIECES {
                if self.is_blocked(line) {
                    break;
                }
                let mut line = line.lock();
                let now = self.elapsed();
                let counts = &mut self.counts;
                let thread = self.work.thread;
                let released = line.release(now, |piece| {
                    let Piece { frame: held, packets, shape, due } = piece;
                    match &shared.nics {
                        Some(nics) => {
                            let resumed = nics.resumed_at(held.output.0);
                            let error = now - due.max(resumed).min(now) + held.unread;
                            count_error(counts, error);
                            let bytes = Arc::clone(&held.bytes);
                            let waiting = Waiting { bytes, packets, shape };
                            nics.arrive(held.output, now, waiting, thread);
                        }
                        None => {
                            count_error(counts, now - due + held.unread);
                            let (device, queue) = held.output;
                            let device = &shared.devices[device][queue];
                            send(device, &held.bytes, shape, packets, piece_bytes, counts);
                        }
                    }
                });
                self.buffers.take_back_from(&mut line);
                if !released {
                    break;
                }
                any = true;
            }
        }
        self.unpublished |= any;
        any
    }

    /// Hands over what waits in rings.
    fn hand_over(&mut self, piece_bytes: &mut Vec<u8>) -> bool {
        let shared = Arc::clone(&self.shared);
        let Some(nics) = &shared.nics else { return false };
        let mut any = false;
        for &output in &self.work.outputs {
            nics.take(output, self.elapsed(), &mut self.taken);
            any |= !self.taken.is_empty();
            let device = &shared.devices[output.0][output.1];
            for Waiting { bytes, packets, shape } in self.taken.drain(..) {
                send(device, &bytes, shape, packets, piece_bytes, &mut self.counts);
                self.buffers.take_back(bytes);
            }
        }
        self.unpublished |= any;
        any
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
        self.publish_at = instant + PUBLISH;
        self.unpublished = false;
        self.published.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&self.counts);
    }

    fn elapsed(&self) -> Instant {
        now() - self.shared.began
    }
}

fn count_error(counts: &mut SideCounts, error: u64) {
    counts.error.record(error);
    counts.late += u64::from(error > LATE);
}

/// Gives a host packets of a frame.
fn send(
    device: &Tun,
    frame: &[u8],
    shape: Shape,
    packets: (u16, u16),
    piece: &mut Vec<u8>,
    counts: &mut SideCounts,
) {
    let bytes = if packets == (0, shape.packets) {
        frame
    } else {
        frame::cut(frame, shape, packets, piece);
        piece
    };
    counts.refused += u64::from(device.send(bytes).is_err());
}

/// Nanoseconds of the monotonic clock.
pub(crate) fn now() -> Instant {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec.cast_unsigned() * SECOND + time.tv_nsec.cast_unsigned()
}
