//! System calls by time.

use crate::document::{Cell, Column, Section, Table};
use crate::metric::Unit;
use crate::observe::SyscallsSection;
use crate::units::{percent, whole};

/// Rows of the table; the others are said to be there.
const ROWS: usize = 12;

pub(super) fn sections(of: &SyscallsSection) -> Vec<Section> {
    let title = match of.pid {
        Some(pid) => format!("System calls of process {pid}"),
        None => "System calls".to_owned(),
    };
    let mut section = Section::named("syscalls", &title);
    if !of.calls.is_empty() {
        section.table(calls(of));
    }
    section.note(total(of));
    vec![section]
}

fn share(of: &SyscallsSection, seconds: f64) -> f64 {
    seconds * 100.0 / of.window_seconds.max(f64::MIN_POSITIVE)
}

fn calls(of: &SyscallsSection) -> Table {
    let mut table = Table::new([
        Column::text("system call"),
        Column::number("count"),
        Column::number("/s").drop_order(3),
        Column::number("avg us"),
        Column::number("max us").drop_order(2),
        Column::number("% of a CPU"),
        Column::number("+irq%").drop_order(4),
        Column::number("waiting us").drop_order(1),
        Column::number("failed").drop_order(5),
        Column::number("bytes").drop_order(2),
    ]);
    let us = |us: f64| Cell::written(Unit::Microseconds, us, format!("{us:.2}"));
    for call in of.calls.iter().take(ROWS) {
        table.row(vec![
            Cell::text(call.name.as_str()),
            Cell::count(call.count),
            Cell::rounded(Unit::PerSecond, call.per_second),
            us(call.average_us),
            us(call.max_us),
            Cell::percent(share(of, call.seconds)),
            Cell::percent(share(of, call.interrupted_seconds)),
            us(call.waited_seconds * 1e6 / call.count.max(1) as f64),
            Cell::count(call.failed),
            // Others move none.
            call.bytes.map_or_else(Cell::empty, Cell::bytes),
        ]);
    }
    table
}

fn total(of: &SyscallsSection) -> String {
    let (rate, share) = (whole(of.per_second), percent(share(of, of.seconds)));
    let mut line = format!("all: {rate} /s, {share}% of a CPU");
    if of.calls.len() > ROWS {
        line += &format!("; {} more kinds are not shown", of.calls.len() - ROWS);
    }
    if let Some(split) = &of.usr_sys {
        line += &format!(
            "; task time of these CPUs: {:.2}% user, {:.2}% system (every call timed)",
            split.usr * 100.0,
            (1.0 - split.usr) * 100.0
        );
    }
    line
}
