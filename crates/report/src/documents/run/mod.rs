//! What a run did, what it cost, what to know of it.
//!
//! The reader's order: headline figures, then a row a host and a machine, a phase, a flowop, the
//! settings as granted, what probes saw, the warnings with what to do, and last, next to the
//! prompt, the error of a run that is not good.

mod cost;
mod figures;
mod frames;
mod host_rows;
mod link;
mod receive_stamps;
mod steadiness;
mod summary;

use std::collections::{BTreeMap, BTreeSet};

use wirecost_model::document::{Cell, Column, Document, Emphasis, Message, Section, Table};
use wirecost_model::metric::Unit;
use wirecost_model::observe::CpuSection;
use wirecost_model::program::Side;
use wirecost_model::run::{ObserverCost, PhaseRow, Run, WindowKind};
use wirecost_model::status::Status;
use wirecost_model::units::seconds;
use wirecost_model::warning::Entry;

use super::observed;
pub(crate) use cost::explain;
pub use summary::summary;

/// The parts of the document, in their order.
const PARTS: &[fn(&Run) -> Vec<Section>] = &[
    figures::sections,
    frames::sections,
    cost::sections,
    link::sections,
    phases,
    flowops,
    receive_stamps::sections,
    settings,
    placements,
    observed_hosts,
    observer,
    |run| warnings(&run.warnings),
    error,
];

/// Everything about a run.
#[must_use]
pub fn document(run: &Run) -> Document {
    let mut document = Document::new(&title(run));
    document.status = run.status;
    document.error.clone_from(&run.error);
    document.sections = PARTS.iter().flat_map(|part| part(run)).collect();
    document
}

fn title(run: &Run) -> String {
    format!("{}: {}, {}", run.profile, run.engine, window(run))
}

fn window(run: &Run) -> String {
    match &run.window {
        Some(window) => {
            let length = seconds(window.seconds);
            match window.kind {
                WindowKind::Duration if window.ramp_seconds > 0.0 => {
                    let ramp = seconds(window.ramp_seconds);
                    format!("window of {length} after a ramp of {ramp}")
                }
                WindowKind::Duration => format!("window of {length}"),
                WindowKind::Iterations => format!("entire phase, {length}"),
            }
        }
        None => "no window".to_owned(),
    }
}

/// One phase is the headline itself. Where none was measured, the error says why.
fn phases(run: &Run) -> Vec<Section> {
    let measured = run.phases.iter().any(|phase| phase.reason.is_none());
    if run.phases.len() < 2 && run.window.is_some() || !measured {
        return Vec::new();
    }
    let mut table = Table::new([
        Column::text("phase"),
        Column::text("until").drop_order(5),
        Column::number("length").drop_order(1),
        Column::number("throughput"),
        Column::number("transactions"),
        Column::number("operations").drop_order(4),
        Column::number("failed").drop_order(2),
        Column::number("p50").drop_order(3),
        Column::number("p99").drop_order(3),
    ]);
    for phase in &run.phases {
        let kind = match phase.kind {
            WindowKind::Duration => "duration",
            WindowKind::Iterations => "iterations",
        };
        let of = phase.latency_us.as_ref();
        let measured = phase.reason.is_none().then_some(phase);
        let number = |unit, value: fn(&PhaseRow) -> f64| {
            Cell::or_dash(measured.map(value), |value| Cell::number(unit, value))
        };
        let count = |value: fn(&PhaseRow) -> u64| Cell::or_dash(measured.map(value), Cell::count);
        table.row(vec![
            Cell::text(format!("{}{}", phase.phase + 1, if phase.headline { "*" } else { "" })),
            Cell::text(kind),
            Cell::or_dash(measured.map(|phase| phase.seconds), Cell::seconds),
            number(Unit::BitsPerSecond, |phase| phase.bits_per_second),
            number(Unit::PerSecond, |phase| phase.transactions_per_second),
            count(|phase| phase.operations),
            count(|phase| phase.failed),
            latency(of.map(|of| of.p50)),
            latency(of.map(|of| of.p99)),
        ]);
    }
    let mut section = Section::named("phases", "");
    section.table(table);
    if run.phases.iter().any(|phase| phase.headline) {
        section.note("* headline phase");
    }
    for phase in &run.phases {
        if let Some(reason) = &phase.reason {
            section.note(format!("phase {} was not measured: {reason}", phase.phase + 1));
        }
    }
    vec![section]
}

fn latency(microseconds: Option<f64>) -> Cell {
    Cell::or_dash(microseconds, |us| Cell::number(Unit::Microseconds, us))
}

/// The master's; the peer's are their mirror. One flowop is the transaction itself.
fn flowops(run: &Run) -> Vec<Section> {
    let rows = run.flowops.iter().filter(|row| row.side == Side::Master);
    if rows.clone().count() < 2 {
        return Vec::new();
    }
    let groups = rows.clone().any(|row| row.group > 0);
    let mut table = Table::new([
        Column::text("flowop"),
        Column::number("group").drop_order(4),
        Column::number("count"),
        Column::number("bytes"),
        Column::number("failed").drop_order(2),
        Column::number("p50"),
        Column::number("p99"),
        Column::number("p99.9").drop_order(3),
        Column::number("max").drop_order(1),
    ]);
    for row in rows {
        let of = row.latency_us.as_ref();
        table.row(vec![
            Cell::text(row.kind.as_str()),
            if groups { Cell::count(row.group.into()) } else { Cell::empty() },
            Cell::count(row.count),
            Cell::bytes(row.bytes),
            Cell::count(row.failed),
            latency(of.map(|of| of.p50)),
            latency(of.map(|of| of.p99)),
            latency(of.map(|of| of.p999)),
            latency(of.map(|of| of.max)),
        ]);
    }
    let mut section = Section::named("flowops", "");
    section.table(table);
    vec![section]
}

