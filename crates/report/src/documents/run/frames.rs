//! Where datagrams went, stage by stage.

use wirecost_model::document::{Cell, Column, Section, Table};
use wirecost_model::frames::{Frames, FramesDirection, FramesSource, FramesStage, Stage};
use wirecost_model::metric::Unit;
use wirecost_model::program::Side;
use wirecost_model::run::Run;
use wirecost_model::units::{count, cpus, whole};

/// Intervals that are shown; JSON has all.
const INTERVALS: usize = 60;

/// All stages, and the rates of each interval.
pub(super) fn sections(run: &Run) -> Vec<Section> {
    let Some(frames) = &run.frames else { return Vec::new() };
    let mut sections: Vec<Section> = stages(frames).into_iter().collect();
    sections.extend(by_queue(frames));
    sections.extend(frames.directions.iter().map(intervals));
    sections
}

/// All stages, if datagrams are missing between them.
pub(super) fn summary(run: &Run) -> Vec<Section> {
    let missing = |frames: &&Frames| {
        let mut stages = frames.directions.iter().flat_map(|direction| &direction.stages);
        stages.any(|stage| stage.missing.is_some_and(|missing| missing != 0))
    };
    run.frames.as_ref().filter(missing).and_then(stages).into_iter().collect()
}

fn stages(frames: &Frames) -> Option<Section> {
    let mut table = Table::new([
        Column::text("datagrams"),
        Column::number("total"),
        Column::number("per second").drop_order(1),
        Column::number("missing"),
        Column::text("where"),
        Column::number("packets").drop_order(3),
        Column::number("foreign").drop_order(2),
    ]);
    let is_traced = frames
        .directions
        .iter()
        .flat_map(|direction| &direction.stages)
        .any(|stage| stage.traced.is_some());
    table.columns.extend(is_traced.then(|| Column::text("traced drops").drop_order(1)));
    for direction in &frames.directions {
        for stage in &direction.stages {
            let mut row = vec![
                Cell::text(name(stage.stage, direction.from)),
                Cell::or_dash(stage.datagrams, Cell::count),
                Cell::or_dash(stage.per_second, |rate| Cell::number(Unit::PerSecond, rate)),
                missing(stage),
                Cell::text(places(stage)),
                stage.packets.map_or_else(Cell::empty, Cell::count),
                stage.foreign.map_or_else(Cell::empty, Cell::count),
            ];
            row.extend(is_traced.then(|| traced(stage)));
            table.row(row);
        }
    }
    let mut section = Section::named("frames", "Where datagrams went");
    section.table(table);
    section.note(
        "total: the phase with its ramp and until nothing moved any more; per second: the window",
    );
    if is_traced {
        section.note(
            "traced drops: packets that the probe drops saw dropped in the window; 0 where it saw none",
        );
    }
    match &frames.reason {
        Some(reason) => section.note(format!("nothing of devices: {reason}")),
        None => section.note(in_one_line(frames)),
    }
    section.filled()
}

fn name(stage: Stage, from: Side) -> String {
    let to = from.other();
    match stage {
        Stage::Generated if from == Side::Master => format!("{from} generated"),
        Stage::Generated => format!("{from} answered"),
        Stage::Sent => format!("{from}'s device sent"),
        Stage::Received => format!("{to}'s device received"),
        Stage::ReachedSocket => format!("reached {to}'s socket"),
        Stage::Read => format!("{to} read"),
    }
}

fn missing(stage: &FramesStage) -> Cell {
    match stage.missing {
        None => Cell::empty(),
        Some(missing) => {
            let sign = if missing < 0 { "-" } else { "" };
            let text = format!("{sign}{}", count(missing.unsigned_abs()));
            Cell::written(Unit::Count, missing as f64, text)
        }
    }
}

fn places(stage: &FramesStage) -> String {
    let missing = stage.missing.unwrap_or(0);
    let mut places: Vec<String> = stage
        .places
        .iter()
        .map(|place| match u64::try_from(missing) {
            Ok(all) if all == place.packets => place.place.name().to_owned(),
            _ => format!("{} {}", place.place.name(), count(place.packets)),
        })
        .collect();
    if stage.stage == Stage::Received && places.is_empty() {
        let between = match missing {
            1.. => "between the devices",
            0 => "",
            _ => "more came than were sent",
        };
        places.push(between.to_owned());
    }
    places.join(", ")
}

fn traced(stage: &FramesStage) -> Cell {
    match stage.traced.as_deref() {
        None => Cell::empty(),
        Some([]) => Cell::text("0"),
        Some(all) => {
            let each: Vec<String> = all
                .iter()
                .map(|of| format!("{} {}", of.place.words(), count(of.packets)))
                .collect();
            Cell::text(each.join(", "))
        }
    }
}

