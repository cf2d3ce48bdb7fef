//! The section `functions`: what each layer costs, and the functions that cost most.

use std::io::{self, Write};

use wirecost_model::observe::FunctionsSection;
use wirecost_model::units::three_digits;

use super::columns::{Table, number, text};
use super::quantity::{count, counted, or_dash, percent};
use super::{Look, note};

/// Functions that are shown; the document has more.
const FUNCTIONS: usize = 15;

/// Writes the section.
///
/// # Errors
/// Those of `out`.
pub fn write(out: &mut dyn Write, section: &FunctionsSection, look: &Look) -> io::Result<()> {
    if section.samples == 0 {
        return note(out, look, "no busy samples: the CPUs were idle, or nothing of this ran");
    }
    layers(out, section, look)?;
    writeln!(out)?;
    functions(out, section, look)?;
    about(out, section, look)
}

fn layers(out: &mut dyn Write, section: &FunctionsSection, look: &Look) -> io::Result<()> {
    let mut table = Table::new(&[
        text("layer", 0),
        number("share of busy", 0),
        number("+-", 1),
        number("cycles/KByte", 2),
    ]);
    for layer in &section.layers {
        table.row(vec![
            layer.layer.clone(),
            share(layer.share),
            half(layer.interval),
            layer.cycles_per_kbyte.map(three_digits).unwrap_or_default(),
        ]);
    }
    if let Some(unmapped) = section.unmapped.filter(|unmapped| *unmapped > 0.0) {
        table.row(vec!["unmapped".to_owned(), share(unmapped)]);
    }
    table.write(out, look)
}

fn functions(out: &mut dyn Write, section: &FunctionsSection, look: &Look) -> io::Result<()> {
    let mut table = Table::new(&[
        text("function", 0),
        text("layer", 2),
        text("module", 4),
        number("exclusive", 0),
        number("+-", 3),
        number("inclusive", 1),
        number("cycles/KByte", 2),
    ]);
    for function in section.functions.iter().take(FUNCTIONS) {
        table.row(vec![
            ascii(&function.name),
            function.layer.clone(),
            ascii(&function.module),
            share(function.exclusive),
            half(function.interval),
            share(function.inclusive),
            function.cycles_per_kbyte.map(three_digits).unwrap_or_default(),
        ]);
    }
    table.write(out, look)
}

fn about(out: &mut dyn Write, section: &FunctionsSection, look: &Look) -> io::Result<()> {
    let mut about = format!(
        "{} at {} Hz, {} in the kernel; +- is half of the 95% interval",
        counted(section.samples, "busy sample", "busy samples"),
        section.hz,
        count(section.kernel_samples),
    );
    // Some virtual machines give no sample of a CPU that was idle just before.
    if let Some(expected) = section.expected_samples.filter(|all| section.samples * 2 < *all) {
        about += &format!(
            "; its busy time asks for {} samples, so this machine does not sample it evenly, and what \
             follows idle time is seen too little",
            count(expected)
        );
    }
    if section.lost > 0 {
        about += &format!("; {} lost", count(section.lost));
    }
    if !section.unmapped_functions.is_empty() {
        let names: Vec<String> =
            section.unmapped_functions.iter().take(3).map(|name| ascii(name)).collect();
        about += &format!("; of no layer: {}", names.join(", "));
    }
    about += "; time with interrupts off is seen where they are switched on again";
    note(out, look, &about)
}

fn share(share: f64) -> String {
    or_dash(Some(share * 100.0), |share| format!("{}%", percent(share)))
}

fn half((low, high): (f64, f64)) -> String {
    percent((high - low) * 50.0)
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
        let mut out = Vec::new();
        write(&mut out, section, &Look::plain(width)).unwrap();
        String::from_utf8(out).unwrap()
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