fn settings(run: &Run) -> Vec<Section> {
    if run.settings.is_empty() {
        return Vec::new();
    }
    let mut table = Table::new([
        Column::text("setting"),
        Column::text("host"),
        Column::number("requested"),
        Column::number("effective"),
    ]);
    for setting in &run.settings {
        table.row(vec![
            Cell::text(setting.name.as_str()),
            Cell::text(setting.host.as_str()),
            Cell::set(&setting.requested),
            Cell::set(&setting.effective),
        ]);
    }
    let mut section = Section::named("settings", "");
    section.table(table);
    vec![section]
}

/// Strands that were placed alike have one row.
fn placements(run: &Run) -> Vec<Section> {
    let Some(placements) = &run.placements else { return Vec::new() };
    let mut rows: BTreeMap<_, (BTreeSet<u32>, [u64; 3])> = BTreeMap::new();
    for strand in placements {
        let key = (&strand.host, &strand.peer, strand.queue, strand.cpu);
        let (arrived_on, [strands, connections, tried]) = rows.entry(key).or_default();
        arrived_on.extend(&strand.arrived_on);
        *strands += 1;
        *connections += strand.connections;
        *tried += strand.connections_tried;
    }
    let mut table = Table::new([
        Column::text("host"),
        Column::text("peer"),
        Column::text("placed on"),
        Column::number("strands"),
        Column::number("connections"),
        Column::number("tried").drop_order(1),
        Column::number("arrived on CPUs").drop_order(2),
    ]);
    for ((host, peer, queue, cpu), (arrived_on, counts)) in rows {
        let place = match (queue, cpu) {
            (_, Some(cpu)) => format!("CPU {cpu}"),
            (Some(queue), None) => format!("queue {queue}"),
            (None, None) => String::new(),
        };
        let arrived_on: Vec<String> = arrived_on.iter().map(u32::to_string).collect();
        let arrived_on = if arrived_on.is_empty() { "-".to_owned() } else { arrived_on.join(",") };
        let mut row = vec![Cell::text(host.as_str()), Cell::text(peer.as_str()), Cell::text(place)];
        row.extend(counts.map(Cell::count));
        row.push(Cell::text(arrived_on));
        table.row(row);
    }
    let mut section = Section::named("placement", "");
    section.table(table);
    vec![section]
}

/// What probes saw of each host.
fn observed_hosts(run: &Run) -> Vec<Section> {
    let Some(observe) = &run.observe else { return Vec::new() };
    // What came along for little, by /proc alone, is in the record; here it would hide the rest.
    let selector = |name: &str| {
        let is = |probe: &String| probe.strip_suffix(":sliced").unwrap_or(probe) == name;
        name == "cpu" || observe.passes.iter().any(|pass| pass.probes.iter().any(is))
    };
    let several = observe.hosts.len() > 1;
    let hosts = observe.hosts.iter();
    let mut sections: Vec<Section> =
        hosts.clone().flat_map(|host| observed::sections(host, several, selector)).collect();
    let processes = hosts.filter_map(|host| host.cpu.as_ref()).next();
    sections.extend(processes.and_then(CpuSection::processes_document));
    sections
}

/// What could not be had, and what looking cost.
pub(super) fn observer(run: &Run) -> Vec<Section> {
    let Some(observe) = &run.observe else { return Vec::new() };
    let mut section = Section::named("observer", "Observer");
    section.blocks = observed::reports(&observe.probes);
    section.note(match (&observe.cost, &observe.cost_reason) {
        (Some(cost), _) => cost_of_observing(cost),
        (None, reason) => {
            let reason = reason.as_deref().unwrap_or("not measured");
            format!("the cost of observing is unknown: {reason}")
        }
    });
    vec![section]
}

fn cost_of_observing(cost: &ObserverCost) -> String {
    let percent = |ratio: f64| format!("{:.1}%", (1.0 - ratio) * 100.0);
    let interval = cost.interval.map_or_else(String::new, |(low, high)| {
        format!(" (95% interval {} to {})", percent(high), percent(low))
    });
    let against = seconds(cost.unobserved_seconds);
    let verdict = match cost.interval {
        // Looking makes nothing faster.
        Some((low, _)) if low > 1.0 => "; the window was faster for another reason",
        Some((low, high)) if low <= 1.0 && high >= 1.0 => "; no detectable difference",
        Some(_) => "",
        None => "; a rough estimate, from few intervals",
    };
    format!(
        "observing cost {}{interval} of throughput, against {against} just before and after{verdict}",
        percent(cost.ratio),
    )
}

/// What spoils a result, one below the other.
pub(super) fn warnings(warnings: &[Entry]) -> Vec<Section> {
    let mut section = Section::named("warnings", "");
    for warning in warnings {
        section.message(Message::new(Emphasis::Warning, "warning", warning.message.as_str()));
    }
    section.filled().into_iter().collect()
}

fn error(run: &Run) -> Vec<Section> {
    let label = match run.status {
        Status::Ok => return Vec::new(),
        Status::Failed => "failed",
        Status::Usage => "usage",
        Status::Peer => "peer failed",
        Status::Invalid => "invalid",
        Status::Interrupted => "interrupted",
    };
    let text = run.error.as_deref().unwrap_or_default();
    let mut section = Section::named("error", "");
    section.message(Message::new(Emphasis::Error, label, text));
    vec![section]
}
