//! Comparison of two studies or runs, point by point. docs/compare.md describes the method, ADR
//! 0019 the reasons.

mod surroundings;
#[cfg(test)]
mod tests;

use wirecost_model::comparison::{
    ComparedFigure, ComparedPoint, Comparison, NotCompared, SCHEMA, Side, SideEstimate, Verdict,
};
use wirecost_model::metric::Better;
use wirecost_model::run::Run;
use wirecost_model::status::Status;
use wirecost_model::study::{Point, Value};

use crate::measured::{MeasuredPoint, Measurements};
use crate::metrics::{self, Selector};
use crate::statistics::{Estimate, bootstrap, holm, welch};

pub use surroundings::Hosts;

/// Significance level of corrected p-values.
pub const LEVEL: f64 = 0.05;

/// Enough figures to show cost, rate and latency, and few enough to keep the correction small.
const USUAL: [&str; 6] = [
    "throughput",
    "transactions",
    "latency.p99",
    "hosts.sender.cycles_per_kbyte",
    "hosts.receiver.cycles_per_kbyte",
    "cycles_per_kbyte",
];

/// One side of the comparison.
#[derive(Debug, Clone, Default)]
pub struct Subject {
    /// Its name on the command line.
    pub name: String,
    /// Whether this is a single run, compared regardless of its point.
    pub single: bool,
    pub measured: Measurements,
    /// Of each run whose record has it, what its hosts were like.
    pub hosts: Vec<Hosts>,
    /// Text of a profile by its name in the runs, of profiles that were kept.
    pub profiles: Vec<(String, String)>,
}

/// Options of a comparison.
#[derive(Debug, Clone)]
pub struct Options {
    /// Differences up to this fraction do not count: 0.05 is 5%.
    pub threshold: f64,
    /// The metrics to compare; if empty, the usual ones.
    pub metrics: Vec<Selector>,
}

/// Why the two sides cannot be compared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotComparable {
    #[error("{0} has no run that counts{reason}", reason = .1.as_ref().map(|r| format!(": {r}")).unwrap_or_default())]
    NoRuns(String, Option<String>),
    #[error("{a} and {b} have no point in common: {a} has {has_a}, {b} has {has_b}")]
    NoCommonPoint { a: String, b: String, has_a: String, has_b: String },
    #[error("{a} and {b} cannot be compared: {reason}")]
    Nowhere { a: String, b: String, reason: String },
}

/// Compares `b` with `a`.
///
/// # Errors
/// No figure of the two can be compared.
pub fn compare(
    a: &Subject,
    b: &Subject,
    options: &Options,
    version: &str,
) -> Result<Comparison, NotComparable> {
    for subject in [a, b] {
        if subject.measured.points.iter().all(|point| point.runs.is_empty()) {
            let failed = subject.measured.points.iter().flat_map(|point| &point.failed);
            let reason = failed.filter_map(|run| run.error.clone()).next();
            return Err(NotComparable::NoRuns(subject.name.clone(), reason));
        }
    }
    let mut comparison = empty(a, b, options, version);
    let pairs = pairs(a, b, &mut comparison);
    if pairs.is_empty() {
        return Err(NotComparable::NoCommonPoint {
            a: a.name.clone(),
            b: b.name.clone(),
            has_a: some_points(&a.measured),
            has_b: some_points(&b.measured),
        });
    }
    let mut comparable = Vec::new();
    for (point, of_a, of_b) in pairs {
        match obstacle(a, of_a, b, of_b) {
            Some(reason) => comparison.not_compared.push(NotCompared { point, reason }),
            None => comparable.push((point, of_a, of_b)),
        }
    }
    let selector = match options.metrics.is_empty() {
        true => usual(&comparable),
        false => options.metrics.clone(),
    };
    for (point, a, b) in comparable {
        let figures = selector.iter().map(|selector| figure(selector, a, b)).collect();
        comparison.points.push(ComparedPoint { point, figures });
    }
    let all = || comparison.points.iter().flat_map(|point| &point.figures);
    if all().all(|figure| figure.ratio.is_none()) {
        let reasons = comparison.not_compared.iter().map(|left_out| &left_out.reason);
        let reason = reasons.chain(all().filter_map(|figure| figure.reason.as_ref())).next();
        return Err(NotComparable::Nowhere {
            a: a.name.clone(),
            b: b.name.clone(),
            reason: reason.cloned().unwrap_or_else(|| "no figure was measured in both".to_owned()),
        });
    }
    judge(&mut comparison, &selector, options.threshold);
    surroundings::fill(a, b, &mut comparison);
    let worse = comparison.count(Verdict::Worse);
    if worse > 0 {
        comparison.status = Status::Failed;
        let figures = if worse == 1 { "figure is" } else { "figures are" };
        let percent = (1e6 * options.threshold).round() / 1e4;
        comparison.error =
            Some(format!("{worse} {figures} significantly worse by more than {percent}%"));
    }
    Ok(comparison)
}

