//! What a person reads after a host was observed.

use std::io::{self, Write};

use wirecost_model::observe::Watched;

use super::columns::{Table, number, text};
use super::quantity::{bytes, count, seconds};
use super::{Look, cpu, cycles, explain, figure, labelled, note, percent, reports, sections};

/// Writes the tables of a host that was observed.
pub fn write(out: &mut dyn Write, document: &Watched, look: &Look) -> io::Result<()> {
    let host = document.facts.as_ref().map(|facts| facts.hostname.as_str()).unwrap_or_default();
    let Some(length) = document.seconds else {
        writeln!(out, "{}", look.title(&format!("{host}: nothing was observed")))?;
        return reports(out, &document.probes, look);
    };
    writeln!(out, "{}", look.title(&format!("{host}: observed for {}", seconds(length))))?;
    if let Some(cpu) = &document.cpu {
        let shares = format!(
            "usr {}%, sys {}%, irq {}%, softirq {}%, steal {}%, idle {}%",
            percent(cpu.usr),
            percent(cpu.sys),
            percent(cpu.irq),
            percent(cpu.softirq),
            percent(cpu.steal),
            percent(cpu.idle)
        );
        figure(out, look, "CPU", &shares)?;
    }
    let cost = match (document.cycles_per_kbyte, &document.cycles_reason) {
        (Some(cost), _) => format!("{} cycles/KByte of the device's bytes", cycles(cost)),
        (None, reason) => format!("not known: {}", reason.as_deref().unwrap_or("not measured")),
    };
    figure(out, look, "cost", &cost)?;
    let sources = [&document.cpu_source, &document.cycles_source];
    let explained: Vec<&str> =
        sources.into_iter().flatten().map(|source| explain(source)).collect();
    if !explained.is_empty() {
        note(out, look, &explained.join("; "))?;
    }
    devices(out, document, length, look)?;
    for host in &document.hosts {
        sections(out, host, false, &|_| true, look)?;
        if let Some(section) = &host.cpu {
            cpu::processes(out, section, look)?;
        }
    }
    reports(out, &document.probes, look)?;
    for warning in &document.warnings {
        labelled(out, look, &look.warning("warning:"), "warning: ".len(), &warning.message)?;
    }
    Ok(())
}

fn devices(out: &mut dyn Write, document: &Watched, length: f64, look: &Look) -> io::Result<()> {
    if document.devices.is_empty() {
        return Ok(());
    }
    let mut table = Table::new(&[
        text("device", 0),
        number("received", 0),
        number("packets/s", 1),
        number("dropped", 2),
        number("sent", 0),
        number("packets/s", 1),
        number("dropped", 2),
    ]);
    let rate =
        |packets: u64| count((packets as f64 / length.max(f64::MIN_POSITIVE)).round() as u64);
    for device in &document.devices {
        table.row(vec![
            device.device.clone(),
            bytes(device.rx_bytes),
            rate(device.rx_packets),
            count(device.rx_drops),
            bytes(device.tx_bytes),
            rate(device.tx_packets),
            count(device.tx_drops),
        ]);
    }
    writeln!(out)?;
    table.write(out, look)
}
