//! Snapshots all counters of a host at the instants that the plan says, from a thread of its own
//! that runs before the workers do. Where it gets no CPU in time, a worker takes the snapshot (ADR 0094).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use wirecost_linux::clock::{Monotonic, ThreadClock};
use wirecost_linux::packet_counters::PacketReader;
use wirecost_linux::thread::SchedStat;
use wirecost_linux::{proc_stat, process, thread};
use wirecost_model::clock::{Clock, MICROSECOND, MILLISECOND, Nanos, seconds};
use wirecost_model::measure::{Edge, Quiet, Snapshot};
use wirecost_model::packets::PacketCounters;
use wirecost_model::plan::Extent;
use wirecost_program::record::{WorkerCounters, sum};

use super::Schedule;
use super::quiet::QuietTimes;
use crate::worker::{ClockReading, Clocks, Event, EventSender};

/// What a snapshot holds: of each worker, its counters and the clock of its CPU time.
pub(super) struct Workers {
    pub(super) counters: Vec<Arc<WorkerCounters>>,
    pub(super) clocks: Vec<Option<ThreadClock>>,
    /// Flowops that the counters have.
    pub(super) rows: usize,
    /// Where datagrams move.
    pub(super) packets: Option<SharedReader>,
    /// Read when nothing moved: when a phase is ordered, datagrams of a host that has heard of it earlier may have come.
    pub(super) before: Option<PacketCounters>,
}

/// Intervals of a phase with counters of packets: those of each take as much memory as a hundred numbers.
const PACKET_INTERVALS: u64 = 10_000;

/// What reads the kernel's counters of packets, for the thread and for whoever ends the phase.
pub(super) type SharedReader = Arc<Mutex<PacketReader>>;

/// `None` where the kernel does not tell.
pub(super) fn packets(reader: &SharedReader) -> Option<PacketCounters> {
    reader.lock().ok()?.read().ok()
}

/// How late the snapshot of an edge of the window may be before a worker takes it. The thread is earlier where it has a
/// real-time priority, also on a saturated host.
const GRACE: Nanos = 500 * MICROSECOND;

/// How much later than the rest the counters of packets may be read. They are missing otherwise: they would be of
/// another window.
const PACKETS_WITHIN: Nanos = 5 * MILLISECOND;

/// Snapshots that are still to be taken. The thread takes each when it is due. A worker does when an edge of the window is
/// overdue: it has the CPU, and may be what keeps the thread from it. Counters do not change while no worker has a CPU.
/// Within the window a worker takes none, because what that costs would be counted as cost of the traffic.
pub(crate) struct DueSnapshots {
    workers: Workers,
    outlet: EventSender,
    /// When workers take those that are due; [`Nanos::MAX`] after the window.
    overdue: AtomicU64,
    remaining: Mutex<Remaining>,
}

/// Locked for moments only: whoever takes a snapshot may lose its CPU meanwhile.
struct Remaining {
    start: Nanos,
    instants: Box<dyn Iterator<Item = (Edge, Nanos)> + Send>,
    next: Option<(Edge, Nanos)>,
    window: Option<(Nanos, Nanos)>,
    /// The next edge of the window; [`Nanos::MAX`] after the last, and where there is none.
    edge: Nanos,
    /// Snapshots before the next.
    taken: u64,
    /// Of those, intervals.
    intervals: u64,
    most_intervals: u64,
    /// Taken by workers, and without counters of packets: what reads them is open in the descriptor table of the
    /// thread. It adds them if it has the CPU soon.
    without_packets: Vec<Snapshot>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Taker {
    Thread,
    Worker,
}

impl std::fmt::Debug for DueSnapshots {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DueSnapshots").field("overdue", &self.overdue).finish_non_exhaustive()
    }
}

impl DueSnapshots {
    fn new(workers: Workers, schedule: Schedule, interval: Nanos, outlet: EventSender) -> Self {
        let Schedule { start, window, .. } = schedule;
        // Where the end is known, how many readings there are has been checked with the order.
        let most_intervals = match window {
            Some(_) => u64::MAX,
            None => Extent::readings(workers.rows),
        };
        let mut instants = Box::new(instants(schedule, interval.max(1)));
        let next = instants.next();
        let remaining = Remaining {
            start,
            instants,
            next,
            window,
            edge: window.map_or(Nanos::MAX, |(from, _)| from),
            taken: 0,
            intervals: 0,
            most_intervals,
            without_packets: Vec::new(),
        };
        let overdue = AtomicU64::new(remaining.overdue());
        Self { workers, outlet, overdue, remaining: Mutex::new(remaining) }
    }

