//! Throughput that follows the cost of a byte: the same CPUs move as much less as each byte costs more.

use super::line::{self, mean};
use super::{Finding, Kind, LEVEL, Question, Runs, Tested, effect, tested, words};
use crate::measured::{MeasuredPoint, Measurements};
use crate::metrics;
use crate::statistics::permutation;
use crate::statistics::theil_sen;
use wirecost_model::metric::Unit;

pub(super) const KIND: Kind = Kind {
    name: "proportion",
    help: "whether throughput is inversely proportional to cycles/KByte, as where CPUs are the bottleneck",
    question: Question::Cause,
    find,
};

/// Part of the variance of the points' throughput that its cost explains.
const EXPLAINED: f64 = 0.9;
/// Both figures have to differ by this factor at least.
const RANGE: f64 = 1.5;

/// Of the host that has least idle time, the cost comes first.
const COSTS: [(&str, &str); 3] = [
    ("hosts.sender.cycles_per_kbyte", "the sender's cycles/KByte"),
    ("hosts.receiver.cycles_per_kbyte", "the receiver's cycles/KByte"),
    ("cycles_per_kbyte", "cycles/KByte"),
];

/// Logarithms of cost and throughput of the runs of a point.
struct Place<'a> {
    point: &'a MeasuredPoint,
    cost: Vec<f64>,
    work: Vec<f64>,
}

fn find<'a>(runs: &'a Runs<'_>) -> Option<Tested<'a>> {
    let measured = runs.saturated;
    let mut tests = Vec::new();
    for (metric, noun) in COSTS {
        if let Some(places) = places(measured, metric)
            && let Some(p_value) = p_value(&places)
        {
            tests.push((p_value, (metric, noun, places)));
        }
    }
    let found = tested(tests, |p, (metric, noun, places)| finding(p, metric, noun, &places))?;
    Some(Box::new(|correction| {
        // The ends have the same throughput; that which explains most of it is the one to name.
        let explained =
            |finding: &Finding| finding.effect.as_ref().map_or(0.0, |effect| effect.value);
        let mut found = found(correction);
        found.sort_by(|a, b| (explained(a) + 1.0).abs().total_cmp(&(explained(b) + 1.0).abs()));
        found.truncate(1);
        found
    }))
}

/// Of the points with both figures; `None` for fewer than five, as too few for a slope.
fn places<'a>(measured: &'a Measurements, metric: &str) -> Option<Vec<Place<'a>>> {
    let (cost, work) = (metrics::find(metric).ok()?, line::work(measured)?);
    let place = |point: &'a MeasuredPoint| {
        let both = point.runs.iter().filter_map(|run| {
            let (cost, work) = (cost.of(run).ok()?, work.of(run).ok()?);
            (cost > 0.0 && work > 0.0).then(|| (cost.ln(), work.ln()))
        });
        let (cost, work): (Vec<f64>, Vec<f64>) = both.unzip();
        (cost.len() > 1).then_some(Place { point, cost, work })
    };
    let places: Vec<Place<'_>> = measured.points.iter().filter_map(place).collect();
    (places.len() >= 5).then_some(places)
}

