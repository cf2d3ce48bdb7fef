//! Pause frames: with flow control, a slow queue of the server stops the client's traffic for all queues.

use wirecost_model::document::{Finding, show};
use wirecost_model::metric::Unit;
use wirecost_model::observe::NicSection;
use wirecost_model::run::Run;

use super::server::{section, server};
use super::{Answer, Group, SERVER, along, effect, finding, mean, place};
use crate::measured::MeasuredPoint;

pub(super) fn answer(groups: &[Group<'_>]) -> Vec<Answer> {
    along(groups, SERVER).iter().map(|servers| of_servers(servers)).collect()
}

/// Pause frames that the server's devices received and sent, each where it is counted.
fn pause(nic: &NicSection) -> Result<(u64, u64), String> {
    let counted: Vec<_> = nic.devices.iter().filter_map(|of| of.pause.as_ref()).collect();
    if counted.is_empty() {
        let reason = nic.devices.iter().find_map(|of| of.pause_reason.clone());
        return Err(reason.unwrap_or_else(|| "no device counts pause frames".to_owned()));
    }
    let sum = |of: fn(&wirecost_model::observe::PauseFrames) -> Option<u64>| {
        counted.iter().filter_map(|pause| of(pause)).sum()
    };
    Ok((sum(|pause| pause.rx), sum(|pause| pause.tx)))
}

/// How often the server's emulated device paused the link; `None` where the lab has no such device, or its devices do
/// not pause.
fn of_lab(run: &Run) -> Option<u64> {
    let link =
        run.link.as_ref().filter(|link| link.link.nic.as_ref().is_some_and(|nic| nic.pause))?;
    let server = &server(run).ok()?.host.name;
    Some(link.devices.iter().find(|device| device.host == *server)?.pauses)
}

/// The point with most pause frames.
fn of_servers(servers: &[&Group<'_>]) -> Answer {
    let mut reason = None;
    let mut rows: Vec<(&Group<'_>, f64, f64, f64)> = Vec::new();
    for group in servers {
        for (number, point) in &group.points {
            let of = |what: fn((u64, u64)) -> u64| {
                mean(point, move |run: &Run| {
                    let counted = match of_lab(run) {
                        Some(sent) => (0, sent),
                        None => pause(section(run, "nic", |of| of.nic.as_ref())?)?,
                    };
                    Ok(what(counted) as f64)
                })
            };
            match (of(|(received, _)| received), of(|(_, sent)| sent)) {
                (Ok(received), Ok(sent)) => rows.push((group, *number, received.mean, sent.mean)),
                (Err(why), _) | (_, Err(why)) => reason = Some(why),
            }
        }
    }
    let Some(&(group, number, received, sent)) =
        rows.iter().max_by(|a, b| (a.2 + a.3).total_cmp(&(b.2 + b.3)))
    else {
        return Err(reason.unwrap_or_else(|| "not run yet".to_owned()));
    };
    if received + sent == 0.0 {
        return Ok(None);
    }
    let count = |value: f64| show(Unit::Count, value.round());
    let what = match (sent > 0.0, received > 0.0) {
        (true, false) => format!("the server's devices sent {} pause frames", count(sent)),
        (false, _) => format!("the server's devices received {} pause frames", count(received)),
        (true, true) => format!(
            "the server's devices sent {} pause frames and received {}",
            count(sent),
            count(received)
        ),
    };
    let emulated = |point: &MeasuredPoint| point.runs.iter().any(|run| of_lab(run).is_some());
    let axis = match group.points.iter().any(|(_, point)| emulated(point)) {
        true => "lab.pause",
        false => "tune.pause.rx",
    };
    let sentence = format!(
        "Flow control slowed the traffic: {what} within a run ({}). Where one queue is full, they stop the packets of all \
         queues: repeat the study with --axis {axis}=on,off.",
        place(group, number)
    );
    let with_pauses = rows.iter().filter(|(_, _, received, sent)| received + sent > 0.0).count();
    Ok(Some(Finding {
        metric: Some("nic.pause_tx".to_owned()),
        effect: effect("pause frames", Unit::Count, received + sent, None),
        evidence: vec![format!("pause frames at {with_pauses} of {} points", rows.len())],
        ..finding(group, Some(number), sentence)
    }))
}
