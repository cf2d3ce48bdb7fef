//! Receive queues of devices: a ring between the link and each queue, which the queue's thread empties as a
//! driver does (NAPI: <https://docs.kernel.org/networking/napi.html>). What the thread hands over is
//! received on its CPU.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, eventfd};
use wirecost_model::link::nic::{DeviceCounts, Nic, QueueCounts};

use crate::clock::Instant;
use crate::line::Shape;

/// Frames that one queue hands over before another has its turn (`NAPI_POLL_WEIGHT`).
const BUDGET: usize = 64;

/// Packets of a frame that wait for their host.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) bytes: Arc<Vec<u8>>,
    pub(crate) packets: (u16, u16),
    pub(crate) shape: Shape,
}

impl Waiting {
    fn count(&self) -> u32 {
        u32::from(self.packets.1 - self.packets.0)
    }

    fn total(&self) -> u64 {
        (self.packets.0..self.packets.1).map(|packet| u64::from(self.shape.bytes(packet))).sum()
    }
}

/// Devices of all hosts, and the threads that serve their queues.
#[derive(Debug)]
pub(crate) struct Nics {
    nic: Nic,
    devices: Vec<Device>,
    threads: Vec<Thread>,
}

#[derive(Debug)]
struct Device {
    queues: Vec<Queue>,
    /// Queues that are nearly full: the device pauses the link while there is one.
    full: AtomicU32,
    pauses: AtomicU64,
    /// When a queue of it was last nearly full.
    resumed_at: AtomicU64,
}

#[derive(Debug)]
struct Queue {
    cpu: u32,
    /// The thread that serves it, by number.
    thread: usize,
    sent: AtomicU64,
    sent_bytes: AtomicU64,
    ring: Mutex<Ring>,
}

#[derive(Debug, Default)]
struct Ring {
    waiting: VecDeque<Waiting>,
    packets: u32,
    /// When its interrupt is due, if it has not been served since the first of them arrived.
    interrupt_at: Option<Instant>,
    /// Whether its thread empties it, without further interrupts.
    polled: bool,
    is_full: bool,
    counts: QueueCounts,
}

#[derive(Debug)]
struct Thread {
    cpu: u32,
    wake: OwnedFd,
    sleeps: AtomicBool,
}

impl Nics {
    /// `cpus` are those of each device's queues.
    ///
    /// # Errors
    /// No descriptor is left.
    pub(crate) fn new(nic: &Nic, cpus: &[Vec<u32>]) -> io::Result<Self> {
        let mut all: Vec<u32> = cpus.concat();
        all.sort_unstable();
        all.dedup();
        let thread = |&cpu: &u32| {
            let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            Ok(Thread { cpu, wake, sleeps: AtomicBool::new(false) })
        };
        let queue = |&cpu: &u32| Queue {
            cpu,
            thread: all.iter().position(|of_thread| *of_thread == cpu).unwrap_or_default(),
            sent: AtomicU64::new(0),
            sent_bytes: AtomicU64::new(0),
            ring: Mutex::default(),
        };
        let device = |cpus: &Vec<u32>| Device {
            queues: cpus.iter().map(queue).collect(),
            full: AtomicU32::new(0),
            pauses: AtomicU64::new(0),
            resumed_at: AtomicU64::new(0),
        };
        Ok(Self {
            nic: nic.clone(),
            devices: cpus.iter().map(device).collect(),
            threads: all.iter().map(thread).collect::<io::Result<_>>()?,
        })
    }

    /// Packets for which a ring of this number has room at some device other than the sender's.
    pub(crate) fn room(&self, (sender, queue): (usize, usize)) -> usize {
        let others = self.devices.iter().enumerate().filter(|(number, _)| *number != sender);
        let room = |device: &Device| {
            self.nic.ring.saturating_sub(lock(&device.queues[queue].ring).packets) as usize
        };
        others.map(|(_, device)| room(device)).max().unwrap_or_default()
    }

