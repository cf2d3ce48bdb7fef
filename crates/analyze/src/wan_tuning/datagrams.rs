//! What arrives of datagrams that are sent at a set rate, and what changes it.

use wirecost_model::document::{Finding, show};
use wirecost_model::metric::Unit;

use super::{Answer, Block, Factor, disturbances, effect, figure, finding, mean, throughput};
use crate::Estimate;
use crate::findings::words;
use crate::measured::MeasuredPoint;

/// With a larger loss, the rate is no longer one that the path carries: as the goal of `@udp-rate-search`. Two losses differ
/// if they do by more than this.
const LOST: f64 = 1.0;
/// The axis of loads.
const OFFERED: &str = "offered";

/// What arrives of each load that is offered, and the highest of which it is nearly all.
pub(super) fn achieved(block: &Block<'_>) -> Answer {
    let alone = [("", block.base)];
    let levels = block.factor(OFFERED).map_or(&alone[..], |factor| &factor.levels);
    let mut loads = Vec::new();
    for (_, point) in levels {
        let offered = mean(point, |run| figure(run, "offered"))?;
        loads.push((offered, throughput(point)?, loss(point)?));
    }
    loads.sort_by(|(a, ..), (b, ..)| a.mean.total_cmp(&b.mean));
    let rate = |of: Estimate| show(Unit::BitsPerSecond, of.mean);
    let told = |(offered, received, lost): &(Estimate, Estimate, Estimate)| {
        format!("{} offered, {} received ({:.2}% lost)", rate(*offered), rate(*received), lost.mean)
    };
    let carried = loads.iter().rev().find(|(.., lost)| lost.mean <= LOST);
    let points: Vec<&MeasuredPoint> = levels.iter().map(|(_, point)| *point).collect();
    let disturbed = disturbances(&points);
    let text = match (carried, loads.as_slice()) {
        (Some(only), [_]) => told(only),
        (Some(most), _) => format!("the highest load with at most 1% lost: {}", told(most)),
        (None, [least, ..]) => format!(
            "every offered load loses more than 1%, the lowest too: {}; @udp-rate-search finds the highest that does not",
            told(least)
        ),
        (None, []) => return Ok(None),
    };
    Ok(Some(Finding {
        metric: Some("throughput".to_owned()),
        effect: carried
            .and_then(|(_, of, _)| effect("throughput", Unit::BitsPerSecond, of.mean, of.interval)),
        evidence: loads.iter().map(told).collect(),
        ..finding(block, None, of_udp(block, &format!("{text}{disturbed}")))
    }))
}

/// `With 5 streams of UDP, ...`.
fn of_udp(block: &Block<'_>, text: &str) -> String {
    match block.title() {
        Some(title) => format!("With {title} of UDP, {text}."),
        None => format!("With UDP, {text}."),
    }
}

/// Which factors change the loss at the base's load.
pub(super) fn factors(block: &Block<'_>) -> Answer {
    let mut matter = Vec::new();
    let mut rest = Vec::new();
    let mut evidence = Vec::new();
    let mut points = vec![block.base];
    for factor in block.factors.iter().filter(|factor| factor.axis != OFFERED) {
        let Some([least, most]) = range(factor) else { continue };
        let show = |(value, lost): (&str, Estimate)| format!("{:.2}% with {value}", lost.mean);
        let text = format!("{} ({} to {})", factor.axis, show(least), show(most));
        let apart = match (least.1.interval, most.1.interval) {
            (Some((_, high)), Some((low, _))) => high < low,
            _ => true,
        };
        match apart && most.1.mean - least.1.mean > LOST {
            true => matter.push(text.clone()),
            false => rest.push(factor.axis.to_owned()),
        }
        points.extend(factor.levels.iter().map(|(_, point)| *point));
        evidence.push(text);
    }
    points.sort_by_key(|point| std::ptr::from_ref(*point));
    points.dedup_by_key(|point| std::ptr::from_ref(*point));
    if evidence.is_empty() {
        return Ok(None);
    }
    let small = "by more than 1 percentage point and their intervals";
    let text = match (matter.is_empty(), rest.is_empty()) {
        (true, _) => format!("no factor changes the loss {small}: {}", words::list(&rest)),
        (false, true) => format!("the loss depends on {}", words::list(&matter)),
        (false, false) => format!(
            "the loss depends on {}; it does not change {small} with {}",
            words::list(&matter),
            words::list(&rest)
        ),
    };
    let disturbed = disturbances(&points);
    Ok(Some(Finding {
        evidence,
        ..finding(block, None, of_udp(block, &format!("{text}{disturbed}")))
    }))
}

/// The values with the least and the most loss; `None` where fewer than two were measured.
fn range<'a>(factor: &Factor<'a>) -> Option<[(&'a str, Estimate); 2]> {
    let levels = factor.levels.iter();
    let known: Vec<(&str, Estimate)> =
        levels.filter_map(|(value, point)| Some((*value, loss(point).ok()?))).collect();
    let by_mean = |a: &&(&str, Estimate), b: &&(&str, Estimate)| a.1.mean.total_cmp(&b.1.mean);
    let (least, most) = (known.iter().min_by(by_mean)?, known.iter().max_by(by_mean)?);
    (known.len() > 1).then_some([*least, *most])
}

/// Percent of the datagrams.
fn loss(point: &MeasuredPoint) -> Result<Estimate, String> {
    mean(point, |run| figure(run, "loss"))
}
