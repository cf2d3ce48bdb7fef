//! Finds times in which a host's traffic stood still. It reads counters that workers keep anyway, ten
//! times a second, so an operation costs no more for it.

use std::sync::Arc;

use wirecost_linux::thread::SchedStat;
use wirecost_model::clock::{MILLISECOND, Nanos, SECOND};
use wirecost_model::measure::Quiet;
use wirecost_program::record::WorkerCounters;

use super::Schedule;

/// Counters are read this often.
const SLICE: Nanos = 100 * MILLISECOND;
/// A look this late is of a process that was stopped, or of a thread that got no CPU.
const LATE: Nanos = 5 * SLICE;
/// Shorter times are not reported.
const SHORTEST: Nanos = SECOND;

/// What has been found in a phase.
#[derive(Debug, Default)]
pub(super) struct QuietTimes {
    workers: Vec<Arc<WorkerCounters>>,
    /// Progress of each worker when it was last read.
    seen: Vec<u64>,
    /// The worker that was last seen to move. It is likely to move again, and then no other need be
    /// read.
    mover: usize,
    /// When the window begins; the beginning of the phase where it has no ramp.
    window: Nanos,
    looked: Nanos,
    /// When something moved last, as far as is known.
    moved: Nanos,
    /// Since when nothing has moved that should have.
    since: Nanos,
    /// How long the thread that looks had waited for a CPU at its last look.
    delay: Option<Nanos>,
    found: Vec<Quiet>,
    longest_in_ramp: Nanos,
}

impl QuietTimes {
    pub(super) fn new(workers: Vec<Arc<WorkerCounters>>, schedule: &Schedule) -> Self {
        Self {
            seen: vec![0; workers.len()],
            workers,
            window: schedule.window.map_or(schedule.start, |(from, _)| from),
            looked: schedule.start,
            moved: schedule.start,
            since: schedule.start,
            ..Self::default()
        }
    }

    /// Reads the counters if it is time to. Returns when to read them next.
    pub(super) fn look(&mut self, now: Nanos, delay: &SchedStat) -> Nanos {
        let next = self.looked.saturating_add(SLICE);
        if now < next {
            return next;
        }
        self.read(now, delay.now().map(|scheduled| scheduled.waited));
        now + SLICE
    }

    /// The last look, at the end of the phase.
    pub(super) fn finish(&mut self, now: Nanos, delay: &SchedStat) {
        if now > self.looked {
            self.read(now, delay.now().map(|scheduled| scheduled.waited));
            self.end(now, now);
        }
    }

    /// Times of a second and more, and the longest before the window.
    pub(super) fn into_parts(self) -> (Vec<Quiet>, Nanos) {
        (self.found, self.longest_in_ramp)
    }

    fn read(&mut self, now: Nanos, delay: Option<Nanos>) {
        let moved = self.moved();
        let late = now.saturating_sub(self.looked) >= LATE;
        let stopped = late && self.was_stopped(now, delay);
        let due = self.take_due();
        if let Some(due) = due.filter(|due| *due <= self.looked) {
            // Something was due while strands rested and nothing moved.
            self.since = self.since.min(due);
        }
        if stopped && (due.is_some() || !self.has_rested()) {
            // What moved did so just before or just after. If strands rested when the process was
            // stopped, nothing is missing until the first of them was to go on.
            if let Some(due) = due.filter(|due| *due > self.looked) {
                self.end(self.looked, due);
            }
            self.end(now, now);
            self.moved = now;
        } else if moved && late {
            // Some time since the last look, nobody knows when.
            self.end(self.looked, now);
            // If the process was stopped, strands may tell only later what was due meanwhile.
            self.moved = if stopped { self.looked } else { now };
        } else if moved {
            self.end(now, now);
            self.moved = now;
        } else if !self.is_waiting() {
            self.end(self.looked, now);
        }
        self.looked = now;
        self.delay = delay;
    }

    /// Since when something has been due that has begun, much later, since the last look; not before
    /// anything moved last.
    fn take_due(&self) -> Option<Nanos> {
        let due = self.workers.iter().filter_map(|worker| worker.late_since.take()).min()?;
        Some(due.max(self.moved))
    }

