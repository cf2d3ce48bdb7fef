//! Where packets were dropped on one host.

use std::collections::BTreeMap;

use crate::document::{Cell, Column, Section, Table};
use crate::observe::{DropOutcome, DropPlace, DropSite, DropsSection, TracedDrops};
use crate::units::{count, counted};

/// Call sites that have a row.
const SHOWN: usize = 12;
/// Places that are in the one line.
const BRIEF: usize = 3;

pub(super) fn sections(of: &DropsSection) -> Vec<Section> {
    let mut section = Section::named("drops", "Drops");
    if let Some(traced) = &of.traced {
        sites(&mut section, traced);
    }
    counters(&mut section, of);
    if section.blocks.is_empty() {
        section.text("no counter tells of a dropped packet");
    }
    vec![section]
}

/// What was freed, by reason and function.
fn sites(section: &mut Section, of: &TracedDrops) {
    section.figure("lost", Cell::count(of.lost_packets));
    let others = [
        ("purged", DropOutcome::Purged),
        ("duplicates", DropOutcome::Duplicate),
        ("not for this host", DropOutcome::NotForHost),
    ];
    for (label, outcome) in others {
        let number = of.packets(outcome);
        if number > 0 {
            section.figure(label, Cell::count(number));
        }
    }
    let all: Vec<&DropSite> =
        of.sites.iter().filter(|site| site.outcome != DropOutcome::Part).collect();
    if !all.is_empty() {
        section.table(table(&all));
    }
    if all.len() > SHOWN {
        let more = (all.len() - SHOWN) as u64;
        section.note(format!("and {}", counted(more, "further call site", "further call sites")));
    }
    let unattributed: Vec<&DropSite> =
        of.unattributed.iter().filter(|site| site.outcome != DropOutcome::Part).collect();
    if !unattributed.is_empty() {
        section.note("of an unknown network namespace, and in none of the figures above:");
        section.table(table(&unattributed));
    }
    if of.uncounted > 0 {
        let number = counted(of.uncounted, "packet", "packets");
        section.note(format!("{number} not counted: there were too many reasons and call sites"));
    }
}

fn table(sites: &[&DropSite]) -> Table {
    let mut table = Table::new([
        Column::text("place"),
        Column::text("reason"),
        Column::text("function"),
        Column::text("offset").drop_order(4),
        Column::text("outcome").drop_order(2),
        Column::number("packets"),
        Column::number("skbs").drop_order(3),
        Column::number("bytes").drop_order(1),
    ]);
    for site in sites.iter().take(SHOWN) {
        table.row(vec![
            Cell::text(site.place.words()),
            Cell::text(site.reason.as_str()),
            Cell::text(function(site)),
            Cell::text(format!("{:#x}", site.offset)),
            Cell::text(match site.outcome {
                DropOutcome::Lost => "lost",
                DropOutcome::Purged => "purged",
                DropOutcome::Duplicate => "duplicate",
                DropOutcome::NotForHost => "not for this host",
                DropOutcome::Part => "part",
            }),
            Cell::count(site.packets),
            Cell::count(site.skbs),
            Cell::bytes(site.bytes),
        ]);
    }
    table
}

fn function(site: &DropSite) -> String {
    match (&site.function, &site.module) {
        (Some(function), Some(module)) => format!("{function} [{module}]"),
        (Some(function), None) => function.clone(),
        (None, _) => String::new(),
    }
}

/// Counters that grew.
fn counters(section: &mut Section, of: &DropsSection) {
    let grown = grown(of);
    if grown.is_empty() {
        return;
    }
    let mut table = Table::new([
        Column::text("place"),
        Column::text("counter"),
        Column::text("of"),
        Column::number("count"),
    ]);
    for (place, name, whose, number) in grown {
        table.row(vec![
            Cell::text(place.words()),
            Cell::text(name),
            Cell::text(whose),
            Cell::count(number),
        ]);
    }
    section.table(table);
    section.note("a packet may be in several of these counters");
}

/// Place, name, owner and value of each counter that grew.
fn grown(of: &DropsSection) -> Vec<(DropPlace, String, String, u64)> {
    let mut all = Vec::new();
    for device in of.devices.iter().flatten() {
        let own = device.named().into_iter().map(|(name, number)| (name.to_owned(), number));
        let driver = device.driver.iter().map(|drops| (drops.name.clone(), drops.count));
        all.extend(
            own.chain(driver)
                .map(|(name, number)| (DropPlace::Device, name, device.device.clone(), number)),
        );
    }
    for qdisc in of.queueing_disciplines.iter().flatten() {
        all.push((DropPlace::Qdisc, qdisc.kind.clone(), qdisc.device.clone(), qdisc.packets));
    }
    let backlog = of.backlog.iter().flatten().map(|cpu| cpu.packets).sum();
    all.push((DropPlace::Backlog, "dropped".to_owned(), "all namespaces".to_owned(), backlog));
    for counter in of.counters.iter().flatten() {
        all.push((counter.place, counter.name.clone(), String::new(), counter.packets));
    }
    if let Some(tracking) = &of.connection_tracking {
        let limit = tracking.limit.map(|limit| format!(" of {}", count(limit.into())));
        let filled =
            format!("{}{} entries", count(tracking.entries.into()), limit.unwrap_or_default());
        for (name, number) in [
            ("conntrack drop", tracking.dropped),
            ("conntrack insert_failed", tracking.insert_failed),
            ("conntrack chaintoolong", tracking.chain_too_long),
            ("conntrack early_drop", tracking.early_dropped),
        ] {
            all.push((DropPlace::Filter, name.to_owned(), filled.clone(), number));
        }
    }
    for table in of.neighbour_tables.iter().flatten() {
        for (name, number) in [
            ("table_fulls", table.table_fulls),
            ("unresolved_discards", table.unresolved_discards.unwrap_or(0)),
        ] {
            let name = format!("{} {name}", table.table);
            all.push((DropPlace::Ip, name, "all namespaces".to_owned(), number));
        }
    }
    all.retain(|(_, _, _, number)| *number > 0);
    all
}

/// What was lost, by place and the function that dropped most there.
pub(super) fn brief(of: &DropsSection) -> Option<String> {
    let traced = of.traced.as_ref().filter(|traced| traced.lost_packets > 0)?;
    let mut places: BTreeMap<DropPlace, (u64, BTreeMap<&str, u64>)> = BTreeMap::new();
    for site in traced.sites.iter().filter(|site| site.outcome == DropOutcome::Lost) {
        let (all, functions) = places.entry(site.place).or_default();
        *all += site.packets;
        *functions.entry(site.function.as_deref().unwrap_or_default()).or_default() += site.packets;
    }
    let mut places: Vec<_> = places.into_iter().collect();
    places.sort_by_key(|(_, (all, _))| std::cmp::Reverse(*all));
    let mut texts: Vec<String> = places
        .iter()
        .take(BRIEF)
        .map(|(place, (all, functions))| {
            let most = functions.iter().max_by_key(|(_, packets)| **packets);
            let function = most.map(|(name, _)| *name).filter(|name| !name.is_empty());
            let function = function.map(|name| format!(" ({name})")).unwrap_or_default();
            format!("{} {}{function}", place.words(), count(*all))
        })
        .collect();
    if places.len() > BRIEF {
        texts.push("...".to_owned());
    }
    let all = counted(traced.lost_packets, "packet", "packets");
    Some(format!("{all}: {}", texts.join(", ")))
}