    /// The CPU of each thread.
    pub(crate) fn threads(&self) -> impl Iterator<Item = u32> {
        self.threads.iter().map(|thread| thread.cpu)
    }

    /// Device and queue of all that a thread serves.
    pub(crate) fn queues_of(&self, thread: usize) -> Vec<(usize, usize)> {
        let devices = self.devices.iter().enumerate();
        let all = devices.flat_map(|(number, device)| {
            device.queues.iter().enumerate().map(move |(place, queue)| (number, place, queue))
        });
        let served = all.filter(|(_, _, queue)| queue.thread == thread);
        served.map(|(device, queue, _)| (device, queue)).collect()
    }

    /// A host has sent packets.
    pub(crate) fn sent(&self, (device, queue): (usize, usize), shape: Shape) {
        let queue = &self.devices[device].queues[queue];
        queue.sent.fetch_add(u64::from(shape.packets), Ordering::Relaxed);
        queue.sent_bytes.fetch_add(shape.all_bytes(), Ordering::Relaxed);
    }

    /// Packets arrive at a device. Those that do not fit are dropped.
    pub(crate) fn arrive(
        &self,
        (device, queue): (usize, usize),
        now: Instant,
        mut waiting: Waiting,
        by_thread: usize,
    ) {
        let device = &self.devices[device];
        let queue = &device.queues[queue];
        let mut ring = lock(&queue.ring);
        let packets = waiting.count();
        // What was on its way when the device paused the link still has room, as in a device's own memory.
        let room =
            if self.nic.pause { packets } else { self.nic.ring.saturating_sub(ring.packets) };
        let fitting = packets.min(room);
        ring.counts.dropped += u64::from(packets - fitting);
        if fitting == 0 {
            return;
        }
        waiting.packets.1 = waiting.packets.0 + fitting as u16;
        ring.packets += fitting;
        if self.nic.pause && !ring.is_full && ring.packets > self.nic.ring / 4 * 3 {
            ring.is_full = true;
            if device.full.fetch_add(1, Ordering::SeqCst) == 0 {
                device.pauses.fetch_add(1, Ordering::Relaxed);
            }
        }
        ring.waiting.push_back(waiting);
        if !ring.polled && ring.interrupt_at.is_none() {
            ring.interrupt_at = Some(now + self.nic.coalesce_nanoseconds);
            drop(ring);
            if queue.thread != by_thread {
                self.wake(queue.thread);
            }
        }
    }

    /// Takes packets that a queue's thread is to hand over now.
    pub(crate) fn take(
        &self,
        (device, queue): (usize, usize),
        now: Instant,
        taken: &mut Vec<Waiting>,
    ) {
        let device = &self.devices[device];
        let mut ring = lock(&device.queues[queue].ring);
        if !ring.polled {
            if ring.interrupt_at.is_none_or(|at| at > now) {
                return;
            }
            ring.interrupt_at = None;
            ring.polled = true;
            ring.counts.interrupts += 1;
        }
        let frames = ring.waiting.len().min(BUDGET);
        for waiting in ring.waiting.drain(..frames).collect::<Vec<_>>() {
            ring.packets -= waiting.count();
            ring.counts.received += u64::from(waiting.count());
            ring.counts.received_bytes += waiting.total();
            taken.push(waiting);
        }
        ring.polled = !ring.waiting.is_empty();
        if ring.is_full && ring.packets <= self.nic.ring / 4 {
            ring.is_full = false;
            drop(ring);
            device.resumed_at.fetch_max(now, Ordering::SeqCst);
            if device.full.fetch_sub(1, Ordering::SeqCst) == 1 {
                (0..self.threads.len()).for_each(|thread| self.wake(thread));
            }
        }
    }

    /// When a queue has something to hand over: 0 for now.
    pub(crate) fn next(&self, (device, queue): (usize, usize)) -> Option<Instant> {
        let ring = lock(&self.devices[device].queues[queue].ring);
        if ring.polled { Some(0) } else { ring.interrupt_at }
    }

