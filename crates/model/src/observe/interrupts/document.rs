//! Interrupts, softirqs and how packets were fetched.

use crate::document::{Cell, Column, Section, Table};
use crate::metric::Unit;
use crate::observe::{InterruptKind, InterruptRow, InterruptsSection, NapiRow, SoftnetRow};
use crate::units::{count, percent, whole};

/// Rows of a table; the others are said to be there.
const ROWS: usize = 12;
/// Vectors of a device that are shown.
const VECTORS: usize = 8;

pub(super) fn sections(of: &InterruptsSection) -> Vec<Section> {
    let mut section = Section::named("interrupts", "Interrupts");
    let window = of.seconds.max(f64::MIN_POSITIVE);
    if !of.interrupts.is_empty() {
        section.table(handlers(["interrupt", "module"], &of.interrupts, window));
        let all = total("interrupts", &of.interrupts, of.interrupts_per_second, window);
        section.note(format!("{all}{}", kinds(of)));
    }
    if !of.softirqs.is_empty() {
        section.table(handlers(["softirq", ""], &of.softirqs, window));
        section.note(total("softirqs", &of.softirqs, of.softirqs_per_second, window));
    }
    if !of.devices.is_empty() {
        section.table(devices(of, window));
    }
    if let Some(rows) = of.napi.as_ref().filter(|rows| !rows.is_empty()) {
        section.table(polls(rows, of.napi_slices.map_or(window, |slices| slices.seconds)));
        section.blocks.extend(crate::observe::slices(of.napi_slices));
    }
    section.note(stack(of, window));
    for missing in &of.missing {
        section.note(format!("not measured: {missing}"));
    }
    vec![section]
}

/// The one in which most time went is the first.
fn handlers([what, module]: [&str; 2], rows: &[InterruptRow], window: f64) -> Table {
    let part = |part: f64, whole: f64| Cell::percent(part * 100.0 / whole.max(f64::MIN_POSITIVE));
    let us = |us: f64| Cell::written(Unit::Microseconds, us, format!("{us:.2}"));
    let mut table = Table::new([
        Column::text(what),
        Column::text("handler").drop_order(1),
        Column::text(module).drop_order(5),
        Column::number("count"),
        Column::number("/s").drop_order(2),
        Column::number("avg us"),
        Column::number("max us").drop_order(1),
        Column::number("% of a CPU"),
        Column::number("idle%").drop_order(3),
        Column::number("ksoftirqd%").drop_order(4),
    ]);
    let timed = rows.iter().any(|row| row.total.seconds.is_some());
    // Where nothing was timed the columns say nothing.
    let of_timed = |cell: Cell| if timed { cell } else { Cell::empty() };
    for row in rows.iter().take(ROWS) {
        let total = &row.total;
        let of_it =
            |of: Option<f64>| Cell::or_dash(of.zip(total.seconds), |(of, whole)| part(of, whole));
        table.row(vec![
            Cell::text(row.source.as_str()),
            Cell::text(if row.name == row.source { "" } else { row.name.as_str() }),
            Cell::text(row.module.as_deref().unwrap_or_default()),
            Cell::count(total.count),
            Cell::rounded(Unit::PerSecond, row.per_second),
            of_timed(Cell::or_dash(total.average_us, us)),
            of_timed(Cell::or_dash(total.max_us, us)),
            // Of one CPU, as a handler runs on one at a time.
            of_timed(Cell::or_dash(total.seconds, |seconds| part(seconds, window))),
            of_timed(of_it(total.in_idle)),
            of_timed(of_it(total.in_ksoftirqd)),
        ]);
    }
    table
}

/// What raised them, where there is more than one kind.
fn kinds(of: &InterruptsSection) -> String {
    let kinds = [
        (InterruptKind::Device, "of devices"),
        (InterruptKind::Ipi, "by other CPUs (IPI)"),
        (InterruptKind::Timer, "of timers"),
        (InterruptKind::Other, "others"),
    ];
    let parts: Vec<String> = kinds
        .into_iter()
        .map(|(kind, name)| (of.per_second_of(kind), name))
        .filter(|(per_second, _)| *per_second > 0.0)
        .map(|(per_second, name)| format!("{} {name}", whole(per_second)))
        .collect();
    if parts.len() < 2 { String::new() } else { format!("; {}", parts.join(", ")) }
}

