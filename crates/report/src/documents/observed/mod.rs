//! What probes saw of a host, a file for each of its sections.

pub mod cpu;
mod functions;
mod interrupts;
mod segments;
mod syscalls;
mod tcp;

use wirecost_model::document::{Block, Emphasis, Message, Section};
use wirecost_model::observe::{Observed, ProbeReport, ProbeStatus, Slices};
use wirecost_model::units::{count, counted, percent, seconds};

/// One kind of what a probe sees.
struct Kind {
    /// The probe.
    name: &'static str,
    /// The sections where there is anything of it.
    sections: fn(&Observed) -> Option<Vec<Section>>,
}

/// In the order in which they are shown.
const ALL: &[Kind] = &[
    Kind { name: "cpu", sections: |of| of.cpu.as_ref().map(cpu::sections) },
    Kind { name: "interrupts", sections: |of| of.interrupts.as_ref().map(interrupts::sections) },
    Kind { name: "segments", sections: |of| of.segments.as_ref().map(segments::sections) },
    Kind { name: "tcp", sections: |of| of.tcp.as_ref().map(tcp::sections) },
    Kind { name: "functions", sections: |of| of.functions.as_ref().map(functions::sections) },
    Kind { name: "syscalls", sections: |of| of.syscalls.as_ref().map(syscalls::sections) },
];

/// The sections of one host from the probes that are wanted; `named` says whose they are.
pub(super) fn sections(
    host: &Observed,
    named: bool,
    wanted: impl Fn(&str) -> bool,
) -> Vec<Section> {
    let of_probes = ALL.iter().filter(|kind| wanted(kind.name));
    let mut sections: Vec<Section> =
        of_probes.filter_map(|kind| (kind.sections)(host)).flatten().collect();
    if named {
        for section in &mut sections {
            section.title += &format!(" of {}", host.host);
        }
    }
    sections
}

/// Probes that could not do all they are for, each with the reason.
pub(super) fn reports(probes: &[ProbeReport]) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut tell = |label: &str, text: String| {
        blocks.push(Block::Message(Message::new(Emphasis::Plain, label, text)));
    };
    for report in probes {
        let how = match report.status {
            ProbeStatus::Ready => continue,
            ProbeStatus::Partial => "in part",
            ProbeStatus::No => "not measured",
        };
        let reason = report.reason.as_deref().unwrap_or_default();
        tell(&format!("{} ({})", report.name, report.host), format!("{how}: {reason}"));
    }
    let missed: u64 = probes.iter().map(|report| report.cost.recursion_misses).sum();
    if missed > 0 {
        let text = format!(
            "the kernel left out {} runs of probes that were under way already: counts are that \
             much too low",
            count(missed)
        );
        tell("", text);
    }
    let lost: u64 = probes.iter().map(|report| report.cost.lost).sum();
    if lost > 0 {
        tell("", format!("{} samples were lost", count(lost)));
    }
    blocks
}

/// Says which parts of the window a table is of, if not of all.
fn slices(of: Option<Slices>) -> Option<Block> {
    let slices = of?;
    let number = counted(slices.count.into(), "slice", "slices");
    let (all, share) = (seconds(slices.seconds), percent(slices.percent));
    Some(Block::Note(format!("counted in {number} of the window, {all} together ({share}%)")))
}

/// As a terminal without colours shows them.
#[cfg(test)]
fn shown(sections: Vec<Section>, width: usize) -> String {
    use crate::outputs::{Output, Terminal, TerminalStyle};
    use wirecost_model::document::Document;

    let document = Document { sections, ..Document::new("") };
    let mut out = Vec::new();
    Terminal.write(&mut out, &document, &TerminalStyle::plain(width)).unwrap();
    String::from_utf8(out).unwrap()
}