    /// For a worker, before it goes on: takes the next snapshot if an edge of the window is overdue. Where others come
    /// before the edge, the worker calls again.
    #[inline]
    pub(crate) fn take_overdue(&self, now: Nanos) {
        let overdue = self.overdue.load(Ordering::Relaxed);
        if now >= overdue {
            self.take_in_place_of_thread(now, overdue);
        }
    }

    #[cold]
    fn take_in_place_of_thread(&self, now: Nanos, overdue: Nanos) {
        // One worker takes it. Should that lose its CPU, another one does.
        let next = now.saturating_add(GRACE);
        let ordering = Ordering::Relaxed;
        if self.overdue.compare_exchange(overdue, next, ordering, ordering).is_ok() {
            self.take(now, Taker::Worker);
        }
    }

    /// Takes the next snapshot if it is due, unless somebody else is faster. Returns when the one after it is due;
    /// `None` after the last.
    fn take(&self, now: Nanos, taker: Taker) -> Option<Nanos> {
        let mut remaining = self.lock(taker)?;
        let (edge, due) = remaining.next?;
        if now < due {
            return Some(due);
        }
        if edge == Edge::Interval && remaining.intervals == remaining.most_intervals {
            self.advance(&mut remaining, edge, None);
            let most = remaining.most_intervals;
            drop(remaining);
            self.outlet.send(Event::Endless(most));
            return None;
        }
        let is_first = due <= remaining.start;
        let has_packets = self.workers.packets.is_some()
            && !is_first
            && edge != Edge::Unobserved
            && (edge != Edge::Interval || remaining.intervals < PACKET_INTERVALS);
        let number = remaining.taken;
        drop(remaining);

        // Nothing has moved before the beginning, however late it is looked at: what this snapshot
        // says is of that instant, and not of one that may be after the end.
        let mut snapshot = Box::new(if is_first {
            let counters = sum([], self.workers.rows);
            Snapshot {
                edge,
                due,
                at: due,
                counters,
                cpu: None,
                packets: self.workers.before.clone(),
            }
        } else {
            snapshot(&self.workers, edge, due)
        });
        if has_packets && taker == Taker::Thread {
            snapshot.packets = self.packets();
        }

        let mut remaining = self.lock(taker)?;
        if remaining.taken != number {
            return remaining.next.map(|(_, due)| due);
        }
        let next = remaining.instants.next();
        self.advance(&mut remaining, edge, next);
        let complete = if has_packets && taker == Taker::Worker {
            remaining.without_packets.push(*snapshot);
            None
        } else {
            Some(snapshot)
        };
        drop(remaining);
        if let Some(snapshot) = complete {
            self.outlet.send(Event::Snapshot(snapshot));
        }
        if let Some(clocks) = clocks(&self.workers, edge) {
            self.outlet.send(Event::Clocks(clocks));
        }
        next.map(|(_, due)| due)
    }

    /// A worker waits for nobody: one of thousands of threads that lost its CPU here gets it back in seconds.
    fn lock(&self, taker: Taker) -> Option<MutexGuard<'_, Remaining>> {
        match taker {
            Taker::Thread => self.remaining.lock().ok(),
            Taker::Worker => self.remaining.try_lock().ok(),
        }
    }

    fn advance(&self, remaining: &mut Remaining, taken: Edge, next: Option<(Edge, Nanos)>) {
        match taken {
            Edge::WindowStart => {
                remaining.edge = remaining.window.map_or(Nanos::MAX, |(_, to)| to);
            }
            Edge::WindowEnd => remaining.edge = Nanos::MAX,
            Edge::Interval => remaining.intervals += 1,
            _ => {}
        }
        remaining.taken += 1;
        remaining.next = next;
        self.overdue.store(remaining.overdue(), Ordering::Relaxed);
    }

    /// For the thread: completes what workers have taken.
    fn add_packets(&self) {
        let taken = |remaining: &mut Remaining| std::mem::take(&mut remaining.without_packets);
        let Ok(taken) = self.remaining.lock().map(|mut remaining| taken(&mut remaining)) else {
            return;
        };
        for mut snapshot in taken {
            let packets = self.packets();
            snapshot.packets = packets.filter(|_| Monotonic.now() <= snapshot.at + PACKETS_WITHIN);
            self.outlet.send(Event::Snapshot(Box::new(snapshot)));
        }
    }

    fn packets(&self) -> Option<PacketCounters> {
        self.workers.packets.as_ref().and_then(packets)
    }
}

