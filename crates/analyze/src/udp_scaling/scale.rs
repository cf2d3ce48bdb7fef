//! How far the rate grows with pairs, and what is at its limit where it stops.

use wirecost_model::document::{Finding, show};
use wirecost_model::metric::Unit;

use super::{Answer, Group, READ, disturbed, effect, figure, finding, limits, mean, pairs};
use crate::statistics::Estimate;

/// What a further pair must add, relative to a pair of the first row, for the rate to scale.
const SCALES: f64 = 0.9;
/// More than a further pair can add: a pair of the first row got less than its CPUs can do.
const IMPLAUSIBLE: f64 = 1.5;

/// What each pair beyond the row before adds, relative to a pair of the first row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Added {
    pub ratio: f64,
    /// 95% interval; `None` where points were run once.
    pub interval: Option<(f64, f64)>,
}

/// A number of pairs beyond the first.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step {
    pub added: Added,
    /// What each of all pairs reads, relative to a pair of the first row.
    pub per_pair: f64,
}

/// Of each row; `None` of the first, and where the first read nothing.
#[must_use]
pub fn efficiency(points: &[(f64, Estimate)]) -> Vec<Option<Step>> {
    let Some(&(first_pairs, first)) = points.first() else { return Vec::new() };
    let of_pair = first.mean / first_pairs;
    let each = points.windows(2).map(|two| {
        let [(before, rate_before), (pairs, rate)] = *two else { return None };
        let ratio = (rate.mean - rate_before.mean) / (pairs - before) / of_pair;
        let interval = reach(rate, rate_before, first, pairs - before, first_pairs, ratio);
        let added = Added { ratio, interval: interval.map(|reach| (ratio - reach, ratio + reach)) };
        (of_pair > 0.0).then_some(Step { added, per_pair: rate.mean / pairs / of_pair })
    });
    std::iter::once(None).chain(each).collect()
}

/// Half the interval of what a pair adds: the independent errors of its rates, to the first order. Where the row before is
/// the first, its error is in both.
fn reach(
    rate: Estimate,
    before: Estimate,
    first: Estimate,
    more: f64,
    first_pairs: f64,
    ratio: f64,
) -> Option<f64> {
    let half = |of: Estimate| of.interval.map(|(low, high)| (high - low) / 2.0);
    let of_pair = first.mean / first_pairs;
    let (own, of_before, of_first) = (half(rate)?, half(before)?, half(first)?);
    let scale = 1.0 / (more * of_pair);
    let by_first = ratio / first.mean;
    let squares = match before == first {
        true => (own * scale).powi(2) + (of_first * (scale + by_first)).powi(2),
        false => {
            (own * scale).powi(2) + (of_before * scale).powi(2) + (of_first * by_first).powi(2)
        }
    };
    Some(squares.sqrt())
}

impl Added {
    /// Whether it certainly adds less than scaling asks.
    fn falls_short(self) -> bool {
        self.interval.map_or(self.ratio, |(_, high)| high) < SCALES
    }

    fn is_implausible(self) -> bool {
        self.interval.map_or(self.ratio, |(low, _)| low) > IMPLAUSIBLE
    }

    fn text(self) -> String {
        match self.interval {
            None => format!("{:.2}", self.ratio),
            Some((low, high)) => format!("{:.2} (95% interval {low:.2} to {high:.2})", self.ratio),
        }
    }
}

