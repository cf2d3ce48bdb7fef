//! How the scheduler treated the workers of one host.

use crate::document::{Cell, Column, Section, Table};
use crate::metric::Unit;
use crate::observe::{
    CpuHolder, PartialWaits, SchedulingSection, ThreadScheduling, WaitTimes, WakeupCounts,
};
use crate::units::{counted, percent, seconds};

/// Threads that have a row.
const SHOWN: usize = 16;
/// Tasks that are named of each thread.
const NAMED: usize = 3;

pub(super) fn sections(of: &SchedulingSection) -> Vec<Section> {
    let mut section = Section::named("scheduling", "Scheduling");
    let mut threads: Vec<&ThreadScheduling> = of.threads.iter().collect();
    if threads.len() > SHOWN {
        // Those that waited longest matter most.
        threads.sort_by(|a, b| {
            let key = |thread: &ThreadScheduling| thread.waited_seconds().unwrap_or(0.0);
            key(b).total_cmp(&key(a))
        });
    }
    section.table(waits(of, &threads));
    if threads.len() > SHOWN {
        let more = (threads.len() - SHOWN) as u64;
        let threads = counted(more, "further thread", "further threads");
        section.note(format!("and {threads} that waited less"));
    }
    section.table(wakeups(of, &threads));
    section.note(
        "run queue: from the wake-up on the thread's own CPU, or the preemption, until it ran; `no task`: the CPU \
         was idle or handled interrupts. Wake-up to run: from the waker's call until the thread ran, including the wake-up of another CPU",
    );
    edges(&mut section, of);
    vec![section]
}

fn waits(of: &SchedulingSection, threads: &[&ThreadScheduling]) -> Table {
    let mut table = Table::new([
        Column::text("thread"),
        Column::number("CPU"),
        Column::number("waits/s").drop_order(3),
        Column::number("p50 us").drop_order(2),
        Column::number("p99 us"),
        Column::number("max us"),
        Column::number("waited %"),
        Column::number("preempted/s"),
        Column::number("preempted %").drop_order(1),
        Column::number("moved").drop_order(4),
        Column::text("waited for"),
    ]);
    table.title = "Run queue".to_owned();
    let window = of.seconds.max(f64::MIN_POSITIVE);
    let per_second = |count: u64| Cell::rounded(Unit::PerSecond, count as f64 / window);
    let us = |us: f64| Cell::written(Unit::Microseconds, us, format!("{us:.1}"));
    let share = |seconds: f64| Cell::percent(seconds * 100.0 / window);
    let figures = |waits: Option<&WaitTimes>| {
        let quantile = |of: fn(&WaitTimes) -> Option<f64>| Cell::or_dash(waits.and_then(of), us);
        [
            Cell::or_dash(waits, |waits| per_second(waits.count)),
            quantile(|waits| waits.p50_us),
            quantile(|waits| waits.p99_us),
            quantile(|waits| waits.max_us),
        ]
    };
    for thread in threads.iter().take(SHOWN) {
        let mut row = vec![
            Cell::text(thread.title()),
            Cell::or_dash(thread.cpu, |cpu| Cell::count(cpu.into())),
        ];
        row.extend(figures(thread.run_queue.as_ref()));
        row.extend([
            Cell::or_dash(thread.waited_seconds(), share),
            per_second(thread.preemptions),
            Cell::or_dash(thread.preempted_seconds, share),
            Cell::count(thread.migrations),
            Cell::text(holders(thread, window).join(", ")),
        ]);
        table.row(row);
    }
    let others = &of.others;
    let mut row = vec![Cell::text(all_others(of)), Cell::empty()];
    row.extend(figures(others.run_queue.as_ref()));
    // Waits of several tasks at once are no part of the window.
    row.extend([
        Cell::empty(),
        per_second(others.preemptions),
        Cell::empty(),
        Cell::count(others.migrations),
    ]);
    table.row(row);
    table
}

fn all_others(of: &SchedulingSection) -> &'static str {
    if of.threads.is_empty() { "all tasks" } else { "other tasks" }
}