fn empty(a: &Subject, b: &Subject, options: &Options, version: &str) -> Comparison {
    Comparison {
        schema: SCHEMA.to_owned(),
        status: Status::Ok,
        error: None,
        version: version.to_owned(),
        a: side(a),
        b: side(b),
        threshold: options.threshold,
        differences: Vec::new(),
        unknown: Vec::new(),
        points: Vec::new(),
        not_compared: Vec::new(),
        only_in_a: Vec::new(),
        only_in_b: Vec::new(),
        tests: 0,
    }
}

/// The document of a refused comparison.
#[must_use]
pub fn refused(
    a: &Subject,
    b: &Subject,
    options: &Options,
    version: &str,
    why: &str,
) -> Comparison {
    let error = Some(why.to_owned());
    Comparison { status: Status::Usage, error, ..empty(a, b, options, version) }
}

fn side(subject: &Subject) -> Side {
    let points = &subject.measured.points;
    let study = points.iter().flat_map(|point| point.runs.iter().chain(&point.failed));
    Side {
        name: subject.name.clone(),
        study: study.filter_map(|run| run.study.as_ref()).map(|study| study.study.clone()).next(),
        points: points.len() as u64,
        runs: points.iter().map(|point| point.runs.len() as u64).sum(),
        failed: points.iter().map(|point| point.failed.len() as u64).sum(),
    }
}

type Pair<'a> = (Point, &'a MeasuredPoint, &'a MeasuredPoint);

/// Common points, in the order of `a`. Points of one side only are noted.
fn pairs<'a>(a: &'a Subject, b: &'a Subject, comparison: &mut Comparison) -> Vec<Pair<'a>> {
    if let (true, [of_a]) = (a.single && b.single, a.measured.points.as_slice())
        && let [of_b] = b.measured.points.as_slice()
    {
        // Two named runs are compared as they are. Different points are reported.
        let same = place(&of_a.point) == place(&of_b.point);
        let point = if same { of_a.point.clone() } else { Point::default() };
        return vec![(point, of_a, of_b)];
    }
    let find = |measured: &'a Measurements, point: &Point| {
        measured.points.iter().find(|other| place(&other.point) == place(point))
    };
    let mut pairs = Vec::new();
    for of_a in &a.measured.points {
        match find(&b.measured, &of_a.point) {
            Some(of_b) => pairs.push((of_a.point.clone(), of_a, of_b)),
            None => comparison.only_in_a.push(of_a.point.clone()),
        }
    }
    let alone = b.measured.points.iter().filter(|of_b| find(&a.measured, &of_b.point).is_none());
    comparison.only_in_b.extend(alone.map(|of_b| of_b.point.clone()));
    pairs
}

/// Identity of a point, independent of the order of its axes.
fn place(point: &Point) -> Vec<&Value> {
    let mut axes: Vec<&Value> = point.axes.iter().collect();
    axes.sort();
    axes
}

fn some_points(measured: &Measurements) -> String {
    let names: Vec<String> = measured.points.iter().map(|p| p.point.to_string()).collect();
    match names.as_slice() {
        [one] => one.clone(),
        [first, .., last] => format!("{first} to {last}"),
        [] => "none".to_owned(),
    }
}

/// Why a common point cannot be compared.
fn obstacle(
    a: &Subject,
    of_a: &MeasuredPoint,
    b: &Subject,
    of_b: &MeasuredPoint,
) -> Option<String> {
    for (name, subject, point) in [("A", a, of_a), ("B", b, of_b)] {
        if point.runs.is_empty() {
            let error = point.failed.iter().find_map(|run| run.error.as_deref());
            let error = error.unwrap_or("no run of it counts");
            return Some(format!("{name} ({}) is not valid there: {error}", subject.name));
        }
    }
    let (run_a, run_b) = (&of_a.runs[0], &of_b.runs[0]);
    if run_a.profile != run_b.profile {
        return Some(format!("A ran profile {}, B {}", run_a.profile, run_b.profile));
    }
    let text = |subject: &Subject| {
        let found = subject.profiles.iter().find(|(name, _)| *name == run_a.profile);
        found.map(|(_, text)| text.clone())
    };
    if let (Some(text_a), Some(text_b)) = (text(a), text(b))
        && text_a != text_b
    {
        return Some(format!("profile {} is not the same text in both", run_a.profile));
    }
    let kind = |run: &Run| run.window.as_ref().map(|window| window.kind);
    if kind(run_a) != kind(run_b) {
        return Some(
            "one counts a time of steady traffic, the other a number of iterations".to_owned(),
        );
    }
    None
}

