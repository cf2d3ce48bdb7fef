//! Latency under load, as sentences by rule, and its figures: what probes of the profile `@responsiveness` measured while
//! the path was idle, loaded up, loaded down, and loaded in both directions.
//!
//! A rule states figures of points. It is no test with a p-value, so it also speaks of points that were run once.

mod grade;
mod probes;
#[cfg(test)]
mod tests;

use wirecost_model::document::{Finding, show};
use wirecost_model::metric::Unit;
use wirecost_model::study::Value;

use crate::conclusions::{Answer, effect, figure, mean};
use crate::findings::words;
use crate::measured::{MeasuredPoint, Measurements};
use crate::statistics::difference_of_means;
use crate::{Conclusions, Estimate};

pub use grade::{GRADES, Grade};
pub use probes::{Load, PROFILE, Responsiveness, load, request, responsiveness};

/// The axes that say how the path is loaded: points are compared that are equal in all others.
const LOADS: [&str; 3] = ["traffic", "up", "down"];

/// A question, and how it is answered of each group.
struct Rule {
    name: &'static str,
    /// What it answers, in the middle of a sentence.
    question: &'static str,
    answer: for<'a> fn(&Group<'a>) -> Vec<Answer>,
}

/// In the order of the report.
static RULES: &[Rule] = &[
    Rule { name: "latency-under-load", question: "latency under load", answer: latencies },
    Rule { name: "bufferbloat", question: "the grade of the path", answer: path },
    Rule { name: "rpm", question: "RPM", answer: rpms },
];

/// The answers of all rules.
#[must_use]
pub fn conclusions(measured: &Measurements) -> Conclusions {
    let groups = groups(measured);
    let mut conclusions = Conclusions::default();
    for rule in RULES {
        conclusions.add((rule.name, rule.question), groups.iter().flat_map(rule.answer));
    }
    conclusions
}

/// The points that differ only in how the path is loaded.
#[derive(Debug, Clone)]
pub struct Group<'a> {
    /// The axes of the study that vary beside the load.
    pub common: Vec<Value>,
    pub points: Vec<LoadedPoint<'a>>,
}

/// A point with how its path is loaded.
#[derive(Debug, Clone, Copy)]
pub struct LoadedPoint<'a> {
    pub load: Load,
    pub point: &'a MeasuredPoint,
}

/// In the order of the study. A point without a valid run is in none, as nothing is known of its load.
#[must_use]
pub fn groups(measured: &Measurements) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for point in &measured.points {
        let Some(Ok(load)) = point.runs.first().map(load) else { continue };
        let common = measured.common(point, is_load);
        let point = LoadedPoint { load, point };
        match groups.iter_mut().find(|group| group.common == common) {
            Some(group) => group.points.push(point),
            None => groups.push(Group { common, points: vec![point] }),
        }
    }
    groups
}

impl<'a> Group<'a> {
    #[must_use]
    pub fn idle(&self) -> Option<&'a MeasuredPoint> {
        self.points.iter().find(|of| of.load == Load::Idle).map(|of| of.point)
    }

    fn loaded(&self) -> impl Iterator<Item = &LoadedPoint<'a>> {
        self.points.iter().filter(|of| of.load != Load::Idle)
    }

    /// How much longer the median round trip of a request is than on the idle path, microseconds.
    ///
    /// # Errors
    /// One of them was not measured.
    pub fn increase(&self, point: &MeasuredPoint) -> Result<Estimate, String> {
        let idle = self.idle().ok_or("there is no run of the idle path")?;
        let p50 = |of: &MeasuredPoint| -> Vec<f64> {
            of.runs.iter().filter_map(|run| Some(request(run).ok()?.p50)).collect()
        };
        let (loaded, unloaded) = (median(point)?, median(idle)?);
        Ok(Estimate {
            mean: loaded.mean - unloaded.mean,
            interval: difference_of_means(&p50(point), &p50(idle)),
            times: loaded.times,
        })
    }

    fn finding(&self, metric: &str, sentence: String) -> Finding {
        Finding {
            kind: String::new(),
            metric: Some(metric.to_owned()),
            axis: None,
            at: self.common.clone(),
            sentence,
            effect: None,
            p_value: None,
            strength: None,
            evidence: Vec::new(),
            points: Vec::new(),
        }
    }

    fn sentence(&self, text: &str) -> String {
        words::sentence(&self.common.iter().collect::<Vec<_>>(), text)
    }
}

impl LoadedPoint<'_> {
    /// `upload`, with the number of streams where several points have such a load.
    fn name(&self, group: &Group<'_>) -> String {
        match group.points.iter().filter(|of| of.load == self.load).count() {
            0 | 1 => self.load.name().to_owned(),
            _ => format!("{} ({})", self.load.name(), self.streams()),
        }
    }

    /// `idle`, `4 up`, `4 down`, `4 up, 4 down`: by the number of streams, where the study sets it.
    #[must_use]
    pub fn streams(&self) -> String {
        let way = |way: &str| {
            self.load.is(way).then(|| match self.point.point.get(way) {
                Some(streams) => format!("{streams} {way}"),
                None => way.to_owned(),
            })
        };
        let ways: Vec<String> = ["up", "down"].into_iter().filter_map(way).collect();
        if ways.is_empty() { "idle".to_owned() } else { ways.join(", ") }
    }
}

