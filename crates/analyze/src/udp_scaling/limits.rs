//! What is at its limit at a point: the server's CPUs, its workers, the link, or the client that generates the load.

use wirecost_model::document::show;
use wirecost_model::metric::Unit;
use wirecost_model::run::Run;

use super::server::{End, end, server};
use super::{figure, mean};
use crate::findings::limits::{FULL_LINK, link};
use crate::findings::words;
use crate::measured::MeasuredPoint;

/// From this busy share on CPUs and workers are at their limit, percent.
const FULL: f64 = 95.0;
/// Frames that a link loses, or datagrams that the server does not read: beyond what the edges of a window may be.
const LOST: f64 = 0.01;

/// Of all runs of a point, by the mean.
#[derive(Debug, Default)]
pub(super) struct Limits {
    full: Vec<String>,
    pub(super) evidence: Vec<String>,
}

impl Limits {
    /// After "there".
    pub(super) fn text(&self) -> String {
        match self.full.as_slice() {
            [] => "no monitored resource was at its limit".to_owned(),
            full => words::list(full),
        }
    }

    fn add(&mut self, is_full: bool, text: String) {
        if is_full {
            self.full.push(text);
        } else {
            self.evidence.push(text);
        }
    }
}

/// The percentages of a CPU that the rule asks for.
struct Shares {
    busy: f64,
    softirq: f64,
    task: f64,
}

/// Of all CPUs of an end, or of the one that softirqs used most.
fn shares(end: &End<'_>, busiest: bool) -> Option<Shares> {
    let cpu = end.cpu?;
    if !busiest {
        let (busy, task) = (100.0 - cpu.idle, cpu.usr + cpu.sys);
        return Some(Shares { busy, softirq: cpu.softirq, task });
    }
    let line = cpu.per_cpu.iter().max_by(|a, b| a.softirq.total_cmp(&b.softirq))?;
    let (busy, task) = (100.0 - line.idle, line.usr + line.sys);
    Some(Shares { busy, softirq: line.softirq, task })
}

fn percent(
    point: &MeasuredPoint,
    role: &str,
    busiest: bool,
    of: fn(&Shares) -> f64,
) -> Option<f64> {
    let each = |run: &Run| {
        let end = end(run, role)?;
        shares(&end, busiest).map(|shares| of(&shares)).ok_or_else(String::new)
    };
    mean(point, each).ok().map(|estimate| estimate.mean)
}

pub(super) fn limits(point: &MeasuredPoint) -> Limits {
    let mut limits = Limits::default();
    let own_cpus = point.runs.iter().all(|run| server(run).is_ok_and(|server| server.own_cpus));
    let roles: &[(&str, &str)] = match own_cpus {
        true => &[("peer", "the server"), ("master", "the client")],
        false => &[("peer", "the machine that both hosts share")],
    };
    for (role, whose) in roles {
        cpus(&mut limits, point, role, whose);
    }
    for (role, whose) in [("peer", "the server"), ("master", "the client")] {
        let busiest = |run: &Run| {
            let worker = end(run, role)?.host.busiest_worker;
            worker.map(|share| 100.0 * share).ok_or_else(String::new)
        };
        if let Ok(busy) = mean(point, busiest) {
            let text = format!("the busiest worker of {whose} was {:.0}% busy", busy.mean);
            limits.add(busy.mean >= FULL, text);
        }
    }
    of_link(&mut limits, point);
    generator(&mut limits, point);
    limits
}

fn cpus(limits: &mut Limits, point: &MeasuredPoint, role: &str, whose: &str) {
    // A CPU that receives for all is at its limit while the others are not.
    if let (Some(softirq), Some(all)) = (
        percent(point, role, true, |shares| shares.softirq),
        percent(point, role, false, |shares| shares.busy),
    ) && softirq >= FULL
        && all < FULL
    {
        limits.add(true, format!("one CPU of {whose} spent {softirq:.0}% of its time in softirqs"));
    }
    let Some(busy) = percent(point, role, false, |shares| shares.busy) else { return };
    let [softirq, task] = [(|shares| shares.softirq) as fn(&Shares) -> f64, |shares| shares.task]
        .map(|of| percent(point, role, false, of).unwrap_or(0.0));
    let were = format!(
        "the CPUs of {whose} were {busy:.0}% busy ({softirq:.0}% softirqs, {task:.0}% tasks)"
    );
    limits.add(busy >= FULL, were);
}

/// Full, behind, or losing frames between the devices.
fn of_link(limits: &mut Limits, point: &MeasuredPoint) {
    let share = |run: &Run| {
        let each = run.hosts.iter().filter_map(|host| Some(link(run, host)?.share));
        each.reduce(f64::max).ok_or_else(String::new)
    };
    if let Ok(share) = mean(point, share) {
        let text = format!("the link carried {:.0}% of its rate", 100.0 * share.mean);
        limits.add(share.mean >= FULL_LINK, text);
    }
    let late = |run: &&Run| run.warnings.iter().any(|warning| warning.code == "link-late");
    if !point.runs.is_empty() && 2 * point.runs.iter().filter(late).count() >= point.runs.len() {
        limits.add(true, "the emulated links fell behind".to_owned());
    }
    let lost = |run: &Run| {
        let (sent, received) = (figure(run, "frames.sent")?, figure(run, "frames.received")?);
        if sent > 0.0 { Ok(1.0 - received / sent) } else { Err(String::new()) }
    };
    if let Ok(lost) = mean(point, lost)
        && lost.mean > LOST
    {
        let text = format!(
            "{:.0}% of what the client's device sent did not reach the server's",
            100.0 * lost.mean
        );
        limits.add(true, text);
    }
}

/// The client is the limit where the server reads all that it sends, and nothing else is at its limit.
fn generator(limits: &mut Limits, point: &MeasuredPoint) {
    let generated = |run: &Run| figure(run, "frames.generated");
    let read = |run: &Run| {
        let generated = generated(run)?;
        if generated > 0.0 { Ok(figure(run, super::READ)? / generated) } else { Err(String::new()) }
    };
    let (Ok(read), Ok(rate)) = (mean(point, read), mean(point, generated)) else { return };
    let rate = show(Unit::PerSecond, rate.mean);
    if read.mean < 1.0 - LOST {
        let part = 100.0 * read.mean;
        limits
            .evidence
            .push(format!("the server read {part:.0}% of the {rate} that the client generated"));
        return;
    }
    let answered = |run: &Run| figure(run, "answers.read");
    let who = match mean(point, answered) {
        Ok(_) => "the client, which limits its requests without an answer,",
        Err(_) => "the client",
    };
    let is_limit = limits.full.is_empty();
    limits.add(is_limit, format!("{who} generated {rate}, which the server read"));
}
