//! How the cost of a byte changes along an axis.

use super::line::{self, Line, Stop};
use super::{Confidence, Finding, Kind, significant, words};
use crate::measured::Measurements;
use crate::metrics::{self, Selector};
use crate::statistics::bootstrap;
use crate::statistics::theil_sen;
use crate::statistics::umbrella::{Shape, Turn, umbrella};

pub(super) const KIND: Kind = Kind {
    name: "cost",
    help: "how cycles/KByte change along an axis, and where they are lowest or highest",
    find,
};

/// Smaller changes are not reported.
const CHANGE: f64 = 1.1;

/// Of each end where it is known, else of all machines together.
const COSTS: [(&str, &str); 2] = [
    ("hosts.sender.cycles_per_kbyte", "the sender's "),
    ("hosts.receiver.cycles_per_kbyte", "the receiver's "),
];

fn find(measured: &Measurements) -> Vec<Finding> {
    let mut tests = Vec::new();
    for line in line::lines(measured) {
        let of_ends: Vec<_> =
            COSTS.iter().filter_map(|(name, whose)| of(&line, name, whose)).collect();
        let known = match of_ends.is_empty() {
            true => of(&line, "cycles_per_kbyte", "").into_iter().collect(),
            false => of_ends,
        };
        for (whose, selector, stops, figures) in known {
            if let Some(turn) = umbrella(&figures, &[Shape::Hill, Shape::Valley]) {
                let fixed = line.fixed.clone();
                let confounders = line.confounders();
                let line = Line { axis: line.axis, fixed, stops };
                tests.push((
                    turn.p_value,
                    CostLine { line, whose, selector, figures, turn, confounders },
                ));
            }
        }
    }
    significant(tests)
        .into_iter()
        .filter_map(|(p_value, course)| course.finding_of(p_value))
        .collect()
}

type Known<'a> = (&'static str, Selector, Vec<Stop<'a>>, Vec<Vec<f64>>);

fn of<'a>(line: &Line<'a>, name: &str, whose: &'static str) -> Option<Known<'a>> {
    let selector = metrics::find(name).ok()?;
    let (stops, figures) = line.measured(&selector)?;
    Some((whose, selector, stops, figures))
}

/// A cost along a line.
struct CostLine<'a> {
    line: Line<'a>,
    whose: &'static str,
    selector: Selector,
    figures: Vec<Vec<f64>>,
    turn: Turn,
    confounders: Vec<String>,
}

impl CostLine<'_> {
    fn finding_of(&self, p_value: f64) -> Option<Finding> {
        let last = self.figures.len() - 1;
        let legs: Vec<(String, (f64, f64))> = [(0, self.turn.at), (self.turn.at, last)]
            .into_iter()
            .filter_map(|(first, last)| self.change_between(first, last))
            .collect();
        let (_, interval) = legs.last()?;
        let words: Vec<String> = legs.iter().map(|(words, _)| words.clone()).collect();
        let text = format!("{}cycles/KByte {}", self.whose, words::list(&words));
        let unit = self.selector.metric().unit;
        let shown: Vec<String> =
            self.figures.iter().map(|runs| words::plain(line::mean(runs))).collect();
        let what = format!("{}{}", self.whose, unit.symbol());
        let mut evidence = vec![self.line.table(&what, &self.line.stops, &shown)];
        evidence.extend(self.confounders.iter().cloned());
        Some(Finding {
            kind: KIND.name,
            sentence: words::sentence(&self.line.fixed, &text),
            evidence,
            confidence: Confidence::of(p_value, Some(*interval), words::fold),
        })
    }

    /// The change between two stops, if it is significant and large enough.
    fn change_between(&self, first: usize, last: usize) -> Option<(String, (f64, f64))> {
        if first == last {
            return None;
        }
        let (factor, (low, high)) = self.factor(first, last)?;
        let stops = &self.line.stops;
        let span = words::span(self.line.axis, stops[first].value, stops[last].value);
        let (verb, factor, interval) = if factor >= CHANGE && low > 1.0 {
            ("rise", factor, (low, high))
        } else if factor <= 1.0 / CHANGE && high < 1.0 && low > 0.0 {
            ("fall", 1.0 / factor, (1.0 / high, 1.0 / low))
        } else {
            return None;
        };
        let number = |value: f64| words::fold(value).trim_end_matches('x').to_owned();
        let text = format!(
            "{verb} by a factor of {} ({} to {}) {span}",
            number(factor),
            number(interval.0),
            number(interval.1)
        );
        Some((text, interval))
    }

    /// The last over the first, by their repeats; where there are none, by the slope of the line
    /// that all between them make.
    fn factor(&self, first: usize, last: usize) -> Option<(f64, (f64, f64))> {
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
        let factor = |slope: f64| (slope * length).exp();
        Some((factor(slope), (factor(low), factor(high))))
    }
}
