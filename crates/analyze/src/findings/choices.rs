//! The effect of an engine or option: the best value of an axis, compared with the others.

use super::line;
use super::{Confidence, Finding, Kind, significant, words};
use crate::measured::Measurements;
use crate::metrics::{self, Selector};
use crate::statistics::contrast::{Contrast, contrast};
use wirecost_model::metric::Better;

pub(super) const KIND: Kind = Kind {
    name: "choices",
    help: "which value of an axis is best, compared with the others at the same points",
    find,
};

/// Smaller differences are not reported.
const DIFFERENCE: f64 = 1.03;

/// One value beside another.
struct Pair<'a> {
    axis: &'a str,
    metric: usize,
    value: &'a str,
    other: &'a str,
    contrast: Contrast,
    places: usize,
}

/// A value that is worse than the best.
struct WorseValue<'a> {
    p_value: f64,
    other: &'a str,
    ratio: f64,
    interval: (f64, f64),
    places: usize,
}

fn find(measured: &Measurements) -> Vec<Finding> {
    let named = ["cycles_per_kbyte", "latency.p99"].iter().filter_map(|n| metrics::find(n).ok());
    let metrics: Vec<Selector> = line::work(measured).into_iter().chain(named).collect();
    let mut tests = Vec::new();
    for axis in measured.axes() {
        let values = measured.values(axis);
        // More values of numbers are a line, which other kinds look at.
        if values.len() < 2 || values.len() > 2 && line::is_numeric(measured, axis) {
            continue;
        }
        for (metric, selector) in metrics.iter().enumerate() {
            for (number, value) in values.iter().enumerate() {
                for other in &values[number + 1..] {
                    let pair = beside(measured, axis, selector, value, other);
                    let Some((contrast, places)) = pair else { continue };
                    let pair = Pair { axis, metric, value, other, contrast, places };
                    tests.push((contrast.p_value, pair));
                }
            }
        }
    }
    let significant = significant(tests);
    let mut findings = Vec::new();
    for axis in measured.axes() {
        for (metric, selector) in metrics.iter().enumerate() {
            let here: Vec<&(f64, Pair<'_>)> =
                significant.iter().filter(|(_, p)| p.axis == axis && p.metric == metric).collect();
            findings.extend(best(measured, axis, selector, &here));
        }
    }
    findings
}

fn beside(
    measured: &Measurements,
    axis: &str,
    selector: &Selector,
    value: &str,
    other: &str,
) -> Option<(Contrast, usize)> {
    let places: Vec<(Vec<f64>, Vec<f64>)> = line::groups(measured, axis)
        .iter()
        .filter_map(|(_, points)| {
            let of = |value: &str| {
                let (_, point) = points.iter().find(|(at, _)| *at == value)?;
                Some(point.figures(selector)).filter(|figures| !figures.is_empty())
            };
            Some((of(value)?, of(other)?))
        })
        .collect();
    Some((contrast(&places)?, places.len()))
}

/// The value that is better than most others, and worse than none.
fn best(
    measured: &Measurements,
    axis: &str,
    selector: &Selector,
    pairs: &[&(f64, Pair<'_>)],
) -> Option<Finding> {
    let higher = match selector.metric().better {
        Better::Higher => true,
        Better::Lower => false,
        Better::Neither => return None,
    };
    let mut champion: Option<(&str, Vec<WorseValue<'_>>)> = None;
    for value in measured.values(axis) {
        let mut beaten = Vec::new();
        let mut loses = false;
        for (p_value, pair) in pairs {
            let (ratio, (low, high)) = (pair.contrast.ratio, pair.contrast.interval);
            let (other, ratio, interval) = if pair.value == value {
                (pair.other, ratio, (low, high))
            } else if pair.other == value {
                (pair.value, 1.0 / ratio, (1.0 / high, 1.0 / low))
            } else {
                continue;
            };
            let better = if higher { ratio >= DIFFERENCE } else { ratio <= 1.0 / DIFFERENCE };
            let worse = if higher { ratio <= 1.0 / DIFFERENCE } else { ratio >= DIFFERENCE };
            loses |= worse;
            if better {
                beaten.push(WorseValue {
                    p_value: *p_value,
                    other,
                    ratio,
                    interval,
                    places: pair.places,
                });
            }
        }
        if !loses && champion.as_ref().map_or(0, |(_, most)| most.len()) < beaten.len() {
            champion = Some((value, beaten));
        }
    }
    let (value, beaten) = champion?;
    let name = selector.metric().name;
    let parts: Vec<String> = beaten
        .iter()
        .map(|WorseValue { other, ratio, interval: (low, high), .. }| {
            let (near, far) = if higher { (*low, *high) } else { (*high, *low) };
            format!("{} with {other}", than(*ratio, (near, far)))
        })
        .collect();
    let text = format!("with {axis} {value}, {name} is {}", words::list(&parts));
    let worst = beaten.iter().map(|beaten| beaten.p_value).fold(0.0, f64::max);
    let WorseValue { interval, places, .. } = *beaten.first()?;
    let mut evidence = vec![format!("compared at {places} points that differ only in {axis}")];
    for (fixed, points) in line::groups(measured, axis) {
        let shown: Vec<String> = points
            .iter()
            .filter(|(_, point)| !point.figures(selector).is_empty())
            .map(|(value, point)| {
                format!(
                    "{value} {}",
                    selector.metric().unit.show(line::mean(&point.figures(selector)))
                )
            })
            .collect();
        let at: Vec<String> = fixed.iter().map(|v| format!("{}={}", v.name, v.value)).collect();
        let at =
            if at.is_empty() { name.to_owned() } else { format!("{name} at {}", at.join(" ")) };
        evidence.push(format!("{at}: {}", shown.join(", ")));
    }
    Some(Finding {
        kind: KIND.name,
        sentence: words::sentence(&[], &text),
        evidence,
        confidence: Confidence::of(worst, Some(interval), |ratio| format!("{ratio:.2}x")),
    })
}

/// A figure relative to another: `12% higher (8% to 15%) than`, `2.4x (2.1 to 2.8x) the value`.
fn than(ratio: f64, (near, far): (f64, f64)) -> String {
    if ratio >= 2.0 {
        let [near, far] = [near, far].map(words::fold);
        let near = near.trim_end_matches('x');
        return format!("{} ({near} to {far}) the value", words::fold(ratio));
    }
    let more = if ratio > 1.0 { "higher" } else { "lower" };
    let percent = |ratio: f64| format!("{:.0}%", (ratio - 1.0).abs() * 100.0);
    format!("{} {more} ({} to {}) than", percent(ratio), percent(near), percent(far))
}
