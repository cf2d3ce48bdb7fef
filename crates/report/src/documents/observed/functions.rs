//! What each layer costs, and the functions that cost most.

use wirecost_model::document::{Cell, Column, Section, Table};
use wirecost_model::metric::Unit;
use wirecost_model::observe::FunctionsSection;
use wirecost_model::units::{count, counted, percent, three_digits};

/// Functions that are shown; the record has more.
const FUNCTIONS: usize = 15;

#[must_use]
pub fn sections(of: &FunctionsSection) -> Vec<Section> {
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
        Column::number("+-").dispensable(1),
        Column::number("cycles/KByte").dispensable(2),
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
        Column::text("layer").dispensable(2),
        Column::text("module").dispensable(4),
        Column::number("exclusive"),
        Column::number("+-").dispensable(3),
        Column::number("inclusive").dispensable(1),
        Column::number("cycles/KByte").dispensable(2),
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
    // Some virtual machines give no sample of a CPU that was idle just before.
    if let Some(expected) = of.expected_samples.filter(|all| of.samples * 2 < *all) {
        about += &format!(
            "; its busy time asks for {} samples, so this machine does not sample it evenly, and what \
             follows idle time is seen too little",
            count(expected)
        );
    }
    if of.lost > 0 {
        about += &format!("; {} lost", count(of.lost));
    }
    if !of.unmapped_functions.is_empty() {
        let names: Vec<String> =
            of.unmapped_functions.iter().take(3).map(|name| ascii(name)).collect();
        about += &format!("; of no layer: {}", names.join(", "));
    }
    about + "; time with interrupts off is seen where they are switched on again"
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
    use wirecost_model::observe::{FunctionShare, LayerShare};

    use super::*;

    fn section() -> FunctionsSection {
        let layer = |name: &str, share: f64, cycles| LayerShare {
            layer: name.to_owned(),
            share,
            interval: (share - 0.012, share + 0.014),
            cycles_per_kbyte: cycles,
        };
        let function = |name: &str, layer: &str, exclusive: f64, inclusive: f64| FunctionShare {
            name: name.to_owned(),
            layer: layer.to_owned(),
            module: "kernel".to_owned(),
            exclusive,
            inclusive,
            interval: (exclusive - 0.01, exclusive + 0.01),
            cycles_per_kbyte: Some(exclusive * 800.0),
        };
        FunctionsSection {
            hz: 99,
            samples: 1980,
            kernel_samples: 1900,
            user_samples: 80,
            expected_samples: Some(1_000),
            lost: 0,
            layers: vec![
                layer("copy", 0.412, Some(329.6)),
                layer("TCP/UDP", 0.2, Some(160.0)),
                layer("netfilter", 0.001, Some(0.8)),
            ],
            functions: vec![
                function("_copy_from_iter", "copy", 0.3, 0.31),
                function(
                    "core::ptr::drop_in_place<alloc::vec::Vec<u8>>",
                    "application",
                    0.02,
                    0.02,
                ),
                function("do_syscall_64", "syscall entry", 0.0, 0.95),
            ],
            unmapped: Some(0.004),
            unmapped_functions: vec!["odd_function".to_owned()],
            ..FunctionsSection::default()
        }
    }

    fn shown(section: &FunctionsSection, width: usize) -> String {
        super::super::shown(sections(section), width)
    }

    #[test]
    fn tables() {
        insta::assert_snapshot!("functions_80", shown(&section(), 80));
        insta::assert_snapshot!("functions_120", shown(&section(), 120));
        insta::assert_snapshot!("functions_none", shown(&FunctionsSection::default(), 80));
    }

    #[test]
    fn lines_fit_and_what_is_not_known_is_not_shown() {
        let mut unknown = section();
        unknown.with_cost(None);
        unknown.functions[0].name = "f\u{e9}e".to_owned();
        for width in 80..140 {
            let text = shown(&unknown, width);
            assert!(text.is_ascii() && !text.contains("KByte"));
            assert!(text.lines().all(|line| line.len() <= width), "{text}");
        }
    }
}
