//! Links that are full.

use std::collections::BTreeMap;

use super::limits::{self, Seen};
use super::line::mean;
use super::{Finding, Kind, Question, Runs, Tested, effect, words};
use crate::measured::{MeasuredPoint, Measurements};
use crate::statistics::{Estimate, one_sided_p};
use wirecost_model::metric::Unit;
use wirecost_model::run::Run;

pub(super) const KIND: Kind = Kind {
    name: "links",
    help: "which links are saturated, and at which points",
    question: Question::Cause,
    find,
};

/// A link at the points where it was measured.
struct Link<'a> {
    name: String,
    rate: String,
    points: Vec<Shares<'a>>,
}

/// A point, and the share of a link's rate in each of its runs.
type Shares<'a> = (&'a MeasuredPoint, Vec<f64>);

fn find<'a>(runs: &'a Runs<'_>) -> Option<Tested<'a>> {
    let measured = runs.saturated;
    let mut tests = Vec::new();
    let links = links(measured);
    for (number, link) in links.iter().enumerate() {
        tests.extend(link.tests().into_iter().map(|(p_value, at)| (p_value, (number, at))));
    }
    if tests.is_empty() {
        return None;
    }
    Some(Box::new(move |correction| {
        let full = correction.significant(tests);
        let of = |number: usize| {
            let here = full.iter().filter(move |(_, (link, _))| *link == number);
            here.map(|(p_value, (_, at))| (*p_value, *at)).collect::<Vec<_>>()
        };
        links.iter().enumerate().filter_map(|(number, link)| link.finding(&of(number))).collect()
    }))
}

/// By host: what a link is called is its host.
fn links(measured: &Measurements) -> Vec<Link<'_>> {
    let mut links: BTreeMap<(String, String), Vec<Shares<'_>>> = BTreeMap::new();
    for point in &measured.points {
        let mut here: BTreeMap<(String, String), Vec<f64>> = BTreeMap::new();
        let of_run =
            |run: &Run| run.hosts.iter().filter_map(|host| limits::link(run, host)).collect();
        for Seen { name, unit, share, .. } in
            point.runs.iter().flat_map(|run| -> Vec<Seen> { of_run(run) })
        {
            here.entry((name, unit)).or_default().push(share);
        }
        for (key, shares) in here {
            links.entry(key).or_default().push((point, shares));
        }
    }
    links.into_iter().map(|((name, rate), points)| Link { name, rate, points }).collect()
}

impl Link<'_> {
    /// Of each point the p-value that it is not full. How much runs differ is taken from all points
    /// together: a link that is full hardly differs at all.
    fn tests(&self) -> Vec<(f64, usize)> {
        let (mut squares, mut freedom) = (0.0, 0.0);
        for (_, shares) in &self.points {
            let mean = mean(shares);
            squares += shares.iter().map(|share| (share / mean - 1.0).powi(2)).sum::<f64>();
            freedom += shares.len() as f64 - 1.0;
        }
        if freedom == 0.0 {
            return Vec::new();
        }
        let relative = (squares / freedom).sqrt();
        let test = |(at, (_, shares)): (usize, &Shares<'_>)| {
            let mean = mean(shares);
            let error = relative * mean / (shares.len() as f64).sqrt();
            let beyond = mean - limits::FULL_LINK;
            let p_value = match error > 0.0 {
                true => one_sided_p(beyond / error, freedom),
                false => f64::from(u8::from(beyond < 0.0)),
            };
            (p_value, at)
        };
        self.points.iter().enumerate().map(test).collect()
    }

    fn finding(&self, full: &[(f64, usize)]) -> Option<Finding> {
        let worst = full.iter().map(|(p_value, _)| *p_value).reduce(f64::max)?;
        let shares: Vec<f64> =
            full.iter().flat_map(|(_, at)| &self.points[*at].1).copied().collect();
        let percent: Vec<f64> = shares.iter().map(|share| 100.0 * share).collect();
        let estimate = Estimate::of(&percent)?.within(Unit::Percent.range());
        let text = format!(
            "{} is the bottleneck at {} of {}: payload uses {:.0}% {}",
            self.name,
            full.len(),
            words::number(self.points.len(), "point"),
            estimate.mean,
            self.rate
        );
        let shown = self
            .points
            .iter()
            .map(|(point, shares)| format!("{}: {:.0}%", point.point, 100.0 * mean(shares)));
        Some(Finding {
            metric: Some("throughput".to_owned()),
            effect: effect("percent of the link", Unit::Percent, estimate.mean, estimate.interval),
            evidence: shown.collect(),
            ..KIND.finding(worst, words::sentence(&[], &text))
        })
    }
}
