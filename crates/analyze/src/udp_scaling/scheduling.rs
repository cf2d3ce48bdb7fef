//! How often the server's workers were woken and preempted, and how long they waited for a CPU.

use std::collections::BTreeMap;

use wirecost_model::document::{Finding, show};
use wirecost_model::metric::Unit;
use wirecost_model::observe::{SchedulingSection, ThreadScheduling};
use wirecost_model::run::Run;

use super::server::{section, server};
use super::{
    Answer, Group, READ, SERVER, along, effect, figure, finding, largest, mean, place, with,
};
use crate::measured::MeasuredPoint;

/// Tasks that are named.
const TASKS: usize = 2;

pub(super) fn answer(groups: &[Group<'_>]) -> Vec<Answer> {
    along(groups, SERVER).iter().map(|servers| of_servers(servers)).collect()
}

fn of_run(run: &Run) -> Result<(&SchedulingSection, Vec<&ThreadScheduling>), String> {
    let scheduling = section(run, "scheduling", |of| of.scheduling.as_ref())?;
    let host = &server(run)?.host.name;
    let workers = scheduling.threads.iter();
    let workers: Vec<_> =
        workers.filter(|of| of.worker.is_some() && of.host.as_ref() == Some(host)).collect();
    if workers.is_empty() || scheduling.seconds <= 0.0 {
        return Err("the server's workers were not watched".to_owned());
    }
    Ok((scheduling, workers))
}

/// Of all workers of the server together, per second; the wait is of the worker that waited longest.
struct Worked {
    wakeups: f64,
    preemptions: f64,
    read: f64,
    /// Percent of the window; none where the kernel does not count waits.
    waited: Option<f64>,
}

fn worked(point: &MeasuredPoint) -> Result<Worked, String> {
    let per_second = |count: fn(&ThreadScheduling) -> u64| {
        mean(point, move |run| {
            let (scheduling, workers) = of_run(run)?;
            let all: u64 = workers.into_iter().map(count).sum();
            Ok(all as f64 / scheduling.seconds)
        })
    };
    let waited = mean(point, |run| {
        let (scheduling, workers) = of_run(run)?;
        let waits: Option<Vec<f64>> = workers
            .into_iter()
            .map(|worker| {
                let (begun, open) = (worker.began_before.seconds, worker.open_at_end.seconds);
                Some(worker.run_queue.as_ref()?.seconds + begun + open)
            })
            .collect();
        let longest = waits.and_then(|waits| waits.into_iter().reduce(f64::max));
        longest.map(|waited| 100.0 * waited / scheduling.seconds).ok_or_else(String::new)
    });
    Ok(Worked {
        wakeups: per_second(|worker| worker.wakeups.total)?.mean,
        preemptions: per_second(|worker| worker.preemptions)?.mean,
        read: mean(point, |run| figure(run, READ))?.mean,
        waited: waited.ok().map(|waited| waited.mean),
    })
}

/// The tasks that had the CPU of waiting workers longest, with their parts of all waits.
fn holders(point: &MeasuredPoint) -> Vec<String> {
    let mut sums: BTreeMap<String, f64> = BTreeMap::new();
    let mut all = 0.0;
    for (_, workers) in point.runs.iter().filter_map(|run| of_run(run).ok()) {
        for worker in workers {
            all += worker.run_queue.as_ref().map_or(0.0, |waits| waits.seconds);
            for holder in &worker.waited_for {
                let name = match holder.kernel_thread {
                    true => format!("[{}]", holder.name),
                    false => holder.name.clone(),
                };
                *sums.entry(name).or_default() += holder.preempted_seconds + holder.waited_seconds;
            }
        }
    }
    let largest = largest(sums).into_iter().take(TASKS).filter(|_| all > 0.0);
    largest
        .map(|(name, sum)| format!("{:.0}% were for {name}", (100.0 * sum / all).min(100.0)))
        .collect()
}

fn of_servers(servers: &[&Group<'_>]) -> Answer {
    let mut all = Vec::new();
    let mut reason = None;
    for group in servers {
        let Some((number, point)) = group.last() else { continue };
        match worked(point) {
            Ok(worked) => all.push((*group, number, point, worked)),
            Err(why) => reason = Some(why),
        }
    }
    let Some((group, number, point, of)) = all.first() else {
        return Err(reason.unwrap_or_else(|| "not run yet".to_owned()));
    };
    let rate = |value: f64| show(Unit::PerSecond, value);
    let per_datagram = match of.read {
        read if read > 0.0 => format!(" ({:.2} per datagram read)", of.wakeups / read),
        _ => String::new(),
    };
    let waited = match of.waited {
        Some(waited) => {
            let holders = holders(point);
            let whom = match holders.as_slice() {
                [] => String::new(),
                holders => format!("; of all waits, {}", holders.join(", ")),
            };
            format!("the one that waited longest for its CPU waited {waited:.1}% of the time{whom}")
        }
        None => "the kernel does not count how long they waited for a CPU".to_owned(),
    };
    let text = format!(
        "the server's workers are woken {}{per_datagram} and preempted {}; {waited}",
        rate(of.wakeups),
        rate(of.preemptions)
    );
    let evidence = all.iter().skip(1).map(|(group, number, _, of)| {
        let waited = of.waited.map_or_else(String::new, |waited| format!(", waited {waited:.1}%"));
        format!(
            "{}: woken {}, preempted {}{waited}",
            place(group, *number),
            rate(of.wakeups),
            rate(of.preemptions)
        )
    });
    Ok(Some(Finding {
        metric: Some("scheduling.wakeups".to_owned()),
        effect: effect("wake-ups", Unit::PerSecond, of.wakeups, None),
        evidence: evidence.collect(),
        ..finding(group, Some(*number), with(group, *number, &text))
    }))
}
