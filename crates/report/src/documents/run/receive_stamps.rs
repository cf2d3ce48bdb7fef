//! Time from the driver to the application, by host.

use wirecost_model::document::{Cell, Column, Section, Table};
use wirecost_model::receive_stamps::ReceiveStamps;
use wirecost_model::run::{Latency, Run};
use wirecost_model::units::{counted, latency as in_words};

use super::latency;

pub(super) fn sections(run: &Run) -> Vec<Section> {
    let hosts = run.hosts.iter().filter_map(|host| Some((host, host.receive_stamps.as_ref()?)));
    let hosts: Vec<_> = hosts.collect();
    if hosts.is_empty() {
        return Vec::new();
    }
    let mut table = Table::new([
        Column::text("host"),
        Column::number("sockets").drop_order(2),
        Column::number("messages"),
        Column::number("mean").drop_order(3),
        Column::number("p50"),
        Column::number("p90").drop_order(4),
        Column::number("p99"),
        Column::number("p99.9").drop_order(1),
        Column::number("max"),
    ]);
    for (host, stamps) in &hosts {
        let figure = |of: fn(&Latency) -> f64| latency(stamps.delay_us.as_ref().map(of));
        table.row(vec![
            Cell::text(host.name.as_str()),
            Cell::count(stamps.sockets),
            Cell::count(stamps.messages),
            figure(|of| of.mean),
            figure(|of| of.p50),
            figure(|of| of.p90),
            figure(|of| of.p99),
            figure(|of| of.p999),
            figure(|of| of.max),
        ]);
    }
    let mut section = Section::named("receive_stamps", "Time from driver to application");
    section.table(table);
    section.note(
        "from the kernel's receive stamp (SO_TIMESTAMPING) until after the call that read the message; of TCP, from the \
         last segment that the call read",
    );
    for (host, stamps) in hosts {
        notes(stamps).into_iter().for_each(|note| section.note(format!("{}: {note}", host.name)));
    }
    vec![section]
}

/// What the figures of a host leave out, and why.
fn notes(stamps: &ReceiveStamps) -> Vec<String> {
    let mut notes = Vec::new();
    if stamps.messages == 0 {
        notes.push(stamps.no_delay());
    }
    let messages = |number| counted(number, "message", "messages");
    for of in &stamps.unstamped {
        notes.push(format!("{} without a time: {}", messages(of.messages), of.reason.reason()));
    }
    // Without any, the first note says why.
    for of in stamps.not_sampled.iter().filter(|_| stamps.sockets > 0) {
        let sockets = counted(of.sockets, "socket", "sockets");
        notes.push(format!("{sockets} could not be stamped: {}", of.reason.reason()));
    }
    if stamps.negative > 0 {
        notes.push(format!(
            "{} without a time: the stamp was later than the clock, which was set back",
            messages(stamps.negative)
        ));
    }
    if let Some(step) = stamps.clock_step_us {
        let direction = if step > 0.0 { "forward" } else { "back" };
        notes.push(format!(
            "CLOCK_REALTIME was set {direction} by {} during the phase: times of messages that were under way then are \
             wrong by as much; repeat the run",
            in_words(step.abs())
        ));
    }
    if stamps.by_device > 0 {
        notes.push(format!(
            "the device stamped {} too; its clock is another one, so there is no time from it",
            messages(stamps.by_device)
        ));
    }
    notes
}
