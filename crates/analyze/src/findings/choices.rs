//! The effect of an engine or option: the best value of an axis, compared with the others.
//!
//! Two values are compared over all points that differ in nothing else, and at each of them (ADR 0030). A
//! sentence about all points is told only if no point contradicts it; where points differ in their
//! direction, the sentence names both.

use super::line;
use super::{Correction, Finding, Kind, LEVEL, Question, Runs, Tested, effect, ratio_of, words};
use crate::measured::{MeasuredPoint, Measurements};
use crate::metrics::Selector;
use crate::statistics::contrast::{Contrast, contrast};
use crate::statistics::moderated::{self, Cell, Effect};
use wirecost_model::metric::{Better, Unit};
use wirecost_model::study::{LOAD, Value};

pub(super) const KIND: Kind = Kind {
    name: "choices",
    help: "which value of an axis is better than others and worse than none, compared at the same points",
    question: Question::Choice,
    find,
};

/// Smaller differences are not reported.
const DIFFERENCE: f64 = 1.03;

/// Maximum number of sentences about values that are better at some points only, for each metric.
const IN_PLACES: usize = 3;

/// The ratio of one value to another, with the corrected p-value.
#[derive(Debug, Clone, Copy)]
struct Ratio {
    ratio: f64,
    /// 95%.
    interval: (f64, f64),
    p_value: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Better,
    Worse,
    Unclear,
}

/// The two values at points that differ in nothing else.
#[derive(Clone)]
struct Place<'a> {
    fixed: Vec<&'a Value>,
    /// `None` where it was not repeated.
    ratio: Option<Ratio>,
    means: (f64, f64),
}

/// One value beside another, by one metric.
#[derive(Clone)]
struct Pair<'a> {
    axis: &'a str,
    metric: usize,
    value: &'a str,
    other: &'a str,
    /// Over all places.
    overall: Option<Ratio>,
    places: Vec<Place<'a>>,
}

fn find<'a>(runs: &'a Runs<'_>) -> Option<Tested<'a>> {
    let measured = runs.saturated;
    let metrics = line::rate_cost_latency(measured);
    let mut pairs = Vec::new();
    for axis in measured.axes().into_iter().filter(|axis| compares(measured, axis)) {
        let values = measured.values(axis);
        for (number, value) in values.iter().enumerate() {
            for other in &values[number + 1..] {
                pairs.extend(beside(measured, axis, &metrics, value, other));
            }
        }
    }
    if pairs.iter_mut().all(|pair| matches!(pair.ratios(), (None, places) if places.is_empty())) {
        return None;
    }
    Some(Box::new(move |correction| {
        correct(&mut pairs, correction);
        findings(measured, &metrics, &pairs)
    }))
}

fn findings(measured: &Measurements, metrics: &[Selector], pairs: &[Pair<'_>]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for axis in measured.axes() {
        for (metric, selector) in metrics.iter().enumerate() {
            if selector.metric().better == Better::Neither {
                continue;
            }
            let here: Vec<&Pair<'_>> =
                pairs.iter().filter(|pair| pair.axis == axis && pair.metric == metric).collect();
            findings.extend(best(measured, axis, selector, &here));
            let in_places = here.iter().filter_map(|pair| pair.in_places(selector));
            findings.extend(in_places.take(IN_PLACES));
        }
    }
    findings
}

/// Whether the values of an axis are compared in pairs. Three measured numbers in a row are a line, which
/// other kinds look at; and a lower load moves less, which is no worse.
pub(super) fn compares(measured: &Measurements, axis: &str) -> bool {
    let is_line = || line::lines(measured).iter().any(|line| line.axis == axis);
    axis != LOAD && measured.values(axis).len() > 1 && !is_line()
}

