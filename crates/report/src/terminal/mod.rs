//! The compact table that a person reads after a run: what it did, what it cost, what to know of it.
//!
//! The reader's order: headline figures, then a row a host and a machine, a phase, a flowop, the
//! settings as granted, the warnings with what to do, and last, next to the prompt, the error of a
//! run that is not good. What was not measured is `-`, with its reason below.

mod columns;
pub mod cpu;
pub mod doctor;
pub mod functions;
pub mod interrupts;
pub(crate) mod look;
pub(crate) mod quantity;
pub mod report;
pub mod segments;
pub mod syscalls;
pub mod tcp;
pub mod watched;

use std::io::{self, Write};

use wirecost_model::observe::{Observed, ProbeReport, ProbeStatus, Slices};
use wirecost_model::program::Side;
use wirecost_model::run::{Cpu, Crypto, HostRow, Io, Latency, Run, WindowKind};
use wirecost_model::status::Status;

use columns::{Table, number, text};
pub use look::Look;
use quantity::{
    NOT_MEASURED, bit_rate, bytes, count, counted, cpus, cycles, latency, or_dash, percent, rate,
    seconds,
};
pub use report::Lines;

/// Width of the labels of the headline figures.
const LABEL: usize = 14;

/// Writes the table of a run.
pub fn write(out: &mut dyn Write, run: &Run, look: &Look) -> io::Result<()> {
    writeln!(out, "{}", look.title(&title(run)))?;
    headline(out, run, look)?;
    cost(out, run, look)?;
    phases(out, run, look)?;
    flowops(out, run, look)?;
    settings(out, run, look)?;
    observe(out, run, look)?;
    warnings(out, run, look)?;
    error(out, run, look)
}

fn title(run: &Run) -> String {
    let window = match &run.window {
        Some(window) => {
            let length = seconds(window.seconds);
            match window.kind {
                WindowKind::Duration if window.ramp_seconds > 0.0 => {
                    let ramp = seconds(window.ramp_seconds);
                    format!("window of {length} after a ramp of {ramp}")
                }
                WindowKind::Duration => format!("window of {length}"),
                WindowKind::Iterations => format!("counted whole, {length}"),
            }
        }
        None => "no window".to_owned(),
    };
    format!("{}: {}, {window}", run.profile, run.engine)
}

/// Label and text, the text wrapped beside the label.
fn figure(out: &mut dyn Write, look: &Look, label: &str, text: &str) -> io::Result<()> {
    let mut label = format!("  {label:<LABEL$}");
    for line in look.wrap(LABEL + 2, text) {
        writeln!(out, "{label}{line}")?;
        label = " ".repeat(LABEL + 2);
    }
    Ok(())
}

fn headline(out: &mut dyn Write, run: &Run, look: &Look) -> io::Result<()> {
    if let Some(throughput) = &run.throughput {
        let figures = format!(
            "{:<12} tx {}, rx {}",
            bit_rate(throughput.bits_per_second),
            bit_rate(throughput.tx_bits_per_second),
            bit_rate(throughput.rx_bits_per_second),
        );
        line(out, "throughput", &figures)?;
    }
    if let Some(transactions) = &run.transactions {
        let figures = format!(
            "{:<12} {} in the window",
            rate(transactions.per_second),
            count(transactions.count)
        );
        line(out, "transactions", &figures)?;
    }
    if let Some(operations) = &run.operations {
        let mut figures = format!(
            "{:<12} {} in the window",
            rate(operations.per_second),
            count(operations.count)
        );
        if operations.failed > 0 {
            figures += &format!(
                ", {} failed ({} timed out)",
                count(operations.failed),
                count(operations.timeouts)
            );
        }
        line(out, "operations", &figures)?;
    }
    if run.window.is_some() {
        let figures = run.latency_us.as_ref().map_or_else(
            || format!("{NOT_MEASURED} (no transaction ended in the window)"),
            quantiles,
        );
        figure(out, look, "latency", &figures)?;
    }
    if let Some(connections) = &run.connections {
        let mut figures = format!("{} open", count(connections.open));
        if connections.failed > 0 {
            figures += &format!(", {} failed", count(connections.failed));
        }
        figure(out, look, "connections", &figures)?;
    }
    if let Some(tcp) = &run.tcp {
        let mut figures = match tcp.retransmits {
            Some(number) => counted(number, "retransmit", "retransmits"),
            None => format!("{NOT_MEASURED} retransmits (a host could not tell)"),
        };
        if let (Some(mean), Some(min), Some(max)) = (tcp.rtt_us, tcp.rtt_us_min, tcp.rtt_us_max) {
            figures += &format!(
                ", RTT {} ({} to {}, {})",
                latency(mean),
                latency(min),
                latency(max),
                counted(tcp.rtt_samples, "sample", "samples")
            );
        }
        figure(out, look, "tcp", &figures)?;
    }
    if let Some(datagrams) = &run.datagrams {
        let share = datagrams.lost.max(0) as f64 * 100.0 / datagrams.sent.max(1) as f64;
        let figures = format!(
            "{} sent, {} received, {} lost ({share:.3}%), {} late",
            count(datagrams.sent),
            count(datagrams.received),
            count(u64::try_from(datagrams.lost).unwrap_or(0)),
            count(datagrams.late)
        );
        figure(out, look, "datagrams", &figures)?;
    }
    if let Some(io) = &run.io {
        for (label, figures) in io_figures(io) {
            figure(out, look, label, &figures)?;
        }
    }
    if let Some(crypto) = &run.crypto {
        figure(out, look, "crypto", &crypto_figures(crypto))?;
    }
    // Of one strand it is 1 and says nothing.
    if let Some(fairness) = run.fairness.as_ref().filter(|fairness| fairness.strands > 1) {
        let figures =
            format!("{:.3} Jain's index of {} strands", fairness.jain, count(fairness.strands));
        figure(out, look, "fairness", &figures)?;
    }
    Ok(())
}

