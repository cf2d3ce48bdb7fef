//! The law that throughput follows over the number of connections or workers.

use super::line;
use super::{Finding, Kind, Question, Runs, Tested, effect, tested};
use crate::statistics::scalability::{Fit, fit};
use wirecost_model::metric::Unit;
use wirecost_model::units::three_digits;

pub(super) const KIND: Kind = Kind {
    name: "scalability",
    help: "the Universal Scalability Law of throughput over connections or workers, and its peak",
    question: Question::Course,
    find,
};

/// Axes that say how many there are of what works side by side.
const NUMBERS: &[&str] = &["connections", "workers"];
/// A law that explains less is not the one that the data follow.
const EXPLAINED: f64 = 0.95;

fn find<'a>(runs: &'a Runs<'_>) -> Option<Tested<'a>> {
    let measured = runs.saturated;
    let work = line::work(measured)?;
    let mut tests = Vec::new();
    for line in line::lines(measured).into_iter().filter(|line| NUMBERS.contains(&line.axis)) {
        let Some((stops, figures)) = line.measured(&work) else { continue };
        let points: Vec<(f64, f64)> = stops
            .iter()
            .zip(&figures)
            .flat_map(|(stop, runs)| runs.iter().map(|value| (stop.number, *value)))
            .collect();
        if let Some(fit) = fit(&points) {
            tests.push((fit.p_value, (line, fit, stops.len(), points.len())));
        }
    }
    tested(tests, move |p_value, (line, fit, stops, runs)| {
        if fit.explained < EXPLAINED {
            return None;
        }
        let unit = work.metric().unit;
        let (law, percent) = (&fit.law, |share: f64| format!("{}%", small(share * 100.0)));
        let range = |(low, high): (f64, f64), show: &dyn Fn(f64) -> String| {
            format!("({} to {})", show(low), show(high))
        };
        let last = line.stops.last().map_or(0.0, |stop| stop.number);
        let text = format!(
            "the Universal Scalability Law fits {} over {}: {} {} at 1, contention {} {}, coherency \
             {} {}{}",
            work.metric().name,
            line.axis,
            unit.show(law.rate),
            range(fit.rate, &|value| unit.show(value)),
            percent(law.contention),
            range(fit.contention, &percent),
            percent(law.coherency),
            range(fit.coherency, &percent),
            peak(&fit, line.axis, last)
        );
        let mut evidence = vec![format!(
            "the fit explains {:.1}% of the variance of {runs} runs at {stops} points",
            fit.explained * 100.0
        )];
        evidence.extend(line.confounders());
        let (low, high) = fit.contention;
        let contention = (100.0 * low, 100.0 * high);
        Some(Finding {
            metric: Some(work.name.clone()),
            effect: effect("contention", Unit::Percent, 100.0 * law.contention, Some(contention)),
            evidence,
            ..KIND.along(line.axis, &line.fixed, p_value, &text)
        })
    })
}

/// Two digits, of however small a value.
fn small(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        value if value < 0.1 => {
            let digits = (1.0 - value.log10().floor()) as usize;
            format!("{value:.digits$}")
        }
        value => three_digits(value),
    }
}

fn peak(fit: &Fit, axis: &str, last: f64) -> String {
    // Where there may be no coherency there may be no peak.
    let (Some(peak), Some((low, high))) = (fit.law.peak(), fit.peak) else { return String::new() };
    if fit.coherency.0 <= 0.0 {
        return String::new();
    }
    let beyond = if peak > last { ", beyond the measured range" } else { "" };
    format!("; it peaks at {peak:.0} {axis} ({low:.0} to {high:.0}){beyond}")
}