/// The usual figures that both sides measured at some point.
fn usual(pairs: &[Pair<'_>]) -> Vec<Selector> {
    let found = USUAL.iter().filter_map(|name| metrics::find(name).ok());
    let seen = |selector: &Selector| {
        pairs.iter().any(|(_, a, b)| {
            let positive = |point: &MeasuredPoint| {
                point.estimate(selector).is_ok_and(|estimate| estimate.mean > 0.0)
            };
            positive(a) && positive(b)
        })
    };
    let mut selector: Vec<Selector> = found.filter(seen).collect();
    let has =
        |selector: &[Selector], name: &str| selector.iter().any(|selector| selector.name == name);
    // Transactions repeat what bytes show, and the machine's cost repeats its hosts': each further
    // comparison makes all of them less sensitive.
    if has(&selector, "throughput") {
        selector.retain(|selector| selector.name != "transactions");
    }
    if has(&selector, "hosts.sender.cycles_per_kbyte")
        && has(&selector, "hosts.receiver.cycles_per_kbyte")
    {
        selector.retain(|selector| selector.name != "cycles_per_kbyte");
    }
    selector
}

fn figure(selector: &Selector, a: &MeasuredPoint, b: &MeasuredPoint) -> ComparedFigure {
    let seen = |estimate: Estimate| SideEstimate {
        mean: estimate.mean,
        interval: estimate.interval,
        runs: estimate.times as u64,
    };
    let (of_a, of_b) = (a.estimate(selector), b.estimate(selector));
    let mut figure = ComparedFigure {
        metric: selector.name.clone(),
        unit: selector.metric().unit.symbol().to_owned(),
        a: of_a.as_ref().ok().copied().map(seen),
        b: of_b.as_ref().ok().copied().map(seen),
        ratio: None,
        interval: None,
        p_value: None,
        p_value_corrected: None,
        verdict: Verdict::Unknown,
        reason: None,
    };
    let (of_a, of_b) = match (of_a, of_b) {
        (Ok(of_a), Ok(of_b)) => (of_a, of_b),
        (Err(reason), _) => {
            return ComparedFigure { reason: Some(format!("A: {reason}")), ..figure };
        }
        (_, Err(reason)) => {
            return ComparedFigure { reason: Some(format!("B: {reason}")), ..figure };
        }
    };
    let methods = |point: &MeasuredPoint| {
        let mut all: Vec<&str> = point.runs.iter().filter_map(|run| selector.method(run)).collect();
        all.sort_unstable();
        all.dedup();
        all.join(" and ")
    };
    let (method_a, method_b) = (methods(a), methods(b));
    if method_a != method_b {
        figure.reason = Some(format!(
            "A measured it by {method_a}, B by {method_b}: the same work gives other numbers"
        ));
        return figure;
    }
    let (values_a, values_b) = (a.figures(selector), b.figures(selector));
    if of_a.mean == 0.0 {
        figure.reason = Some("A is 0, of which nothing is a multiple".to_owned());
    } else {
        figure.ratio = Some(of_b.mean / of_a.mean);
        figure.interval = bootstrap::ratio_of_means(&values_b, &values_a);
    }
    figure.p_value = welch(&values_a, &values_b);
    if figure.p_value.is_none() {
        let sides = match (values_a.len(), values_b.len()) {
            (1, 1) => "each side has",
            (1, _) => "A has",
            _ => "B has",
        };
        figure.reason =
            Some(format!("{sides} one run, which does not say how much runs differ by themselves"));
    }
    figure
}

/// Decides on all figures together, with the correction for their number.
fn judge(comparison: &mut Comparison, selector: &[Selector], threshold: f64) {
    let mut tested: Vec<(&mut ComparedFigure, Better)> = Vec::new();
    for point in &mut comparison.points {
        for (figure, selector) in point.figures.iter_mut().zip(selector) {
            if figure.p_value.is_some() {
                tested.push((figure, selector.metric().better));
            }
        }
    }
    comparison.tests = tested.len() as u64;
    let p_values: Vec<f64> = tested.iter().filter_map(|(figure, _)| figure.p_value).collect();
    for ((figure, better), p_value) in tested.into_iter().zip(holm(&p_values)) {
        figure.p_value_corrected = Some(p_value);
        figure.verdict = verdict(figure, better, p_value < LEVEL, threshold);
    }
}

fn verdict(figure: &ComparedFigure, better: Better, significant: bool, threshold: f64) -> Verdict {
    if !significant {
        return Verdict::Same;
    }
    // A change from zero exceeds every threshold.
    let change = figure.ratio.map_or(f64::INFINITY, |ratio| ratio - 1.0);
    let worse = match better {
        Better::Higher => change < 0.0,
        Better::Lower => change > 0.0,
        Better::Neither => return Verdict::Different,
    };
    // 1.05 - 1 is a little more than 0.05 in floating point.
    match (change.abs() - threshold > 1e-9, worse) {
        (false, _) => Verdict::Different,
        (true, true) => Verdict::Worse,
        (true, false) => Verdict::Better,
    }
}