/// The share of ciphers in the cost, with its interval.
fn crypto_figures(crypto: &Crypto) -> String {
    if let Some(reason) = &crypto.reason {
        return format!("{NOT_MEASURED} of busy CPU time ({reason})");
    }
    let each = crypto.shares.iter().map(|of| {
        let [share, low, high] =
            [of.share, of.interval.0, of.interval.1].map(|x| percent(x * 100.0));
        let cost = of
            .cycles_per_kbyte
            .map_or_else(String::new, |per_kbyte| format!(", {} cycles/KByte", cycles(per_kbyte)));
        let figures = format!("{share}% of busy CPU time ({low}% to {high}%){cost}");
        match crypto.shares.len() {
            1 => figures,
            _ => format!("{}: {figures}", of.hosts.join(", ")),
        }
    });
    each.collect::<Vec<_>>().join("; ")
}

/// What I/O options did, in the whole phase.
fn io_figures(io: &Io) -> Vec<(&'static str, String)> {
    let mut figures = Vec::new();
    let each = |datagrams: u64, calls: u64| {
        wirecost_model::units::three_digits(datagrams as f64 / calls.max(1) as f64)
    };
    if let Some(of) = &io.zerocopy {
        let copied = of.copied_share.map_or_else(
            || format!("{NOT_MEASURED} copied all the same (none is completed)"),
            |share| {
                format!(
                    "{}% of {} completed ones copied all the same",
                    percent(share * 100.0),
                    count(of.completed)
                )
            },
        );
        let mut text = format!("{}, {copied}", counted(of.calls, "call", "calls"));
        if of.refused > 0 {
            text += &format!(", {} more sent with a copy", count(of.refused));
        }
        figures.push(("zerocopy", text));
    }
    if let Some(of) = &io.sends {
        let (calls, datagrams) = (counted(of.calls, "call", "calls"), each(of.datagrams, of.calls));
        figures.push(("sends", format!("{calls}, {datagrams} datagrams each")));
    }
    if let Some(of) = &io.receives {
        let (calls, datagrams) = (counted(of.calls, "call", "calls"), each(of.datagrams, of.calls));
        let joined = each(of.datagrams, of.messages);
        figures
            .push(("receives", format!("{calls}, {datagrams} datagrams each, {joined} a message")));
    }
    if let Some(dropped) = io.discarded_bytes {
        figures.push(("discard", format!("{} dropped in the kernel", bytes(dropped))));
    }
    if let Some(spliced) = io.spliced_bytes {
        figures.push(("splice", format!("{} through a pipe", bytes(spliced))));
    }
    if let Some(written) = io.sink_bytes {
        figures.push(("sink", format!("{} written to files", bytes(written))));
    }
    figures
}

/// Like [`figure`], for a text that has columns of its own and is short.
fn line(out: &mut dyn Write, label: &str, text: &str) -> io::Result<()> {
    writeln!(out, "  {label:<LABEL$}{text}")
}

