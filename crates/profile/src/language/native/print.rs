//! A profile as TOML that parses to the same profile.

use std::fmt::Write as _;
use std::time::Duration;

use wirecost_model::profile::{
    Arrivals, ByStrand, Flowop, Options, Part, Profile, Quantity, Transaction, Until,
};
use wirecost_model::units;

use super::values::IPV4_UDP;
use crate::io_options::ValueType;
use crate::language::options::{self, Form, OptionDef, ValueKind};

/// Writes a profile.
pub(in crate::language) fn print(profile: &Profile) -> String {
    let mut out = String::new();
    if !profile.name.is_empty() {
        let _ = writeln!(out, "name = {}", quoted(&profile.name));
    }
    for (index, group) in profile.groups.iter().enumerate() {
        let begin = if out.is_empty() { "" } else { "\n" };
        let _ = writeln!(out, "{begin}[[group]]");
        if group.name != format!("Group{index}") {
            let _ = writeln!(out, "name = {}", quoted(&group.name));
        }
        let _ = writeln!(out, "strands = {}", group.strands);
        for transaction in &group.transactions {
            write_transaction(&mut out, transaction);
        }
    }
    out
}

fn write_transaction(out: &mut String, transaction: &Transaction) {
    let _ = writeln!(out, "\n[[group.transaction]]");
    let _ = match transaction.until {
        Until::Iterations(iterations) => writeln!(out, "iterations = {iterations}"),
        Until::Duration(duration) => {
            writeln!(out, "duration = {}", quoted(&options::time(duration)))
        }
    };
    let _ = match &transaction.arrivals {
        None => Ok(()),
        Some(Arrivals::Even(rate)) => writeln!(out, "rate = {rate}"),
        Some(Arrivals::Poisson(rate)) => writeln!(out, "rate = {rate}\narrivals = \"poisson\""),
        Some(Arrivals::Trace(trace)) => {
            let key = if trace.intervals { "intervals" } else { "trace" };
            writeln!(out, "arrivals = {{ {key} = {} }}", quoted(&trace.file))
        }
    };
    let all: Vec<Part> = (0..transaction.flowops.len() as u32).map(Part::Flowop).collect();
    let order = if transaction.order.is_empty() { &all } else { &transaction.order };
    out.push_str("flowops = [\n");
    parts(out, order, &transaction.flowops, 1);
    out.push_str("]\n");
}

fn parts(out: &mut String, parts: &[Part], flowops: &[Flowop], depth: usize) {
    let margin = "  ".repeat(depth);
    for part in parts {
        match part {
            Part::Flowop(index) => {
                if let Some(flowop) = flowops.get(*index as usize) {
                    let _ = writeln!(out, "{margin}{},", written(flowop));
                }
            }
            Part::Loop { times, parts } => {
                let _ = writeln!(out, "{margin}{{ loop = {times}, flowops = [");
                self::parts(out, parts, flowops, depth + 1);
                let _ = writeln!(out, "{margin}] }},");
            }
            Part::Mix(choices) => {
                let _ = writeln!(out, "{margin}{{ mix = [");
                for choice in choices {
                    let _ = writeln!(out, "{margin}  {{ weight = {}, flowops = [", choice.weight);
                    self::parts(out, &choice.parts, flowops, depth + 2);
                    let _ = writeln!(out, "{margin}  ] }},");
                }
                let _ = writeln!(out, "{margin}] }},");
            }
        }
    }
}

fn written(flowop: &Flowop) -> String {
    let values: Vec<String> = options::all()
        .iter()
        .filter_map(|option| Some(format!("{} = {}", option.name, value(option, &flowop.options)?)))
        .collect();
    let kind = quoted(&flowop.kind);
    if values.is_empty() { kind } else { format!("{{ type = {kind}, {} }}", values.join(", ")) }
}

fn value(option: &OptionDef, of: &Options) -> Option<String> {
    let text = option.written(of)?;
    Some(match &option.value {
        _ if option.is_flag() => "true".to_owned(),
        ValueKind::Io(option)
            if matches!(option.value(), ValueType::Text | ValueType::Choice(_)) =>
        {
            quoted(&text)
        }
        ValueKind::Size => quantity(of.size.as_ref()?, &bytes),
        ValueKind::Pause => quantity(of.duration.as_ref()?, &time),
        ValueKind::Text { .. } | ValueKind::Unsupported(Form::Text) => quoted(&text),
        _ => bare(&text),
    })
}

fn bytes(bytes: u64) -> String {
    bare(&units::binary(bytes))
}

fn time(nanoseconds: u64) -> String {
    quoted(&options::time(Duration::from_nanos(nanoseconds)))
}

fn quantity(quantity: &Quantity, unit: &dyn Fn(u64) -> String) -> String {
    match quantity {
        Quantity::Fixed(value) => unit(*value),
        Quantity::Random { min, max } => {
            format!("{{ uniform = {{ min = {}, max = {} }} }}", unit(*min), unit(*max))
        }
        Quantity::Lognormal { median, sigma, min, max } => format!(
            "{{ lognormal = {{ median = {}, sigma = {}, min = {}, max = {} }} }}",
            unit(*median),
            *sigma as f64 / 1e6,
            unit(*min),
            unit(*max)
        ),
        Quantity::Exponential { mean, min, max } => format!(
            "{{ exponential = {{ mean = {}, min = {}, max = {} }} }}",
            unit(*mean),
            unit(*min),
            unit(*max)
        ),
        Quantity::Table(values) => {
            // Keys may be bare where they are letters and digits.
            let pairs = values.iter().map(|v| format!("{} = {}", unit(v.value), v.weight));
            format!("{{ table = {{ {} }} }}", pairs.collect::<Vec<_>>().join(", "))
        }
        Quantity::Imix { headers: IPV4_UDP } => "\"imix\"".to_owned(),
        Quantity::Imix { headers } => format!("{{ imix = {{ headers = {headers} }} }}"),
        Quantity::ByStrand(ByStrand::Each(values)) => {
            let values: Vec<String> = values.iter().map(|value| unit(*value)).collect();
            format!("{{ by_strand = [{}] }}", values.join(", "))
        }
        Quantity::ByStrand(ByStrand::Spread { first, last }) => {
            format!("{{ by_strand = {{ from = {}, to = {} }} }}", unit(*first), unit(*last))
        }
        Quantity::ByStrand(ByStrand::Drawn(drawn)) => {
            format!("{{ by_strand = {} }}", self::quantity(drawn, unit))
        }
    }
}

/// A number as it is, everything else as a text.
fn bare(text: &str) -> String {
    let number = super::values::whole(text).is_some_and(|n| n.to_string() == text);
    if number { text.to_owned() } else { quoted(text) }
}

/// A text in which nothing is a variable.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '"' | '\\' => {
                out.push('\\');
                out.push(character);
            }
            '$' if characters.peek() == Some(&'{') => out.push_str("$$"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            control if control.is_control() => {
                let _ = write!(out, "\\u{:04X}", u32::from(control));
            }
            character => out.push(character),
        }
    }
    out.push('"');
    out
}
