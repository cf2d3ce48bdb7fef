//! Axes of which nothing was found: that is an answer too, with how much it is worth.

use super::line::Line;
use super::{Correction, Finding, Question, Runs, choices, line, trend, words};
use crate::measured::{MeasuredPoint, Measurements, RUN};
use crate::metrics::Selector;
use crate::statistics::moderated::{self, Cell, Effect};
use wirecost_model::study::{LOAD, Value};

pub(super) const NAME: &str = "unchanged";
/// The kind of the sentence about axes whose points were run too few times.
pub(super) const UNTESTED: &str = "untested";

/// The change of which a sentence says how many repeats would show it.
const SOUGHT: f64 = 0.05;

/// What is known of an axis without a finding.
enum Answer {
    /// How large an effect these runs would have shown.
    NoEffect { axis: String, text: String, evidence: Vec<String> },
    /// Nothing: points were run too few times. With the figures that there are.
    Untested { axis: String, evidence: Vec<String> },
}

/// Points that differ in one axis only: what the others are, and by value of the axis the figures of the runs.
type Group<'a> = (&'a [&'a Value], Vec<(&'a str, Vec<f64>)>);

/// A sentence for each axis without a finding; one for all that nothing is known of.
pub(super) fn find(runs: &Runs<'_>, found: &[Finding], questions: &[Question]) -> Vec<Finding> {
    let Runs { all: measured, saturated, .. } = *runs;
    let axes = measured.axes().into_iter();
    let open = axes.filter(|axis| {
        let is_answered = found.iter().any(|finding| finding.axis.as_deref() == Some(*axis));
        // Runs of no study were not made to be compared.
        !is_answered && *axis != RUN && measured.values(axis).len() > 1
    });
    let answer = |axis: &str| match axis {
        // It sets how much moves.
        LOAD => answer(
            measured,
            axis,
            line::cost_latency().collect(),
            line::by_load(measured),
            questions,
        ),
        _ => {
            let metrics = line::rate_cost_latency(saturated);
            answer(saturated, axis, metrics, line::lines(saturated), questions)
        }
    };
    let (mut answers, mut untested, mut figures) = (Vec::new(), Vec::new(), Vec::new());
    for answer in open.filter_map(answer) {
        match answer {
            Answer::NoEffect { axis, text, evidence } => {
                answers.push(sentence(NAME, Some(&axis), &text, evidence));
            }
            Answer::Untested { axis, evidence } => {
                untested.push(axis);
                figures.extend(evidence);
            }
        }
    }
    if !untested.is_empty() {
        let (effects, were) = match untested.as_slice() {
            [_] => ("the effect", "was"),
            _ => ("the effects", "were"),
        };
        let axes = words::list(&untested);
        let text = format!(
            "{effects} of {axes} {were} not tested: each point needs at least 3 runs (repeat.times)"
        );
        let axis = match untested.as_slice() {
            [one] => Some(one.as_str()),
            _ => None,
        };
        answers.push(sentence(UNTESTED, axis, &text, figures));
    }
    answers
}

fn sentence(kind: &str, axis: Option<&str>, text: &str, evidence: Vec<String>) -> Finding {
    Finding {
        kind: kind.to_owned(),
        metric: None,
        axis: axis.map(str::to_owned),
        at: Vec::new(),
        sentence: words::sentence(&[], text),
        effect: None,
        p_value: None,
        strength: None,
        evidence,
        points: Vec::new(),
    }
}

