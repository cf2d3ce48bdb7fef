//! The result of a run on one screen: what it moved and at what cost, what limited it, where the CPU time
//! went, and what can invalidate it. [`super::document`] has everything.

use wirecost_analyze::findings;
use wirecost_model::document::{Cell, Column, Document, Emphasis, Message, Parts, Section, Table};
use wirecost_model::metric::Unit;
use wirecost_model::observe::{FunctionsSection, HostObservation};
use wirecost_model::run::{PhaseRow, Run};
use wirecost_model::status::Status;
use wirecost_model::units::{bit_rate, counted, cycles, latency, whole};

use super::{
    cost, cost_of_observing, document, error, figures, frames, phases, receive_stamps, window,
};

/// Layers that are shown of each host; the rest is one figure.
const LAYERS: usize = 5;
/// Hosts whose layers are shown.
const HOSTS: usize = 4;
/// Phases that are shown.
const PHASES: usize = 6;
/// Warnings that are shown.
const WARNINGS: usize = 6;

/// The parts of the summary, in their order.
const PARTS: &[fn(&Run) -> Vec<Section>] = &[
    reason,
    figures::summary,
    frames::summary,
    cost::summary,
    layers,
    drops,
    locks,
    receive_stamps::sections,
    phases_that_moved,
    observing,
    warnings,
];

/// The summary of a run.
#[must_use]
pub fn summary(run: &Run) -> Document {
    let mut document = Document::new(&title(run));
    document.status = run.status;
    document.error.clone_from(&run.error);
    document.sections = PARTS.iter().flat_map(|part| part(run)).collect();
    let more = more(run, &document.sections);
    document.sections.extend(more);
    document
}

/// The figures that a reader looks for first.
fn title(run: &Run) -> String {
    let mut figures = Vec::new();
    let throughput = run.throughput.as_ref();
    let moved = throughput.filter(|throughput| throughput.bits_per_second > 0.0);
    let answers = moved.is_some_and(|moved| moved.tx_bytes > 0 && moved.rx_bytes > 0);
    if let Some(transactions) = run.transactions.as_ref().filter(|_| answers || moved.is_none()) {
        figures.push(format!("{} transactions/s", whole(transactions.per_second)));
    }
    figures.extend(moved.map(|moved| bit_rate(moved.bits_per_second)));
    if let [machine] = run.machines.as_slice()
        && let Some(cost) = machine.cycles_per_kbyte
    {
        figures.push(format!("{} cycles/KByte", cycles(cost)));
    }
    figures.extend(run.latency_us.as_ref().map(|of| format!("p99 latency {}", latency(of.p99))));
    match figures.is_empty() {
        true => run.profile.clone(),
        false => format!("{}: {}", run.profile, figures.join(", ")),
    }
}

/// What limited the run, or why it has no valid result; and what the figures are of.
fn reason(run: &Run) -> Vec<Section> {
    let mut section = Section::named("reason", "");
    for message in error(run).into_iter().flat_map(|section| section.blocks) {
        section.blocks.push(message);
    }
    if run.status == Status::Ok && run.window.is_some() {
        let foreign = run.warnings.iter().any(|warning| warning.code == "foreign-cpu");
        let others = if foreign { " Other programs used CPU time too." } else { "" };
        section.text(findings::saturated(run) + others);
    }
    // A run that was refused has neither.
    if run.window.is_some() || run.status == Status::Ok {
        section.note(format!("{}, {}", run.engine, window(run)));
    }
    vec![section]
}

/// Where the CPUs' busy time went, by layers of the stack.
fn layers(run: &Run) -> Vec<Section> {
    let observed = run.observe.iter().flat_map(|observe| &observe.hosts);
    let sampled: Vec<(&HostObservation, &FunctionsSection)> = observed
        .filter_map(|host| Some((host, host.functions.as_ref().filter(|of| of.samples > 0)?)))
        .collect();
    let mut table = Table::new([Column::text("host"), Column::text("busy CPU time by layer")]);
    for (host, functions) in sampled.iter().take(HOSTS) {
        let whose = if host.covers.len() > 1 { "all" } else { host.host.as_str() };
        table.row(vec![Cell::text(whose), shares(functions)]);
    }
    let mut section = Section::named("layers", "");
    if !table.rows.is_empty() {
        section.table(table);
    }
    if sampled.len() > HOSTS {
        section.note(format!("and {} more hosts", sampled.len() - HOSTS));
    }
    section.filled().into_iter().collect()
}

