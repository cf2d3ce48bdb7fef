//! Figures that rise or fall along an axis, and may turn once on the way.

use super::line::{self, Line, Stop};
use super::{Finding, Kind, Runs, Tested, ratio_of, tested, words};
use crate::metrics::{self, Selector};
use crate::statistics::bootstrap;
use crate::statistics::theil_sen;
use crate::statistics::umbrella::{Shape, Turn, umbrella};

/// Smaller changes are not reported.
const CHANGE: f64 = 1.1;

/// A figure to look at, at each end where it is known, else of all machines together.
pub(super) struct Subject {
    /// Its name without a host.
    pub(super) metric: &'static str,
    /// As sentences call it.
    pub(super) noun: &'static str,
    /// What it does: rise and fall, or rises and falls.
    pub(super) verbs: [&'static str; 2],
    /// Changes of less than this, in its unit, are not reported.
    pub(super) least: f64,
}

const ENDS: [(&str, &str); 2] =
    [("hosts.sender.", "the sender's "), ("hosts.receiver.", "the receiver's ")];

/// One figure along a line, and how it changes.
pub(super) struct Trend<'a> {
    line: Line<'a>,
    noun: String,
    verbs: [&'static str; 2],
    least: f64,
    selector: Selector,
    figures: Vec<Vec<f64>>,
    turn: Turn,
    confounders: Vec<String>,
}

/// A change between two stops.
struct Leg<'a> {
    words: String,
    ratio: f64,
    interval: (f64, f64),
    /// The last and the first.
    values: [&'a str; 2],
}

/// Along the load itself among all points, along other axes among those that differ in nothing but it.
pub(super) fn find<'a>(
    runs: &'a Runs<'_>,
    kind: &'static Kind,
    subject: &Subject,
) -> Option<Tested<'a>> {
    let mut tests = trends(line::lines(runs.saturated), subject);
    tests.extend(trends(line::by_load(runs.all), subject));
    tested(tests, |p_value, trend| trend.finding(kind, p_value))
}

/// Whether a figure is known at enough points of one of these lines to be tested.
pub(super) fn is_tested(lines: &[Line<'_>], metric: &str) -> bool {
    let figure = Figure::of(metric);
    lines.iter().any(|line| !figure.along(line).is_empty())
}

/// The lines on which the figure is known, each with the p-value of having no trend.
pub(super) fn trends<'a>(lines: Vec<Line<'a>>, subject: &Subject) -> Vec<(f64, Trend<'a>)> {
    let figure = Figure::of(subject.metric);
    let mut tests = Vec::new();
    for line in lines {
        for (whose, selector, stops, figures) in figure.along(&line) {
            if let Some(turn) = umbrella(&figures, &[Shape::Hill, Shape::Valley]) {
                let trend = Trend {
                    confounders: line.confounders(),
                    line: Line { axis: line.axis, fixed: line.fixed.clone(), stops },
                    noun: format!("{whose}{}", subject.noun),
                    verbs: subject.verbs,
                    least: subject.least,
                    selector: selector.clone(),
                    figures,
                    turn,
                };
                tests.push((turn.p_value, trend));
            }
        }
    }
    tests
}

/// A figure, and whose it is: at each end, and of all machines together.
struct Figure {
    of_ends: Vec<Whose>,
    of_all: Option<Whose>,
}

