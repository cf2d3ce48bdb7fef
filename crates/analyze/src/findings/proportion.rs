//! Throughput that follows the cost of a byte: the same CPUs move as much less as each byte costs more.

use super::line::{self, mean};
use super::{Finding, Kind, Question, Runs, Tested, effect, tested, words};
use crate::measured::{MeasuredPoint, Measurements};
use crate::metrics;
use crate::statistics::permutation;
use crate::statistics::theil_sen;
use statrs::distribution::{ContinuousCDF, FisherSnedecor};
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
    let cost = differ(places.iter().map(|place| place.cost.as_slice()))?;
    let work = differ(places.iter().map(|place| place.work.as_slice()))?;
    let means: Vec<(f64, f64)> = means(places);
    let seen = -correlation(&means)?;
    let mut shuffled: Vec<f64> = means.iter().map(|(_, work)| *work).collect();
    let related = permutation::p_value(seen, |random| {
        random.shuffle(&mut shuffled);
        let pairs: Vec<(f64, f64)> =
            means.iter().zip(&shuffled).map(|((cost, _), work)| (*cost, *work)).collect();
        correlation(&pairs).map_or(f64::NEG_INFINITY, |correlation| -correlation)
    });
    Some(related.max(cost).max(work))
}

fn means(places: &[Place<'_>]) -> Vec<(f64, f64)> {
    places.iter().map(|place| (mean(&place.cost), mean(&place.work))).collect()
}

/// The p-value of groups that do not differ, by the variances of their means and within them (R. Fisher,
/// Statistical Methods for Research Workers, 1925). `None` where no group has two values.
fn differ<'v>(groups: impl Iterator<Item = &'v [f64]> + Clone) -> Option<f64> {
    let (mut count, mut sum) = (0.0, 0.0);
    for group in groups.clone() {
        count += group.len() as f64;
        sum += group.iter().sum::<f64>();
    }
    let (mut between, mut within, mut all) = (0.0, 0.0, 0.0);
    for group in groups {
        let mean = mean(group);
        between += group.len() as f64 * (mean - sum / count).powi(2);
        within += group.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
        all += 1.0;
    }
    let (freedom, free_within) = (all - 1.0, count - all);
    let expected = FisherSnedecor::new(freedom, free_within).ok()?;
    // Of equal logarithms only the rounding of their sum is left.
    let rounding = count * 1e-9_f64.powi(2);
    if within < rounding {
        return Some(if between > rounding { 0.0 } else { 1.0 });
    }
    Some(expected.sf((between / freedom) / (within / free_within)))
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
    let is_proportional = interval.0 <= -0.8 && interval.1 >= -1.25 && (slope + 1.0).abs() < 0.25;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_differ_as_the_f_distribution_says() {
        let of = |groups: &[[f64; 3]]| differ(groups.iter().map(<[f64; 3]>::as_slice)).unwrap();
        // 26 between, 6 within: F of 2 and 6 degrees of freedom is 13.
        let p_value = of(&[[1.0, 2.0, 3.0], [2.0, 3.0, 4.0], [5.0, 6.0, 7.0]]);
        assert!((p_value - (1.0 + 13.0 / 3.0_f64).powi(-3)).abs() < 1e-9, "{p_value}");
        let third = 1.0 / 3.0;
        assert_eq!(of(&[[third; 3]; 7]), 1.0);
        assert_eq!(of(&[[third; 3], [third + 1e-3; 3]]), 0.0);
    }
}
