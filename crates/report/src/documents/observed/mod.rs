//! What probes saw of a host, and how they did. What each section shows is said by its
//! [`wirecost_model::observe::Observation`].

#[cfg(test)]
mod drops;
#[cfg(test)]
mod functions;
#[cfg(test)]
mod hardware;
#[cfg(test)]
mod interrupts;
#[cfg(test)]
mod locks;
#[cfg(test)]
mod nic;
#[cfg(test)]
mod scheduling;
#[cfg(test)]
mod segments;
#[cfg(test)]
mod syscalls;
#[cfg(test)]
mod tcp;

use wirecost_model::document::{Block, Emphasis, Message, Section};
use wirecost_model::observe::{self, HostObservation, ProbeReport, ProbeStatus};
use wirecost_model::units::count;

/// The sections of one host from the probes that are wanted; `named` says whose they are.
pub(super) fn sections(
    host: &HostObservation,
    named: bool,
    wanted: impl Fn(&str) -> bool,
) -> Vec<Section> {
    let kinds = observe::ALL.iter().filter(|kind| wanted(kind.name()));
    let mut sections: Vec<Section> = kinds.flat_map(|kind| kind.document(host)).collect();
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
