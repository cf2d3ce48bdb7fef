//! Waiting for locks on one host.

use std::collections::{BTreeMap, BTreeSet};

use crate::document::{Cell, Column, Section, Table};
use crate::metric::Unit::Microseconds;
use crate::observe::{LockKind, LockSite, LocksSection, WaitContext};
use crate::units::{counted, percent, seconds, whole};

/// Rows of a table.
const SHOWN: usize = 12;
/// Stacks that are shown, and functions of each.
const STACKS: usize = 5;
const FRAMES: usize = 8;
/// Locks that are in the one line.
const BRIEF: usize = 3;
/// The probe's own part of the time waited is worth a note from here.
const NOTABLE: f64 = 0.1;
/// Waiting is worth a line from this part of the CPUs' busy time.
const WORTH_A_LINE: f64 = 0.01;

/// Rows of the same lock class in the same function.
struct Group<'a> {
    of: &'a LockSite,
    locks: BTreeSet<&'a str>,
    owners: BTreeMap<&'a str, u64>,
    waiters: BTreeMap<&'a str, f64>,
    waits: u64,
    seconds: f64,
    spin_seconds: f64,
    probe_seconds: f64,
    inner_seconds: f64,
    longest_seconds: f64,
    still_waiting: u64,
}

impl Group<'_> {
    /// Without what the probe itself may have added, and what another row has.
    fn certain(&self) -> f64 {
        (self.seconds - self.probe_seconds - self.inner_seconds).max(0.0)
    }

    fn average(&self) -> Option<f64> {
        (self.waits > 0).then(|| self.seconds / self.waits as f64)
    }
}

fn groups<'a>(sites: impl Iterator<Item = &'a LockSite>) -> Vec<Group<'a>> {
    let mut groups: BTreeMap<_, Group<'a>> = BTreeMap::new();
    for site in sites {
        let key = (site.kind, &site.class, &site.function, &site.module, site.context);
        let group = groups.entry(key).or_insert_with(|| Group {
            of: site,
            locks: BTreeSet::new(),
            owners: BTreeMap::new(),
            waiters: BTreeMap::new(),
            waits: 0,
            seconds: 0.0,
            spin_seconds: 0.0,
            probe_seconds: 0.0,
            inner_seconds: 0.0,
            longest_seconds: 0.0,
            still_waiting: 0,
        });
        group.locks.extend(site.lock.as_deref());
        if let Some(owner) = &site.owner {
            *group.owners.entry(&owner.name).or_default() += site.waits + site.still_waiting;
        }
        if let Some(waiter) = &site.waiter {
            *group.waiters.entry(&waiter.name).or_default() +=
                site.seconds + site.still_waiting_seconds;
        }
        group.waits += site.waits;
        group.seconds += site.seconds;
        group.spin_seconds += site.spin_seconds;
        group.probe_seconds += site.probe_seconds;
        group.inner_seconds += site.inner_seconds;
        group.longest_seconds = group.longest_seconds.max(site.longest_seconds);
        group.still_waiting += site.still_waiting;
    }
    let mut groups: Vec<_> = groups.into_values().collect();
    groups.sort_by(|a, b| {
        b.seconds.total_cmp(&a.seconds).then(b.still_waiting.cmp(&a.still_waiting))
    });
    groups
}

