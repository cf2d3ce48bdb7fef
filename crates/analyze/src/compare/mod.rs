//! Comparison of two studies or runs, point by point. docs/compare.md describes the method, ADR
//! 0030 the reasons.

pub mod families;
pub mod simulation;
mod surroundings;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use wirecost_model::comparison::{
    ComparedFigure, ComparedPoint, Comparison, NotCompared, OverallFigure, SCHEMA, Sensitivity,
    Side, SideEstimate, Verdict,
};
use wirecost_model::metric::Better;
use wirecost_model::run::Run;
use wirecost_model::status::Status;
use wirecost_model::study::{Point, Value};

use crate::measured::{MeasuredPoint, Measurements};
use crate::metrics::{self, Selector};
use crate::statistics::Estimate;
use families::{Decision, Tested, Values, decide};

pub use surroundings::Hosts;

/// Significance level of corrected p-values.
pub const LEVEL: f64 = 0.05;

/// The change of which the comparison says how many runs would find it.
const SOUGHT: f64 = 0.05;

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
    /// Keys of its study file, by their dotted paths; `None` if this is no study, or the file cannot be
    /// read.
    pub study_keys: Option<BTreeMap<String, String>>,
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
    let mut values = Vec::new();
    for (point, a, b) in comparable {
        let figures = (selector.iter().enumerate())
            .map(|(metric, selector)| {
                let (figure, of) = figure(selector, a, b);
                values.push(Values { metric, ..of });
                figure
            })
            .collect();
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
    judge(&mut comparison, &decide(&values), &selector, options.threshold);
    surroundings::fill(a, b, &mut comparison);
    comparison.error = worse(&comparison);
    if comparison.error.is_some() {
        comparison.status = Status::Failed;
    }
    Ok(comparison)
}

