//! What receiving asks of interrupts: NTttcp's lines, softirqs and interrupts by handler, CPU by process,
//! and what a line rate would ask for. After "Mainstream NUMA and the TCP/IP stack: Part I" (Microsoft,
//! 2008), where a softirq is called DPC and an interrupt ISR.

mod equations;

use wirecost_analyze::measured::{Measured, MeasuredPoint};
use wirecost_analyze::metrics::Scope;
use wirecost_model::metric::Unit;
use wirecost_model::observe::{InterruptRow, InterruptsSection, Observed};
use wirecost_model::run::Run;

use super::cells::{
    at, count, ends, first, grouped, known, label, name, number, scaled, sentence, table, text,
};
use crate::document::{
    Align::{self, Left, Right},
    Block, Cell, Section, Table,
};

/// Rows of the table of processes.
const PROCESSES: usize = 12;

pub(super) fn build(measured: &Measured) -> Section {
    // Of the two the last is the one that receives.
    let end = ends(measured, ["sender", "receiver"]).pop().flatten();
    let whose = end.unwrap_or("all hosts together");
    let mut blocks = vec![
        Block::Table(lines(measured, end, whose)),
        sentence(
            "KB is 1000 bytes. A frame is the payload of a packet as the devices count packets: \
             between devices of one machine a packet may be of many segments.",
        ),
    ];
    for point in &measured.points {
        let name = name(measured, point);
        let section = first(point).and_then(|run| Scope::find(run, end)?.interrupts());
        let handlers = |rows: fn(&InterruptsSection) -> &[InterruptRow], title: &str| {
            let section = section.as_ref().map_err(Clone::clone);
            Block::Table(handlers(&format!("{title}, {whose}, {name}"), section.copied(), rows))
        };
        blocks.push(handlers(|section| &section.softirqs, "Softirqs (DPC)"));
        blocks.push(handlers(|section| &section.interrupts, "Interrupts (ISR)"));
        blocks.push(Block::Table(processes(&format!("CPU by process, {name}"), point)));
    }
    blocks.extend(equations::build(measured, end));
    Section { title: "What interrupts cost".to_owned(), blocks }
}

/// NTttcp's report; a column for each point.
fn lines(measured: &Measured, end: Option<&str>, whose: &str) -> Table {
    let labels: Vec<String> = measured.points.iter().map(label).collect();
    let mut columns: Vec<(&str, Align)> = vec![("", Left)];
    columns.extend(labels.iter().map(|label| (label.as_str(), Right)));
    let mut table = table(format!("Receiving, {whose}"), &columns);
    type Show = fn(f64) -> String;
    let two: Show = |value| format!("{value:.2}");
    let lines: [(&str, String, f64, Show); 9] = [
        ("Throughput(KB/s)", "throughput".to_owned(), 1.0 / 8e3, grouped),
        ("Throughput(Mbit/s)", "throughput".to_owned(), 1e-6, grouped),
        ("Average Frame Size", at(end, "payload_per_packet"), 1.0, |v| format!("{v:.1}")),
        ("Packets Sent", at(end, "packets.sent"), 1.0, grouped),
        ("Packets Received", at(end, "packets.received"), 1.0, grouped),
        ("Packets received/Int", at(end, "packets_per_interrupt"), 1.0, two),
        ("Packets received/poll", at(end, "packets_per_poll"), 1.0, two),
        ("Interrupts/sec", at(end, "interrupts"), 1.0, grouped),
        ("Cycles/Byte", at(end, "cycles_per_kbyte"), 1.0 / 1024.0, two),
    ];
    for (line, metric, factor, show) in lines {
        let mut row = vec![text(line)];
        row.extend(measured.points.iter().map(|point| scaled(point, &metric, factor, show)));
        table.rows.push(row);
    }
    table
}

/// Of the first run. Most time first, as the section has them.
fn handlers(
    title: &str,
    section: Result<&InterruptsSection, String>,
    rows: fn(&InterruptsSection) -> &[InterruptRow],
) -> Table {
    let columns = [
        ("Module", Left),
        ("Function", Left),
        ("Count", Right),
        ("Max [ms]", Right),
        ("Avg [ms]", Right),
        ("Duration [ms]", Right),
    ];
    let mut table = table(title, &columns);
    let section = match section {
        Ok(section) => section,
        Err(reason) => {
            table.rows.push(vec![Cell::Missing(reason); columns.len()]);
            return table;
        }
    };
    let untimed = || match section.missing.first() {
        Some(reason) => reason.clone(),
        None => "it was counted and not timed".to_owned(),
    };
    for row in rows(section) {
        let ms = |value: Option<f64>, factor: f64| {
            let value = value.map(|value| value * factor).ok_or_else(untimed);
            known(value, Unit::Ratio, |ms| format!("{ms:.6}"))
        };
        let function = match row.source == row.name {
            true => row.name.clone(),
            false => format!("{} ({})", row.name, row.source),
        };
        table.rows.push(vec![
            text(row.module.as_deref().unwrap_or("kernel")),
            text(function),
            count(row.total.count),
            ms(row.total.max_us, 1e-3),
            ms(row.total.average_us, 1e-3),
            ms(row.total.seconds, 1e3),
        ]);
    }
    table
}

/// Of all CPUs of the machine: a process is not of one host's. Of the first run.
fn processes(title: &str, point: &MeasuredPoint) -> Table {
    let columns = [("Process", Left), ("CPU usage (ms)", Right), ("% CPU usage", Right)];
    let mut table = table(title, &columns);
    match first(point).and_then(usage) {
        Ok(rows) => table.rows.extend(rows.into_iter().map(|(process, seconds, wall)| {
            let percent = 100.0 * seconds / wall;
            vec![
                text(process),
                number(1e3 * seconds, Unit::Ratio, format!("{:.3}", 1e3 * seconds)),
                number(percent, Unit::Percent, format!("{percent:.2}")),
            ]
        })),
        Err(reason) => table.rows.push(vec![Cell::Missing(reason); columns.len()]),
    }
    table
}

/// Name, seconds, and seconds that all CPUs had. The idle CPUs first, where all are known.
fn usage(run: &Run) -> Result<Vec<(String, f64, f64)>, String> {
    let machine = match Scope::find(run, None)? {
        Scope::Machine { machine, .. } => machine,
        _ => return Err("the hosts are on several machines".to_owned()),
    };
    // Every part of a machine tells of the processes of all of it.
    let section = Scope::find(run, Some(&run.hosts[0].name))?.cpu_times()?;
    if section.processes.is_empty() {
        return Err("the CPU time of processes was not read".to_owned());
    }
    let all = run.observe.iter().flat_map(|observe| &observe.hosts);
    let parts: Vec<_> = all.filter_map(|observed: &Observed| observed.cpu.as_ref()).collect();
    let seconds = run.observe.iter().flat_map(|observe| &observe.hosts).map(|h| h.seconds).next();
    let wall = seconds.unwrap_or_default() * f64::from(machine.cpus);
    let mut rows = Vec::new();
    if parts.iter().map(|cpu| cpu.per_cpu.len()).sum::<usize>() == machine.cpus as usize {
        rows.push(("Idle (0)".to_owned(), parts.iter().map(|cpu| cpu.total.idle).sum(), wall));
    }
    let named = section.processes.iter().take(PROCESSES);
    rows.extend(named.map(|p| (format!("{} ({})", p.name, p.pid), p.seconds, wall)));
    Ok(rows)
}