fn quantiles(of: &Latency) -> String {
    [("p50", of.p50), ("p90", of.p90), ("p99", of.p99), ("p99.9", of.p999), ("max", of.max)]
        .map(|(name, value)| format!("{name} {}", latency(value)))
        .join(", ")
}

/// A row a host, then a row a machine where that says more than its host's row.
fn cost(out: &mut dyn Write, run: &Run, look: &Look) -> io::Result<()> {
    if run.window.is_none() || run.hosts.is_empty() {
        return Ok(());
    }
    let mut table = Table::new(&[
        text("host", 0),
        text("role", 5),
        text("CPUs", 6),
        number("usr%", 0),
        number("sys%", 0),
        number("irq%", 3),
        number("soft%", 2),
        number("steal%", 4),
        number("idle%", 1),
        number("cycles/KByte", 0),
        number("sent", 8),
        number("received", 7),
    ]);
    let mut reasons: Vec<(String, Vec<&str>)> = Vec::new();
    let mut sources: Vec<&str> = Vec::new();
    let mut because = |name, reason: &Option<String>| {
        let reason = reason.clone().unwrap_or_else(|| "not measured".to_owned());
        match reasons.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, names)) => names.push(name),
            None => reasons.push((reason, vec![name])),
        }
    };
    for host in &run.hosts {
        let mut cells = vec![host.name.clone(), host.role.to_string(), cpus(&host.cpus)];
        // Of CPUs that several hosts use, one row of the machine says all.
        cells.extend(split(host.cpu.as_ref().filter(|_| !shares_cpus(run, host))));
        cells.push(or_dash(host.cycles_per_kbyte, cycles));
        cells.push(or_dash(host.bytes.as_ref(), |b| bytes(b.sent())));
        cells.push(or_dash(host.bytes.as_ref(), |b| bytes(b.received())));
        table.row(cells);
        if host.cycles_per_kbyte.is_none() {
            because(&host.name, &host.cycles_reason);
        }
        sources.extend(host.cpu_source.as_deref());
        sources.extend(host.cycles_source.as_deref());
    }
    for machine in &run.machines {
        let only_host =
            run.hosts.iter().find(|host| machine.hosts.as_slice() == [host.name.as_str()]);
        if only_host.is_some_and(|host| host.cpu == machine.cpu) {
            continue;
        }
        let mut cells =
            vec![machine.name.clone(), "machine".to_owned(), format!("all {}", machine.cpus)];
        cells.extend(split(machine.cpu.as_ref()));
        cells.push(or_dash(machine.cycles_per_kbyte, cycles));
        table.row(cells);
        if machine.cycles_per_kbyte.is_none() {
            because(&machine.name, &machine.cycles_reason);
        }
        sources.extend(machine.cpu_source.as_deref());
        sources.extend(machine.cycles_source.as_deref());
    }
    writeln!(out)?;
    table.write(out, look)?;
    sources.sort_unstable();
    sources.dedup();
    for (reason, names) in reasons {
        let because = format!("{}: {reason}", names.join(", "));
        labelled(out, look, "  -", 4, &because)?;
    }
    let explained: Vec<&str> = sources.into_iter().map(explain).collect();
    if !explained.is_empty() {
        note(out, look, &explained.join("; "))?;
    }
    Ok(())
}

pub(crate) fn shares_cpus(run: &Run, host: &HostRow) -> bool {
    run.hosts.iter().any(|other| {
        host.shares_machine_with.contains(&other.name)
            && other.cpus.iter().any(|cpu| host.cpus.contains(cpu))
    })
}

