//! The hardware of one host.

use std::collections::BTreeMap;

use crate::document::{Cell, Column, Section, Table};
use crate::metric::Unit;
use crate::observe::{
    ClockSource, CpuHardware, HardwareSection, IdleShare, ResidencyScope, StateResidency,
};
use crate::units::{bytes, count, counted, percent};

/// CPUs that have a row.
const CPUS: usize = 32;
/// Idle states of a CPU that are told.
const STATES: usize = 4;

pub(super) fn sections(of: &HardwareSection) -> Vec<Section> {
    let mut section = Section::named("host", "Host hardware");
    let known = |cpu: &CpuHardware| cpu.clock.is_some() || cpu.idle_states.is_some();
    if of.cpus.iter().any(known) {
        section.table(cpus(of));
        if of.cpus.len() > CPUS {
            section.note(format!("{} more CPUs are not shown", of.cpus.len() - CPUS));
        }
    }
    if let Some(all) = &of.residency {
        section.table(residency(all));
    }
    if of.clock_source == Some(ClockSource::Cpufreq) {
        section
            .note("clocks are readings of cpufreq, which on some machines are requested, not actual frequencies");
    }
    if let Some(change) = of.clock_change {
        let way = if change.to_ghz < change.from_ghz { "fell" } else { "rose" };
        section.note(format!(
            "the clock {way} from {:.2} to {:.2} GHz within the window, at {:.1} s",
            change.from_ghz, change.to_ghz, change.seconds
        ));
    }
    let settings = &of.settings;
    if let Some(governors) = &settings.governors {
        section.figure("governor", Cell::text(governors.join(", ")));
    }
    if let Some(turbo) = settings.turbo {
        section.figure("turbo", Cell::text(if turbo { "on" } else { "off" }));
    }
    for change in &of.changes {
        section.note(format!("changed during the window: {change}"));
    }
    if let Some(of) = of.throttling {
        let time = of.milliseconds.map(|ms| format!(", {} ms in the most affected one", count(ms)));
        let (cores, packages) = (count(of.core_events), count(of.package_events));
        let time = time.filter(|_| of.core_events + of.package_events > 0).unwrap_or_default();
        let text = format!("cores {cores} times, packages {packages} times{time}");
        section.figure("thermal throttling", Cell::text(text));
    }
    for power in of.power.iter().flatten() {
        let label = format!("power of {}", power.domain);
        section.figure(label, Cell::number(Unit::Watts, power.watts));
    }
    if let Some(memory) = of.memory {
        let rate = |per_second: f64| format!("{}/s", bytes(per_second as u64));
        section.figure("memory read", Cell::text(rate(memory.read_bytes_per_second)));
        section.figure("memory written", Cell::text(rate(memory.write_bytes_per_second)));
    }
    let reasons = [
        ("clock", &of.clock_reason),
        ("idle states", &of.idle_reason),
        ("C-states", &of.residency_reason),
        ("throttling", &of.throttling_reason),
        ("power", &of.power_reason),
        ("memory bandwidth", &of.memory_reason),
    ];
    let told = reasons.iter().filter_map(|(what, reason)| Some((*what, reason.as_ref()?)));
    let unknown: Vec<String> = told.map(|(what, reason)| format!("{what} ({reason})")).collect();
    if !unknown.is_empty() {
        section.note(format!("not measured: {}", unknown.join("; ")));
    }
    vec![section]
}

fn cpus(of: &HardwareSection) -> Table {
    let mut table = Table::new([
        Column::text("CPU"),
        Column::number("min GHz").drop_order(1),
        Column::number("mean GHz"),
        Column::number("max GHz").drop_order(1),
        Column::number("busy%").drop_order(2),
        Column::text("idle states, % of the window"),
    ]);
    let ghz = |value: f64| Cell::written(Unit::GigaHertz, value, format!("{value:.2}"));
    for cpu in of.cpus.iter().take(CPUS) {
        table.row(vec![
            Cell::text(cpu.cpu.to_string()),
            Cell::or_dash(cpu.clock, |clock| ghz(clock.min_ghz)),
            Cell::or_dash(cpu.clock, |clock| ghz(clock.mean_ghz)),
            Cell::or_dash(cpu.clock, |clock| ghz(clock.max_ghz)),
            Cell::or_dash(cpu.busy_percent, Cell::percent),
            Cell::or_dash(cpu.idle_states.as_ref(), |states| Cell::text(idle(states))),
        ]);
    }
    table
}

/// A row for each state, over all cores or packages.
fn residency(all: &[StateResidency]) -> Table {
    let mut rows: BTreeMap<(ResidencyScope, &str), Vec<f64>> = BTreeMap::new();
    for of in all {
        rows.entry((of.scope, &of.state)).or_default().push(of.percent);
    }
    let mut rows: Vec<_> = rows.into_iter().collect();
    // C10 after C8.
    rows.sort_by_key(|((scope, state), _)| (*scope, state.len(), *state));
    let mut table = Table::new([
        Column::text("C-state"),
        Column::text("of"),
        Column::number("mean%"),
        Column::number("min%").drop_order(1),
        Column::number("max%").drop_order(1),
    ]);
    for ((scope, state), percents) in rows {
        let [one, several] = scope.words();
        let mean = percents.iter().sum::<f64>() / percents.len() as f64;
        table.row(vec![
            Cell::text(state),
            Cell::text(counted(percents.len() as u64, one, several)),
            Cell::percent(mean),
            Cell::percent(percents.iter().copied().fold(f64::INFINITY, f64::min)),
            Cell::percent(percents.iter().copied().fold(0.0, f64::max)),
        ]);
    }
    table
}

/// Those with most time first.
fn idle(states: &[IdleShare]) -> String {
    let mut used: Vec<&IdleShare> = states.iter().filter(|state| state.entries > 0).collect();
    used.sort_by(|a, b| b.percent.total_cmp(&a.percent));
    if used.is_empty() {
        return "none".to_owned();
    }
    let text = |of: &&IdleShare| format!("{} {}", of.state, percent(of.percent));
    used.iter().take(STATES).map(text).collect::<Vec<_>>().join(", ")
}
