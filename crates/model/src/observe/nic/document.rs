//! Devices and their queues on one host.

use crate::document::{Cell, Column, Section, Table};
use crate::metric::Unit;
use crate::observe::{
    Direction, NicDevice, NicDrops, NicQueue, NicSection, PauseFrames, QueueLimit,
};
use crate::units::{bit_rate, count};

/// Queues of a device that have a row.
const QUEUES: usize = 16;

pub(super) fn sections(of: &NicSection) -> Vec<Section> {
    let mut section = Section::named("nic", "Devices");
    if of.devices.is_empty() {
        section.text("the network namespace has no device but lo");
        return vec![section];
    }
    section.table(devices(&of.devices));
    for device in &of.devices {
        notes(&mut section, device);
    }
    let mut all = vec![section];
    let told: Vec<&NicDevice> = of.devices.iter().filter(|of| !of.queues.is_empty()).collect();
    if !told.is_empty() {
        all.push(queues(&told));
    }
    all.extend(standard(&of.devices));
    all
}

/// Standard counters that grew, and frames by length; none where no driver has them.
fn standard(devices: &[NicDevice]) -> Option<Section> {
    let told = || devices.iter().filter_map(|of| Some((of.device.as_str(), of.standard.as_ref()?)));
    told().next()?;
    let mut section = Section::named("nic", "Standard counters");
    let mut table = Table::new([
        Column::text("device"),
        Column::text("group"),
        Column::text("counter"),
        Column::number("count"),
    ]);
    let mut grew = false;
    for (device, of) in told() {
        for counter in of.counters.iter().filter(|counter| counter.count > 0) {
            grew = true;
            table.row(vec![
                Cell::text(device),
                Cell::text(counter.group.words()),
                Cell::text(counter.name.as_str()),
                Cell::count(counter.count),
            ]);
        }
    }
    match grew {
        true => section.table(table),
        false => section.text("none of the counters grew"),
    }
    let mut table = Table::new([
        Column::text("device"),
        Column::text("direction"),
        Column::text("octets"),
        Column::number("frames"),
    ]);
    let mut counted = false;
    for (device, of) in told() {
        for sizes in of.frame_sizes.iter().filter(|sizes| sizes.frames > 0) {
            counted = true;
            table.row(vec![
                Cell::text(device),
                Cell::text(sizes.direction.to_string()),
                Cell::text(match sizes.high {
                    Some(high) => format!("{}-{high}", sizes.low),
                    None => format!("{} and more", sizes.low),
                }),
                Cell::count(sizes.frames),
            ]);
        }
    }
    if counted {
        section.table(table);
    }
    Some(section)
}

fn devices(all: &[NicDevice]) -> Table {
    let mut table = Table::new([
        Column::text("device"),
        Column::text("driver"),
        Column::text("link"),
        Column::text("queues").drop_order(1),
        Column::text("rings rx/tx").drop_order(3),
        Column::text("coalescing rx/tx").drop_order(4),
        Column::number("rx packets").drop_order(2),
        Column::number("tx packets").drop_order(2),
        Column::text("pause rx/tx"),
        Column::number("rx drops"),
        Column::number("tx drops"),
    ]);
    for of in all {
        let settings = &of.settings;
        table.row(vec![
            Cell::text(of.device.as_str()),
            Cell::or_dash(of.driver.as_deref(), Cell::text),
            Cell::text(link(of)),
            Cell::or_dash(settings.channels, |channels| Cell::text(channels.to_string())),
            Cell::or_dash(settings.rings, |rings| Cell::text(format!("{}/{}", rings.rx, rings.tx))),
            Cell::or_dash(settings.coalescing, |of| Cell::text(of.to_string())),
            Cell::count(of.rx_packets),
            Cell::count(of.tx_packets),
            Cell::or_dash(of.pause.as_ref(), |pause| Cell::text(frames(pause))),
            Cell::count(of.rx_drops),
            Cell::count(of.tx_drops),
        ]);
    }
    table
}

