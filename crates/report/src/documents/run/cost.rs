//! Where the CPUs' time went and what a byte cost: a row a host, then a row a machine where that says more
//! than its host's row.

use wirecost_model::document::{Cell, Column, Section, Table};
use wirecost_model::metric::Unit;
use wirecost_model::run::{Cpu, HostRow, Run};
use wirecost_model::units::{cpus, cycles};

use super::{host_rows, link};

pub(super) fn sections(run: &Run) -> Vec<Section> {
    section(run, run.hosts.iter().map(|host| host_row(run, host)).collect(), true)
}

/// The same in a few rows, however many hosts there are.
pub(super) fn summary(run: &Run) -> Vec<Section> {
    let mut sections = section(run, host_rows::folded(run), false);
    // In the table they would take the room of other columns.
    let foreign = run.machines.iter().filter_map(|machine| {
        let all = machine.cycles_per_kbyte?;
        let foreign = machine.foreign_cycles_per_kbyte.filter(|of| is_told(*of, all))?;
        let [foreign, all] = [foreign, all].map(cycles);
        Some(format!("other programs used {foreign} of the {all} cycles/KByte of {}", machine.name))
    });
    let notes: Vec<String> = foreign.collect();
    for section in &mut sections {
        notes.iter().for_each(|note| section.note(note.as_str()));
    }
    sections
}

/// `foreign` whether the table has the part of other programs in the cost of machines.
fn section(run: &Run, host_rows: Vec<Vec<Cell>>, foreign: bool) -> Vec<Section> {
    if run.window.is_none() || run.hosts.is_empty() {
        return Vec::new();
    }
    let mut table = Table::new([
        Column::text("host"),
        Column::text("role").drop_order(5),
        Column::text("CPUs").drop_order(6),
        Column::number("usr%"),
        Column::number("sys%"),
        Column::number("irq%").drop_order(3),
        Column::number("soft%").drop_order(2),
        Column::number("steal%").drop_order(4),
        Column::number("idle%").drop_order(1),
        Column::number("cycles/KByte"),
        Column::number("sent").drop_order(8),
        Column::number("received").drop_order(7),
    ]);
    host_rows.into_iter().for_each(|row| table.row(row));
    let mut sources: Vec<&str> = Vec::new();
    for host in &run.hosts {
        sources.extend(host.cpu_source.as_deref());
        sources.extend(host.cycles_source.as_deref());
    }
    for machine in &run.machines {
        let only_host =
            run.hosts.iter().find(|host| machine.hosts.as_slice() == [host.name.as_str()]);
        if only_host.is_some_and(|host| host.cpu == machine.cpu) {
            continue;
        }
        let reason = reason(machine.cycles_reason.as_deref());
        let mut row = vec![
            Cell::text(machine.name.as_str()),
            Cell::text("machine"),
            Cell::text(format!("all {}", machine.cpus)),
        ];
        row.extend(split(machine.cpu.as_ref(), reason));
        let of_others = machine.foreign_cycles_per_kbyte.filter(|_| foreign);
        row.push(cost(machine.cycles_per_kbyte, of_others, reason));
        table.row(row);
        sources.extend(machine.cpu_source.as_deref());
        sources.extend(machine.cycles_source.as_deref());
    }
    if let Some(link) = &run.link {
        table.row(link::row(link, run.machines.first()));
    }
    let mut section = Section::named("hosts", "");
    section.table(table);
    sources.sort_unstable();
    sources.dedup();
    let explained: Vec<&str> = sources.into_iter().map(explain).collect();
    if !explained.is_empty() {
        section.note(explained.join("; "));
    }
    vec![section]
}

pub(super) fn host_row(run: &Run, host: &HostRow) -> Vec<Cell> {
    let reason = reason(host.cycles_reason.as_deref());
    let mut row = vec![
        Cell::text(host.name.as_str()),
        Cell::text(host.role.to_string()),
        Cell::text(cpus(&host.cpus)),
    ];
    // Of CPUs that several hosts use, one row of the machine says all.
    row.extend(split(host.cpu.as_ref().filter(|_| !run.shares_cpus(host)), reason));
    row.push(cost(host.cycles_per_kbyte, host.foreign_cycles_per_kbyte, reason));
    row.push(Cell::or_dash(host.bytes.as_ref(), |bytes| Cell::bytes(bytes.sent())));
    row.push(Cell::or_dash(host.bytes.as_ref(), |bytes| Cell::bytes(bytes.received())));
    row
}

fn reason(of: Option<&str>) -> &str {
    of.unwrap_or("the host does not say why")
}

/// A smaller share of a cost is not worth a reader's time.
const FOREIGN: f64 = 0.01;

fn is_told(foreign: f64, cost: f64) -> bool {
    foreign >= FOREIGN * cost
}

/// Busy cycles over payload, and what of it other programs had.
fn cost(cycles_per_kbyte: Option<f64>, foreign: Option<f64>, reason: &str) -> Cell {
    Cell::or_missing(cycles_per_kbyte, reason, |cost| {
        let cell = Cell::number(Unit::CyclesPerKByte, cost);
        match foreign.filter(|foreign| is_told(*foreign, cost)) {
            None => cell,
            Some(foreign) => {
                let foreign = Cell::number(Unit::CyclesPerKByte, foreign);
                let text = format!("{}, of which {} foreign", cell.shown(), foreign.shown());
                Cell::written(Unit::CyclesPerKByte, cost, text)
            }
        }
    })
}

/// What of the CPUs' time is missing is so for the reason that the cost is.
fn split(cpu: Option<&Cpu>, reason: &str) -> [Cell; 6] {
    match cpu {
        Some(cpu) => {
            [cpu.usr, cpu.sys, cpu.irq, cpu.softirq, cpu.steal, cpu.idle].map(Cell::percent)
        }
        None => std::array::from_fn(|_| Cell::Missing(reason.to_owned())),
    }
}

/// Where a figure of CPUs or cycles is from.
pub(crate) fn explain(source: &str) -> &str {
    match source {
        "proc-stat" => "CPU: ticks of /proc/stat",
        "tsc-ticks" => "cycles: TSC rate x busy ticks (tsc-ticks)",
        "tsc-exact" => "cycles: TSC rate x traced busy time (tsc-exact)",
        "pmu" => "cycles: PMU",
        "bpf" => "CPU: traced (bpf)",
        other => other,
    }
}