/// Two values by all metrics that both were measured in. Variances of a metric are shared between places.
fn beside<'a>(
    measured: &'a Measurements,
    axis: &'a str,
    metrics: &[Selector],
    value: &'a str,
    other: &'a str,
) -> Vec<Pair<'a>> {
    let groups = line::groups(measured, axis);
    let mut cells = Vec::new();
    let mut pairs = Vec::new();
    for (metric, selector) in metrics.iter().enumerate() {
        let mut places = Vec::new();
        let mut values = Vec::new();
        for (fixed, points) in &groups {
            let of = |value: &str| -> Option<Vec<f64>> {
                let (_, point): &(&str, &MeasuredPoint) =
                    points.iter().find(|(at, _)| *at == value)?;
                Some(point.figures(selector)).filter(|figures| !figures.is_empty())
            };
            let Some((these, those)) = of(value).zip(of(other)) else { continue };
            let means = (line::mean(&these), line::mean(&those));
            places.push(Place { fixed: fixed.clone(), ratio: None, means });
            values.push((these, those));
        }
        if values.iter().any(|(these, those)| these.iter().chain(those).any(|value| *value <= 0.0))
        {
            continue;
        }
        let logs = |values: &[f64]| values.iter().map(|value| value.ln()).collect::<Vec<f64>>();
        let repeated = values.iter().all(|(these, those)| these.len() > 1 && those.len() > 1);
        let own: Vec<Cell> = values
            .iter()
            .filter(|_| repeated)
            .map(|(these, those)| Cell { metric, a: logs(those), b: logs(these) })
            .collect();
        // Without repeats the places say how much chance moves.
        let overall = match repeated {
            true => moderated::pooled(&own).map(Ratio::from),
            false => contrast(&values).map(Ratio::from),
        };
        cells.extend(own);
        pairs.push(Pair { axis, metric, value, other, overall, places });
    }
    let effects = moderated::effects(&cells);
    for (cell, effect) in cells.iter().zip(effects) {
        let pair = pairs.iter_mut().find(|pair| pair.metric == cell.metric);
        let place =
            pair.and_then(|pair| pair.places.iter_mut().find(|place| place.ratio.is_none()));
        if let Some(place) = place {
            place.ratio = Some(effect.into());
        }
    }
    for pair in &mut pairs {
        // A single place is all places.
        if let ([only], None) = (pair.places.as_slice(), pair.overall) {
            pair.overall = only.ratio;
        }
    }
    pairs
}

/// The ratio of the figures at one value of an axis to those at another, with its 95% interval: at the points that have these
/// values of the other axes, or where there are none, over all points. `None` where they were run too rarely.
pub(crate) fn ratio(
    measured: &Measurements,
    axis: &str,
    selector: &Selector,
    [value, other]: [&str; 2],
    at: &[Value],
) -> Option<(f64, (f64, f64))> {
    let pairs = beside(measured, axis, std::slice::from_ref(selector), value, other);
    let pair = pairs.first()?;
    let ratio = match at {
        [] => pair.overall,
        at => {
            let is_there = |place: &&Place<'_>| {
                place.fixed.len() == at.len() && place.fixed.iter().all(|value| at.contains(value))
            };
            pair.places.iter().find(is_there)?.ratio
        }
    };
    ratio.map(|Ratio { ratio, interval, .. }| (ratio, interval))
}

impl From<Effect> for Ratio {
    fn from(effect: Effect) -> Self {
        Self { ratio: effect.ratio(), interval: effect.interval(LEVEL), p_value: effect.p_value() }
    }
}

impl From<Contrast> for Ratio {
    fn from(contrast: Contrast) -> Self {
        let Contrast { ratio, interval, p_value } = contrast;
        Self { ratio, interval, p_value }
    }
}