pub(super) fn sections(of: &LocksSection) -> Vec<Section> {
    let mut section = Section::named("locks", "Locks waited for");
    section.figure("waits", Cell::count(of.waits));
    section.figure("time waited", Cell::seconds(of.wait_seconds));
    section.figure("of it spinning", Cell::seconds(of.spin_seconds));
    section.figure("in two rows (a wait inside another)", Cell::seconds(of.inner_seconds));
    section.figure("added by the probe, at most", Cell::seconds(of.probe_seconds));
    section.figure("longest", Cell::seconds(of.longest_seconds));
    if of.still_waiting > 0 {
        section.figure("still waiting at the end", Cell::count(of.still_waiting));
    }
    let groups = groups(of.sites.iter());
    if !groups.is_empty() {
        section.table(waits(&groups));
    }
    if groups.len() > SHOWN {
        let more = (groups.len() - SHOWN) as u64;
        section.note(format!("and {}", counted(more, "further call site", "further call sites")));
    }
    if of.unlisted.sites > 0 {
        let text = format!(
            "{} ({} in total) are in no table",
            counted(of.unlisted.waits, "wait", "waits"),
            seconds(of.unlisted.seconds)
        );
        section.note(text);
    }
    if groups.is_empty() {
        section.text("no lock contention was reported");
    } else {
        if of.probe_seconds > NOTABLE * of.wait_seconds {
            section.note(
                "the probe reads the stack during a wait, so short waits appear longer: without \
                 the probe, the total would be lower by at most the time added by the probe",
            );
        }
        section.note("a wait inside another, as for a mutex's own spinlock, is in both rows: `in other rows` is that part");
    }
    if !of.socket_owners {
        section.note("waits for the owner of a socket (lock_sock) were not monitored");
    }
    for (number, what) in [
        (of.abandoned, "whose end was not seen"),
        (of.unbegun, "that had begun before the probe was attached"),
        (of.uncounted, "for which the tables had no room"),
        (of.during_probe, "that came while the probe itself was at work on the CPU"),
    ] {
        if number > 0 {
            let waits = counted(number, "wait", "waits");
            section.note(format!("not counted: {waits} {what}"));
        }
    }
    if of.lost_stacks > 0 {
        let stacks = counted(of.lost_stacks, "wait has", "waits have");
        section.note(format!("{stacks} no function: another stack had the place of theirs"));
    }
    if of.assumed_stacks > 0 {
        let waits = counted(of.assumed_stacks, "spinning wait reuses", "spinning waits reuse");
        section.note(format!(
            "{waits} the stack of an earlier one for the same lock, of the same task and depth"
        ));
    }
    let mut sections = vec![section];
    sections.extend(stacks(of));
    sections.extend(profile(&groups));
    sections
}

