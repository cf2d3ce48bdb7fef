//! Whether the server's CPUs ran at another clock with more pairs, or changed it within a run.

use wirecost_model::document::Finding;
use wirecost_model::metric::Unit;
use wirecost_model::observe::HardwareSection;
use wirecost_model::run::Run;

use super::server::section;
use super::{Answer, Group, SERVER, along, effect, finding, mean, pairs, place};
use crate::measured::MeasuredPoint;

/// A relative change between numbers of pairs that distorts rates per pair.
const CHANGE: f64 = 0.05;

pub(super) fn answer(groups: &[Group<'_>]) -> Vec<Answer> {
    along(groups, SERVER).iter().flat_map(|servers| of_servers(servers)).collect()
}

fn hardware(run: &Run) -> Result<&HardwareSection, String> {
    section(run, "host", |of| of.hardware.as_ref())
}

/// The mean clock of the server's CPUs that did something.
fn clock(point: &MeasuredPoint) -> Result<f64, String> {
    let of_run = |run: &Run| {
        let hardware = hardware(run)?;
        let clocks: Vec<f64> =
            hardware.cpus.iter().filter_map(|cpu| Some(cpu.clock.as_ref()?.mean_ghz)).collect();
        if clocks.is_empty() {
            let reason = hardware.clock_reason.clone();
            return Err(reason.unwrap_or_else(|| "no CPU told its clock".to_owned()));
        }
        Ok(clocks.iter().sum::<f64>() / clocks.len() as f64)
    };
    Ok(mean(point, of_run)?.mean)
}

/// What changed most, of all groups.
fn of_servers(servers: &[&Group<'_>]) -> Vec<Answer> {
    let between = servers.iter().map(|group| between_points(group));
    let within = servers.iter().map(|group| Ok(within_a_run(group)));
    [strongest(between.collect()), strongest(within.collect())].into()
}

/// The answer of largest effect; the reason where none has an answer.
fn strongest(answers: Vec<Answer>) -> Answer {
    let mut reason = None;
    let mut best: Option<Finding> = None;
    let mut any = false;
    let size = |of: &Finding| of.effect.as_ref().map_or(0.0, |effect| (effect.value - 1.0).abs());
    for answer in answers {
        match answer {
            Err(why) => reason = Some(why),
            Ok(found) => {
                any = true;
                let larger =
                    |found: &Finding| best.as_ref().is_none_or(|best| size(found) > size(best));
                if let Some(found) = found.filter(larger) {
                    best = Some(found);
                }
            }
        }
    }
    match (best, reason) {
        (None, Some(reason)) if !any => Err(reason),
        (best, _) => Ok(best),
    }
}

fn word(from: f64, to: f64) -> &'static str {
    if to < from { "fell" } else { "rose" }
}

fn between_points(group: &Group<'_>) -> Answer {
    let clocks: Vec<(f64, f64)> = group
        .points
        .iter()
        .map(|(number, point)| Ok((*number, clock(point)?)))
        .collect::<Result<_, String>>()?;
    let (Some(&(few, from)), Some(&(many, to))) = (clocks.first(), clocks.last()) else {
        return Ok(None);
    };
    if from <= 0.0 || (to / from - 1.0).abs() < CHANGE {
        return Ok(None);
    }
    let sentence = format!(
        "The clock of the server's CPUs {} from {from:.2} GHz with {} to {to:.2} GHz with {} ({:.0}%), so a rate per pair \
         compares CPUs of different speed: compare with turbo off (--axis tune.turbo=on,off).",
        word(from, to),
        pairs(few),
        pairs(many),
        100.0 * (to / from - 1.0)
    );
    let each: Vec<String> =
        clocks.iter().map(|(number, ghz)| format!("{number}: {ghz:.2} GHz")).collect();
    let at = group.title();
    let at = if at.is_empty() { String::new() } else { format!(" ({at})") };
    Ok(Some(Finding {
        metric: Some("host.frequency_ghz".to_owned()),
        axis: Some(super::PAIRS.to_owned()),
        effect: effect("ratio", Unit::Ratio, to / from, None),
        evidence: vec![format!("clock by pairs{at}: {}", each.join(", "))],
        ..finding(group, None, sentence)
    }))
}

fn within_a_run(group: &Group<'_>) -> Option<Finding> {
    let changes = group.points.iter().flat_map(|(number, point)| {
        let of_point =
            point.runs.iter().filter_map(|run| hardware(run).ok()?.clock_change.as_ref());
        of_point.map(|change| (*number, change)).collect::<Vec<_>>()
    });
    let changes: Vec<_> = changes.filter(|(_, change)| change.from_ghz > 0.0).collect();
    let size = |from: f64, to: f64| (to / from - 1.0).abs();
    let (number, most) = changes.iter().max_by(|(_, a), (_, b)| {
        size(a.from_ghz, a.to_ghz).total_cmp(&size(b.from_ghz, b.to_ghz))
    })?;
    let sentence = format!(
        "The clock of the server's CPUs {} from {:.1} to {:.1} GHz within a run ({}): its rate is of no one clock.",
        word(most.from_ghz, most.to_ghz),
        most.from_ghz,
        most.to_ghz,
        place(group, *number)
    );
    let several = format!("the clock changed within {} runs of these points", changes.len());
    Some(Finding {
        metric: Some("host.frequency_ghz".to_owned()),
        effect: effect("ratio", Unit::Ratio, most.to_ghz / most.from_ghz, None),
        evidence: vec![several],
        ..finding(group, Some(*number), sentence)
    })
}
