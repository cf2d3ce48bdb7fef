//! I/O options that contradict each other, or that do nothing where they stand.

use wirecost_model::profile::{Flowop, Options, Quantity};

use super::error::LanguageErrorKind;
use super::note::NoteKind;
use super::options;
use crate::io_options;
use crate::protocols;

/// What keeps a flowop from being run.
pub(super) fn refused(flowop: &Flowop, protocol: Option<&str>, found: &mut Vec<LanguageErrorKind>) {
    let options = &flowop.options;
    let io = &options.io;
    let moves_file = flowop.kind.starts_with("sendfile");
    // What the protocol leaves out contradicts nothing.
    let acts = |option| {
        let of = io_options::protocols_of(option);
        protocol.zip(of).is_none_or(|(protocol, of)| of.contains(&protocol))
    };
    let mut contradicts = |there: bool, option: &'static str, other: &'static str, why| {
        if there && acts(option) && acts(other) {
            found.push(LanguageErrorKind::Contradiction { option, other, why });
        }
    };
    let nothing_to_compare = "the bytes never come to this program, so it cannot compare them";
    contradicts(options.verify && io.discard, "discard", "verify", nothing_to_compare);
    contradicts(options.verify && io.splice && !moves_file, "splice", "verify", nothing_to_compare);
    let dropped = "what is dropped in the kernel goes nowhere";
    contradicts(io.discard && io.splice, "discard", "splice", dropped);
    contradicts(io.discard && io.sink.is_some(), "discard", "sink", dropped);
    contradicts(
        io.splice && io.o_direct && io.sink.is_some(),
        "splice",
        "o_direct",
        "what comes out of a pipe is not aligned as O_DIRECT wants it",
    );
    if protocol != Some("udp") {
        return;
    }
    let segments = u64::from(io.gso.unwrap_or(1));
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
    let io = &of.io;
    let mut notes = Vec::new();
    if io.sink_size.is_some() && io.sink.is_none() {
        notes.push(("sink_size", NoteKind::WithoutSink { option: "sink_size" }));
    }
    if io.o_direct && io.sink.is_none() && !flowop.kind.starts_with("sendfile") {
        notes.push(("o_direct", NoteKind::WithoutSink { option: "o_direct" }));
    }
    let Some(protocol) = protocol else { return notes };
    for option in options::ALL.iter().filter(|option| is_set(option, of)) {
        if let Some(only) = io_options::protocols_of(option.name)
            && !only.contains(&protocol)
        {
            let (option, protocol) = (option.name, protocol.to_owned());
            notes.push((option, NoteKind::NotOfProtocol { option, protocol, only }));
        }
    }
    notes
}

fn is_set(option: &options::OptionDef, options: &Options) -> bool {
    option.written(options).is_some()
}