fn split(cpu: Option<&Cpu>) -> Vec<String> {
    match cpu {
        Some(cpu) => {
            [cpu.usr, cpu.sys, cpu.irq, cpu.softirq, cpu.steal, cpu.idle].map(percent).to_vec()
        }
        None => vec![NOT_MEASURED.to_owned(); 6],
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

fn note(out: &mut dyn Write, look: &Look, text: &str) -> io::Result<()> {
    for line in look.wrap(2, text) {
        writeln!(out, "  {}", look.heading(&line))?;
    }
    Ok(())
}

/// One phase is the headline itself.
fn phases(out: &mut dyn Write, run: &Run, look: &Look) -> io::Result<()> {
    if run.phases.len() < 2 && run.window.is_some() || run.phases.is_empty() {
        return Ok(());
    }
    let mut table = Table::new(&[
        text("phase", 0),
        text("until", 5),
        number("length", 1),
        number("throughput", 0),
        number("transactions", 0),
        number("operations", 4),
        number("failed", 2),
        number("p50", 3),
        number("p99", 3),
    ]);
    for phase in &run.phases {
        let kind = match phase.kind {
            WindowKind::Duration => "duration",
            WindowKind::Iterations => "iterations",
        };
        let of = phase.latency_us.as_ref();
        table.row(vec![
            format!("{}{}", phase.phase + 1, if phase.headline { "*" } else { "" }),
            kind.to_owned(),
            seconds(phase.seconds),
            bit_rate(phase.bits_per_second),
            rate(phase.transactions_per_second),
            count(phase.operations),
            count(phase.failed),
            or_dash(of, |of| latency(of.p50)),
            or_dash(of, |of| latency(of.p99)),
        ]);
    }
    writeln!(out)?;
    table.write(out, look)?;
    if run.phases.iter().any(|phase| phase.headline) {
        note(out, look, "* gives the figures above")?;
    }
    Ok(())
}

/// The master's; the peer's are their mirror. One flowop is the transaction itself.
fn flowops(out: &mut dyn Write, run: &Run, look: &Look) -> io::Result<()> {
    let rows = run.flowops.iter().filter(|row| row.side == Side::Master);
    if rows.clone().count() < 2 {
        return Ok(());
    }
    let groups = rows.clone().any(|row| row.group > 0);
    let mut table = Table::new(&[
        text("flowop", 0),
        number("group", 4),
        number("count", 0),
        number("bytes", 0),
        number("failed", 2),
        number("p50", 0),
        number("p99", 0),
        number("p99.9", 3),
        number("max", 1),
    ]);
    for row in rows {
        let of = row.latency_us.as_ref();
        let group = if groups { row.group.to_string() } else { String::new() };
        table.row(vec![
            row.kind.clone(),
            group,
            count(row.count),
            bytes(row.bytes),
            count(row.failed),
            or_dash(of, |of| latency(of.p50)),
            or_dash(of, |of| latency(of.p99)),
            or_dash(of, |of| latency(of.p999)),
            or_dash(of, |of| latency(of.max)),
        ]);
    }
    writeln!(out)?;
    table.write(out, look)
}

/// What probes saw, what could not be had, and what looking cost.
fn observe(out: &mut dyn Write, run: &Run, look: &Look) -> io::Result<()> {
    let Some(observe) = &run.observe else { return Ok(()) };
    for host in &observe.hosts {
        // What came along for little, by /proc alone, is in the document; here it would hide the rest.
        let is = |probe: &str, name: &str| {
            probe == name || probe.strip_suffix(":sliced").is_some_and(|probe| probe == name)
        };
        let wanted = |name: &str| {
            observe.passes.iter().any(|pass| pass.probes.iter().any(|probe| is(probe, name)))
        };
        sections(out, host, observe.hosts.len() > 1, &wanted, look)?;
    }
    if let Some(section) = observe.hosts.iter().find_map(|host| host.cpu.as_ref()) {
        cpu::processes(out, section, look)?;
    }
    writeln!(out)?;
    reports(out, &observe.probes, look)?;
    let cost = match (&observe.cost, &observe.cost_reason) {
        (Some(cost), _) => {
            let percent = |ratio: f64| format!("{:.1}%", (1.0 - ratio) * 100.0);
            let interval = cost.interval.map_or_else(String::new, |(low, high)| {
                format!(" (95% interval {} to {})", percent(high), percent(low))
            });
            let against = seconds(cost.unobserved_seconds);
            let verdict = match cost.interval {
                // Looking makes nothing faster.
                Some((low, _)) if low > 1.0 => {
                    "; what was faster in the window was so for another reason"
                }
                Some((low, high)) if low <= 1.0 && high >= 1.0 => "; no difference shows",
                Some(_) => "",
                None => "; of so few intervals, which is no more than a guess",
            };
            format!(
                "observing cost {}{interval} of throughput, against {against} just before and \
                 after{verdict}",
                percent(cost.ratio),
            )
        }
        (None, reason) => {
            let reason = reason.as_deref().unwrap_or("not measured");
            format!("what observing cost is not known: {reason}")
        }
    };
    note(out, look, &cost)
}

/// Says which parts of the window a table is of, if not of all.
fn slices(out: &mut dyn Write, of: Option<Slices>, look: &Look) -> io::Result<()> {
    let Some(slices) = of else { return Ok(()) };
    let number = counted(slices.count.into(), "slice", "slices");
    let (all, share) = (seconds(slices.seconds), percent(slices.percent));
    note(out, look, &format!("counted in {number} of the window, {all} together ({share}%)"))
}

/// The sections of one host, in the order of the probes.
pub fn sections(
    out: &mut dyn Write,
    host: &Observed,
    named: bool,
    wanted: &dyn Fn(&str) -> bool,
    look: &Look,
) -> io::Result<()> {
    let of = if named { format!(" of {}", host.host) } else { String::new() };
    if let Some(section) = &host.cpu {
        cpu::write(out, section, &of, look)?;
    }
    if let Some(section) = host.interrupts.as_ref().filter(|_| wanted("interrupts")) {
        interrupts::write(out, section, &of, look)?;
    }
    if let Some(section) = host.segments.as_ref().filter(|_| wanted("segments")) {
        heading(out, "segments", &of, look)?;
        segments::write(out, section, look)?;
    }
    if let Some(section) = host.tcp.as_ref().filter(|_| wanted("tcp")) {
        heading(out, "TCP", &of, look)?;
        tcp::write(out, section, look)?;
    }
    if let Some(section) = host.functions.as_ref().filter(|_| wanted("functions")) {
        heading(out, "functions", &of, look)?;
        functions::write(out, section, look)?;
    }
    if let Some(section) = host.syscalls.as_ref().filter(|_| wanted("syscalls")) {
        syscalls::write(out, section, &of, look)?;
    }
    Ok(())
}

/// A line above tables that do not say of whom they are.
fn heading(out: &mut dyn Write, name: &str, of: &str, look: &Look) -> io::Result<()> {
    writeln!(out, "\n  {}", look.title(&format!("{name}{of}")))
}

/// Probes that could not do all they are for, each with the reason.
pub fn reports(out: &mut dyn Write, probes: &[ProbeReport], look: &Look) -> io::Result<()> {
    for report in probes {
        let how = match report.status {
            ProbeStatus::Ready => continue,
            ProbeStatus::Partial => "in part",
            ProbeStatus::No => "not measured",
        };
        let reason = report.reason.as_deref().unwrap_or_default();
        let text = format!("{} ({}): {how}: {reason}", report.name, report.host);
        labelled(out, look, "  -", 4, &text)?;
    }
    let missed: u64 = probes.iter().map(|report| report.cost.recursion_misses).sum();
    if missed > 0 {
        let text = format!(
            "the kernel left out {} runs of probes that were under way already: counts are that \
             much too low",
            count(missed)
        );
        labelled(out, look, "  -", 4, &text)?;
    }
    let lost: u64 = probes.iter().map(|report| report.cost.lost).sum();
    if lost > 0 {
        labelled(out, look, "  -", 4, &format!("{} samples were lost", count(lost)))?;
    }
    Ok(())
}

fn settings(out: &mut dyn Write, run: &Run, look: &Look) -> io::Result<()> {
    if run.settings.is_empty() {
        return Ok(());
    }
    let mut table = Table::new(&[
        text("setting", 0),
        text("host", 0),
        number("asked", 0),
        number("granted", 0),
    ]);
    for setting in &run.settings {
        table.row(vec![
            setting.name.clone(),
            setting.host.clone(),
            setting.asked.clone(),
            setting.granted.clone(),
        ]);
    }
    writeln!(out)?;
    table.write(out, look)
}

fn warnings(out: &mut dyn Write, run: &Run, look: &Look) -> io::Result<()> {
    if !run.warnings.is_empty() {
        writeln!(out)?;
    }
    for warning in &run.warnings {
        let label = look.warning("warning:");
        labelled(out, look, &label, "warning: ".len(), &warning.message)?;
    }
    Ok(())
}

fn error(out: &mut dyn Write, run: &Run, look: &Look) -> io::Result<()> {
    let name = match run.status {
        Status::Ok => return Ok(()),
        Status::Failed => "failed:",
        Status::Usage => "usage:",
        Status::Peer => "peer failed:",
        Status::Invalid => "invalid:",
        Status::Interrupted => "interrupted:",
    };
    let message = run.error.as_deref().unwrap_or_default();
    writeln!(out)?;
    labelled(out, look, &look.error(name), name.len() + 1, message)
}

/// `width` is that of the label as seen, with its space.
fn labelled(
    out: &mut dyn Write,
    look: &Look,
    label: &str,
    width: usize,
    text: &str,
) -> io::Result<()> {
    let mut lines = look.wrap(width, text).into_iter();
    writeln!(out, "{label} {}", lines.next().unwrap_or_default())?;
    for line in lines {
        writeln!(out, "{:width$}{line}", "")?;
    }
    Ok(())
}
