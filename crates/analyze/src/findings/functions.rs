//! Functions that cost more per byte at one end of an axis than at the other.

use std::collections::BTreeSet;

use super::limits::has_own_cpus;
use super::line;
use super::{Finding, Kind, Question, Runs, Tested, effect, words};
use crate::measured::{MeasuredPoint, Measurements};
use crate::metrics;
use crate::statistics::contrast::{Contrast, contrast};
use wirecost_model::metric::Unit;
use wirecost_model::observe::FunctionShare;
use wirecost_model::run::Run;
use wirecost_model::study::Value;

pub(super) const KIND: Kind = Kind {
    name: "functions",
    help: "which functions take more cycles/KByte at the last value of an axis than at the first",
    question: Question::Cause,
    find,
};

/// Of the cost, at the end where it is larger; what is less changes nothing.
const SHARE: f64 = 0.01;
const GROWTH: f64 = 1.5;
/// Maximum number of functions in a sentence.
const TOLD: usize = 3;

/// Two points that are compared, of one host.
#[derive(Clone)]
pub(super) struct Pair<'a> {
    pub(super) axis: &'a str,
    pub(super) fixed: Vec<&'a Value>,
    pub(super) from: (&'a str, &'a MeasuredPoint),
    pub(super) to: (&'a str, &'a MeasuredPoint),
    pub(super) whose: &'static str,
}

fn find<'a>(runs: &'a Runs<'_>) -> Option<Tested<'a>> {
    let measured = runs.saturated;
    let pairs = pairs(measured);
    let mut tests = Vec::new();
    for (place, pair) in pairs.iter().enumerate() {
        for name in pair.names() {
            if let Some(growth) = pair.growth(&name) {
                tests.push((growth.p_value, (place, name, growth)));
            }
        }
    }
    if tests.is_empty() {
        return None;
    }
    Some(Box::new(move |correction| {
        let significant = correction.significant(tests);
        let of = |place: usize| {
            let here = significant.iter().filter(move |(_, (at, ..))| *at == place);
            here.map(|(p, (_, name, growth))| (*p, name.as_str(), *growth)).collect::<Vec<_>>()
        };
        pairs.iter().enumerate().filter_map(|(place, pair)| pair.finding_of(of(place))).collect()
    }))
}

/// The ends of each axis of numbers, and the two values of others that have two.
pub(super) fn pairs(measured: &Measurements) -> Vec<Pair<'_>> {
    let mut pairs = Vec::new();
    for axis in measured.axes() {
        let numeric = line::is_numeric(measured, axis);
        for (fixed, mut points) in line::groups(measured, axis) {
            if numeric {
                let number = |value: &str| wirecost_model::study::number(value).unwrap_or(0.0);
                points.sort_by(|a, b| number(a.0).total_cmp(&number(b.0)));
            } else if points.len() != 2 {
                continue;
            }
            let (Some(from), Some(to)) = (points.first(), points.last()) else { continue };
            if points.len() < 2 {
                continue;
            }
            for whose in ["sender", "receiver", "machine"] {
                pairs.push(Pair { axis, fixed: fixed.clone(), from: *from, to: *to, whose });
            }
        }
    }
    pairs
}

/// The functions of a host, or of the machine where its hosts have no CPUs of their own.
fn functions<'a>(run: &'a Run, whose: &str) -> &'a [FunctionShare] {
    let shared = run.hosts.iter().any(|host| !has_own_cpus(run, host));
    if shared != (whose == "machine") {
        return &[];
    }
    metrics::functions_of(run, whose).map_or(&[], |section| &section.functions)
}

impl Pair<'_> {
    /// Functions that are tested.
    fn names(&self) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        for run in self.to.1.runs.iter().chain(&self.from.1.runs) {
            let large = functions(run, self.whose).iter().filter(|f| f.exclusive >= SHARE);
            names.extend(large.map(|function| function.name.clone()));
        }
        names.remove("[unknown]");
        names
    }

    /// Its cost at the one end over that at the other; `None` where a run does not say it.
    fn growth(&self, name: &str) -> Option<Contrast> {
        let costs = |point: &MeasuredPoint| {
            let cost = |run| {
                let found = functions(run, self.whose).iter().find(|f| f.name == name)?;
                found.cycles_per_kbyte
            };
            point.runs.iter().map(cost).collect::<Option<Vec<f64>>>()
        };
        contrast(&[(costs(self.to.1)?, costs(self.from.1)?)])
    }

    fn finding_of(&self, mut grown: Vec<(f64, &str, Contrast)>) -> Option<Finding> {
        grown.retain(|(_, _, growth)| growth.ratio >= GROWTH);
        grown.sort_by(|a, b| b.2.ratio.total_cmp(&a.2.ratio));
        grown.truncate(TOLD);
        let (p_value, _, first) = *grown.first()?;
        let parts: Vec<String> = grown
            .iter()
            .map(|(_, name, growth)| {
                let [low, high] = [growth.interval.0, growth.interval.1].map(words::fold);
                let low = low.trim_end_matches('x');
                format!("{name} {} ({low} to {high})", words::fold(growth.ratio))
            })
            .collect();
        let text = format!(
            "{}, these functions of the {} take more cycles/KByte: {}",
            words::span(self.axis, self.from.0, self.to.0),
            self.whose,
            words::list(&parts)
        );
        let worst = grown.iter().map(|(p, ..)| *p).fold(p_value, f64::max);
        let evidence = grown.iter().map(|(_, name, _)| {
            let [from, to] = [self.from.1, self.to.1].map(|point| {
                let all = point.runs.iter().flat_map(|run| functions(run, self.whose));
                let costs: Vec<f64> =
                    all.filter(|f| f.name == *name).filter_map(|f| f.cycles_per_kbyte).collect();
                words::plain(line::mean(&costs))
            });
            format!(
                "{name}: {from} cycles/KByte at {}, {to} at {}",
                self.from.1.point, self.to.1.point
            )
        });
        Some(Finding {
            metric: Some(format!("hosts.{}.cycles_per_kbyte", self.whose)),
            effect: effect("ratio", Unit::Ratio, first.ratio, Some(first.interval)),
            evidence: evidence.collect(),
            ..KIND.along(self.axis, &self.fixed, worst, &text)
        })
    }
}