/// That points do not differ in cost, or not in throughput, or that one has nothing to do with the
/// other: the largest of the three. Noise of a run's bytes alone moves both figures, so a relation of
/// means says nothing unless points differ.
fn p_value(places: &[Place<'_>]) -> Option<f64> {
    let means: Vec<(f64, f64)> = means(places);
    let seen = -correlation(&means)?;
    let mut shuffled: Vec<f64> = means.iter().map(|(_, work)| *work).collect();
    let mut largest = permutation::p_value(seen, |random| {
        random.shuffle(&mut shuffled);
        let pairs: Vec<(f64, f64)> =
            means.iter().zip(&shuffled).map(|((cost, _), work)| (*cost, *work)).collect();
        correlation(&pairs).map_or(f64::NEG_INFINITY, |correlation| -correlation)
    });
    let costs: Vec<&[f64]> = places.iter().map(|place| place.cost.as_slice()).collect();
    let works: Vec<&[f64]> = places.iter().map(|place| place.work.as_slice()).collect();
    for groups in [costs, works] {
        // Shuffles of all runs take long, and what is not significant stays so.
        if largest < LEVEL {
            largest = largest.max(differ(&groups));
        }
    }
    Some(largest)
}

fn means(places: &[Place<'_>]) -> Vec<(f64, f64)> {
    places.iter().map(|place| (mean(&place.cost), mean(&place.work))).collect()
}

/// The p-value of groups that do not differ: how often shuffled values have means as far apart. An F test takes
/// points that differ in their noise alone for points that differ (ADR 0092).
fn differ(groups: &[&[f64]]) -> f64 {
    let between = |values: &[f64]| {
        let mut start = 0;
        let mut sum = 0.0;
        for group in groups {
            let mean = mean(&values[start..start + group.len()]);
            sum += group.len() as f64 * mean * mean;
            start += group.len();
        }
        sum
    };
    // Of logarithms far from 0 the differences would drown in rounding.
    let all: Vec<f64> = groups.concat();
    let centre = mean(&all);
    let mut values: Vec<f64> = all.iter().map(|value| value - centre).collect();
    let seen = between(&values);
    permutation::p_value(seen, |random| {
        random.shuffle(&mut values);
        between(&values)
    })
}

/// `None` where one of them does not vary.
fn correlation(pairs: &[(f64, f64)]) -> Option<f64> {
    let count = pairs.len() as f64;
    let (x, y) = pairs.iter().fold((0.0, 0.0), |sum, pair| (sum.0 + pair.0, sum.1 + pair.1));
    let (x, y) = (x / count, y / count);
    let (mut xx, mut yy, mut xy) = (0.0, 0.0, 0.0);
    for pair in pairs {
        let (dx, dy) = (pair.0 - x, pair.1 - y);
        xx += dx * dx;
        yy += dy * dy;
        xy += dx * dy;
    }
    (xx > 0.0 && yy > 0.0).then(|| xy / (xx * yy).sqrt())
}

fn finding(p_value: f64, metric: &str, noun: &str, places: &[Place<'_>]) -> Option<Finding> {
    let means = means(places);
    let explained = correlation(&means)?.powi(2);
    let (slope, interval) = theil_sen::slope(&means)?;
    let range = |figures: fn(&(f64, f64)) -> f64| {
        let least = means.iter().map(figures).fold(f64::INFINITY, f64::min);
        let most = means.iter().map(figures).fold(f64::NEG_INFINITY, f64::max);
        (least.exp(), most.exp())
    };
    let ((cheap, dear), (slow, fast)) = (range(|m| m.0), range(|m| m.1));
    // In proportion is a slope of -1 in logarithms.
    let is_proportional = interval.0 >= -4.0 / 3.0 && interval.1 <= -3.0 / 4.0;
    if explained < EXPLAINED || dear / cheap < RANGE || fast / slow < RANGE || !is_proportional {
        return None;
    }
    let text = format!(
        "throughput is inversely proportional to {noun}: at {} the lowest cost, it is {:.0}% of its highest value",
        words::fold(dear / cheap),
        100.0 * (slope * (dear / cheap).ln()).exp()
    );
    let mut evidence = vec![format!(
        "the cost explains {:.0}% of the variance of the logarithm of throughput between points",
        100.0 * explained
    )];
    evidence.extend(places.iter().map(|place| {
        let cost = words::plain(mean(&place.cost).exp());
        let rate = wirecost_model::units::bit_rate(mean(&place.work).exp());
        format!("{}: {cost} cycles/KByte, {rate}", place.point.point)
    }));
    Some(Finding {
        metric: Some(metric.to_owned()),
        effect: effect("slope of logarithms", Unit::Count, slope, Some(interval)),
        evidence,
        ..KIND.finding(p_value, words::sentence(&[], &text))
    })
}
