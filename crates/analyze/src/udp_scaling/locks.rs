//! Which locks the server waited for and from where, with one socket for all workers against a socket per worker.

use std::collections::BTreeMap;

use wirecost_model::document::Finding;
use wirecost_model::metric::Unit;
use wirecost_model::observe::{LockSite, WaitContext};
use wirecost_model::run::Run;

use super::server::{section, server};
use super::{Answer, Group, SERVER, along, effect, finding, largest, mean, place, with};
use crate::findings::words;
use crate::measured::MeasuredPoint;

/// Of busy CPU time; less is not worth a sentence.
const WORTH_IT: f64 = 0.01;
/// Locks in a sentence, stacks in its evidence, and functions of each.
const LOCKS: usize = 3;
const STACKS: usize = 2;
const FRAMES: usize = 8;

/// The class of these locks begins so (`observe::probes::locks::classes`).
const RECEIVE_QUEUE: &str = "receive queue of a UDP socket";

/// What is said of the lock that the seed of this study found: FreeBSD's interrupt thread preempted its holder.
const NOT_PREEMPTED: &str = "on Linux softirqs are off while the lock of the receive queue is held (__skb_recv_udp in net/ipv4/udp.c), so receiving \
     on the same CPU cannot preempt its holder and then wait for it, as a device's interrupt thread can on FreeBSD; only other CPUs wait";

/// The waits of a point, of all its runs.
struct Waits<'a> {
    /// Of the busy time of the server's CPUs, without what the probe's own reading may have added.
    share: f64,
    /// By lock and function, longest first.
    locks: Vec<(Lock<'a>, f64)>,
    sites: Vec<&'a LockSite>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Lock<'a> {
    class: &'a str,
    function: &'a str,
    context: WaitContext,
}

pub(super) fn answer(groups: &[Group<'_>]) -> Vec<Answer> {
    along(groups, SERVER).iter().map(|servers| of_servers(servers)).collect()
}

/// At the most pairs, where there is most to wait for.
fn of_servers(servers: &[&Group<'_>]) -> Answer {
    let mut all = Vec::new();
    let mut reason = None;
    for group in servers {
        let Some((number, point)) = group.last() else { continue };
        match waits(point) {
            Ok(waits) => all.push((*group, number, waits)),
            Err(why) => reason = Some(why),
        }
    }
    all.sort_by(|(_, _, a), (_, _, b)| b.share.total_cmp(&a.share));
    let Some((group, number, most)) = all.first() else {
        return Err(reason.unwrap_or_else(|| "not run yet".to_owned()));
    };
    if most.share < WORTH_IT {
        return Err(format!(
            "waits took at most {:.1}% of the busy CPU time ({})",
            100.0 * most.share,
            place(group, *number)
        ));
    }
    let total = most.locks.iter().map(|(_, seconds)| seconds).sum::<f64>();
    let named: Vec<String> = most
        .locks
        .iter()
        .take(LOCKS)
        .map(|(lock, seconds)| format!("{} {:.0}%", lock.text(), 100.0 * seconds / total))
        .collect();
    let others: Vec<String> = all
        .iter()
        .skip(1)
        .map(|(group, _, waits)| {
            let name = group.axis(SERVER).unwrap_or("other servers");
            format!("{:.1}% with {name}", 100.0 * waits.share)
        })
        .collect();
    let against = match others.as_slice() {
        [] => String::new(),
        others => format!(", against {}", words::list(others)),
    };
    let of_queue =
        most.locks.iter().take(LOCKS).any(|(lock, _)| lock.class.starts_with(RECEIVE_QUEUE));
    let linux = if of_queue { format!("; {NOT_PREEMPTED}") } else { String::new() };
    let whose = group
        .last()
        .and_then(|(_, point)| point.runs.first())
        .and_then(|run| server(run).ok())
        .map_or_else(|| "the server".to_owned(), |end| end.whose_cpus("the server"));
    let text = format!(
        "waiting for locks took {:.1}% of the busy CPU time of {whose}{against}; by lock: {}{linux}",
        100.0 * most.share,
        words::list(&named)
    );
    Ok(Some(Finding {
        metric: Some("locks.wait_total".to_owned()),
        axis: group.axis(SERVER).map(|_| SERVER.to_owned()),
        effect: effect("share of busy CPU time", Unit::Percent, 100.0 * most.share, None),
        evidence: stacks(&most.sites),
        ..finding(group, Some(*number), with(group, *number, &text))
    }))
}

/// What belongs to the run: its own processes, softirqs and interrupts.
fn is_own(site: &LockSite) -> bool {
    match site.context {
        WaitContext::Softirq | WaitContext::Interrupt => true,
        WaitContext::Task | WaitContext::Unknown => {
            site.waiter.as_ref().is_some_and(|waiter| waiter.role.is_some())
        }
    }
}

fn certain(site: &LockSite) -> f64 {
    (site.seconds - site.probe_seconds - site.inner_seconds).max(0.0)
}

fn sites(run: &Run) -> Result<Vec<&LockSite>, String> {
    let section = section(run, "locks", |of| of.locks.as_ref())?;
    Ok(section.sites.iter().filter(|site| is_own(site)).collect())
}

fn waits(point: &MeasuredPoint) -> Result<Waits<'_>, String> {
    let share = mean(point, |run: &Run| {
        let waited: f64 = sites(run)?.into_iter().map(certain).sum();
        let cpu = &section(run, "cpu", |of| of.cpu.as_ref())?.total;
        let busy = cpu.task + cpu.irq + cpu.softirq;
        if busy > 0.0 { Ok(waited / busy) } else { Err("the CPUs were idle".to_owned()) }
    })?;
    let mut sites: Vec<&LockSite> =
        point.runs.iter().filter_map(|run| sites(run).ok()).flatten().collect();
    sites.sort_by(|a, b| certain(b).total_cmp(&certain(a)));
    let mut sums: BTreeMap<Lock<'_>, f64> = BTreeMap::new();
    for site in &sites {
        *sums.entry(Lock::of(site)).or_default() += certain(site);
    }
    Ok(Waits { share: share.mean, locks: largest(sums), sites })
}

impl<'a> Lock<'a> {
    fn of(site: &'a LockSite) -> Self {
        Self {
            class: site.class.as_deref().unwrap_or_else(|| site.kind.words()),
            function: site.function.as_deref().unwrap_or("unknown function"),
            context: site.context,
        }
    }

    fn text(&self) -> String {
        format!("{} (in {}, {})", self.class, self.function, self.context.words())
    }
}

/// The stacks that waited longest, from the function that wanted the lock outwards.
fn stacks(sites: &[&LockSite]) -> Vec<String> {
    let mut sums: BTreeMap<&[String], f64> = BTreeMap::new();
    for site in sites {
        *sums.entry(&site.stack).or_default() += certain(site);
    }
    let all = largest(sums);
    let shown = all.iter().filter(|(stack, _)| !stack.is_empty()).take(STACKS);
    shown
        .map(|(stack, seconds)| {
            let frames: Vec<&str> = stack.iter().take(FRAMES).map(String::as_str).collect();
            let more = if stack.len() > FRAMES { " < ..." } else { "" };
            format!(
                "{} waited in {}{more}",
                wirecost_model::units::seconds(*seconds),
                frames.join(" < ")
            )
        })
        .collect()
}