type Whose = (&'static str, Selector);

/// Whose figure, where it is known, and its values there.
type Known<'a, 's> = (&'static str, &'s Selector, Vec<Stop<'a>>, Vec<Vec<f64>>);

impl Figure {
    fn of(metric: &str) -> Self {
        let of = |name: &str, whose| Some((whose, metrics::find(name).ok()?));
        Self {
            of_ends: (ENDS.iter())
                .filter_map(|(host, whose)| of(&format!("{host}{metric}"), *whose))
                .collect(),
            of_all: of(metric, ""),
        }
    }

    /// Of the ends where it is known, else of all together.
    fn along<'a, 's>(&'s self, line: &Line<'a>) -> Vec<Known<'a, 's>> {
        let known = |(whose, selector): &'s Whose| {
            let (stops, figures) = line.measured(selector)?;
            Some((*whose, selector, stops, figures))
        };
        let of_ends: Vec<_> = self.of_ends.iter().filter_map(known).collect();
        match of_ends.is_empty() {
            true => self.of_all.iter().filter_map(known).collect(),
            false => of_ends,
        }
    }
}

impl<'a> Trend<'a> {
    pub(super) fn finding(&self, kind: &Kind, p_value: f64) -> Option<Finding> {
        let last = self.figures.len() - 1;
        let legs: Vec<Leg<'_>> = [(0, self.turn.at), (self.turn.at, last)]
            .into_iter()
            .filter_map(|(first, last)| self.change_between(first, last))
            .collect();
        let Leg { ratio, interval, values, .. } = legs.last()?;
        let words: Vec<String> = legs.iter().map(|leg| leg.words.clone()).collect();
        let text = format!("{} {}", self.noun, words::list(&words));
        let shown: Vec<String> = self
            .figures
            .iter()
            .map(|runs| words::value(&self.selector, line::mean(runs)))
            .collect();
        let mut evidence = vec![self.line.table(&self.noun, &self.line.stops, &shown)];
        evidence.extend(self.confounders.iter().cloned());
        Some(Finding {
            metric: Some(self.selector.name.clone()),
            effect: ratio_of(*ratio, *interval, *values),
            evidence,
            ..kind.along(self.line.axis, &self.line.fixed, p_value, &text)
        })
    }

    /// The change between two stops, if it is significant and large enough.
    fn change_between(&self, first: usize, last: usize) -> Option<Leg<'a>> {
        if first == last {
            return None;
        }
        let (ratio, interval) = self.ratio(first, last)?;
        let (low, high) = interval;
        let means = [first, last].map(|stop| line::mean(&self.figures[stop]));
        let stops = &self.line.stops;
        let span = words::span(self.line.axis, stops[first].value, stops[last].value);
        let (verb, factor, of_factor) = if ratio >= CHANGE && low > 1.0 {
            (self.verbs[0], ratio, interval)
        } else if ratio <= 1.0 / CHANGE && high < 1.0 && low > 0.0 {
            (self.verbs[1], 1.0 / ratio, (1.0 / high, 1.0 / low))
        } else {
            return None;
        };
        if (means[1] - means[0]).abs() < self.least {
            return None;
        }
        let number = |value: f64| words::fold(value).trim_end_matches('x').to_owned();
        let words = format!(
            "{verb} by a factor of {} ({} to {}) {span}",
            number(factor),
            number(of_factor.0),
            number(of_factor.1)
        );
        let values = [stops[last].value, stops[first].value];
        Some(Leg { words, ratio, interval, values })
    }

    /// The last over the first, by their repeats; where there are none, by the slope of the line
    /// that all between them make.
    fn ratio(&self, first: usize, last: usize) -> Option<(f64, (f64, f64))> {
        let (from, to) = (&self.figures[first], &self.figures[last]);
        if from.len() > 1 && to.len() > 1 {
            let interval = bootstrap::ratio_of_means(to, from)?;
            return Some((line::mean(to) / line::mean(from), interval));
        }
        let stops = &self.line.stops;
        if stops[first].number <= 0.0 {
            return None;
        }
        let points: Vec<(f64, f64)> = (first..=last)
            .flat_map(|place| {
                let x = stops[place].number.ln();
                self.figures[place].iter().map(move |value| (x, value.ln()))
            })
            .filter(|(_, y)| y.is_finite())
            .collect();
        let (slope, (low, high)) = theil_sen::slope(&points)?;
        let length = (stops[last].number / stops[first].number).ln();
        let ratio = |slope: f64| (slope * length).exp();
        Some((ratio(slope), (ratio(low), ratio(high))))
    }
}
