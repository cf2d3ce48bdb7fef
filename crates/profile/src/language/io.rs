//! I/O options that contradict each other, or that do nothing where they stand.

use wirecost_model::profile::{Flowop, Quantity};

use super::error::LanguageErrorKind;
use super::note::NoteKind;
use crate::io_options::discard::Discard;
use crate::io_options::gso::Gso;
use crate::io_options::o_direct::ODirect;
use crate::io_options::sink::Sink;
use crate::io_options::sink_size::SinkSize;
use crate::io_options::splice::Splice;
use crate::io_options::{self, IoOption};
use crate::protocols;

/// What keeps a flowop from being run.
pub(super) fn refused(flowop: &Flowop, protocol: Option<&str>, found: &mut Vec<LanguageErrorKind>) {
    let options = &flowop.options;
    let moves_file = flowop.kind.starts_with("sendfile");
    // What the protocol leaves out contradicts nothing.
    let acts = |option: &str| {
        let of = io_options::find(option).map(|option| option.protocols()).unwrap_or_default();
        protocol.is_none_or(|protocol| of.is_empty() || of.contains(&protocol))
    };
    let [discard, splice, sink, direct] =
        [&Discard as &dyn IoOption, &Splice, &Sink, &ODirect].map(|option| option.is_set(options));
    let mut contradicts = |there: bool, option: &'static str, other: &'static str, why| {
        if there && acts(option) && acts(other) {
            found.push(LanguageErrorKind::Contradiction { option, other, why });
        }
    };
    let nothing_to_compare = "the bytes never come to this program, so it cannot compare them";
    contradicts(options.verify && discard, "discard", "verify", nothing_to_compare);
    contradicts(options.verify && splice && !moves_file, "splice", "verify", nothing_to_compare);
    let dropped = "what is dropped in the kernel goes nowhere";
    contradicts(discard && splice, "discard", "splice", dropped);
    contradicts(discard && sink, "discard", "sink", dropped);
    contradicts(
        splice && direct && sink,
        "splice",
        "o_direct",
        "what comes out of a pipe is not aligned as O_DIRECT wants it",
    );
    if protocol != Some("udp") {
        return;
    }
    let segments = Gso.number(options).unwrap_or(1);
    match &options.size {
        Some(quantity @ (Quantity::Fixed(_) | Quantity::ByStrand(_))) if segments > 1 => {
            let size = quantity.max();
            let longest = protocols::find("udp").and_then(|udp| udp.longest_message());
            let longest = longest.unwrap_or(u64::MAX);
            if size <= longest && size.saturating_mul(segments) > longest {
                found.push(LanguageErrorKind::TooManySegments { size, segments, longest });
            }
        }
        Some(_) if segments > 1 => found.push(LanguageErrorKind::Contradiction {
            option: "gso",
            other: "size",
            why: "the kernel cuts a message into datagrams of one size",
        }),
        _ => {}
    }
}

/// Options that are set and do nothing, each with the reason.
pub(super) fn idle(flowop: &Flowop, protocol: Option<&str>) -> Vec<(&'static str, NoteKind)> {
    let of = &flowop.options;
    let mut notes = Vec::new();
    if SinkSize.is_set(of) && !Sink.is_set(of) {
        notes.push(("sink_size", NoteKind::WithoutSink { option: "sink_size" }));
    }
    if ODirect.is_set(of) && !Sink.is_set(of) && !flowop.kind.starts_with("sendfile") {
        notes.push(("o_direct", NoteKind::WithoutSink { option: "o_direct" }));
    }
    let Some(protocol) = protocol else { return notes };
    for (option, _) in io_options::set_in(&of.io).filter(|(option, _)| option.noted()) {
        let only = option.protocols();
        if !only.is_empty() && !only.contains(&protocol) {
            let (option, protocol) = (option.name(), protocol.to_owned());
            notes.push((option, NoteKind::NotOfProtocol { option, protocol, only }));
        }
    }
    notes
}