/// About the metrics that a kind tests along this axis: in pairs of values, or along lines.
fn answer(
    measured: &Measurements,
    axis: &str,
    mut metrics: Vec<Selector>,
    mut lines: Vec<Line<'_>>,
    questions: &[Question],
) -> Option<Answer> {
    let mut groups = line::groups(measured, axis);
    let mut question = Question::Choice;
    if !choices::compares(measured, axis) {
        question = Question::Course;
        lines.retain(|line| line.axis == axis);
        groups.retain(|(fixed, _)| lines.iter().any(|line| line.fixed == *fixed));
        metrics.retain(|metric| trend::is_tested(&lines, &metric.name));
    }
    let correction = Correction::of(question, questions);
    let (mut names, mut evidence, mut untested) = (Vec::new(), Vec::new(), Vec::new());
    let mut repeats = Some(0);
    for (metric, selector) in metrics.iter().enumerate() {
        let known: Vec<Group<'_>> = groups
            .iter()
            .map(|(fixed, points)| (fixed.as_slice(), figures(points, selector)))
            .filter(|(_, points)| points.len() > 1)
            .collect();
        if known.is_empty() {
            continue;
        }
        let level = level(&known, metrics.len(), correction);
        let Some(effects) = extremes(metric, &known) else {
            untested.extend(shown(selector, &known));
            continue;
        };
        // A difference that is too small for a sentence is one all the same.
        if effects.iter().any(|effect| effect.p_value() < level) {
            continue;
        }
        names.push(words::metric(selector));
        evidence.extend(shown(selector, &known));
        // What is least certain decides.
        for effect in effects {
            let needed = effect.runs_to_find(SOUGHT, level);
            repeats = repeats.zip(needed).map(|(most, needed)| most.max(needed));
        }
    }
    if names.is_empty() {
        let is_untested = !untested.is_empty();
        return is_untested.then(|| Answer::Untested { axis: axis.to_owned(), evidence: untested });
    }
    let repeats = match repeats {
        Some(repeats) => format!("about {repeats}"),
        None => "more than 10,000".to_owned(),
    };
    let text = format!(
        "no significant effect of {axis} on {}; to detect a change of 5% with 80% power takes {repeats} runs of \
         each point",
        either(&names)
    );
    Some(Answer::NoEffect { axis: axis.to_owned(), text, evidence })
}

/// The means of a metric, a line for each group.
fn shown<'a>(selector: &Selector, known: &'a [Group<'a>]) -> Vec<String> {
    let line = |(fixed, points): &Group<'_>| {
        let values = points
            .iter()
            .map(|(value, runs)| format!("{value}: {}", words::value(selector, line::mean(runs))));
        let at =
            if fixed.is_empty() { String::new() } else { format!(" at {}", words::point(fixed)) };
        format!("{}{at}: {}", words::metric(selector), values.collect::<Vec<_>>().join(", "))
    };
    known.iter().map(line).collect()
}

fn figures<'a>(
    points: &[(&'a str, &MeasuredPoint)],
    selector: &Selector,
) -> Vec<(&'a str, Vec<f64>)> {
    let all = points.iter().map(|(value, point)| (*value, point.figures(selector)));
    all.filter(|(_, figures)| !figures.is_empty() && figures.iter().all(|v| *v > 0.0)).collect()
}

/// The values whose means are farthest apart, of each group; `None` where something was run once.
fn extremes(metric: usize, known: &[Group<'_>]) -> Option<Vec<Effect>> {
    let logs = |values: &[f64]| values.iter().map(|value| value.ln()).collect::<Vec<f64>>();
    let mut cells = Vec::new();
    for (_, points) in known {
        let by_mean = |a: &&(&str, Vec<f64>), b: &&(&str, Vec<f64>)| {
            line::mean(&a.1).total_cmp(&line::mean(&b.1))
        };
        let (least, most) = (points.iter().min_by(by_mean)?, points.iter().rev().max_by(by_mean)?);
        if least.1.len() < 2 || most.1.len() < 2 {
            return None;
        }
        cells.push(Cell { metric, a: logs(&least.1), b: logs(&most.1) });
    }
    Some(moderated::effects(&cells))
}

/// The level of one test of a kind, if each pair of values is tested in each group.
fn level(known: &[Group<'_>], metrics: usize, correction: Correction) -> f64 {
    let pairs = |points: &Vec<_>| points.len() * (points.len() - 1) / 2;
    let tests: usize = known.iter().map(|(_, points)| pairs(points)).sum();
    correction.level(metrics * tests.max(1))
}

/// `a`, `a or b`, `a, b or c`.
fn either(parts: &[String]) -> String {
    words::list(parts).replace(" and ", " or ")
}
