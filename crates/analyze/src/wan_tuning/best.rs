//! The best setting.

use wirecost_model::document::{Finding, show};
use wirecost_model::metric::Unit;

use super::{Answer, Block, differ, disturbances, effect, finding, throughput};
use crate::Estimate;
use crate::measured::MeasuredPoint;

/// Settings that the sentence is about, the best and the next, as evidence.
const SHOWN: usize = 5;

/// All points with a throughput, the highest first.
fn ranked<'a>(block: &Block<'a>) -> Vec<(&'a MeasuredPoint, Estimate)> {
    let points = block.points().into_iter();
    let mut all: Vec<(&MeasuredPoint, Estimate)> =
        points.filter_map(|point| Some((point, throughput(point).ok()?))).collect();
    all.sort_by(|(_, a), (_, b)| b.mean.total_cmp(&a.mean));
    all
}

/// The first of them that is better than the base.
fn first_better<'a>(
    ranked: &[(&'a MeasuredPoint, Estimate)],
    base: Estimate,
) -> Option<(&'a MeasuredPoint, Estimate)> {
    ranked.iter().find(|(_, of)| of.mean > base.mean && differ(*of, base)).copied()
}

/// The setting with the highest throughput; `None` where none is better than the base, or that is unknown.
pub(super) fn setting<'a>(block: &Block<'a>) -> Option<&'a MeasuredPoint> {
    let base = throughput(block.base).ok()?;
    first_better(&ranked(block), base).map(|(point, _)| point)
}

pub(super) fn answer(block: &Block<'_>) -> Answer {
    let base = throughput(block.base)?;
    let all = ranked(block);
    let better = first_better(&all, base);
    let Some((point, best)) = better.or(all.first().copied()) else { return Ok(None) };
    let rate = |of: Estimate| show(Unit::BitsPerSecond, of.mean);
    let name = block.name(point);
    let disturbed = disturbances(&match better.is_some() {
        true => vec![point, block.base],
        false => all.iter().map(|(point, _)| *point).collect(),
    });
    let text = match better.is_some() {
        true => format!(
            "throughput is highest with {name}: {}, {:.2}x the base ({}){disturbed}",
            rate(best),
            best.mean / base.mean,
            rate(base)
        ),
        false => format!(
            "no setting has a higher throughput than the base ({}) by more than 5% and its interval{disturbed}",
            rate(base)
        ),
    };
    let evidence = all.iter().take(SHOWN);
    Ok(Some(Finding {
        metric: Some("throughput".to_owned()),
        effect: effect("ratio", Unit::Ratio, best.mean / base.mean, None),
        evidence: evidence.map(|(at, of)| format!("{}: {}", block.name(at), rate(*of))).collect(),
        ..finding(block, None, block.sentence(&text))
    }))
}
