//! I/O options that contradict each other, or that do nothing where they stand.

use wirecost_model::profile::{Flowop, Quantity};

use super::error::LanguageErrorKind;
use super::note::NoteKind;
use crate::io_options::discard::Discard;
use crate::io_options::gso::Gso;
use crate::io_options::io_depth::IoDepth;
use crate::io_options::o_direct::ODirect;
use crate::io_options::page_cache::{CacheState, PageCache};
use crate::io_options::sink::Sink;
use crate::io_options::sink_io::{SinkCalls, SinkIo};
use crate::io_options::sink_keep::SinkKeep;
use crate::io_options::sink_preallocate::SinkPreallocate;
use crate::io_options::sink_size::SinkSize;
use crate::io_options::sink_sync::SinkSync;
use crate::io_options::source::Source;
use crate::io_options::source_io::{SourceCalls, SourceIo};
use crate::io_options::source_size::SourceSize;
use crate::io_options::splice::Splice;
use crate::io_options::tcp_cork::TcpCork;
use crate::io_options::zerocopy::Zerocopy;
use crate::io_options::{self, IoOption};
use crate::protocols;

fn source_calls(flowop: &Flowop) -> SourceCalls {
    SourceIo.get(&flowop.options).map(SourceCalls::of).unwrap_or_default()
}

fn sink_calls(flowop: &Flowop) -> SinkCalls {
    SinkIo.get(&flowop.options).map(SinkCalls::of).unwrap_or_default()
}

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
        splice && direct && sink && !moves_file,
        "splice",
        "o_direct",
        "what comes out of a pipe is not aligned as O_DIRECT wants it",
    );
    contradicts(
        splice && sink && sink_calls(flowop) == SinkCalls::IoUring && !moves_file,
        "splice",
        "sink_io",
        "splice moves bytes from the socket to the file itself",
    );
    // The failure of a file is no failure of the network: the operation would fail in the middle of a message, and both ends
    // would no longer agree where the next one begins.
    let ends = "a file that cannot be read or written ends the run";
    contradicts(sink && options.canfail, "sink", "canfail", ends);
    contradicts(Source.is_set(options) && options.canfail, "source", "canfail", ends);
    if Source.is_set(options) {
        let sends = source_calls(flowop);
        let own_calls = "source_io says by which calls a source is sent";
        contradicts(Zerocopy.is_set(options), "zerocopy", "source", own_calls);
        contradicts(TcpCork.is_set(options), "tcp_cork", "source", own_calls);
        contradicts(
            sends == SourceCalls::SendFile && direct,
            "source_io",
            "o_direct",
            "sendfile(2) takes pages of the page cache: name source_io=read, splice or io_uring",
        );
        contradicts(
            sends == SourceCalls::Splice && direct && options.verify,
            "verify",
            "o_direct",
            "a spliced file is read a second time for its checksum, by way of the page cache",
        );
        let whole = "only what both ends move completely has one checksum";
        contradicts(options.verify && options.timeout.is_some(), "verify", "timeout", whole);
        let cached = "O_DIRECT bypasses the page cache";
        let state = PageCache.get(options).map(CacheState::of).unwrap_or_default();
        contradicts(direct && state != CacheState::AsIs, "page_cache", "o_direct", cached);
    }
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
    let (source, sink) = (Source.is_set(of), Sink.is_set(of));
    let mut without = |option: &dyn IoOption, is_there: bool, other: &'static str| {
        if option.is_set(of) && !is_there {
            let option = option.name();
            notes.push((option, NoteKind::Without { option, other }));
        }
    };
    for option in [&SinkSize as &dyn IoOption, &SinkSync, &SinkKeep, &SinkPreallocate, &SinkIo] {
        without(option, sink, "sink");
    }
    for option in [&SourceIo as &dyn IoOption, &SourceSize, &PageCache] {
        without(option, source, "source");
    }
    let moves_file = flowop.kind.starts_with("sendfile");
    without(&ODirect, source || sink || moves_file, "source or sink");
    let by_ring = (source && source_calls(flowop) == SourceCalls::IoUring)
        || (sink && sink_calls(flowop) == SinkCalls::IoUring);
    without(&IoDepth, by_ring, "source_io=io_uring or sink_io=io_uring");
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
