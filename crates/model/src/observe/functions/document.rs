//! What each layer costs, and the functions that cost most.

use crate::document::{Cell, Column, Section, Table};
use crate::metric::Unit;
use crate::observe::FunctionsSection;
use crate::units::{count, counted, percent, three_digits};

/// Functions that are shown; the record has more.
const FUNCTIONS: usize = 15;
/// Fewer hidden samples than one of so many are not worth a reader's time.
const HIDDEN: u64 = 50;
/// Samples are missing if they are more than this share of those expected,
const MISSING: f64 = 0.05;
/// and more than this many standard deviations of a random number of them.
const CHANCE: f64 = 3.0;

pub(super) fn sections(of: &FunctionsSection) -> Vec<Section> {
    let mut section = Section::named("functions", "Functions");
    if of.samples == 0 {
        section.note("no busy samples: the CPUs were idle, or nothing of this ran");
        return vec![section];
    }
    section.table(layers(of));
    section.table(functions(of));
    section.note(about(of));
    vec![section]
}

fn layers(of: &FunctionsSection) -> Table {
    let mut table = Table::new([
        Column::text("layer"),
        Column::number("share of busy"),
        Column::number("+-").drop_order(1),
        Column::number("cycles/KByte").drop_order(2),
    ]);
    for layer in &of.layers {
        table.row(vec![
            Cell::text(layer.layer.as_str()),
            share(layer.share),
            half(layer.interval),
            cost(layer.cycles_per_kbyte),
        ]);
    }
    if let Some(unmapped) = of.unmapped.filter(|unmapped| *unmapped > 0.0) {
        table.row(vec![Cell::text("unmapped"), share(unmapped)]);
    }
    table
}

fn functions(of: &FunctionsSection) -> Table {
    let mut table = Table::new([
        Column::text("function"),
        Column::text("layer").drop_order(2),
        Column::text("module").drop_order(4),
        Column::number("exclusive"),
        Column::number("+-").drop_order(3),
        Column::number("inclusive").drop_order(1),
        Column::number("cycles/KByte").drop_order(2),
    ]);
    for function in of.functions.iter().take(FUNCTIONS) {
        table.row(vec![
            Cell::text(ascii(&function.name)),
            Cell::text(function.layer.as_str()),
            Cell::text(ascii(&function.module)),
            share(function.exclusive),
            half(function.interval),
            share(function.inclusive),
            cost(function.cycles_per_kbyte),
        ]);
    }
    table
}

fn about(of: &FunctionsSection) -> String {
    let mut about = format!(
        "{} at {} Hz, {} in the kernel; +- is half of the 95% interval",
        counted(of.samples, "busy sample", "busy samples"),
        of.hz,
        count(of.kernel_samples),
    );
    if let Some(hidden) = of.hidden_samples.filter(|hidden| hidden * HIDDEN > of.samples) {
        about += &format!(
            "; handlers that interrupt idle CPUs are not sampled (some {} samples)",
            count(hidden)
        );
    }
    about +=
        &of.expected_samples.map_or_else(String::new, |expected| missing(of.samples, expected));
    if of.lost > 0 {
        about += &format!("; {} lost", count(of.lost));
    }
    if !of.unmapped_functions.is_empty() {
        let names: Vec<String> =
            of.unmapped_functions.iter().take(3).map(|name| ascii(name)).collect();
        about += &format!("; without a layer: {}", names.join(", "));
    }
    about + "; time with interrupts disabled appears where they are enabled again"
}

/// Samples that the busy time asks for and that are not there, if they are more than chance.
fn missing(samples: u64, expected: u64) -> String {
    let missing = expected.saturating_sub(samples);
    let (shown, expected) = (count(expected), expected as f64);
    if missing as f64 > expected / 2.0 {
        // Some virtual machines give no sample of a CPU that was idle just before.
        return format!(
            "; {shown} samples were expected from its busy time: this machine does not sample evenly, and code \
             that runs after idle time is underrepresented"
        );
    }
    if missing as f64 > (CHANCE * expected.sqrt()).max(MISSING * expected) {
        return format!(
            "; {shown} samples were expected from its busy time: a timer interrupt that comes late, as in \
             virtual machines, finds the CPU idle again, and code that runs before idle time is \
             underrepresented"
        );
    }
    String::new()
}

fn share(share: f64) -> Cell {
    let share = share * 100.0;
    Cell::written(Unit::Percent, share, format!("{}%", percent(share)))
}

/// How far an interval goes to each side.
fn half((low, high): (f64, f64)) -> Cell {
    Cell::percent((high - low) * 50.0)
}

/// The hosts' cost may be unknown, of which they give the reason.
fn cost(cycles_per_kbyte: Option<f64>) -> Cell {
    let cell = |cycles| Cell::written(Unit::CyclesPerKByte, cycles, three_digits(cycles));
    cycles_per_kbyte.map_or_else(Cell::empty, cell)
}

/// Names come from files of others.
fn ascii(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_graphic() || c == ' ' { c } else { '?' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_that_are_missing_beyond_chance_are_told() {
        for (samples, expected) in [(0, 0), (1_040, 990), (960, 990), (80, 100), (9_600, 10_000)] {
            assert_eq!(missing(samples, expected), "", "{samples} of {expected}");
        }
        assert!(missing(483, 580).contains("; 580 samples were expected"));
        assert!(missing(483, 580).contains("before idle time"));
        assert!(missing(200, 580).contains("after idle time"));
    }
}
