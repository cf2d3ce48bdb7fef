//! Selection of the inputs that a study can separate. Others are named with the reason.

use wirecost_model::cost::{CostModel, ExcludedPoint, ExcludedTerm, Input};
use wirecost_model::units::decimal;

use super::PointSamples;
use super::fit::rows;
use super::least_squares::{inflation, likeness};

/// An input that grows by less from its least to its most says nothing of its own.
const MIN_GROWTH: f64 = 1.5;

/// A constant is told from what the load costs only where some load is light: where every point keeps
/// the CPUs as busy, a constant alone explains them all.
const LIGHT: f64 = 0.5;

/// Above this, what an input costs is rather noise: the interval of its cost is five and a half times as
/// wide as it would be by itself. Ten is usual for centred columns; these are not, and have the level of
/// the load in common.
const MAX_INFLATION: f64 = 30.0;

/// An input that was not measured at more of the points than one in so many is left out; else these
/// points are.
const FEW: usize = 4;

/// The inputs of the model. Points where one of them was not measured are taken out.
pub(super) fn select(points: &mut Vec<PointSamples>, document: &mut CostModel) -> Vec<Input> {
    let mut candidates = Vec::new();
    for input in Input::ALL {
        match missing(input, points) {
            Some((count, reason)) if count * FEW > points.len() => {
                document.left_out.push(ExcludedTerm {
                    input,
                    reason: format!("not measured at {count} of {} points: {reason}", points.len()),
                });
            }
            Some(_) => {
                points.retain(|point| match unknown(input, point) {
                    None => true,
                    Some(reason) => {
                        document.points_left_out.push(ExcludedPoint {
                            point: point.point.clone(),
                            reason: format!("no measurement of {}: {reason}", input.name()),
                        });
                        false
                    }
                });
                candidates.push(input);
            }
            None => candidates.push(input),
        }
    }
    let mut kept: Vec<Input> = Vec::new();
    for input in candidates {
        match obstacle(input, &kept, points) {
            Some(reason) => document.left_out.push(ExcludedTerm { input, reason }),
            None => kept.push(input),
        }
    }
    kept
}

/// At how many points an input was not measured, and why not at the first.
fn missing(input: Input, points: &[PointSamples]) -> Option<(usize, String)> {
    let reasons: Vec<&str> = points.iter().filter_map(|point| unknown(input, point)).collect();
    reasons.first().map(|first| (reasons.len(), (*first).to_owned()))
}

/// Why an input is not known of a point.
fn unknown(input: Input, point: &PointSamples) -> Option<&str> {
    point.samples.iter().find_map(|sample| sample.value(input).err())
}

/// Why an input cannot be told from those before it.
fn obstacle(input: Input, kept: &[Input], points: &[PointSamples]) -> Option<String> {
    let all: Vec<Input> = kept.iter().copied().chain([input]).collect();
    let (values, targets) = (means(points, input), cycles(points));
    let (least, most) = range(&values);
    if most <= 0.0 {
        return Some("none occurred".to_owned());
    }
    let (light, busy) = range(&targets);
    match input {
        Input::Bytes => return None,
        Input::Constant if light > LIGHT * busy => {
            return Some(format!(
                "the CPUs were almost equally busy at all points ({} to {}), so a constant would fit \
                 them without explaining anything",
                decimal(light, "cycles/s"),
                decimal(busy, "cycles/s")
            ));
        }
        Input::Constant => {}
        _ if most < MIN_GROWTH * least => {
            let level = match decimal(least, "") == decimal(most, "") {
                true => format!("{} everywhere", decimal(most, "")),
                false => format!("{} to {}", decimal(least, ""), decimal(most, "")),
            };
            return Some(format!("the study hardly varies it ({level})"));
        }
        _ => {}
    }
    if points.len() < 2 * all.len() {
        return Some(format!("too few points ({}) for another cost", points.len()));
    }
    let rows = rows(points, &all);
    let others: Vec<usize> = (0..kept.len()).collect();
    if inflation(&rows, kept.len(), &others) > MAX_INFLATION {
        let alike = others
            .into_iter()
            .max_by(|a, b| {
                let like = |other: usize| likeness(&rows, other, kept.len());
                like(*a).total_cmp(&like(*b))
            })
            .map_or("the others", |other| kept[other].name());
        return Some(format!("it is collinear with {alike}, so its cost is part of theirs"));
    }
    None
}

/// Mean of each point's runs.
pub(super) fn means(points: &[PointSamples], input: Input) -> Vec<f64> {
    let mean = |point: &PointSamples| {
        let values = point.samples.iter().filter_map(|sample| sample.value(input).ok());
        values.sum::<f64>() / point.samples.len() as f64
    };
    points.iter().map(mean).collect()
}

fn cycles(points: &[PointSamples]) -> Vec<f64> {
    let mean = |point: &PointSamples| {
        point.samples.iter().map(|s| s.cycles).sum::<f64>() / point.samples.len() as f64
    };
    points.iter().map(mean).collect()
}

pub(super) fn range(values: &[f64]) -> (f64, f64) {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    (least, values.iter().copied().fold(f64::NEG_INFINITY, f64::max))
}