    /// Whether any byte has moved, or any operation completed, since the last look.
    fn moved(&mut self) -> bool {
        if let Some(worker) = self.workers.get(self.mover) {
            let progress = worker.progress();
            if std::mem::replace(&mut self.seen[self.mover], progress) != progress {
                return true;
            }
        }
        let mut mover = None;
        for (number, (worker, seen)) in self.workers.iter().zip(&mut self.seen).enumerate() {
            let progress = worker.progress();
            if std::mem::replace(seen, progress) != progress {
                mover.get_or_insert(number);
            }
        }
        self.mover = mover.unwrap_or(self.mover);
        mover.is_some()
    }

    /// Whether a strand has an operation under way, and none thinks or is paced.
    fn is_waiting(&self) -> bool {
        let resting = self.workers.iter().any(|worker| worker.resting.get() > 0);
        !resting && self.workers.iter().any(|worker| worker.working.get() > 0)
    }

    /// Whether the whole process has stood still since the last look (SIGSTOP, a virtual machine that
    /// was halted): then this thread was late though it did not wait for a CPU.
    fn was_stopped(&self, now: Nanos, delay: Option<Nanos>) -> bool {
        let late = now.saturating_sub(self.looked);
        let (Some(before), Some(after)) = (self.delay, delay) else { return false };
        after.saturating_sub(before) < late / 2
    }

    /// Whether any strand has ever rested. Which ones did at an instant that is past is not known.
    fn has_rested(&self) -> bool {
        self.workers.iter().any(|worker| worker.resting.was_raised())
    }