fn waits(groups: &[Group<'_>]) -> Table {
    let mut table = Table::new([
        Column::text("lock"),
        Column::text("function"),
        Column::text("context").drop_order(3),
        Column::number("waits"),
        Column::number("total"),
        Column::number("average").drop_order(2),
        Column::number("longest"),
        Column::number("spinning").drop_order(5),
        Column::number("in other rows").drop_order(7),
        Column::number("locks").drop_order(6),
        Column::text("waiter").drop_order(4),
        Column::text("owner").drop_order(1),
    ]);
    for group in groups.iter().take(SHOWN) {
        let average =
            Cell::or_missing(group.average(), "no wait ended in the window", Cell::seconds);
        table.row(vec![
            Cell::text(lock(group.of)),
            Cell::text(function(group.of)),
            Cell::text(group.of.context.words()),
            Cell::count(group.waits),
            Cell::seconds(group.seconds),
            average,
            Cell::seconds(group.longest_seconds),
            Cell::seconds(group.spin_seconds),
            Cell::seconds(group.inner_seconds),
            Cell::or_missing(
                (!group.locks.is_empty()).then_some(group.locks.len() as u64),
                "stacks do not name the socket",
                Cell::count,
            ),
            Cell::text(most(group.waiters.iter(), f64::total_cmp)),
            Cell::text(most(group.owners.iter(), u64::cmp)),
        ]);
    }
    table
}

/// The name that has most.
fn most<'a, N: 'a>(
    of: impl ExactSizeIterator<Item = (&'a &'a str, &'a N)>,
    order: impl Fn(&N, &N) -> std::cmp::Ordering,
) -> String {
    let further = of.len().saturating_sub(1);
    let name = of.max_by(|a, b| order(a.1, b.1)).map(|(name, _)| *name).unwrap_or_default();
    if further > 0 { format!("{name} (+{further})") } else { name.to_owned() }
}

/// What it protects, or what kind it is.
fn lock(of: &LockSite) -> String {
    match &of.class {
        Some(class) if of.kind == LockKind::SocketOwner => class.clone(),
        Some(class) => format!("{class}, {}", of.kind.words()),
        None => of.kind.words().to_owned(),
    }
}

fn function(of: &LockSite) -> String {
    match (&of.function, &of.module) {
        (Some(function), Some(module)) => format!("{function} [{module}]"),
        (Some(function), None) => function.clone(),
        (None, _) => String::new(),
    }
}

/// The stacks that waited longest.
fn stacks(of: &LocksSection) -> Option<Section> {
    let mut stacks: BTreeMap<(LockKind, &[String]), (u64, f64)> = BTreeMap::new();
    for site in of.sites.iter().filter(|site| !site.stack.is_empty()) {
        let (waits, total) = stacks.entry((site.kind, &site.stack)).or_default();
        *waits += site.waits;
        *total += site.seconds;
    }
    let mut stacks: Vec<_> = stacks.into_iter().filter(|(_, (waits, _))| *waits > 0).collect();
    stacks.sort_by(|(_, (_, a)), (_, (_, b))| b.total_cmp(a));
    let mut table = Table::new([
        Column::number("total"),
        Column::number("waits"),
        Column::text("lock"),
        Column::text("called by"),
    ]);
    for ((kind, stack), (waits, total)) in stacks.iter().take(STACKS) {
        let mut names: Vec<&str> = stack.iter().take(FRAMES).map(String::as_str).collect();
        if stack.len() > FRAMES {
            names.push("...");
        }
        table.row(vec![
            Cell::seconds(*total),
            Cell::count(*waits),
            Cell::text(kind.words()),
            Cell::text(names.join(" < ")),
        ]);
    }
    if table.rows.is_empty() {
        return None;
    }
    let mut section = Section::named("locks", "Stacks that waited longest");
    section.table(table);
    Some(section)
}

/// The columns of `debug.lock.prof.stats` of FreeBSD's LOCK_PROFILING(9), in microseconds.
fn profile(groups: &[Group<'_>]) -> Option<Section> {
    let ended: Vec<&Group<'_>> = groups.iter().filter(|group| group.waits > 0).collect();
    if ended.is_empty() {
        return None;
    }
    let numbers = [
        "max",
        "wait_max",
        "total",
        "wait_total",
        "count",
        "avg",
        "wait_avg",
        "cnt_hold",
        "cnt_lock",
    ];
    let columns: Vec<Column> =
        [Column::text("name")].into_iter().chain(numbers.map(Column::number)).collect();
    let mut table = Table::new(columns);
    for group in ended.iter().take(SHOWN) {
        let time = |seconds: f64| Cell::written(Microseconds, seconds * 1e6, whole(seconds * 1e6));
        let held = || Cell::or_dash(None::<u64>, Cell::count);
        let place = match function(group.of) {
            name if name.is_empty() => "unknown".to_owned(),
            name => name,
        };
        table.row(vec![
            Cell::text(format!("{place} ({})", lock(group.of))),
            held(),
            time(group.longest_seconds),
            held(),
            time(group.seconds),
            held(),
            held(),
            time(group.average().unwrap_or_default()),
            held(),
            Cell::count(group.waits),
        ]);
    }
    let mut section = Section::named("locks", "Locks as LOCK_PROFILING of FreeBSD lists them");
    section.table(table);
    section.note(
        "microseconds; a dash: Linux tells when a lock is waited for, not when it is taken and \
         released, so how often and how long a lock was held is unknown",
    );
    Some(section)
}

/// The locks that were waited for longest, of what belongs to a run: its own processes, softirqs and interrupts.
pub(super) fn brief(of: &LocksSection, busy_seconds: f64) -> Option<String> {
    let own = |site: &&LockSite| match site.context {
        WaitContext::Softirq | WaitContext::Interrupt => true,
        _ => site.waiter.as_ref().is_some_and(|waiter| waiter.role.is_some()),
    };
    let groups = groups(of.sites.iter().filter(own));
    let waited = groups.iter().fold(0.0, |sum, group| sum + group.certain());
    if busy_seconds <= 0.0 || waited < WORTH_A_LINE * busy_seconds {
        return None;
    }
    let share = percent(waited * 100.0 / busy_seconds);
    let mut texts: Vec<String> = groups
        .iter()
        .take(BRIEF)
        .map(|group| {
            let place = match function(group.of) {
                name if name.is_empty() => String::new(),
                name => format!(" ({name})"),
            };
            format!("{}{place} {}", lock(group.of), seconds(group.certain()))
        })
        .collect();
    if groups.len() > BRIEF {
        texts.push("...".to_owned());
    }
    Some(format!("at least {}, {share}% of the busy time: {}", seconds(waited), texts.join("; ")))
}
