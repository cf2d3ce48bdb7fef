//! Where CPU time goes: mostly to the kernel or to programs, and where the part of programs changes.

use super::line::{self, mean};
use super::trend::{Subject, Trend, trends};
use super::{Finding, Kind, Question, Runs, Tested, effect, tested, words};
use crate::measured::{MeasuredPoint, Measurements};
use crate::metrics;
use crate::statistics::{student, two_sided_p};
use wirecost_model::metric::Unit;

pub(super) const KIND: Kind = Kind {
    name: "cpu",
    help: "whether most CPU time is user or system time, and how the user share changes along an axis",
    question: Question::Cause,
    find,
};

const SHARE: &str = "cpu.user_share";

const USER_TIME: Subject = Subject {
    metric: SHARE,
    noun: "user share of busy CPU time",
    verbs: ["rises", "falls"],
    least: 2.0,
};

/// The part of most time at least.
const MOST: f64 = 60.0;

fn find<'a>(runs: &'a Runs<'_>) -> Option<Tested<'a>> {
    // The user time of other programs says nothing of the network.
    let measured = &*runs.alone;
    let mut tests: Vec<(f64, Test<'_>)> = Vec::new();
    for (whose, metric) in scopes(measured) {
        let majority = majority(measured, whose, &metric);
        tests.extend(majority.map(|(p_value, majority)| (p_value, Test::Majority(majority))));
    }
    let changes = trends(line::lines(measured), &USER_TIME).into_iter();
    tests.extend(changes.map(|(p_value, trend)| (p_value, Test::Change(Box::new(trend)))));
    tested(tests, |p_value, question| match question {
        Test::Majority(majority) => majority.finding(p_value),
        Test::Change(trend) => trend.finding(&KIND, p_value),
    })
}

enum Test<'a> {
    Majority(Majority<'a>),
    Change(Box<Trend<'a>>),
}

/// Of each end where its CPUs are its own, else of the machine.
fn scopes(measured: &Measurements) -> Vec<(&'static str, String)> {
    let known = |metric: &str| {
        metrics::find(metric)
            .is_ok_and(|metric| measured.points.iter().any(|p| !p.figures(&metric).is_empty()))
    };
    let ends = [("the sender's CPU time", "sender"), ("the receiver's CPU time", "receiver")]
        .map(|(whose, host)| (whose, format!("hosts.{host}.{SHARE}")));
    let ends: Vec<_> = ends.into_iter().filter(|(_, metric)| known(metric)).collect();
    if !ends.is_empty() {
        return ends;
    }
    let machine = ("the machine's CPU time", format!("hosts.machine.{SHARE}"));
    [machine].into_iter().filter(|(_, metric)| known(metric)).collect()
}

/// User time in percent of busy time, at each point.
struct Majority<'a> {
    whose: &'static str,
    metric: String,
    points: Vec<(&'a MeasuredPoint, Vec<f64>)>,
    /// Mean over points, with its 95% interval.
    share: f64,
    interval: (f64, f64),
}

fn majority<'a>(
    measured: &'a Measurements,
    whose: &'static str,
    metric: &str,
) -> Option<(f64, Majority<'a>)> {
    let selector = metrics::find(metric).ok()?;
    let points: Vec<_> = measured.points.iter().map(|p| (p, p.figures(&selector))).collect();
    let points: Vec<_> = points.into_iter().filter(|(_, shares)| !shares.is_empty()).collect();
    // How much runs differ is taken from the repeats of all points together.
    let (mut squares, mut freedom, mut weights) = (0.0, 0.0, 0.0);
    for (_, shares) in &points {
        let mean = mean(shares);
        squares += shares.iter().map(|share| (share - mean).powi(2)).sum::<f64>();
        freedom += shares.len() as f64 - 1.0;
        weights += 1.0 / shares.len() as f64;
    }
    if freedom == 0.0 {
        return None;
    }
    let share = mean(&points.iter().map(|(_, shares)| mean(shares)).collect::<Vec<_>>());
    let error = (squares / freedom * weights).sqrt() / points.len() as f64;
    let more = share - 50.0;
    let p_value = match error > 0.0 {
        true => two_sided_p(more / error, freedom),
        false => f64::from(u8::from(more == 0.0)),
    };
    let reach = student(freedom) * error;
    let interval = (share - reach, share + reach);
    Some((p_value, Majority { whose, metric: metric.to_owned(), points, share, interval }))
}

impl Majority<'_> {
    fn finding(&self, p_value: f64) -> Option<Finding> {
        let is_user = self.share > 50.0;
        let part = |user: f64| if is_user { user } else { 100.0 - user };
        if part(self.share) < MOST {
            return None;
        }
        let shares: Vec<f64> = self.points.iter().map(|(_, shares)| part(mean(shares))).collect();
        // What holds of the mean need not hold at every point.
        let here = shares.iter().filter(|share| **share > 50.0).count();
        let all = shares.len();
        let whereas =
            if here < all { format!(" at {here} of {all} points") } else { String::new() };
        let what = if is_user { "user time" } else { "system time, including interrupts" };
        let percent = |value: f64| format!("{value:.0}%");
        let range = match (
            shares.iter().copied().fold(f64::INFINITY, f64::min),
            shares.iter().copied().fold(0.0, f64::max),
        ) {
            (least, most) if percent(least) == percent(most) => percent(most),
            (least, most) => format!("{} to {}", percent(least), percent(most)),
        };
        let text = format!(
            "most of {}{whereas} is {what}: {range} of the busy time over all points",
            self.whose
        );
        let (low, high) = self.interval;
        let (low, high) = if is_user { (low, high) } else { (100.0 - high, 100.0 - low) };
        let interval = Some((low.max(0.0), high.min(100.0)));
        let shown = self.points.iter().zip(&shares);
        let shown = shown.map(|((point, _), share)| format!("{}: {share:.0}%", point.point));
        Some(Finding {
            metric: Some(self.metric.clone()),
            effect: effect("percent of busy time", Unit::Percent, mean(&shares), interval),
            evidence: shown.collect(),
            ..KIND.finding(p_value, words::sentence(&[], &text))
        })
    }
}