    /// Ends a quiet time at `end`; another may begin at `next`.
    fn end(&mut self, end: Nanos, next: Nanos) {
        let (from, to) = (self.since, end);
        if from < self.window {
            let in_ramp = to.min(self.window).saturating_sub(from);
            self.longest_in_ramp = self.longest_in_ramp.max(in_ramp);
        }
        if to.saturating_sub(from) >= SHORTEST {
            self.found.push(Quiet { from, to });
        }
        self.since = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A host of these workers, each with one strand that has an operation under way.
    fn host(workers: usize) -> (Vec<Arc<WorkerCounters>>, QuietTimes) {
        let worker = || {
            let counters = WorkerCounters::new(1, Vec::new());
            counters.working.raise(1);
            Arc::new(counters)
        };
        let workers: Vec<_> = (0..workers).map(|_| worker()).collect();
        let window = Some((2 * SECOND, 12 * SECOND));
        let schedule = Schedule { phase: 0, start: SECOND, window, unobserved: vec![] };
        let times = QuietTimes::new(workers.clone(), &schedule);
        (workers, times)
    }

    /// Looks at every slice from one instant to another (in tenths of a second), after something has
    /// been done.
    fn pass(times: &mut QuietTimes, tenths: std::ops::Range<u64>, mut before: impl FnMut()) {
        for slice in tenths {
            before();
            times.read(slice * SLICE, Some(0));
        }
    }

    fn quiet(from: u64, to: u64) -> Quiet {
        Quiet { from: from * SLICE, to: to * SLICE }
    }

    #[test]
    fn a_time_without_traffic_lasts_from_the_last_byte_to_the_next() {
        let (workers, mut times) = host(3);
        pass(&mut times, 11..40, || workers[2].rows[0].done.add(1));
        pass(&mut times, 40..70, || {});
        pass(&mut times, 70..80, || workers[0].rows[0].done.add(1));
        // One that is shorter than a second.
        pass(&mut times, 80..88, || {});
        pass(&mut times, 88..90, || workers[1].rows[0].done.add(1));
        times.end(90 * SLICE, 90 * SLICE);
        assert_eq!(times.into_parts(), (vec![quiet(39, 70)], SLICE));
    }

    /// Workers that moved while only another was read are not taken to have moved later.
    #[test]
    fn the_last_progress_of_many_workers_is_seen_at_once() {
        let (workers, mut times) = host(50);
        pass(&mut times, 11..40, || workers.iter().for_each(|worker| worker.rows[0].done.add(1)));
        pass(&mut times, 40..60, || {});
        pass(&mut times, 60..61, || workers[7].rows[0].done.add(1));
        assert_eq!(times.into_parts().0, [quiet(40, 60)]);
    }

    #[test]
    fn strands_that_think_or_are_paced_or_have_ended_are_not_quiet() {
        let (workers, mut times) = host(2);
        workers[1].working.lower(1);
        workers[1].resting.raise(1);
        pass(&mut times, 11..40, || {});
        workers[1].resting.lower(1);
        workers[0].working.lower(1);
        pass(&mut times, 40..70, || {});
        // One strand, and nobody else, has something to do.
        workers[0].working.raise(1);
        pass(&mut times, 70..90, || {});
        times.end(90 * SLICE, 90 * SLICE);
        assert_eq!(times.into_parts().0, [quiet(69, 90)]);
    }

    #[test]
    fn a_process_that_was_stopped_moved_nothing() {
        let (workers, mut times) = host(1);
        pass(&mut times, 11..40, || workers[0].rows[0].done.add(1));
        workers[0].rows[0].done.add(1);
        times.read(70 * SLICE, Some(SLICE));
        pass(&mut times, 71..80, || workers[0].rows[0].done.add(1));
        // Here only the thread that looks had no CPU, and it says nothing of the others.
        times.read(110 * SLICE, Some(31 * SLICE));
        assert_eq!(times.into_parts().0, [quiet(39, 70)]);
    }

    /// A host whose strand is paced, and has begun something until 4 s.
    fn paced() -> (Arc<WorkerCounters>, QuietTimes) {
        let (workers, mut times) = host(1);
        workers[0].working.lower(1);
        workers[0].resting.raise(1);
        pass(&mut times, 11..41, || workers[0].rows[0].done.add(1));
        (workers[0].clone(), times)
    }

    /// The strand was to go on at 4.5 s. It tells so before or after the first look at it.
    #[test]
    fn a_process_that_was_stopped_began_nothing_that_was_due() {
        for told_at_once in [true, false] {
            let (worker, mut times) = paced();
            let tell = || {
                worker.late_since.note(45 * SLICE);
                worker.rows[0].done.add(1);
            };
            if told_at_once {
                tell();
            }
            times.read(70 * SLICE, Some(0));
            if !told_at_once {
                tell();
            }
            pass(&mut times, 71..80, || worker.rows[0].done.add(1));
            let end = if told_at_once { 70 } else { 71 };
            assert_eq!(times.into_parts().0, [quiet(45, end)]);
        }
    }

    #[test]
    fn a_process_that_was_stopped_while_nothing_was_due_is_not_quiet() {
        let (worker, mut times) = paced();
        times.read(70 * SLICE, Some(0));
        pass(&mut times, 71..80, || worker.rows[0].done.add(1));
        assert!(times.into_parts().0.is_empty());
    }

    /// The thread that looks has a CPU, the worker has none.
    #[test]
    fn a_start_that_came_late_was_due_all_the_time() {
        let (worker, mut times) = paced();
        pass(&mut times, 41..65, || {});
        worker.late_since.note(45 * SLICE);
        pass(&mut times, 65..80, || worker.rows[0].done.add(1));
        assert_eq!(times.into_parts().0, [quiet(45, 65)]);
    }

    /// One that has fallen behind since the beginning, and moves all the time.
    #[test]
    fn a_strand_that_is_behind_is_not_quiet() {
        let (worker, mut times) = paced();
        pass(&mut times, 41..80, || {
            worker.late_since.note(11 * SLICE);
            worker.rows[0].done.add(1);
        });
        assert!(times.into_parts().0.is_empty());
    }

    #[test]
    fn quiet_times_of_the_ramp_are_of_any_length() {
        let (workers, mut times) = host(1);
        pass(&mut times, 11..14, || workers[0].rows[0].done.add(1));
        pass(&mut times, 14..17, || {});
        pass(&mut times, 17..18, || workers[0].rows[0].done.add(1));
        // Beyond its end it is part of the window.
        pass(&mut times, 18..40, || {});
        pass(&mut times, 40..41, || workers[0].rows[0].done.add(1));
        assert_eq!(times.into_parts(), (vec![quiet(17, 40)], 4 * SLICE));
    }
}