    /// Whether a device pauses the link.
    pub(crate) fn pauses(&self, device: usize) -> bool {
        self.devices[device].full.load(Ordering::SeqCst) > 0
    }

    /// Whether a device other than this one does.
    pub(crate) fn another_pauses(&self, device: usize) -> bool {
        (0..self.devices.len()).any(|other| other != device && self.pauses(other))
    }

    /// When a device last ended a pause.
    pub(crate) fn resumed_at(&self, device: usize) -> Instant {
        self.devices[device].resumed_at.load(Ordering::SeqCst)
    }

    /// Becomes readable when a thread that sleeps has something to do.
    pub(crate) fn wake_of(&self, thread: usize) -> BorrowedFd<'_> {
        self.threads[thread].wake.as_fd()
    }

    /// A thread says that it will look no more: from here on it is woken.
    pub(crate) fn sleeps(&self, thread: usize) {
        self.threads[thread].sleeps.store(true, Ordering::SeqCst);
    }

    pub(crate) fn woke(&self, thread: usize) {
        self.threads[thread].sleeps.store(false, Ordering::SeqCst);
        // It may not have been woken by anybody.
        let _ = rustix::io::read(&self.threads[thread].wake, &mut [0; 8]);
    }

    fn wake(&self, thread: usize) {
        let thread = &self.threads[thread];
        if thread.sleeps.swap(false, Ordering::SeqCst) {
            // An eventfd takes it.
            let _ = rustix::io::write(&thread.wake, &1_u64.to_ne_bytes());
        }
    }

    /// Counts since the start.
    pub(crate) fn counts(&self) -> Vec<DeviceCounts> {
        let of_queue = |queue: &Queue| QueueCounts {
            cpu: queue.cpu,
            sent: queue.sent.load(Ordering::Relaxed),
            sent_bytes: queue.sent_bytes.load(Ordering::Relaxed),
            ..lock(&queue.ring).counts
        };
        let of_device = |(number, device): (usize, &Device)| DeviceCounts {
            host: format!("h{}", number + 1),
            pauses: device.pauses.load(Ordering::Relaxed),
            queues: device.queues.iter().map(of_queue).collect(),
        };
        self.devices.iter().enumerate().map(of_device).collect()
    }
}