/// Corrects all p-values. Ratios over all points and those at points are two families, as in comparisons:
/// they share the level.
fn correct(pairs: &mut [Pair<'_>], correction: Correction) {
    let (overall, places): (Vec<_>, Vec<_>) = pairs.iter_mut().map(Pair::ratios).unzip();
    let mut families: Vec<Vec<&mut Ratio>> =
        vec![overall.into_iter().flatten().collect(), places.into_iter().flatten().collect()];
    families.retain(|family| !family.is_empty());
    let half = correction.shared(families.len());
    for family in families {
        let p_values: Vec<f64> = family.iter().map(|ratio| ratio.p_value).collect();
        for (ratio, p_value) in family.into_iter().zip(half.corrected(&p_values)) {
            ratio.p_value = p_value;
        }
    }
}

impl Ratio {
    fn inverse(self) -> Self {
        let (low, high) = self.interval;
        Self { ratio: 1.0 / self.ratio, interval: (1.0 / high, 1.0 / low), ..self }
    }

    fn verdict(&self, better: Better) -> Verdict {
        let is_higher = self.ratio >= DIFFERENCE;
        let is_lower = self.ratio <= 1.0 / DIFFERENCE;
        match (self.p_value < LEVEL, better) {
            (true, Better::Higher) if is_higher => Verdict::Better,
            (true, Better::Higher) if is_lower => Verdict::Worse,
            (true, Better::Lower) if is_lower => Verdict::Better,
            (true, Better::Lower) if is_higher => Verdict::Worse,
            _ => Verdict::Unclear,
        }
    }
}

impl<'a> Pair<'a> {
    /// What is tested: over all places, and at each of several.
    fn ratios(&mut self) -> (Option<&mut Ratio>, Vec<&mut Ratio>) {
        let is_several = self.places.len() > 1;
        let places = self.places.iter_mut().filter(|_| is_several);
        (self.overall.as_mut(), places.filter_map(|place| place.ratio.as_mut()).collect())
    }

    /// The same seen from the other value.
    fn inverse(&self) -> Self {
        let places = self.places.iter().map(|place| Place {
            fixed: place.fixed.clone(),
            ratio: place.ratio.map(Ratio::inverse),
            means: (place.means.1, place.means.0),
        });
        Self {
            value: self.other,
            other: self.value,
            overall: self.overall.map(Ratio::inverse),
            places: places.collect(),
            ..*self
        }
    }

    fn at(&self, better: Better, verdict: Verdict) -> Vec<&Place<'a>> {
        let is =
            |place: &&Place<'_>| place.ratio.is_some_and(|ratio| ratio.verdict(better) == verdict);
        self.places.iter().filter(is).collect()
    }

    /// Over all points, none of which says the opposite.
    fn overall(&self, better: Better) -> Verdict {
        let verdict = self.overall.map_or(Verdict::Unclear, |ratio| ratio.verdict(better));
        let contradicts = match verdict {
            Verdict::Better => Verdict::Worse,
            Verdict::Worse => Verdict::Better,
            Verdict::Unclear => return Verdict::Unclear,
        };
        if self.places.len() > 1 && !self.at(better, contradicts).is_empty() {
            return Verdict::Unclear;
        }
        verdict
    }

    /// The points of an overall difference at which the means have the opposite order, though not more
    /// than chance might.
    fn exceptions(&self, ratio: f64) -> Vec<String> {
        let opposite = |place: &&Place<'_>| {
            let (these, those) = place.means;
            (these > those) != (ratio > 1.0) && these != those
        };
        self.places.iter().filter(opposite).map(|place| words::point(&place.fixed)).collect()
    }

    /// Where a ratio over all points is that of none: those at single points.
    fn spread(&self, overall: Ratio) -> Option<String> {
        let places = || self.places.iter().filter_map(|place| place.ratio);
        let (low, high) = overall.interval;
        if !places().any(|place| place.interval.1 < low || place.interval.0 > high) {
            return None;
        }
        let (least, most) = (
            places().map(|place| place.ratio).min_by(f64::total_cmp)?,
            places().map(|place| place.ratio).max_by(f64::total_cmp)?,
        );
        let [near, far] = if overall.ratio > 1.0 { [least, most] } else { [most, least] };
        Some(format!(" on average (at single points {} to {})", change(near), change(far)))
    }

    /// A value that is better at some points, and worse or no better at others.
    fn in_places(&self, selector: &Selector) -> Option<Finding> {
        let better = selector.metric().better;
        let (best, worst) = (self.at(better, Verdict::Better), self.at(better, Verdict::Worse));
        // The larger group first.
        if worst.len() > best.len() {
            return self.inverse().in_places(selector);
        }
        // A single place is all places.
        let is_single = self.places.len() < 2;
        if is_single || best.is_empty() || self.overall(better) != Verdict::Unclear {
            return None;
        }
        let metric = words::metric(selector);
        let (axis, value, other) = (self.axis, self.value, self.other);
        let text = match worst.is_empty() {
            true => format!(
                "with {axis} {value}, {metric} is {}, compared with {other}; at the other points no \
                 significant difference",
                differences(&best)
            ),
            false => format!(
                "the effect of {axis} on {metric} depends on the point: with {value} compared with {other} \
                 it is {}, but {}",
                differences(&best),
                differences(&worst)
            ),
        };
        let all = || best.iter().chain(&worst).filter_map(|place| place.ratio);
        let p_value = all().map(|ratio| ratio.p_value).fold(0.0, f64::max);
        let first = best.first()?.ratio?;
        Some(Finding {
            metric: Some(selector.name.clone()),
            effect: effect("ratio", Unit::Ratio, first.ratio, Some(first.interval)),
            evidence: self.places.iter().map(|place| self.figures(selector, place)).collect(),
            ..KIND.along(self.axis, &[], p_value, &text)
        })
    }

    fn figures(&self, selector: &Selector, place: &Place<'_>) -> String {
        let [these, those] =
            [place.means.0, place.means.1].map(|mean| words::value(selector, mean));
        format!("{}: {}: {these}, {}: {those}", words::point(&place.fixed), self.value, self.other)
    }
}