/// What is worse.
fn worse(comparison: &Comparison) -> Option<String> {
    let percent = (1e6 * comparison.threshold).round() / 1e4;
    let overall = comparison.overall.iter().filter(|figure| figure.verdict == Verdict::Worse);
    let overall: Vec<&str> = overall.map(|figure| figure.metric.as_str()).collect();
    let what = match (comparison.count(Verdict::Worse), overall.as_slice()) {
        (0, []) => return None,
        (0, [metric]) => format!("{metric} over all points is"),
        (0, [metrics @ .., last]) => {
            format!("{} and {last} over all points are", metrics.join(", "))
        }
        (1, _) => "1 figure is".to_owned(),
        (count, _) => format!("{count} figures are"),
    };
    Some(format!("{what} significantly worse by more than {percent}%"))
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
        overall: Vec::new(),
        sensitivity: Vec::new(),
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
    for (name, subject, point) in [("A", a, of_a), ("B", b, of_b)] {
        if point.has_emulated_cpus() {
            return Some(format!("software emulated the CPUs of {name} ({})", subject.name));
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

/// The figure of a point before it is tested, and the values to test; none if they cannot be compared.
fn figure(selector: &Selector, a: &MeasuredPoint, b: &MeasuredPoint) -> (ComparedFigure, Values) {
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
        interval_confidence: None,
        p_value: None,
        p_value_corrected: None,
        detectable_change: None,
        verdict: Verdict::Unknown,
        reason: None,
    };
    let mut values = Values { metric: 0, a: Vec::new(), b: Vec::new() };
    let (of_a, of_b) = match (of_a, of_b) {
        (Ok(of_a), Ok(of_b)) => (of_a, of_b),
        (Err(reason), _) => {
            figure.reason = Some(format!("A: {reason}"));
            return (figure, values);
        }
        (_, Err(reason)) => {
            figure.reason = Some(format!("B: {reason}"));
            return (figure, values);
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
        return (figure, values);
    }
    values = Values { a: a.figures(selector), b: b.figures(selector), ..values };
    if let (Some(log_a), Some(log_b)) = (mean_log(&values.a), mean_log(&values.b)) {
        figure.ratio = Some((log_b - log_a).exp());
    } else if of_a.mean == 0.0 {
        figure.reason = Some("A is 0, of which nothing is a multiple".to_owned());
    } else {
        figure.ratio = Some(of_b.mean / of_a.mean);
        figure.reason = Some("a run measured 0, so the ratio has no interval".to_owned());
    }
    let sides = match (values.a.len(), values.b.len()) {
        (1, 1) => "each side has",
        (1, _) => "A has",
        (_, 1) => "B has",
        _ => return (figure, values),
    };
    figure.reason =
        Some(format!("{sides} one run, which does not say how much runs differ by themselves"));
    (figure, values)
}

/// `None` if a value is not positive.
fn mean_log(values: &[f64]) -> Option<f64> {
    let is_positive = values.iter().all(|value| *value > 0.0);
    let sum: f64 = values.iter().map(|value| value.ln()).sum();
    is_positive.then(|| sum / values.len() as f64)
}

/// Takes over what was decided on all figures together.
fn judge(comparison: &mut Comparison, decision: &Decision, selector: &[Selector], threshold: f64) {
    comparison.tests = decision.at_points.iter().flatten().count() as u64;
    let figures = comparison.points.iter_mut().flat_map(|point| &mut point.figures);
    let better = selector.iter().map(|selector| selector.metric().better).cycle();
    for ((figure, tested), better) in figures.zip(&decision.at_points).zip(better) {
        let Some(tested) = tested else { continue };
        figure.interval = tested.interval();
        figure.interval_confidence = figure.interval.map(|_| 1.0 - tested.interval_level);
        figure.p_value = Some(tested.p_value);
        figure.p_value_corrected = Some(tested.adjusted);
        figure.detectable_change =
            tested.effect.map(|effect| effect.detectable_change(tested.level));
        figure.verdict = verdict(figure.ratio, better, tested.is_significant(), threshold);
    }
    let points = |metric: usize| decision.at_points.iter().skip(metric).step_by(selector.len());
    for (metric, tested) in &decision.overall {
        let Some((effect, interval)) = tested.effect.zip(tested.interval()) else { continue };
        let of = &selector[*metric];
        comparison.overall.push(OverallFigure {
            metric: of.name.clone(),
            points: points(*metric).flatten().filter(|at| at.effect.is_some()).count() as u64,
            ratio: effect.ratio(),
            interval,
            interval_confidence: 1.0 - tested.interval_level,
            p_value: tested.p_value,
            p_value_corrected: tested.adjusted,
            verdict: verdict(
                Some(effect.ratio()),
                of.metric().better,
                tested.is_significant(),
                threshold,
            ),
        });
    }
    for (metric, selector) in selector.iter().enumerate() {
        let tested: Vec<&Tested> = points(metric).flatten().collect();
        let overall = decision.overall.iter().find(|(of, _)| *of == metric).map(|(_, of)| of);
        comparison.sensitivity.extend(sensitivity(&selector.name, &tested, overall));
    }
}

/// What the tests of a figure could have found, at points and over all of them.
fn sensitivity(
    metric: &str,
    at_points: &[&Tested],
    overall: Option<&Tested>,
) -> Option<Sensitivity> {
    let smallest = |tested: &Tested| Some(tested.effect?.detectable_change(tested.level));
    let runs = |tested: &Tested| tested.effect?.runs_to_find(SOUGHT, tested.level);
    let mut of_points: Vec<(f64, &Tested)> =
        at_points.iter().filter_map(|tested| Some((smallest(tested)?, *tested))).collect();
    of_points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (least, (most, noisiest)) = (of_points.first()?.0, of_points.last()?);
    Some(Sensitivity {
        metric: metric.to_owned(),
        at_points: (least, *most),
        overall: overall.and_then(smallest),
        runs_for_5_percent_at_each_point: runs(noisiest),
        runs_for_5_percent_overall: overall.and_then(runs),
    })
}

fn verdict(ratio: Option<f64>, better: Better, significant: bool, threshold: f64) -> Verdict {
    if !significant {
        return Verdict::Same;
    }
    // A change from zero exceeds every threshold.
    let change = ratio.map_or(f64::INFINITY, |ratio| ratio - 1.0);
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
