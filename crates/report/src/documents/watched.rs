//! What was seen of a host while some other program made the traffic.

use wirecost_model::document::{Cell, Column, Document, Parts, Section, Table};
use wirecost_model::metric::Unit;
use wirecost_model::observe::{CpuSection, ObserveDocument};
use wirecost_model::run::Cpu;
use wirecost_model::units::{cycles, percent, seconds};

use super::{observed, run};

/// The document of a host that was observed.
#[must_use]
pub fn document(watched: &ObserveDocument) -> Document {
    let host = watched.facts.as_ref().map(|facts| facts.hostname.as_str()).unwrap_or_default();
    let title = match watched.seconds {
        Some(length) => format!("{host}: observed for {}", seconds(length)),
        None => format!("{host}: nothing was observed"),
    };
    let mut document = Document::new(&title);
    document.status = watched.status;
    document.error.clone_from(&watched.error);
    let sections = &mut document.sections;
    if let Some(length) = watched.seconds {
        sections.push(figures(watched));
        sections.extend(devices(watched, length));
        for host in &watched.hosts {
            sections.extend(observed::sections(host, false, |_| true));
            sections.extend(host.cpu.as_ref().and_then(CpuSection::processes_document));
        }
    }
    let observer = Section::named("observer", "Observer");
    let observer = Section { blocks: observed::reports(&watched.probes), ..observer };
    sections.extend(observer.filled());
    sections.extend(run::warnings(&watched.warnings));
    document
}

fn figures(watched: &ObserveDocument) -> Section {
    let mut section = Section::named("figures", "");
    if let Some(cpu) = &watched.cpu {
        section.figure("CPU", shares(cpu));
    }
    let what = "cycles/KByte of the device's bytes";
    section.figure(
        "cost",
        match (watched.cycles_per_kbyte, &watched.cycles_reason) {
            (Some(cost), _) => {
                let text = format!("{} {what}", cycles(cost));
                Cell::written(Unit::CyclesPerKByte, cost, text)
            }
            (None, reason) => {
                let reason = reason.as_deref().unwrap_or("not measured");
                Cell::text(format!("unknown: {reason}"))
            }
        },
    );
    let sources = [&watched.cpu_source, &watched.cycles_source];
    let explained: Vec<&str> =
        sources.into_iter().flatten().map(|source| run::explain(source)).collect();
    if !explained.is_empty() {
        section.note(explained.join("; "));
    }
    section
}

fn shares(cpu: &Cpu) -> Parts {
    let shares = [
        ("usr", cpu.usr),
        ("sys", cpu.sys),
        ("irq", cpu.irq),
        ("softirq", cpu.softirq),
        ("steal", cpu.steal),
        ("idle", cpu.idle),
    ];
    let text = shares.map(|(name, share)| format!("{name} {}%", percent(share))).join(", ");
    let with = |parts: Parts, (name, share)| parts.with(name, Unit::Percent, share);
    shares.into_iter().fold(Parts::new(text), with)
}

fn devices(watched: &ObserveDocument, length: f64) -> Option<Section> {
    let mut table = Table::new([
        Column::text("device"),
        Column::number("received"),
        Column::number("rx packets/s").drop_order(1),
        Column::number("rx dropped").drop_order(2),
        Column::number("sent"),
        Column::number("tx packets/s").drop_order(1),
        Column::number("tx dropped").drop_order(2),
    ]);
    let rate = |packets: u64| {
        Cell::rounded(Unit::PerSecond, packets as f64 / length.max(f64::MIN_POSITIVE))
    };
    for device in &watched.devices {
        table.row(vec![
            Cell::text(device.device.as_str()),
            Cell::bytes(device.rx_bytes),
            rate(device.rx_packets),
            Cell::count(device.rx_drops),
            Cell::bytes(device.tx_bytes),
            rate(device.tx_packets),
            Cell::count(device.tx_drops),
        ]);
    }
    let mut section = Section::named("devices", "");
    (!table.rows.is_empty()).then(|| {
        section.table(table);
        section
    })
}