pub(super) fn answer(groups: &[Group<'_>]) -> Vec<Answer> {
    groups.iter().map(|group| of_group(group)).collect()
}

fn of_group(group: &Group<'_>) -> Answer {
    if group.points.len() < 2 {
        return Err("there is only one number of pairs".to_owned());
    }
    let rates: Vec<(f64, Estimate)> = group
        .points
        .iter()
        .map(|(number, point)| Ok((*number, mean(point, |run| figure(run, READ))?)))
        .collect::<Result<_, String>>()?;
    let steps: Vec<(usize, Step)> = efficiency(&rates)
        .into_iter()
        .enumerate()
        .filter_map(|(place, step)| Some((place, step?)))
        .collect();
    if let Some(&(place, step)) = steps.iter().find(|(_, step)| step.added.is_implausible())
        && let (Some((first, _)), Some((number, _))) = (rates.first(), rates.get(place))
    {
        return Err(format!(
            "of {} each further one adds {:.2} of the rate of one with {}: something disturbed the runs with {}",
            pairs(*number),
            step.added.ratio,
            pairs(*first),
            pairs(*first)
        ));
    }
    let stop = steps.iter().find(|(_, step)| step.added.falls_short()).copied();
    let (Some(&(first_pairs, first)), Some(&(last_pairs, last)), Some(&(_, last_step))) =
        (rates.first(), rates.last(), steps.last())
    else {
        return Err("the server read nothing with the fewest pairs".to_owned());
    };
    let rate = |estimate: Estimate| show(Unit::PerSecond, estimate.mean);
    let begin = match group.title() {
        title if title.is_empty() => "The".to_owned(),
        title => format!("With {title}, the"),
    };
    let (told, measured) = match stop {
        None => (
            last_step.added,
            format!(
                "{begin} server reads {} with {} and {} with {}: the rate scales to {}, {} {:.2} of the rate of one",
                rate(first),
                pairs(first_pairs),
                rate(last),
                pairs(last_pairs),
                pairs(last_pairs),
                if steps.len() == 1 {
                    "each further one adding"
                } else {
                    "each further one adding at least"
                },
                steps.iter().map(|(_, step)| step.added.ratio).fold(f64::INFINITY, f64::min)
            ),
        ),
        Some((place, step)) => {
            let (number, of) = rates.get(place).copied().unwrap_or((last_pairs, last));
            let (before, of_before) =
                rates.get(place.wrapping_sub(1)).copied().unwrap_or((first_pairs, first));
            let by = number - before;
            let further = match by {
                1.0 => "one more pair".to_owned(),
                _ => format!("each of {by} more pairs"),
            };
            let what = match step.added.ratio {
                ratio if ratio < 0.0 => "takes away",
                _ => "adds only",
            };
            let limit = group.points.get(place).map(|(_, point)| limits::limits(point));
            let limit =
                limit.map_or_else(String::new, |limits| format!("; there {}", limits.text()));
            (
                step.added,
                format!(
                    "{begin} rate stops scaling at {}: the server reads {} with {} and {} with {}, so {further} \
                 {what} {} of the rate of one{limit}",
                    pairs(before),
                    rate(of_before),
                    pairs(before),
                    rate(of),
                    pairs(number),
                    Added {
                        ratio: step.added.ratio.abs(),
                        interval: step.added.interval.map(|(low, high)| {
                            if step.added.ratio < 0.0 { (-high, -low) } else { (low, high) }
                        })
                    }
                    .text(),
                ),
            )
        }
    };
    let mut evidence: Vec<String> = Vec::new();
    let each: Vec<String> = rates
        .iter()
        .zip(efficiency(&rates))
        .map(|((number, estimate), step)| {
            let added = step.map_or_else(String::new, |step| {
                format!(" ({:.2} per added pair)", step.added.ratio)
            });
            format!("{number}: {}{added}", rate(*estimate))
        })
        .collect();
    evidence.push(format!("read by pairs: {}", each.join(", ")));
    if let Some((place, _)) = stop
        && let Some((_, point)) = group.points.get(place)
    {
        evidence.extend(limits::limits(point).evidence);
        evidence.extend(disturbed(point));
    }
    let number = stop.and_then(|(place, _)| rates.get(place)).map(|(number, _)| *number);
    Ok(Some(Finding {
        metric: Some(READ.to_owned()),
        axis: Some(super::PAIRS.to_owned()),
        effect: effect("per added pair", Unit::Ratio, told.ratio, told.interval),
        evidence,
        ..finding(group, number, format!("{measured}."))
    }))
}