fn lock(ring: &Mutex<Ring>) -> MutexGuard<'_, Ring> {
    ring.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use wirecost_model::rss::Rss;

    use super::*;

    fn nics(ring: u32, coalesce_nanoseconds: u64, pause: bool) -> Nics {
        let nic = Nic { queues: 2, rss: Rss::spread(2), ring, coalesce_nanoseconds, pause };
        Nics::new(&nic, &[vec![0, 1], vec![0, 1]]).unwrap()
    }

    fn frame(packets: u16) -> Waiting {
        let shape = Shape { packets, header: 40, payload: u32::from(packets) * 100, each: 100 };
        Waiting { bytes: Arc::default(), packets: (0, packets), shape }
    }

    fn taken(nics: &Nics, queue: (usize, usize), now: Instant) -> Vec<(u16, u16)> {
        let mut taken = Vec::new();
        nics.take(queue, now, &mut taken);
        taken.iter().map(|waiting| waiting.packets).collect()
    }

    #[test]
    fn packets_wait_for_the_interrupt_and_come_together() {
        let nics = nics(1_000, 50, false);
        assert_eq!(nics.next((1, 0)), None);
        nics.arrive((1, 0), 100, frame(3), 0);
        nics.arrive((1, 0), 120, frame(1), 0);
        assert_eq!(nics.next((1, 0)), Some(150));
        assert!(taken(&nics, (1, 0), 149).is_empty());
        assert!(taken(&nics, (1, 1), 150).is_empty());
        assert_eq!(taken(&nics, (1, 0), 150), [(0, 3), (0, 1)]);
        // The next packet has an interrupt of its own.
        nics.arrive((1, 0), 200, frame(1), 0);
        assert_eq!(nics.next((1, 0)), Some(250));
        assert_eq!(taken(&nics, (1, 0), 260), [(0, 1)]);
        let counts = nics.counts();
        assert_eq!(counts[1].host, "h2");
        let expected = QueueCounts {
            received: 5,
            received_bytes: 5 * 140,
            interrupts: 2,
            ..QueueCounts::default()
        };
        assert_eq!(counts[1].queues[0], expected);
        assert_eq!(counts[1].queues[1], QueueCounts { cpu: 1, ..QueueCounts::default() });
    }

    #[test]
    fn a_queue_that_is_not_empty_is_polled_without_interrupts() {
        let nics = nics(1_000, 1_000, false);
        for _ in 0..=BUDGET {
            nics.arrive((0, 1), 0, frame(1), 1);
        }
        assert_eq!(taken(&nics, (0, 1), 1_000).len(), BUDGET);
        nics.arrive((0, 1), 1_001, frame(1), 1);
        assert_eq!(nics.next((0, 1)), Some(0));
        assert_eq!(taken(&nics, (0, 1), 1_001).len(), 2);
        assert_eq!(nics.next((0, 1)), None);
        assert_eq!(nics.counts()[0].queues[1].interrupts, 1);
    }

    #[test]
    fn a_ring_holds_packets_and_drops_the_rest_of_a_frame() {
        let nics = nics(16, 0, false);
        nics.arrive((0, 0), 0, frame(10), 0);
        nics.arrive((0, 0), 0, frame(10), 0);
        nics.arrive((0, 0), 0, frame(5), 0);
        assert_eq!(taken(&nics, (0, 0), 0), [(0, 10), (0, 6)]);
        let counts = nics.counts()[0].queues[0];
        assert_eq!((counts.received, counts.dropped), (16, 9));
        assert!(!nics.pauses(0));
    }

    #[test]
    fn a_device_pauses_the_link_while_a_queue_is_nearly_full() {
        let nics = nics(400, 0, true);
        for _ in 0..300 {
            nics.arrive((0, 0), 0, frame(1), 0);
        }
        assert!(!nics.pauses(0));
        nics.arrive((0, 0), 0, frame(1), 0);
        nics.arrive((0, 1), 0, frame(301), 1);
        assert!(nics.pauses(0) && nics.another_pauses(1) && !nics.another_pauses(0));
        // Both queues have to be nearly empty, which they are after a quarter of the ring.
        taken(&nics, (0, 1), 5);
        for at in 0..4 {
            assert!(nics.pauses(0), "{at}");
            taken(&nics, (0, 0), at);
        }
        assert!(!nics.pauses(0));
        assert_eq!((nics.resumed_at(0), nics.resumed_at(1)), (5, 0));
        assert_eq!(nics.counts()[0].pauses, 1);
    }

    #[test]
    fn a_device_that_pauses_takes_what_was_on_its_way() {
        let nics = nics(16, 0, true);
        assert_eq!(nics.room((1, 0)), 16);
        nics.arrive((0, 0), 0, frame(45), 0);
        assert!(nics.pauses(0));
        assert_eq!(nics.room((1, 0)), 0);
        assert_eq!(taken(&nics, (0, 0), 0), [(0, 45)]);
        assert!(!nics.pauses(0));
        assert_eq!(nics.counts()[0].queues[0].dropped, 0);
    }

    #[test]
    fn a_thread_that_sleeps_is_woken_once() {
        let nics = nics(1_000, 0, false);
        let is_woken = |thread| rustix::io::read(nics.wake_of(thread), &mut [0; 8]).is_ok();
        nics.arrive((0, 1), 0, frame(1), 0);
        assert!(!is_woken(1));
        taken(&nics, (0, 1), 0);
        nics.sleeps(1);
        nics.arrive((0, 1), 0, frame(1), 0);
        nics.arrive((0, 1), 0, frame(1), 0);
        assert!(is_woken(1) && !is_woken(1) && !is_woken(0));
    }
}