impl Remaining {
    fn overdue(&self) -> Nanos {
        self.edge.saturating_add(GRACE)
    }
}

/// The running thread, and the snapshots that have been taken.
pub(super) struct Snapshots {
    due: Arc<DueSnapshots>,
    snapshots: Vec<Snapshot>,
    clocks: Vec<Clocks>,
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<QuietTimes>>,
    quiet: QuietTimes,
    /// Resident bytes of the process at the edges of the window.
    memory: [Option<u64>; 2],
}

impl Snapshots {
    pub(super) fn start(
        workers: Workers,
        schedule: Schedule,
        interval: Nanos,
        outlet: EventSender,
    ) -> Self {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let quiet = QuietTimes::new(workers.counters.clone(), &schedule);
        let start = schedule.start;
        let due = Arc::new(DueSnapshots::new(workers, schedule, interval, outlet));
        let (of_thread, stopped) = (due.clone(), stop.clone());
        let thread = std::thread::Builder::new()
            .name("wirecost-snaps".to_owned())
            .spawn(move || run(&of_thread, start, &stopped, quiet))
            .ok();
        let quiet = QuietTimes::default();
        let (snapshots, clocks, memory) = (Vec::new(), Vec::new(), [None; 2]);
        Self { due, snapshots, clocks, stop, thread, quiet, memory }
    }

    /// For the workers.
    pub(super) fn due(&self) -> Arc<DueSnapshots> {
        self.due.clone()
    }

    /// Takes a snapshot at once, on the caller's thread.
    pub(super) fn snapshot_at(&mut self, edge: Edge) {
        let at = Monotonic.now();
        self.read_memory(edge);
        let mut snapshot = snapshot(&self.due.workers, edge, at);
        snapshot.packets = self.due.packets();
        self.snapshots.push(snapshot);
        self.clocks.extend(clocks(&self.due.workers, edge));
    }

    /// Takes the snapshot of the window's end if the thread got no CPU between that instant and the end of the phase. The
    /// window is longer than planned then, and includes time without load: the analysis warns, or refuses the result.
    pub(super) fn late_window_end(&mut self, due: Nanos) {
        let taken = self.snapshots.iter().any(|snapshot| snapshot.edge == Edge::WindowEnd);
        if taken || Monotonic.now() < due {
            return;
        }
        self.snapshot_at(Edge::WindowEnd);
        if let Some(last) = self.snapshots.last_mut() {
            last.due = due;
        }
    }

    /// Keeps a snapshot that the thread has taken.
    pub(super) fn keep(&mut self, snapshot: Box<Snapshot>) -> Box<Snapshot> {
        self.read_memory(snapshot.edge);
        self.snapshots.push((*snapshot).clone());
        snapshot
    }

    fn read_memory(&mut self, edge: Edge) {
        let of_window = [Edge::WindowStart, Edge::WindowEnd];
        if let Some(place) = of_window.iter().position(|of| *of == edge) {
            self.memory[place] = process::resident_memory();
        }
    }

    /// Resident bytes of the process at the edges of the window, where both are known.
    pub(super) fn memory(&self) -> Option<(u64, u64)> {
        let [start, end] = self.memory;
        start.zip(end)
    }

    pub(super) fn keep_clocks(&mut self, clocks: Clocks) {
        self.clocks.push(clocks);
    }

    /// How busy a worker's thread was between the edges of the window; `None` where the clocks were
    /// read so late that they say of less than half of it.
    pub(super) fn busy(&self, worker: usize) -> Option<f64> {
        let edge = |edge| {
            self.snapshots.iter().find(|snapshot| snapshot.edge == edge).map(|snapshot| snapshot.at)
        };
        let reading = |edge| {
            let clocks = self.clocks.iter().find(|clocks| clocks.edge == edge)?;
            *clocks.of_workers.get(worker)?
        };
        let window = edge(Edge::WindowEnd)?.saturating_sub(edge(Edge::WindowStart)?);
        let (start, end) = (reading(Edge::WindowStart)?, reading(Edge::WindowEnd)?);
        busy(start, end, window)
    }

