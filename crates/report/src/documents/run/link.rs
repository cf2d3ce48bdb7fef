//! Emulated links: what they did to packets, and how well.

use wirecost_model::document::{Cell, Column, Section, Table};
use wirecost_model::link::netem::{NetemLineReport, NetemReport};
use wirecost_model::link::{LinkError, LinkReport};
use wirecost_model::metric::Unit;
use wirecost_model::run::{MachineRow, Run};
use wirecost_model::units::latency;

/// A row for each direction.
pub(super) fn sections(run: &Run) -> Vec<Section> {
    let by_netem = run.netem.as_ref().map(by_netem);
    by_netem.or(run.link.as_ref().map(by_emulator)).into_iter().collect()
}

/// A row for each queueing discipline.
fn by_netem(link: &NetemReport) -> Section {
    let mut table = Table::new([
        Column::text("direction"),
        Column::text("qdisc"),
        Column::number("on the wire"),
        Column::number("packets"),
        Column::number("dropped"),
        Column::number("overlimits").drop_order(2),
        Column::number("waiting").drop_order(1),
    ]);
    let has_passed =
        |line: &&NetemLineReport| line.line.qdiscs.iter().any(|one| one.packets + one.drops > 0);
    for line in link.lines.iter().filter(has_passed) {
        for (place, qdisc) in line.line.qdiscs.iter().enumerate() {
            let rate = match place {
                0 => Cell::number(Unit::BitsPerSecond, line.bits_per_second),
                _ => Cell::empty(),
            };
            table.row(vec![
                Cell::text(line.line.name.as_str()),
                Cell::text(qdisc.kind.as_str()),
                rate,
                Cell::count(qdisc.packets),
                Cell::count(qdisc.drops),
                Cell::count(qdisc.overlimits),
                Cell::bytes(qdisc.backlog_bytes),
            ]);
        }
    }
    let mut section = Section::named("links", "Emulated links");
    section.table(table);
    section.note(format!("{}, by netem", link.link.describe(link.topology)));
    section.note("dropped: tbf drops what does not fit into its queue; netem loses packets");
    section.note(format!("unknown: {}", link.unknown.join("; ")));
    section
}

fn by_emulator(link: &LinkReport) -> Section {
    let mut table = Table::new([
        Column::text("direction"),
        Column::number("on the wire"),
        Column::number("packets"),
        Column::number("overflowed"),
        Column::number("CoDel").drop_order(3),
        Column::number("lost"),
        Column::number("reordered").drop_order(2),
        Column::number("twice").drop_order(1),
        Column::number("longest queue").drop_order(4),
    ]);
    for line in link.lines.iter().filter(|line| line.line.counts.arrived > 0) {
        let counts = &line.line.counts;
        table.row(vec![
            Cell::text(line.line.name.as_str()),
            Cell::number(Unit::BitsPerSecond, line.bits_per_second),
            Cell::count(counts.arrived),
            Cell::count(counts.overflowed),
            Cell::count(counts.dropped),
            Cell::count(counts.lost),
            Cell::count(counts.reordered),
            Cell::count(counts.duplicated),
            Cell::bytes(counts.longest_queue),
        ]);
    }
    let mut section = Section::named("links", "Emulated links");
    section.table(table);
    if !link.devices.is_empty() {
        section.table(queues(link));
    }
    section.note(format!("{}, by the emulator", link.link.describe(link.topology)));
    let source = match link.cpu_source.as_str() {
        "bpf" => "traced",
        _ => "as the scheduler counts it, which includes receive work of hosts that interrupted it",
    };
    section.note(format!(
        "emulator: {:.1}% of a CPU, {source}; no part of the cost of hosts and machines",
        link.cpu_percent
    ));
    section
}

/// A row for each queue of each host's device.
fn queues(link: &LinkReport) -> Table {
    let mut table = Table::new([
        Column::text("host"),
        Column::number("queue"),
        Column::number("CPU"),
        Column::number("received"),
        Column::number("dropped"),
        Column::number("interrupts"),
        Column::number("sent").drop_order(1),
        Column::number("pauses").drop_order(2),
    ]);
    for device in &link.devices {
        for (number, queue) in device.queues.iter().enumerate() {
            // A device pauses, and not a queue of it.
            let pauses = if number == 0 { Cell::count(device.pauses) } else { Cell::empty() };
            table.row(vec![
                Cell::text(device.host.as_str()),
                Cell::count(number as u64),
                Cell::count(u64::from(queue.cpu)),
                Cell::count(queue.received),
                Cell::count(queue.dropped),
                Cell::count(queue.interrupts),
                Cell::count(queue.sent),
                pauses,
            ]);
        }
    }
    table
}

/// In a few words: the links and how exactly they were emulated.
pub(super) fn figure(link: &LinkReport) -> Cell {
    let error = link.error_us.map_or_else(String::new, |LinkError { p50, p99, max }| {
        let [p50, p99, max] = [p50, p99, max].map(latency);
        format!("; error p50 {p50}, p99 {p99}, max {max}")
    });
    Cell::text(format!("{}{error}", link.link.describe(link.topology)))
}

/// The same of links by netem.
pub(super) fn figure_of_netem(link: &NetemReport) -> Cell {
    Cell::text(format!("{}; by netem, error unknown", link.link.describe(link.topology)))
}

/// CPU time of the emulator in the table of hosts, of all CPUs of the machine.
pub(super) fn row(link: &LinkReport, machine: Option<&MachineRow>) -> Vec<Cell> {
    let cpus = machine.map_or(1, |machine| machine.cpus.max(1));
    let mut row = vec![
        Cell::text("link"),
        Cell::text("emulator"),
        Cell::text(format!("all {cpus}")),
        Cell::empty(),
        Cell::percent(link.cpu_percent / f64::from(cpus)),
    ];
    row.resize_with(10, Cell::empty);
    row
}
