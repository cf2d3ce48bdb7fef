//! Where the time of every CPU went.

use crate::document::{Cell, Column, Section, Table};
use crate::metric::Unit;
use crate::observe::{CpuSection, CpuTime, CpuUser};

/// Processes that used less than this share of a CPU are left out, percent.
const LEAST: f64 = 0.1;
/// Rows of the table of processes.
const PROCESSES: usize = 6;

/// Without processes, which are those of the whole machine: [`CpuSection::processes_document`].
pub(super) fn sections(of: &CpuSection) -> Vec<Section> {
    // What /proc/stat tells is in the table of hosts.
    if of.source == "bpf" { vec![traced(of)] } else { Vec::new() }
}

/// A row a CPU; the softirqs of traffic and timers have columns of their own.
fn traced(of: &CpuSection) -> Section {
    let mut section = Section::named("cpu", "CPU time");
    let mut table = Table::new([
        Column::text("%"),
        Column::number("task"),
        Column::number("irq").drop_order(1),
        Column::number("net_rx").drop_order(1),
        Column::number("net_tx").drop_order(4),
        Column::number("timers").drop_order(3),
        Column::number("other softirq").drop_order(5),
        Column::number("idle loop").drop_order(2),
        Column::number("idle"),
        Column::number("switches/s").drop_order(6),
    ]);
    for time in &of.per_cpu {
        let cpu = time.cpu.map_or_else(String::new, |cpu| cpu.to_string());
        table.row(row(format!("CPU {cpu}"), time));
    }
    if of.per_cpu.len() > 1 {
        table.row(row("mean".to_owned(), &of.total));
    }
    section.table(table);
    if let Some(error) = &of.tick_error {
        section.note(format!(
            "error of /proc/stat: busy {:+.1}, softirq {:+.1}, irq {:+.1}, idle {:+.1} points, and \
             {:+.1}% of the time unaccounted",
            error.busy, error.softirq, error.irq, error.idle, error.unaccounted
        ));
    }
    section
}

fn row(name: String, time: &CpuTime) -> Vec<Cell> {
    let wall = time.wall.max(f64::MIN_POSITIVE);
    let share = |seconds: f64| seconds * 100.0 / wall;
    let softirq = |names: &[&str]| -> f64 {
        let wanted = time.softirqs.iter().filter(|softirq| names.contains(&&*softirq.vector));
        share(wanted.map(|softirq| softirq.seconds).sum())
    };
    let (rx, tx, timers) =
        (softirq(&["net_rx"]), softirq(&["net_tx"]), softirq(&["timer", "hrtimer"]));
    let other = (share(time.softirq) - rx - tx - timers).max(0.0);
    let switches = |switches: u64| Cell::rounded(Unit::PerSecond, switches as f64 / wall);
    vec![
        Cell::text(name),
        Cell::percent(share(time.task)),
        Cell::percent(share(time.irq)),
        Cell::percent(rx),
        Cell::percent(tx),
        Cell::percent(timers),
        Cell::percent(other),
        Cell::or_dash(time.idle_loop, |idle| Cell::percent(share(idle))),
        Cell::percent(share(time.idle)),
        Cell::or_dash(time.switches, switches),
    ]
}

/// Those that used most, of the whole machine; none where none used much.
pub(super) fn processes(of: &CpuSection) -> Option<Section> {
    let wall = of.total.wall / of.per_cpu.len().max(1) as f64;
    let share = |user: &CpuUser<'_>| user.seconds * 100.0 / wall.max(f64::MIN_POSITIVE);
    let mut table = Table::new([
        Column::text("process"),
        Column::number("pid").drop_order(1),
        Column::number("% of a CPU"),
        Column::text("").drop_order(2),
    ]);
    let users = of.users();
    for user in users.iter().filter(|user| share(user) >= LEAST).take(PROCESSES) {
        let pid = |pid: u32| Cell::written(Unit::Count, pid.into(), pid.to_string());
        table.row(vec![
            Cell::text(user.name),
            user.pid.map_or_else(Cell::empty, pid),
            Cell::percent(share(user)),
            Cell::text(match &user.remark {
                Some(remark) => remark,
                None if user.kernel_thread => "kernel thread",
                None => "",
            }),
        ]);
    }
    let mut section = Section::named("processes", "");
    if !table.rows.is_empty() {
        section.table(table);
    }
    section.filled()
}