    /// All snapshots, in order of time.
    pub(super) fn finish(&mut self) -> Vec<Snapshot> {
        let mut snapshots = std::mem::take(&mut self.snapshots);
        snapshots.sort_by_key(|snapshot| snapshot.at);
        snapshots
    }

    /// Takes no more snapshots by itself.
    pub(super) fn end_thread(&mut self) {
        if let Ok(mut stop) = self.stop.0.lock() {
            *stop = true;
        }
        self.stop.1.notify_all();
        if let Some(Ok(quiet)) = self.thread.take().map(JoinHandle::join) {
            self.quiet = quiet;
        }
    }

    /// Times without traffic, and the longest before the window; once the thread has ended.
    pub(super) fn quiet(&mut self) -> (Vec<Quiet>, Nanos) {
        std::mem::take(&mut self.quiet).into_parts()
    }
}

impl Drop for Snapshots {
    fn drop(&mut self) {
        self.end_thread();
    }
}

fn run(
    due: &DueSnapshots,
    start: Nanos,
    stop: &(Mutex<bool>, Condvar),
    mut quiet: QuietTimes,
) -> QuietTimes {
    if !thread::set_realtime(thread::RealtimePriority::Snapshot) {
        thread::set_short_slice();
    }
    thread::minimize_timer_slack();
    let delay = SchedStat::own();
    let mut next = Some(start);
    while let Some(due_next) = next {
        // The phase may be over before this thread has run at all.
        let come = wait_until(due_next, stop, (&mut quiet, &delay))
            || (due_next <= start && Monotonic.now() >= due_next);
        due.add_packets();
        if !come {
            return quiet;
        }
        next = due.take(Monotonic.now(), Taker::Thread);
    }
    // A time without traffic that began in the window is as long as it is.
    wait_until(Nanos::MAX, stop, (&mut quiet, &delay));
    due.add_packets();
    quiet
}

/// Waits for the instant, and looks for times without traffic meanwhile. Returns whether it came
/// before the end.
fn wait_until(
    due: Nanos,
    stop: &(Mutex<bool>, Condvar),
    (quiet, delay): (&mut QuietTimes, &SchedStat),
) -> bool {
    let Ok(mut stopped) = stop.0.lock() else {
        return false;
    };
    loop {
        let now = Monotonic.now();
        if *stopped {
            quiet.finish(now, delay);
            return false;
        }
        if now >= due {
            return true;
        }
        let next = due.min(quiet.look(now, delay));
        match stop.1.wait_timeout(stopped, Duration::from_nanos(next - now)) {
            Ok((guard, _)) => stopped = guard,
            Err(_) => return false,
        }
    }
}

/// Counters are read one after the other while workers go on: where this thread lost its CPU on the
/// way, they are not of one instant, and it looks again.
fn snapshot(workers: &Workers, edge: Edge, due: Nanos) -> Snapshot {
    let Workers { counters, rows, .. } = workers;
    let attempt = || {
        let at = Monotonic.now();
        let sum = sum(counters.iter().map(|counters| &**counters), *rows);
        (Monotonic.now() - at, at, sum)
    };
    let torn = |took: Nanos| took > 20 * MICROSECOND + counters.len() as u64 * MICROSECOND;
    let mut best = attempt();
    for _ in 0..3 {
        if !torn(best.0) {
            break;
        }
        let again = attempt();
        if again.0 < best.0 {
            best = again;
        }
    }
    let (_, at, counters) = best;
    let of_window = matches!(edge, Edge::WindowStart | Edge::WindowEnd);
    let cpu = of_window.then(|| proc_stat::cpu_snapshot().ok()).flatten();
    Snapshot { edge, due, at, counters, cpu, packets: None }
}

