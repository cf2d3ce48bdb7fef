//! Where throughput stops growing, and which resource was saturated there.

use super::limits::limits;
use super::line::{self, Line, Stop};
use super::{Finding, Kind, Question, Runs, Tested, effect, tested, words};
use crate::knee::{After, Knee, knee};
use crate::metrics::Selector;
use crate::statistics::umbrella::{Shape, umbrella};
use crate::statistics::unimodal::unimodal;
use crate::statistics::{Estimate, bootstrap};
use wirecost_model::metric::Unit;

pub(super) const KIND: Kind = Kind {
    name: "saturation",
    help: "where throughput stops growing along an axis, and which resource was saturated there",
    question: Question::Course,
    find,
};

/// Smaller growth is not reported.
const GROWTH: f64 = 1.1;

fn find<'a>(runs: &'a Runs<'_>) -> Option<Tested<'a>> {
    let measured = runs.saturated;
    let work = line::work(measured)?;
    let mut tests = Vec::new();
    for line in line::lines(measured) {
        let Some((stops, figures)) = line.measured(&work) else { continue };
        if let Some(turn) = umbrella(&figures, &[Shape::Hill]) {
            tests.push((turn.p_value, (line, stops, figures)));
        }
    }
    tested(tests, move |p_value, (line, stops, figures)| {
        finding_of(&work, &line, &stops, &figures, p_value)
    })
}

/// The knee of means alone: how sure they are is what many draws of them show.
fn knee_of(stops: &[Stop<'_>], means: &[f64]) -> Option<Knee> {
    let alone = |mean: &f64| Estimate { mean: *mean, interval: None, times: 1 };
    let means = unimodal(means);
    let points = stops.iter().zip(&means).map(|(stop, mean)| (stop.number, alone(mean)));
    knee(&points.collect::<Vec<_>>()).ok()
}

fn finding_of(
    work: &Selector,
    line: &Line<'_>,
    stops: &[Stop<'_>],
    figures: &[Vec<f64>],
    p_value: f64,
) -> Option<Finding> {
    let means: Vec<f64> = figures.iter().map(|runs| line::mean(runs)).collect();
    let knee = knee_of(stops, &means)?;
    let at = stops.iter().position(|stop| stop.number == knee.load)?;
    let last = stops.len() - 1;
    if at == 0 || means[at] < GROWTH * means[0] {
        return None;
    }
    let drawn = bootstrap::draws(|random| {
        let knee = knee_of(stops, &line::plausible_means(figures, random)?)?;
        stops.iter().position(|stop| stop.number == knee.load)
    });
    // Of points that were run once nobody knows where it is.
    let (low, high) = bootstrap::middle(&drawn, |place| Some(*place as f64))?;
    let (low, high) = (low as usize, high as usize);
    // That it is not reached at one stop and is at the next says only that it is between them.
    let ends = (&stops[low.saturating_sub(1)], &stops[high]);
    let shown = |value: f64| work.metric().unit.show(value);
    let grows = if work.metric().name == "transactions" { "grow" } else { "grows" };
    let table = || {
        let figures: Vec<String> = means.iter().map(|mean| shown(*mean)).collect();
        line.table(work.metric().name, stops, &figures)
    };
    if low == last {
        let text = format!(
            "{} still {grows} at {}, the largest value measured, reaching {}",
            work.metric().name,
            words::stop(line.axis, stops[last].value),
            shown(means[last])
        );
        let limits = limits(&[stops[last].point]);
        let mut evidence = vec![table()];
        evidence.extend(limits.evidence.iter().map(|seen| format!("there: {seen}")));
        evidence.extend(line.confounders());
        return Some(Finding {
            metric: Some(work.name.clone()),
            evidence,
            ..KIND.along(line.axis, &line.fixed, p_value, &text)
        });
    }
    // It may as well grow to the end of what was measured.
    if high >= last {
        return None;
    }
    let top = (0..=last).max_by(|a, b| means[*a].total_cmp(&means[*b])).unwrap_or(at);
    let there = if top == at { vec![at] } else { vec![at, top] };
    let limits = limits(&there.iter().map(|place| stops[*place].point).collect::<Vec<_>>());
    let between = format!(" (95% interval {} to {})", ends.0.value, ends.1.value);
    let after = match knee.after {
        After::Falls { load, least } => {
            let from = stops.iter().find(|stop| stop.number == load).map_or("", |stop| stop.value);
            format!(
                "; at {} and beyond it is lower, down to {}",
                words::stop(line.axis, from),
                shown(least)
            )
        }
        After::Level | After::Nothing => String::new(),
    };
    let text = format!(
        "{} {grows} up to {}{between}, reaching {}; there {}{after}",
        work.metric().name,
        words::stop(line.axis, stops[at].value),
        shown(means[at]),
        limits.text
    );
    let mut evidence = vec![table()];
    evidence.extend(limits.evidence.iter().map(|seen| format!("there: {seen}")));
    evidence.extend(line.confounders());
    let interval = Some((ends.0.number, ends.1.number));
    Some(Finding {
        metric: Some(work.name.clone()),
        effect: effect(line.axis, Unit::Count, stops[at].number, interval),
        evidence,
        ..KIND.along(line.axis, &line.fixed, p_value, &text)
    })
}