/// Whether an axis of a study says how the path is loaded.
#[must_use]
pub fn is_load(axis: &str) -> bool {
    LOADS.contains(&axis)
}

fn median(point: &MeasuredPoint) -> Result<Estimate, String> {
    mean(point, |run| Ok(request(run)?.p50))
}

fn time(microseconds: f64) -> String {
    show(Unit::Microseconds, microseconds)
}

/// ` (250 to 310)` where it was repeated.
fn range(interval: Option<(f64, f64)>, show: impl Fn(f64) -> String) -> String {
    interval.map(|(low, high)| format!(" ({} to {})", show(low), show(high))).unwrap_or_default()
}

fn latencies(group: &Group<'_>) -> Vec<Answer> {
    group.loaded().map(|loaded| latency(group, loaded)).collect()
}

/// `During upload, p50 of the round trip grew by 212 ms, from 20.4 ms to 232 ms: grade D (200 to 400 ms).`
fn latency(group: &Group<'_>, loaded: &LoadedPoint<'_>) -> Answer {
    let increase = group.increase(loaded.point)?;
    let idle = group.idle().ok_or("there is no run of the idle path")?;
    let p99 = |point| mean(point, |run| Ok(request(run)?.p99));
    let (before, after) = (median(idle)?, median(loaded.point)?);
    let grade = Grade::of(increase.mean);
    let change = match increase.mean >= 0.0 {
        true => "grew",
        false => "fell",
    };
    let text = format!(
        "during {}, p50 of the round trip {change} by {}, from {} to {}: grade {} ({})",
        loaded.name(group),
        time(increase.mean.abs()),
        time(before.mean),
        time(after.mean),
        grade.name,
        grade.range()
    );
    let mut evidence =
        vec![format!("increase {}{}", time(increase.mean), range(increase.interval, time))];
    evidence.push(format!(
        "p99 from {} to {}",
        time(p99(idle)?.mean),
        time(p99(loaded.point)?.mean)
    ));
    for (way, metric) in [("up", "throughput.tx"), ("down", "throughput.rx")] {
        if loaded.load.is(way) {
            let rate = mean(loaded.point, |run| figure(run, metric))?;
            evidence.push(format!("{} {way}", show(Unit::BitsPerSecond, rate.mean)));
        }
    }
    Ok(Some(Finding {
        effect: effect("increase", Unit::Microseconds, increase.mean, increase.interval),
        evidence,
        ..group.finding("probe.p50", group.sentence(&text))
    }))
}

/// The grade of the path by what a load in each direction alone adds.
fn path(group: &Group<'_>) -> Vec<Answer> {
    let of = |load: Load| -> Vec<&LoadedPoint<'_>> {
        group.points.iter().filter(|of| of.load == load).collect()
    };
    let (up, down) = (of(Load::Up), of(Load::Down));
    let ([up], [down]) = (&up[..], &down[..]) else {
        return vec![Ok(None)];
    };
    let answer = || {
        let (up, down) = (group.increase(up.point)?, group.increase(down.point)?);
        let average = (up.mean + down.mean) / 2.0;
        let grade = Grade::of(average);
        let text = format!(
            "bufferbloat grade {} ({}): upload adds {} and download {}, {} on average",
            grade.name,
            grade.range(),
            time(up.mean),
            time(down.mean),
            time(average)
        );
        Ok(Some(Finding {
            effect: effect("increase", Unit::Microseconds, average, None),
            evidence: vec![format!("thresholds: {}", grade::thresholds())],
            ..group.finding("probe.p50", group.sentence(&text))
        }))
    };
    vec![answer()]
}

fn rpms(group: &Group<'_>) -> Vec<Answer> {
    group.loaded().map(|loaded| rpm(group, loaded)).collect()
}

/// `RPM (not HTTP/2) during upload and download is 280 (250 to 310).`
fn rpm(group: &Group<'_>, loaded: &LoadedPoint<'_>) -> Answer {
    let part = |of: fn(&Responsiveness) -> Option<f64>| {
        mean(loaded.point, |run| of(&responsiveness(run)?).ok_or_else(|| "not used".to_owned()))
    };
    let rpm = mean(loaded.point, |run| Ok(responsiveness(run)?.rpm()))?;
    let count = |value: f64| format!("{value:.0}");
    let text = format!(
        "RPM (not HTTP/2) during {} is {}{}",
        loaded.name(group),
        count(rpm.mean),
        range(rpm.interval.map(|(low, high)| (low.max(0.0), high)), count)
    );
    let mut evidence = vec![format!("TCP handshake {}", time(part(|of| Some(of.tcp))?.mean))];
    if let Ok(tls) = part(|of| of.tls) {
        evidence.push(format!("TLS handshake {}", time(tls.mean)));
    }
    evidence.push(format!("request {}", time(part(|of| Some(of.request))?.mean)));
    let own = part(|of| Some(of.own))?;
    evidence.push(format!("smoothed RTT of the streams {}", time(own.mean)));
    Ok(Some(Finding {
        effect: effect("rpm", Unit::Count, rpm.mean, rpm.interval),
        evidence,
        ..group.finding("rpm", group.sentence(&text))
    }))
}
