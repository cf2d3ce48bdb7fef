//! What scheduling.h counts: waits for CPUs, of watched threads and of all other tasks.

use std::collections::BTreeMap;

use wirecost_model::histogram::Histogram;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use super::Tracker;
use crate::bpf::BpfError;

/// Slots of [`Waits::histogram`].
const SLOTS: usize = 256;
/// Of a power of two.
const PARTS: u64 = 8;

/// Indices of `wakeups`, as scheduling.h numbers them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waker {
    Task = 0,
    Softirq = 1,
    Irq = 2,
    Idle = 3,
}

/// How many wakers are told apart.
const WAKERS: usize = 4;

/// What a watched thread did when the window ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ThreadState {
    Unseen,
    Runs,
    Preempted,
    Sleeps,
}

/// `struct waits` of scheduling.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Waits {
    pub(crate) count: u64,
    pub(crate) ns: u64,
    pub(crate) max: u64,
    histogram: [u64; SLOTS],
}

impl Default for Waits {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

impl Waits {
    /// Adds those of another CPU or thread.
    pub(crate) fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.ns += other.ns;
        self.max = self.max.max(other.max);
        for (sum, count) in self.histogram.iter_mut().zip(other.histogram) {
            *sum += count;
        }
    }

    /// What has come since an earlier state, of which the longest was forgotten.
    fn since(&self, before: &Self) -> Self {
        let mut waits = *self;
        waits.count = self.count.saturating_sub(before.count);
        waits.ns = self.ns.saturating_sub(before.ns);
        for (count, before) in waits.histogram.iter_mut().zip(before.histogram) {
            *count = count.saturating_sub(before);
        }
        waits
    }

    /// Each slot by its middle, the last by the longest wait.
    pub(crate) fn histogram(&self) -> Histogram {
        let mut histogram = Histogram::new();
        let Some(last) = self.histogram.iter().rposition(|&count| count > 0) else {
            return histogram;
        };
        for (slot, &count) in self.histogram.iter().enumerate().take(last) {
            histogram.record_many(middle(slot as u64), count);
        }
        // Of those in the last slot one is the longest; the others are not longer.
        histogram.record_many(middle(last as u64).min(self.max), self.histogram[last] - 1);
        histogram.record(self.max);
        histogram
    }
}

/// Nanoseconds in the middle of a slot.
fn middle(slot: u64) -> u64 {
    if slot < PARTS {
        return slot;
    }
    let shift = slot / PARTS - 1;
    let start = (PARTS + slot % PARTS) << shift;
    start + (1 << shift) / 2
}

/// `struct thread` of scheduling.h.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Thread {
    /// For a CPU.
    pub(crate) queue: Waits,
    /// From wake-ups until it ran.
    pub(crate) wake: Waits,
    /// By [`Waker`].
    pub(crate) wakeups: [u64; WAKERS],
    pub(crate) preemptions: u64,
    /// Nanoseconds.
    pub(crate) preempted: u64,
    pub(crate) slept: u64,
    pub(crate) migrations: u64,
    /// Waits that began before the window, and what of them is in it.
    pub(crate) early: u64,
    pub(crate) early_ns: u64,
    /// Waits on a CPU that ran no other task.
    pub(crate) alone: u64,
    pub(crate) alone_ns: u64,
    pub(crate) unlisted_ns: u64,
    delay: u64,
    /// On the kernel's monotonic clock.
    pub(crate) left: u64,
    pub(crate) waking: u64,
    slept_so_far: u64,
    state: u32,
    came_from: u32,
    /// The task that it waits for, or 0.
    pub(crate) holder: u32,
    pub(crate) cpu: u32,
    delay_known: u32,
    pub(crate) ended: u32,
}

impl Default for Thread {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

impl Thread {
    pub(crate) fn state(&self) -> ThreadState {
        match self.state {
            1 => ThreadState::Runs,
            2 => ThreadState::Preempted,
            3 => ThreadState::Sleeps,
            _ => ThreadState::Unseen,
        }
    }
}

/// Key of the map `holders`.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub(crate) struct Holding {
    pub(crate) waiting: u32,
    pub(crate) holder: u32,
}

/// `struct held` of scheduling.h.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Held {
    pub(crate) preemptions: u64,
    pub(crate) preempted: u64,
    pub(crate) waits: u64,
    pub(crate) waited: u64,
    pub(crate) process: u32,
    pub(crate) kernel: u32,
    comm: [u8; 16],
    process_comm: [u8; 16],
}

impl Held {
    /// Of the task.
    pub(crate) fn name(&self) -> String {
        super::c_text(&self.comm)
    }

    /// Of its process.
    pub(crate) fn process_name(&self) -> String {
        super::c_text(&self.process_comm)
    }
}

