//! Where the time of every CPU went.

use std::io::{self, Write};

use wirecost_model::observe::{CpuSection, CpuTime, ProcessTime};

use super::Look;
use super::columns::{Table, number, text};
use super::quantity::{NOT_MEASURED, percent};

/// Softirq vectors and processes that used less than this share of a CPU are left out, percent.
const LEAST: f64 = 0.1;
/// Rows of the table of processes.
const PROCESSES: usize = 6;

/// Writes the section but for its processes; `of` says of whom, where that is in doubt.
pub fn write(out: &mut dyn Write, section: &CpuSection, of: &str, look: &Look) -> io::Result<()> {
    if section.source == "bpf" { traced(out, section, of, look) } else { Ok(()) }
}

/// A row a CPU; the softirqs that took time have columns of their own.
fn traced(out: &mut dyn Write, section: &CpuSection, of: &str, look: &Look) -> io::Result<()> {
    let share = |seconds: f64, time: &CpuTime| seconds * 100.0 / time.wall.max(f64::MIN_POSITIVE);
    let softirq = |time: &CpuTime, names: &[&str]| -> f64 {
        let wanted = time.softirqs.iter().filter(|softirq| names.contains(&&*softirq.vector));
        share(wanted.map(|softirq| softirq.seconds).sum(), time)
    };
    let mut table = Table::new(&[
        text("CPU time, %", 0),
        number("task", 0),
        number("irq", 1),
        number("net_rx", 1),
        number("net_tx", 4),
        number("timers", 3),
        number("other softirq", 5),
        number("idle loop", 2),
        number("idle", 0),
        number("switches/s", 6),
    ]);
    let timers = ["timer", "hrtimer"];
    let row = |name: String, time: &CpuTime| {
        let (rx, tx) = (softirq(time, &["net_rx"]), softirq(time, &["net_tx"]));
        let timers = softirq(time, &timers);
        let per_second = |switches: u64| {
            super::count((switches as f64 / time.wall.max(f64::MIN_POSITIVE)).round() as u64)
        };
        vec![
            name,
            percent(share(time.task, time)),
            percent(share(time.irq, time)),
            percent(rx),
            percent(tx),
            percent(timers),
            percent((share(time.softirq, time) - rx - tx - timers).max(0.0)),
            time.idle_loop.map_or(NOT_MEASURED.to_owned(), |idle| percent(share(idle, time))),
            percent(share(time.idle, time)),
            time.switches.map_or(NOT_MEASURED.to_owned(), per_second),
        ]
    };
    for time in &section.per_cpu {
        let cpu = time.cpu.map_or_else(String::new, |cpu| cpu.to_string());
        table.row(row(format!("CPU {cpu}"), time));
    }
    if section.per_cpu.len() > 1 {
        table.row(row(format!("mean{of}"), &section.total));
    }
    writeln!(out)?;
    table.write(out, look)?;
    if let Some(error) = &section.tick_error {
        let off = format!(
            "/proc/stat would have said: busy {:+.1}, softirq {:+.1}, irq {:+.1}, idle {:+.1} points, \
             and {:+.1}% of the time nowhere",
            error.busy, error.softirq, error.irq, error.idle, error.unaccounted
        );
        super::note(out, look, &off)?;
    }
    Ok(())
}

/// Those that used most, of the whole machine.
pub fn processes(out: &mut dyn Write, section: &CpuSection, look: &Look) -> io::Result<()> {
    let wall = section.total.wall / section.per_cpu.len().max(1) as f64;
    let share = |process: &ProcessTime| process.seconds * 100.0 / wall.max(f64::MIN_POSITIVE);
    let shown: Vec<&ProcessTime> = section
        .processes
        .iter()
        .filter(|process| share(process) >= LEAST)
        .take(PROCESSES)
        .collect();
    if shown.is_empty() {
        return Ok(());
    }
    let mut table =
        Table::new(&[text("process", 0), number("pid", 1), number("% of a CPU", 0), text("", 2)]);
    for process in shown {
        table.row(vec![
            process.name.clone(),
            process.pid.to_string(),
            percent(share(process)),
            if process.kernel_thread { "kernel thread" } else { "" }.to_owned(),
        ]);
    }
    writeln!(out)?;
    table.write(out, look)
}