/// Reads the clocks of all workers, at an edge of the window. From here, and not by the workers: of
/// thousands of threads many would come to read their own only when the window is long over.
fn clocks(workers: &Workers, edge: Edge) -> Option<Clocks> {
    if !matches!(edge, Edge::WindowStart | Edge::WindowEnd) {
        return None;
    }
    let read = |clock: &Option<ThreadClock>| {
        let before = Monotonic.now();
        let cpu = (*clock)?.now()?;
        // The instant that makes the time between two edges the longer: a thread that this one lost
        // its CPU to in between was not busy for more than all the time.
        let at = if edge == Edge::WindowStart { before } else { Monotonic.now() };
        Some(ClockReading { at, cpu })
    };
    Some(Clocks { edge, of_workers: workers.clocks.iter().map(read).collect() })
}

fn busy(start: ClockReading, end: ClockReading, window: Nanos) -> Option<f64> {
    let between = end.at.checked_sub(start.at).filter(|&between| between > 0)?;
    if between < window / 2 {
        return None;
    }
    // CPU time is of another clock, which NTP does not slew.
    Some((seconds(end.cpu.saturating_sub(start.cpu)) / seconds(between)).min(1.0))
}

/// Parts of each time without observers, whose spread says how sure their mean is.
const UNOBSERVED_PARTS: u64 = 5;