fn link(of: &NicDevice) -> String {
    if !of.settings.carrier {
        return "down".to_owned();
    }
    let speed = of.settings.speed_bits_per_second.map(|speed| bit_rate(speed as f64));
    let duplex = match of.settings.full_duplex {
        Some(false) => Some("half duplex".to_owned()),
        _ => None,
    };
    let parts: Vec<String> = speed.into_iter().chain(duplex).collect();
    if parts.is_empty() { "up".to_owned() } else { parts.join(", ") }
}

fn frames(of: &PauseFrames) -> String {
    let number = |frames: Option<u64>| frames.map_or_else(|| "-".to_owned(), count);
    format!("{}/{}", number(of.rx), number(of.tx))
}

/// What of a device does not fit into a table.
fn notes(section: &mut Section, of: &NicDevice) {
    let device = &of.device;
    if !of.drops.is_empty() {
        section.note(format!("{device} dropped: {}", drops(&of.drops)));
    }
    for change in &of.changes {
        section.note(format!("{device} changed during the window: {change}"));
    }
    if let Some(reason) = &of.pause_reason {
        section.note(format!("pause frames of {device}: {reason}"));
    }
    if let Some(reason) = &of.standard_reason {
        section.note(format!("standard counters of {device}: {reason}"));
    }
    if let Some(reason) = &of.queue_reason {
        section.note(format!("queues of {device}: {reason}"));
    }
}

fn drops(all: &[NicDrops]) -> String {
    let text =
        |of: &NicDrops| format!("{} {} {}", of.direction, of.kind.words(), count(of.packets));
    all.iter().map(text).collect::<Vec<_>>().join(", ")
}

fn queues(devices: &[&NicDevice]) -> Section {
    let mut section = Section::named("nic", "Queues");
    let mut table = Table::new([
        Column::text("device"),
        Column::text("queue"),
        Column::number("IRQ").drop_order(2),
        Column::text("CPUs"),
        Column::text("NUMA node").drop_order(3),
        Column::number("packets/s"),
        Column::number("packets").drop_order(1),
        Column::number("drops"),
        Column::text("BQL limit (min-max)").drop_order(2),
    ]);
    let mut hidden = 0;
    for of in devices {
        let idle =
            |queue: &&NicQueue| queue.packets.unwrap_or(0) == 0 && queue.dropped.unwrap_or(0) == 0;
        // Of many queues those without packets tell nothing.
        let many = of.queues.len() > QUEUES;
        let rows: Vec<&NicQueue> =
            of.queues.iter().filter(|queue| !many || !idle(queue)).take(QUEUES).collect();
        hidden += of.queues.len() - rows.len();
        for queue in rows {
            table.row(row(&of.device, queue));
        }
    }
    section.table(table);
    if hidden > 0 {
        section.note(format!("{} more queues are not shown", count(hidden as u64)));
    }
    section
}

fn row(device: &str, of: &NicQueue) -> Vec<Cell> {
    let numbers =
        |all: &Vec<u32>| Cell::text(all.iter().map(u32::to_string).collect::<Vec<_>>().join(","));
    vec![
        Cell::text(device),
        Cell::text(format!("{} {}", of.direction, of.queue)),
        Cell::or_dash(of.irq, |irq| Cell::count(irq.into())),
        Cell::or_dash(of.cpus.as_ref(), numbers),
        Cell::or_dash(of.numa_nodes.as_ref().filter(|nodes| !nodes.is_empty()), numbers),
        Cell::or_dash(of.packets_per_second, |rate| Cell::rounded(Unit::PerSecond, rate)),
        Cell::or_dash(of.packets, Cell::count),
        Cell::or_dash(of.dropped, Cell::count),
        match of.direction {
            Direction::Rx => Cell::empty(),
            Direction::Tx => Cell::or_dash(of.bql, |limit| Cell::text(limits(limit))),
        },
    ]
}

fn limits(of: QueueLimit) -> String {
    let QueueLimit { limit_bytes, limit_min_bytes, limit_max_bytes, .. } = of;
    format!("{} ({}-{})", count(limit_bytes), count(limit_min_bytes), count(limit_max_bytes))
}