/// All of them together.
fn total(all: &str, rows: &[InterruptRow], per_second: f64, window: f64) -> String {
    let mut text = format!("{all}: {} /s", whole(per_second));
    let timed = rows.iter().filter_map(|row| row.total.seconds).reduce(|a, b| a + b);
    if let Some(timed) = timed {
        text += &format!(", {}% of a CPU", percent(timed * 100.0 / window));
    }
    if rows.len() > ROWS {
        text += &format!("; {} more are not shown", rows.len() - ROWS);
    }
    text
}

fn devices(of: &InterruptsSection, window: f64) -> Table {
    let mut table = Table::new([
        Column::text("device, vector"),
        Column::number("queue").drop_order(3),
        Column::number("interrupts/s"),
        Column::number("rx packets/s").drop_order(1),
        Column::number("tx packets/s").drop_order(1),
        Column::number("rx/interrupt"),
        Column::number("tx/interrupt"),
    ]);
    let per_second = |of: u64| Cell::rounded(Unit::PerSecond, of as f64 / window);
    let ratio = |ratio: f64| Cell::written(Unit::Ratio, ratio, format!("{ratio:.2}"));
    for device in &of.devices {
        let reason = device.reason.as_deref().unwrap_or_default();
        table.row(vec![
            Cell::text(device.device.as_str()),
            Cell::empty(),
            Cell::or_missing(device.interrupts, reason, per_second),
            per_second(device.rx_packets),
            per_second(device.tx_packets),
            Cell::or_missing(device.rx_packets_per_interrupt, reason, ratio),
            Cell::or_missing(device.tx_packets_per_interrupt, reason, ratio),
        ]);
        let busy = device.vectors.iter().filter(|vector| vector.interrupts > 0).take(VECTORS);
        for vector in busy {
            let queue = |queue: u32| Cell::count(queue.into());
            table.row(vec![
                Cell::text(format!("  {}", vector.name)),
                vector.queue.map_or_else(Cell::empty, queue),
                Cell::rounded(Unit::PerSecond, vector.per_second),
                Cell::or_dash(vector.rx_packets, per_second),
                Cell::or_dash(vector.tx_packets, per_second),
                Cell::or_dash(vector.rx_packets_per_interrupt, ratio),
                Cell::or_dash(vector.tx_packets_per_interrupt, ratio),
            ]);
        }
    }
    table
}

fn polls(rows: &[NapiRow], watched: f64) -> Table {
    let mut table = Table::new([
        Column::text("NAPI"),
        Column::number("polls"),
        Column::number("polls/s").drop_order(3),
        Column::number("packets").drop_order(1),
        Column::number("packets/poll"),
        Column::number("empty").drop_order(2),
        Column::number("budget exhausted"),
    ]);
    let name = |row: &NapiRow| match (&row.device, row.id) {
        (Some(device), Some(id)) => format!("{device} ({id})"),
        (Some(device), None) => device.clone(),
        (None, _) => "backlog".to_owned(),
    };
    let ratio = |ratio: f64| Cell::written(Unit::Ratio, ratio, format!("{ratio:.2}"));
    for row in rows.iter().take(ROWS) {
        let per_second = row.polls as f64 / watched.max(f64::MIN_POSITIVE);
        table.row(vec![
            Cell::text(name(row)),
            Cell::count(row.polls),
            Cell::rounded(Unit::PerSecond, per_second),
            Cell::count(row.packets),
            Cell::or_dash(row.packets_per_poll, ratio),
            Cell::count(row.empty),
            Cell::count(row.budget_exhausted),
        ]);
    }
    table
}

/// What goes wrong when too much comes, on one line.
fn stack(of: &InterruptsSection, window: f64) -> String {
    let SoftnetRow { processed, dropped, time_squeezed, received_rps, .. } = &of.softnet_total;
    let mut line = format!(
        "stack: {} packets, {} dropped for a full backlog, NET_RX out of budget or time {} times, {} \
         wake-ups by RPS",
        count(*processed),
        count(*dropped),
        count(*time_squeezed),
        count(*received_rps),
    );
    if let Some(used) = &of.ksoftirqd {
        line += &format!("; ksoftirqd: {}% of a CPU", percent(used.seconds * 100.0 / window));
        if let Some(share) = used.share {
            line += &format!(", {}% of softirq time", percent(share * 100.0));
        }
    }
    line
}