/// What queues and CPUs counted in the window, and why others did not.
fn by_queue(frames: &Frames) -> Option<Section> {
    let mut section = Section::named("frame queues", "Packets by queue and CPU");
    let mut queues = Table::new([
        Column::text("host"),
        Column::text("device").drop_order(3),
        Column::number("queue"),
        Column::text("CPUs").drop_order(2),
        Column::number("received"),
        Column::number("per second").drop_order(1),
        Column::number("dropped"),
        Column::number("sent").drop_order(1),
        Column::text("counted by").drop_order(4),
    ]);
    for queue in &frames.queues {
        queues.row(vec![
            Cell::text(queue.host.as_str()),
            Cell::text(queue.device.as_deref().unwrap_or("emulated")),
            Cell::count(queue.queue.into()),
            Cell::text(queue.cpus.as_deref().map_or_else(|| "-".to_owned(), cpus)),
            Cell::or_dash(queue.received, Cell::count),
            Cell::or_dash(queue.received_per_second, |rate| Cell::number(Unit::PerSecond, rate)),
            Cell::or_dash(queue.dropped, Cell::count),
            Cell::or_dash(queue.sent, Cell::count),
            Cell::text(match queue.source {
                FramesSource::Lab => "lab",
                FramesSource::Netdev => "kernel",
                FramesSource::Driver => "driver",
            }),
        ]);
    }
    if !frames.queues.is_empty() {
        section.table(queues);
    }
    let mut by_cpu = Table::new([
        Column::number("CPU"),
        Column::text("hosts"),
        Column::number("received"),
        Column::number("RPS wake-ups").drop_order(1),
        Column::number("backlog drops"),
    ]);
    for cpu in &frames.cpus {
        by_cpu.row(vec![
            Cell::count(cpu.cpu.into()),
            Cell::text(cpu.hosts.join(", ")),
            Cell::count(cpu.received),
            Cell::count(cpu.steered),
            Cell::count(cpu.dropped),
        ]);
    }
    if !frames.cpus.is_empty() {
        section.table(by_cpu);
    }
    if !frames.queues.is_empty() || !frames.cpus.is_empty() {
        section.note(
            "packets of all programs in the window; a CPU counts those of all network namespaces of its machine",
        );
    }
    for reason in &frames.uncounted {
        section.note(format!("not counted: {reason}"));
    }
    section.filled()
}

/// The five numbers of each second that tests of receive-side scaling print, with both readings of the fifth.
fn in_one_line(frames: &Frames) -> String {
    let rate = |from: Side, wanted: Stage| {
        let direction = frames.directions.iter().find(|direction| direction.from == from)?;
        let stage = direction.stages.iter().find(|stage| stage.stage == wanted)?;
        stage.per_second.map(whole)
    };
    let of = |from, stage| rate(from, stage).unwrap_or_else(|| "0".to_owned());
    let there = format!(
        "per second: generated {}; received {}; seen by the peer {}",
        of(Side::Master, Stage::Generated),
        of(Side::Master, Stage::Received),
        of(Side::Master, Stage::Read),
    );
    let answers = frames.directions.iter().any(|direction| direction.from == Side::Peer);
    if !answers {
        return there;
    }
    format!(
        "{there}; answers transmitted {}; answers read {} (sent by its device {})",
        of(Side::Peer, Stage::Generated),
        of(Side::Peer, Stage::Read),
        of(Side::Peer, Stage::Sent)
    )
}

fn intervals(direction: &FramesDirection) -> Section {
    let mut table = Table::new([
        Column::number("start"),
        Column::number("generated"),
        Column::number("sent").drop_order(2),
        Column::number("received").drop_order(1),
        Column::number("reached socket"),
        Column::number("read"),
        Column::number("in flight"),
    ]);
    let rate = |rate: f64| Cell::number(Unit::PerSecond, rate);
    for row in direction.intervals.iter().take(INTERVALS) {
        table.row(vec![
            Cell::written(Unit::Microseconds, row.start * 1e6, format!("{:.2} s", row.start)),
            rate(row.generated),
            Cell::or_dash(row.sent, rate),
            Cell::or_dash(row.received, rate),
            Cell::or_dash(row.reached_socket, rate),
            rate(row.read),
            Cell::written(Unit::Count, row.in_flight as f64, row.in_flight.to_string()),
        ]);
    }
    let (from, to) = (direction.from, direction.from.other());
    let title = format!("Datagrams per second from {from} to {to}");
    let mut section = Section::named("frame rates", &title);
    section.table(table);
    section.note(
        "in flight: generated, and neither read nor counted as dropped at the end of the interval",
    );
    if direction.intervals.len() > INTERVALS {
        section.note(format!(
            "{} further intervals in the JSON",
            direction.intervals.len() - INTERVALS
        ));
    }
    section
}