/// When to take snapshots: the edges, every interval counted from the window's start, and the times
/// beside the window in which nothing observes.
fn instants(schedule: Schedule, interval: Nanos) -> impl Iterator<Item = (Edge, Nanos)> {
    let Schedule { start, window, unobserved, .. } = schedule;
    let parts = |&(begin, end): &(Nanos, Nanos)| {
        let length = end.saturating_sub(begin);
        (0..=UNOBSERVED_PARTS)
            .map(move |n| (Edge::Unobserved, begin + n * length / UNOBSERVED_PARTS))
    };
    let unobserved: Vec<(Edge, Nanos)> = unobserved.iter().flat_map(parts).collect();
    let (from, to) = window.unwrap_or((start, Nanos::MAX));
    let before = (from - start) / interval;
    let mut first = vec![(Edge::PhaseStart, start)];
    let ramp = (1..=before).rev().map(|n| (Edge::Interval, from - n * interval));
    first.extend(ramp.filter(|&(_, due)| due > start));
    first.extend(unobserved.iter().filter(|&&(_, due)| due < from));
    first.sort_by_key(|&(_, due)| due);
    first.push((Edge::WindowStart, from));
    let within = (1u64..)
        .map_while(move |n| from.checked_add(n.checked_mul(interval)?))
        .take_while(move |&due| due < to)
        .map(|due| (Edge::Interval, due));
    let last = window.map(|(_, to)| (Edge::WindowEnd, to));
    let after = unobserved.into_iter().filter(move |&(_, due)| due > to);
    first.into_iter().chain(within).chain(last).chain(after)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn intervals_are_counted_from_the_window() {
        let schedule =
            Schedule { phase: 0, start: 100, window: Some((130, 150)), unobserved: vec![] };
        let due: Vec<_> = instants(schedule, 8).collect();
        assert_eq!(
            due,
            [
                (Edge::PhaseStart, 100),
                (Edge::Interval, 106),
                (Edge::Interval, 114),
                (Edge::Interval, 122),
                (Edge::WindowStart, 130),
                (Edge::Interval, 138),
                (Edge::Interval, 146),
                (Edge::WindowEnd, 150),
            ]
        );
    }

    #[test]
    fn what_is_not_observed_is_cut_in_parts_beside_the_window() {
        let unobserved = vec![(110, 120), (160, 170)];
        let schedule = Schedule { phase: 0, start: 100, window: Some((130, 150)), unobserved };
        assert_eq!(schedule.end(), Some(170));
        let due: Vec<_> = instants(schedule, 50).collect();
        let mut expected = vec![(Edge::PhaseStart, 100)];
        expected.extend((110..=120).step_by(2).map(|due| (Edge::Unobserved, due)));
        expected.extend([(Edge::WindowStart, 130), (Edge::WindowEnd, 150)]);
        expected.extend((160..=170).step_by(2).map(|due| (Edge::Unobserved, due)));
        assert_eq!(due, expected);
    }

    /// Strands begin at the instant of the first snapshots, and may be done before these are made.
    #[test]
    fn what_moved_before_the_first_cuts_were_made_is_counted() {
        let counters = Arc::new(WorkerCounters::new(1, Vec::new()));
        counters.rows[0].done.add(7);
        let (outlet, events) = EventSender::new(Arc::new(|| {}));
        let start = Monotonic.now() - 1_000_000;
        let schedule = Schedule { phase: 0, start, window: None, unobserved: vec![] };
        let hour = 3_600_000_000_000;
        let workers = Workers {
            counters: vec![counters],
            clocks: vec![None],
            rows: 1,
            packets: None,
            before: None,
        };
        let mut snapshots = Snapshots::start(workers, schedule, hour, outlet);
        snapshots.snapshot_at(Edge::WindowEnd);
        snapshots.end_thread();
        for event in events.try_iter() {
            if let Event::Snapshot(snapshot) = event {
                snapshots.keep(snapshot);
            }
        }
        let snapshots: Vec<_> = snapshots
            .finish()
            .iter()
            .map(|snapshot| (snapshot.edge, snapshot.counters.flowops[0].done))
            .collect();
        assert_eq!(
            snapshots,
            [(Edge::PhaseStart, 0), (Edge::WindowStart, 0), (Edge::WindowEnd, 7)]
        );
    }

    /// A thread that gets no CPU from before the end of the window until the phase is over.
    #[test]
    fn the_end_of_a_window_that_the_thread_missed_is_late() {
        let (outlet, events) = EventSender::new(Arc::new(|| {}));
        let start = Monotonic.now();
        let (from, to) = (start, start + 50_000_000);
        let schedule = Schedule { phase: 0, start, window: Some((from, to)), unobserved: vec![] };
        let workers =
            Workers { counters: vec![], clocks: vec![], rows: 0, packets: None, before: None };
        let mut snapshots = Snapshots::start(workers, schedule, 3_600_000_000_000, outlet);
        let edge = |event| match event {
            Event::Snapshot(snapshot) => Some(snapshot.edge),
            _ => None,
        };
        while edge(events.recv().unwrap()) != Some(Edge::WindowStart) {}
        snapshots.late_window_end(Nanos::MAX);
        assert!(snapshots.snapshots.is_empty(), "the window has not ended");
        let stop = snapshots.stop.clone();
        let mut held = stop.0.lock().unwrap();
        let early = Monotonic.now() < to;
        std::thread::sleep(Duration::from_nanos(to + 1 - Monotonic.now().min(to)));
        *held = true;
        drop(held);
        snapshots.end_thread();
        assert!(!early || events.try_iter().filter_map(edge).all(|edge| edge != Edge::WindowEnd));
        for _ in 0..2 {
            snapshots.late_window_end(to);
        }
        let taken = snapshots.finish();
        assert_eq!(taken.len(), 1);
        assert_eq!((taken[0].edge, taken[0].due), (Edge::WindowEnd, to));
        assert!(taken[0].at > to);
    }

    /// What workers see an hour from now, when the thread has not come yet.
    #[test]
    fn a_worker_takes_the_edges_that_the_thread_is_late_for() {
        let (outlet, events) = EventSender::new(Arc::new(|| {}));
        let counters = Arc::new(WorkerCounters::new(1, Vec::new()));
        counters.rows[0].done.add(7);
        let start = Monotonic.now() + 3_600_000_000_000;
        let (from, to) = (start + 10 * GRACE, start + 30 * GRACE);
        let schedule = Schedule { phase: 0, start, window: Some((from, to)), unobserved: vec![] };
        let here = BTreeSet::from([Ipv4Addr::LOCALHOST.into()]);
        let packets = PacketReader::open(&here, &BTreeSet::new()).unwrap();
        let workers = Workers {
            counters: vec![counters],
            clocks: vec![None],
            rows: 1,
            packets: Some(Arc::new(Mutex::new(packets))),
            before: None,
        };
        let mut snapshots = Snapshots::start(workers, schedule, 15 * GRACE, outlet);
        let due = snapshots.due();
        let taken = || {
            let kind = |event| match event {
                Event::Snapshot(snapshot) => {
                    let done = snapshot.counters.flowops[0].done;
                    Some((snapshot.edge, snapshot.due, done))
                }
                Event::Clocks(_) => None,
                other => panic!("{other:?}"),
            };
            events.try_iter().filter_map(kind).collect::<Vec<_>>()
        };
        // The thread has its time, and all of it but for the edges.
        for now in [start, start + 5 * GRACE, from, from + GRACE - 1] {
            due.take_overdue(now);
        }
        assert_eq!(taken(), []);
        due.take_overdue(from + GRACE);
        assert_eq!(taken(), [(Edge::PhaseStart, start, 0)]);
        for now in [from + GRACE, from + GRACE, from + 16 * GRACE, to + GRACE - 1] {
            due.take_overdue(now);
        }
        for _ in 0..3 {
            due.take_overdue(to + GRACE);
        }
        // It is what can read counters of packets.
        assert_eq!(taken(), []);
        snapshots.end_thread();
        let expected = [
            (Edge::WindowStart, from, 7),
            (Edge::Interval, from + 15 * GRACE, 7),
            (Edge::WindowEnd, to, 7),
        ];
        assert_eq!(taken(), expected);
    }

    /// Whoever loses its CPU while it takes a snapshot keeps nobody else from it.
    #[test]
    fn one_of_all_who_take_a_snapshot_is_heard() {
        const EACH: u64 = 1_000;
        let (outlet, events) = EventSender::new(Arc::new(|| {}));
        let start = Monotonic.now() + 3_600_000_000_000;
        let end = start + 1_000_000 * GRACE;
        let schedule = Schedule { phase: 0, start, window: Some((start, end)), unobserved: vec![] };
        let workers =
            Workers { counters: vec![], clocks: vec![], rows: 0, packets: None, before: None };
        let due = DueSnapshots::new(workers, schedule, GRACE, outlet);
        std::thread::scope(|scope| {
            for taker in [Taker::Thread, Taker::Worker, Taker::Worker] {
                let due = &due;
                scope.spawn(move || {
                    for _ in 0..EACH {
                        due.take(end, taker);
                    }
                });
            }
        });
        let of_interval = |event| match event {
            Event::Snapshot(snapshot) => {
                (snapshot.edge == Edge::Interval).then_some((snapshot.due - start) / GRACE)
            }
            _ => None,
        };
        let mut heard: Vec<u64> = events.try_iter().filter_map(of_interval).collect();
        heard.sort_unstable();
        let each_once: Vec<u64> = (1..=heard.len() as u64).collect();
        assert_eq!(heard, each_once);
        // One of the three was the fastest each time. The first two snapshots are no intervals.
        assert!(heard.len() as u64 >= EACH - 2, "{}", heard.len());
    }

    /// Of the thread of this number: its policy, and its real-time priority (proc_pid_stat(5)).
    fn scheduling(thread: i32) -> (i32, u32) {
        let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap();
        let (_, fields) = stat.rsplit_once(") ").unwrap();
        let mut fields = fields.split(' ').skip(37);
        let priority = fields.next().unwrap().parse().unwrap();
        (fields.next().unwrap().parse().unwrap(), priority)
    }

    #[test]
    fn the_thread_runs_before_workers_where_the_kernel_allows_it() {
        const FIFO: (i32, u32) = (1, thread::RealtimePriority::Snapshot as u32);
        let (outlet, events) = EventSender::new(Arc::new(|| {}));
        let start = Monotonic.now();
        let schedule = Schedule { phase: 0, start, window: None, unobserved: vec![] };
        let workers =
            Workers { counters: vec![], clocks: vec![], rows: 0, packets: None, before: None };
        let due = DueSnapshots::new(workers, schedule, Nanos::MAX, outlet);
        let stop = (Mutex::new(false), Condvar::new());
        let (tell, told) = std::sync::mpsc::channel();
        let allowed = std::thread::spawn(|| {
            let allowed = thread::set_realtime(thread::RealtimePriority::Snapshot);
            thread::clear_realtime();
            allowed
        });
        let expected = if allowed.join().unwrap() { FIFO } else { (0, 0) };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                tell.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
                run(&due, start, &stop, QuietTimes::default());
            });
            let thread = told.recv().unwrap();
            events.recv().unwrap();
            let found = scheduling(thread);
            *stop.0.lock().unwrap() = true;
            stop.1.notify_all();
            assert_eq!(found, expected);
        });
        let own = rustix::thread::gettid().as_raw_nonzero().get();
        assert_eq!(scheduling(own).1, 0, "nobody else has it");
    }

    /// So many flowops have few readings before there are too many numbers to be kept.
    #[test]
    fn a_phase_that_does_not_end_has_a_last_interval() {
        let rows = 1_000_000;
        let (outlet, events) = EventSender::new(Arc::new(|| {}));
        let start = Monotonic.now();
        let schedule = Schedule { phase: 0, start, window: None, unobserved: vec![] };
        let workers =
            Workers { counters: vec![], clocks: vec![], rows, packets: None, before: None };
        let _snapshots = Snapshots::start(workers, schedule, 1, outlet);
        let mut intervals = 0;
        loop {
            match events.recv().unwrap() {
                Event::Snapshot(snapshot) => {
                    intervals += u64::from(snapshot.edge == Edge::Interval)
                }
                Event::Endless(most) => {
                    assert_eq!((intervals, most), (Extent::readings(rows), 7));
                    return;
                }
                _ => {}
            }
        }
    }

    #[test]
    fn busy_is_of_most_of_the_window_or_not_known() {
        let reading = |at, cpu| ClockReading { at, cpu };
        assert_eq!(busy(reading(100, 5), reading(300, 55), 200), Some(0.25));
        // Read late, but at both edges alike.
        assert_eq!(busy(reading(290, 5), reading(500, 215), 200), Some(1.0));
        assert_eq!(busy(reading(100, 5), reading(300, 206), 200), Some(1.0));
        // A thread may have been busy in any instant.
        assert_eq!(busy(reading(298, 50), reading(300, 52), 200), None);
        assert_eq!(busy(reading(300, 50), reading(300, 50), 0), None);
        assert_eq!(busy(reading(301, 50), reading(300, 50), 0), None);
    }

    /// One thread that works and one that waits, and one that is over before the window is.
    #[test]
    fn clocks_of_threads_are_read_at_the_edges() {
        let (tell, told) = std::sync::mpsc::channel();
        let thread = |work: fn(&Mutex<()>), until: &Arc<Mutex<()>>| {
            let (tell, until) = (tell.clone(), until.clone());
            let thread = std::thread::spawn(move || {
                tell.send(ThreadClock::own()).unwrap();
                work(&until);
            });
            (thread, told.recv().unwrap())
        };
        let end = Arc::new(Mutex::new(()));
        let held = end.lock().unwrap();
        let (working, works) = thread(|end| while end.try_lock().is_err() {}, &end);
        let (waiting, waits) = thread(|end| drop(end.lock()), &end);
        let (over, ends) = thread(|_| {}, &end);
        over.join().unwrap();
        let workers = Workers {
            counters: vec![],
            clocks: vec![works, waits, ends, None],
            rows: 0,
            packets: None,
            before: None,
        };
        let (outlet, events) = EventSender::new(Arc::new(|| {}));
        let start = Monotonic.now();
        let schedule = Schedule { phase: 0, start, window: None, unobserved: vec![] };
        let mut snapshots = Snapshots::start(workers, schedule, 3_600_000_000_000, outlet);
        let mut keep = |event| match event {
            Event::Snapshot(snapshot) => drop(snapshots.keep(snapshot)),
            Event::Clocks(clocks) => snapshots.keep_clocks(clocks),
            other => panic!("{other:?}"),
        };
        (0..3).for_each(|_| keep(events.recv().unwrap()));
        let before = works.unwrap().now().unwrap();
        let read = Monotonic.now();
        // At least half of the window comes after the first reading, however late that was.
        while works.unwrap().now().unwrap() - before < 5_000_000
            || Monotonic.now() - read < read - start
        {}
        snapshots.snapshot_at(Edge::WindowEnd);
        let busy: Vec<Option<f64>> = (0..4).map(|worker| snapshots.busy(worker)).collect();
        drop(held);
        working.join().unwrap();
        waiting.join().unwrap();
        let (works, waits) = (busy[0].unwrap(), busy[1].unwrap());
        assert!(0.0 < works && works <= 1.0 && waits < works, "{works} {waits}");
        assert_eq!(busy[2..], [None, None]);
    }

    #[test]
    fn a_phase_of_iterations_is_window_from_its_start() {
        let schedule = Schedule { phase: 0, start: 100, window: None, unobserved: vec![] };
        let due: Vec<_> = instants(schedule, 50).take(4).collect();
        assert_eq!(
            due,
            [
                (Edge::PhaseStart, 100),
                (Edge::WindowStart, 100),
                (Edge::Interval, 150),
                (Edge::Interval, 200),
            ]
        );
    }
}
