//! What a trace holds, and where it is.

use crate::document::{Cell, Section};
use crate::observe::TraceSection;
use crate::units::{count, counted, cpus, latency};

pub(super) fn sections(of: &TraceSection) -> Vec<Section> {
    let mut section = Section::named("trace", "Trace");
    let milliseconds = format!("{:.1} ms", of.seconds * 1e3);
    section.figure("length", milliseconds.as_str());
    section.figure("CPUs", cpus(&of.cpus).as_str());
    for (label, number) in [
        ("switches", of.counts.switches),
        ("wake-ups", of.counts.wakeups),
        ("migrations", of.counts.migrations),
        ("softirqs", of.counts.softirqs),
        ("interrupts", of.counts.interrupts),
    ] {
        section.figure(label, Cell::count(number));
    }
    if let Some(after) = of.full_after_seconds {
        section.note(format!(
            "the buffer ({} events) was full after {}: {}",
            count(of.room),
            latency(after * 1e6),
            counted(of.lost, "later event was lost", "later events were lost"),
        ));
    }
    if of.unobserved > 0 {
        section.note(format!(
            "{} not seen: the kernel did not run the program for them (docs/trace.md)",
            counted(of.unobserved, "switch was", "switches were"),
        ));
    }
    if of.unnamed > 0 {
        section.note("only the first 4,096 tasks have names");
    }
    section.note(
        "--out DIR saves the events as DIR/trace.json: open it in ui.perfetto.dev or chrome://tracing (docs/trace.md)",
    );
    vec![section]
}
