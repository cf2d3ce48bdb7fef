//! Cuts all counters of a host at the instants that the plan says, from a thread of its own that
//! runs before the workers do.

use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use wirecost_linux::clock::Monotonic;
use wirecost_linux::{proc_stat, thread};
use wirecost_model::clock::{Clock, MICROSECOND, Nanos};
use wirecost_model::measure::{Cut, Edge};

use super::Schedule;
use crate::record::{WorkerCounters, sum};
use crate::worker::{Event, Outlet};

/// The running thread, and the cuts it has made.
pub(super) struct Cutter {
    counters: Vec<Arc<WorkerCounters>>,
    rows: usize,
    cuts: Vec<Cut>,
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Cutter {
    pub(super) fn start(
        counters: Vec<Arc<WorkerCounters>>,
        rows: usize,
        schedule: Schedule,
        interval: Nanos,
        outlet: Outlet,
    ) -> Self {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let (of_thread, stopped) = (counters.clone(), stop.clone());
        let thread = std::thread::Builder::new()
            .name("wirecost-cut".to_owned())
            .spawn(move || run(&of_thread, rows, schedule, interval, &stopped, &outlet))
            .ok();
        Self { counters, rows, cuts: Vec::new(), stop, thread }
    }

    /// Makes a cut at once, on the caller's thread.
    pub(super) fn cut_now(&mut self, edge: Edge) {
        let at = Monotonic.now();
        let cut = cut(&self.counters, self.rows, edge, at);
        self.cuts.push(cut);
    }

    /// Takes in a cut that the thread has made.
    pub(super) fn keep(&mut self, cut: Cut) -> Cut {
        self.cuts.push(cut.clone());
        cut
    }

    /// All cuts, in order of time.
    pub(super) fn finish(&mut self) -> Vec<Cut> {
        let mut cuts = std::mem::take(&mut self.cuts);
        cuts.sort_by_key(|cut| cut.at);
        cuts
    }

    /// Makes no more cuts by itself.
    pub(super) fn end_thread(&mut self) {
        if let Ok(mut stop) = self.stop.0.lock() {
            *stop = true;
        }
        self.stop.1.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Cutter {
    fn drop(&mut self) {
        self.end_thread();
    }
}

fn run(
    counters: &[Arc<WorkerCounters>],
    rows: usize,
    schedule: Schedule,
    interval: Nanos,
    stop: &(Mutex<bool>, Condvar),
    outlet: &Outlet,
) {
    thread::make_urgent(thread::Urgency::Cut);
    thread::exact_timers();
    let start = schedule.start;
    for (edge, due) in instants(schedule, interval.max(1)) {
        let first = due <= start;
        // The phase may be over before this thread has run at all.
        let come = wait_until(due, stop) || (first && Monotonic.now() >= due);
        if !come {
            return;
        }
        // Nothing has moved before the beginning, however late this thread comes to look: what it
        // says is of that instant, and not of one that may be after the end.
        let cut = if first {
            Cut { at: due, ..cut(&[], rows, edge, due) }
        } else {
            cut(counters, rows, edge, due)
        };
        outlet.send(Event::Cut(cut));
    }
}

/// Waits for the instant. Returns whether it came before the end.
fn wait_until(due: Nanos, stop: &(Mutex<bool>, Condvar)) -> bool {
    let Ok(mut stopped) = stop.0.lock() else {
        return false;
    };
    loop {
        if *stopped {
            return false;
        }
        let now = Monotonic.now();
        if now >= due {
            return true;
        }
        match stop.1.wait_timeout(stopped, Duration::from_nanos(due - now)) {
            Ok((guard, _)) => stopped = guard,
            Err(_) => return false,
        }
    }
}

/// Counters are read one after the other while workers go on: where this thread lost its CPU on the
/// way, they are not of one instant, and it looks again.
fn cut(counters: &[Arc<WorkerCounters>], rows: usize, edge: Edge, due: Nanos) -> Cut {
    let attempt = || {
        let at = Monotonic.now();
        let sum = sum(counters.iter().map(|counters| &**counters), rows);
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
    Cut { edge, due, at, counters, cpu }
}

/// Parts of each time without observers, whose spread says how sure their mean is.
const UNOBSERVED_PARTS: u64 = 5;

/// When to cut: the edges, every interval counted from the window's start, and the times beside the
/// window in which nothing observes.
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

    /// Strands begin at the instant of the first cuts, and may be done before these are made.
    #[test]
    fn what_moved_before_the_first_cuts_were_made_is_counted() {
        let counters = Arc::new(WorkerCounters::new(1, Vec::new()));
        counters.rows[0].done.add(7);
        let (outlet, events) = Outlet::new(Arc::new(|| {}));
        let start = Monotonic.now() - 1_000_000;
        let schedule = Schedule { phase: 0, start, window: None, unobserved: vec![] };
        let hour = 3_600_000_000_000;
        let mut cutter = Cutter::start(vec![counters], 1, schedule, hour, outlet);
        cutter.cut_now(Edge::WindowEnd);
        cutter.end_thread();
        for event in events.try_iter() {
            if let Event::Cut(cut) = event {
                cutter.keep(cut);
            }
        }
        let cuts: Vec<_> =
            cutter.finish().iter().map(|cut| (cut.edge, cut.counters.flowops[0].done)).collect();
        assert_eq!(cuts, [(Edge::PhaseStart, 0), (Edge::WindowStart, 0), (Edge::WindowEnd, 7)]);
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