/// Those that it waited for longest, each with its part of the window.
pub(super) fn holders(thread: &ThreadScheduling, window: f64) -> Vec<String> {
    let mut all: Vec<(String, f64)> =
        thread.waited_for.iter().map(|holder| (title(holder), holder.seconds())).collect();
    let no_task = thread.waited_for_no_task.seconds;
    all.push(("no task".to_owned(), no_task));
    all.retain(|(_, seconds)| *seconds > 0.0);
    all.sort_by(|a, b| b.1.total_cmp(&a.1));
    let more = all.len() > NAMED;
    let mut texts: Vec<String> = all
        .into_iter()
        .take(NAMED)
        .map(|(name, seconds)| format!("{name} {}%", percent(seconds * 100.0 / window)))
        .collect();
    if more {
        texts.push("...".to_owned());
    }
    texts
}

fn title(holder: &CpuHolder) -> String {
    match (holder.kernel_thread, holder.process) {
        (true, _) => format!("[{}]", holder.name),
        (false, Some(process)) => format!("{} ({process})", holder.name),
        (false, None) => holder.name.clone(),
    }
}

fn wakeups(of: &SchedulingSection, threads: &[&ThreadScheduling]) -> Table {
    let mut table = Table::new([
        Column::text("thread"),
        Column::number("wake-ups/s"),
        Column::number("by tasks/s").drop_order(1),
        Column::number("by softirqs/s"),
        Column::number("by interrupts/s").drop_order(2),
        Column::number("by idle/s").drop_order(5),
        Column::number("wake-up to run: p50 us"),
        Column::number("p99 us"),
        Column::number("max us").drop_order(3),
        Column::number("sleeps/s").drop_order(4),
    ]);
    table.title = "Wake-ups".to_owned();
    let window = of.seconds.max(f64::MIN_POSITIVE);
    let per_second = |count: u64| Cell::rounded(Unit::PerSecond, count as f64 / window);
    let us = |us: f64| Cell::written(Unit::Microseconds, us, format!("{us:.1}"));
    let by = |of: &WakeupCounts| {
        [of.total, of.by_task, of.by_softirq, of.by_interrupt, of.by_idle].map(per_second)
    };
    for thread in threads.iter().take(SHOWN) {
        let latency = &thread.wakeup_latency;
        let mut row = vec![Cell::text(thread.title())];
        row.extend(by(&thread.wakeups));
        row.extend(
            [latency.p50_us, latency.p99_us, latency.max_us].map(|value| Cell::or_dash(value, us)),
        );
        row.push(per_second(thread.sleeps));
        table.row(row);
    }
    let mut row = vec![Cell::text(all_others(of))];
    row.extend(by(&of.others.wakeups));
    row.extend([Cell::empty(), Cell::empty(), Cell::empty(), per_second(of.others.sleeps)]);
    table.row(row);
    table
}

/// Waits that are not in the tables.
fn edges(section: &mut Section, of: &SchedulingSection) {
    let mut before = of.others.began_before;
    let mut open = PartialWaits::default();
    for thread in &of.threads {
        for (sum, waits) in [(&mut before, thread.began_before), (&mut open, thread.open_at_end)] {
            sum.count += waits.count;
            sum.seconds += waits.seconds;
        }
    }
    for (waits, what) in
        [(before, "began before the window"), (open, "had not ended with the window")]
    {
        if waits.count > 0 {
            let number = counted(waits.count, "wait", "waits");
            let inside = seconds(waits.seconds);
            section.note(format!(
                "{number} {what}: {inside} in the window, part of `waited` but of no percentile"
            ));
        }
    }
    let unlisted: f64 = of.threads.iter().map(|thread| thread.unlisted_seconds).sum();
    if unlisted > 0.0 {
        let unlisted = seconds(unlisted);
        section.note(format!("{unlisted} of waits are for tasks that are unknown or not listed"));
    }
    if of.others.unobserved > 0 {
        let waits = counted(of.others.unobserved, "wait", "waits");
        section.note(format!(
            "{waits} of other tasks were not observed: the kernel did not run the BPF program"
        ));
    }
    if of.threads.iter().any(|thread| thread.run_queue.is_none()) {
        section.note("waits for a CPU are unknown: the kernel lacks CONFIG_SCHED_INFO");
    }
}
