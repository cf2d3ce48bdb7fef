//! What each congestion control achieves: throughput, convergence, fairness and CPU.

use wirecost_model::document::{Finding, show};
use wirecost_model::metric::Unit;
use wirecost_model::run::Run;

use super::{Answer, Block, CC, Factor, figure, finding, mean};
use crate::Estimate;
use crate::findings::words;
use crate::measured::MeasuredPoint;

/// The values of congestion control, where the study has several.
fn controls<'b, 'a>(block: &'b Block<'a>) -> Result<&'b Factor<'a>, String> {
    block.factor(CC).ok_or_else(|| format!("the study has no axis {CC}"))
}

/// `5 streams: reno -> 6.20 Gb/s; bic -> 6.80 Gb/s.`
pub(super) fn throughput(block: &Block<'_>) -> Answer {
    let factor = controls(block)?;
    let mut parts = Vec::new();
    for (name, point) in &factor.levels {
        let rate = super::throughput(point)?;
        parts.push(format!("{name} -> {}", show(Unit::BitsPerSecond, rate.mean)));
    }
    let text = parts.join("; ");
    let sentence = match block.title() {
        Some(title) => format!("{title}: {text}."),
        None => format!("{text}."),
    };
    Ok(Some(Finding {
        metric: Some("throughput".to_owned()),
        ..finding(block, Some(CC), sentence)
    }))
}

pub(super) fn convergence(block: &Block<'_>) -> Answer {
    let factor = controls(block)?;
    let (mut after, mut never) = (Vec::new(), Vec::new());
    for (name, point) in &factor.levels {
        let runs = point.runs.len();
        let times = mean(point, |run| figure(run, "convergence"));
        let converged = point.runs.iter().filter(|run| figure(run, "convergence").is_ok()).count();
        match times {
            Ok(time) if converged == runs => after.push(format!("{} with {name}", seconds(time))),
            Ok(time) => {
                after.push(format!("{} with {name} in {converged} of {runs} runs", seconds(time)));
            }
            Err(reason) if reason.starts_with("too short") || runs == 0 => return Err(reason),
            Err(reason) => never.push(format!("{name}: {reason}")),
        }
    }
    let mut text = match after.is_empty() {
        true => "throughput converged with no congestion control".to_owned(),
        false => format!("throughput converges after {}", words::list(&after)),
    };
    if !never.is_empty() {
        text += &format!(" ({})", never.join("; "));
    }
    Ok(Some(Finding {
        metric: Some("convergence".to_owned()),
        ..finding(block, Some(CC), block.sentence(&text))
    }))
}

/// `3.00 s (2.10 s to 3.90 s)`, with the interval where there is one.
fn seconds(time: Estimate) -> String {
    let show = |seconds: f64| show(Unit::Seconds, seconds);
    let mean = show(time.mean);
    // A time is never below 0, even if its interval is.
    let interval = time.interval.filter(|(low, high)| low < high);
    let interval = interval.map(|(low, high)| (show(low.max(0.0)), show(high)));
    match interval {
        Some((low, high)) => format!("{mean} ({low} to {high})"),
        None => mean,
    }
}

pub(super) fn fairness(block: &Block<'_>) -> Answer {
    let factor = controls(block)?;
    let strands = |run: &Run| run.fairness.as_ref().map_or(0, |of| of.strands);
    if block.base.runs.iter().all(|run| strands(run) < 2) {
        return Ok(None);
    }
    let mut parts = Vec::new();
    for (name, point) in &factor.levels {
        let jain = mean(point, |run| figure(run, "fairness"))?;
        let time = mean(point, |run| figure(run, "fairness.time"));
        let fair = point.runs.iter().filter(|run| figure(run, "fairness.time").is_ok()).count();
        let of_runs = match (fair, point.runs.len()) {
            (fair, all) if fair < all => format!(" in {fair} of {all} runs"),
            _ => String::new(),
        };
        let time = time.map_or_else(
            |_| String::new(),
            |time| format!(", fair after {}{of_runs}", show(Unit::Seconds, time.mean)),
        );
        parts.push(format!("{:.3} with {name}{time}", jain.mean));
    }
    let text = format!("Jain's index of the streams is {}", parts.join("; "));
    Ok(Some(Finding {
        metric: Some("fairness".to_owned()),
        ..finding(block, Some(CC), block.sentence(&text))
    }))
}

pub(super) fn cpu(block: &Block<'_>) -> Answer {
    let factor = controls(block)?;
    let cost = |point: &MeasuredPoint, name: &str| mean(point, |run| figure(run, name));
    let of_end = |end: &str| -> Result<Vec<String>, String> {
        let name = match end {
            "" => "cycles_per_kbyte".to_owned(),
            end => format!("hosts.{end}.cycles_per_kbyte"),
        };
        let levels = factor.levels.iter();
        let each = levels.map(|(cc, point)| {
            Ok(format!("{} with {cc}", show(Unit::CyclesPerKByte, cost(point, &name)?.mean)))
        });
        each.collect()
    };
    let text = match (of_end("sender"), of_end("receiver")) {
        (Ok(sender), Ok(receiver)) => format!(
            "the sender's cycles/KByte are {}, the receiver's {}",
            words::list(&sender),
            words::list(&receiver)
        ),
        _ => format!("the cycles/KByte of all hosts are {}", words::list(&of_end("")?)),
    };
    Ok(Some(Finding {
        metric: Some("cycles_per_kbyte".to_owned()),
        ..finding(block, Some(CC), block.sentence(&text))
    }))
}