/// The value that is better than most others, and worse than none.
fn best(
    measured: &Measurements,
    axis: &str,
    selector: &Selector,
    pairs: &[&Pair<'_>],
) -> Option<Finding> {
    let better = selector.metric().better;
    let mut champion: Option<(&str, Vec<Pair<'_>>)> = None;
    for value in measured.values(axis) {
        let own = pairs.iter().filter_map(|pair| match value {
            value if pair.value == value => Some((*pair).clone()),
            value if pair.other == value => Some(pair.inverse()),
            _ => None,
        });
        let own: Vec<Pair<'_>> = own.collect();
        let loses = own.iter().any(|pair| pair.overall(better) == Verdict::Worse);
        let beaten: Vec<Pair<'_>> =
            own.into_iter().filter(|pair| pair.overall(better) == Verdict::Better).collect();
        if !loses && champion.as_ref().map_or(0, |(_, most)| most.len()) < beaten.len() {
            champion = Some((value, beaten));
        }
    }
    let (value, beaten) = champion?;
    let parts = beaten.iter().filter_map(|pair| {
        let ratio = pair.overall?;
        let mut text = format!("{} with {}", than(ratio), pair.other);
        text += &pair.spread(ratio).unwrap_or_default();
        let exceptions = pair.exceptions(ratio.ratio);
        if !exceptions.is_empty() {
            text += &format!(" (opposite, but not significantly, at {})", words::list(&exceptions));
        }
        Some(text)
    });
    let parts: Vec<String> = parts.collect();
    let text =
        format!("with {axis} {value}, {} is {}", words::metric(selector), words::list(&parts));
    let ratios = beaten.iter().filter_map(|pair| pair.overall);
    let worst = ratios.map(|ratio| ratio.p_value).fold(0.0, f64::max);
    let first = beaten.first()?;
    let Ratio { ratio, interval, .. } = first.overall?;
    let name = words::metric(selector);
    let mut evidence = vec![format!(
        "compared in {} of points that differ only in {axis}",
        words::number(first.places.len(), "pair")
    )];
    for (fixed, points) in line::groups(measured, axis) {
        let shown: Vec<String> = points
            .iter()
            .filter(|(_, point)| !point.figures(selector).is_empty())
            .map(|(value, point)| {
                let mean = line::mean(&point.figures(selector));
                format!("{value}: {}", words::value(selector, mean))
            })
            .collect();
        let at = match fixed.as_slice() {
            [] => name.clone(),
            fixed => format!("{name} at {}", words::point(fixed)),
        };
        evidence.push(format!("{at}: {}", shown.join(", ")));
    }
    Some(Finding {
        metric: Some(selector.name.clone()),
        effect: ratio_of(ratio, interval, [first.value, first.other]),
        evidence,
        ..KIND.along(axis, &[], worst, &text)
    })
}

/// `30% higher (20% to 41%) at 4 connections`, of each place.
fn differences(places: &[&Place<'_>]) -> String {
    let parts: Vec<String> = places
        .iter()
        .filter_map(|place| {
            let difference = difference(place.ratio?);
            Some(format!("{difference} at {}", words::point(&place.fixed)))
        })
        .collect();
    words::list(&parts)
}

/// A figure relative to another: `12% higher (8% to 15%) than`, `2.4x (2.1 to 2.8x) the value`.
fn than(ratio: Ratio) -> String {
    match ratio.ratio >= 2.0 {
        true => format!("{} the value", difference(ratio)),
        false => format!("{} than", difference(ratio)),
    }
}

/// `12% higher`, `2.4x`.
fn change(ratio: f64) -> String {
    match ratio >= 2.0 {
        true => words::fold(ratio),
        false => format!(
            "{:.0}% {}",
            (ratio - 1.0).abs() * 100.0,
            if ratio < 1.0 { "lower" } else { "higher" }
        ),
    }
}

/// `12% higher (8% to 15%)`, `2.4x (2.1 to 2.8x)`. The end of the interval that is nearer to no
/// difference comes first.
fn difference(Ratio { ratio, interval: (low, high), .. }: Ratio) -> String {
    if ratio >= 2.0 {
        let [low, high] = [low, high].map(words::fold);
        let low = low.trim_end_matches('x');
        return format!("{} ({low} to {high})", words::fold(ratio));
    }
    let (near, far, more) = if ratio > 1.0 { (low, high, "higher") } else { (high, low, "lower") };
    let percent = |ratio: f64| format!("{:.0}%", (ratio - 1.0).abs() * 100.0);
    format!("{} {more} ({} to {})", percent(ratio), percent(near), percent(far))
}