fn shares(of: &FunctionsSection) -> Cell {
    let (first, others) = of.layers.split_at(of.layers.len().min(LAYERS));
    let mut shares: Vec<(&str, f64)> =
        first.iter().map(|layer| (layer.layer.as_str(), 100.0 * layer.share)).collect();
    let rest = others.iter().map(|layer| layer.share).sum::<f64>() + of.unmapped.unwrap_or(0.0);
    if rest > 0.0 {
        shares.push(("other", 100.0 * rest));
    }
    let texts = shares.iter().map(|(name, share)| format!("{name} {share:.0}%"));
    let text = texts.collect::<Vec<_>>().join(", ");
    let with = |parts: Parts, (name, share)| parts.with(name, Unit::Percent, share);
    shares.into_iter().fold(Parts::new(text), with).into()
}

/// Packets that the kernel dropped, where it was watched.
fn drops(run: &Run) -> Vec<Section> {
    let observed = run.observe.iter().flat_map(|observe| &observe.hosts);
    let dropped = observed.filter_map(|host| Some((host, host.drops.as_ref()?.brief()?)));
    let mut section = Section::named("dropped", "");
    for (host, brief) in dropped.take(HOSTS) {
        let whose = if host.covers.len() > 1 { "all" } else { host.host.as_str() };
        section.message(Message::new(Emphasis::Warning, "dropped", format!("{whose}: {brief}")));
    }
    section.filled().into_iter().collect()
}

/// Locks that were waited for, where it is worth a line of the busy time that was traced.
fn locks(run: &Run) -> Vec<Section> {
    let observed = run.observe.iter().flat_map(|observe| &observe.hosts);
    let waited = observed.filter_map(|host| {
        let busy = &host.cpu.as_ref()?.total;
        let busy = busy.task + busy.irq + busy.softirq;
        Some((host, host.locks.as_ref()?.brief(busy)?))
    });
    let mut section = Section::named("waited", "");
    for (host, brief) in waited.take(HOSTS) {
        let whose = if host.covers.len() > 1 { "all" } else { host.host.as_str() };
        let text = format!("{whose}: {brief}");
        section.message(Message::new(Emphasis::Warning, "waited for locks", text));
    }
    section.filled().into_iter().collect()
}

/// Other phases than that of the headline, where they moved data or could not be measured.
fn phases_that_moved(run: &Run) -> Vec<Section> {
    let tells = |phase: &PhaseRow| {
        !phase.headline && (phase.bits_per_second > 0.0 || phase.reason.is_some())
    };
    let tell = run.phases.iter().any(tells) && run.phases.len() <= PHASES;
    if tell { phases(run) } else { Vec::new() }
}

/// What the probes cost, where that is more than nothing.
fn observing(run: &Run) -> Vec<Section> {
    let cost = run.observe.as_ref().and_then(|observe| observe.cost.as_ref());
    let costly = cost.filter(|cost| match cost.interval {
        Some((_, high)) => high < 1.0,
        None => false,
    });
    let mut section = Section::named("observing", "");
    if let Some(cost) = costly {
        section.note(cost_of_observing(cost));
    }
    section.filled().into_iter().collect()
}

fn warnings(run: &Run) -> Vec<Section> {
    let mut briefs: Vec<&str> = Vec::new();
    for warning in &run.warnings {
        let brief = warning.brief.as_deref().unwrap_or(&warning.message);
        if !briefs.contains(&brief) {
            briefs.push(brief);
        }
    }
    let mut section = Section::named("warnings", "");
    for brief in briefs.iter().take(WARNINGS) {
        section.message(Message::new(Emphasis::Warning, "warning", *brief));
    }
    let left = briefs.len().saturating_sub(WARNINGS);
    if left > 0 {
        let text = counted(left as u64, "more warning", "more warnings");
        section.message(Message::new(Emphasis::Warning, "", text));
    }
    section.filled().into_iter().collect()
}

/// Names what only the full document shows.
fn more(run: &Run, shown: &[Section]) -> Option<Section> {
    let mut names: Vec<String> = Vec::new();
    for section in document(run).sections {
        let known = shown.iter().any(|shown| shown.name == section.name) || section.name == "error";
        if !known && !names.contains(&section.name) {
            names.push(section.name);
        }
    }
    if !run.warnings.is_empty() {
        names.push("what to do about warnings".to_owned());
    }
    let text = format!("more with --details: {}", names.join(", "));
    let mut section = Section::named("more", "");
    section.message(Message::new(Emphasis::Muted, "", text));
    (!names.is_empty()).then_some(section)
}