/// `struct queue` of scheduling.h.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Queue {
    pub(crate) began: u64,
    arrived: u64,
    delay: u64,
    slept_before: u64,
    task: u32,
    watched: u32,
    known: u32,
    unread: u32,
    stopped: u32,
    pad: u32,
    pub(crate) others: Waits,
    /// By [`Waker`].
    pub(crate) wakeups: [u64; WAKERS],
    pub(crate) preemptions: u64,
    pub(crate) slept: u64,
    pub(crate) migrations: u64,
    pub(crate) early: u64,
    pub(crate) early_ns: u64,
    /// Tasks that left the CPU and had not been seen to come.
    pub(crate) unmatched: u64,
}

impl Default for Queue {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

impl Queue {
    fn since(&self, before: &Self) -> Self {
        let mut queue = *self;
        queue.others = self.others.since(&before.others);
        for (count, before) in queue.wakeups.iter_mut().zip(before.wakeups) {
            *count = count.saturating_sub(before);
        }
        queue.preemptions = self.preemptions.saturating_sub(before.preemptions);
        queue.slept = self.slept.saturating_sub(before.slept);
        queue.migrations = self.migrations.saturating_sub(before.migrations);
        queue.early = self.early.saturating_sub(before.early);
        queue.early_ns = self.early_ns.saturating_sub(before.early_ns);
        queue.unmatched = self.unmatched.saturating_sub(before.unmatched);
        queue
    }
}

impl Tracker {
    /// Whether waits for CPUs are followed.
    ///
    /// # Errors
    /// Why they are not, though somebody asked.
    pub(crate) fn follows_scheduling(&self) -> Result<bool, &str> {
        self.scheduling.as_ref().copied().map_err(String::as_str)
    }

    /// Watches these threads, by the kernel's numbers, and no others.
    ///
    /// # Errors
    /// Where the kernel does not take the map.
    pub(crate) fn watch_threads(&self, threads: &[u32]) -> Result<(), BpfError> {
        self.loaded.clear::<Thread>("threads")?;
        self.loaded.clear::<Held>("holders")?;
        threads.iter().try_for_each(|thread| self.loaded.set("threads", thread, &Thread::default()))
    }

    /// The watched threads in the window.
    ///
    /// # Errors
    /// Where the kernel does not give the map.
    pub(crate) fn threads(&self) -> Result<BTreeMap<u32, Thread>, BpfError> {
        let all = self.loaded.values::<u32, Thread>("threads")?;
        Ok(all.into_iter().filter_map(|(id, one)| Some((id, *one.first()?))).collect())
    }

    /// Whom watched threads waited for in the window.
    ///
    /// # Errors
    /// Where the kernel does not give the map.
    pub(crate) fn holders(&self) -> Result<BTreeMap<Holding, Held>, BpfError> {
        let all = self.loaded.values::<Holding, Held>("holders")?;
        Ok(all.into_iter().filter_map(|(of, one)| Some((of, *one.first()?))).collect())
    }

    /// What each CPU counted of other tasks in the window.
    ///
    /// # Errors
    /// Where the kernel does not give the map.
    pub(crate) fn other_tasks(&self) -> Result<BTreeMap<u32, Queue>, BpfError> {
        let since = |(cpu, after): (u32, Queue)| {
            let before = self.queues_before.get(&cpu)?;
            Some((cpu, after.since(before)))
        };
        Ok(self.queues()?.into_iter().filter_map(since).collect())
    }

    pub(super) fn queues(&self) -> Result<BTreeMap<u32, Queue>, BpfError> {
        Ok(self.of_online(self.loaded.percpu("queues", 0)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As scheduling.h has it.
    fn slot(ns: u64) -> usize {
        let Some(power) = ns.checked_ilog2().filter(|power| *power >= 3) else {
            return ns as usize;
        };
        (((power - 2) * 8) as usize + ((ns >> (power - 3)) & 7) as usize).min(SLOTS - 1)
    }

    #[test]
    fn the_middle_of_a_slot_is_in_it_and_near_all_of_its_values() {
        for ns in (0..70_000).chain((16..33).flat_map(|power| {
            let start = 1u64 << power;
            [start, start + start / 3, 2 * start - 1]
        })) {
            let middle = middle(slot(ns) as u64);
            assert_eq!(slot(middle), slot(ns), "{ns}");
            assert!(middle.abs_diff(ns) as f64 <= ns as f64 / 15.0, "{ns}: {middle}");
        }
        let slots: Vec<usize> = (0..100_000).map(slot).collect();
        assert!(slots.windows(2).all(|pair| pair[1] == pair[0] || pair[1] == pair[0] + 1));
    }

    #[test]
    fn a_histogram_has_every_wait_and_the_longest_exactly() {
        let mut waits = Waits::default();
        for ns in [0, 5, 900, 901, 70_000, 123_456] {
            waits.count += 1;
            waits.ns += ns;
            waits.max = waits.max.max(ns);
            waits.histogram[slot(ns)] += 1;
        }
        let histogram = waits.histogram();
        assert_eq!(histogram.count(), 6);
        // Within the precision of the type.
        assert!(histogram.max().unwrap().abs_diff(123_456) < 1_000);
        assert!(histogram.quantile(0.5).unwrap().abs_diff(900) < 60);
        assert_eq!(Waits::default().histogram().count(), 0);
    }
}
